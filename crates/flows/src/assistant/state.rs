//! What the flow remembers: three layers with one owner each, and the turn that runs. A fold of events, bounded however
//! long the conversation grows; texts are held by reference.
//!
//! | layer | holds | changed by |
//! |---|---|---|
//! | `entities` | what exists | what Understand decides, what tools bring, what steps write |
//! | `conversation` | what was said | Summarize |
//! | `reasoning` | what was decided | Summarize |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_core::body::Text;
use segue_core::event::{Event, Recorded, ToolOpened};
use segue_core::ids::{MessageId, ToolRunId};
use serde::{Deserialize, Serialize};

use super::conversation::{Conversation, Exchange};
use super::facts::{DescribedTool, End, Fact, Plan, PlannedStep, Records, StepEnd, StepKind, Summarized, Understood};
use super::reasoning::{Phase, Reasoning};
use super::registry::{Action, Detail, Registry};
use super::tools::{Operation, Purpose, Told};
use crate::limits::{SUMMARIES_FULL, UNDERSTAND_TURNS, WRITES_KEPT_MAX};

/// What the flow remembers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// What exists.
    pub entities: Registry,
    /// What was said.
    pub conversation: Conversation,
    /// What was decided.
    pub reasoning: Reasoning,
    /// What Understand made of the newest turns.
    pub understood: VecDeque<Understood>,
    /// Types of which everything was read.
    pub complete: BTreeSet<String>,
    /// Results of the steps of the newest turns, for those who ask for them.
    pub results: VecDeque<StepResult>,
    /// What the tools of the domain's server take.
    pub tools: Vec<DescribedTool>,
    /// What was written, newest last.
    pub writes: VecDeque<Write>,
    /// The turn that runs.
    pub running: Option<Running>,
    /// Messages that have no turn yet.
    pub waiting: BTreeMap<MessageId, Text>,
    /// What the newest turn answers: if it fails, it may be tried again.
    pub said: Vec<(MessageId, Text)>,
}

/// The result of a step that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// In which turn.
    pub turn: u32,
    /// Which step.
    pub step: u32,
    /// The answer it stands in.
    pub answer: Text,
}

/// Something that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The run that wrote it.
    pub run: ToolRunId,
    /// In which turn.
    pub turn: u32,
    /// What, in words.
    pub what: Vec<String>,
    /// The tool's result, which says what stood there before.
    pub text: Text,
    /// Whether it was taken back.
    #[serde(default)]
    pub undone: bool,
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Running {
    /// Its number.
    pub turn: u32,
    /// What the user said.
    pub said: Vec<(MessageId, Text)>,
    /// What that is taken to mean.
    pub understood: Option<Understood>,
    /// What is to be done.
    pub plan: Option<Plan>,
    /// Why there is no plan.
    pub not_planned: Option<String>,
    /// How the steps stand.
    pub steps: BTreeMap<u32, StepState>,
    /// What was written, in words.
    pub wrote: Vec<String>,
    /// How often a node was asked again.
    pub repairs: BTreeMap<String, u32>,
    /// What was replied.
    pub reply: Option<Text>,
}

/// How a step stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepState {
    /// Whether it was begun.
    pub begun: bool,
    /// Tool calls it made.
    pub tool_calls: u32,
    /// How often it was asked again for what could not be used.
    pub repairs: u32,
    /// How often it fetched an earlier result.
    pub retrievals: u32,
    /// How many things it wrote.
    pub wrote: usize,
    /// Reads that found nothing, and how often.
    pub empty: BTreeMap<String, u32>,
    /// How it ended.
    pub end: Option<StepEnd>,
}

/// What comes next in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// These steps can be begun.
    Begin(Vec<u32>),
    /// Something is under way.
    Wait,
    /// Everything that will be done is done.
    Reply,
}

