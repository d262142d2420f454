//! Handles the end of tool runs: records their results, gives them to the step that asked, and finds out what became of an
//! interrupted write. A run that ends after its turn is still recorded, but starts nothing new.

use segue_core::body::TextRef;
use segue_core::event::{ToolRunOpened, ToolRunOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::ToolRunId;
use segue_core::signal::canonical_json;
use serde_json::{Value, json};

use super::answer::truncate_chars;
use super::assistant_context::{AssistantSessionContext, step_agent_name};
use super::facts::{AssistantFact, AssistantStepEndStatus, RecordedMcpToolDescription};
use super::registry::LastEntityAction;
use super::spec::UNDERSTAND_ROLE;
use super::step::{RunningAssistantStep, into_json_object, record_step_end};
use super::tools::{
    DomainOperation, DomainToolRequest, DomainToolResult, DomainToolRunPurpose, MCP_TOOL, RECORDS_TOOL,
    translate_tool_result,
};
use super::undo::{self, UndoOutcomeLookupStatus};
use super::{planned_read, snapshot};
use crate::limits::{
    EMPTY_READS_MAX, OUTCOME_CHARS_MAX, REFERENCES_NAMED_MAX, REMARK_CHARS_MAX, TOOL_SCHEMA_CHARS_MAX,
};

/// What is recorded about a write of which the records tool cannot tell whether it was executed.
pub(super) const UNKNOWN_WRITE_OUTCOME: &str = "it is unknown whether this was executed; check the records";

/// What is recorded about a write that was not executed and never will be.
pub(super) const NOT_EXECUTED: &str = "the request was not executed";

/// Handles the end of a tool run.
pub(super) fn handle_tool_ended(
    context: &AssistantSessionContext<'_>,
    opened: &ToolRunOpened,
    outcome: ToolRunOutcome,
    text: TextRef,
) -> Vec<FlowStep> {
    let Some(request) = DomainToolRequest::parse(&opened.arguments) else { return Vec::new() };
    let output = context.view.read_text(text);
    let result = (outcome == ToolRunOutcome::Done).then(|| DomainToolResult::parse(&output)).flatten();
    match (request.purpose, result) {
        (DomainToolRunPurpose::Undo, Some(result)) => {
            undo::handle_undo_result(context, opened.run, &request, result, text)
        }
        (DomainToolRunPurpose::Undo, None) => {
            undo::handle_interrupted_undo(context, opened.run, &request, UndoOutcomeLookupStatus::NotTried)
        }
        (DomainToolRunPurpose::ResolveRun, Some(result)) => handle_run_resolved(context, &request, result, text),
        (DomainToolRunPurpose::ResolveRun, None) => match request.run_to_resolve() {
            Some((run, original)) if original.purpose == DomainToolRunPurpose::Undo => {
                undo::handle_interrupted_undo(context, run, &original, UndoOutcomeLookupStatus::Failed)
            }
            Some((run, original)) => {
                fail_step_unknown_outcome(context, run, &original, UNKNOWN_WRITE_OUTCOME.to_owned())
            }
            None => Vec::new(),
        },
        (DomainToolRunPurpose::LoadRecords, result) => {
            handle_records_loaded(context, opened.run, &request, result, text, &output)
        }
        (DomainToolRunPurpose::PlannedRead, result) => {
            planned_read::handle_planned_read_result(context, opened.run, &request, result, text, &output)
        }
        (DomainToolRunPurpose::Snapshot, result) => {
            snapshot::handle_snapshot_result(context, opened.run, &request, result, text, &output)
        }
        (DomainToolRunPurpose::StepToolCall, Some(result)) => {
            handle_tool_result(context, opened.run, &request, result, text)
        }
        // An interrupted write may have been executed; the run log of the records says so. A closed session runs no tools.
        (DomainToolRunPurpose::StepToolCall, None) if request.operation.is_table_write() => {
            match context.view.session.closed_reason {
                None => vec![resolve_interrupted_write(opened.run, &request)],
                Some(_) => fail_step_unknown_outcome(context, opened.run, &request, UNKNOWN_WRITE_OUTCOME.to_owned()),
            }
        }
        (DomainToolRunPurpose::StepToolCall, None) if is_mcp_write(&request) => fail_step_unknown_outcome(
            context,
            opened.run,
            &request,
            format!("it is unknown whether this was executed: {output}"),
        ),
        (DomainToolRunPurpose::StepToolCall, None) => {
            let failed = record_tool_failure(opened.run, request.step, &output);
            std::iter::once(failed)
                .chain(continue_step_with_result(
                    context,
                    &request,
                    json!({"why": truncate_chars(&output, OUTCOME_CHARS_MAX)}),
                    &[],
                ))
                .collect()
        }
        (DomainToolRunPurpose::ListTools, result) => {
            handle_tools_listed(context, opened.run, &request, result, &output)
        }
    }
}

/// Whether the turn waits for the list of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolListWait {
    BlockTurn,
    Background,
}

