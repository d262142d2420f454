//! The state of a session, as far as the next decision needs it. Finished work is only in the journal, so the state
//! stays small however long the conversation is.

mod abandoned_calls;
mod apply;
mod apply_exchange;
pub(crate) mod ledger;
mod phase_graphs;
mod prompt_plan;
mod rest;
pub(crate) mod thread;
mod tool_runs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{BodyId, ImageRef, TextRef};
use crate::context::PromptComparisonData;
use crate::event::{
    AgentMessageSent, AskReceived, AskSent, CallOpened, CallQueuedOnThread, CallRequest, ChildSessionOrigin,
    ChildSpawned, Event, MidTurnPolicy, PhaseGraphKey, RecordedClientTurnOptions, RecordedEvent, ToolRunHoldReason,
    ToolRunOpened,
};
use crate::flow::approval::SessionToolApproval;
use crate::flow::{DynFlow, DynFlowState, FlowSpec};
use crate::handover::Handover;
use crate::ids::{
    AgentName, AskId, CallId, ChildId, FlowName, HandoverId, HandoverKind, IdempotencyKey, MessageId, ModelName,
    RoleName, Seq, SessionId, ThreadId, TimerId, ToolRunId, TurnId, UnixMillis, WorkItemName,
};
use crate::limits::WINDOW_TOKENS_MIN;
use crate::phase::state::PhaseGraphState;
use crate::scope::ThreadKey;
use crate::token_ratio::VendorTokenRatio;

pub use self::{
    ledger::{ChildSessionUsage, Ledger, PrefixReuseStats, UsageTotals},
    prompt_plan::{ThreadPromptCache, UnloadedPrompt},
    thread::Thread,
};
pub(crate) use crate::event::to_call_request;
pub(crate) use prompt_plan::UnloadedPromptMessage;

/// The state of a session and of its flow.
#[derive(Debug, Clone)]
pub struct SessionState {
    pub session: Session,
    pub flow: DynFlowState,
}

impl SessionState {
    /// Returns the state before any event.
    #[must_use]
    pub fn new(flow: &dyn DynFlow) -> Self {
        Self { session: Session::default(), flow: flow.initial_state() }
    }

    /// Applies one event.
    pub fn apply(&mut self, flow: &dyn DynFlow, event: &RecordedEvent) {
        // The flow does not see repeated calls and late failures of calls that it abandoned.
        let is_hidden_from_flow =
            self.session.is_about_recomputation(&event.event) || self.session.is_late_failure(&event.event);
        self.session.apply(flow.spec(), event);
        if !is_hidden_from_flow {
            flow.apply(&mut self.flow, event);
        }
    }

    /// Applies all events of a journal, beginning with an empty state.
    #[must_use]
    pub fn fold<'e>(flow: &dyn DynFlow, events: impl IntoIterator<Item = &'e RecordedEvent>) -> Self {
        let mut state = Self::new(flow);
        for event in events {
            state.apply(flow, event);
        }
        state
    }
}