impl Memory {
    /// Folds an event.
    pub fn fold(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::MessageReceived(received) => {
                self.waiting.insert(received.message, received.text);
            }
            Event::TurnStarted { turn, messages, again } => {
                if again.is_none() {
                    let new = messages.iter().filter_map(|message| Some((*message, self.waiting.remove(message)?)));
                    self.said = new.collect();
                }
                self.running = Some(Running { turn: turn.0, said: self.said.clone(), ..Running::default() });
                self.entities.age(turn.0);
            }
            Event::Said(said) if said.turn.is_some() => {
                if let Some(running) = &mut self.running {
                    running.reply = Some(said.text);
                }
            }
            Event::CallOpened(opened) => {
                if let Some(step) = super::step::number(opened) {
                    self.with_step(step, |state| state.begun = true);
                }
            }
            Event::ToolOpened(opened) => self.tool_opened(opened),
            event => {
                if let Some(fact) = Fact::of(event) {
                    self.learn(fact);
                }
            }
        }
    }

    fn tool_opened(&mut self, opened: &ToolOpened) {
        let Some(told) = Told::of(&opened.arguments) else { return };
        let Some(step) = told.step else { return };
        self.with_step(step, |state| {
            state.begun = true;
            state.tool_calls += u32::from(told.purpose == Purpose::Call);
        });
    }

    fn with_step(&mut self, step: u32, change: impl FnOnce(&mut StepState)) {
        if let Some(state) = self.running.as_mut().and_then(|running| running.steps.get_mut(&step)) {
            change(state);
        }
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Understood(understood) => self.understand(understood),
            Fact::Planned(plan) => self.plan(plan),
            Fact::NotPlanned { why } => {
                if let Some(running) = &mut self.running {
                    running.not_planned = Some(why);
                }
            }
            Fact::Broken { node, step: None, .. } => {
                if let Some(running) = &mut self.running {
                    *running.repairs.entry(node).or_default() += 1;
                }
            }
            Fact::Broken { step: Some(step), .. } => self.with_step(step, |state| state.repairs += 1),
            Fact::Records(records) => self.records(*records),
            Fact::AtHand { step, .. } => self.with_step(step, |state| state.tool_calls += 1),
            Fact::Retrieved { step, .. } => self.with_step(step, |state| state.retrievals += 1),
            Fact::StepEnded(end) => self.step_ended(*end),
            Fact::Summarized(summarized) => self.summarize(*summarized),
            Fact::ReasoningFolded { through, text } => self.reasoning.fold(through, text),
            Fact::ConversationFolded { through, text } => self.conversation.fold(through, text),
            Fact::Described { tools } => self.tools = tools,
            Fact::Undone { of } => {
                self.writes.iter_mut().filter(|write| write.run == of).for_each(|write| write.undone = true);
            }
            Fact::Settings { .. } | Fact::ToolFailed { .. } | Fact::NotFolded { .. } | Fact::NotUndone { .. } => {}
        }
    }

    fn understand(&mut self, understood: Understood) {
        if understood.clear {
            self.entities.clear();
        }
        // What is set aside in the same breath was only referred to in order to be set aside.
        self.entities.mention(&understood.references, understood.turn);
        for kept in &understood.retain {
            self.entities.retain(&kept.reference, &kept.reason);
        }
        for aside in &understood.demote {
            self.entities.demote(&aside.reference, &aside.reason);
        }
        understood.drop.iter().for_each(|reference| self.entities.remove(reference));
        self.understood.push_back(understood.clone());
        while self.understood.len() > UNDERSTAND_TURNS {
            self.understood.pop_front();
        }
        if let Some(running) = &mut self.running {
            running.understood = Some(understood);
        }
    }

    fn plan(&mut self, plan: Plan) {
        for step in &plan.steps {
            self.entities.mention(&step.refs, plan.turn);
        }
        if let Some(running) = &mut self.running {
            running.steps = plan.steps.iter().map(|step| (step.step, StepState::default())).collect();
            running.plan = Some(plan);
        }
    }

    fn records(&mut self, records: Records) {
        self.entities.take_in(&records.rows, records.did, records.text, records.turn);
        self.entities.lose(&records.gone, records.turn);
        self.complete.extend(records.all_of);
        if let (Some(step), Some(empty)) = (records.step, records.empty) {
            self.with_step(step, |state| *state.empty.entry(empty).or_default() += 1);
        }
        // What is taken back is no new write.
        if records.wrote.is_empty() || records.tool == Operation::Undo.word() {
            return;
        }
        if let Some(step) = records.step {
            self.with_step(step, |state| state.wrote += records.wrote.len());
        }
        if let Some(running) = self.running.as_mut().filter(|running| running.turn == records.turn) {
            running.wrote.extend(records.wrote.iter().cloned());
        }
        let (run, turn, text) = (records.run, records.turn, records.text);
        self.writes.push_back(Write { run, turn, what: records.wrote, text, undone: false });
        while self.writes.len() > WRITES_KEPT_MAX {
            self.writes.pop_front();
        }
    }

    fn step_ended(&mut self, end: StepEnd) {
        self.entities.draft(&end.drafts, end.turn);
        self.entities.touch(&end.refs, end.turn);
        self.with_step(end.step, |state| {
            state.begun = true;
            state.end = Some(end);
        });
    }

    fn summarize(&mut self, summarized: Summarized) {
        let Summarized { turn, said, reply, pending, summary } = summarized;
        self.conversation.add(Exchange { turn, said, reply }, pending);
        if let Some(summary) = summary {
            self.reasoning.add(summary);
        }
        let Some(running) = self.running.take_if(|running| running.turn == turn) else { return };
        for (step, state) in running.steps {
            let answer = state.end.and_then(|end| end.answer);
            self.results.extend(answer.map(|answer| StepResult { turn, step, answer }));
        }
        let oldest = turn.saturating_sub(u32::try_from(SUMMARIES_FULL).unwrap_or(u32::MAX)) + 1;
        self.results.retain(|result| result.turn >= oldest);
    }

    /// The turn that runs, or the last one.
    #[must_use]
    pub fn turn(&self) -> u32 {
        let last = self.conversation.recent.back().map_or(0, |exchange| exchange.turn);
        self.running.as_ref().map_or(last, |running| running.turn)
    }

    /// Whether everything there is of a type is at hand.
    #[must_use]
    pub fn is_complete(&self, kind: &str) -> bool {
        let mut known = self.entities.entities.values().filter(|entity| entity.kind == kind && entity.is_saved());
        self.complete.contains(kind)
            && known.all(|entity| entity.last == Action::Deleted || entity.detail != Detail::None)
    }
}

