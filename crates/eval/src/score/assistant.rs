//! The measures of the assistant flow. They are computed from tool runs and answers, not from what the flow believes, so
//! that an error in its own checks shows up here.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::event::{Event, ToolRunOutcome};
use segue_core::ids::ToolRunId;
use segue_flows::assistant::facts::{AssistantFact, AssistantPlanStepKind, AssistantStepEndStatus, AssistantTurnPlan};
use segue_flows::assistant::spec::{ACT_ROLE, THINK_ROLE, UNDERSTAND_ROLE};
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest};
use serde_json::Value;

use super::{
    EvalConversationScore, REFERENCES_AFTER_REPAIR, REFERENCES_AT_ONCE, STEPS_REALLY_DONE, VALID_AFTER_REPAIR,
    VALID_AT_ONCE, failure_note,
};
use crate::record::EvalConversationRecord;

/// The ask with which a node is told what was invalid.
const REPAIR_ASK: &str = "repair";
/// Members of an answer that contain references.
const REFERENCE_MEMBERS: [&str; 7] = ["references", "refs", "ref", "retain", "demote", "drop", "drafts_saved"];

pub(super) fn score_assistant(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    score_answer_validity(record, score);
    score_references(record, score);
    score_executed_steps(record, score);
}

/// Counts for each node and step whether its answers were valid at once, and whether they were after one repair.
fn score_answer_validity(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let mut rejections: BTreeMap<(u64, String, Option<u32>), (u32, String)> = BTreeMap::new();
    let mut turn = 0;
    let mut asked: BTreeSet<(u64, String, Option<u32>)> = BTreeSet::new();
    for recorded in &record.events {
        match &recorded.event {
            Event::TurnStarted { turn: started, .. } => turn = crate::record::turn_number(*started),
            Event::CallOpened(opened) if [UNDERSTAND_ROLE, THINK_ROLE, ACT_ROLE].contains(&opened.role.as_str()) => {
                let step =
                    opened.metadata.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
                asked.insert((turn, opened.role.to_string(), step));
            }
            event => {
                if let Some(AssistantFact::AnswerRejected { node, step, complaints, .. }) =
                    AssistantFact::from_event(event)
                {
                    let entry = rejections.entry((turn, node, step)).or_default();
                    *entry = (entry.0 + 1, complaints.join("; "));
                }
            }
        }
    }
    for key in asked {
        let (count, why) = rejections.get(&key).cloned().unwrap_or_default();
        let (turn, role, _) = key;
        let note = |what: &str| failure_note(record, usize::try_from(turn).unwrap_or(0), what, &why);
        score.count_case(&role, VALID_AT_ONCE, (count > 0).then(|| note("the answer was invalid")));
        score.count_case(&role, VALID_AFTER_REPAIR, (count > 1).then(|| note("the answer was invalid twice")));
    }
}

/// Counts the references that models wrote, and whether they existed at that time.
fn score_references(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let (mut turn, mut opened_calls) = (0, BTreeMap::new());
    for recorded in &record.events {
        match &recorded.event {
            Event::TurnStarted { .. } => turn += 1,
            Event::CallOpened(opened) => {
                opened_calls.insert(opened.call, opened);
            }
            Event::CallAnswered(answered) => {
                let Some(opened) = opened_calls.get(&answered.call) else { continue };
                let role = opened.role.as_str();
                if ![UNDERSTAND_ROLE, THINK_ROLE, ACT_ROLE].contains(&role) {
                    continue;
                }
                let measure = if opened.ask == *REPAIR_ASK { REFERENCES_AFTER_REPAIR } else { REFERENCES_AT_ONCE };
                let Ok(answer) = serde_json::from_str::<Value>(record.text(answered.text)) else { continue };
                let mut written = BTreeSet::new();
                collect_references(&answer, false, &mut written);
                for reference in written {
                    let failure = (!known.contains(&reference))
                        .then(|| failure_note(record, turn, "this reference does not exist", &reference));
                    score.count_case(role, measure, failure);
                }
            }
            event => match AssistantFact::from_event(event) {
                Some(AssistantFact::RecordsReceived(records)) => {
                    known.extend(records.rows.iter().map(|row| row.reference.clone()));
                }
                Some(AssistantFact::StepEnded(end)) => {
                    known.extend(end.drafts.iter().map(|draft| draft.reference.clone()));
                }
                _ => {}
            },
        }
    }
}

/// Collects the strings in members that contain references.
fn collect_references(value: &Value, is_reference: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if is_reference => {
            found.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, is_reference, found)),
        Value::Object(members) => {
            for (name, member) in members {
                // `retain` and `demote` are lists of objects, of which only `ref` is a reference.
                let is_member = REFERENCE_MEMBERS.contains(&name.as_str());
                let is_list_of_objects = member.as_array().is_some_and(|items| items.iter().any(Value::is_object));
                collect_references(member, is_member && !is_list_of_objects, found);
            }
        }
        _ => {}
    }
}

/// Counts the read and write steps that ended as done, and whether a tool had run for them.
fn score_executed_steps(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let mut plan: Option<AssistantTurnPlan> = None;
    let mut requests: BTreeMap<ToolRunId, DomainToolRequest> = BTreeMap::new();
    // The steps of this turn for which something was read or written.
    let (mut read, mut written): (BTreeSet<u32>, BTreeSet<u32>) = (BTreeSet::new(), BTreeSet::new());
    let mut turn = 0;
    for recorded in &record.events {
        match &recorded.event {
            Event::TurnStarted { .. } => {
                turn += 1;
                (plan, read, written) = (None, BTreeSet::new(), BTreeSet::new());
            }
            Event::ToolRunOpened(opened) => {
                requests.extend(DomainToolRequest::parse(&opened.arguments).map(|request| (opened.run, request)));
            }
            Event::ToolRunEnded { run, outcome: ToolRunOutcome::Done, .. } => {
                let Some((request, step)) = requests.get(run).and_then(|request| Some((request, request.step?))) else {
                    continue;
                };
                if request.operation.is_table_write() || request.operation == DomainOperation::CallTool {
                    written.insert(step);
                }
                if !request.operation.is_table_write() {
                    read.insert(step);
                }
            }
            event => match AssistantFact::from_event(event) {
                Some(AssistantFact::Planned(planned)) => plan = Some(planned),
                // The records were read before; the flow looked them up.
                Some(AssistantFact::AlreadyLoaded { step, .. }) => {
                    read.insert(step);
                }
                Some(AssistantFact::StepEnded(end)) if end.status == AssistantStepEndStatus::Done => {
                    let steps = plan.iter().flat_map(|plan| &plan.steps);
                    let kind = steps.into_iter().find(|step| step.step == end.step).map(|step| step.kind);
                    let is_done = match kind {
                        Some(AssistantPlanStepKind::Read) => read.contains(&end.step),
                        Some(AssistantPlanStepKind::Write) => written.contains(&end.step),
                        Some(AssistantPlanStepKind::Analyze | AssistantPlanStepKind::Generate) | None => continue,
                    };
                    let failure =
                        (!is_done).then(|| failure_note(record, turn, "a step ended without a tool run", &end.outcome));
                    score.count_case(ACT_ROLE, STEPS_REALLY_DONE, failure);
                }
                _ => {}
            },
        }
    }
}
