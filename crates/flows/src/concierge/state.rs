//! The state of the flow, computed from events. Its size does not grow with the conversation; texts are stored by
//! reference. The current phase is in the session's phase graph and the roles' memory in its threads, not here.

use std::collections::BTreeMap;

use segue_core::body::TextRef;
use segue_core::event::{
    CallAnswered, CallOpened, Event, PhaseEntered, RecordedEvent, ReplySent, RetryDecision, TurnOutcome,
};
use segue_core::flow::FlowContext;
use segue_core::handover::HandoverProvenance;
use segue_core::ids::{CallId, HandoverId, HandoverKind, MessageId, ModelName, ThreadId};
use segue_core::limits::SESSION_LIMITS;
use segue_core::phase::PhaseTransitionCause;
use segue_core::signal::SignalForm;
use serde::{Deserialize, Serialize};

use super::commands::ConciergeTurnCommand;
use super::facts::{ConciergeFact, ExpertBatchPurpose, ExpertBatchRequest, ExpertBatchResult, ExpertTask};
use super::plan::ConciergePlan;
use super::spec::{
    ASK_PRESENT, ASK_REPLY, CONCIERGE_ROLE, EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPERT_ROLE, FINDINGS_FRAGMENT,
    INTENT_HANDOVER, NOTICES_FRAGMENT, OUTCOME_HANDOVER, PHASE_GRAPH, PLAN_FRAGMENT, PLAN_UPDATE_FRAGMENT,
    STARTER_PHASE,
};
use super::stance::ReplyStance;
use super::{messages, questions};
use crate::limits::{HANDOVER_MESSAGES_MAX, PENDING_NOTICES_MAX, VISIT_EXCHANGES_MAX};

/// What the concierge's code can read while it handles an event.
pub(super) type ConciergeFlowContext<'a> = FlowContext<'a, ConciergeState>;

/// The state of one `concierge` session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConciergeState {
    /// The number of the latest batch.
    pub batch_count: u32,
    /// The running batch, or one that failed and can be retried.
    pub batch: Option<ExpertBatch>,
    /// The result of the batch about the first question.
    pub opening_result: Option<ExpertBatchResult>,
    /// The stance of the concierge.
    pub stance: Option<ReplyStance>,
    /// The batch result from which the executor makes the plan.
    pub plan_research: Option<ConciergePlanInputs>,
    /// Findings that the concierge gets once, with its next call.
    pub pending_findings: Option<UnseenExpertBatchResult>,
    /// Notices that the concierge gets once, with its next call.
    pub pending_notices: Vec<String>,
    /// The plan that is being carried out.
    pub active_plan: Option<ConciergePlan>,
    /// The version of the active plan that the concierge has seen.
    pub shown_plan_version: Option<u32>,
    /// A batch that waits for the user's confirmation.
    pub pending_confirmation: Option<ExpertBatchRequest>,
    /// Whether the user has already answered the pending confirmation with neither yes nor no.
    pub is_confirmation_unclear: bool,
    /// The user's requests for a plan that the explorer of this visit did not act on.
    pub unmet_plan_requests: IgnoredPlanRequestCount,
    /// Messages that belong to no turn yet.
    pub queued_messages: BTreeMap<MessageId, TextRef>,
    /// The user's messages without a reply.
    pub unanswered_messages: Vec<(MessageId, TextRef)>,
    /// The first question and its answer, in case the flow must build the handover.
    pub opening_exchange: StarterPhaseConversation,
    /// The messages that the last visible reply answered.
    pub last_answered_messages: Vec<(MessageId, TextRef)>,
    /// Whether the user has got a reply in this turn.
    pub replied_in_turn: bool,
    /// Whether the user has got a reply in this turn from the current phase.
    pub replied_in_phase: bool,
    /// Replies of this turn that had no visible text, or repeated the one before, the message or the instruction.
    pub empty_replies: u32,
    /// The current phase visit.
    pub visit: ConciergePhaseVisit,
    /// Earlier visits by number, for rollbacks.
    pub past_visits: BTreeMap<u32, ConciergePhaseVisit>,
    /// What the prompt of each open concierge call contains.
    pub call_contents: BTreeMap<CallId, ConciergePromptContents>,
    /// The current thread of the concierge.
    pub concierge_thread: Option<ThreadId>,
    /// How signals are requested from the concierge's model, by its latest call.
    #[serde(skip_serializing_if = "is_inline")]
    pub model_signal_form: SignalForm,
    /// The command that started the current turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_command: Option<ConciergeTurnCommand>,
}