/// The parameter that says whether the turn waits for the list.
const AWAITED_KEY: &str = "awaited";

/// Asks the domain's server for its tools.
pub(super) fn list_server_tools(context: &AssistantSessionContext<'_>, wait: ToolListWait) -> FlowStep {
    let request = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::ListTools,
        purpose: DomainToolRunPurpose::ListTools,
        turn: context.state().current_turn_number(),
        step: None,
        step_kind: None,
        parameters: into_json_object(json!({AWAITED_KEY: wait == ToolListWait::BlockTurn})),
    };
    FlowStep::RunTool { tool: MCP_TOOL.into(), arguments: request.to_arguments(), agent: None }
}

/// Records the server's list of tools. If the request failed, the previous list stays in use.
fn handle_tools_listed(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    output: &str,
) -> Vec<FlowStep> {
    let fact = match result {
        Some(result) if result.refusal.is_none() => {
            let tools: Vec<RecordedMcpToolDescription> = result.tools.iter().map(parse_tool_info).collect();
            let is_changed = tools != context.state().server_tools;
            is_changed.then(|| AssistantFact::ServerToolsListed { tools }.into_step())
        }
        result => {
            let why = result.and_then(|result| result.refusal);
            Some(record_tool_failure(run, None, why.as_deref().unwrap_or(output)))
        }
    };
    let is_awaited = request.parameters.get(AWAITED_KEY).and_then(Value::as_bool).unwrap_or(true);
    fact.into_iter()
        .chain((is_awaited && context.is_event_of_current_turn()).then(|| context.call_node(UNDERSTAND_ROLE)))
        .collect()
}

fn parse_tool_info(tool: &Value) -> RecordedMcpToolDescription {
    let text = |name: &str, chars_max: usize| match tool.get(name) {
        Some(Value::String(text)) => truncate_chars(text, chars_max),
        Some(Value::Null) | None => String::new(),
        Some(other) => truncate_chars(&canonical_json(other), chars_max),
    };
    RecordedMcpToolDescription {
        name: text("name", REMARK_CHARS_MAX),
        description: text("description", OUTCOME_CHARS_MAX),
        input_schema: text("input_schema", TOOL_SCHEMA_CHARS_MAX),
        writes: tool.get("writes").and_then(Value::as_bool),
    }
}

/// Fails a step whose write may or may not have been executed.
fn fail_step_unknown_outcome(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    why: String,
) -> Vec<FlowStep> {
    let failed = record_tool_failure(run, request.step, &why);
    let progress = request
        .step
        .filter(|_| context.is_event_of_current_turn())
        .and_then(|step| RunningAssistantStep::find(context, step));
    std::iter::once(failed).chain(progress.into_iter().flat_map(|progress| progress.fail_step(why.clone()))).collect()
}

/// Returns whether a request calls an MCP tool that writes.
fn is_mcp_write(request: &DomainToolRequest) -> bool {
    request.operation == DomainOperation::CallTool
        && request.parameters.get("writes").and_then(Value::as_bool).unwrap_or(true)
}

pub(super) fn record_tool_failure(run: ToolRunId, step: Option<u32>, why: &str) -> FlowStep {
    AssistantFact::ToolFailed { run, step, why: truncate_chars(why, OUTCOME_CHARS_MAX) }.into_step()
}

pub(super) fn resolve_interrupted_write(run: ToolRunId, original: &DomainToolRequest) -> FlowStep {
    let request = DomainToolRequest {
        operation: DomainOperation::ResolveRun,
        purpose: DomainToolRunPurpose::ResolveRun,
        parameters: into_json_object(json!({"run": run.0, "request": original.to_arguments()})),
        ..original.clone()
    };
    let agent = original.step.map(step_agent_name);
    FlowStep::RunTool { tool: RECORDS_TOOL.into(), arguments: request.to_arguments(), agent }
}

/// Handles the answer to what became of an interrupted write.
fn handle_run_resolved(
    context: &AssistantSessionContext<'_>,
    request: &DomainToolRequest,
    result: DomainToolResult,
    text: TextRef,
) -> Vec<FlowStep> {
    let Some((run, original)) = request.run_to_resolve() else { return Vec::new() };
    if original.purpose == DomainToolRunPurpose::Undo {
        return undo::handle_undo_result(context, run, &original, result, text);
    }
    if result.never_executed {
        let why = NOT_EXECUTED;
        let failed = record_tool_failure(run, original.step, why);
        return std::iter::once(failed)
            .chain(continue_step_with_result(context, &original, json!({"why": why}), &[]))
            .collect();
    }
    let mut steps = handle_tool_result(context, run, &original, result, text);
    // The user stopped the turn and may assume that nothing was changed.
    let turn_ended = !context.is_event_of_current_turn();
    let write_summaries = steps.first().filter(|_| turn_ended).and_then(|step| match step {
        FlowStep::RecordFact { value, .. } => {
            value.get("write_summaries").filter(|lines| lines.as_array().is_some_and(|lines| !lines.is_empty()))
        }
        _ => None,
    });
    if let Some(write_summaries) = write_summaries {
        steps.push(super::turn::report_late_writes(write_summaries));
    }
    steps
}

