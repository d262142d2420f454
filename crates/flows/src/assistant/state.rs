//! What the flow remembers: three layers with one owner each, and the turn that runs. A fold of events, bounded however
//! long the conversation grows; texts are held by reference.
//!
//! | layer | holds | changed by |
//! |---|---|---|
//! | `entities` | what exists | what Understand decides, what tools bring, what steps write |
//! | `conversation` | what was said | Summarize |
//! | `reasoning` | what was decided | Summarize |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_core::body::TextRef;
use segue_core::event::{Event, RecordedEvent, ToolRunOpened};
use segue_core::ids::{MessageId, ToolRunId};
use serde::{Deserialize, Serialize};

use super::conversation::{ConversationExchange, ConversationMemory};
use super::facts::{
    Fact, McpToolInfo, MessageUnderstanding, PlannedStep, StepEnd, StepEndStatus, StepKind, ToolRunRecords, TurnPlan,
    TurnSummarized,
};
use super::reasoning::{ConversationPhase, ReasoningMemory};
use super::registry::{DetailLevel, EntityAction, EntityRegistry};
use super::tools::{DomainOperation, DomainToolRequest, ToolRunPurpose};
use crate::limits::{FULL_SUMMARIES_MAX, UNDERSTAND_TURNS_SHOWN, UNDOABLE_WRITES_MAX};

/// What the flow remembers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantState {
    /// What exists.
    pub entities: EntityRegistry,
    /// What was said.
    pub conversation: ConversationMemory,
    /// What was decided.
    pub reasoning: ReasoningMemory,
    /// What Understand made of the newest turns.
    pub recent_understandings: VecDeque<MessageUnderstanding>,
    /// Types of which everything was read.
    pub fully_loaded_types: BTreeSet<String>,
    /// Results of the steps of the newest turns, for those who ask for them.
    pub step_results: VecDeque<StepResult>,
    /// What the tools of the domain's server take.
    pub server_tools: Vec<McpToolInfo>,
    /// What was written, newest last.
    pub writes: VecDeque<CompletedWrite>,
    /// The turn that runs.
    pub current_turn: Option<TurnProgress>,
    /// Messages that have no turn yet.
    pub queued_messages: BTreeMap<MessageId, TextRef>,
    /// What the newest turn answers: if it fails, it may be tried again.
    pub turn_messages: Vec<(MessageId, TextRef)>,
}

/// The result of a step that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// In which turn.
    pub turn: u32,
    /// Which step.
    pub step: u32,
    /// The answer it stands in.
    pub answer: TextRef,
}

/// Something that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletedWrite {
    /// The run that wrote it.
    pub run: ToolRunId,
    /// In which turn.
    pub turn: u32,
    /// What, in words.
    pub summaries: Vec<String>,
    /// The tool's result, which says what stood there before.
    pub tool_result: TextRef,
    /// Whether it was taken back.
    #[serde(default)]
    pub undone: bool,
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnProgress {
    /// Its number.
    pub turn: u32,
    /// What the user said.
    pub messages: Vec<(MessageId, TextRef)>,
    /// What that is taken to mean.
    pub understanding: Option<MessageUnderstanding>,
    /// What is to be done.
    pub plan: Option<TurnPlan>,
    /// Why there is no plan.
    pub plan_failure: Option<String>,
    /// How the steps stand.
    pub steps: BTreeMap<u32, StepState>,
    /// What was written, in words.
    pub write_summaries: Vec<String>,
    /// How often a node was asked again.
    pub repairs: BTreeMap<String, u32>,
    /// What was replied.
    pub reply: Option<TextRef>,
}

/// How a step stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepState {
    /// Whether it was begun.
    pub started: bool,
    /// Tool calls it made.
    pub tool_calls: u32,
    /// How often it was asked again for what could not be used.
    pub repairs: u32,
    /// How often it fetched an earlier result.
    pub retrievals: u32,
    /// How many things it wrote.
    pub write_count: usize,
    /// Reads that found nothing, and how often.
    pub empty_reads: BTreeMap<String, u32>,
    /// How it ended.
    pub end: Option<StepEnd>,
}

/// What comes next in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextTurnAction {
    /// These steps can be begun.
    StartSteps(Vec<u32>),
    /// Something is under way.
    Wait,
    /// Everything that will be done is done.
    Reply,
}