/// The state of one phase visit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConciergePhaseVisit {
    /// The number of the visit in the phase graph, starting at 1.
    pub number: u32,
    /// The handover that the visit started with.
    pub received_handover: Option<HandoverId>,
    /// The newest handover of each kind that was made in this visit.
    pub made_handovers: BTreeMap<HandoverKind, HandoverId>,
    /// The plan at the end of the visit.
    pub final_plan: Option<ConciergePlan>,
    /// The latest user messages that were answered in this visit, except those in the opening exchange.
    pub answered_messages: Vec<(MessageId, TextRef)>,
    /// The latest messages and replies of this visit, in case its thread has to be opened again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<VisitExchange>,
}

/// The user's messages and the concierge's reply to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VisitExchange {
    pub messages: Vec<TextRef>,
    pub reply: TextRef,
}

impl Default for ConciergePhaseVisit {
    fn default() -> Self {
        Self {
            number: 1,
            received_handover: None,
            made_handovers: BTreeMap::new(),
            final_plan: None,
            answered_messages: Vec::new(),
            exchanges: Vec::new(),
        }
    }
}

/// Requests for a plan that the explorer did not act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IgnoredPlanRequestCount {
    pub count: u32,
    /// The message with the latest request.
    pub last_message: Option<MessageId>,
}

/// A batch of expert calls that is not completed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpertBatch {
    pub request: ExpertBatchRequest,
    /// The model of each expert slot.
    #[serde(default)]
    pub slot_models: BTreeMap<usize, ModelName>,
    /// The slot of each open call.
    #[serde(default)]
    pub open_calls: BTreeMap<CallId, usize>,
    /// The answer of each slot.
    #[serde(default)]
    pub answers: BTreeMap<usize, (CallId, TextRef)>,
    /// Why slots have no answer.
    #[serde(default)]
    pub failures: BTreeMap<usize, String>,
    /// The call of each slot whose answer is no longer awaited.
    #[serde(default)]
    pub timed_out_calls: BTreeMap<usize, CallId>,
    /// The progress of the batch.
    #[serde(default)]
    pub stage: ExpertBatchStage,
}

/// The progress of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertBatchStage {
    /// Its calls are being opened, or it failed and can be retried.
    #[default]
    Dispatching,
    /// All calls are open.
    Dispatched,
    /// No more answers are accepted.
    Closed,
}

/// The batch result from which a plan is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConciergePlanInputs {
    pub result: ExpertBatchResult,
    /// The user's messages that asked for the plan.
    pub user_messages: Vec<(MessageId, TextRef)>,
}

/// A batch result that the concierge has not seen yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnseenExpertBatchResult {
    /// The purpose of the batch.
    pub purpose: ExpertBatchPurpose,
    /// The task that the concierge gave to the experts.
    pub task: Option<ExpertTask>,
    pub result: ExpertBatchResult,
}

/// The first question, its answer, and the user's replies in the starter phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StarterPhaseConversation {
    /// The first question.
    pub query: Vec<TextRef>,
    /// The first answer.
    pub reply: Option<TextRef>,
    /// The user's later messages to the starter.
    pub follow_ups: Vec<(MessageId, TextRef)>,
}