/// Gives a run's result to the step that asked for it, if its turn is still running.
fn continue_step_with_result(
    context: &AssistantSessionContext<'_>,
    request: &DomainToolRequest,
    mut metadata: Value,
    received: &[String],
) -> Option<FlowStep> {
    let step = request.step.filter(|_| context.is_event_of_current_turn())?;
    RunningAssistantStep::find(context, step)?;
    let tool = request.parameters.get("tool").and_then(Value::as_str).unwrap_or(request.operation.as_str());
    metadata["tool"] = json!(tool);
    Some(context.continue_act_call(step, metadata, received))
}

/// Describes what an MCP tool did: its name, and the known records among its arguments.
fn describe_mcp_write(context: &AssistantSessionContext<'_>, request: &DomainToolRequest, tool: &str) -> String {
    let mut ids = Vec::new();
    collect_strings(request.parameters.get("arguments").unwrap_or(&Value::Null), &mut ids);
    let known = context.state().entities.entities.values().filter(|entity| !entity.label.is_empty());
    let named = known.filter(|entity| entity.id.as_deref().is_some_and(|id| ids.contains(&id)));
    let named: Vec<String> = named.map(|entity| format!("“{}”", entity.label)).take(REFERENCES_NAMED_MAX).collect();
    let about = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("ran {tool}{about}")
}

/// Collects every string in a JSON value.
fn collect_strings<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, found)),
        Value::Object(members) => members.values().for_each(|member| collect_strings(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Records the result of a step's tool call and gives it to the step.
fn handle_tool_result(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: DomainToolResult,
    text: TextRef,
) -> Vec<FlowStep> {
    if let Some(why) = &result.refusal {
        let failed = record_tool_failure(run, request.step, why);
        return std::iter::once(failed)
            .chain(continue_step_with_result(
                context,
                request,
                json!({"why": truncate_chars(why, OUTCOME_CHARS_MAX)}),
                &[],
            ))
            .collect();
    }
    let mut records = translate_tool_result(context.domain, &context.state().entities, run, request, &result, text);
    if is_mcp_write(request) {
        records.action = LastEntityAction::Updated;
        records.write_summaries.push(describe_mcp_write(context, request, &records.tool));
    }
    let empty_read = records.empty_read_digest.clone();
    let mut metadata = json!({"run": run.0, "text": text});
    if !records.write_summaries.is_empty() {
        metadata["written"] = json!(true);
    }
    let received: Vec<String> = records.rows.iter().map(|row| row.reference.clone()).collect();
    let mut steps = vec![AssistantFact::RecordsReceived(Box::new(records)).into_step()];
    let progress = request
        .step
        .filter(|_| context.is_event_of_current_turn())
        .and_then(|step| RunningAssistantStep::find(context, step));
    let empty_reads = |progress: &RunningAssistantStep<'_>, digest: &String| {
        progress.state.empty_reads.get(digest).copied().unwrap_or(0) + 1
    };
    match (progress, empty_read) {
        (Some(progress), Some(digest)) if empty_reads(&progress, &digest) >= EMPTY_READS_MAX => {
            steps.push(record_step_end(
                progress.build_step_end(AssistantStepEndStatus::Done, "the same search found nothing twice".to_owned()),
            ));
        }
        _ => steps.extend(continue_step_with_result(context, request, metadata, &received)),
    }
    steps
}

/// Starts a step after its records were loaded, or could not be loaded.
fn handle_records_loaded(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let mut received: Vec<String> = Vec::new();
    let fact = match result {
        Some(result) if result.refusal.is_none() => {
            let records = translate_tool_result(context.domain, &context.state().entities, run, request, &result, text);
            received.extend(records.rows.iter().map(|row| row.reference.clone()));
            AssistantFact::RecordsReceived(Box::new(records)).into_step()
        }
        result => record_tool_failure(
            run,
            request.step,
            result.and_then(|result| result.refusal).as_deref().unwrap_or(output),
        ),
    };
    let starting_step = request
        .step
        .filter(|step| context.is_event_of_current_turn() && RunningAssistantStep::find(context, *step).is_some());
    std::iter::once(fact).chain(starting_step.map(|step| context.start_act_call(step, &received))).collect()
}
