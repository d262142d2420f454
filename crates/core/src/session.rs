//! A session's state: what follows from its journal, and only what the next decision needs. What is over and decides
//! nothing any more is in the journal alone, so this stays small however long the conversation grows.

mod abandoned_calls;
mod apply;
mod prompt_plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{ImageRef, TextRef};
use crate::context::PromptOutline;
use crate::event::{
    AgentMessageSent, CallDeferred, CallOpened, CallRequest, Event, MidTurnPolicy, PhaseGraphKey, PhaseGraphOwner,
    RecordedEvent, ToolRunOpened,
};
use crate::flow::{DynFlow, FlowSpec, FlowState};
use crate::handover::Handover;
use crate::ids::{
    AgentName, CallId, FlowName, HandoverId, HandoverKind, IdempotencyKey, MessageId, ModelName, PhaseGraphName,
    RoleName, Seq, SessionId, ThreadId, TimerId, ToolRunId, TurnId, UnixMillis, WorkItemName,
};
use crate::ledger::Ledger;
use crate::limits::WINDOW_TOKENS_MIN;
use crate::phase::PhaseGraph;
use crate::phase::state::PhaseState;
use crate::scope::{PhaseVisit, ThreadSlot};
use crate::thread::Thread;
use crate::token_ratio::VendorTokenRatio;

pub(crate) use apply::to_call_request;
pub use prompt_plan::{PromptMessageRef, PromptPlan, ThreadPromptCache};

/// The whole state of a session: its own, and its flow's.
#[derive(Debug, Clone)]
pub struct SessionState {
    /// What every session has.
    pub session: Session,
    /// What its flow remembers.
    pub flow: FlowState,
}

impl SessionState {
    /// The state before any event.
    #[must_use]
    pub fn new(flow: &dyn DynFlow) -> Self {
        Self { session: Session::default(), flow: flow.initial_state() }
    }

    /// Folds one event.
    pub fn apply(&mut self, flow: &dyn DynFlow, event: &RecordedEvent) {
        // What is made once more beside the timeline is none of the flow's business, nor is what it gave up and failed since.
        let is_aside = self.session.is_about_recomputation(&event.event) || self.session.is_late_failure(&event.event);
        self.session.apply(flow.spec(), event);
        if !is_aside {
            flow.apply(&mut self.flow, event);
        }
    }

    /// The fold of a journal.
    #[must_use]
    pub fn fold<'e>(flow: &dyn DynFlow, events: impl IntoIterator<Item = &'e RecordedEvent>) -> Self {
        let mut state = Self::new(flow);
        for event in events {
            state.apply(flow, event);
        }
        state
    }
}

