//! Limits of the number of calls and tool calls: open at once in a session, and of each role in a turn and outside turns.

use super::draft::DecisionDraft;
use crate::event::CallOpened;
use crate::flow::{RoleCallLimits, RoleSpec};
use crate::limits::OPEN_CALLS_MAX;

impl DecisionDraft<'_> {
    /// Returns why no further call of any role may be opened now.
    pub(super) fn session_call_limit_error(&self) -> Option<String> {
        let session = self.session();
        if session.open_calls.len() >= OPEN_CALLS_MAX {
            return Some(format!("{OPEN_CALLS_MAX} calls are already open, which is the maximum"));
        }
        let most = session.child_origin.as_ref()?.allotment.cost_microusd_max?;
        (session.ledger.usage_with_descendants().cost_microusd >= most)
            .then(|| format!("the session has used the {most} millionths of a dollar that its parent gave it"))
    }

    /// Returns why no further call of the role may be opened now.
    pub(super) fn role_call_limit_error(&self, role: &RoleSpec) -> Option<String> {
        if let Some(why) = self.session_call_limit_error() {
            return Some(why);
        }
        let turn = self.session().current_turn.as_ref().filter(|_| self.active_cause_turn().is_some());
        let calls = turn.and_then(|turn| turn.calls_by_role.get(&role.name)).copied().unwrap_or(0);
        let most = role.limits.calls_per_turn_max;
        (calls >= most).then(|| {
            format!(
                "`{}` has already made {most} calls in this turn, which is the maximum; the flow may be in a loop",
                role.name
            )
        })
    }

    /// Returns why no further call of the role may be opened outside turns. Does not apply to calls that an operator
    /// repeats.
    pub(super) fn calls_outside_turns_error(&self, role: &RoleSpec) -> Option<String> {
        let most = role.limits.calls_outside_turns_max;
        let calls = self.session().calls_outside_turns_by_role.get(&role.name).copied().unwrap_or(0);
        (calls >= most && self.active_cause_turn().is_none()).then(|| {
            format!(
                "`{}` has made {most} calls outside turns since the last message, which is the maximum; \
                 send a message to continue",
                role.name
            )
        })
    }

    /// Returns how many more tool calls the role of a call may make in the turn of the call.
    pub(super) fn remaining_tool_calls(&self, opened: &CallOpened, limits: RoleCallLimits) -> usize {
        let turn = self.session().current_turn.as_ref().filter(|turn| Some(turn.id) == opened.turn);
        let made = turn.and_then(|turn| turn.tool_calls_by_role.get(&opened.role)).copied().unwrap_or(0);
        usize::try_from(limits.tool_calls_per_turn_max.saturating_sub(made)).unwrap_or(usize::MAX)
    }
}
