//! What comes of tool runs: records become known, a step goes on with what it asked for, a write that was cut off is settled.
//! A run that ends when its turn is over is still taken in; it only moves nothing on.

use segue_core::body::TextRef;
use segue_core::event::{ToolOutcome, ToolRunOpened};
use segue_core::flow::FlowStep;
use segue_core::ids::ToolRunId;
use segue_core::signal::json::canonical_json;
use serde_json::{Value, json};

use super::answer::truncate_chars;
use super::assistant_context::{AssistantContext, call_node, continue_act_call, start_act_call, step_agent_name};
use super::facts::{Fact, McpToolInfo, StepEndStatus};
use super::registry::EntityAction as Deed;
use super::spec::UNDERSTAND_ROLE;
use super::step::{StepInProgress, into_json_object, record_step_end};
use super::tools::{
    DomainOperation, DomainToolRequest, DomainToolResult, MCP_TOOL, RECORDS_TOOL, ToolRunPurpose, translate_tool_result,
};
use crate::limits::{
    EMPTY_READS_MAX, OUTCOME_CHARS_MAX, REFERENCES_NAMED_MAX, REMARK_CHARS_MAX, TOOL_SCHEMA_CHARS_MAX,
};

/// A tool has ended.
pub(super) fn handle_tool_ended(
    context: &AssistantContext<'_>,
    opened: &ToolRunOpened,
    outcome: ToolOutcome,
    text: TextRef,
) -> Vec<FlowStep> {
    let Some(told) = DomainToolRequest::parse(&opened.arguments) else { return Vec::new() };
    let words = context.view.read_text(text);
    let reported = (outcome == ToolOutcome::Done).then(|| DomainToolResult::parse(&words)).flatten();
    match (told.purpose, reported) {
        (ToolRunPurpose::Undo, reported) => {
            super::undo::handle_undo_result(context, opened.run, &told, reported, text, &words)
        }
        (ToolRunPurpose::ResolveRun, Some(reported)) => handle_run_resolved(context, &told, reported, text),
        (ToolRunPurpose::ResolveRun, None) => match told.run_to_resolve() {
            Some((run, was)) => fail_step_unknown_outcome(
                context,
                run,
                &was,
                "it is not known whether this was done; look at the records".to_owned(),
            ),
            None => Vec::new(),
        },
        (ToolRunPurpose::LoadRecords, reported) => {
            handle_records_loaded(context, opened.run, &told, reported, text, &words)
        }
        (ToolRunPurpose::StepToolCall, Some(reported)) => {
            handle_tool_result(context, opened.run, &told, reported, text)
        }
        // A write that was cut off may have been done: whoever keeps the records knows.
        (ToolRunPurpose::StepToolCall, None) if told.operation.is_write() => {
            vec![resolve_interrupted_write(opened.run, &told)]
        }
        (ToolRunPurpose::StepToolCall, None) if is_mcp_write(&told) => fail_step_unknown_outcome(
            context,
            opened.run,
            &told,
            format!("it is not known whether this was done: {words}"),
        ),
        (ToolRunPurpose::StepToolCall, None) => {
            let failed = record_tool_failure(opened.run, told.step, &words);
            std::iter::once(failed)
                .chain(continue_step(context, &told, json!({"why": truncate_chars(&words, OUTCOME_CHARS_MAX)})))
                .collect()
        }
        (ToolRunPurpose::ListTools, reported) => handle_tools_listed(context, opened.run, &told, reported, &words),
    }
}

/// Whether a turn waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolListWait {
    BlockTurn,
    Background,
}

/// What tells a description that is waited for.
const AWAITED_KEY: &str = "awaited";

/// Asks the server which tools it has and what they take.
pub(super) fn list_server_tools(context: &AssistantContext<'_>, wait: ToolListWait) -> FlowStep {
    let told = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::ListTools,
        purpose: ToolRunPurpose::ListTools,
        turn: context.state().current_turn_number(),
        step: None,
        step_kind: None,
        parameters: into_json_object(json!({AWAITED_KEY: wait == ToolListWait::BlockTurn})),
    };
    FlowStep::RunTool { tool: MCP_TOOL.into(), arguments: told.to_arguments(), agent: None }
}

