//! Describes the flow's facts for people, in a terminal or in a session's history. No model sees these texts.

use segue_core::flow::FactDisplay;
use segue_core::signal::{self, BlockSet};
use serde_json::Value;

use super::analysis::analyse_claim_map;
use super::brief::{self, confidence_label};
use super::claim_map;
use super::facts::{ConciergeFact, ExpertBatchPurpose, ExpertBatchRequest, ExpertBatchResult, RecordedClaimMap};
use super::state::ConciergeState;

/// Describes a fact. `state` is the state after the fact.
pub(super) fn describe_concierge_fact(state: &ConciergeState, kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = ConciergeFact::parse(kind, value) else { return FactDisplay::Raw };
    match fact {
        ConciergeFact::InvalidSettings { complaints } => notice_display(complaints.join("; ")),
        ConciergeFact::BatchStarted(request) => {
            detail_display(format!("the experts are asked {}", describe_batch_purpose(&request)))
        }
        ConciergeFact::BatchResumed { .. } => detail_display("the missing experts are asked again"),
        ConciergeFact::AnswerTimedOut { call, .. } => detail_display(format!("{call} timed out")),
        ConciergeFact::BatchClosed { answers, missing, .. } if missing.is_empty() => {
            detail_display(format!("all {answers} answered"))
        }
        ConciergeFact::BatchClosed { answers, missing, .. } => {
            let all = answers + missing.len();
            notice_display(format!("{answers} of {all} answered; missing: {}", missing.join("; ")))
        }
        ConciergeFact::BatchFailed { missing, .. } => {
            detail_display(format!("no expert answered: {}", missing.join("; ")))
        }
        ConciergeFact::HandoverFieldsBuilt { kind, fields } => {
            detail_display(format!("the flow wrote these fields of the handover {kind}: {}", fields.join(", ")))
        }
        ConciergeFact::BatchAbandoned { why, .. } => detail_display(format!("the batch was given up: {why}")),
        ConciergeFact::LateAnswer { call, .. } => detail_display(format!("{call} answered too late to count")),
        ConciergeFact::MapParsed(record) => detail_display(describe_claim_map(&record)),
        ConciergeFact::MapAnalysed(value) => detail_display(describe_map_analysis(&value)),
        ConciergeFact::MapUnavailable { why, .. } => notice_display(format!("there is no map: {why}")),
        ConciergeFact::BatchCompleted { purpose: ExpertBatchPurpose::StepHelp, .. } => {
            notice_display("help has arrived for the next reply")
        }
        ConciergeFact::BatchCompleted { result: ExpertBatchResult::Single { call, .. }, .. } => {
            detail_display(format!("only {call} answered; it is used without a map"))
        }
        ConciergeFact::BatchCompleted { result: ExpertBatchResult::Unmapped { texts }, .. } => {
            detail_display(format!("the {} answers are used without a map", texts.len()))
        }
        ConciergeFact::StanceChosen { stance, reason } => detail_display(format!("the stance is {stance}: {reason}")),
        ConciergeFact::PlanStarted { .. } | ConciergeFact::StepCompleted { .. } | ConciergeFact::StepStarted { .. } => {
            match &state.active_plan {
                Some(plan) => notice_display(plan.render_checklist()),
                None => FactDisplay::Raw,
            }
        }
        ConciergeFact::PlanCompleted { goal, .. } => notice_display(format!("the plan is complete: {goal}")),
        ConciergeFact::ConfirmationRequested { request } => {
            let purpose = describe_batch_purpose(&request);
            detail_display(format!("the user is asked whether the experts may be asked {purpose}"))
        }
        ConciergeFact::BatchConfirmed => detail_display("the user said yes"),
        ConciergeFact::ConfirmationRepeated => {
            detail_display("the answer can be read both ways, so the user is asked again")
        }
        ConciergeFact::PlanDropped { goal, .. } => notice_display(format!("the plan was dropped: {goal}")),
        ConciergeFact::ConfirmationUnclear => detail_display("the user said neither yes nor no"),
        ConciergeFact::BatchDeclined => detail_display("the user did not say yes"),
        ConciergeFact::PlanRequested { phrase, count, .. } => {
            detail_display(format!("the user asked for a plan (“{phrase}”) and got none, {count} so far"))
        }
        ConciergeFact::BlockRefused { block, why, .. } => detail_display(format!("{block} refused: {why}")),
        ConciergeFact::EmptyReply { .. } => detail_display(
            "the reply had no text, or repeated the last one, the message or the instruction; it is asked for again",
        ),
        ConciergeFact::ReplyComplaints { call, complaints } => {
            detail_display(format!("{call}: {}", complaints.join("; ")))
        }
        ConciergeFact::InternalTermsLeaked { call, terms } => {
            detail_display(format!("{call} uses internal terms: {}", terms.join(", ")))
        }
        ConciergeFact::BatchDispatched { .. } | ConciergeFact::BatchCompleted { .. } => FactDisplay::Hidden,
    }
}

