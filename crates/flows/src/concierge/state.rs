//! What the flow remembers: a fold of events, small however long the conversation grows. Texts are held by reference.
//! Where the concierge stands is not here but in its phase graph, and who remembers what is the threads' business.

use std::collections::BTreeMap;

use segue_core::body::Text;
use segue_core::event::{CallAnswered, CallOpened, Event, Next, Outcome, PhaseEntered, Recorded, Said};
use segue_core::handover::Provenance;
use segue_core::ids::{CallId, HandoverId, HandoverKind, MessageId, ModelName, ThreadId};
use segue_core::limits::PAST_VISITS_MAX;
use segue_core::phase::state::How;
use serde::{Deserialize, Serialize};

use super::facts::{Begun, Fact, Known, Purpose, Task};
use super::spec::{
    ASK_PRESENT, ASK_REPLY, CONCIERGE, EXECUTION, EXECUTOR, EXPERT, FINDINGS, GRAPH, INTENT, NOTICES, OUTCOME, PLAN,
    STARTER, WORKFLOW,
};
use super::stance::Stance;
use super::words_of;
use super::workflow::Workflow;
use crate::limits::{NOTICES_MAX, REPLIES_MAX};

/// What the flow remembers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// How many batches there were.
    pub batches: u32,
    /// The batch under way, or the one that brought nothing and can be tried again.
    pub batch: Option<Batch>,
    /// What is known about the first question.
    pub opening: Option<Known>,
    /// How the concierge speaks.
    pub stance: Option<Stance>,
    /// What is known about doing what is to be done, and what the user said when it was asked for.
    pub plan: Option<PlanKnown>,
    /// What waits to be told to the concierge, once.
    pub findings: Option<Findings>,
    /// Refusals that wait to be told, once.
    pub notices: Vec<String>,
    /// The plan under way.
    pub workflow: Option<Workflow>,
    /// The version of it that the concierge knows.
    pub shown: Option<u32>,
    /// A wish that waits for the user's yes.
    pub confirm: Option<Begun>,
    /// Whether it was answered with neither yes nor no already.
    pub unsettled: bool,
    /// How often the user asked this visit's explorer for a plan without getting one.
    pub plan_asked: PlanAsked,
    /// Messages that have no turn yet.
    pub waiting: BTreeMap<MessageId, Text>,
    /// What the user said and nobody has answered.
    pub open: Vec<(MessageId, Text)>,
    /// The first question and its answer, for a handover that has to be built.
    pub exchange: Exchange,
    /// What the last answer that was meant for the user was an answer to.
    pub answered: Vec<(MessageId, Text)>,
    /// Whether something was said to the user in this turn.
    pub said: bool,
    /// The same, by the one who has the word now.
    pub spoken: bool,
    /// Answers of this turn that held nothing for the user.
    pub silences: u32,
    /// This visit of a phase.
    pub visit: Visit,
    /// Visits before, by number: what a rollback goes back to.
    pub past: BTreeMap<u32, Visit>,
    /// What each open call of the concierge carries.
    pub carried: BTreeMap<CallId, Carried>,
    /// The thread in which the concierge speaks.
    pub thread: Option<ThreadId>,
}

/// What belongs to one visit of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Visit {
    /// Its number; the first is 1, as the phase graph counts.
    pub number: u32,
    /// The handover it began with.
    pub handed: Option<HandoverId>,
    /// The newest handover of each kind that was made in it.
    pub made: BTreeMap<HandoverKind, HandoverId>,
    /// The plan as it stood when the visit ended.
    pub workflow: Option<Workflow>,
    /// What the user said in it and was answered, unless it went into the exchange; of more than fits, the latest.
    pub said: Vec<(MessageId, Text)>,
}

impl Default for Visit {
    fn default() -> Self {
        Self { number: 1, handed: None, made: BTreeMap::new(), workflow: None, said: Vec::new() }
    }
}

/// Requests for a plan that were not taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanAsked {
    /// How many.
    pub times: u32,
    /// The message that made the last one.
    pub last: Option<MessageId>,
}

/// A batch under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// What it is.
    pub begun: Begun,
    /// Which model sits where.
    #[serde(default)]
    pub models: BTreeMap<usize, ModelName>,
    /// Calls that are open, by seat.
    #[serde(default)]
    pub calls: BTreeMap<CallId, usize>,
    /// Answers, by seat.
    #[serde(default)]
    pub answers: BTreeMap<usize, (CallId, Text)>,
    /// Who did not answer, and why.
    #[serde(default)]
    pub failures: BTreeMap<usize, String>,
    /// Who is not waited for any more.
    #[serde(default)]
    pub overdue: BTreeMap<usize, CallId>,
    /// How far it has come.
    #[serde(default)]
    pub stage: Stage,
}

