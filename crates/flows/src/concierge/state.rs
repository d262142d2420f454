//! What the flow remembers: a fold of events, small however long the conversation grows. Texts are held by reference.
//! Where the concierge stands is not here but in its phase graph, and who remembers what is the threads' business.

use std::collections::BTreeMap;

use segue_core::body::TextRef;
use segue_core::event::{
    CallAnswered, CallOpened, Event, PhaseEntered, RecordedEvent, ReplySent, RetryDecision, TurnResult,
};
use segue_core::handover::HandoverProvenance;
use segue_core::ids::{CallId, HandoverId, HandoverKind, MessageId, ModelName, ThreadId};
use segue_core::limits::PAST_PHASE_STATES_MAX;
use segue_core::phase::state::TransitionCause;
use serde::{Deserialize, Serialize};

use super::facts::{BatchPurpose, BatchRequest, BatchResult, ExpertTask, Fact};
use super::messages;
use super::plan::ConciergePlan;
use super::spec::{
    ASK_PRESENT, ASK_REPLY, CONCIERGE_ROLE, EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPERT_ROLE, FINDINGS_FRAGMENT,
    INTENT_HANDOVER, NOTICES_FRAGMENT, OUTCOME_HANDOVER, PHASE_GRAPH, PLAN_FRAGMENT, PLAN_UPDATE_FRAGMENT,
    STARTER_PHASE,
};
use super::stance::ReplyStance;
use crate::limits::{HANDOVER_MESSAGES_MAX, PENDING_NOTICES_MAX};

/// What the flow remembers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConciergeState {
    /// How many batches there were.
    pub batch_count: u32,
    /// The batch under way, or the one that brought nothing and can be tried again.
    pub batch: Option<ExpertBatch>,
    /// What is known about the first question.
    pub opening_result: Option<BatchResult>,
    /// How the concierge speaks.
    pub stance: Option<ReplyStance>,
    /// What is known about doing what is to be done, and what the user said when it was asked for.
    pub plan_research: Option<PlanResearch>,
    /// What waits to be told to the concierge, once.
    pub pending_findings: Option<ExpertFindings>,
    /// Refusals that wait to be told, once.
    pub pending_notices: Vec<String>,
    /// The plan under way.
    pub active_plan: Option<ConciergePlan>,
    /// The version of it that the concierge knows.
    pub shown_plan_version: Option<u32>,
    /// A wish that waits for the user's yes.
    pub pending_confirmation: Option<BatchRequest>,
    /// Whether it was answered with neither yes nor no already.
    pub is_confirmation_unclear: bool,
    /// How often the user asked this visit's explorer for a plan without getting one.
    pub unmet_plan_requests: UnmetPlanRequests,
    /// Messages that have no turn yet.
    pub queued_messages: BTreeMap<MessageId, TextRef>,
    /// What the user said and nobody has answered.
    pub unanswered_messages: Vec<(MessageId, TextRef)>,
    /// The first question and its answer, for a handover that has to be built.
    pub opening_exchange: OpeningExchange,
    /// What the last answer that was meant for the user was an answer to.
    pub last_answered_messages: Vec<(MessageId, TextRef)>,
    /// Whether something was said to the user in this turn.
    pub replied_in_turn: bool,
    /// The same, by the one who has the word now.
    pub replied_in_phase: bool,
    /// Answers of this turn that held nothing for the user.
    pub empty_replies: u32,
    /// This visit of a phase.
    pub visit: ConciergeVisit,
    /// Visits before, by number: what a rollback goes back to.
    pub past_visits: BTreeMap<u32, ConciergeVisit>,
    /// What each open call of the concierge carries.
    pub call_contents: BTreeMap<CallId, CallContents>,
    /// The thread in which the concierge speaks.
    pub concierge_thread: Option<ThreadId>,
}

/// What belongs to one visit of a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConciergeVisit {
    /// Its number; the first is 1, as the phase graph counts.
    pub number: u32,
    /// The handover it began with.
    pub received_handover: Option<HandoverId>,
    /// The newest handover of each kind that was made in it.
    pub made_handovers: BTreeMap<HandoverKind, HandoverId>,
    /// The plan as it stood when the visit ended.
    pub final_plan: Option<ConciergePlan>,
    /// What the user said in it and was answered, unless it went into the exchange; of more than fits, the latest.
    pub answered_messages: Vec<(MessageId, TextRef)>,
}

