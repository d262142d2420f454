//! Opens and ends tool runs.

use serde_json::Value;

use super::InputRefusal;
use super::draft::DecisionDraft;
use super::inputs::truncate_to_bytes;
use crate::body::{BodyVisibility, TextRef};
use crate::event::{CallOpened, Event, ToolRunHoldReason, ToolRunOpened, ToolRunOutcome};
use crate::flow::ToolRunnerKind;
use crate::ids::{AgentName, CallId, RoleName, ToolRunId, TurnId};
use crate::limits::{
    TOOL_ARGUMENTS_BYTES_MAX, TOOL_ARTIFACT_BYTES_MAX, TOOL_ARTIFACT_NAME_BYTES_MAX, TOOL_ARTIFACTS_MAX,
    TOOL_CALLS_PER_REPLY_MAX, TOOL_RESULT_BYTES_MAX, TOOL_VALUE_BYTES_MAX,
};
use crate::prompt::ToolCall;
use crate::scope::PhaseVisit;
use crate::tool::{ToolArtifact, ToolResult};

/// Who requested a tool run.
pub(crate) struct ToolRequester<'r> {
    /// The call whose answer requested it.
    pub call: CallId,
    pub turn: Option<TurnId>,
    pub role: &'r RoleName,
    pub agent: Option<&'r AgentName>,
}

impl ToolRequester<'_> {
    fn new_tool_run(&self, tool_call: &ToolCall, visit: Option<PhaseVisit>) -> ToolRunOpened {
        ToolRunOpened {
            run: ToolRunId(0),
            turn: self.turn,
            tool: tool_call.name.clone(),
            arguments: tool_call.arguments.clone(),
            requested_by: Some((self.call, tool_call.id.clone())),
            agent: self.agent.cloned(),
            phase: visit.map(|visit| visit.phase),
        }
    }
}

