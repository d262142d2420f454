//! Carries out read steps without a model, where the plan already says what to read: the named records, those that match its
//! conditions, or all records of a type if there are few. Act is asked only if there are more, or if the read fails.

use segue_core::body::TextRef;
use segue_core::flow::FlowStep;
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::assistant_context::AssistantSessionContext;
use super::facts::{AssistantFact, AssistantPlanStep, AssistantStepEnd, AssistantStepEndStatus};
use super::planned_search::{describe_search, find_loosely_matching_rows};
use super::step::{RunningAssistantStep, into_json_object, record_step_end, run_domain_tool};
use super::tool_runs::record_tool_failure;
use super::tools::{
    DomainOperation, DomainRequestOrAlreadyLoaded, DomainToolRequest, DomainToolResult, DomainToolRunPurpose,
    REFRESH_ARGUMENT, translate_tool_call, translate_tool_result,
};
use crate::limits::READ_ROWS_DEFAULT;

/// Starts a read step: reads what the plan names, or answers from memory.
pub(super) fn start_planned_read(context: &AssistantSessionContext<'_>, planned: &AssistantPlanStep) -> Vec<FlowStep> {
    let arguments = planned_read_arguments(context, planned);
    let turn = context.state().current_turn_number();
    let read = DomainOperation::Read.as_str();
    match translate_tool_call(context.domain, context.state(), (turn, planned), read, &arguments) {
        Ok(DomainRequestOrAlreadyLoaded::Run(request)) => {
            let request = DomainToolRequest { purpose: DomainToolRunPurpose::PlannedRead, ..*request };
            vec![run_domain_tool(&request, planned.step)]
        }
        Ok(DomainRequestOrAlreadyLoaded::AlreadyLoaded(refs)) => {
            let end = RunningAssistantStep::find(context, planned.step).map(|progress| {
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
    } else if !planned.filters.is_empty() {
        arguments["where"] = json!(planned.filters);
    }
    if let Some(sort) = &planned.sort {
        arguments["sort"] = json!(sort);
    }
    if planned.refresh {
        arguments[REFRESH_ARGUMENT] = json!(true);
    }
    into_json_object(arguments)
}

/// Ends a read step with the records that were read, or asks Act to search if they are only a part.
pub(super) fn handle_planned_read_result(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let step = request.step.unwrap_or_default();
    let progress = Some(context).filter(|context| context.is_event_of_current_turn());
    let progress = progress.and_then(|context| RunningAssistantStep::find(context, step));
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
    let planned = context.current_turn().and_then(|running| running.planned_step(step));
    let planned = planned.filter(|planned| !planned.filters.is_empty() && planned.refs.is_empty());
    if let Some(planned) = planned.filter(|_| result.rows.is_empty() && request.parameters.contains_key("where")) {
        let mut widened = request.clone();
        widened.parameters.remove("where");
        let read_all = progress.map(|_| run_domain_tool(&widened, step));
        let fact = AssistantFact::SearchWidened { step, search: describe_search(planned).unwrap_or_default() };
        return std::iter::once(fact.into_step()).chain(read_all).collect();
    }
    let is_widened = planned.is_some() && !request.parameters.contains_key("where");
    let loosely_matching =
        planned.filter(|_| is_widened).map(|planned| find_loosely_matching_rows(planned, &result.rows));
    let records = translate_tool_result(context.domain, &context.state().entities, run, request, &result, text);
    let is_found = |row_index: usize| match loosely_matching.as_deref() {
        None | Some([]) => true,
        Some(found) => result.rows.get(row_index).is_some_and(|row| found.contains(&row)),
    };
    let found = records.rows.iter().filter(|row| row.row_index.is_some_and(is_found));
    let refs: Vec<String> = found.map(|row| row.reference.clone()).collect();
    let end = progress.map(|progress| {
        let kind = request.parameters.get("type").and_then(Value::as_str).unwrap_or_default();
        let search = describe_search(progress.planned);
        let outcome = match search {
            Some(search) if loosely_matching.is_some_and(|found| found.is_empty()) => {
                format!("no {kind} record with {search} was found; all {} are listed", count_records(refs.len(), kind))
            }
            Some(search) => format!("{} found: {search}", count_records(refs.len(), kind)),
            None => format!("{} found", count_records(refs.len(), kind)),
        };
        end_read_step(&progress, outcome, refs)
    });
    std::iter::once(AssistantFact::RecordsReceived(Box::new(records)).into_step()).chain(end).collect()
}

fn end_read_step(progress: &RunningAssistantStep<'_>, outcome: String, refs: Vec<String>) -> FlowStep {
    record_step_end(AssistantStepEnd { refs, ..progress.build_step_end(AssistantStepEndStatus::Done, outcome) })
}

fn count_records(count: usize, kind: &str) -> String {
    format!("{count} {kind} {}", if count == 1 { "record" } else { "records" })
}
