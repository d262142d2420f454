//! The flow's state: three memory layers, each changed by one owner, and the progress of the current turn. It is computed from
//! the journal and stays bounded however long the conversation becomes; texts are kept by reference.
//!
//! | layer | holds | changed by |
//! |---|---|---|
//! | `entities` | known records and drafts | Understand, tool results, step results |
//! | `conversation` | messages and replies | Summarize |
//! | `reasoning` | decisions and outcomes | Summarize |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_core::body::TextRef;
use segue_core::event::{Event, RecordedEvent, ToolRunOpened};
use segue_core::ids::{MessageId, ToolRunId};
use serde::{Deserialize, Serialize};

use super::conversation::{AssistantConversation, ConversationExchange};
use super::facts::{
    AssistantFact, AssistantPlanStep, AssistantPlanStepKind, AssistantStepEnd, AssistantStepEndStatus,
    AssistantTurnPlan, DomainToolRunOutcome, FinishedTurnForMemory, MessageUnderstanding, RecordedMcpToolDescription,
};
use super::reasoning::{ConversationStageLabel, TurnDecisionHistory};
use super::registry::{KnownEntities, KnownRecordOrDraft, LastEntityAction, RecordLoadLevel};
use super::tools::{DomainOperation, DomainToolRequest, DomainToolRunPurpose};
use crate::limits::{FULL_SUMMARIES_MAX, UNDERSTAND_TURNS_SHOWN, UNDOABLE_WRITES_MAX};

/// The state of an assistant session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantState {
    pub entities: KnownEntities,
    pub conversation: AssistantConversation,
    pub reasoning: TurnDecisionHistory,
    /// How Understand interpreted the newest messages, oldest first.
    pub recent_understandings: VecDeque<MessageUnderstanding>,
    /// Types of which all records have been read, and which were not changed since.
    pub fully_loaded_types: BTreeSet<String>,
    /// How many records each of these types had, and a digest of them, when they were read.
    pub type_versions: BTreeMap<String, LoadedRecordsVersion>,
    /// The newest snapshot, as the records tool returned it.
    pub snapshot: Option<TextRef>,
    /// Results of the steps of the newest turns, for `retrieve_step`.
    pub step_results: VecDeque<StepResultRef>,
    /// The tools of the domain's server, as it last listed them.
    pub server_tools: Vec<RecordedMcpToolDescription>,
    /// The writes that can still be undone, newest last.
    pub writes: VecDeque<CompletedDomainWrite>,
    pub current_turn: Option<AssistantTurnProgress>,
    /// Messages that belong to no turn yet.
    pub queued_messages: BTreeMap<MessageId, TextRef>,
    /// The messages of the newest turn, which a retry answers again.
    pub turn_messages: Vec<(MessageId, TextRef)>,
}

/// The records of a type when all of them were read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadedRecordsVersion {
    pub count: u64,
    /// It changes if any of the records changes; `None` if the records tool gave none.
    pub digest: Option<String>,
}

/// Where the result of a finished step is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResultRef {
    pub turn: u32,
    pub step: u32,
    /// The answer of Act that contains the result.
    pub answer: TextRef,
}

/// A finished write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletedDomainWrite {
    pub run: ToolRunId,
    pub turn: u32,
    /// One line for each change.
    pub summaries: Vec<String>,
    /// The tool's result, which contains the previous values.
    pub tool_result: TextRef,
    #[serde(default)]
    pub undone: bool,
}

/// The progress of the current turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantTurnProgress {
    pub turn: u32,
    pub messages: Vec<(MessageId, TextRef)>,
    pub understanding: Option<MessageUnderstanding>,
    pub plan: Option<AssistantTurnPlan>,
    pub plan_failure: Option<String>,
    pub steps: BTreeMap<u32, AssistantStepProgress>,
    /// The run that takes the snapshot for this turn, while it is pending.
    pub pending_snapshot: Option<ToolRunId>,
    /// One line for each change made in this turn.
    pub write_summaries: Vec<String>,
    /// How often each node had to correct its answer.
    pub repairs: BTreeMap<String, u32>,
    pub reply: Option<TextRef>,
}

/// The progress of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantStepProgress {
    pub started: bool,
    pub tool_calls: u32,
    /// How often Act had to correct its answer.
    pub repairs: u32,
    /// How often the step fetched an earlier result.
    pub retrievals: u32,
    /// The number of reads that were executed or answered from memory.
    pub reads: u32,
    /// The number of records of the type, if they are too many to be read at once.
    pub searched_total: Option<u64>,
    /// The records that the step's reads returned.
    pub read_refs: BTreeSet<String>,
    /// The number of changes made.
    pub write_count: usize,
    /// How often each query found nothing, by its digest.
    pub empty_reads: BTreeMap<String, u32>,
    pub end: Option<AssistantStepEnd>,
}

