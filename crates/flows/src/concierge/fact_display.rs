//! The flow's facts in words, for people who look on: in a terminal beside the conversation, or in a session's history. None of
//! these words ever reaches a model.

use segue_core::flow::FactDisplay;
use segue_core::signal::{self, BlockSet};
use serde_json::Value;

use super::analysis::analyse_claim_map;
use super::brief::{self, confidence_label};
use super::claim_map;
use super::facts::{BatchPurpose, BatchRequest, BatchResult, ClaimMapRecord, Fact};
use super::state::ConciergeState;

/// How a fact is told; `state` is the flow's after it.
pub(super) fn describe_concierge_fact(state: &ConciergeState, kind: &str, value: &Value) -> FactDisplay {
    let Some(fact) = Fact::parse(kind, value) else { return FactDisplay::Raw };
    match fact {
        Fact::InvalidSettings { complaints } => news_display(complaints.join("; ")),
        Fact::BatchStarted(begun) => detail_display(format!("everyone is asked, {}", describe_batch_purpose(&begun))),
        Fact::BatchResumed { .. } => detail_display("those who did not answer are asked again"),
        Fact::AnswerTimedOut { call, .. } => detail_display(format!("{call} is not waited for any longer")),
        Fact::BatchClosed { answers, missing, .. } if missing.is_empty() => {
            detail_display(format!("all {answers} answered"))
        }
        Fact::BatchClosed { answers, missing, .. } => {
            let all = answers + missing.len();
            news_display(format!("{answers} of {all} answered; not {}", missing.join("; ")))
        }
        Fact::BatchFailed { missing, .. } => detail_display(format!("nobody answered: {}", missing.join("; "))),
        Fact::BatchAbandoned { why, .. } => detail_display(format!("not gone on with: {why}")),
        Fact::LateAnswer { call, .. } => detail_display(format!("{call} answered too late to count")),
        Fact::MapParsed(mapped) => detail_display(describe_claim_map(&mapped)),
        Fact::MapAnalysed(value) => detail_display(describe_map_analysis(&value)),
        Fact::MapUnavailable { why, .. } => news_display(format!("there is no map: {why}")),
        Fact::BatchCompleted { purpose: BatchPurpose::StepHelp, .. } => {
            news_display("help has come in for the next answer")
        }
        Fact::BatchCompleted { result: BatchResult::Single { call, .. }, .. } => {
            detail_display(format!("{call} has to do, alone"))
        }
        Fact::BatchCompleted { result: BatchResult::Unmapped { texts }, .. } => {
            detail_display(format!("the {} answers have to do, as they came", texts.len()))
        }
        Fact::StanceChosen { stance, reason: because } => detail_display(format!("the stance is {stance}: {because}")),
        Fact::PlanStarted { .. } | Fact::StepCompleted { .. } | Fact::StepStarted { .. } => match &state.active_plan {
            Some(workflow) => news_display(workflow.render_checklist()),
            None => FactDisplay::Raw,
        },
        Fact::PlanCompleted { goal, .. } => news_display(format!("the plan is done: {goal}")),
        Fact::ConfirmationRequested { request: begun } => {
            detail_display(format!("the user is asked whether to ask everyone, {}", describe_batch_purpose(&begun)))
        }
        Fact::BatchConfirmed => detail_display("the user said yes"),
        Fact::ConfirmationUnclear => detail_display("the user said neither yes nor no"),
        Fact::BatchDeclined => detail_display("the user did not say yes"),
        Fact::PlanRequested { phrase: words, count: times, .. } => {
            detail_display(format!("a plan is asked for (“{words}”) and not taken up, {times} so far"))
        }
        Fact::BlockRefused { block, why, .. } => detail_display(format!("{block} refused: {why}")),
        Fact::EmptyReply { .. } => detail_display("the user was told nothing yet"),
        Fact::ReplyComplaints { call, complaints } => detail_display(format!("{call}: {}", complaints.join("; "))),
        Fact::InternalTermsLeaked { call, terms } => {
            detail_display(format!("{call} speaks of the machinery: {}", terms.join(", ")))
        }
        Fact::BatchDispatched { .. } | Fact::BatchCompleted { .. } => FactDisplay::Hidden,
    }
}