/// The part of a session's state that does not depend on its flow. Decisions work on a copy, so large parts are shared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Session {
    pub id: Option<SessionId>,
    pub flow: Option<FlowName>,
    /// The digest of the text that defines the flow, if it is not defined by code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_definition: Option<BodyId>,
    /// The given title, or the beginning of the first message.
    pub title: String,
    /// What happens by default to a message that arrives during a turn.
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for this session.
    pub settings: Arc<Value>,
    /// Models that this session uses for roles instead of the configured ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_overrides: BTreeMap<RoleName, ModelName>,
    pub opened_at: UnixMillis,
    pub closed_reason: Option<String>,
    pub last_seq: Seq,
    pub last_event_at: UnixMillis,
    pub queued_messages: VecDeque<QueuedMessage>,
    pub current_turn: Option<Turn>,
    /// The last turn if it failed, so that it can be retried.
    pub failed_turn: Option<Turn>,
    /// Messages that agents have not received yet, by recipient.
    pub inboxes: BTreeMap<AgentName, Vec<AgentMessageSent>>,
    /// The number of calls of each role outside turns since the last message of the user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_outside_turns_by_role: BTreeMap<RoleName, u32>,
    /// Calls that are pending.
    pub open_calls: BTreeMap<CallId, OpenCall>,
    /// Calls that wait for another call.
    pub deferred_calls: BTreeMap<u32, CallQueuedOnThread>,
    /// Calls whose answer may still arrive although it is no longer needed.
    pub abandoned_calls: VecDeque<AbandonedUnansweredCall>,
    /// Answers whose tool calls have not all finished.
    pub tool_rounds: BTreeMap<CallId, ToolRound>,
    pub open_tool_runs: BTreeMap<ToolRunId, ToolRunOpened>,
    /// The open tool runs that wait for a person or a client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_tool_runs: BTreeMap<ToolRunId, HeldToolRun>,
    /// The open tool runs whose arguments a person changed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub edited_tool_runs: BTreeSet<ToolRunId>,
    /// The tool uses that a person has allowed for the rest of the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tool_uses: Vec<SessionToolApproval>,
    pub timers: BTreeMap<TimerId, SessionTimer>,
    /// Threads that a call may still continue.
    pub threads: BTreeMap<ThreadId, Arc<Thread>>,
    #[serde(with = "pairs")]
    pub thread_by_slot: BTreeMap<Arc<ThreadKey>, ThreadId>,
    #[serde(with = "pairs")]
    pub slot_resets: BTreeMap<ThreadKey, u32>,
    /// The last prompt of each slot, for comparison with the next one.
    #[serde(with = "pairs")]
    pub(crate) last_prompts: BTreeMap<Arc<ThreadKey>, Arc<PromptComparisonData>>,
    #[serde(with = "pairs")]
    pub phase_graphs: BTreeMap<PhaseGraphKey, Arc<PhaseGraphStateWithHistory>>,
    /// The latest handovers, newest last.
    pub handovers: Arc<VecDeque<Arc<Handover>>>,
    /// How often each kind of handover was requested again since the last one was created.
    pub handover_repairs: BTreeMap<HandoverKind, u32>,
    /// The work item of each agent.
    pub work_assignments: BTreeMap<AgentName, WorkItemName>,
    pub ledger: Ledger,
    /// The size of the shortest prompt that each model refused as too long, by our count. No longer prompt is sent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_prompt_tokens: BTreeMap<ModelName, u32>,
    /// The ratio of vendor tokens to our tokens, by model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) token_ratios: BTreeMap<ModelName, VendorTokenRatio>,
    /// The keys of recent messages.
    pub recent_idempotency_keys: Arc<VecDeque<(IdempotencyKey, MessageId)>>,
    pub last_reply: Option<TextRef>,
    pub last_ids: LastAssignedIds,
    /// The session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_origin: Option<ChildSessionOrigin>,
    /// The result that is reported to the parent when the session has closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_reported: bool,
    /// Child sessions that have not ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open_children: BTreeMap<ChildId, OpenChildSession>,
    /// Questions to other sessions that wait for a reply.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open_asks: BTreeMap<AskId, Arc<AskSent>>,
    /// Questions from other sessions that wait for this session's reply.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub received_asks: BTreeMap<AskId, Arc<AskReceived>>,
    /// The claim that the session holds or waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<WorkspaceClaim>,
}

/// A child session that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenChildSession {
    pub spawned: Arc<ChildSpawned>,
    /// True if the child was told to close.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close_requested: bool,
}

/// A claim that a session holds or waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceClaim {
    pub workspace: SessionId,
    pub name: String,
    /// The question by which it was requested.
    pub ask: AskId,
    /// False while the session waits for it.
    pub is_held: bool,
}

/// The last id of each kind; zero if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastAssignedIds {
    pub message: MessageId,
    pub turn: TurnId,
    pub call: CallId,
    pub thread: ThreadId,
    pub tool_run: ToolRunId,
    pub timer: TimerId,
    pub handover: HandoverId,
    pub deferred_call: u32,
    #[serde(default)]
    pub child: ChildId,
    #[serde(default)]
    pub ask: AskId,
}

/// A message that waits for a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    pub message: MessageId,
    pub text: TextRef,
    #[serde(default)]
    pub mid_turn_policy: MidTurnPolicy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// What the client asks of the calls that answer the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<RecordedClientTurnOptions>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    /// The messages that the turn answers.
    pub messages: Vec<QueuedMessage>,
    pub started_at: UnixMillis,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_by_role: BTreeMap<RoleName, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_calls_by_role: BTreeMap<RoleName, u32>,
    /// What the client asks of the calls of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<RecordedClientTurnOptions>,
}

/// A pending call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    pub opened: Arc<CallOpened>,
    /// The current or next attempt.
    pub attempt: u32,
    /// The first attempt with the current model.
    #[serde(default = "first_attempt")]
    pub model_first_attempt: u32,
    pub status: OpenCallStatus,
    pub opened_at: UnixMillis,
    /// The first call in a chain of tool rounds.
    pub root_call: CallId,
    /// The number of tool rounds before this call; 0 for the root.
    pub tool_round: u32,
    /// The phase for the ledger, as `graph/phase`.
    pub ledger_phase: Option<String>,
}

fn first_attempt() -> u32 {
    1
}