/// What every session has. A decision is taken on a copy of it, so what is large is shared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Session {
    /// Its name.
    pub id: Option<SessionId>,
    /// Its flow.
    pub flow: Option<FlowName>,
    /// Its title: given, or the beginning of its first message.
    pub title: String,
    /// What happens to a message while a turn runs.
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for it.
    pub settings: Arc<Value>,
    /// Models that play roles in it, whatever is configured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_overrides: BTreeMap<RoleName, ModelName>,
    /// When it was opened.
    pub opened_at: UnixMillis,
    /// Why it was closed, if it was.
    pub closed_reason: Option<String>,
    /// Place of the last event folded.
    pub last_seq: Seq,
    /// Time of the last event folded.
    pub last_event_at: UnixMillis,
    /// Messages that wait for a turn.
    pub queued_messages: VecDeque<QueuedMessage>,
    /// The turn that runs.
    pub current_turn: Option<Turn>,
    /// The last turn, if it failed: it can be tried again.
    pub failed_turn: Option<Turn>,
    /// Messages agents left for each other.
    pub inboxes: BTreeMap<AgentName, Vec<AgentMessageSent>>,
    /// Calls that are owed.
    pub open_calls: BTreeMap<CallId, OpenCall>,
    /// Calls that wait for another.
    pub deferred_calls: BTreeMap<u32, CallDeferred>,
    /// Calls given up whose answer may still come.
    pub abandoned_calls: VecDeque<AbandonedCall>,
    /// Answers that wait for their tools.
    pub tool_rounds: BTreeMap<CallId, ToolRound>,
    /// Tool runs that are owed.
    pub open_tool_runs: BTreeMap<ToolRunId, ToolRunOpened>,
    /// Timers that run.
    pub timers: BTreeMap<TimerId, Timer>,
    /// Threads that a call may still continue.
    pub threads: BTreeMap<ThreadId, Arc<Thread>>,
    /// Which thread stands where.
    #[serde(with = "pairs")]
    pub thread_by_slot: BTreeMap<Arc<ThreadSlot>, ThreadId>,
    /// How often a slot was reset by hand.
    #[serde(with = "pairs")]
    pub slot_resets: BTreeMap<ThreadSlot, u32>,
    /// The last prompt of each slot, to compare that of the next thread there with.
    #[serde(with = "pairs")]
    pub last_prompts: BTreeMap<Arc<ThreadSlot>, Arc<PromptOutline>>,
    /// Where each phase graph stands.
    #[serde(with = "pairs")]
    pub phase_graphs: BTreeMap<PhaseGraphKey, Arc<PhaseGraphStatus>>,
    /// Handovers made, newest last.
    pub handovers: Arc<VecDeque<Arc<Handover>>>,
    /// How often each kind of handover was asked for again since one was last made.
    pub handover_repairs: BTreeMap<HandoverKind, u32>,
    /// Who works on what.
    pub work_assignments: BTreeMap<AgentName, WorkItemName>,
    /// What it cost.
    pub ledger: Ledger,
    /// Models that refused a prompt as too long, with its tokens by our count: whatever their cards say, no more than that is tried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_prompt_tokens: BTreeMap<ModelName, u32>,
    /// What our tokens weigh with each model, by what it reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub token_ratios: BTreeMap<ModelName, VendorTokenRatio>,
    /// Keys of messages accepted lately.
    pub recent_idempotency_keys: Arc<VecDeque<(IdempotencyKey, MessageId)>>,
    /// What was last said to the user.
    pub last_reply: Option<TextRef>,
    /// The last number given out of each kind.
    pub last_ids: LastIds,
}

/// The last number given out of each kind; zero if none was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastIds {
    /// Messages.
    pub message: MessageId,
    /// Turns.
    pub turn: TurnId,
    /// Calls.
    pub call: CallId,
    /// Threads.
    pub thread: ThreadId,
    /// Tool runs.
    pub tool_run: ToolRunId,
    /// Timers.
    pub timer: TimerId,
    /// Handovers.
    pub handover: HandoverId,
    /// Deferred calls.
    pub deferred_call: u32,
}

/// A message that waits for a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Which.
    pub message: MessageId,
    /// What it says.
    pub text: TextRef,
    /// What was to happen to it if a turn ran.
    #[serde(default)]
    pub mid_turn_policy: MidTurnPolicy,
    /// What the user shows with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its number.
    pub id: TurnId,
    /// What it answers.
    pub messages: Vec<QueuedMessage>,
    /// When it began.
    pub started_at: UnixMillis,
    /// Calls opened in it.
    pub calls_opened: u32,
}

/// A call that is owed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// What is owed.
    pub opened: Arc<CallOpened>,
    /// Which try is next, or under way.
    pub attempt: u32,
    /// The first try on the model that makes it now.
    #[serde(default = "first_attempt")]
    pub model_first_attempt: u32,
    /// How it stands.
    pub status: CallStatus,
    /// When it was opened.
    pub opened_at: UnixMillis,
    /// The call at the root of its tool rounds.
    pub root_call: CallId,
    /// The how-manieth round of tools it brings; 0 for the root.
    pub tool_round: u32,
    /// The graph whose phase it was opened in, for the ledger: `graph/phase`.
    pub ledger_phase: Option<String>,
}

fn first_attempt() -> u32 {
    1
}