/// Summarizes a mapper's reply by its shape and brief. `state` is the state before the call.
pub(super) fn summarize_map_reply(state: &ConciergeState, answer: &str) -> String {
    let answers = state.batch.as_ref().map_or(0, |batch| u32::try_from(batch.answers.len()).unwrap_or(u32::MAX));
    match claim_map::parse_claim_map(answer, answers) {
        Ok(parsed) => {
            let analysis = analyse_claim_map(&parsed.map, answers);
            let confidence = format!("{} ({:.2})", confidence_label(analysis.confidence), analysis.confidence);
            format!("shape: {}, {confidence}\n\n{}", analysis.shape, brief::render_brief(&parsed.map, &analysis))
        }
        Err(why) => format!("the reply has no map: {why}"),
    }
}

/// Summarizes a concierge reply by its visible text and the names of its blocks; `None` if it has no blocks.
pub(super) fn summarize_concierge_reply(answer: &str, blocks: &BlockSet) -> Option<String> {
    let parsed = signal::parse_reply(answer, blocks, &[""; 0]);
    let names: Vec<&str> = parsed.blocks.iter().map(|block| block.name.as_str()).collect();
    let visible = parsed.visible_text.trim_end();
    (!names.is_empty()).then(|| format!("{visible}\n\n(hidden blocks: {})", names.join(", ")))
}

fn notice_display(text: impl Into<String>) -> FactDisplay {
    FactDisplay::Notice(text.into())
}

fn detail_display(text: impl Into<String>) -> FactDisplay {
    FactDisplay::Detail(text.into())
}

fn describe_batch_purpose(request: &ExpertBatchRequest) -> String {
    let step = request.task.as_ref().and_then(|task| task.step.as_deref());
    match request.purpose {
        ExpertBatchPurpose::OpeningQuestion => "about the first question".to_owned(),
        ExpertBatchPurpose::EveryTurn => "about this message".to_owned(),
        ExpertBatchPurpose::Plan => "for a plan".to_owned(),
        ExpertBatchPurpose::StepHelp => {
            step.map_or_else(|| "for help".to_owned(), |step| format!("for help with “{step}”"))
        }
    }
}

fn describe_claim_map(record: &RecordedClaimMap) -> String {
    let size = record.map.as_ref().map_or_else(String::new, |map| {
        let (claims, edges, gaps) = (map.claims.len(), map.edges.len(), map.gaps.len());
        format!(": {}, {}, {}", pluralize(claims, "claim"), pluralize(edges, "edge"), pluralize(gaps, "gap"))
    });
    let repaired = match record.complaints.len() {
        0 => String::new(),
        repairs => format!(", {}", pluralize(repairs, "repair")),
    };
    format!("{} maps {} answers{size}{repaired}", record.call, record.answers)
}

fn pluralize(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn describe_map_analysis(value: &Value) -> String {
    let shape = value.get("shape").and_then(Value::as_str).unwrap_or("unknown");
    let confidence = value.get("confidence").and_then(Value::as_f64).unwrap_or_default();
    let hub =
        value.get("hub").and_then(Value::as_str).map(|hub| format!("; most depends on “{hub}”")).unwrap_or_default();
    format!("the shape is {shape}, {} ({confidence:.2}){hub}", confidence_label(confidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concierge::plan::{ConciergePlan, ConciergePlanStep};
    use serde_json::json;

    #[test]
    fn plan_is_described_as_a_checklist() {
        let step = |title: &str| ConciergePlanStep {
            title: title.into(),
            done_when: "it is done".into(),
            ..ConciergePlanStep::default()
        };
        let steps = vec![step("Measure"), step("Buy"), step("Paint")];
        let mut plan = ConciergePlan::new("a green wall".into(), steps);
        plan.complete_step(0);
        let state = ConciergeState { active_plan: Some(plan), ..ConciergeState::default() };
        let described =
            describe_concierge_fact(&state, "step_completed", &json!({"step": 0, "title": "Measure", "call": 4}));
        let list =
            "plan: a green wall (1 of 3 done)\n  [x] 1. Measure\n  [>] 2. Buy (until it is done)\n  [ ] 3. Paint";
        assert_eq!(described, FactDisplay::Notice(list.into()));
    }

    #[test]
    fn missing_answers_are_a_notice_and_complete_answers_a_detail() {
        let closed = |missing: &[&str]| {
            describe_concierge_fact(
                &ConciergeState::default(),
                "batch_closed",
                &json!({"batch": 1, "answers": 2, "missing": missing}),
            )
        };
        assert_eq!(closed(&[]), FactDisplay::Detail("all 2 answered".into()));
        assert_eq!(closed(&["ant: no key"]), FactDisplay::Notice("2 of 3 answered; missing: ant: no key".into()));
        assert_eq!(describe_concierge_fact(&ConciergeState::default(), "other", &Value::Null), FactDisplay::Raw);
    }
}
