//! Limits of the number of calls: open at once, in a turn, and outside turns.

use super::draft::DecisionDraft;
use crate::limits::{CALLS_OUTSIDE_TURNS_MAX, CALLS_PER_TURN_MAX, OPEN_CALLS_MAX};

impl DecisionDraft<'_> {
    /// Returns why no further call may be opened now.
    pub(super) fn call_limit_error(&self) -> Option<String> {
        let session = self.session();
        if session.open_calls.len() >= OPEN_CALLS_MAX {
            return Some(format!("{OPEN_CALLS_MAX} calls are already open, which is the maximum"));
        }
        if let Some(most) = session.child_origin.as_ref().and_then(|origin| origin.allotment.cost_microusd_max)
            && session.ledger.usage_with_descendants().cost_microusd >= most
        {
            return Some(format!("the session has used the {most} millionths of a dollar that its parent gave it"));
        }
        let calls = session
            .current_turn
            .as_ref()
            .filter(|_| self.active_cause_turn().is_some())
            .map_or(0, |turn| turn.calls_opened);
        (calls >= CALLS_PER_TURN_MAX).then(|| {
            format!(
                "the turn has already made {CALLS_PER_TURN_MAX} calls, which is the maximum; the flow may be in a loop"
            )
        })
    }

    /// Returns why no further call may be opened outside turns. Does not apply to calls that an operator repeats.
    pub(super) fn calls_outside_turns_error(&self) -> Option<String> {
        let is_reached = self.session().calls_outside_turns >= CALLS_OUTSIDE_TURNS_MAX;
        (is_reached && self.active_cause_turn().is_none()).then(|| {
            format!(
                "{CALLS_OUTSIDE_TURNS_MAX} calls were made outside turns since the last message, which is the maximum; \
                 send a message to continue"
            )
        })
    }
}