/// A call that was given up or cancelled, as far as its late answer needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbandonedCall {
    /// Which.
    pub call: CallId,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Who would have spoken.
    pub role: RoleName,
    /// On which model.
    pub model: ModelName,
    /// In which phase, for the ledger.
    pub ledger_phase: Option<String>,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Whether its turn was stopped by the user, so that nobody waits for its answer. One that comes all the same is
    /// recorded like any other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn_stopped: bool,
    /// Whether it was cancelled while a try of it was under way: the ledger has it as one of unknown end until it is heard of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight: bool,
}

/// How an owed call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// To be made now, or under way.
    Due,
    /// To be tried again, not before this moment.
    WaitingUntil(UnixMillis),
    /// A person must decide.
    AwaitingOperator,
    /// To be made once somebody takes it up, not before this moment. The session was copied with it, so whatever became of it
    /// where it was opened, nobody has begun it here.
    Inherited(UnixMillis),
}

/// An answer that asked for tools, until all of them have answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRound {
    /// The call, as it would be wished again.
    pub request: CallRequest,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// In which thread.
    pub thread: ThreadId,
    /// The call at the root.
    pub root_call: CallId,
    /// The how-manieth round.
    pub round_number: u32,
    /// The model's wishes, in its order, with the results so far.
    pub tool_results: Vec<ToolCallResult>,
}

/// A model's wish to run a tool, and what came of it so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallResult {
    /// The model's own id for it.
    pub tool_call_id: String,
    /// What the tool returned, or why it did not.
    pub text: Option<TextRef>,
    /// Whether it did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A timer that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// The flow's name for it.
    pub name: String,
    /// When it fires.
    pub fires_at: UnixMillis,
    /// The turn it was set in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// Where a phase graph stands, and where it stood before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseGraphStatus {
    /// Now.
    pub state: PhaseState,
    /// After each of the latest transitions, oldest first; what a rollback goes back to.
    pub past_states: VecDeque<PhaseState>,
    /// The kinds of handover made during this visit.
    pub handover_kinds: BTreeSet<HandoverKind>,
    /// The turn last counted for this visit.
    pub counted_turn: Option<TurnId>,
}

impl OpenCall {
    /// Whether a try of it is under way, as far as the journal tells: what is due is made, and what waits, is held or was left is not.
    #[must_use]
    pub fn is_due(&self, now: UnixMillis) -> bool {
        match self.status {
            CallStatus::Due => true,
            CallStatus::WaitingUntil(until) => until <= now,
            CallStatus::AwaitingOperator | CallStatus::Inherited(_) => false,
        }
    }
}

/// What is owed to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Make a model call, not before this moment.
    CallModel {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// When.
        not_before: UnixMillis,
    },
    /// Run a tool.
    RunTool {
        /// Which run.
        run: ToolRunId,
    },
    /// Look again at this moment: a timer fires or a phase's time is over.
    Wake {
        /// When.
        at: UnixMillis,
    },
}

impl Session {
    /// Everything owed: what was opened and is not closed.
    #[must_use]
    pub fn pending_effects(&self, spec: &FlowSpec) -> Vec<Effect> {
        let calls = self.open_calls.iter().filter_map(|(call, open)| {
            let not_before = match open.status {
                CallStatus::Due => UnixMillis(0),
                CallStatus::WaitingUntil(until) => until,
                CallStatus::AwaitingOperator | CallStatus::Inherited(_) => return None,
            };
            Some(Effect::CallModel { call: *call, attempt: open.attempt, not_before })
        });
        let tools = self.open_tool_runs.keys().map(|run| Effect::RunTool { run: *run });
        calls.chain(tools).chain(self.next_wake_at(spec).map(|at| Effect::Wake { at })).collect()
    }

