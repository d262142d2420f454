//! Checks the expectations of a conversation against its journal.

use std::collections::BTreeMap;

use segue_core::event::{Event, ToolRunOpened, ToolRunOutcome};
use segue_core::handover::HandoverProvenance;
use segue_core::ids::ToolRunId;
use segue_core::signal::canonical_json;
use serde_json::Value;

use super::{EvalConversationScore, TASKS_RIGHT, failure_note};
use crate::conversation::{EvalConversationExpectation, ExpectedToolRun};
use crate::record::EvalConversationRecord;

pub(super) fn score_expectations(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let visible = record.visible_role().to_owned();
    let turns = record.turns();
    let mut first_failure = (turns.is_empty() || turns.iter().any(|turn| !turn.is_done))
        .then(|| failure_note(record, turns.len(), "not every turn was completed", ""));
    for expectation in &record.conversation.expectations {
        let turn = expectation.turn.unwrap_or(record.messages.len());
        let failure = find_unmet_condition(record, expectation, turn).map(|what| {
            let replies = turns.iter().filter(|recorded| recorded.number == turn).flat_map(|turn| &turn.replies);
            let shown: Vec<&str> = replies.map(|reply| reply.text).collect();
            failure_note(record, turn, &what, &shown.join(" "))
        });
        first_failure = first_failure.or_else(|| failure.clone());
        if expectation.measure != TASKS_RIGHT {
            let role = expectation.role.as_ref().map_or(visible.as_str(), |role| role.as_str());
            score.count_case(role, &expectation.measure, failure);
        }
    }
    if !record.conversation.expectations.is_empty() {
        score.count_case(&visible, TASKS_RIGHT, first_failure);
    }
}

/// Returns what an expectation misses, or `None` if it is met.
fn find_unmet_condition(
    record: &EvalConversationRecord,
    expectation: &EvalConversationExpectation,
    turn: usize,
) -> Option<String> {
    let turns = record.turns();
    let replies = turns.iter().filter(|recorded| recorded.number == turn).flat_map(|turn| &turn.replies);
    let reply = replies.map(|reply| reply.text.to_lowercase()).collect::<Vec<_>>().join("\n");
    let contains = |text: &String| reply.contains(&text.to_lowercase());
    if let Some(text) = expectation.reply_lacks.iter().find(|text| contains(text)) {
        return Some(format!("the reply contains `{text}`"));
    }
    let from = expectation.turn.unwrap_or(1);
    let has_fact = |kinds: &[String]| {
        record.events_from_turn(from).find_map(|recorded| match &recorded.event {
            Event::FlowFactRecorded { kind, .. } if kinds.contains(kind) => Some(kind.clone()),
            _ => None,
        })
    };
    if let Some(kind) = has_fact(&expectation.no_fact) {
        return Some(format!("the fact `{kind}` was recorded"));
    }
    if expectation.no_tool.as_ref().is_some_and(|tool| has_tool_run(record, from, tool)) {
        return Some("a tool was run that should not have been".to_owned());
    }
    let is_met = !expectation.has_positive_condition()
        || expectation.reply_has.iter().any(contains)
        || has_entered_phase(record, from, &expectation.phase)
        || expectation.handover.as_ref().is_some_and(|kind| is_handover_written(record, kind))
        || has_fact(&expectation.fact).is_some()
        || expectation.tool.as_ref().is_some_and(|tool| has_tool_run(record, from, tool));
    (!is_met).then(|| format!("`{}` is not met", expectation.measure))
}

fn has_entered_phase(record: &EvalConversationRecord, from: usize, phases: &[String]) -> bool {
    record.events_from_turn(from).any(|recorded| match &recorded.event {
        Event::PhaseEntered(entered) => phases.iter().any(|phase| entered.transition.to == *phase.as_str()),
        _ => false,
    })
}

/// Returns whether the model wrote the first handover of a kind.
pub(super) fn is_handover_written(record: &EvalConversationRecord, kind: &str) -> bool {
    let first = record.events.iter().find_map(|recorded| match &recorded.event {
        Event::HandoverCreated(handover) if handover.kind == *kind => Some(handover.provenance),
        _ => None,
    });
    first.is_some_and(|provenance| provenance != HandoverProvenance::Built)
}

fn has_tool_run(record: &EvalConversationRecord, from: usize, expected: &ExpectedToolRun) -> bool {
    let mut open: BTreeMap<ToolRunId, &ToolRunOpened> = BTreeMap::new();
    record.events_from_turn(from).any(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) => {
            open.insert(opened.run, opened);
            false
        }
        Event::ToolRunEnded { run, outcome: ToolRunOutcome::Done, text, failed: false, .. } => {
            open.get(run).is_some_and(|opened| matches_tool_run(opened, expected) && !is_refusal(record.text(*text)))
        }
        _ => false,
    })
}

/// Returns whether a result says that the request was refused.
fn is_refusal(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|result| result.get("refusal").is_some_and(|why| !why.is_null()))
}

fn matches_tool_run(opened: &ToolRunOpened, expected: &ExpectedToolRun) -> bool {
    let has_name = expected.name.as_ref().is_none_or(|name| opened.tool == *name.as_str());
    let members = expected.arguments.as_object().into_iter().flatten();
    let mut members = members.map(|(name, wanted)| (opened.arguments.get(name).unwrap_or(&Value::Null), wanted));
    let has_arguments = members.all(|(given, wanted)| match wanted {
        Value::Array(choices) => choices.contains(given),
        wanted => given == wanted,
    });
    let written = canonical_json(&opened.arguments).to_lowercase();
    has_name && has_arguments && expected.mentions.iter().all(|text| written.contains(&text.to_lowercase()))
}
