//! Applies the events of tool runs to a session's state.

use std::sync::Arc;

use super::{Session, ToolCallResult, ToolRound};
use crate::body::TextRef;
use crate::ids::{CallId, ToolRunId};
use crate::prompt::{ChatRole, ToolCall};
use crate::thread::ThreadEntry;

impl Session {
    pub(super) fn apply_tool_run_ended(&mut self, run: ToolRunId, text: TextRef, failed: bool) {
        let Some(opened) = self.open_tool_runs.remove(&run) else { return };
        let Some((call, id)) = opened.requested_by else { return };
        let Some(round) = self.tool_rounds.get_mut(&call) else { return };
        if let Some(result) =
            round.tool_results.iter_mut().find(|result| result.tool_call_id == id && result.text.is_none())
        {
            (result.text, result.failed) = (Some(text), failed);
        }
        if round.is_complete() {
            let round = round.clone();
            self.push_tool_results(call, &round);
        }
    }

    pub(super) fn push_tool_results(&mut self, call: CallId, round: &ToolRound) {
        let Some(thread) = self.threads.get_mut(&round.thread).map(Arc::make_mut) else { return };
        for ToolCallResult { tool_call_id: id, text, failed } in &round.tool_results {
            thread.push(ThreadEntry {
                parts: text.iter().copied().collect(),
                tool_call_id: Some(id.clone()),
                failed: *failed,
                ..ThreadEntry::empty(call, ChatRole::Tool)
            });
        }
    }
}

impl ToolRound {
    /// Returns true if every tool call has finished.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.tool_results.iter().all(|result| result.text.is_some())
    }
}

impl ToolCallResult {
    pub(super) fn from_tool_call(tool_call: &ToolCall) -> Self {
        Self { tool_call_id: tool_call.id.clone(), text: None, failed: false }
    }
}