impl AssistantState {
    /// Folds an event.
    pub fn apply_event(&mut self, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::UserMessageReceived(received) => {
                self.queued_messages.insert(received.message, received.text);
            }
            Event::TurnStarted { turn, messages, retry_of: again } => {
                if again.is_none() {
                    let new =
                        messages.iter().filter_map(|message| Some((*message, self.queued_messages.remove(message)?)));
                    self.turn_messages = new.collect();
                }
                self.current_turn = Some(TurnProgress {
                    turn: turn.0,
                    messages: self.turn_messages.clone(),
                    ..TurnProgress::default()
                });
                self.entities.unload_stale_records(turn.0);
            }
            Event::ReplySent(said) if said.turn.is_some() => {
                if let Some(running) = &mut self.current_turn {
                    running.reply = Some(said.text);
                }
            }
            Event::CallOpened(opened) => {
                if let Some(step) = super::step::call_step_number(opened) {
                    self.update_step(step, |state| state.started = true);
                }
            }
            Event::ToolRunOpened(opened) => self.apply_tool_opened(opened),
            event => {
                if let Some(fact) = Fact::from_event(event) {
                    self.apply_fact(fact);
                }
            }
        }
    }

    fn apply_tool_opened(&mut self, opened: &ToolRunOpened) {
        let Some(told) = DomainToolRequest::parse(&opened.arguments) else { return };
        let Some(step) = told.step else { return };
        self.update_step(step, |state| {
            state.started = true;
            state.tool_calls += u32::from(told.purpose == ToolRunPurpose::StepToolCall);
        });
    }

    fn update_step(&mut self, step: u32, change: impl FnOnce(&mut StepState)) {
        if let Some(state) = self.current_turn.as_mut().and_then(|running| running.steps.get_mut(&step)) {
            change(state);
        }
    }

    fn apply_fact(&mut self, fact: Fact) {
        match fact {
            Fact::MessageUnderstood(understood) => self.apply_understanding(understood),
            Fact::Planned(plan) => self.apply_plan(plan),
            Fact::PlanFailed { why } => {
                if let Some(running) = &mut self.current_turn {
                    running.plan_failure = Some(why);
                }
            }
            Fact::AnswerRejected { node, step: None, .. } => {
                if let Some(running) = &mut self.current_turn {
                    *running.repairs.entry(node).or_default() += 1;
                }
            }
            Fact::AnswerRejected { step: Some(step), .. } => self.update_step(step, |state| state.repairs += 1),
            Fact::RecordsReceived(records) => self.apply_records(*records),
            Fact::AlreadyLoaded { step, .. } => self.update_step(step, |state| state.tool_calls += 1),
            Fact::StepResultRetrieved { step, .. } => self.update_step(step, |state| state.retrievals += 1),
            Fact::StepEnded(end) => self.apply_step_end(*end),
            Fact::TurnSummarized(summarized) => self.apply_turn_summarized(*summarized),
            Fact::ReasoningCompacted { through_turn: through, text } => self.reasoning.compact_through(through, text),
            Fact::ConversationCompacted { through_turn: through, text } => {
                self.conversation.compact_through(through, text)
            }
            Fact::ServerToolsListed { tools } => self.server_tools = tools,
            Fact::WriteUndone { run: of } => {
                self.writes.iter_mut().filter(|write| write.run == of).for_each(|write| write.undone = true);
            }
            Fact::InvalidSettings { .. }
            | Fact::ToolFailed { .. }
            | Fact::CompactionFailed { .. }
            | Fact::UndoFailed { .. } => {}
        }
    }

    fn apply_understanding(&mut self, understood: MessageUnderstanding) {
        if understood.drops_all_saved {
            self.entities.drop_saved_entities();
        }
        // What is set aside in the same breath was only referred to in order to be set aside.
        self.entities.mark_referenced(&understood.references, understood.turn);
        for kept in &understood.retained {
            self.entities.retain_entity(&kept.reference, &kept.reason);
        }
        for aside in &understood.demoted {
            self.entities.demote_entity(&aside.reference, &aside.reason);
        }
        understood.dropped.iter().for_each(|reference| self.entities.drop_entity(reference));
        self.recent_understandings.push_back(understood.clone());
        while self.recent_understandings.len() > UNDERSTAND_TURNS_SHOWN {
            self.recent_understandings.pop_front();
        }
        if let Some(running) = &mut self.current_turn {
            running.understanding = Some(understood);
        }
    }

    fn apply_plan(&mut self, plan: TurnPlan) {
        for step in &plan.steps {
            self.entities.mark_referenced(&step.refs, plan.turn);
        }
        if let Some(running) = &mut self.current_turn {
            running.steps = plan.steps.iter().map(|step| (step.step, StepState::default())).collect();
            running.plan = Some(plan);
        }
    }

    fn apply_records(&mut self, records: ToolRunRecords) {
        self.entities.upsert_records(&records.rows, records.action, records.text, records.turn);
        self.entities.mark_deleted(&records.removed, records.turn);
        self.fully_loaded_types.extend(records.fully_loaded_type);
        if let (Some(step), Some(empty)) = (records.step, records.empty_read_digest) {
            self.update_step(step, |state| *state.empty_reads.entry(empty).or_default() += 1);
        }
        // What is taken back is no new write.
        if records.write_summaries.is_empty() || records.tool == DomainOperation::Undo.as_str() {
            return;
        }
        if let Some(step) = records.step {
            self.update_step(step, |state| state.write_count += records.write_summaries.len());
        }
        if let Some(running) = self.current_turn.as_mut().filter(|running| running.turn == records.turn) {
            running.write_summaries.extend(records.write_summaries.iter().cloned());
        }
        let (run, turn, text) = (records.run, records.turn, records.text);
        self.writes.push_back(CompletedWrite {
            run,
            turn,
            summaries: records.write_summaries,
            tool_result: text,
            undone: false,
        });
        while self.writes.len() > UNDOABLE_WRITES_MAX {
            self.writes.pop_front();
        }
    }

    fn apply_step_end(&mut self, end: StepEnd) {
        self.entities.upsert_drafts(&end.drafts, end.turn);
        self.entities.refresh_relevant(&end.refs, end.turn);
        self.update_step(end.step, |state| {
            state.started = true;
            state.end = Some(end);
        });
    }

    fn apply_turn_summarized(&mut self, summarized: TurnSummarized) {
        let TurnSummarized { turn, messages: said, reply, pending, summary } = summarized;
        self.conversation.push_exchange(ConversationExchange { turn, messages: said, reply }, pending);
        if let Some(summary) = summary {
            self.reasoning.push_summary(summary);
        }
        let Some(running) = self.current_turn.take_if(|running| running.turn == turn) else { return };
        for (step, state) in running.steps {
            let answer = state.end.and_then(|end| end.answer);
            self.step_results.extend(answer.map(|answer| StepResult { turn, step, answer }));
        }
        let oldest = turn.saturating_sub(u32::try_from(FULL_SUMMARIES_MAX).unwrap_or(u32::MAX)) + 1;
        self.step_results.retain(|result| result.turn >= oldest);
    }

    /// The turn that runs, or the last one.
    #[must_use]
    pub fn current_turn_number(&self) -> u32 {
        let last = self.conversation.recent.back().map_or(0, |exchange| exchange.turn);
        self.current_turn.as_ref().map_or(last, |running| running.turn)
    }

    /// Whether everything there is of a type is at hand.
    #[must_use]
    pub fn is_type_fully_loaded(&self, kind: &str) -> bool {
        let mut known = self.entities.entities.values().filter(|entity| entity.kind == kind && entity.is_saved());
        self.fully_loaded_types.contains(kind)
            && known.all(|entity| entity.last_action == EntityAction::Deleted || entity.detail != DetailLevel::None)
    }
}