    /// When the session wants to be looked at next, if nothing else happens.
    #[must_use]
    pub fn next_wake_at(&self, spec: &FlowSpec) -> Option<UnixMillis> {
        if self.closed_reason.is_some() {
            return None;
        }
        let timers = self.timers.values().map(|timer| timer.fires_at);
        // A phase does not run out in the middle of a turn, nor where no way leads out: to look would change nothing.
        let deadlines = self.phase_graphs.iter().filter(|_| self.current_turn.is_none()).filter_map(|(key, stand)| {
            let graph = spec.graphs.get(&key.graph)?;
            let at = crate::phase::limit::visit_deadline(graph, &stand.state)?;
            crate::phase::limit::expiry_transition(graph, &stand.state, at).map(|_| at)
        });
        timers.chain(deadlines).min()
    }

    /// Whether nothing is owed at once and no turn runs: such a session needs no task.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let nobody_waits = self.queued_messages.is_empty() || self.closed_reason.is_some();
        let has_pending_work = !self.open_calls.is_empty()
            || !self.open_tool_runs.is_empty()
            || !self.deferred_calls.is_empty()
            // A finished round still has to be continued, even if the process that recorded it opens no calls.
            || !self.tool_rounds.is_empty();
        self.current_turn.is_none() && !has_pending_work && nobody_waits
    }

    /// Whether the answer to a call that was given up is wanted when it comes: the flow went on without it, and nobody
    /// stopped it. It is not owed, so no session is kept at work for it.
    #[must_use]
    pub fn awaits_late_answer(&self, call: CallId) -> bool {
        let given_up = self.abandoned_calls.iter().find(|given_up| given_up.call == call);
        self.closed_reason.is_none() && given_up.is_some_and(|given_up| !given_up.turn_stopped)
    }

    /// Whether an event is about a past call that is made once more.
    fn is_about_recomputation(&self, event: &Event) -> bool {
        let again = |call: &CallId| self.open_calls.get(call).is_some_and(|open| open.opened.recomputation.is_some());
        match event {
            Event::CallOpened(opened) => opened.recomputation.is_some(),
            Event::CallAnswered(answered) => again(&answered.call),
            Event::CallFailed { call, .. }
            | Event::CallOutcomeUnknown { call, .. }
            | Event::InheritedCallStarted { call }
            | Event::CallResolved { call, .. }
            | Event::CallCancelled { call, .. } => again(call),
            _ => false,
        }
    }

    /// Whether an event says that a call failed after it had been given up.
    fn is_late_failure(&self, event: &Event) -> bool {
        matches!(event, Event::CallFailed { call, .. } if !self.open_calls.contains_key(call))
    }

    /// Calls that wait for a person's decision.
    pub fn calls_awaiting_operator(&self) -> impl Iterator<Item = (&CallId, &OpenCall)> {
        self.open_calls.iter().filter(|(_, open)| open.status == CallStatus::AwaitingOperator)
    }

    /// The key of the graph that `role` lives by, when `agent` plays it.
    #[must_use]
    pub fn phase_graph_key_for_role(
        spec: &FlowSpec,
        role: &RoleName,
        agent: Option<&AgentName>,
    ) -> Option<PhaseGraphKey> {
        let graph = spec.graphs.get(spec.roles.get(role)?.graph.as_ref()?)?;
        let owner = match (graph.owner_kind, agent) {
            (crate::phase::PhaseOwnerKind::Session, _) => PhaseGraphOwner::Session,
            (crate::phase::PhaseOwnerKind::Agent, Some(agent)) => PhaseGraphOwner::Agent(agent.clone()),
            (crate::phase::PhaseOwnerKind::Role | crate::phase::PhaseOwnerKind::Agent, _) => {
                PhaseGraphOwner::Role(role.clone())
            }
        };
        Some(PhaseGraphKey { graph: graph.name.clone(), owner })
    }

    /// Every graph of the session that stands somewhere: those attached to it and to its roles, and those of agents seen.
    #[must_use]
    pub fn phase_graph_keys(&self, spec: &FlowSpec) -> Vec<PhaseGraphKey> {
        use crate::phase::PhaseOwnerKind;
        let mut keys: Vec<PhaseGraphKey> = Vec::new();
        for graph in spec.graphs.values() {
            let key = |owner: PhaseGraphOwner| PhaseGraphKey { graph: graph.name.clone(), owner };
            match graph.owner_kind {
                PhaseOwnerKind::Session => keys.push(key(PhaseGraphOwner::Session)),
                PhaseOwnerKind::Role => {
                    let roles = spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name));
                    keys.extend(roles.map(|role| key(PhaseGraphOwner::Role(role.name.clone()))));
                }
                PhaseOwnerKind::Agent => {}
            }
        }
        let others: Vec<PhaseGraphKey> = self.phase_graphs.keys().filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(others);
        keys
    }

    /// Where a graph stands; one that was never moved stands at its start.
    #[must_use]
    pub fn phase_graph_status(&self, graph: &PhaseGraph, key: &PhaseGraphKey) -> PhaseGraphStatus {
        self.phase_graphs.get(key).map(|stand| PhaseGraphStatus::clone(stand)).unwrap_or_else(|| PhaseGraphStatus {
            state: PhaseState::new(graph, self.last_event_at),
            past_states: VecDeque::new(),
            handover_kinds: BTreeSet::new(),
            counted_turn: None,
        })
    }

    /// The phase of a graph attached to the session or to its owner, if it ever moved or was counted.
    #[must_use]
    pub fn phase_state(&self, graph: &str, owner: &PhaseGraphOwner) -> Option<&PhaseState> {
        let key = PhaseGraphKey { graph: PhaseGraphName::from(graph), owner: owner.clone() };
        self.phase_graphs.get(&key).map(|stand| &stand.state)
    }

    /// The current phase visit of the role's graph.
    #[must_use]
    pub fn current_visit(&self, spec: &FlowSpec, role: &RoleName, agent: Option<&AgentName>) -> Option<PhaseVisit> {
        let key = Self::phase_graph_key_for_role(spec, role, agent)?;
        let stand = self.phase_graph_status(spec.graphs.get(&key.graph)?, &key);
        Some(PhaseVisit { graph: key.graph, phase: stand.state.current, number: stand.state.visit })
    }

    /// The newest handover of a kind.
    #[must_use]
    pub fn latest_handover(&self, kind: &str) -> Option<&Handover> {
        self.handovers.iter().rev().find(|handover| handover.kind == *kind).map(|handover| &**handover)
    }

    /// The handover of this number, if it is among those kept.
    #[must_use]
    pub fn handover_by_id(&self, id: HandoverId) -> Option<&Handover> {
        self.handovers.iter().find(|handover| handover.id == id).map(|handover| &**handover)
    }

    /// The message an agent would take next: urgent ones first, each lane in its order.
    #[must_use]
    pub fn next_inbox_message(&self, agent: &AgentName) -> Option<&AgentMessageSent> {
        self.inboxes.get(agent)?.iter().min_by_key(|mail| (mail.priority, mail.message))
    }

    /// The phases of the session in a few words, for lists.
    #[must_use]
    pub fn phases_label(&self) -> String {
        let phases = self.phase_graphs.iter().filter(|(key, _)| !matches!(key.owner, PhaseGraphOwner::Agent(_)));
        phases.map(|(_, stand)| stand.state.current.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The window we plan for when a model's card gives `tokens`: less, if the model has refused less. In tokens as its vendor counts.
    #[must_use]
    pub fn effective_window(&self, model: &ModelName, card_tokens: u32) -> u32 {
        let refused = self
            .refused_prompt_tokens
            .get(model)
            .map_or(u32::MAX, |refused| self.token_ratio(model).to_vendor_tokens(*refused));
        card_tokens.min(refused).max(WINDOW_TOKENS_MIN)
    }

    /// What our tokens weigh with a model, as far as it has told.
    #[must_use]
    pub fn token_ratio(&self, model: &ModelName) -> VendorTokenRatio {
        self.token_ratios.get(model).copied().unwrap_or_default()
    }
}

/// Maps whose keys are no strings, as lists of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, D, K, V>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        D: Deserializer<'de>,
        K: DeserializeOwned + Ord,
        V: DeserializeOwned,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