/// How far a batch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its calls are being opened, or it has failed and can be tried again.
    #[default]
    Calling,
    /// All calls are under way.
    Sent,
    /// Its answers are in.
    Closed,
}

/// What is known about doing what is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanKnown {
    /// What is known.
    pub known: Known,
    /// What the user said that led to it.
    pub asked: Vec<(MessageId, Text)>,
}

/// What waits to be told to the concierge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// What it was found for.
    pub purpose: Purpose,
    /// What was asked on the concierge's behalf.
    pub task: Option<Task>,
    /// What is known.
    pub known: Known,
}

/// The first question, its answer, and what the user said to that.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Exchange {
    /// What the user asked.
    pub query: Vec<Text>,
    /// What was answered.
    pub reply: Option<Text>,
    /// What the user said since, as long as the starter had the word.
    pub replies: Vec<(MessageId, Text)>,
}

/// Adds messages to those that are kept.
fn keep(kept: &mut Vec<(MessageId, Text)>, messages: &[(MessageId, Text)]) {
    for message in messages {
        if !kept.contains(message) {
            kept.push(*message);
        }
    }
    let excess = kept.len().saturating_sub(REPLIES_MAX);
    kept.drain(..excess);
}

/// What a call of the concierge carries, and what of it counts as told once it is answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Carried {
    /// Whether the user hears its answer.
    pub heard: bool,
    /// Whether the starter gives it.
    #[serde(default)]
    pub starts: bool,
    /// Whether it presents a plan, and so answers what the plan was asked for with.
    #[serde(default)]
    pub presents: bool,
    /// The version of the plan it is shown.
    pub workflow: Option<u32>,
    /// Whether it is told what was found.
    pub findings: bool,
    /// How many notices it is told.
    pub notices: usize,
}