/// The server has said which tools it has, or not: then what was known before has to do.
fn handle_tools_listed(
    context: &AssistantContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    output: &str,
) -> Vec<FlowStep> {
    let fact = match result {
        Some(reported) if reported.refusal.is_none() => {
            let tools: Vec<McpToolInfo> = reported.tools.iter().map(parse_tool_info).collect();
            let is_news = tools != context.state().server_tools;
            is_news.then(|| Fact::ServerToolsListed { tools }.into_step())
        }
        reported => {
            let why = reported.and_then(|reported| reported.refusal);
            Some(record_tool_failure(run, None, why.as_deref().unwrap_or(output)))
        }
    };
    let is_awaited = request.parameters.get(AWAITED_KEY).and_then(Value::as_bool).unwrap_or(true);
    fact.into_iter()
        .chain((is_awaited && context.is_about_current_turn()).then(|| call_node(UNDERSTAND_ROLE)))
        .collect()
}

fn parse_tool_info(tool: &Value) -> McpToolInfo {
    let text = |name: &str, chars_max: usize| match tool.get(name) {
        Some(Value::String(text)) => truncate_chars(text, chars_max),
        Some(Value::Null) | None => String::new(),
        Some(other) => truncate_chars(&canonical_json(other), chars_max),
    };
    McpToolInfo {
        name: text("name", REMARK_CHARS_MAX),
        description: text("about", OUTCOME_CHARS_MAX),
        input_schema: text("arguments", TOOL_SCHEMA_CHARS_MAX),
        writes: tool.get("writes").and_then(Value::as_bool),
    }
}

/// Nobody can say whether something was written: the step has failed, and nobody claims anything.
fn fail_step_unknown_outcome(
    context: &AssistantContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    why: String,
) -> Vec<FlowStep> {
    let failed = record_tool_failure(run, request.step, &why);
    let stand =
        request.step.filter(|_| context.is_about_current_turn()).and_then(|step| StepInProgress::find(context, step));
    std::iter::once(failed).chain(stand.into_iter().flat_map(|stand| stand.fail_step(why.clone()))).collect()
}

/// Whether a run was of a server's tool that changes something.
fn is_mcp_write(request: &DomainToolRequest) -> bool {
    request.operation == DomainOperation::CallTool
        && request.parameters.get("writes").and_then(Value::as_bool).unwrap_or(true)
}

fn record_tool_failure(run: ToolRunId, step: Option<u32>, why: &str) -> FlowStep {
    Fact::ToolFailed { run, step, why: truncate_chars(why, OUTCOME_CHARS_MAX) }.into_step()
}

fn resolve_interrupted_write(run: ToolRunId, original: &DomainToolRequest) -> FlowStep {
    let told = DomainToolRequest {
        operation: DomainOperation::ResolveRun,
        purpose: ToolRunPurpose::ResolveRun,
        parameters: into_json_object(json!({"of": run.0, "was": original.to_arguments()})),
        ..original.clone()
    };
    let step = original.step.map(step_agent_name);
    FlowStep::RunTool { tool: RECORDS_TOOL.into(), arguments: told.to_arguments(), agent: step }
}

/// What became of a write that was cut off.
fn handle_run_resolved(
    context: &AssistantContext<'_>,
    request: &DomainToolRequest,
    result: DomainToolResult,
    text: TextRef,
) -> Vec<FlowStep> {
    let Some((run, was)) = request.run_to_resolve() else { return Vec::new() };
    if result.never_executed {
        let why = "it was not done";
        let failed = record_tool_failure(run, was.step, why);
        return std::iter::once(failed).chain(continue_step(context, &was, json!({"why": why}))).collect();
    }
    let mut steps = handle_tool_result(context, run, &was, result, text);
    // Whoever stopped the turn believes that nothing came of it.
    let is_unheard = !context.is_about_current_turn();
    let wrote = steps.first().filter(|_| is_unheard).and_then(|step| match step {
        FlowStep::RecordFact { value, .. } => {
            value.get("wrote").filter(|wrote| wrote.as_array().is_some_and(|wrote| !wrote.is_empty()))
        }
        _ => None,
    });
    if let Some(wrote) = wrote {
        steps.push(super::turn::report_late_writes(wrote));
    }
    steps
}

