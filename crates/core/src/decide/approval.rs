//! Holds tool runs until a person decides about them: approves or denies them, or says what became of them.

use serde_json::Value;

use super::InputRefusal;
use super::draft::DecisionDraft;
use super::inputs::truncate_to_bytes;
use crate::event::{Event, ToolRunHoldReason, ToolRunOutcome, UnknownToolRunOutcomeResolution};
use crate::flow::approval::{SessionToolApproval, ToolApprovalRuleInputs};
use crate::flow::{ToolRunnerKind, UnknownOutcomePolicy};
use crate::ids::{RoleName, ToolRunId};
use crate::limits::{FAILURE_MESSAGE_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX};

impl DecisionDraft<'_> {
    /// Holds a new tool run if it needs approval. `role` has requested it.
    pub(crate) fn hold_if_approval_needed(&mut self, run: ToolRunId, role: Option<RoleName>) {
        let session = self.session();
        let Some(opened) = session.open_tool_runs.get(&run) else { return };
        let Some(declared) = self.spec().tools.get(&opened.tool) else { return };
        if declared.runner == ToolRunnerKind::Flow {
            return;
        }
        let attributes = ToolApprovalRuleInputs {
            flow: &self.spec().name,
            role: role.as_ref(),
            phase: opened.phase.as_ref(),
            tool: &opened.tool,
        };
        let use_by_role = SessionToolApproval { tool: opened.tool.clone(), role: role.clone() };
        if self.env.approval_rules.requires_approval(&declared.approval, &attributes)
            && !session.allowed_tool_uses.contains(&use_by_role)
        {
            self.record_event(Event::ToolRunHeld { run, reason: ToolRunHoldReason::Approval, role });
        }
    }

    pub(crate) fn approve_tool_run(
        &mut self,
        run: ToolRunId,
        arguments: Option<Value>,
        remember: bool,
        by: Option<String>,
    ) -> Result<(), InputRefusal> {
        self.check_held(run, ToolRunHoldReason::Approval)?;
        check_edited_arguments(arguments.as_ref())?;
        let session = self.session();
        let requested = session.open_tool_runs.get(&run).map(|opened| &opened.arguments);
        let edited_arguments = arguments.filter(|arguments| Some(arguments) != requested);
        let allowed = remember.then(|| session.session_approval_for_held_run(run)).flatten();
        self.record_event(Event::ToolRunApproved { run, by: by.clone(), edited_arguments });
        let Some(allowed) = allowed else { return Ok(()) };
        // Other runs of the same role and tool are waiting for the same decision.
        let session = self.session();
        let covered: Vec<ToolRunId> = session
            .held_tool_runs
            .iter()
            .filter(|(_, held)| held.reason == ToolRunHoldReason::Approval)
            .filter(|(run, _)| session.session_approval_for_held_run(**run).as_ref() == Some(&allowed))
            .map(|(run, _)| *run)
            .collect();
        self.record_event(Event::ToolApprovalRuleAdded(allowed));
        for run in covered {
            self.record_event(Event::ToolRunApproved { run, by: by.clone(), edited_arguments: None });
        }
        Ok(())
    }

    pub(crate) fn deny_tool_run(&mut self, run: ToolRunId, mut reason: String) -> Result<(), InputRefusal> {
        self.check_held(run, ToolRunHoldReason::Approval)?;
        truncate_to_bytes(&mut reason, FAILURE_MESSAGE_BYTES_MAX);
        let text = match reason.trim() {
            "" => "a person denied this tool call".to_owned(),
            reason => format!("a person denied this tool call: {reason}"),
        };
        self.record_event(Event::ToolRunDenied { run, reason });
        self.close_tool_run(run, ToolRunOutcome::Refused, text);
        Ok(())
    }

    pub(crate) fn resolve_tool_run(
        &mut self,
        run: ToolRunId,
        resolution: UnknownToolRunOutcomeResolution,
        text: Option<String>,
    ) -> Result<(), InputRefusal> {
        self.check_held(run, ToolRunHoldReason::UnknownOutcome)?;
        self.record_event(Event::ToolRunResolved { run, resolution });
        match resolution {
            UnknownToolRunOutcomeResolution::RunAgain => {}
            UnknownToolRunOutcomeResolution::Fail => {
                let text = text.unwrap_or_else(|| UNKNOWN_OUTCOME_TEXT.to_owned());
                self.close_tool_run(run, ToolRunOutcome::Failed, text);
            }
            UnknownToolRunOutcomeResolution::Done => {
                self.close_tool_run(run, ToolRunOutcome::Done, text.unwrap_or_default())
            }
        }
        Ok(())
    }

    /// Decides about the tool runs that were in progress when the process died, as their declarations say.
    pub(crate) fn recover_tool_runs(&mut self) {
        let session = self.session();
        let started = session.open_tool_runs.values().filter(|tool| !session.held_tool_runs.contains_key(&tool.run));
        let started: Vec<(ToolRunId, UnknownOutcomePolicy)> = started
            .map(|tool| {
                let declared = self.spec().tools.get(&tool.tool);
                (tool.run, declared.map_or(UnknownOutcomePolicy::Fail, |declared| declared.unknown_outcome))
            })
            .collect();
        for (run, policy) in started {
            match policy {
                UnknownOutcomePolicy::Retry => {}
                UnknownOutcomePolicy::AskOperator => {
                    let role = self.session().tool_run_role(run);
                    self.record_event(Event::ToolRunHeld { run, reason: ToolRunHoldReason::UnknownOutcome, role });
                }
                UnknownOutcomePolicy::Fail => {
                    self.close_tool_run(run, ToolRunOutcome::Unknown, UNKNOWN_OUTCOME_TEXT.to_owned());
                }
            }
        }
    }

    /// Denies the runs that a copied session inherited: the original session waits for the decision about them.
    pub(crate) fn deny_inherited_tool_runs(&mut self) {
        let session = self.session();
        let held = session.held_tool_runs.iter().filter(|(_, held)| held.reason != ToolRunHoldReason::ClientResult);
        let held: Vec<ToolRunId> = held.map(|(run, _)| *run).collect();
        for run in held {
            let reason = "inherited: the session was copied while this run waited for a person".to_owned();
            self.record_event(Event::ToolRunDenied { run, reason: reason.clone() });
            self.close_tool_run(run, ToolRunOutcome::Refused, reason);
        }
    }

    /// Refuses a command for a tool run that does not wait for it.
    pub(super) fn check_held(&self, run: ToolRunId, reason: ToolRunHoldReason) -> Result<(), InputRefusal> {
        let session = self.session();
        let why = match session.held_tool_runs.get(&run) {
            Some(held) if held.reason == reason => return Ok(()),
            Some(_) => "waits for another decision",
            None if session.open_tool_runs.contains_key(&run) => "has already started",
            None if run > session.last_ids.tool_run || run == ToolRunId(0) => "does not exist",
            None => "has ended",
        };
        Err(InputRefusal::ToolRunNotHeld { run, why: why.to_owned() })
    }
}

const UNKNOWN_OUTCOME_TEXT: &str = "the process died while this was running; it may or may not have taken effect";

fn check_edited_arguments(arguments: Option<&Value>) -> Result<(), InputRefusal> {
    let Some(arguments) = arguments else { return Ok(()) };
    let bytes = arguments.to_string().len();
    let why = if !arguments.is_object() {
        "they must be a JSON object".to_owned()
    } else if bytes > TOOL_ARGUMENTS_BYTES_MAX {
        format!("they have {bytes} bytes, but at most {TOOL_ARGUMENTS_BYTES_MAX} are allowed")
    } else {
        return Ok(());
    };
    Err(InputRefusal::BadToolArguments { why })
}