impl Running {
    /// A step as it was planned.
    #[must_use]
    pub fn planned(&self, step: u32) -> Option<&PlannedStep> {
        self.plan.as_ref()?.steps.iter().find(|planned| planned.step == step)
    }

    /// What comes next. Steps of a group begin together; a step that is not done ends the plan, once those beside it are over.
    #[must_use]
    pub fn next(&self) -> Next {
        let Some(plan) = &self.plan else { return Next::Reply };
        let groups: BTreeSet<u32> = plan.steps.iter().map(|step| step.group).collect();
        for group in groups {
            let steps = plan.steps.iter().filter(|step| step.group == group);
            let states: Vec<(u32, &StepState)> =
                steps.filter_map(|step| self.steps.get(&step.step).map(|state| (step.step, state))).collect();
            if states.iter().all(|(_, state)| !state.begun) {
                return Next::Begin(states.into_iter().map(|(step, _)| step).collect());
            }
            if states.iter().any(|(_, state)| state.end.is_none()) {
                return Next::Wait;
            }
            let is_done = |state: &StepState| state.end.as_ref().is_some_and(|end| end.end == End::Done);
            if !states.iter().all(|(_, state)| is_done(state)) {
                return Next::Reply;
            }
        }
        Next::Reply
    }

    /// The label of the turn, as far as it has come.
    #[must_use]
    pub fn phase(&self, entities: &Registry) -> Phase {
        let steps = self.plan.iter().flat_map(|plan| &plan.steps);
        let drafts = self.steps.values().filter_map(|state| state.end.as_ref()).flat_map(|end| &end.drafts);
        let draft_waits =
            drafts.into_iter().any(|draft| entities.get(&draft.reference).is_some_and(|entity| !entity.is_saved()));
        Phase::of(self.plan.as_ref().map(|plan| plan.decision), steps.map(|step| step.kind), draft_waits)
    }

    /// Why not everything was done, if it was not.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        let ends = self.steps.values().filter_map(|state| state.end.as_ref());
        let stopped = ends.filter(|end| matches!(end.end, End::Blocked | End::Failed));
        let reasons: Vec<&str> = stopped.map(|end| end.outcome.as_str()).collect();
        if !reasons.is_empty() {
            return Some(reasons.join("; "));
        }
        self.not_planned.clone()
    }

    /// Steps that write, as planned.
    #[must_use]
    pub fn has_write(&self) -> bool {
        self.plan.iter().flat_map(|plan| &plan.steps).any(|step| step.kind == StepKind::Write)
    }
}