impl TurnProgress {
    /// A step as it was planned.
    #[must_use]
    pub fn planned_step(&self, step: u32) -> Option<&PlannedStep> {
        self.plan.as_ref()?.steps.iter().find(|planned| planned.step == step)
    }

    /// What comes next. Steps of a group begin together; a step that is not done ends the plan, once those beside it are over.
    #[must_use]
    pub fn next_action(&self) -> NextTurnAction {
        let Some(plan) = &self.plan else { return NextTurnAction::Reply };
        let groups: BTreeSet<u32> = plan.steps.iter().map(|step| step.group).collect();
        for group in groups {
            let steps = plan.steps.iter().filter(|step| step.group == group);
            let states: Vec<(u32, &StepState)> =
                steps.filter_map(|step| self.steps.get(&step.step).map(|state| (step.step, state))).collect();
            if states.iter().all(|(_, state)| !state.started) {
                return NextTurnAction::StartSteps(states.into_iter().map(|(step, _)| step).collect());
            }
            if states.iter().any(|(_, state)| state.end.is_none()) {
                return NextTurnAction::Wait;
            }
            let is_done = |state: &StepState| state.end.as_ref().is_some_and(|end| end.status == StepEndStatus::Done);
            if !states.iter().all(|(_, state)| is_done(state)) {
                return NextTurnAction::Reply;
            }
        }
        NextTurnAction::Reply
    }

    /// The label of the turn, as far as it has come.
    #[must_use]
    pub fn phase(&self, entities: &EntityRegistry) -> ConversationPhase {
        let steps = self.plan.iter().flat_map(|plan| &plan.steps);
        let drafts = self.steps.values().filter_map(|state| state.end.as_ref()).flat_map(|end| &end.drafts);
        let draft_waits =
            drafts.into_iter().any(|draft| entities.get(&draft.reference).is_some_and(|entity| !entity.is_saved()));
        ConversationPhase::classify_turn(
            self.plan.as_ref().map(|plan| plan.decision),
            steps.map(|step| step.kind),
            draft_waits,
        )
    }

    /// Why not everything was done, if it was not.
    #[must_use]
    pub fn blocked_reason(&self) -> Option<String> {
        let ends = self.steps.values().filter_map(|state| state.end.as_ref());
        let stopped = ends.filter(|end| matches!(end.status, StepEndStatus::Blocked | StepEndStatus::Failed));
        let reasons: Vec<&str> = stopped.map(|end| end.outcome.as_str()).collect();
        if !reasons.is_empty() {
            return Some(reasons.join("; "));
        }
        self.plan_failure.clone()
    }

    /// Steps that write, as planned.
    #[must_use]
    pub fn has_write_step(&self) -> bool {
        self.plan.iter().flat_map(|plan| &plan.steps).any(|step| step.kind == StepKind::Write)
    }
}