/// Appends `messages` to `kept` without duplicates and keeps the latest.
fn merge_recent_messages(kept: &mut Vec<(MessageId, TextRef)>, messages: &[(MessageId, TextRef)]) {
    for message in messages {
        if !kept.contains(message) {
            kept.push(*message);
        }
    }
    let excess = kept.len().saturating_sub(HANDOVER_MESSAGES_MAX);
    kept.drain(..excess);
}

/// What the prompt of a concierge call contains. When the call is answered, this counts as seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ConciergePromptContents {
    /// Whether the user sees the reply.
    pub visible_to_user: bool,
    /// Whether the call belongs to the starter phase.
    #[serde(default)]
    pub is_starter_reply: bool,
    /// Whether the call presents a plan and so also answers the messages that asked for it.
    #[serde(default)]
    pub presents_plan: bool,
    /// The version of the plan in the prompt.
    pub plan_version: Option<u32>,
    /// Whether the prompt contains the pending findings.
    pub includes_findings: bool,
    /// How many notices the prompt contains.
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
            Event::CommandIssued { command, .. } => self.turn_command = ConciergeTurnCommand::from_name(command),
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
            Event::ReplySent(reply) => self.apply_reply_sent(reply),
            // The message that showed the plan may have been compacted.
            Event::ThreadCompacted(compacted) if self.concierge_thread == Some(compacted.thread) => {
                self.shown_plan_version = None
            }
            Event::HandoverCreated(handover) => {
                self.visit.made_handovers.insert(handover.kind.clone(), handover.id);
                // A phase entered by hand gets its handover after it was entered.
                if self.visit.number > 1 {
                    self.visit.received_handover.get_or_insert(handover.id);
                }
            }
            Event::PhaseEntered(entered) => self.apply_phase_entered(entered),
            Event::PhaseTransitionRefused { graph_key, refusal } if graph_key.graph == *PHASE_GRAPH => {
                self.push_notice(refusal.to_string())
            }
            event => {
                if let Some(fact) = ConciergeFact::from_event(event) {
                    self.apply_fact(fact);
                }
            }
        }
    }

    fn apply_turn_ended(&mut self, outcome: &TurnOutcome) {
        self.turn_command = None;
        match outcome {
            // Unanswered messages stay open, so the user need not repeat them.
            TurnOutcome::Failed { .. } | TurnOutcome::Done => {}
            TurnOutcome::Cancelled | TurnOutcome::Interrupted => {
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
            && let Some(slot) = batch.slot_of_call(opened)
        {
            batch.open_calls.insert(opened.call, slot);
            batch.slot_models.insert(slot, opened.model.clone());
            batch.failures.remove(&slot);
        }
        // Until the concierge is called, its model is taken to be like that of the other roles.
        if self.concierge_thread.is_none() {
            self.model_signal_form = opened.signal_form;
        }
        if opened.role == *CONCIERGE_ROLE && opened.compacts_thread.is_none() && opened.recomputation.is_none() {
            self.model_signal_form = opened.signal_form;
            if questions::is_standalone(opened.ask.as_str()) {
                return;
            }
            self.concierge_thread = Some(opened.receipt.thread.thread_id());
            let includes = |name: &str| {
                opened.receipt.ask.iter().any(|fragment| fragment.name == *name && fragment.text.is_some())
            };
            let version = self.active_plan.as_ref().map(|plan| plan.version);
            // The opening prompt stays in the thread even if the call fails.
            if opened.receipt.opening.iter().any(|fragment| fragment.name == *PLAN_FRAGMENT && fragment.text.is_some())
            {
                self.shown_plan_version = version;
            }
            let contents = ConciergePromptContents {
                visible_to_user: opened.ask == *ASK_REPLY || opened.ask == *ASK_PRESENT,
                presents_plan: opened.ask == *ASK_PRESENT,
                is_starter_reply: opened.phase.as_ref().is_none_or(|phase| *phase == *STARTER_PHASE),
                plan_version: version.filter(|_| includes(PLAN_UPDATE_FRAGMENT)),
                includes_findings: includes(FINDINGS_FRAGMENT),
                notice_count: if includes(NOTICES_FRAGMENT) { self.pending_notices.len() } else { 0 },
            };
            self.call_contents.insert(opened.call, contents);
        }
    }

    fn apply_call_answered(&mut self, answered: &CallAnswered) {
        if let Some(batch) = &mut self.batch
            && let Some(slot) = batch.open_calls.remove(&answered.call)
            && batch.stage != ExpertBatchStage::Closed
        {
            batch.answers.insert(slot, (answered.call, answered.text));
        }
        let Some(contents) = self.call_contents.remove(&answered.call) else { return };
        self.shown_plan_version = contents.plan_version.or(self.shown_plan_version);
        if contents.includes_findings {
            self.pending_findings = None;
        }
        self.pending_notices.drain(..contents.notice_count.min(self.pending_notices.len()));
        if contents.visible_to_user {
            self.last_answered_messages = std::mem::take(&mut self.unanswered_messages);
            if contents.presents_plan {
                let research = self.plan_research.iter().flat_map(|plan| plan.user_messages.iter());
                let earlier = research.filter(|message| !self.last_answered_messages.contains(message)).copied();
                self.last_answered_messages = earlier.chain(self.last_answered_messages.iter().copied()).collect();
            }
            if !contents.is_starter_reply {
                merge_recent_messages(&mut self.visit.answered_messages, &self.last_answered_messages);
            } else if self.opening_exchange.reply.is_some() {
                merge_recent_messages(&mut self.opening_exchange.follow_ups, &self.last_answered_messages);
            }
        }
    }

    fn apply_reply_sent(&mut self, reply: &ReplySent) {
        (self.replied_in_turn, self.replied_in_phase) = (true, true);
        // They were about the message that has been answered.
        self.pending_findings.take_if(|findings| findings.purpose == ExpertBatchPurpose::EveryTurn);
        if reply.call.is_some() {
            let messages = self.last_answered_messages.iter().map(|(_, text)| *text).collect();
            self.visit.exchanges.push(VisitExchange { messages, reply: reply.text });
            let excess = self.visit.exchanges.len().saturating_sub(VISIT_EXCHANGES_MAX);
            self.visit.exchanges.drain(..excess);
        }
        if reply.call.is_some() && self.opening_exchange.reply.is_none() {
            let query = self.last_answered_messages.iter().map(|(_, text)| *text).collect();
            self.opening_exchange = StarterPhaseConversation { query, reply: Some(reply.text), follow_ups: Vec::new() };
        }
    }

    fn apply_call_failure(&mut self, call: CallId, why: &str) {
        self.call_contents.remove(&call);
        if let Some(batch) = &mut self.batch
            && let Some(slot) = batch.open_calls.remove(&call)
        {
            batch.failures.insert(slot, why.to_owned());
        }
    }

    fn apply_phase_entered(&mut self, entered: &PhaseEntered) {
        if entered.graph_key.graph != *PHASE_GRAPH || !entered.transition.is_visit_start() {
            return;
        }
        // Pending notices and findings were meant for the phase that has ended.
        self.pending_notices.clear();
        self.pending_findings = None;
        self.shown_plan_version = None;
        (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
        self.unmet_plan_requests = IgnoredPlanRequestCount::default();
        self.replied_in_phase = false;
        if entered.transition.to != *EXECUTOR_PHASE {
            self.plan_research = None;
        }
        let number = self.visit.number + 1;
        let ended = ConciergePhaseVisit { final_plan: self.active_plan.take(), ..std::mem::take(&mut self.visit) };
        let kinds: &[&str] = if entered.transition.to == *EXECUTOR_PHASE {
            &[EXECUTION_HANDOVER]
        } else {
            &[INTENT_HANDOVER, OUTCOME_HANDOVER]
        };
        let received = kinds.iter().filter_map(|kind| ended.made_handovers.get(*kind)).max().copied();
        self.past_visits.insert(ended.number, ended);
        while self.past_visits.len() > SESSION_LIMITS.past_phase_states_max {
            self.past_visits.pop_first();
        }
        self.visit = ConciergePhaseVisit { number, received_handover: received, ..ConciergePhaseVisit::default() };
        if let PhaseTransitionCause::RolledBack { to_visit } = entered.transition.cause
            && let Some(earlier) = self.past_visits.get(&to_visit)
        {
            self.visit.received_handover = earlier.received_handover;
            self.active_plan.clone_from(&earlier.final_plan);
        }
    }

    fn apply_fact(&mut self, fact: ConciergeFact) {
        match fact {
            ConciergeFact::BatchStarted(request) => {
                self.batch_count = self.batch_count.max(request.number);
                self.batch = Some(ExpertBatch::new(request));
            }
            ConciergeFact::BatchDispatched { batch } => self.set_batch_stage(batch, ExpertBatchStage::Dispatched),
            ConciergeFact::BatchResumed { batch } | ConciergeFact::BatchFailed { batch, .. } => {
                self.set_batch_stage(batch, ExpertBatchStage::Dispatching)
            }
            ConciergeFact::BatchClosed { batch, .. } => self.set_batch_stage(batch, ExpertBatchStage::Closed),
            ConciergeFact::AnswerTimedOut { slot, call, .. } => {
                if let Some(batch) = &mut self.batch {
                    batch.timed_out_calls.insert(slot, call);
                }
            }
            ConciergeFact::BatchAbandoned { .. } => self.batch = None,
            ConciergeFact::BatchCompleted { purpose, result, .. } => self.store_batch_result(purpose, result),
            ConciergeFact::StanceChosen { stance, .. } => self.stance = Some(stance),
            ConciergeFact::PlanStarted { goal, steps, provenance, .. } => {
                // The concierge knows the steps that it wrote itself, but not those that the flow found in its prose.
                self.shown_plan_version = (provenance != HandoverProvenance::Built).then_some(1);
                self.active_plan = Some(ConciergePlan::new(goal, steps));
            }
            ConciergeFact::StepCompleted { step, .. } => {
                self.active_plan.iter_mut().for_each(|plan| plan.complete_step(step))
            }
            ConciergeFact::StepStarted { step, .. } => {
                self.active_plan.iter_mut().for_each(|plan| plan.start_step(step))
            }
            ConciergeFact::ConfirmationRequested { request } => {
                self.batch_count = self.batch_count.max(request.number);
                (self.pending_confirmation, self.is_confirmation_unclear) = (Some(request), false);
            }
            ConciergeFact::BatchConfirmed => {
                // The user's yes was meant for the flow and needs no reply.
                (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
                self.unanswered_messages.clear();
            }
            ConciergeFact::ConfirmationUnclear => self.is_confirmation_unclear = true,
            ConciergeFact::ConfirmationRepeated => {
                // The answer was meant for the flow and needs no reply.
                self.is_confirmation_unclear = true;
                self.unanswered_messages.clear();
            }
            ConciergeFact::BatchDeclined => {
                (self.pending_confirmation, self.is_confirmation_unclear) = (None, false);
                self.unmet_plan_requests.count = 0;
            }
            ConciergeFact::PlanRequested { message, count, .. } => {
                self.unmet_plan_requests = IgnoredPlanRequestCount { count, last_message: Some(message) }
            }
            ConciergeFact::BlockRefused { why, .. } => self.push_notice(why),
            ConciergeFact::EmptyReply { notice, .. } => {
                self.empty_replies += 1;
                // The messages are still unanswered.
                self.unanswered_messages = std::mem::take(&mut self.last_answered_messages);
                notice.into_iter().for_each(|notice| self.push_notice(notice));
            }
            ConciergeFact::InvalidSettings { .. }
            | ConciergeFact::HandoverFieldsBuilt { .. }
            | ConciergeFact::LateAnswer { .. }
            | ConciergeFact::MapParsed(_)
            | ConciergeFact::MapAnalysed(_)
            | ConciergeFact::MapUnavailable { .. }
            | ConciergeFact::PlanCompleted { .. }
            | ConciergeFact::PlanDropped { .. }
            | ConciergeFact::ReplyComplaints { .. }
            | ConciergeFact::InternalTermsLeaked { .. } => {}
        }
    }

    fn set_batch_stage(&mut self, number: u32, stage: ExpertBatchStage) {
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.request.number == number) {
            batch.stage = stage;
            if stage == ExpertBatchStage::Dispatching {
                batch.timed_out_calls.clear();
            }
        }
    }

    fn store_batch_result(&mut self, purpose: ExpertBatchPurpose, result: ExpertBatchResult) {
        let Some(batch) = self.batch.take() else { return };
        let ExpertBatchRequest { user_messages, task, .. } = batch.request;
        match purpose {
            ExpertBatchPurpose::OpeningQuestion => self.opening_result = Some(result),
            ExpertBatchPurpose::Plan => self.plan_research = Some(ConciergePlanInputs { result, user_messages }),
            ExpertBatchPurpose::EveryTurn | ExpertBatchPurpose::StepHelp => {
                self.pending_findings = Some(UnseenExpertBatchResult { purpose, task, result })
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
    fn new(request: ExpertBatchRequest) -> Self {
        Self {
            request,
            slot_models: BTreeMap::new(),
            open_calls: BTreeMap::new(),
            answers: BTreeMap::new(),
            failures: BTreeMap::new(),
            timed_out_calls: BTreeMap::new(),
            stage: ExpertBatchStage::default(),
        }
    }

    /// Returns the slot that a call was opened for, or `None` if the call belongs to another batch.
    #[must_use]
    pub fn slot_of_call(&self, opened: &CallOpened) -> Option<usize> {
        let (batch, slot): (u32, usize) = serde_json::from_value(opened.metadata.clone()).ok()?;
        (batch == self.request.number).then_some(slot)
    }

    /// Returns the answers in slot order.
    #[must_use]
    pub fn answer_texts(&self) -> Vec<TextRef> {
        self.answers.values().map(|(_, text)| *text).collect()
    }

    /// Returns the slots whose answers are still awaited.
    pub fn awaited_slots(&self) -> impl Iterator<Item = usize> {
        self.open_calls
            .iter()
            .filter(|(call, slot)| self.timed_out_calls.get(slot) != Some(call))
            .map(|(_, slot)| *slot)
    }

    /// Describes each missing answer: the slot and the reason.
    #[must_use]
    pub fn describe_missing_answers(&self) -> Vec<String> {
        let failed = self.failures.iter().map(|(slot, why)| format!("{}: {why}", self.slot_label(*slot)));
        let late = self.open_calls.values().map(|slot| format!("{}: not in time", self.slot_label(*slot)));
        failed.chain(late).collect()
    }

    /// Returns the model of a slot, with a sample number if several slots use that model.
    fn slot_label(&self, slot: usize) -> String {
        let Some(model) = self.slot_models.get(&slot) else { return (slot + 1).to_string() };
        let same_model = |other: &&usize| self.slot_models.get(other) == Some(model);
        match self.slot_models.keys().filter(same_model).count() {
            0 | 1 => model.to_string(),
            _ => format!(
                "{model} #{}",
                self.slot_models.keys().take_while(|other| **other <= slot).filter(same_model).count()
            ),
        }
    }
}

fn is_inline(form: &SignalForm) -> bool {
    *form == SignalForm::Inline
}
