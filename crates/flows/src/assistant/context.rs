//! What each node is shown of the three layers: one builder a node, each a reading of the state that cannot change it.
//!
//! | node | entities | conversation | reasoning |
//! |---|---|---|---|
//! | Understand | the registry's newest rows | five turns, what is pending | its own past decisions |
//! | Think | references, labels, what is loaded | two turns, the folded rest, what is pending | two turns in full, the folded rest, this turn's curation |
//! | Act | full records of its step, names of the rest | the message | this turn's results and notes |
//! | Reply | labels, saved or not | recent turns | where things stand, what really happened |

mod conversation;
mod entity;
mod reasoning;

use segue_core::flow::View;
use serde::Serialize;
use serde_json::Value;

pub use conversation::{PendingShown, Talk};
pub use entity::{EntityRow, Lines, Rows, samples};
pub use reasoning::{Past, TurnShown};

use super::answer::cut;
use super::domain::Domain;
use super::facts::{End, PlannedStep, Reasoned, StepEnd};
use super::reasoning::Phase;
use super::registry::Tier;
use super::settings::Settings;
use super::state::{Memory, Running};
use crate::limits::{
    REGISTRY_ROWS_MAX, REPLY_TURNS, RESULT_CHARS_MAX, SAID_CHARS_MAX, THINK_ROWS_MAX, THINK_TURNS, UNDERSTAND_TURNS,
};

type Sight<'a> = View<'a, Memory>;

/// What Understand is shown.
#[derive(Debug, Clone, Serialize)]
pub struct UnderstandContext {
    /// The registry's newest rows.
    pub rows: Vec<EntityRow>,
    /// How many are not shown.
    pub more: usize,
    /// What was said.
    pub conversation: Talk,
    /// What it made of earlier messages.
    pub decisions: Vec<PastDecision>,
    /// What waits for an answer.
    pub pending: Option<PendingShown>,
}

/// What Understand made of an earlier message.
#[derive(Debug, Clone, Serialize)]
pub struct PastDecision {
    turn: u32,
    expressed: String,
    retained: Vec<String>,
    demoted: Vec<String>,
    dropped: Vec<String>,
}

/// Builds what Understand is shown.
#[must_use]
pub fn understand(view: &Sight<'_>, settings: &Settings) -> UnderstandContext {
    let memory = view.state;
    let all = memory.entities.newest(memory.turn());
    let known = all.iter().filter(|(_, _, tier)| *tier != Tier::Dropped);
    let rows: Vec<EntityRow> = known.map(EntityRow::of).collect();
    let more = rows.len().saturating_sub(REGISTRY_ROWS_MAX);
    let names = |reasoned: &[Reasoned]| reasoned.iter().map(|one| one.reference.clone()).collect();
    let decisions = memory.understood.iter().filter(|_| settings.turn_narratives).map(|past| PastDecision {
        turn: past.turn,
        expressed: past.expressed.clone(),
        retained: names(&past.retain),
        demoted: names(&past.demote),
        dropped: past.drop.clone(),
    });
    UnderstandContext {
        rows: rows.into_iter().take(REGISTRY_ROWS_MAX).collect(),
        more,
        conversation: Talk::of(view, UNDERSTAND_TURNS),
        decisions: decisions.collect(),
        pending: PendingShown::of(memory),
    }
}

/// What Think is shown.
#[derive(Debug, Clone, Serialize)]
pub struct ThinkContext {
    /// References and labels of what is near, and what of each is at hand. No record.
    pub near: Vec<EntityRow>,
    /// How many are not shown.
    pub more: usize,
    /// What need not be read again.
    pub loaded: Vec<EntityRow>,
    /// Types of which everything is at hand.
    pub complete: Vec<String>,
    /// What was said.
    pub conversation: Talk,
    /// What waits for an answer.
    pub pending: Option<PendingShown>,
    /// What was decided before.
    pub reasoning: Option<Past>,
    /// What was understood in this turn.
    pub curation: Option<Curation>,
}

/// What Understand did in this turn.
#[derive(Debug, Clone, Serialize)]
pub struct Curation {
    expressed: String,
    references: Vec<String>,
    retained: Vec<Reasoned>,
    demoted: Vec<Reasoned>,
    dropped: Vec<String>,
    pending: Option<Value>,
}

/// Builds what Think is shown.
#[must_use]
pub fn think(view: &Sight<'_>, settings: &Settings) -> ThinkContext {
    let memory = view.state;
    let near: Vec<EntityRow> = memory.entities.near(memory.turn()).iter().map(EntityRow::of).collect();
    let loaded: Vec<EntityRow> = near.iter().filter(|row| row.is_at_hand()).cloned().collect();
    let complete = memory.complete.iter().filter(|kind| memory.is_complete(kind)).cloned().collect();
    let understood = memory.running.as_ref().and_then(|running| running.understood.as_ref());
    let curation = understood.map(|understood| Curation {
        expressed: understood.expressed.clone(),
        references: understood.references.clone(),
        retained: understood.retain.clone(),
        demoted: understood.demote.clone(),
        dropped: understood.drop.clone(),
        pending: understood.pending.and_then(|answer| serde_json::to_value(answer).ok()),
    });
    ThinkContext {
        more: near.len().saturating_sub(THINK_ROWS_MAX),
        near: near.into_iter().take(THINK_ROWS_MAX).collect(),
        loaded: loaded.into_iter().take(THINK_ROWS_MAX).collect(),
        complete,
        conversation: Talk::of(view, THINK_TURNS),
        pending: PendingShown::of(memory),
        reasoning: Some(Past::of(view)).filter(|past| settings.turn_narratives && !past.is_empty()),
        curation,
    }
}

