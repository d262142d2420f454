//! Carries out read steps without a model, where the plan already says what to read: the named records, or all records of a type
//! if there are few. Act is asked only if there are more, or if the read fails.

use segue_core::body::TextRef;
use segue_core::flow::FlowStep;
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::assistant_context::AssistantSessionContext;
use super::facts::{AssistantFact, AssistantPlanStep, AssistantStepEnd, AssistantStepEndStatus};
use super::step::{StepInProgress, into_json_object, record_step_end, run_domain_tool};
use super::tool_runs::record_tool_failure;
use super::tools::{
    DomainOperation, DomainToolRequest, DomainToolResult, REFRESH_ARGUMENT, ToolRunPurpose, TranslatedToolCall,
    translate_tool_call, translate_tool_result,
};
use crate::limits::READ_ROWS_DEFAULT;

/// Starts a read step: reads what the plan names, or answers from memory.
pub(super) fn start_planned_read(context: &AssistantSessionContext<'_>, planned: &AssistantPlanStep) -> Vec<FlowStep> {
    let arguments = planned_read_arguments(context, planned);
    let turn = context.state().current_turn_number();
    let read = DomainOperation::Read.as_str();
    match translate_tool_call(context.domain, context.state(), (turn, planned), read, &arguments) {
        Ok(TranslatedToolCall::Run(request)) => {
            let request = DomainToolRequest { purpose: ToolRunPurpose::PlannedRead, ..*request };
            vec![run_domain_tool(&request, planned.step)]
        }
        Ok(TranslatedToolCall::AlreadyLoaded(refs)) => {
            let end = StepInProgress::find(context, planned.step).map(|progress| {
                let outcome = format!("{}, already loaded", count_records(refs.len(), &planned.subdomain));
                end_read_step(&progress, outcome, refs.clone())
            });
            let loaded = AssistantFact::AlreadyLoaded { step: planned.step, refs };
            std::iter::once(loaded.into_step()).chain(end).collect()
        }
        Err(_) => vec![context.start_act_call(planned.step, &[])],
    }
}

/// Returns the arguments of the read that a plan implies: the named records, or all records of the type.
pub(super) fn planned_read_arguments(
    context: &AssistantSessionContext<'_>,
    planned: &AssistantPlanStep,
) -> Map<String, Value> {
    let entities = &context.state().entities;
    let kind = &planned.subdomain;
    let is_readable = |reference: &&String| entities.resolve_id(reference, kind).is_ok();
    let refs: Vec<&String> = planned.refs.iter().filter(is_readable).collect();
    let mut arguments = json!({"type": kind, "full": true, "limit": READ_ROWS_DEFAULT});
    if !refs.is_empty() {
        arguments["refs"] = json!(refs);
    }
    if planned.refresh {
        arguments[REFRESH_ARGUMENT] = json!(true);
    }
    into_json_object(arguments)
}

/// Ends a read step with the records that were read, or asks Act to search if they are only a part.
pub(super) fn handle_planned_read(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let step = request.step.unwrap_or_default();
    let progress = Some(context).filter(|context| context.is_about_current_turn());
    let progress = progress.and_then(|context| StepInProgress::find(context, step));
    let result = match result {
        Some(result) if result.refusal.is_none() => result,
        result => {
            let refusal = result.and_then(|result| result.refusal);
            let failed = record_tool_failure(run, request.step, refusal.as_deref().unwrap_or(output));
            let ask_act = progress.map(|_| context.start_act_call(step, &[]));
            return std::iter::once(failed).chain(ask_act).collect();
        }
    };
    let read_count = u64::try_from(result.rows.len()).unwrap_or(u64::MAX);
    let total = result.total.unwrap_or(read_count);
    if total > read_count {
        let search_needed = AssistantFact::SearchNeeded { step, total }.into_step();
        let ask_act = progress.map(|_| context.start_act_call(step, &[]));
        return std::iter::once(search_needed).chain(ask_act).collect();
    }
    let records = translate_tool_result(context.domain, &context.state().entities, run, request, &result, text);
    let refs = records.rows.iter().filter(|row| row.row_index.is_some()).map(|row| row.reference.clone()).collect();
    let end = progress.map(|progress| {
        let kind = request.parameters.get("type").and_then(Value::as_str).unwrap_or_default();
        end_read_step(&progress, format!("{} found", count_records(result.rows.len(), kind)), refs)
    });
    std::iter::once(AssistantFact::RecordsReceived(Box::new(records)).into_step()).chain(end).collect()
}

fn end_read_step(progress: &StepInProgress<'_>, outcome: String, refs: Vec<String>) -> FlowStep {
    record_step_end(AssistantStepEnd { refs, ..progress.build_step_end(AssistantStepEndStatus::Done, outcome) })
}

fn count_records(count: usize, kind: &str) -> String {
    format!("{count} {kind} {}", if count == 1 { "record" } else { "records" })
}
