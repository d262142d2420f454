//! Taking a write back: from what the journal says stood there before. A person asks for it, beside the conversation.

use segue_core::body::TextRef;
use segue_core::flow::{FlowStep, ReplyText};
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::assistant_context::AssistantContext;
use super::facts::Fact;
use super::state::{AssistantState, CompletedWrite};
use super::tools::{
    DomainOperation, DomainToolRequest, DomainToolResult, RECORDS_TOOL, ToolRunPurpose, translate_tool_result,
};
use crate::template::fill_template;

/// The write that is meant: the one named, or the last that still stands.
///
/// # Errors
/// There is none, and why.
pub(super) fn find_undoable_write<'m>(
    state: &'m AssistantState,
    arguments: &Value,
) -> Result<&'m CompletedWrite, String> {
    let Some(named) = arguments.get("run").filter(|run| !run.is_null()) else {
        let standing = state.writes.iter().rev().find(|write| !write.undone);
        return standing.ok_or_else(|| "nothing was written in this session that could be taken back".to_owned());
    };
    let run = match named {
        Value::String(text) => text.parse::<ToolRunId>()?,
        other => {
            let number = other.as_u64().and_then(|number| u32::try_from(number).ok());
            ToolRunId(number.ok_or_else(|| format!("`run` must be the number of a tool run, not {other}"))?)
        }
    };
    let known = || {
        let runs: Vec<String> = state.writes.iter().map(|write| write.run.to_string()).collect();
        if runs.is_empty() { "none".to_owned() } else { runs.join(", ") }
    };
    let write = state.writes.iter().find(|write| write.run == run);
    let write = write.ok_or_else(|| format!("{run} wrote nothing that is remembered; those that did: {}", known()))?;
    if write.undone { Err(format!("{run} was taken back already")) } else { Ok(write) }
}

/// A person wants a write taken back.
pub(super) fn start_undo(context: &AssistantContext<'_>, arguments: &Value) -> Vec<FlowStep> {
    let Ok(write) = find_undoable_write(context.state(), arguments) else { return Vec::new() };
    let Some(reported) = DomainToolResult::parse(&context.view.read_text(write.tool_result)) else { return Vec::new() };
    if reported.changes.is_empty() {
        let why = "what it changed is not known here; only whoever did it can take it back".to_owned();
        return report_undo_failure(write.run, why);
    }
    let mut rest = Map::new();
    rest.insert("of".to_owned(), json!(write.run.0));
    rest.insert("changes".to_owned(), json!(reported.changes));
    let told = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::Undo,
        purpose: ToolRunPurpose::Undo,
        turn: context.state().current_turn_number(),
        step: None,
        step_kind: None,
        parameters: rest,
    };
    vec![FlowStep::RunTool { tool: RECORDS_TOOL.into(), arguments: told.to_arguments(), agent: None }]
}

fn report_undo_failure(of: ToolRunId, why: String) -> Vec<FlowStep> {
    let text = render_undo_reply(&json!({"why": why, "what": []}));
    vec![
        Fact::UndoFailed { run: of, why }.into_step(),
        FlowStep::Reply { text: ReplyText::New(text), role: None, call: None },
    ]
}

fn render_undo_reply(arguments: &Value) -> String {
    fill_template(include_str!("../../prompts/assistant/shared/undone.md"), arguments)
}

/// The host has taken it back, or not.
pub(super) fn handle_undo_result(
    context: &AssistantContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let of = request.parameters.get("of").and_then(Value::as_u64).and_then(|of| u32::try_from(of).ok()).map(ToolRunId);
    let Some(of) = of else { return Vec::new() };
    let reported = match result {
        Some(DomainToolResult { refusal: Some(why), .. }) => return report_undo_failure(of, why),
        None => return report_undo_failure(of, output.to_owned()),
        Some(reported) => reported,
    };
    let records = translate_tool_result(context.domain, &context.state().entities, run, request, &reported, text);
    let text = render_undo_reply(&json!({"why": null, "what": records.write_summaries}));
    let say = FlowStep::Reply { text: ReplyText::New(text), role: None, call: None };
    vec![Fact::RecordsReceived(Box::new(records)).into_step(), Fact::WriteUndone { run }.into_step(), say]
}