impl Default for ConciergeVisit {
    fn default() -> Self {
        Self {
            number: 1,
            received_handover: None,
            made_handovers: BTreeMap::new(),
            final_plan: None,
            answered_messages: Vec::new(),
        }
    }
}

/// Requests for a plan that were not taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnmetPlanRequests {
    /// How many.
    pub count: u32,
    /// The message that made the last one.
    pub last_message: Option<MessageId>,
}

/// A batch under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpertBatch {
    /// What it is.
    pub request: BatchRequest,
    /// Which model sits where.
    #[serde(default)]
    pub slot_models: BTreeMap<usize, ModelName>,
    /// Calls that are open, by seat.
    #[serde(default)]
    pub open_calls: BTreeMap<CallId, usize>,
    /// Answers, by seat.
    #[serde(default)]
    pub answers: BTreeMap<usize, (CallId, TextRef)>,
    /// Who did not answer, and why.
    #[serde(default)]
    pub failures: BTreeMap<usize, String>,
    /// Who is not waited for any more.
    #[serde(default)]
    pub timed_out_calls: BTreeMap<usize, CallId>,
    /// How far it has come.
    #[serde(default)]
    pub stage: BatchStage,
}

/// How far a batch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchStage {
    /// Its calls are being opened, or it has failed and can be tried again.
    #[default]
    Dispatching,
    /// All calls are under way.
    Dispatched,
    /// Its answers are in.
    Closed,
}

/// What is known about doing what is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanResearch {
    /// What is known.
    pub result: BatchResult,
    /// What the user said that led to it.
    pub user_messages: Vec<(MessageId, TextRef)>,
}

/// What waits to be told to the concierge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpertFindings {
    /// What it was found for.
    pub purpose: BatchPurpose,
    /// What was asked on the concierge's behalf.
    pub task: Option<ExpertTask>,
    /// What is known.
    pub result: BatchResult,
}

/// The first question, its answer, and what the user said to that.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpeningExchange {
    /// What the user asked.
    pub query: Vec<TextRef>,
    /// What was answered.
    pub reply: Option<TextRef>,
    /// What the user said since, as long as the starter had the word.
    pub follow_ups: Vec<(MessageId, TextRef)>,
}

/// Adds messages to those that are kept.
fn merge_recent_messages(kept: &mut Vec<(MessageId, TextRef)>, messages: &[(MessageId, TextRef)]) {
    for message in messages {
        if !kept.contains(message) {
            kept.push(*message);
        }
    }
    let excess = kept.len().saturating_sub(HANDOVER_MESSAGES_MAX);
    kept.drain(..excess);
}

/// What a call of the concierge carries, and what of it counts as told once it is answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallContents {
    /// Whether the user hears its answer.
    pub visible_to_user: bool,
    /// Whether the starter gives it.
    #[serde(default)]
    pub is_starter_reply: bool,
    /// Whether it presents a plan, and so answers what the plan was asked for with.
    #[serde(default)]
    pub presents_plan: bool,
    /// The version of the plan it is shown.
    pub plan_version: Option<u32>,
    /// Whether it is told what was found.
    pub includes_findings: bool,
    /// How many notices it is told.
    pub notice_count: usize,
}