impl Memory {
    /// Folds an event.
    pub fn fold(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::MessageReceived(received) => {
                self.waiting.insert(received.message, received.text);
            }
            Event::TurnStarted { messages, .. } => {
                (self.said, self.spoken, self.silences) = (false, false, 0);
                for message in messages {
                    self.open.extend(self.waiting.remove(message).map(|text| (*message, text)));
                }
            }
            Event::TurnEnded { outcome, .. } => self.turn_ended(outcome),
            Event::CallOpened(opened) => self.call_opened(opened),
            Event::CallAnswered(answered) => self.call_answered(answered),
            Event::CallFailed { call, next: Next::GiveUp, failure, .. } => self.missed(*call, &failure.to_string()),
            Event::CallUnknown { call, next: Next::GiveUp, .. } | Event::CallResolved { call, next: Next::GiveUp } => {
                self.missed(*call, "lost when the process died");
            }
            Event::CallCancelled { call, reason, .. } => self.missed(*call, reason),
            Event::Said(said) => self.heard(said),
            // What the plan was shown in may be folded now.
            Event::ThreadCompacted(compacted) if self.thread == Some(compacted.thread) => self.shown = None,
            Event::HandoverMade(made) => {
                self.visit.made.insert(made.kind.clone(), made.id);
                // Who was let in by hand gets it afterwards.
                if self.visit.number > 1 {
                    self.visit.handed.get_or_insert(made.id);
                }
            }
            Event::PhaseEntered(entered) => self.phase_entered(entered),
            Event::PhaseRefused(refused) if refused.phase.graph == *GRAPH => self.notice(refused.refusal.to_string()),
            event => {
                if let Some(fact) = Fact::of(event) {
                    self.learn(fact);
                }
            }
        }
    }

    fn turn_ended(&mut self, outcome: &Outcome) {
        match outcome {
            // What could not be answered is still open: the user need not say it again.
            Outcome::Failed { .. } | Outcome::Done => {}
            Outcome::Cancelled | Outcome::Interrupted => {
                self.open.clear();
                if self.batch.take().is_some_and(|batch| batch.begun.task.is_some()) {
                    self.notice(words_of::told("BATCH", "stopped", &[]));
                }
            }
        }
    }

    fn call_opened(&mut self, opened: &CallOpened) {
        if opened.role == *EXPERT
            && let Some(batch) = &mut self.batch
            && let Some(seat) = batch.seat_of(opened)
        {
            batch.calls.insert(opened.call, seat);
            batch.models.insert(seat, opened.model.clone());
            batch.failures.remove(&seat);
        }
        if opened.role == *CONCIERGE && opened.compacts.is_none() && opened.recomputes.is_none() {
            self.thread = Some(opened.receipt.thread.thread());
            let shows = |name: &str| opened.receipt.ask.iter().any(|piece| piece.name == *name && piece.text.is_some());
            let version = self.workflow.as_ref().map(|workflow| workflow.version);
            // What a thread opens with stays in it, whatever becomes of the call.
            if opened.receipt.opening.iter().any(|piece| piece.name == *PLAN && piece.text.is_some()) {
                self.shown = version;
            }
            let carried = Carried {
                heard: opened.ask == *ASK_REPLY || opened.ask == *ASK_PRESENT,
                presents: opened.ask == *ASK_PRESENT,
                starts: opened.phase.as_ref().is_none_or(|phase| *phase == *STARTER),
                workflow: version.filter(|_| shows(WORKFLOW)),
                findings: shows(FINDINGS),
                notices: if shows(NOTICES) { self.notices.len() } else { 0 },
            };
            self.carried.insert(opened.call, carried);
        }
    }

    fn call_answered(&mut self, answered: &CallAnswered) {
        if let Some(batch) = &mut self.batch
            && let Some(seat) = batch.calls.remove(&answered.call)
            && batch.stage != Stage::Closed
        {
            batch.answers.insert(seat, (answered.call, answered.text));
        }
        let Some(carried) = self.carried.remove(&answered.call) else { return };
        self.shown = carried.workflow.or(self.shown);
        if carried.findings {
            self.findings = None;
        }
        self.notices.drain(..carried.notices.min(self.notices.len()));
        if carried.heard {
            self.answered = std::mem::take(&mut self.open);
            if carried.presents {
                let asked = self.plan.iter().flat_map(|plan| plan.asked.iter());
                let asked = asked.filter(|message| !self.answered.contains(message)).copied();
                self.answered = asked.chain(self.answered.iter().copied()).collect();
            }
            if !carried.starts {
                keep(&mut self.visit.said, &self.answered);
            } else if self.exchange.reply.is_some() {
                keep(&mut self.exchange.replies, &self.answered);
            }
        }
    }

    fn heard(&mut self, said: &Said) {
        (self.said, self.spoken) = (true, true);
        if said.call.is_some() && self.exchange.reply.is_none() {
            let query = self.answered.iter().map(|(_, text)| *text).collect();
            self.exchange = Exchange { query, reply: Some(said.text), replies: Vec::new() };
        }
    }

    fn missed(&mut self, call: CallId, why: &str) {
        self.carried.remove(&call);
        if let Some(batch) = &mut self.batch
            && let Some(seat) = batch.calls.remove(&call)
        {
            batch.failures.insert(seat, why.to_owned());
        }
    }

    fn phase_entered(&mut self, entered: &PhaseEntered) {
        if entered.phase.graph != *GRAPH || !entered.transition.begins_visit() {
            return;
        }
        // What was to be told was to be told to the one who has left.
        self.notices.clear();
        self.findings = None;
        self.shown = None;
        (self.confirm, self.unsettled) = (None, false);
        self.plan_asked = PlanAsked::default();
        self.spoken = false;
        if entered.transition.to != *EXECUTOR {
            self.plan = None;
        }
        let number = self.visit.number + 1;
        let left = Visit { workflow: self.workflow.take(), ..std::mem::take(&mut self.visit) };
        let kinds: &[&str] = if entered.transition.to == *EXECUTOR { &[EXECUTION] } else { &[INTENT, OUTCOME] };
        let handed = kinds.iter().filter_map(|kind| left.made.get(*kind)).max().copied();
        self.past.insert(left.number, left);
        while self.past.len() > PAST_VISITS_MAX {
            self.past.pop_first();
        }
        self.visit = Visit { number, handed, ..Visit::default() };
        if let How::RolledBack { to_visit } = entered.transition.how
            && let Some(back) = self.past.get(&to_visit)
        {
            self.visit.handed = back.handed;
            self.workflow.clone_from(&back.workflow);
        }
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Batch(begun) => {
                self.batches = self.batches.max(begun.batch);
                self.batch = Some(Batch::new(begun));
            }
            Fact::BatchSent { batch } => self.stage(batch, Stage::Sent),
            Fact::BatchResumed { batch } | Fact::BatchFailed { batch, .. } => self.stage(batch, Stage::Calling),
            Fact::BatchClosed { batch, .. } => self.stage(batch, Stage::Closed),
            Fact::Overdue { seat, call, .. } => {
                if let Some(batch) = &mut self.batch {
                    batch.overdue.insert(seat, call);
                }
            }
            Fact::BatchDropped { .. } => self.batch = None,
            Fact::Learnt { purpose, known, .. } => self.learnt(purpose, known),
            Fact::Stance { stance, .. } => self.stance = Some(stance),
            Fact::Workflow { goal, steps, how, .. } => {
                // Whoever wrote the steps knows them; who had them read from its prose does not.
                self.shown = (how != Provenance::Built).then_some(1);
                self.workflow = Some(Workflow::new(goal, steps));
            }
            Fact::StepDone { step, .. } => self.workflow.iter_mut().for_each(|workflow| workflow.complete(step)),
            Fact::StepStarted { step, .. } => self.workflow.iter_mut().for_each(|workflow| workflow.start(step)),
            Fact::Confirm { begun } => {
                self.batches = self.batches.max(begun.batch);
                (self.confirm, self.unsettled) = (Some(begun), false);
            }
            Fact::Confirmed => {
                // The yes was the flow's to hear, and is answered with it.
                (self.confirm, self.unsettled) = (None, false);
                self.open.clear();
            }
            Fact::Unsettled => self.unsettled = true,
            Fact::Declined => {
                (self.confirm, self.unsettled) = (None, false);
                self.plan_asked.times = 0;
            }
            Fact::PlanAsked { message, times, .. } => self.plan_asked = PlanAsked { times, last: Some(message) },
            Fact::Refused { why, .. } => self.notice(why),
            Fact::Silent { told, .. } => {
                self.silences += 1;
                // What was not answered is still open.
                self.open = std::mem::take(&mut self.answered);
                told.into_iter().for_each(|told| self.notice(told));
            }
            Fact::Settings { .. }
            | Fact::Late { .. }
            | Fact::Map(_)
            | Fact::Analysis(_)
            | Fact::NoMap { .. }
            | Fact::WorkflowClosed { .. }
            | Fact::Complaints { .. }
            | Fact::Leak { .. } => {}
        }
    }

    fn stage(&mut self, number: u32, stage: Stage) {
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.begun.batch == number) {
            batch.stage = stage;
            if stage == Stage::Calling {
                batch.overdue.clear();
            }
        }
    }

    fn learnt(&mut self, purpose: Purpose, known: Known) {
        let Some(batch) = self.batch.take() else { return };
        let Begun { asked, task, .. } = batch.begun;
        match purpose {
            Purpose::Opening => self.opening = Some(known),
            Purpose::Workflow => self.plan = Some(PlanKnown { known, asked }),
            Purpose::EveryTurn | Purpose::StepHelp => self.findings = Some(Findings { purpose, task, known }),
        }
    }

    fn notice(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }
}