/// A call that was abandoned or cancelled, and whose answer may still arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbandonedUnansweredCall {
    pub call: CallId,
    pub turn: Option<TurnId>,
    pub role: RoleName,
    pub model: ModelName,
    /// The phase for the ledger, as `graph/phase`.
    pub ledger_phase: Option<String>,
    pub prompt_tokens: u32,
    /// True if its turn was cancelled or interrupted. Its answer is not awaited, but recorded if it arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn_stopped: bool,
    /// True if it was cancelled while an attempt was in flight. The ledger counts it as unknown until its outcome is
    /// known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight: bool,
}

/// The status of a pending call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenCallStatus {
    /// The call can be made now or is in flight.
    Due,
    /// The call will be retried, not before this time.
    WaitingUntil(UnixMillis),
    /// An operator must decide.
    AwaitingOperator,
    /// The call was pending when the session was forked. It has not started here and waits to be started, not before
    /// this time.
    Inherited(UnixMillis),
}

/// An answer with tool calls, until all of them have finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRound {
    /// The request for the call that will continue it.
    pub request: CallRequest,
    pub turn: Option<TurnId>,
    pub thread: ThreadId,
    /// The first call in the chain of tool rounds.
    pub root_call: CallId,
    pub round_number: u32,
    /// The tool calls in the model's order, with their results so far.
    pub(crate) tool_results: Vec<ToolCallWithResult>,
}

/// A tool call and its result, if it has finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolCallWithResult {
    pub(crate) tool_call_id: String,
    /// The tool's result, or the reason why there is none.
    pub(crate) text: Option<TextRef>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
}

/// A tool run that waits for a person or a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldToolRun {
    pub reason: ToolRunHoldReason,
    /// The role that requested the run; `None` for the flow itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    pub since: UnixMillis,
}

/// A running timer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionTimer {
    /// The name given by the flow.
    pub name: String,
    pub fires_at: UnixMillis,
    /// The turn in which it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// The current state of a phase graph and its past states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseGraphStateWithHistory {
    pub state: PhaseGraphState,
    /// The states after the latest transitions, oldest first, for rollback.
    pub past_states: VecDeque<PhaseGraphState>,
    /// The kinds of handovers that were created during this visit.
    pub handover_kinds: BTreeSet<HandoverKind>,
    /// The last turn that was counted for this visit.
    pub counted_turn: Option<TurnId>,
}

impl OpenCall {
    /// Returns true if an attempt is in flight, as far as the journal shows: a call that is due is made immediately.
    #[must_use]
    pub(crate) fn is_attempt_due(&self, now: UnixMillis) -> bool {
        match self.status {
            OpenCallStatus::Due => true,
            OpenCallStatus::WaitingUntil(until) => until <= now,
            OpenCallStatus::AwaitingOperator | OpenCallStatus::Inherited(_) => false,
        }
    }
}

/// Work outside the session that is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Calls a model.
    CallModel { call: CallId, attempt: u32, not_before: UnixMillis },
    /// Runs a tool.
    RunTool { run: ToolRunId },
    /// Sends a tick at this time, because a timer fires or a phase limit expires.
    Wake { at: UnixMillis },
}

impl Session {
    /// Returns all pending effects.
    #[must_use]
    pub fn pending_effects(&self, spec: &FlowSpec) -> Vec<Effect> {
        let calls = self.open_calls.iter().filter_map(|(call, open)| {
            let not_before = match open.status {
                OpenCallStatus::Due => UnixMillis(0),
                OpenCallStatus::WaitingUntil(until) => until,
                OpenCallStatus::AwaitingOperator | OpenCallStatus::Inherited(_) => return None,
            };
            Some(Effect::CallModel { call: *call, attempt: open.attempt, not_before })
        });
        let tools = self.open_tool_runs.keys().filter(|run| !self.held_tool_runs.contains_key(run));
        let tools = tools.map(|run| Effect::RunTool { run: *run });
        calls.chain(tools).chain(self.next_wake_at(spec).map(|at| Effect::Wake { at })).collect()
    }

    /// Returns when a timer, a phase limit or the deadline of a wait is due next.
    #[must_use]
    pub fn next_wake_at(&self, spec: &FlowSpec) -> Option<UnixMillis> {
        let children = self.open_children.values().filter(|child| !child.close_requested);
        let waits = children.map(|child| child.spawned.deadline).chain(self.open_asks.values().map(|ask| ask.deadline));
        if self.closed_reason.is_some() {
            return waits.min();
        }
        let timers = self.timers.values().map(|timer| timer.fires_at);
        let waiting_since = self.waiting_for_others_since();
        // A phase does not expire if its exit cannot be entered, so a tick would change nothing.
        let deadlines = self.phase_graphs.iter().filter_map(|(key, status)| {
            let graph = spec.graphs.get(&key.graph)?;
            let at = crate::phase::limit::visit_deadline(graph, &status.state, waiting_since)?;
            crate::phase::limit::expiry_transition(graph, &status.state, at, waiting_since).map(|_| at)
        });
        timers.chain(deadlines).chain(waits).min()
    }

