//! The flow's facts in words, for people who look on. None of these words ever reaches a model.

use segue_core::flow::Telling;
use serde_json::Value;

use super::facts::{Decision, End, Fact, Layer, Plan, Records, StepEnd, Understood};
use super::state::Memory;

/// How a fact is told; `state` is the flow's after it.
pub(super) fn told(state: &Memory, kind: &str, value: &Value) -> Telling {
    let Some(fact) = Fact::read(kind, value) else { return Telling::AsItStands };
    match fact {
        Fact::Settings { complaints } => Telling::News(complaints.join("; ")),
        Fact::Understood(understood) => Telling::Detail(heard(&understood)),
        Fact::Planned(plan) => Telling::Detail(planned(&plan)),
        Fact::NotPlanned { why } => Telling::Detail(format!("no plan could be made: {why}")),
        Fact::Broken { call, complaints, .. } => {
            Telling::Detail(format!("{call} is asked again: {}", complaints.join("; ")))
        }
        Fact::Records(records) => records_told(&records),
        Fact::ToolFailed { run, why, .. } => Telling::Detail(format!("{run} was not done: {why}")),
        Fact::AtHand { step, refs } => Telling::Detail(format!("step {step} has {} at hand already", refs.join(", "))),
        Fact::Retrieved { step, of_turn, of_step } => {
            Telling::Detail(format!("step {step} is given the result of step {of_step} of t{of_turn}"))
        }
        Fact::StepEnded(end) => Telling::Detail(ended(&end)),
        Fact::ReasoningFolded { through, .. } => Telling::Detail(format!("reasoning up to t{through} is folded")),
        Fact::ConversationFolded { through, .. } => {
            Telling::Detail(format!("what was said up to t{through} is folded"))
        }
        Fact::NotFolded { what, why } => {
            let what = match what {
                Layer::Conversation => "what was said",
                Layer::Reasoning => "reasoning",
            };
            Telling::Detail(format!("{what} could not be folded: {why}"))
        }
        Fact::Described { tools } => Telling::Detail(format!("the server describes {} tools", tools.len())),
        Fact::NotUndone { of, why } => Telling::Detail(format!("{of} could not be taken back: {why}")),
        Fact::Undone { of } => {
            let is_known = state.writes.iter().any(|write| write.run == of);
            if is_known { Telling::Detail(format!("{of} was taken back")) } else { Telling::AsItStands }
        }
        // The turn tells what it says.
        Fact::Summarized(_) => Telling::Nothing,
    }
}

fn heard(understood: &Understood) -> String {
    let mut parts = vec![format!("understood: {}", understood.expressed)];
    if !understood.references.is_empty() {
        parts.push(format!("about {}", understood.references.join(", ")));
    }
    parts.extend(understood.retain.iter().map(|kept| format!("keeps {} ({})", kept.reference, kept.reason)));
    parts.extend(understood.demote.iter().map(|aside| format!("sets {} aside ({})", aside.reference, aside.reason)));
    if !understood.drop.is_empty() {
        parts.push(format!("drops {}", understood.drop.join(", ")));
    }
    if understood.clear {
        parts.push("starts over".to_owned());
    }
    parts.join("; ")
}

fn planned(plan: &Plan) -> String {
    match plan.decision {
        Decision::Propose | Decision::Clarify => {
            format!("{}: {}", plan.decision.word(), plan.say.as_deref().unwrap_or_default())
        }
        Decision::PlanDirect => {
            let steps = plan.steps.iter().map(|step| format!("{} {} {}", step.step, step.kind.word(), step.subdomain));
            let skipped = plan.skipped.iter().map(|line| format!("not needed: {line}"));
            format!("plan: {}", steps.chain(skipped).collect::<Vec<_>>().join("; "))
        }
    }
}

fn records_told(records: &Records) -> Telling {
    if !records.wrote.is_empty() {
        return Telling::News(records.wrote.join("; "));
    }
    let found = records.rows.iter().filter(|row| row.place.is_some()).count();
    Telling::Detail(format!("{} brought {found} by {}", records.run, records.tool))
}

fn ended(end: &StepEnd) -> String {
    let how = match end.end {
        End::Done => String::new(),
        other => format!(" {}", End::words(Some(other))),
    };
    format!("step {}{how}: {}", end.step, end.outcome)
}