/// What a mapper's answer comes to, as the concierge would be told; `state` is from before it was asked.
pub(super) fn summarize_map_reply(state: &ConciergeState, answer: &str) -> String {
    let answers = state.batch.as_ref().map_or(0, |batch| u32::try_from(batch.answers.len()).unwrap_or(u32::MAX));
    match claim_map::parse_claim_map(answer, answers) {
        Ok(reading) => {
            let analysis = analyse_claim_map(&reading.map, answers);
            let sure = format!("{} ({:.2})", confidence_label(analysis.confidence), analysis.confidence);
            format!("shape: {}, {sure}\n\n{}", analysis.shape, brief::render_brief(&reading.map, &analysis))
        }
        Err(why) => format!("there is no map in it: {why}"),
    }
}

/// What the user hears of an answer, and what else is in it; nothing if that is all of it.
pub(super) fn summarize_concierge_reply(answer: &str, blocks: &BlockSet) -> Option<String> {
    let reading = signal::parse_reply(answer, blocks);
    let names: Vec<&str> = reading.blocks.iter().map(|block| block.name.as_str()).collect();
    let visible = reading.visible_text.trim_end();
    (!names.is_empty()).then(|| format!("{visible}\n\n(and for the rules alone: {})", names.join(", ")))
}

fn news_display(text: impl Into<String>) -> FactDisplay {
    FactDisplay::Notice(text.into())
}

fn detail_display(text: impl Into<String>) -> FactDisplay {
    FactDisplay::Detail(text.into())
}

fn describe_batch_purpose(request: &BatchRequest) -> String {
    let step = request.task.as_ref().and_then(|task| task.step.as_deref());
    match request.purpose {
        BatchPurpose::OpeningQuestion => "about the first question".to_owned(),
        BatchPurpose::EveryTurn => "about this message".to_owned(),
        BatchPurpose::Plan => "for a plan".to_owned(),
        BatchPurpose::StepHelp => step.map_or_else(|| "for help".to_owned(), |step| format!("for help with “{step}”")),
    }
}

fn describe_claim_map(mapped: &ClaimMapRecord) -> String {
    let size = mapped.map.as_ref().map_or_else(String::new, |map| {
        let (claims, edges, gaps) = (map.claims.len(), map.edges.len(), map.gaps.len());
        format!(": {}, {}, {}", pluralize(claims, "claim"), pluralize(edges, "edge"), pluralize(gaps, "gap"))
    });
    let repaired = match mapped.complaints.len() {
        0 => String::new(),
        repairs => format!(", {}", pluralize(repairs, "repair")),
    };
    format!("{} maps {} answers{size}{repaired}", mapped.call, mapped.answers)
}

fn pluralize(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn describe_map_analysis(value: &Value) -> String {
    let shape = value.get("shape").and_then(Value::as_str).unwrap_or("unknown");
    let confidence = value.get("confidence").and_then(Value::as_f64).unwrap_or_default();
    let hub =
        value.get("hub").and_then(Value::as_str).map(|hub| format!("; most hangs on “{hub}”")).unwrap_or_default();
    format!("the shape is {shape}, the picture {} ({confidence:.2}){hub}", confidence_label(confidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concierge::plan::{ConciergePlan, PlanStep};
    use serde_json::json;

    #[test]
    fn a_plan_is_told_as_a_list_to_tick_off() {
        let step =
            |title: &str| PlanStep { title: title.into(), done_when: "it is done".into(), ..PlanStep::default() };
        let steps = vec![step("Measure"), step("Buy"), step("Paint")];
        let mut workflow = ConciergePlan::new("a green wall".into(), steps);
        workflow.complete_step(0);
        let state = ConciergeState { active_plan: Some(workflow), ..ConciergeState::default() };
        let told = describe_concierge_fact(&state, "step_done", &json!({"step": 0, "title": "Measure", "call": 4}));
        let list =
            "plan: a green wall (1 of 3 done)\n  [x] 1. Measure\n  [>] 2. Buy (until it is done)\n  [ ] 3. Paint";
        assert_eq!(told, FactDisplay::Notice(list.into()));
    }

    #[test]
    fn what_is_missing_is_news_and_what_is_complete_is_not() {
        let closed = |missing: &[&str]| {
            describe_concierge_fact(
                &ConciergeState::default(),
                "batch_closed",
                &json!({"batch": 1, "answers": 2, "missing": missing}),
            )
        };
        assert_eq!(closed(&[]), FactDisplay::Detail("all 2 answered".into()));
        assert_eq!(closed(&["ant: no key"]), FactDisplay::Notice("2 of 3 answered; not ant: no key".into()));
        assert_eq!(describe_concierge_fact(&ConciergeState::default(), "other", &Value::Null), FactDisplay::Raw);
    }
}
