//! How a turn goes on: Understand, Think, the steps in their groups, Reply, Summarize. What cannot be used is asked for once
//! more; after that the turn goes on with what there is, and the user is told what was and was not done.

use segue_core::event::{CallAnswered, CallOpened, Outcome, Said};
use segue_core::flow::{Speech, Step};
use serde_json::json;

use super::answer;
use super::context::{Happened, happened};
use super::desk::{Desk, go, reply};
use super::facts::{Decision, Fact, How, Layer, Pending, PendingKind, Summarized, Understood};
use super::reasoning::{CurationSummary, StepSummary, TurnSummary};
use super::runs::{self, Awaited};
use super::spec::{ACT, ASK_CONVERSATION, ASK_REASONING, REPLY, SUMMARIZE, THINK, UNDERSTAND};
use super::state::{Next, Running};
use super::step;
use crate::limits::REMARK_CHARS_MAX;
use crate::template::fill;

/// A turn began. What tools a server has is asked of it in every turn, since that can change; only the first waits for it.
pub(super) fn began(desk: &Desk<'_>) -> Vec<Step> {
    match (&desk.domain.server, desk.memory().tools.is_empty()) {
        (None, _) => vec![go(UNDERSTAND)],
        (Some(_), true) => vec![runs::describe(desk, Awaited::Yes)],
        (Some(_), false) => vec![runs::describe(desk, Awaited::No), go(UNDERSTAND)],
    }
}

/// Without a domain nothing can be done.
pub(super) fn no_domain(why: &str) -> Vec<Step> {
    let text = fill(include_str!("../../prompts/assistant/shared/no_domain.md"), &json!({"why": why}));
    let reason = why.to_owned();
    vec![Step::Say { text: Speech::New(text), by: None, call: None }, Step::EndTurn(Outcome::Failed { reason })]
}

/// A node answered.
pub(super) fn answered(desk: &Desk<'_>, call: &CallOpened, answered: &CallAnswered) -> Vec<Step> {
    if !desk.is_current() {
        return Vec::new();
    }
    let text = desk.view.text(answered.text);
    match call.role.as_str() {
        UNDERSTAND => understood(desk, call, &text),
        THINK => thought(desk, call, &text),
        ACT => step::answered(desk, call, answered, &text),
        REPLY if text.trim().is_empty() => {
            let complaints = ["the answer was empty".to_owned()];
            desk.ask_again(call, &complaints).unwrap_or_else(|| vec![account(desk)])
        }
        REPLY => {
            vec![Step::Say { text: Speech::Stored(answered.text), by: Some(REPLY.into()), call: Some(call.call) }]
        }
        SUMMARIZE => folded(desk, call, answered, &text),
        _ => Vec::new(),
    }
}

/// A node did not answer and will not be asked again.
pub(super) fn missed(desk: &Desk<'_>, call: &CallOpened, why: &str) -> Vec<Step> {
    if !desk.is_current() {
        return Vec::new();
    }
    match call.role.as_str() {
        ACT => step::missed(desk, call, why),
        REPLY => vec![account(desk)],
        SUMMARIZE => not_folded(desk, call, why),
        _ => vec![Step::EndTurn(Outcome::Failed { reason: why.to_owned() })],
    }
}

fn understood(desk: &Desk<'_>, call: &CallOpened, text: &str) -> Vec<Step> {
    let Some(running) = desk.running() else { return Vec::new() };
    let read = answer::understood(text, &desk.memory().entities, running.turn);
    if !read.complaints.is_empty()
        && let Some(again) = desk.ask_again(call, &read.complaints)
    {
        return again;
    }
    let how = how(desk.repairs(UNDERSTAND), &read.complaints);
    let value = read.value.unwrap_or_else(|| Understood { turn: running.turn, ..Understood::default() });
    vec![Fact::Understood(Understood { how, complaints: read.complaints, ..value }).note(), go(THINK)]
}

fn thought(desk: &Desk<'_>, call: &CallOpened, text: &str) -> Vec<Step> {
    let Some(running) = desk.running() else { return Vec::new() };
    let read = answer::planned(text, desk.domain, &desk.memory().entities, running.turn);
    if !read.complaints.is_empty()
        && let Some(again) = desk.ask_again(call, &read.complaints)
    {
        return again;
    }
    let how = how(desk.repairs(THINK), &read.complaints);
    match read.value {
        Some(mut plan) => {
            plan.how = how;
            vec![Fact::Planned(plan).note()]
        }
        None => vec![Fact::NotPlanned { why: read.complaints.join("; ") }.note()],
    }
}