/// What Act is shown for a step.
#[derive(Debug, Clone, Serialize)]
pub struct ActContext {
    /// What the plan is for.
    pub goal: String,
    /// How many steps it has.
    pub count: usize,
    /// The step.
    pub step: PlannedStep,
    /// What the steps before want it to know.
    pub notes: Vec<NoteShown>,
    /// The records of its references, or of what is near where it names none.
    pub records: Lines,
    /// The other things known, by name.
    pub others: Vec<EntityRow>,
    /// What steps before it came to.
    pub results: Vec<ResultShown>,
}

/// A note of an earlier step.
#[derive(Debug, Clone, Serialize)]
pub struct NoteShown {
    step: u32,
    note: String,
}

/// What an earlier step came to.
#[derive(Debug, Clone, Serialize)]
pub struct ResultShown {
    step: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    subdomain: String,
    outcome: String,
    result: Option<String>,
}

/// Builds what Act is shown for a step.
#[must_use]
pub fn act(view: &Sight<'_>, domain: &Domain, step: u32) -> Option<ActContext> {
    let memory = view.state;
    let running = memory.running.as_ref()?;
    let plan = running.plan.as_ref()?;
    let planned = running.planned(step)?;
    let near = memory.entities.near(memory.turn());
    let named = |reference: &str| planned.refs.iter().any(|wanted| wanted == reference);
    let is_its = |row: &(&str, _, Tier)| {
        if planned.refs.is_empty() {
            memory.entities.get(row.0).is_some_and(|known| known.kind == planned.subdomain)
        } else {
            named(row.0)
        }
    };
    let own: Vec<&str> = if planned.refs.is_empty() {
        near.iter().filter(|row| is_its(row)).map(|(name, _, _)| *name).collect()
    } else {
        planned.refs.iter().map(String::as_str).collect()
    };
    // What was set aside is told as such, so that nobody brings it back by chance.
    let aside = memory
        .entities
        .newest(memory.turn())
        .into_iter()
        .filter(|(name, _, tier)| *tier == Tier::Demoted && !named(name));
    let others = near.iter().filter(|row| !is_its(row)).map(EntityRow::of);
    let others = others.chain(aside.map(|row| EntityRow::of(&row))).take(THINK_ROWS_MAX).collect();
    let before = plan.steps.iter().filter(|other| other.group < planned.group);
    let ended: Vec<(&PlannedStep, &StepEnd)> =
        before.filter_map(|other| Some((other, running.steps.get(&other.step)?.end.as_ref()?))).collect();
    let last_group = ended.iter().map(|(other, _)| other.group).max();
    let notes = ended.iter().filter(|(other, _)| Some(other.group) == last_group);
    let notes = notes.filter_map(|(other, end)| Some(NoteShown { step: other.step, note: end.note.clone()? }));
    Some(ActContext {
        goal: plan.goal.clone(),
        count: plan.steps.len(),
        step: planned.clone(),
        notes: notes.collect(),
        records: Rows::new(view, domain).lines(own),
        others,
        results: ended
            .iter()
            .map(|(other, end)| ResultShown {
                step: other.step,
                kind: other.kind.word(),
                subdomain: other.subdomain.clone(),
                outcome: end.outcome.clone(),
                result: result_of(view, end).map(|result| fenced(&result)),
            })
            .collect(),
    })
}

/// What Reply is shown.
#[derive(Debug, Clone, Serialize)]
pub struct ReplyContext {
    /// The how-manieth turn it is.
    pub turn: u32,
    /// How far the conversation has come.
    pub phase: &'static str,
    /// What that means.
    pub meaning: &'static str,
    /// What the user expressed.
    pub expressed: String,
    /// What was replied last.
    pub last: Option<String>,
    /// What is talked about, by name.
    pub rows: Vec<EntityRow>,
    /// What was said.
    pub conversation: Talk,
    /// What really happened.
    pub happened: Happened,
}

/// What really happened in a turn.
#[derive(Debug, Clone, Serialize)]
pub struct Happened {
    /// Why there was no plan.
    pub not_planned: Option<String>,
    /// What was decided.
    pub decision: Option<&'static str>,
    /// What is proposed or asked.
    pub say: Option<String>,
    /// What for.
    pub goal: String,
    /// What was not needed.
    pub skipped: Vec<String>,
    /// What became of each step.
    pub steps: Vec<StepShown>,
    /// What was stored.
    pub wrote: Vec<String>,
}