impl Batch {
    fn new(begun: Begun) -> Self {
        let (models, calls, answers, failures, overdue) = Default::default();
        Self { begun, models, calls, answers, failures, overdue, stage: Stage::default() }
    }

    /// The seat a call was opened for, if it belongs to this batch.
    #[must_use]
    pub fn seat_of(&self, opened: &CallOpened) -> Option<usize> {
        let (batch, seat): (u32, usize) = serde_json::from_value(opened.note.clone()).ok()?;
        (batch == self.begun.batch).then_some(seat)
    }

    /// The answers, in the order of seats.
    #[must_use]
    pub fn texts(&self) -> Vec<Text> {
        self.answers.values().map(|(_, text)| *text).collect()
    }

    /// Seats whose answer is still waited for.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        self.calls.iter().filter(|(call, seat)| self.overdue.get(seat) != Some(call)).map(|(_, seat)| *seat)
    }

    /// Who did not answer, and why, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let failed = self.failures.iter().map(|(seat, why)| format!("{}: {why}", self.name(*seat)));
        let slow = self.calls.values().map(|seat| format!("{}: not in time", self.name(*seat)));
        failed.chain(slow).collect()
    }

    /// Who sits there: the model, and which of its samples where it has several.
    fn name(&self, seat: usize) -> String {
        let Some(model) = self.models.get(&seat) else { return (seat + 1).to_string() };
        let alike = |before: &&usize| self.models.get(before) == Some(model);
        match self.models.keys().filter(alike).count() {
            0 | 1 => model.to_string(),
            _ => format!("{model} #{}", self.models.keys().take_while(|other| **other <= seat).filter(alike).count()),
        }
    }
}