/// What happens next in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssistantNextAction {
    /// These steps can start.
    StartSteps(Vec<u32>),
    /// Some steps are still running.
    Wait,
    /// No further step will run.
    Reply,
}

impl AssistantState {
    /// Applies an event of the journal.
    pub fn apply_event(&mut self, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::UserMessageReceived(received) => {
                self.queued_messages.insert(received.message, received.text);
            }
            Event::TurnStarted { turn, messages, retry_of } => {
                if retry_of.is_none() {
                    let new =
                        messages.iter().filter_map(|message| Some((*message, self.queued_messages.remove(message)?)));
                    self.turn_messages = new.collect();
                }
                self.current_turn = Some(AssistantTurnProgress {
                    turn: turn.0,
                    messages: self.turn_messages.clone(),
                    ..AssistantTurnProgress::default()
                });
                self.entities.unload_stale_records(turn.0);
            }
            Event::ReplySent(reply) if reply.turn.is_some() => {
                if let Some(running) = &mut self.current_turn {
                    running.reply = Some(reply.text);
                }
            }
            Event::CallOpened(opened) => {
                if let Some(step) = super::step::call_step_number(opened) {
                    self.update_step(step, |state| state.started = true);
                }
            }
            Event::ToolRunOpened(opened) => self.apply_tool_opened(opened),
            event => {
                if let Some(fact) = AssistantFact::from_event(event) {
                    self.apply_fact(fact);
                }
            }
        }
    }

    fn apply_tool_opened(&mut self, opened: &ToolRunOpened) {
        let Some(request) = DomainToolRequest::parse(&opened.arguments) else { return };
        if request.purpose == DomainToolRunPurpose::Snapshot
            && let Some(running) = &mut self.current_turn
        {
            running.pending_snapshot = Some(opened.run);
        }
        let Some(step) = request.step else { return };
        self.update_step(step, |state| {
            state.started = true;
            state.tool_calls += u32::from(request.purpose == DomainToolRunPurpose::StepToolCall);
        });
    }

    fn update_step(&mut self, step: u32, change: impl FnOnce(&mut AssistantStepProgress)) {
        if let Some(state) = self.current_turn.as_mut().and_then(|running| running.steps.get_mut(&step)) {
            change(state);
        }
    }

    fn apply_fact(&mut self, fact: AssistantFact) {
        match fact {
            AssistantFact::MessageUnderstood(understanding) => self.apply_understanding(understanding),
            AssistantFact::Planned(plan) => self.apply_plan(plan),
            AssistantFact::PlanFailed { why } => {
                if let Some(running) = &mut self.current_turn {
                    running.plan_failure = Some(why);
                }
            }
            AssistantFact::AnswerRejected { node, step: None, .. } => {
                if let Some(running) = &mut self.current_turn {
                    *running.repairs.entry(node).or_default() += 1;
                }
            }
            AssistantFact::AnswerRejected { step: Some(step), .. } => {
                self.update_step(step, |state| state.repairs += 1)
            }
            AssistantFact::RecordsReceived(records) => self.apply_tool_run_outcome(*records),
            AssistantFact::AlreadyLoaded { step, refs } => self.update_step(step, |state| {
                state.tool_calls += 1;
                state.reads += 1;
                state.read_refs.extend(refs);
            }),
            AssistantFact::SearchNeeded { step, total } => {
                self.update_step(step, |state| state.searched_total = Some(total));
            }
            AssistantFact::SearchWidened { .. } => {}
            AssistantFact::SnapshotTaken { text, changed_types, .. } => {
                self.snapshot = Some(text);
                self.forget_types(&changed_types);
                self.entities.unload_records_of_types(&changed_types);
                if let Some(running) = &mut self.current_turn {
                    running.pending_snapshot = None;
                }
            }
            AssistantFact::ToolFailed { run, .. } => {
                if let Some(running) = &mut self.current_turn {
                    running.pending_snapshot.take_if(|pending| *pending == run);
                }
            }
            AssistantFact::StepResultRetrieved { step, .. } => self.update_step(step, |state| state.retrievals += 1),
            AssistantFact::StepEnded(end) => self.apply_step_end(*end),
            AssistantFact::TurnSummarized(summarized) => self.apply_turn_summarized(*summarized),
            AssistantFact::ReasoningCompacted { through_turn, text } => {
                self.reasoning.store_compacted_summary(through_turn, text)
            }
            AssistantFact::ConversationCompacted { through_turn, text } => {
                self.conversation.store_compacted_summary(through_turn, text)
            }
            AssistantFact::ServerToolsListed { tools } => self.server_tools = tools,
            AssistantFact::WriteUndone { run } => {
                self.writes.iter_mut().filter(|write| write.run == run).for_each(|write| write.undone = true);
            }
            AssistantFact::InvalidSettings { .. }
            | AssistantFact::CompactionFailed { .. }
            | AssistantFact::UndoFailed { .. } => {}
        }
    }

    fn apply_understanding(&mut self, understanding: MessageUnderstanding) {
        if understanding.drops_all_saved {
            self.entities.drop_saved_entities();
        }
        // A record that the message both mentions and rules out ends up demoted, so `demoted` is applied last.
        self.entities.mark_referenced(&understanding.references, understanding.turn);
        for retained in &understanding.retained {
            self.entities.retain_entity(&retained.reference, &retained.reason);
        }
        for demoted in &understanding.demoted {
            self.entities.demote_entity(&demoted.reference, &demoted.reason);
        }
        understanding.dropped.iter().for_each(|reference| self.entities.drop_entity(reference));
        self.recent_understandings.push_back(understanding.clone());
        while self.recent_understandings.len() > UNDERSTAND_TURNS_SHOWN {
            self.recent_understandings.pop_front();
        }
        if let Some(running) = &mut self.current_turn {
            running.understanding = Some(understanding);
        }
    }

    fn apply_plan(&mut self, plan: AssistantTurnPlan) {
        for step in &plan.steps {
            self.entities.mark_referenced(&step.refs, plan.turn);
        }
        if let Some(running) = &mut self.current_turn {
            running.steps = plan.steps.iter().map(|step| (step.step, AssistantStepProgress::default())).collect();
            running.plan = Some(plan);
        }
    }

    fn apply_tool_run_outcome(&mut self, records: DomainToolRunOutcome) {
        self.entities.upsert_records(&records.rows, records.action, records.text, records.turn);
        self.entities.mark_deleted(&records.removed, records.turn);
        self.forget_types(&records.changed_types);
        if let Some(kind) = records.fully_loaded_type {
            let version =
                LoadedRecordsVersion { count: records.total.unwrap_or_default(), digest: records.type_version };
            self.type_versions.insert(kind.clone(), version);
            self.fully_loaded_types.insert(kind);
        }
        if let (Some(step), Some(digest)) = (records.step, records.empty_read_digest) {
            self.update_step(step, |state| *state.empty_reads.entry(digest).or_default() += 1);
        }
        if let (Some(step), LastEntityAction::Read) = (records.step, records.action) {
            let read = records.rows.iter().map(|row| row.reference.clone());
            self.update_step(step, |state| {
                state.reads += 1;
                state.read_refs.extend(read);
            });
        }
        // An undo does not count as a new write.
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
        self.writes.push_back(CompletedDomainWrite {
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

    /// Records that these types are no longer known to be loaded completely.
    fn forget_types(&mut self, changed: &[String]) {
        for kind in changed {
            self.fully_loaded_types.remove(kind);
            self.type_versions.remove(kind);
        }
    }

    fn apply_step_end(&mut self, end: AssistantStepEnd) {
        self.entities.upsert_drafts(&end.drafts, end.turn);
        self.entities.mark_used_unless_demoted(&end.refs, end.turn);
        self.update_step(end.step, |state| {
            state.started = true;
            state.end = Some(end);
        });
    }

    fn apply_turn_summarized(&mut self, summarized: FinishedTurnForMemory) {
        let FinishedTurnForMemory { turn, messages, reply, pending, summary } = summarized;
        self.conversation.push_exchange(ConversationExchange { turn, messages, reply }, pending);
        if let Some(summary) = summary {
            self.reasoning.push_summary(summary);
        }
        let Some(running) = self.current_turn.take_if(|running| running.turn == turn) else { return };
        for (step, state) in running.steps {
            let answer = state.end.and_then(|end| end.answer);
            self.step_results.extend(answer.map(|answer| StepResultRef { turn, step, answer }));
        }
        let oldest = turn.saturating_sub(u32::try_from(FULL_SUMMARIES_MAX).unwrap_or(u32::MAX)) + 1;
        self.step_results.retain(|result| result.turn >= oldest);
    }

    /// Returns the number of the current turn, or of the last one if none is running.
    #[must_use]
    pub fn current_turn_number(&self) -> u32 {
        let last = self.conversation.recent.back().map_or(0, |exchange| exchange.turn);
        self.current_turn.as_ref().map_or(last, |running| running.turn)
    }

    /// Returns the references of all records of a type, if the type is known completely and unchanged and every record is
    /// loaded at least at this level.
    #[must_use]
    pub fn references_of_loaded_type(&self, kind: &str, level: RecordLoadLevel) -> Option<Vec<String>> {
        let is_current = |entity: &KnownRecordOrDraft| {
            entity.kind == kind && entity.is_saved() && entity.last_action != LastEntityAction::Deleted
        };
        let mut known: Vec<(&String, &KnownRecordOrDraft)> =
            self.entities.entities.iter().filter(|(_, entity)| is_current(entity)).collect();
        known.sort_by_key(|(reference, _)| (reference.len(), reference.as_str()));
        // The registry is limited, so it may have lost some of them.
        let count = self.type_versions.get(kind).map_or(0, |version| version.count);
        let is_complete =
            self.fully_loaded_types.contains(kind) && u64::try_from(known.len()).is_ok_and(|len| len >= count);
        let is_loaded = is_complete && known.iter().all(|(_, entity)| entity.detail >= level);
        is_loaded.then(|| known.into_iter().map(|(reference, _)| reference.clone()).collect())
    }

    /// Returns whether all records of a type are loaded.
    #[must_use]
    pub fn is_type_fully_loaded(&self, kind: &str) -> bool {
        self.references_of_loaded_type(kind, RecordLoadLevel::Summary).is_some()
    }
}

impl AssistantTurnProgress {
    /// Returns the planned step with this number.
    #[must_use]
    pub fn planned_step(&self, step: u32) -> Option<&AssistantPlanStep> {
        self.plan.as_ref()?.steps.iter().find(|planned| planned.step == step)
    }

    /// Returns the records that the read steps of this turn returned.
    #[must_use]
    pub fn references_returned_by_reads(&self) -> BTreeSet<&str> {
        let reads =
            self.plan.iter().flat_map(|plan| &plan.steps).filter(|step| step.kind == AssistantPlanStepKind::Read);
        reads
            .filter_map(|step| self.steps.get(&step.step))
            .flat_map(|state| &state.read_refs)
            .map(String::as_str)
            .collect()
    }

    /// Returns the records that the read steps of earlier groups returned in this turn.
    #[must_use]
    pub fn references_read_before(&self, step: &AssistantPlanStep) -> BTreeSet<&str> {
        let before = self.plan.iter().flat_map(|plan| &plan.steps).filter(|other| other.group < step.group);
        let states = before.filter_map(|other| self.steps.get(&other.step));
        states.flat_map(|state| &state.read_refs).map(String::as_str).collect()
    }

    /// Returns what happens next. The steps of a group start together. If one of them does not succeed, the plan stops as soon as
    /// the others of its group have ended.
    #[must_use]
    pub fn next_action(&self) -> AssistantNextAction {
        let Some(plan) = &self.plan else { return AssistantNextAction::Reply };
        let groups: BTreeSet<u32> = plan.steps.iter().map(|step| step.group).collect();
        for group in groups {
            let steps = plan.steps.iter().filter(|step| step.group == group);
            let states: Vec<(u32, &AssistantStepProgress)> =
                steps.filter_map(|step| self.steps.get(&step.step).map(|state| (step.step, state))).collect();
            if states.iter().all(|(_, state)| !state.started) {
                return AssistantNextAction::StartSteps(states.into_iter().map(|(step, _)| step).collect());
            }
            if states.iter().any(|(_, state)| state.end.is_none()) {
                return AssistantNextAction::Wait;
            }
            let is_done = |state: &AssistantStepProgress| {
                state.end.as_ref().is_some_and(|end| end.status == AssistantStepEndStatus::Done)
            };
            if !states.iter().all(|(_, state)| is_done(state)) {
                return AssistantNextAction::Reply;
            }
        }
        AssistantNextAction::Reply
    }

    /// Returns the phase label of the turn so far.
    #[must_use]
    pub fn stage_label(&self, entities: &KnownEntities) -> ConversationStageLabel {
        let steps = self.plan.iter().flat_map(|plan| &plan.steps);
        let drafts = self.steps.values().filter_map(|state| state.end.as_ref()).flat_map(|end| &end.drafts);
        let draft_waits =
            drafts.into_iter().any(|draft| entities.get(&draft.reference).is_some_and(|entity| !entity.is_saved()));
        ConversationStageLabel::classify_turn(
            self.plan.as_ref().map(|plan| plan.decision),
            steps.map(|step| step.kind),
            draft_waits,
        )
    }

    /// Returns why the plan was not completed, if it was not.
    #[must_use]
    pub fn incomplete_plan_reason(&self) -> Option<String> {
        let ends = self.steps.values().filter_map(|state| state.end.as_ref());
        let stopped =
            ends.filter(|end| matches!(end.status, AssistantStepEndStatus::Blocked | AssistantStepEndStatus::Failed));
        let reasons: Vec<&str> = stopped.map(|end| end.outcome.as_str()).collect();
        if !reasons.is_empty() {
            return Some(reasons.join("; "));
        }
        self.plan_failure.clone()
    }

    /// Returns whether the plan has a write step.
    #[must_use]
    pub fn has_write_step(&self) -> bool {
        self.plan.iter().flat_map(|plan| &plan.steps).any(|step| step.kind == AssistantPlanStepKind::Write)
    }
}
