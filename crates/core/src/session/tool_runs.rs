//! Applies the events of tool runs to a session's state.

use std::sync::Arc;

use serde_json::Value;

use super::{Session, ToolCallWithResult, ToolRound};
use crate::body::TextRef;
use crate::event::ToolRunHoldReason;
use crate::flow::approval::SessionToolApproval;
use crate::ids::{CallId, RoleName, ToolRunId};
use crate::prompt::{ChatRole, ToolCall};
use crate::session::thread::ThreadMessage;

impl Session {
    /// Returns the use that would be allowed if a person allowed this held run for the rest of the session.
    pub(crate) fn session_approval_for_held_run(&self, run: ToolRunId) -> Option<SessionToolApproval> {
        let (held, opened) = (self.held_tool_runs.get(&run)?, self.open_tool_runs.get(&run)?);
        Some(SessionToolApproval { tool: opened.tool.clone(), role: held.role.clone() })
    }

    /// Returns the role that requested an open run; `None` for the flow itself.
    pub(crate) fn tool_run_role(&self, run: ToolRunId) -> Option<RoleName> {
        let (call, _) = self.open_tool_runs.get(&run)?.requested_by.as_ref()?;
        self.tool_rounds.get(call).map(|round| round.request.role.clone())
    }

    /// Returns the arguments of a run that a model requested, if a person changed them.
    pub(crate) fn human_edited_arguments(&self, run: ToolRunId) -> Option<&Value> {
        let opened = self.open_tool_runs.get(&run).filter(|_| self.edited_tool_runs.contains(&run))?;
        opened.requested_by.as_ref().map(|_| &opened.arguments)
    }

    /// Returns the runs that wait for the client's results.
    pub(crate) fn runs_waiting_for_client(&self) -> impl Iterator<Item = ToolRunId> {
        let held = self.held_tool_runs.iter();
        held.filter(|(_, held)| held.reason == ToolRunHoldReason::ClientResult).map(|(run, _)| *run)
    }

    /// Returns true if a turn is running and waits for the results of the client's tools, and for nothing else.
    #[must_use]
    pub(crate) fn waits_only_for_client(&self) -> bool {
        let waiting = self.runs_waiting_for_client().count();
        self.current_turn.is_some() && waiting > 0 && waiting == self.open_tool_runs.len() && self.open_calls.is_empty()
    }

    /// Returns true if a tool run of the call's answer waits for a person or a client.
    pub(crate) fn has_held_runs(&self, call: CallId) -> bool {
        let held = self.held_tool_runs.keys().filter_map(|run| self.open_tool_runs.get(run));
        held.filter_map(|opened| opened.requested_by.as_ref()).any(|(requested_by, _)| *requested_by == call)
    }

    pub(super) fn apply_tool_run_approved(&mut self, run: ToolRunId, edited_arguments: Option<&Value>) {
        self.held_tool_runs.remove(&run);
        if let Some((opened, arguments)) = self.open_tool_runs.get_mut(&run).zip(edited_arguments) {
            opened.arguments = arguments.clone();
            self.edited_tool_runs.insert(run);
        }
    }

    pub(super) fn apply_tool_run_ended(&mut self, run: ToolRunId, text: TextRef, failed: bool) {
        self.held_tool_runs.remove(&run);
        self.edited_tool_runs.remove(&run);
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
        for ToolCallWithResult { tool_call_id: id, text, failed } in &round.tool_results {
            thread.push(ThreadMessage {
                parts: text.iter().copied().collect(),
                tool_call_id: Some(id.clone()),
                failed: *failed,
                ..ThreadMessage::empty(call, ChatRole::Tool)
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

impl ToolCallWithResult {
    pub(super) fn from_tool_call(tool_call: &ToolCall) -> Self {
        Self { tool_call_id: tool_call.id.clone(), text: None, failed: false }
    }
}