fn how(repairs: u32, complaints: &[String]) -> How {
    match (repairs, complaints.is_empty()) {
        (0, true) => How::Given,
        (_, true) => How::Repaired,
        (_, false) => How::Salvaged,
    }
}

/// Goes on with the plan, or to the reply.
pub(super) fn go_on(desk: &Desk<'_>) -> Vec<Step> {
    let Some(running) = desk.running() else { return Vec::new() };
    match running.next() {
        Next::Begin(steps) => steps.into_iter().flat_map(|number| step::begin(desk, number)).collect(),
        Next::Wait => Vec::new(),
        Next::Reply => vec![reply()],
    }
}

/// Something was said to the user: the turn is summarised.
pub(super) fn said(desk: &Desk<'_>, said: &Said) -> Vec<Step> {
    let Some(running) = desk.running().filter(|running| said.turn.is_some_and(|turn| turn.0 == running.turn)) else {
        return Vec::new();
    };
    vec![summarized(desk, running, None)]
}

/// A turn ended before it was summarised.
pub(super) fn ended(desk: &Desk<'_>, outcome: &Outcome) -> Vec<Step> {
    let Some(running) = &desk.memory().running else { return Vec::new() };
    let why = match outcome {
        Outcome::Done => None,
        Outcome::Failed { reason } => Some(reason.clone()),
        Outcome::Cancelled => Some("it was stopped by hand".to_owned()),
        Outcome::Interrupted => Some("another message took its place".to_owned()),
    };
    vec![summarized(desk, running, why)]
}

/// What Summarize writes down of a turn: by rule, so that it is there whatever models do.
fn summarized(desk: &Desk<'_>, running: &Running, why: Option<String>) -> Step {
    let summary = desk.settings.turn_narratives.then(|| summary(desk, running, why));
    Fact::Summarized(Box::new(Summarized {
        turn: running.turn,
        said: running.said.clone(),
        reply: running.reply,
        pending: pending(running),
        summary,
    }))
    .note()
}

fn summary(desk: &Desk<'_>, running: &Running, why: Option<String>) -> TurnSummary {
    let plan = running.plan.as_ref();
    let understood = running.understood.clone().unwrap_or_default();
    let steps = plan.into_iter().flat_map(|plan| &plan.steps).map(|planned| {
        let end = running.steps.get(&planned.step).and_then(|state| state.end.as_ref());
        StepSummary {
            step: planned.step,
            kind: planned.kind,
            subdomain: planned.subdomain.clone(),
            end: end.map(|end| end.end),
            outcome: end.map(|end| end.outcome.clone()).unwrap_or_default(),
            refs: end
                .map(|end| end.refs.clone())
                .filter(|refs| !refs.is_empty())
                .unwrap_or_else(|| planned.refs.clone()),
            note: end.and_then(|end| end.note.clone()),
        }
    });
    let reasons = understood.retain.iter().chain(&understood.demote).filter(|one| !one.reason.is_empty());
    let curation = CurationSummary {
        retained: understood.retain.iter().map(|kept| kept.reference.clone()).collect(),
        demoted: understood.demote.iter().map(|aside| aside.reference.clone()).collect(),
        reasons: reasons.map(|one| format!("{}: {}", one.reference, one.reason)).collect(),
    };
    let said = || {
        let said: Vec<String> = running.said.iter().map(|(_, text)| desk.view.text(*text).to_string()).collect();
        answer::cut(&said.join(" ").split_whitespace().collect::<Vec<_>>().join(" "), REMARK_CHARS_MAX)
    };
    TurnSummary {
        turn: running.turn,
        decision: plan.map(|plan| plan.decision),
        goal: plan.map(|plan| plan.goal.clone()).unwrap_or_default(),
        steps: steps.collect(),
        curation,
        phase: running.phase(&desk.memory().entities),
        expressed: if understood.expressed.is_empty() { said() } else { understood.expressed },
        blocked_reason: running.blocked().or(why),
    }
}

