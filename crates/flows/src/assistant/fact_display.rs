//! Describes the flow's facts for users who watch a session. Models never see these texts.

use segue_core::flow::FactDisplay;
use serde_json::Value;

use super::facts::{
    AssistantFact, AssistantStepEnd, AssistantStepEndStatus, AssistantTurnPlan, CompactedMemoryKind,
    DomainToolRunOutcome, MessageUnderstanding, ThinkDecision,
};
use super::state::AssistantState;

/// Describes a fact; `state` is the flow's state after it.
pub(super) fn describe_assistant_fact(state: &AssistantState, kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = AssistantFact::parse(kind, value) else { return FactDisplay::Raw };
    match fact {
        AssistantFact::InvalidSettings { complaints } => FactDisplay::Notice(complaints.join("; ")),
        AssistantFact::MessageUnderstood(understanding) => FactDisplay::Detail(describe_understanding(&understanding)),
        AssistantFact::Planned(plan) => FactDisplay::Detail(describe_plan(&plan)),
        AssistantFact::PlanFailed { why } => FactDisplay::Detail(format!("no usable plan: {why}")),
        AssistantFact::AnswerRejected { call, complaints, .. } => {
            FactDisplay::Detail(format!("{call} must be corrected: {}", complaints.join("; ")))
        }
        AssistantFact::RecordsReceived(records) => describe_tool_run_records(&records),
        AssistantFact::ToolFailed { run, why, .. } => FactDisplay::Detail(format!("{run} failed: {why}")),
        AssistantFact::AlreadyLoaded { step, refs } => {
            FactDisplay::Detail(format!("step {step} uses already loaded {}", refs.join(", ")))
        }
        AssistantFact::SearchNeeded { step, total } => {
            FactDisplay::Detail(format!("step {step} has to search among {total} records"))
        }
        AssistantFact::SearchWidened { step, search } => {
            FactDisplay::Detail(format!("step {step} found nothing ({search}) and searches in all fields"))
        }
        AssistantFact::SnapshotTaken { changed_types, .. } if changed_types.is_empty() => {
            FactDisplay::Detail("the records were counted".to_owned())
        }
        AssistantFact::SnapshotTaken { changed_types, .. } => {
            FactDisplay::Detail(format!("changed by somebody else: {}", changed_types.join(", ")))
        }
        AssistantFact::StepResultRetrieved { step, source_turn, source_step } => {
            FactDisplay::Detail(format!("step {step} retrieves the result of step {source_step} of t{source_turn}"))
        }
        AssistantFact::StepEnded(end) => FactDisplay::Detail(describe_step_end(&end)),
        AssistantFact::ReasoningCompacted { through_turn, .. } => {
            FactDisplay::Detail(format!("reasoning up to t{through_turn} is compacted"))
        }
        AssistantFact::ConversationCompacted { through_turn, .. } => {
            FactDisplay::Detail(format!("conversation up to t{through_turn} is compacted"))
        }
        AssistantFact::CompactionFailed { layer, why } => {
            let layer = match layer {
                CompactedMemoryKind::Conversation => "conversation",
                CompactedMemoryKind::Reasoning => "reasoning",
            };
            FactDisplay::Detail(format!("{layer} could not be compacted: {why}"))
        }
        AssistantFact::ServerToolsListed { tools } => {
            FactDisplay::Detail(format!("the server lists {} tools", tools.len()))
        }
        AssistantFact::UndoFailed { run, why } => FactDisplay::Detail(format!("{run} could not be undone: {why}")),
        AssistantFact::WriteUndone { run } => {
            let is_known = state.writes.iter().any(|write| write.run == run);
            if is_known { FactDisplay::Detail(format!("{run} was undone")) } else { FactDisplay::Raw }
        }
        // The turn itself shows its content.
        AssistantFact::TurnSummarized(_) => FactDisplay::Hidden,
    }
}

fn describe_understanding(understanding: &MessageUnderstanding) -> String {
    let mut parts = vec![format!("understood: {}", understanding.intent)];
    if !understanding.references.is_empty() {
        parts.push(format!("about {}", understanding.references.join(", ")));
    }
    parts.extend(understanding.retained.iter().map(|item| format!("retains {} ({})", item.reference, item.reason)));
    parts.extend(understanding.demoted.iter().map(|item| format!("demotes {} ({})", item.reference, item.reason)));
    if !understanding.dropped.is_empty() {
        parts.push(format!("drops {}", understanding.dropped.join(", ")));
    }
    if understanding.drops_all_saved {
        parts.push("drops all saved records".to_owned());
    }
    parts.join("; ")
}

fn describe_plan(plan: &AssistantTurnPlan) -> String {
    match plan.decision {
        ThinkDecision::Propose | ThinkDecision::Clarify => {
            format!("{}: {}", plan.decision.as_str(), plan.message_to_user.as_deref().unwrap_or_default())
        }
        ThinkDecision::PlanDirect => {
            let steps =
                plan.steps.iter().map(|step| format!("{} {} {}", step.step, step.kind.as_str(), step.subdomain));
            let skipped = plan.skipped_steps.iter().map(|line| format!("not needed: {line}"));
            let withheld = plan.withheld_writes.iter().map(|line| format!("not asked for: {line}"));
            format!("plan: {}", steps.chain(skipped).chain(withheld).collect::<Vec<_>>().join("; "))
        }
    }
}

fn describe_tool_run_records(records: &DomainToolRunOutcome) -> FactDisplay {
    if !records.write_summaries.is_empty() {
        return FactDisplay::Notice(records.write_summaries.join("; "));
    }
    let found = records.rows.iter().filter(|row| row.row_index.is_some()).count();
    FactDisplay::Detail(format!("{} ({}) returned {found} records", records.run, records.tool))
}

fn describe_step_end(end: &AssistantStepEnd) -> String {
    let status = match end.status {
        AssistantStepEndStatus::Done => String::new(),
        other => format!(" {}", AssistantStepEndStatus::describe(Some(other))),
    };
    format!("step {}{status}: {}", end.step, end.outcome)
}