/// Goes on with the step that a run was for, if its turn still runs.
fn continue_step(context: &AssistantContext<'_>, request: &DomainToolRequest, mut note: Value) -> Option<FlowStep> {
    let step = request.step.filter(|_| context.is_about_current_turn())?;
    StepInProgress::find(context, step)?;
    let tool = request.parameters.get("tool").and_then(Value::as_str).unwrap_or(request.operation.as_str());
    note["tool"] = json!(tool);
    Some(continue_act_call(step, note))
}

/// What a server did, in words: nobody but the server knows more.
fn describe_mcp_write(context: &AssistantContext<'_>, request: &DomainToolRequest, tool: &str) -> String {
    let mut ids = Vec::new();
    collect_strings(request.parameters.get("arguments").unwrap_or(&Value::Null), &mut ids);
    let known = context.state().entities.entities.values().filter(|entity| !entity.label.is_empty());
    let named = known.filter(|entity| entity.id.as_deref().is_some_and(|id| ids.contains(&id)));
    let named: Vec<String> = named.map(|entity| format!("“{}”", entity.label)).take(REFERENCES_NAMED_MAX).collect();
    let about = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("{tool} was done{about}")
}

/// Every text in a value.
fn collect_strings<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, found)),
        Value::Object(members) => members.values().for_each(|member| collect_strings(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a run brought.
fn handle_tool_result(
    context: &AssistantContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: DomainToolResult,
    text: TextRef,
) -> Vec<FlowStep> {
    if let Some(why) = &result.refusal {
        let failed = record_tool_failure(run, request.step, why);
        return std::iter::once(failed)
            .chain(continue_step(context, request, json!({"why": truncate_chars(why, OUTCOME_CHARS_MAX)})))
            .collect();
    }
    let mut records = translate_tool_result(context.domain, &context.state().entities, run, request, &result, text);
    if is_mcp_write(request) {
        records.action = Deed::Updated;
        records.write_summaries.push(describe_mcp_write(context, request, &records.tool));
    }
    let empty = records.empty_read_digest.clone();
    let mut steps = vec![Fact::RecordsReceived(Box::new(records)).into_step()];
    let stand =
        request.step.filter(|_| context.is_about_current_turn()).and_then(|step| StepInProgress::find(context, step));
    let times = |stand: &StepInProgress<'_>, read: &String| stand.state.empty_reads.get(read).copied().unwrap_or(0) + 1;
    match (stand, empty) {
        (Some(stand), Some(read)) if times(&stand, &read) >= EMPTY_READS_MAX => {
            steps.push(record_step_end(
                stand.build_step_end(StepEndStatus::Done, "nothing was found, twice".to_owned()),
            ));
        }
        _ => steps.extend(continue_step(context, request, json!({"run": run.0, "text": text}))),
    }
    steps
}

/// The records of a step are at hand, or could not be had; it begins either way.
fn handle_records_loaded(
    context: &AssistantContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let fact = match result {
        Some(reported) if reported.refusal.is_none() => {
            let records =
                translate_tool_result(context.domain, &context.state().entities, run, request, &reported, text);
            Fact::RecordsReceived(Box::new(records)).into_step()
        }
        reported => record_tool_failure(
            run,
            request.step,
            reported.and_then(|reported| reported.refusal).as_deref().unwrap_or(output),
        ),
    };
    let begins =
        request.step.filter(|step| context.is_about_current_turn() && StepInProgress::find(context, *step).is_some());
    std::iter::once(fact).chain(begins.map(start_act_call)).collect()
}
