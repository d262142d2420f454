//! The flow's facts in words, for people who look on: in a terminal beside the conversation, or in a session's history. None of
//! these words ever reaches a model.

use segue_core::flow::Telling;
use segue_core::signal::{self, BlockNames};
use serde_json::Value;

use super::analysis::analyse;
use super::brief::{self, sureness};
use super::facts::{Begun, Fact, Known, Mapped, Purpose};
use super::map;
use super::state::Memory;

/// How a fact is told; `state` is the flow's after it.
pub(super) fn told(state: &Memory, kind: &str, value: &Value) -> Telling {
    let Some(fact) = Fact::read(kind, value) else { return Telling::AsItStands };
    match fact {
        Fact::Settings { complaints } => news(complaints.join("; ")),
        Fact::Batch(begun) => detail(format!("everyone is asked, {}", wanted(&begun))),
        Fact::BatchResumed { .. } => detail("those who did not answer are asked again"),
        Fact::Overdue { call, .. } => detail(format!("{call} is not waited for any longer")),
        Fact::BatchClosed { answers, missing, .. } if missing.is_empty() => detail(format!("all {answers} answered")),
        Fact::BatchClosed { answers, missing, .. } => {
            let all = answers + missing.len();
            news(format!("{answers} of {all} answered; not {}", missing.join("; ")))
        }
        Fact::BatchFailed { missing, .. } => detail(format!("nobody answered: {}", missing.join("; "))),
        Fact::BatchDropped { why, .. } => detail(format!("not gone on with: {why}")),
        Fact::Late { call, .. } => detail(format!("{call} answered too late to count")),
        Fact::Map(mapped) => detail(mapped_in_words(&mapped)),
        Fact::Analysis(value) => detail(analysis(&value)),
        Fact::NoMap { why, .. } => news(format!("there is no map: {why}")),
        Fact::Learnt { purpose: Purpose::StepHelp, .. } => news("help has come in for the next answer"),
        Fact::Learnt { known: Known::Alone { call, .. }, .. } => detail(format!("{call} has to do, alone")),
        Fact::Learnt { known: Known::Unmapped { texts }, .. } => {
            detail(format!("the {} answers have to do, as they came", texts.len()))
        }
        Fact::Stance { stance, because } => detail(format!("the stance is {stance}: {because}")),
        Fact::Workflow { .. } | Fact::StepDone { .. } | Fact::StepStarted { .. } => match &state.workflow {
            Some(workflow) => news(workflow.checklist()),
            None => Telling::AsItStands,
        },
        Fact::WorkflowClosed { goal, .. } => news(format!("the plan is done: {goal}")),
        Fact::Confirm { begun } => detail(format!("the user is asked whether to ask everyone, {}", wanted(&begun))),
        Fact::Confirmed => detail("the user said yes"),
        Fact::Unsettled => detail("the user said neither yes nor no"),
        Fact::Declined => detail("the user did not say yes"),
        Fact::PlanAsked { words, times, .. } => {
            detail(format!("a plan is asked for (“{words}”) and not taken up, {times} so far"))
        }
        Fact::Refused { block, why, .. } => detail(format!("{block} refused: {why}")),
        Fact::Silent { .. } => detail("the user was told nothing yet"),
        Fact::Complaints { call, complaints } => detail(format!("{call}: {}", complaints.join("; "))),
        Fact::Leak { call, terms } => detail(format!("{call} speaks of the machinery: {}", terms.join(", "))),
        Fact::BatchSent { .. } | Fact::Learnt { .. } => Telling::Nothing,
    }
}

/// What a mapper's answer comes to, as the concierge would be told; `state` is from before it was asked.
pub(super) fn map_in_words(state: &Memory, answer: &str) -> String {
    let answers = state.batch.as_ref().map_or(0, |batch| u32::try_from(batch.answers.len()).unwrap_or(u32::MAX));
    match map::parse(answer, answers) {
        Ok(reading) => {
            let analysis = analyse(&reading.map, answers);
            let sure = format!("{} ({:.2})", sureness(analysis.confidence), analysis.confidence);
            format!("shape: {}, {sure}\n\n{}", analysis.shape, brief::text(&reading.map, &analysis))
        }
        Err(why) => format!("there is no map in it: {why}"),
    }
}