/// What waits for the user's answer after a turn.
fn pending(running: &Running) -> Option<Pending> {
    let turn = running.turn;
    let asked = running.steps.values().filter_map(|state| state.end.as_ref()).find(|end| end.question.is_some());
    if let Some(end) = asked {
        let text = end.question.clone().unwrap_or_default();
        return Some(Pending { turn, what: PendingKind::Question, text, partial: end.partial.clone() });
    }
    let plan = running.plan.as_ref()?;
    let what = match plan.decision {
        Decision::PlanDirect => return None,
        Decision::Propose => PendingKind::Proposal,
        Decision::Clarify => PendingKind::Question,
    };
    Some(Pending { turn, what, text: plan.say.clone()?, partial: None })
}

/// What happened, in the flow's own words: where nobody else can say it.
fn account(desk: &Desk<'_>) -> Step {
    let running = desk.running().cloned().unwrap_or_default();
    let Happened { not_planned, say, steps, wrote, .. } = happened(desk.view, desk.domain, &running);
    let question = say.or_else(|| steps.iter().find_map(|step| step.question().map(str::to_owned)));
    let told = |step: &super::context::StepShown| match step.outcome() {
        "" => step.description().to_owned(),
        outcome => format!("{}: {outcome}", step.description()),
    };
    let outcomes: Vec<String> = steps.iter().filter(|step| step.is_done).map(told).collect();
    let not_done: Vec<String> = steps.iter().filter(|step| !step.is_done).map(told).chain(not_planned).collect();
    let arguments = json!({"question": question, "wrote": wrote, "outcomes": outcomes, "not_done": not_done});
    let text = fill(include_str!("../../prompts/assistant/reply/account.md"), &arguments);
    Step::Say { text: Speech::New(text), by: None, call: None }
}

/// What was done although its turn was stopped.
pub(super) fn told_late(wrote: &serde_json::Value) -> Step {
    let arguments = json!({"question": null, "wrote": wrote, "outcomes": [], "not_done": []});
    let text = fill(include_str!("../../prompts/assistant/reply/account.md"), &arguments);
    Step::Say { text: Speech::New(text), by: None, call: None }
}

/// A turn was summarised: what is older is folded, and then the turn is over.
pub(super) fn fold(desk: &Desk<'_>, summarized: &Summarized) -> Vec<Step> {
    let turn = desk.view.session.turn.as_ref().map(|turn| turn.id.0);
    if turn != Some(summarized.turn) {
        return Vec::new();
    }
    let memory = desk.memory();
    let mut steps = Vec::new();
    if desk.settings.turn_narratives && !memory.reasoning.aged.is_empty() {
        steps.push(Step::Call(segue_core::event::CallWish::new(SUMMARIZE, ASK_REASONING)));
    }
    if !memory.conversation.aged.is_empty() {
        steps.push(Step::Call(segue_core::event::CallWish::new(SUMMARIZE, ASK_CONVERSATION)));
    }
    if steps.is_empty() {
        steps.push(Step::EndTurn(Outcome::Done));
    }
    steps
}

fn folded(desk: &Desk<'_>, call: &CallOpened, answered: &CallAnswered, text: &str) -> Vec<Step> {
    if text.trim().is_empty() {
        return not_folded(desk, call, "the answer was empty");
    }
    let memory = desk.memory();
    let fact = match layer(call) {
        Layer::Reasoning => {
            let through = memory.reasoning.aged.back().map(|summary| summary.turn);
            through.map(|through| Fact::ReasoningFolded { through, text: answered.text })
        }
        Layer::Conversation => {
            let through = memory.conversation.aged.back().map(|exchange| exchange.turn);
            through.map(|through| Fact::ConversationFolded { through, text: answered.text })
        }
    };
    fact.map(Fact::note).into_iter().chain(after_fold(desk)).collect()
}

/// What stood stands on, and the turn succeeds all the same.
fn not_folded(desk: &Desk<'_>, call: &CallOpened, why: &str) -> Vec<Step> {
    let fact = Fact::NotFolded { what: layer(call), why: why.to_owned() };
    std::iter::once(fact.note()).chain(after_fold(desk)).collect()
}

fn layer(call: &CallOpened) -> Layer {
    if call.ask == *ASK_REASONING { Layer::Reasoning } else { Layer::Conversation }
}

fn after_fold(desk: &Desk<'_>) -> Option<Step> {
    let is_folding =
        desk.view.session.calls.values().any(|open| open.opened.role == *SUMMARIZE && open.opened.recomputes.is_none());
    (!is_folding).then_some(Step::EndTurn(Outcome::Done))
}