impl ConciergeState {
    /// Folds an event.
    pub fn apply_event(&mut self, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::UserMessageReceived(received) => {
                self.queued_messages.insert(received.message, received.text);
            }
            Event::TurnStarted { messages, .. } => {
                (self.replied_in_turn, self.replied_in_phase, self.empty_replies) = (false, false, 0);
                for message in messages {
                    self.unanswered_messages.extend(self.queued_messages.remove(message).map(|text| (*message, text)));
                }
            }
            Event::TurnEnded { outcome, .. } => self.apply_turn_ended(outcome),
            Event::CallOpened(opened) => self.apply_call_opened(opened),
            Event::CallAnswered(answered) => self.apply_call_answered(answered),
            Event::CallFailed { call, next: RetryDecision::GiveUp, failure, .. } => {
                self.apply_call_failure(*call, &failure.to_string())
            }
            Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { call, next: RetryDecision::GiveUp } => {
                self.apply_call_failure(*call, "lost when the process died");
            }
            Event::CallCancelled { call, reason, .. } => self.apply_call_failure(*call, reason),
            Event::ReplySent(said) => self.apply_reply_sent(said),
            // What the plan was shown in may be folded now.
            Event::ThreadCompacted(compacted) if self.concierge_thread == Some(compacted.thread) => {
                self.shown_plan_version = None
            }
            Event::HandoverCreated(made) => {
                self.visit.made_handovers.insert(made.kind.clone(), made.id);
                // Who was let in by hand gets it afterwards.
                if self.visit.number > 1 {
                    self.visit.received_handover.get_or_insert(made.id);
                }
            }
            Event::PhaseEntered(entered) => self.apply_phase_entered(entered),
            Event::PhaseTransitionRefused(refused) if refused.graph_key.graph == *PHASE_GRAPH => {
                self.push_notice(refused.refusal.to_string())
            }
            event => {
                if let Some(fact) = Fact::from_event(event) {
                    self.apply_fact(fact);
                }
            }
        }
    }

    fn apply_turn_ended(&mut self, outcome: &TurnResult) {
        match outcome {
            // What could not be answered is still open: the user need not say it again.
            TurnResult::Failed { .. } | TurnResult::Done => {}
            TurnResult::Cancelled | TurnResult::Interrupted => {
                self.unanswered_messages.clear();
                if self.batch.take().is_some_and(|batch| batch.request.task.is_some()) {
                    self.push_notice(messages::render_notice("BATCH", "stopped", &[]));
                }
            }
        }
    }

    fn apply_call_opened(&mut self, opened: &CallOpened) {
        if opened.role == *EXPERT_ROLE
            && let Some(batch) = &mut self.batch
            && let Some(seat) = batch.slot_of_call(opened)
        {
            batch.open_calls.insert(opened.call, seat);
            batch.slot_models.insert(seat, opened.model.clone());
            batch.failures.remove(&seat);
        }
        if opened.role == *CONCIERGE_ROLE && opened.compacts_thread.is_none() && opened.recomputation.is_none() {
            self.concierge_thread = Some(opened.receipt.thread.thread_id());
            let shows = |name: &str| opened.receipt.ask.iter().any(|piece| piece.name == *name && piece.text.is_some());
            let version = self.active_plan.as_ref().map(|workflow| workflow.version);
            // What a thread opens with stays in it, whatever becomes of the call.
            if opened.receipt.opening.iter().any(|piece| piece.name == *PLAN_FRAGMENT && piece.text.is_some()) {
                self.shown_plan_version = version;
            }
            let carried = CallContents {
                visible_to_user: opened.ask == *ASK_REPLY || opened.ask == *ASK_PRESENT,
                presents_plan: opened.ask == *ASK_PRESENT,
                is_starter_reply: opened.phase.as_ref().is_none_or(|phase| *phase == *STARTER_PHASE),
                plan_version: version.filter(|_| shows(PLAN_UPDATE_FRAGMENT)),
                includes_findings: shows(FINDINGS_FRAGMENT),
                notice_count: if shows(NOTICES_FRAGMENT) { self.pending_notices.len() } else { 0 },
            };
            self.call_contents.insert(opened.call, carried);
        }
    }

    fn apply_call_answered(&mut self, answered: &CallAnswered) {
        if let Some(batch) = &mut self.batch
            && let Some(seat) = batch.open_calls.remove(&answered.call)
            && batch.stage != BatchStage::Closed
        {
            batch.answers.insert(seat, (answered.call, answered.text));
        }
        let Some(carried) = self.call_contents.remove(&answered.call) else { return };
        self.shown_plan_version = carried.plan_version.or(self.shown_plan_version);
        if carried.includes_findings {
            self.pending_findings = None;
        }
        self.pending_notices.drain(..carried.notice_count.min(self.pending_notices.len()));
        if carried.visible_to_user {
            self.last_answered_messages = std::mem::take(&mut self.unanswered_messages);
            if carried.presents_plan {
                let asked = self.plan_research.iter().flat_map(|plan| plan.user_messages.iter());
                let asked = asked.filter(|message| !self.last_answered_messages.contains(message)).copied();
                self.last_answered_messages = asked.chain(self.last_answered_messages.iter().copied()).collect();
            }
            if !carried.is_starter_reply {
                merge_recent_messages(&mut self.visit.answered_messages, &self.last_answered_messages);
            } else if self.opening_exchange.reply.is_some() {
                merge_recent_messages(&mut self.opening_exchange.follow_ups, &self.last_answered_messages);
            }
        }
    }

    fn apply_reply_sent(&mut self, reply: &ReplySent) {
        (self.replied_in_turn, self.replied_in_phase) = (true, true);
        if reply.call.is_some() && self.opening_exchange.reply.is_none() {
            let query = self.last_answered_messages.iter().map(|(_, text)| *text).collect();
            self.opening_exchange = OpeningExchange { query, reply: Some(reply.text), follow_ups: Vec::new() };
        }
    }

    fn apply_call_failure(&mut self, call: CallId, why: &str) {
        self.call_contents.remove(&call);
        if let Some(batch) = &mut self.batch
            && let Some(seat) = batch.open_calls.remove(&call)
        {
            batch.failures.insert(seat, why.to_owned());
        }
    }

    fn apply_phase_entered(&mut self, entered: &PhaseEntered) {
        if entered.graph_key.graph != *PHASE_GRAPH || !entered.transition.begins_visit() {
            return;
        }
        // What was to be told was to be told to the one who has left.
        self.pending_notices.clear();
        self.pending_findings = None;
        self.shown_plan_version = None;
        (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
        self.unmet_plan_requests = UnmetPlanRequests::default();
        self.replied_in_phase = false;
        if entered.transition.to != *EXECUTOR_PHASE {
            self.plan_research = None;
        }
        let number = self.visit.number + 1;
        let left = ConciergeVisit { final_plan: self.active_plan.take(), ..std::mem::take(&mut self.visit) };
        let kinds: &[&str] = if entered.transition.to == *EXECUTOR_PHASE {
            &[EXECUTION_HANDOVER]
        } else {
            &[INTENT_HANDOVER, OUTCOME_HANDOVER]
        };
        let handed = kinds.iter().filter_map(|kind| left.made_handovers.get(*kind)).max().copied();
        self.past_visits.insert(left.number, left);
        while self.past_visits.len() > PAST_PHASE_STATES_MAX {
            self.past_visits.pop_first();
        }
        self.visit = ConciergeVisit { number, received_handover: handed, ..ConciergeVisit::default() };
        if let TransitionCause::RolledBack { to_visit } = entered.transition.cause
            && let Some(back) = self.past_visits.get(&to_visit)
        {
            self.visit.received_handover = back.received_handover;
            self.active_plan.clone_from(&back.final_plan);
        }
    }

    fn apply_fact(&mut self, fact: Fact) {
        match fact {
            Fact::BatchStarted(begun) => {
                self.batch_count = self.batch_count.max(begun.number);
                self.batch = Some(ExpertBatch::new(begun));
            }
            Fact::BatchDispatched { batch } => self.set_batch_stage(batch, BatchStage::Dispatched),
            Fact::BatchResumed { batch } | Fact::BatchFailed { batch, .. } => {
                self.set_batch_stage(batch, BatchStage::Dispatching)
            }
            Fact::BatchClosed { batch, .. } => self.set_batch_stage(batch, BatchStage::Closed),
            Fact::AnswerTimedOut { slot: seat, call, .. } => {
                if let Some(batch) = &mut self.batch {
                    batch.timed_out_calls.insert(seat, call);
                }
            }
            Fact::BatchAbandoned { .. } => self.batch = None,
            Fact::BatchCompleted { purpose, result: known, .. } => self.store_batch_result(purpose, known),
            Fact::StanceChosen { stance, .. } => self.stance = Some(stance),
            Fact::PlanStarted { goal, steps, provenance: how, .. } => {
                // Whoever wrote the steps knows them; who had them read from its prose does not.
                self.shown_plan_version = (how != HandoverProvenance::Built).then_some(1);
                self.active_plan = Some(ConciergePlan::new(goal, steps));
            }
            Fact::StepCompleted { step, .. } => {
                self.active_plan.iter_mut().for_each(|workflow| workflow.complete_step(step))
            }
            Fact::StepStarted { step, .. } => {
                self.active_plan.iter_mut().for_each(|workflow| workflow.start_step(step))
            }
            Fact::ConfirmationRequested { request: begun } => {
                self.batch_count = self.batch_count.max(begun.number);
                (self.pending_confirmation, self.is_confirmation_unclear) = (Some(begun), false);
            }
            Fact::BatchConfirmed => {
                // The yes was the flow's to hear, and is answered with it.
                (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
                self.unanswered_messages.clear();
            }
            Fact::ConfirmationUnclear => self.is_confirmation_unclear = true,
            Fact::BatchDeclined => {
                (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
                self.unmet_plan_requests.count = 0;
            }
            Fact::PlanRequested { message, count: times, .. } => {
                self.unmet_plan_requests = UnmetPlanRequests { count: times, last_message: Some(message) }
            }
            Fact::BlockRefused { why, .. } => self.push_notice(why),
            Fact::EmptyReply { notice: told, .. } => {
                self.empty_replies += 1;
                // What was not answered is still open.
                self.unanswered_messages = std::mem::take(&mut self.last_answered_messages);
                told.into_iter().for_each(|told| self.push_notice(told));
            }
            Fact::InvalidSettings { .. }
            | Fact::LateAnswer { .. }
            | Fact::MapParsed(_)
            | Fact::MapAnalysed(_)
            | Fact::MapUnavailable { .. }
            | Fact::PlanCompleted { .. }
            | Fact::ReplyComplaints { .. }
            | Fact::InternalTermsLeaked { .. } => {}
        }
    }

    fn set_batch_stage(&mut self, number: u32, stage: BatchStage) {
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.request.number == number) {
            batch.stage = stage;
            if stage == BatchStage::Dispatching {
                batch.timed_out_calls.clear();
            }
        }
    }

    fn store_batch_result(&mut self, purpose: BatchPurpose, result: BatchResult) {
        let Some(batch) = self.batch.take() else { return };
        let BatchRequest { user_messages: asked, task, .. } = batch.request;
        match purpose {
            BatchPurpose::OpeningQuestion => self.opening_result = Some(result),
            BatchPurpose::Plan => self.plan_research = Some(PlanResearch { result, user_messages: asked }),
            BatchPurpose::EveryTurn | BatchPurpose::StepHelp => {
                self.pending_findings = Some(ExpertFindings { purpose, task, result })
            }
        }
    }

    fn push_notice(&mut self, notice: String) {
        if self.pending_notices.len() < PENDING_NOTICES_MAX {
            self.pending_notices.push(notice);
        }
    }
}

impl ExpertBatch {
    fn new(request: BatchRequest) -> Self {
        let (models, calls, answers, failures, overdue) = Default::default();
        Self {
            request,
            slot_models: models,
            open_calls: calls,
            answers,
            failures,
            timed_out_calls: overdue,
            stage: BatchStage::default(),
        }
    }

    /// The seat a call was opened for, if it belongs to this batch.
    #[must_use]
    pub fn slot_of_call(&self, opened: &CallOpened) -> Option<usize> {
        let (batch, seat): (u32, usize) = serde_json::from_value(opened.metadata.clone()).ok()?;
        (batch == self.request.number).then_some(seat)
    }

    /// The answers, in the order of seats.
    #[must_use]
    pub fn answer_texts(&self) -> Vec<TextRef> {
        self.answers.values().map(|(_, text)| *text).collect()
    }

    /// Seats whose answer is still waited for.
    pub fn awaited_slots(&self) -> impl Iterator<Item = usize> {
        self.open_calls
            .iter()
            .filter(|(call, seat)| self.timed_out_calls.get(seat) != Some(call))
            .map(|(_, seat)| *seat)
    }

    /// Who did not answer, and why, in words.
    #[must_use]
    pub fn describe_missing_answers(&self) -> Vec<String> {
        let failed = self.failures.iter().map(|(seat, why)| format!("{}: {why}", self.slot_label(*seat)));
        let slow = self.open_calls.values().map(|seat| format!("{}: not in time", self.slot_label(*seat)));
        failed.chain(slow).collect()
    }

    /// Who sits there: the model, and which of its samples where it has several.
    fn slot_label(&self, slot: usize) -> String {
        let Some(model) = self.slot_models.get(&slot) else { return (slot + 1).to_string() };
        let alike = |before: &&usize| self.slot_models.get(before) == Some(model);
        match self.slot_models.keys().filter(alike).count() {
            0 | 1 => model.to_string(),
            _ => format!(
                "{model} #{}",
                self.slot_models.keys().take_while(|other| **other <= slot).filter(alike).count()
            ),
        }
    }
}