    /// Returns true if no turn is running and nothing is pending or queued.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let queue_is_done = self.queued_messages.is_empty() || self.closed_reason.is_some();
        let has_pending_work = !self.open_calls.is_empty()
            || !self.open_tool_runs.is_empty()
            || !self.deferred_calls.is_empty()
            // A finished round still has to be continued, even if the process that recorded it opens no calls.
            || !self.tool_rounds.is_empty();
        self.current_turn.is_none() && !has_pending_work && queue_is_done
    }

    /// Returns true if the answer to an abandoned call should still be recorded: the flow continued without it, and its
    /// turn was not cancelled. Such a call is not pending work.
    #[must_use]
    pub fn awaits_late_answer(&self, call: CallId) -> bool {
        let abandoned = self.abandoned_calls.iter().find(|abandoned| abandoned.call == call);
        self.closed_reason.is_none() && abandoned.is_some_and(|abandoned| !abandoned.turn_stopped)
    }

    /// Returns true if an event is about a call that repeats an earlier one.
    fn is_about_recomputation(&self, event: &Event) -> bool {
        let is_repeated =
            |call: &CallId| self.open_calls.get(call).is_some_and(|open| open.opened.recomputation.is_some());
        match event {
            Event::CallOpened(opened) => opened.recomputation.is_some(),
            Event::CallAnswered(answered) => is_repeated(&answered.call),
            Event::CallFailed { call, .. }
            | Event::CallOutcomeUnknown { call, .. }
            | Event::InheritedCallStarted { call }
            | Event::CallResolved { call, .. }
            | Event::CallCancelled { call, .. } => is_repeated(call),
            _ => false,
        }
    }

    /// Returns true if a call failed after it was abandoned.
    fn is_late_failure(&self, event: &Event) -> bool {
        matches!(event, Event::CallFailed { call, .. } if !self.open_calls.contains_key(call))
    }

    /// Returns the calls that wait for an operator.
    pub fn calls_awaiting_operator(&self) -> impl Iterator<Item = (&CallId, &OpenCall)> {
        self.open_calls.iter().filter(|(_, open)| open.status == OpenCallStatus::AwaitingOperator)
    }

    /// Returns the newest handover of a kind.
    #[must_use]
    pub fn latest_handover(&self, kind: &str) -> Option<&Handover> {
        self.handovers.iter().rev().find(|handover| handover.kind == *kind).map(|handover| &**handover)
    }

    /// Returns the message that an agent receives next: urgent ones first, each priority in order.
    #[must_use]
    pub fn next_inbox_message(&self, agent: &AgentName) -> Option<&AgentMessageSent> {
        self.inboxes.get(agent)?.iter().min_by_key(|mail| (mail.priority, mail.message))
    }

    /// Returns the ids of the texts that the next prompts of this session consist of: its threads and its messages that
    /// are not answered yet.
    #[must_use]
    pub fn prompt_text_ids(&self) -> BTreeSet<BodyId> {
        let threads = self.threads.values().flat_map(|thread| {
            let opening = thread.opening.iter().map(|(_, text)| text.body);
            opening.chain(thread.entries.iter().flat_map(|entry| entry.parts.iter().map(|text| text.body)))
        });
        let messages = self.queued_messages.iter().chain(self.current_turn.iter().flat_map(|turn| &turn.messages));
        threads.chain(messages.map(|message| message.text.body)).collect()
    }

    /// Returns the context window to assume, in vendor tokens: that of the model card, or less if the model refused a
    /// shorter prompt.
    #[must_use]
    pub(crate) fn effective_window(&self, model: &ModelName, card_tokens: u32) -> u32 {
        let refused = self
            .refused_prompt_tokens
            .get(model)
            .map_or(u32::MAX, |refused| self.token_ratio(model).to_vendor_tokens(*refused));
        card_tokens.min(refused).max(WINDOW_TOKENS_MIN)
    }

    /// Returns the ratio of a model's vendor tokens to ours.
    #[must_use]
    pub(crate) fn token_ratio(&self, model: &ModelName) -> VendorTokenRatio {
        self.token_ratios.get(model).copied().unwrap_or_default()
    }

    /// Returns the ratio of a model's vendor tokens to ours, in thousandths. Without reports it is 1000.
    #[must_use]
    pub fn token_ratio_permille(&self, model: &ModelName) -> u32 {
        self.token_ratio(model).permille()
    }
}

/// Serializes maps whose keys are not strings as lists of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, D, K, V>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        D: Deserializer<'de>,
        K: DeserializeOwned + Ord,
        V: DeserializeOwned,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
