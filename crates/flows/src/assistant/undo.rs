//! The `undo` command: restores the values that the journal recorded before a write.

use segue_core::body::TextRef;
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::assistant_context::AssistantSessionContext;
use super::facts::AssistantFact;
use super::state::{AssistantState, CompletedDomainWrite};
use super::tool_runs::{NOT_EXECUTED, UNKNOWN_WRITE_OUTCOME, resolve_interrupted_write};
use super::tools::{
    DomainOperation, DomainToolRequest, DomainToolResult, DomainToolRunPurpose, RECORDS_TOOL, translate_tool_result,
};
use crate::template::fill_template;

/// Returns the write to undo: the given one, or the last one that was not undone.
///
/// # Errors
/// There is no such write, or it was undone already.
pub(super) fn find_undoable_write<'m>(
    state: &'m AssistantState,
    arguments: &Value,
) -> Result<&'m CompletedDomainWrite, String> {
    let Some(named) = arguments.get("run").filter(|run| !run.is_null()) else {
        let last = state.writes.iter().rev().find(|write| !write.undone);
        return last.ok_or_else(|| "this session has no write that can be undone".to_owned());
    };
    let run = match named {
        Value::String(text) => text.parse::<ToolRunId>()?,
        other => {
            let number = other.as_u64().and_then(|number| u32::try_from(number).ok());
            ToolRunId(number.ok_or_else(|| format!("`run` must be a tool run (like x3 or 3), not {other}"))?)
        }
    };
    let known = || {
        let runs: Vec<String> = state.writes.iter().map(|write| write.run.to_string()).collect();
        if runs.is_empty() { "none".to_owned() } else { runs.join(", ") }
    };
    let write = state.writes.iter().find(|write| write.run == run);
    let write = write
        .ok_or_else(|| format!("{run} is not a write of this session that can be undone; these are: {}", known()))?;
    if write.undone { Err(format!("{run} was already undone")) } else { Ok(write) }
}

/// Starts the undo of a write.
pub(super) fn start_undo(context: &AssistantSessionContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let Ok(write) = find_undoable_write(context.state(), arguments) else { return Vec::new() };
    let Some(result) = DomainToolResult::parse(&context.view.read_text(write.tool_result)) else { return Vec::new() };
    if result.changes.is_empty() {
        let why = "the change was made by the domain's server, which must undo it itself".to_owned();
        return report_undo_failure(write.run, why);
    }
    let mut parameters = Map::new();
    parameters.insert("run".to_owned(), json!(write.run.0));
    parameters.insert("changes".to_owned(), json!(result.changes));
    let request = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::Undo,
        purpose: DomainToolRunPurpose::Undo,
        turn: context.state().current_turn_number(),
        step: None,
        step_kind: None,
        parameters,
    };
    vec![FlowStep::RunTool { tool: RECORDS_TOOL.into(), arguments: request.to_arguments(), agent: None }]
}

fn report_undo_failure(run: ToolRunId, why: String) -> Vec<FlowStep> {
    let text = render_undo_reply(&json!({"why": why, "write_summaries": []}));
    vec![
        AssistantFact::UndoFailed { run, why }.into_step(),
        FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None },
    ]
}

fn render_undo_reply(arguments: &Value) -> String {
    fill_template(include_str!("../../prompts/assistant/shared/undone.md"), arguments)
}

/// Handles the end of an undo that has no result: it may have been executed, which the run log of the records says. `attempt`
/// tells whether the log was asked already.
pub(super) fn handle_interrupted_undo(
    context: &AssistantSessionContext<'_>,
    undo_run: ToolRunId,
    request: &DomainToolRequest,
    attempt: UndoOutcomeLookupStatus,
) -> Vec<FlowStep> {
    match (attempt, &context.view.session.closed_reason) {
        (UndoOutcomeLookupStatus::NotTried, None) => vec![resolve_interrupted_write(undo_run, request)],
        // A closed session runs no tools.
        (UndoOutcomeLookupStatus::NotTried, Some(_)) | (UndoOutcomeLookupStatus::Failed, _) => undone_run(request)
            .map(|run| report_undo_failure(run, UNKNOWN_WRITE_OUTCOME.to_owned()))
            .unwrap_or_default(),
    }
}

/// Whether the run log was asked what became of an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoOutcomeLookupStatus {
    NotTried,
    Failed,
}

/// Returns the run whose write a request undoes.
fn undone_run(request: &DomainToolRequest) -> Option<ToolRunId> {
    let run = request.parameters.get("run").and_then(Value::as_u64)?;
    u32::try_from(run).ok().map(ToolRunId)
}

/// Handles the result of an undo.
pub(super) fn handle_undo_result(
    context: &AssistantSessionContext<'_>,
    undo_run: ToolRunId,
    request: &DomainToolRequest,
    result: DomainToolResult,
    text: TextRef,
) -> Vec<FlowStep> {
    let Some(run) = undone_run(request) else { return Vec::new() };
    if let Some(why) = result.refusal {
        return report_undo_failure(run, why);
    }
    if result.never_executed {
        return report_undo_failure(run, NOT_EXECUTED.to_owned());
    }
    let records = translate_tool_result(context.domain, &context.state().entities, undo_run, request, &result, text);
    let text = render_undo_reply(&json!({"why": null, "write_summaries": records.write_summaries}));
    let reply = FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None };
    vec![
        AssistantFact::RecordsReceived(Box::new(records)).into_step(),
        AssistantFact::WriteUndone { run }.into_step(),
        reply,
    ]
}