impl DecisionDraft<'_> {
    /// Drops the tool calls of an answer that are beyond the limits of its role. `round` tool rounds preceded it.
    pub(crate) fn drop_tool_calls_beyond_limits(
        &mut self,
        opened: &CallOpened,
        round: u32,
        tool_calls: &mut Vec<ToolCall>,
    ) {
        if tool_calls.is_empty() {
            return;
        }
        let limits = self.spec().roles.get(&opened.role).map(|role| role.limits).unwrap_or_default();
        if round >= limits.tool_rounds_max {
            let why = format!("the call has already used {} tool rounds, which is the maximum", limits.tool_rounds_max);
            self.refuse_step("tool calls", why);
            tool_calls.clear();
            return;
        }
        tool_calls.truncate(if opened.tool_use.is_single_call { 1 } else { TOOL_CALLS_PER_REPLY_MAX });
        let remaining = self.remaining_tool_calls(opened, limits);
        if tool_calls.len() > remaining {
            let most = limits.tool_calls_per_turn_max;
            let why = format!("`{}` may make {most} tool calls in a turn, which are used up", opened.role);
            self.refuse_step("tool calls", why);
            tool_calls.truncate(remaining);
        }
    }

    /// Drops tool calls with huge arguments, because the journal would keep them forever.
    pub(crate) fn drop_oversized_tool_calls(&mut self, tool_calls: &mut Vec<ToolCall>) {
        tool_calls.retain(|tool_call| {
            let bytes = tool_call.arguments.to_string().len();
            if bytes > TOOL_ARGUMENTS_BYTES_MAX {
                let why =
                    format!("its arguments have {bytes} bytes, but at most {TOOL_ARGUMENTS_BYTES_MAX} are allowed");
                self.refuse_step(format!("call of tool `{}`", tool_call.name), why);
            }
            bytes <= TOOL_ARGUMENTS_BYTES_MAX
        });
    }

    pub(crate) fn open_requested_tool(&mut self, opened: &CallOpened, tool_call: &ToolCall) {
        let CallOpened { call, turn, role, agent, .. } = opened;
        let requester = ToolRequester { call: *call, turn: *turn, role, agent: agent.as_ref() };
        if self.is_client_tool(opened, &tool_call.name) {
            let visit = self.session().current_visit(self.spec(), role, agent.as_ref());
            let run = self.open_tool_run(requester.new_tool_run(tool_call, visit));
            let (reason, role) = (ToolRunHoldReason::ClientResult, Some(role.clone()));
            self.record_event(Event::ToolRunHeld { run, reason, role });
        } else {
            self.open_checked_tool(&requester, tool_call);
        }
    }

    /// Opens a run that a model requested. It is refused if the role has no such tool or the phase does not allow it.
    pub(crate) fn open_checked_tool(&mut self, requester: &ToolRequester<'_>, tool_call: &ToolCall) {
        let role = self.spec().roles.get(requester.role);
        let visit = self.session().current_visit(self.spec(), requester.role, requester.agent);
        let role_has_tool = role.is_some_and(|role| role.tools.contains(&tool_call.name));
        let phase_allows_tool = self.is_tool_allowed(visit.as_ref(), &tool_call.name);
        let run = self.open_tool_run(requester.new_tool_run(tool_call, visit));
        if !role_has_tool {
            self.close_tool_run(run, ToolRunOutcome::Refused, format!("this role has no tool `{}`", tool_call.name));
        } else if !phase_allows_tool {
            self.close_tool_run(
                run,
                ToolRunOutcome::Refused,
                format!("`{}` may not be used in this phase", tool_call.name),
            );
        } else {
            self.hold_if_approval_needed(run, Some(requester.role.clone()));
        }
    }

    /// Records a new pending tool run.
    pub(crate) fn open_tool_run(&mut self, opened: ToolRunOpened) -> ToolRunId {
        let run = ToolRunId(self.session().last_ids.tool_run.0 + 1);
        self.record_event(Event::ToolRunOpened(ToolRunOpened { run, ..opened }));
        run
    }

    /// Fails runs of the flow's own tools that the flow did not answer in the same decision.
    pub(crate) fn fail_unanswered_flow_tools(&mut self) -> bool {
        let mut answered = false;
        for run in std::mem::take(&mut self.opened_tool_runs) {
            let Some(opened) = self.session().open_tool_runs.get(&run) else { continue };
            if self.session().held_tool_runs.contains_key(&run) {
                continue;
            }
            let runner = self.spec().tools.get(&opened.tool).map_or(ToolRunnerKind::Flow, |tool| tool.runner);
            if runner == ToolRunnerKind::Flow {
                let text = format!("the flow did not answer `{}`", opened.tool);
                self.close_tool_run(run, ToolRunOutcome::Failed, text);
                answered = true;
            }
        }
        answered
    }

    pub(crate) fn handle_tool_result(&mut self, run: ToolRunId, result: ToolResult) -> Result<(), InputRefusal> {
        let session = self.session();
        if !session.open_tool_runs.contains_key(&run) || session.held_tool_runs.contains_key(&run) {
            return Err(InputRefusal::ToolRunNotPending { run });
        }
        let outcome = if result.failed { ToolRunOutcome::Failed } else { ToolRunOutcome::Done };
        self.record_tool_run_ended(run, outcome, result);
        Ok(())
    }

    /// Ends a tool run with a text for the model.
    pub(crate) fn close_tool_run(&mut self, run: ToolRunId, outcome: ToolRunOutcome, text: String) {
        self.record_tool_run_ended(run, outcome, ToolResult::done(text));
    }

    fn record_tool_run_ended(&mut self, run: ToolRunId, outcome: ToolRunOutcome, result: ToolResult) {
        let ToolResult { mut text, value, artifacts, .. } = result;
        if let Some(arguments) = self.session().human_edited_arguments(run) {
            text = format!("(a person changed the arguments of this call to {arguments})\n{text}");
        }
        truncate_to_bytes(&mut text, self.tool_output_bytes_max(run));
        let text = self.store_text(text, BodyVisibility::Internal);
        let failed = outcome != ToolRunOutcome::Done;
        let value = self.drop_oversized_tool_value(run, value);
        let artifacts = self.store_artifacts(run, artifacts);
        self.record_event(Event::ToolRunEnded { run, outcome, text, failed, value, artifacts });
    }

    fn tool_output_bytes_max(&self, run: ToolRunId) -> usize {
        let opened = self.session().open_tool_runs.get(&run);
        let declared = opened.and_then(|opened| self.spec().tools.get(&opened.tool));
        declared.map_or(TOOL_RESULT_BYTES_MAX, |tool| tool.output_bytes_max).min(TOOL_RESULT_BYTES_MAX)
    }

    /// Returns the value, unless it is too large for the journal.
    fn drop_oversized_tool_value(&mut self, run: ToolRunId, value: Option<Value>) -> Option<Value> {
        let value = value?;
        let bytes = value.to_string().len();
        if bytes <= TOOL_VALUE_BYTES_MAX {
            return Some(value);
        }
        let why = format!("it has {bytes} bytes of JSON, but at most {TOOL_VALUE_BYTES_MAX} are allowed");
        self.refuse_step(format!("value of {run}"), why);
        None
    }

    fn store_artifacts(&mut self, run: ToolRunId, artifacts: Vec<ToolArtifact>) -> Vec<ToolArtifact<TextRef>> {
        if artifacts.len() > TOOL_ARTIFACTS_MAX {
            let why = format!("there are {}, but at most {TOOL_ARTIFACTS_MAX} are allowed", artifacts.len());
            self.refuse_step(format!("further artifacts of {run}"), why);
        }
        let recorded = artifacts.into_iter().take(TOOL_ARTIFACTS_MAX).map(|artifact| {
            let ToolArtifact { kind, mut name, mut media_type, mut text } = artifact;
            truncate_to_bytes(&mut name, TOOL_ARTIFACT_NAME_BYTES_MAX);
            truncate_to_bytes(&mut media_type, TOOL_ARTIFACT_NAME_BYTES_MAX);
            truncate_to_bytes(&mut text, TOOL_ARTIFACT_BYTES_MAX);
            let text = self.store_text(text, BodyVisibility::Internal);
            ToolArtifact { kind, name, media_type, text }
        });
        recorded.collect()
    }
}
