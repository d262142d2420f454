//! Whether a session has something to do now, or waits for a person, another session or a point in time.

use super::{OpenCallStatus, Session};
use crate::ids::{CallId, UnixMillis};

impl Session {
    /// Returns true if nothing happens until an input arrives or a timer fires: the session is idle, or all its pending
    /// work waits for a person, another session or a timer. A turn may be running. Such a session needs no task and no
    /// lease.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_idle() || (self.has_anything_pending() && !self.has_work_to_start())
    }

    /// Returns since when the session waits for a person or another session, if it waits for nothing else. Between
    /// turns it waits for the user.
    pub(crate) fn waiting_for_others_since(&self) -> Option<UnixMillis> {
        let waits_for_other = self.current_turn.is_none()
            || !self.held_tool_runs.is_empty()
            || self.open_calls.values().any(|open| open.status == OpenCallStatus::AwaitingOperator)
            || !self.open_asks.is_empty()
            || !self.open_children.is_empty();
        // No event has happened since, so the state is as old as the last one.
        (waits_for_other && self.is_at_rest()).then_some(self.last_event_at)
    }

    /// Returns true if a process has to start, continue or await something now.
    fn has_work_to_start(&self) -> bool {
        let continues = |call: &CallId| self.deferred_calls.values().any(|wait| wait.continues == Some(*call));
        let is_awaited = |call: &CallId| self.open_calls.contains_key(call) || self.tool_rounds.contains_key(call);
        let starts_turn =
            self.current_turn.is_none() && !self.queued_messages.is_empty() && self.closed_reason.is_none();
        starts_turn
            || self.open_calls.values().any(|open| open.status != OpenCallStatus::AwaitingOperator)
            || self.open_tool_runs.keys().any(|run| !self.held_tool_runs.contains_key(run))
            || self.tool_rounds.iter().any(|(call, round)| round.is_complete() && !continues(call))
            || self.deferred_calls.values().any(|wait| !is_awaited(&wait.waits_for_call))
    }

    /// Returns true if the session waits for something, so that a running turn is not stalled.
    pub(crate) fn has_anything_pending(&self) -> bool {
        !self.open_calls.is_empty()
            || !self.open_tool_runs.is_empty()
            || !self.tool_rounds.is_empty()
            || !self.deferred_calls.is_empty()
            || !self.timers.is_empty()
            || !self.open_asks.is_empty()
            || self.open_children.values().any(|child| !child.close_requested)
    }
}
