//! Whether a session has something to do now, or waits for a person, another session or a point in time.

use super::{OpenCallStatus, Session};

impl Session {
    /// Returns true if the session does nothing until its next input or its next wake-up, also in the middle of a turn.
    /// Such a session needs no task and no lease.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        let has_effects = self.open_calls.values().any(|open| open.status != OpenCallStatus::AwaitingOperator)
            || !self.open_tool_runs.is_empty()
            || self.tool_rounds.values().any(super::ToolRound::is_complete)
            // A deferred call waits for an open call; otherwise it waits for a process that makes calls.
            || (!self.deferred_calls.is_empty() && self.open_calls.is_empty());
        let can_start_turn =
            self.current_turn.is_none() && self.closed_reason.is_none() && !self.queued_messages.is_empty();
        let is_stalled = self.current_turn.is_some() && !self.waits_in_turn();
        !has_effects && !can_start_turn && !is_stalled
    }

    /// Returns true if the current turn waits for something, so that it is not stalled.
    pub(crate) fn waits_in_turn(&self) -> bool {
        !self.open_calls.is_empty()
            || !self.open_tool_runs.is_empty()
            || !self.tool_rounds.is_empty()
            || !self.deferred_calls.is_empty()
            || !self.timers.is_empty()
            || !self.open_asks.is_empty()
            || self.open_children.values().any(|child| !child.close_requested)
    }
}