/// What became of a step, in words.
#[derive(Debug, Clone, Serialize)]
pub struct StepShown {
    description: String,
    /// Whether it is done.
    #[serde(skip)]
    pub is_done: bool,
    end: &'static str,
    outcome: String,
    question: Option<String>,
    partial: Option<String>,
    next: Option<String>,
    result: Option<String>,
    drafts: Vec<String>,
}

/// Builds what Reply is shown.
#[must_use]
pub fn reply(view: &Sight<'_>, domain: &Domain) -> ReplyContext {
    let memory = view.state;
    let running = memory.running.clone().unwrap_or_default();
    let phase = running.phase(&memory.entities);
    let last = memory.conversation.recent.iter().rev().find_map(|exchange| exchange.reply);
    let rows = memory.entities.newest(memory.turn()).into_iter();
    let rows = rows.filter(|(_, _, tier)| tier.is_near() || *tier == Tier::Demoted);
    ReplyContext {
        turn: running.turn,
        phase: phase.word(),
        meaning: meaning(phase),
        expressed: running.understood.as_ref().map(|understood| understood.expressed.clone()).unwrap_or_default(),
        last: last.map(|text| one_line(&view.text(text))),
        rows: rows.map(|row| EntityRow::of(&row)).take(REGISTRY_ROWS_MAX).collect(),
        conversation: Talk::of(view, REPLY_TURNS),
        happened: happened(view, domain, &running),
    }
}

fn meaning(phase: Phase) -> &'static str {
    match phase {
        Phase::Exploring => "what is wanted is being found out",
        Phase::Narrowing => "choices are being made",
        Phase::Confirming => "something waits for their yes",
        Phase::Executing => "it is being done",
    }
}

fn one_line(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), SAID_CHARS_MAX / 4)
}

/// What really happened in a turn, with names in place of references.
#[must_use]
pub fn happened(view: &Sight<'_>, domain: &Domain, running: &Running) -> Happened {
    let entities = &view.state.entities;
    let plan = running.plan.as_ref();
    let steps = plan.into_iter().flat_map(|plan| &plan.steps).map(|planned| {
        let end = running.steps.get(&planned.step).and_then(|state| state.end.as_ref());
        let words = |text: &str| entities.in_words(text);
        let rows = Rows::new(view, domain);
        let drafts = end.into_iter().flat_map(|end| &end.drafts);
        StepShown {
            description: words(&planned.description),
            is_done: end.is_some_and(|end| end.end == End::Done),
            end: End::words(end.map(|end| end.end)),
            outcome: end.map(|end| words(&end.outcome)).unwrap_or_default(),
            question: end.and_then(|end| end.question.as_deref().map(words)),
            partial: end.and_then(|end| end.partial.as_ref()).map(|partial| fenced(&words(&pretty(partial)))),
            next: end.and_then(|end| end.next.as_deref().map(words)),
            result: end.and_then(|end| result_of(view, end)).map(|result| fenced(&words(&result))),
            drafts: drafts
                .filter_map(|draft| rows.draft_in_words(&draft.reference))
                .map(|draft| fenced(&draft))
                .collect(),
        }
    });
    Happened {
        not_planned: running.not_planned.clone(),
        decision: plan.map(|plan| plan.decision.word()),
        say: plan.and_then(|plan| plan.say.as_deref()).map(|say| entities.in_words(say)),
        goal: plan.map(|plan| entities.in_words(&plan.goal)).unwrap_or_default(),
        skipped: plan.map(|plan| plan.skipped.iter().map(|line| entities.in_words(line)).collect()).unwrap_or_default(),
        steps: steps.collect(),
        wrote: running.wrote.clone(),
    }
}

impl StepShown {
    /// What it was for.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// What came of it.
    #[must_use]
    pub fn outcome(&self) -> &str {
        &self.outcome
    }

    /// What the user is to be asked.
    #[must_use]
    pub fn question(&self) -> Option<&str> {
        self.question.as_deref()
    }
}

/// The full result of a step, as its answer gave it.
#[must_use]
pub fn result_of(view: &Sight<'_>, end: &StepEnd) -> Option<String> {
    result_in(&view.text(end.answer?))
}

/// The result that an answer of Act holds.
#[must_use]
pub fn result_in(answer: &str) -> Option<String> {
    let found = segue_core::signal::json::find_where(answer, |value| value.get("action").is_some());
    match found.value?.get("result") {
        None | Some(Value::Null) => None,
        Some(result) => Some(cut(&pretty(result), RESULT_CHARS_MAX)).filter(|result| !result.trim().is_empty()),
    }
}

/// A value for reading: text as it is, everything else as JSON.
fn pretty(value: &Value) -> String {
    value.as_str().map_or_else(|| segue_core::signal::json::canonical(value), str::to_owned)
}

fn fenced(text: &str) -> String {
    segue_core::signal::fence(text)
}
