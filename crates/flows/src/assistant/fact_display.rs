//! The flow's facts in words, for people who look on. None of these words ever reaches a model.

use segue_core::flow::FactDisplay;
use serde_json::Value;

use super::facts::{
    Fact, MemoryLayer, MessageUnderstanding, StepEnd, StepEndStatus, ThinkDecision, ToolRunRecords, TurnPlan,
};
use super::state::AssistantState;

/// How a fact is told; `state` is the flow's after it.
pub(super) fn describe_assistant_fact(state: &AssistantState, kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = Fact::parse(kind, value) else { return FactDisplay::Raw };
    match fact {
        Fact::InvalidSettings { complaints } => FactDisplay::Notice(complaints.join("; ")),
        Fact::MessageUnderstood(understood) => FactDisplay::Detail(describe_understanding(&understood)),
        Fact::Planned(plan) => FactDisplay::Detail(describe_plan(&plan)),
        Fact::PlanFailed { why } => FactDisplay::Detail(format!("no plan could be made: {why}")),
        Fact::AnswerRejected { call, complaints, .. } => {
            FactDisplay::Detail(format!("{call} is asked again: {}", complaints.join("; ")))
        }
        Fact::RecordsReceived(records) => describe_tool_run_records(&records),
        Fact::ToolFailed { run, why, .. } => FactDisplay::Detail(format!("{run} was not done: {why}")),
        Fact::AlreadyLoaded { step, refs } => {
            FactDisplay::Detail(format!("step {step} has {} at hand already", refs.join(", ")))
        }
        Fact::StepResultRetrieved { step, source_turn: of_turn, source_step: of_step } => {
            FactDisplay::Detail(format!("step {step} is given the result of step {of_step} of t{of_turn}"))
        }
        Fact::StepEnded(end) => FactDisplay::Detail(describe_step_end(&end)),
        Fact::ReasoningCompacted { through_turn: through, .. } => {
            FactDisplay::Detail(format!("reasoning up to t{through} is folded"))
        }
        Fact::ConversationCompacted { through_turn: through, .. } => {
            FactDisplay::Detail(format!("what was said up to t{through} is folded"))
        }
        Fact::CompactionFailed { layer: what, why } => {
            let what = match what {
                MemoryLayer::Conversation => "what was said",
                MemoryLayer::Reasoning => "reasoning",
            };
            FactDisplay::Detail(format!("{what} could not be folded: {why}"))
        }
        Fact::ServerToolsListed { tools } => FactDisplay::Detail(format!("the server describes {} tools", tools.len())),
        Fact::UndoFailed { run: of, why } => FactDisplay::Detail(format!("{of} could not be taken back: {why}")),
        Fact::WriteUndone { run: of } => {
            let is_known = state.writes.iter().any(|write| write.run == of);
            if is_known { FactDisplay::Detail(format!("{of} was taken back")) } else { FactDisplay::Raw }
        }
        // The turn tells what it says.
        Fact::TurnSummarized(_) => FactDisplay::Hidden,
    }
}

fn describe_understanding(understood: &MessageUnderstanding) -> String {
    let mut parts = vec![format!("understood: {}", understood.intent)];
    if !understood.references.is_empty() {
        parts.push(format!("about {}", understood.references.join(", ")));
    }
    parts.extend(understood.retained.iter().map(|kept| format!("keeps {} ({})", kept.reference, kept.reason)));
    parts.extend(understood.demoted.iter().map(|aside| format!("sets {} aside ({})", aside.reference, aside.reason)));
    if !understood.dropped.is_empty() {
        parts.push(format!("drops {}", understood.dropped.join(", ")));
    }
    if understood.drops_all_saved {
        parts.push("starts over".to_owned());
    }
    parts.join("; ")
}

fn describe_plan(plan: &TurnPlan) -> String {
    match plan.decision {
        ThinkDecision::Propose | ThinkDecision::Clarify => {
            format!("{}: {}", plan.decision.as_str(), plan.message_to_user.as_deref().unwrap_or_default())
        }
        ThinkDecision::PlanDirect => {
            let steps =
                plan.steps.iter().map(|step| format!("{} {} {}", step.step, step.kind.as_str(), step.subdomain));
            let skipped = plan.skipped_steps.iter().map(|line| format!("not needed: {line}"));
            format!("plan: {}", steps.chain(skipped).collect::<Vec<_>>().join("; "))
        }
    }
}

fn describe_tool_run_records(records: &ToolRunRecords) -> FactDisplay {
    if !records.write_summaries.is_empty() {
        return FactDisplay::Notice(records.write_summaries.join("; "));
    }
    let found = records.rows.iter().filter(|row| row.row_index.is_some()).count();
    FactDisplay::Detail(format!("{} brought {found} by {}", records.run, records.tool))
}

fn describe_step_end(end: &StepEnd) -> String {
    let how = match end.status {
        StepEndStatus::Done => String::new(),
        other => format!(" {}", StepEndStatus::describe(Some(other))),
    };
    format!("step {}{how}: {}", end.step, end.outcome)
}