/// What the user hears of an answer, and what else is in it; nothing if that is all of it.
pub(super) fn reply_in_words(answer: &str, blocks: &BlockNames) -> Option<String> {
    let reading = signal::read(answer, blocks);
    let names: Vec<&str> = reading.blocks.iter().map(|block| block.name.as_str()).collect();
    let visible = reading.visible.trim_end();
    (!names.is_empty()).then(|| format!("{visible}\n\n(and for the rules alone: {})", names.join(", ")))
}

fn news(text: impl Into<String>) -> Telling {
    Telling::News(text.into())
}

fn detail(text: impl Into<String>) -> Telling {
    Telling::Detail(text.into())
}

fn wanted(begun: &Begun) -> String {
    let step = begun.task.as_ref().and_then(|task| task.step.as_deref());
    match begun.purpose {
        Purpose::Opening => "about the first question".to_owned(),
        Purpose::EveryTurn => "about this message".to_owned(),
        Purpose::Workflow => "for a plan".to_owned(),
        Purpose::StepHelp => step.map_or_else(|| "for help".to_owned(), |step| format!("for help with “{step}”")),
    }
}

fn mapped_in_words(mapped: &Mapped) -> String {
    let size = mapped.map.as_ref().map_or_else(String::new, |map| {
        let (claims, edges, gaps) = (map.claims.len(), map.edges.len(), map.gaps.len());
        format!(": {}, {}, {}", several(claims, "claim"), several(edges, "edge"), several(gaps, "gap"))
    });
    let repaired = match mapped.complaints.len() {
        0 => String::new(),
        repairs => format!(", {}", several(repairs, "repair")),
    };
    format!("{} maps {} answers{size}{repaired}", mapped.call, mapped.answers)
}

fn several(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn analysis(value: &Value) -> String {
    let shape = value.get("shape").and_then(Value::as_str).unwrap_or("unknown");
    let confidence = value.get("confidence").and_then(Value::as_f64).unwrap_or_default();
    let hub =
        value.get("hub").and_then(Value::as_str).map(|hub| format!("; most hangs on “{hub}”")).unwrap_or_default();
    format!("the shape is {shape}, the picture {} ({confidence:.2}){hub}", sureness(confidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concierge::workflow::{PlanStep, Workflow};
    use serde_json::json;

    #[test]
    fn a_plan_is_told_as_a_list_to_tick_off() {
        let step =
            |title: &str| PlanStep { title: title.into(), done_when: "it is done".into(), ..PlanStep::default() };
        let steps = vec![step("Measure"), step("Buy"), step("Paint")];
        let mut workflow = Workflow::new("a green wall".into(), steps);
        workflow.complete(0);
        let state = Memory { workflow: Some(workflow), ..Memory::default() };
        let told = told(&state, "step_done", &json!({"step": 0, "title": "Measure", "call": 4}));
        let list =
            "plan: a green wall (1 of 3 done)\n  [x] 1. Measure\n  [>] 2. Buy (until it is done)\n  [ ] 3. Paint";
        assert_eq!(told, Telling::News(list.into()));
    }

    #[test]
    fn what_is_missing_is_news_and_what_is_complete_is_not() {
        let closed = |missing: &[&str]| {
            told(&Memory::default(), "batch_closed", &json!({"batch": 1, "answers": 2, "missing": missing}))
        };
        assert_eq!(closed(&[]), Telling::Detail("all 2 answered".into()));
        assert_eq!(closed(&["ant: no key"]), Telling::News("2 of 3 answered; not ant: no key".into()));
        assert_eq!(told(&Memory::default(), "other", &Value::Null), Telling::AsItStands);
    }
}
