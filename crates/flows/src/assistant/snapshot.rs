//! Takes the snapshot of a domain at the start of a turn, while Understand interprets the message: counts, standing records and
//! what the domain's queries find. It also tells whether somebody else has changed records that the session has loaded.

use segue_core::body::TextRef;
use segue_core::flow::FlowStep;
use segue_core::ids::ToolRunId;
use segue_core::signal::wrap_in_code_fence;
use serde_json::{Value, json};

use super::assistant_context::AssistantSessionContext;
use super::calendar;
use super::domain::DomainSnapshotParameters;
use super::facts::AssistantFact;
use super::spec::THINK_ROLE;
use super::step::into_json_object;
use super::tool_runs::record_tool_failure;
use super::tools::{
    DomainOperation, DomainRecordsOverview, DomainSnapshotSection, DomainToolRequest, DomainToolResult,
    DomainToolRunPurpose, RECORDS_TOOL, render_plain_row,
};

/// Returns the step that requests the snapshot, if the domain declares one.
pub(super) fn request_snapshot(context: &AssistantSessionContext<'_>) -> Option<FlowStep> {
    if !context.domain.has_snapshot() {
        return None;
    }
    let (at, offset) = (context.view.session.last_event_at, context.settings.utc_offset_minutes);
    let today = calendar::days_since_epoch(at, offset);
    let queries = context.domain.snapshot_queries(|days| calendar::date_from_epoch_days(today.saturating_add(days)));
    let state = context.state();
    let parameters = DomainSnapshotParameters { queries, versions_of: state.type_versions.keys().cloned().collect() };
    let request = DomainToolRequest {
        domain: context.domain.name.clone(),
        operation: DomainOperation::Snapshot,
        purpose: DomainToolRunPurpose::Snapshot,
        turn: state.current_turn_number(),
        step: None,
        step_kind: None,
        parameters: into_json_object(json!(parameters)),
    };
    Some(FlowStep::RunTool { tool: RECORDS_TOOL.into(), arguments: request.to_arguments(), agent: None })
}

/// Records the snapshot, and calls Think if Understand has answered. Without a snapshot the turn continues, too.
pub(super) fn handle_snapshot_result(
    context: &AssistantSessionContext<'_>,
    run: ToolRunId,
    request: &DomainToolRequest,
    result: Option<DomainToolResult>,
    text: TextRef,
    output: &str,
) -> Vec<FlowStep> {
    let fact = match result {
        Some(DomainToolResult { snapshot: Some(_), type_versions, .. }) => {
            let loaded = &context.state().type_versions;
            let is_changed = |kind: &String| {
                let digest = loaded.get(kind).and_then(|version| version.digest.as_ref());
                digest.is_some() && type_versions.get(kind) != digest
            };
            let changed_types = loaded.keys().filter(|kind| is_changed(kind)).cloned().collect();
            AssistantFact::SnapshotTaken { turn: request.turn, text, changed_types }.into_step()
        }
        result => {
            let refusal = result.and_then(|result| result.refusal);
            record_tool_failure(run, None, refusal.as_deref().unwrap_or(output))
        }
    };
    let is_understood = context.is_event_of_current_turn()
        && context.current_turn().is_some_and(|running| running.understanding.is_some() && running.plan.is_none());
    std::iter::once(fact).chain(is_understood.then(|| context.call_node(THINK_ROLE))).collect()
}

/// Returns the data of the fragment that shows the snapshot; `None` if there is none.
pub(super) fn snapshot_template_data(context: &AssistantSessionContext<'_>) -> Option<Value> {
    let text = context.state().snapshot.filter(|_| context.domain.has_snapshot())?;
    let DomainRecordsOverview { counts, sections } = DomainToolResult::parse(&context.view.read_text(text))?.snapshot?;
    let section = |section: &DomainSnapshotSection| {
        let lines: Vec<String> =
            section.rows.iter().map(|row| format!("- {}", render_plain_row(context.domain, row))).collect();
        let hidden = section.total.saturating_sub(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        json!({"title": section.title, "rows": wrap_in_code_fence(&lines.join("\n")), "hidden_count": hidden})
    };
    let sections: Vec<Value> = sections.iter().filter(|one| !one.rows.is_empty()).map(section).collect();
    Some(json!({"counts": counts, "sections": sections}))
}
