//! A session's state: what follows from its journal, and only what the next decision needs. What is over and decides
//! nothing any more is in the journal alone, so this stays small however long the conversation grows.

mod apply;
mod given_up;
mod plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{Picture, Text};
use crate::context::Mark;
use crate::event::{
    Busy, CallDeferred, CallOpened, CallWish, Event, MessagePosted, Owner, PhaseKey, Recorded, ToolOpened,
};
use crate::flow::{FlowSpec, FlowState, Rules};
use crate::handover::Handover;
use crate::ids::{
    AgentName, CallId, FlowName, GraphName, HandoverId, HandoverKind, IdempotencyKey, MessageId, Millis, ModelName,
    RoleName, Seq, SessionId, ThreadId, TimerId, ToolRunId, TurnId, WorkName,
};
use crate::ledger::Ledger;
use crate::limits::WINDOW_TOKENS_MIN;
use crate::phase::PhaseGraph;
use crate::phase::state::PhaseState;
use crate::scope::{Slot, Visit};
use crate::thread::Thread;
use crate::weight::Weight;

pub(crate) use apply::wish_of;
pub use plan::{Filled, Plan, PlannedMessage};

/// The whole state of a session: its own, and its flow's.
#[derive(Debug, Clone)]
pub struct State {
    /// What every session has.
    pub session: Session,
    /// What its flow remembers.
    pub flow: FlowState,
}

impl State {
    /// The state before any event.
    #[must_use]
    pub fn fresh(rules: &dyn Rules) -> Self {
        Self { session: Session::default(), flow: rules.fresh() }
    }

    /// Folds one event.
    pub fn apply(&mut self, rules: &dyn Rules, event: &Recorded) {
        // What is made once more beside the timeline is none of the flow's business, nor is what it gave up and failed since.
        let is_aside = self.session.is_recomputed(&event.event) || self.session.is_late_failure(&event.event);
        self.session.apply(rules.spec(), event);
        if !is_aside {
            rules.apply(&mut self.flow, event);
        }
    }

    /// The fold of a journal.
    #[must_use]
    pub fn fold<'e>(rules: &dyn Rules, events: impl IntoIterator<Item = &'e Recorded>) -> Self {
        let mut state = Self::fresh(rules);
        for event in events {
            state.apply(rules, event);
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
    pub busy: Busy,
    /// The flow's settings for it.
    pub settings: Arc<Value>,
    /// Models that play roles in it, whatever is configured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cast: BTreeMap<RoleName, ModelName>,
    /// When it was opened.
    pub opened: Millis,
    /// Why it was closed, if it was.
    pub closed: Option<String>,
    /// Place of the last event folded.
    pub seq: Seq,
    /// Time of the last event folded.
    pub at: Millis,
    /// Messages that wait for a turn.
    pub queue: VecDeque<Waiting>,
    /// The turn that runs.
    pub turn: Option<Turn>,
    /// The last turn, if it failed: it can be tried again.
    pub failed: Option<Turn>,
    /// Messages agents left for each other.
    pub inboxes: BTreeMap<AgentName, Vec<MessagePosted>>,
    /// Calls that are owed.
    pub calls: BTreeMap<CallId, OpenCall>,
    /// Calls that wait for another.
    pub deferred: BTreeMap<u32, CallDeferred>,
    /// Calls given up whose answer may still come.
    pub given_up: VecDeque<GivenUp>,
    /// Answers that wait for their tools.
    pub rounds: BTreeMap<CallId, Round>,
    /// Tool runs that are owed.
    pub tools: BTreeMap<ToolRunId, ToolOpened>,
    /// Timers that run.
    pub timers: BTreeMap<TimerId, Timer>,
    /// Threads that a call may still continue.
    pub threads: BTreeMap<ThreadId, Arc<Thread>>,
    /// Which thread stands where.
    #[serde(with = "pairs")]
    pub slots: BTreeMap<Arc<Slot>, ThreadId>,
    /// How often a slot was reset by hand.
    #[serde(with = "pairs")]
    pub resets: BTreeMap<Slot, u32>,
    /// The last prompt of each slot, to compare that of the next thread there with.
    #[serde(with = "pairs")]
    pub marks: BTreeMap<Arc<Slot>, Arc<Mark>>,
    /// Where each phase graph stands.
    #[serde(with = "pairs")]
    pub phases: BTreeMap<PhaseKey, Arc<Stand>>,
    /// Handovers made, newest last.
    pub handovers: Arc<VecDeque<Arc<Handover>>>,
    /// How often each kind of handover was asked for again since one was last made.
    pub asked: BTreeMap<HandoverKind, u32>,
    /// Who works on what.
    pub leases: BTreeMap<AgentName, WorkName>,
    /// What it cost.
    pub ledger: Ledger,
    /// Models that refused a prompt as too long, with its tokens by our count: whatever their cards say, no more than that is tried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub narrow: BTreeMap<ModelName, u32>,
    /// What our tokens weigh with each model, by what it reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<ModelName, Weight>,
    /// Keys of messages accepted lately.
    pub keys: Arc<VecDeque<(IdempotencyKey, MessageId)>>,
    /// What was last said to the user.
    pub last_said: Option<Text>,
    /// The last number given out of each kind.
    pub last: Counters,
}

/// The last number given out of each kind; zero if none was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Messages.
    pub message: MessageId,
    /// Turns.
    pub turn: TurnId,
    /// Calls.
    pub call: CallId,
    /// Threads.
    pub thread: ThreadId,
    /// Tool runs.
    pub tool: ToolRunId,
    /// Timers.
    pub timer: TimerId,
    /// Handovers.
    pub handover: HandoverId,
    /// Deferred calls.
    pub deferred: u32,
}

/// A message that waits for a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Which.
    pub message: MessageId,
    /// What it says.
    pub text: Text,
    /// What was to happen to it if a turn ran.
    #[serde(default)]
    pub busy: Busy,
    /// What the user shows with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Picture>,
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its number.
    pub id: TurnId,
    /// What it answers.
    pub messages: Vec<Waiting>,
    /// When it began.
    pub started: Millis,
    /// Calls opened in it.
    pub calls: u32,
}

/// A call that is owed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// What is owed.
    pub opened: Arc<CallOpened>,
    /// Which try is next, or under way.
    pub attempt: u32,
    /// The first try on the model that makes it now.
    #[serde(default = "first")]
    pub on_model_since: u32,
    /// How it stands.
    pub status: CallStatus,
    /// When it was opened.
    pub since: Millis,
    /// The call at the root of its tool rounds.
    pub root: CallId,
    /// The how-manieth round of tools it brings; 0 for the root.
    pub round: u32,
    /// The graph whose phase it was opened in, for the ledger: `graph/phase`.
    pub account: Option<String>,
}

fn first() -> u32 {
    1
}

/// A call that was given up or cancelled, as far as its late answer needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenUp {
    /// Which.
    pub call: CallId,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// Who would have spoken.
    pub role: RoleName,
    /// On which model.
    pub model: ModelName,
    /// In which phase, for the ledger.
    pub account: Option<String>,
    /// Tokens of its prompt.
    pub tokens: u32,
    /// Whether its turn was stopped by the user, so that nobody waits for its answer. One that comes all the same is
    /// recorded like any other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
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
    Waiting(Millis),
    /// A person must decide.
    Held,
    /// To be made once somebody takes it up, not before this moment. The session was copied with it, so whatever became of it
    /// where it was opened, nobody has begun it here.
    Left(Millis),
}

/// An answer that asked for tools, until all of them have answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The call, as it would be wished again.
    pub wish: CallWish,
    /// In which turn.
    pub turn: Option<TurnId>,
    /// In which thread.
    pub thread: ThreadId,
    /// The call at the root.
    pub root: CallId,
    /// The how-manieth round.
    pub round: u32,
    /// The model's wishes, in its order, with the results so far.
    pub results: Vec<Wished>,
}

/// A model's wish to run a tool, and what came of it so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wished {
    /// The model's own id for it.
    pub id: String,
    /// What the tool returned, or why it did not.
    pub text: Option<Text>,
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
    pub at: Millis,
    /// The turn it was set in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// Where a phase graph stands, and where it stood before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stand {
    /// Now.
    pub now: PhaseState,
    /// After each of the latest transitions, oldest first; what a rollback goes back to.
    pub past: VecDeque<PhaseState>,
    /// The kinds of handover made during this visit.
    pub handed: BTreeSet<HandoverKind>,
    /// The turn last counted for this visit.
    pub counted: Option<TurnId>,
}

impl OpenCall {
    /// Whether a try of it is under way, as far as the journal tells: what is due is made, and what waits, is held or was left is not.
    #[must_use]
    pub fn is_due(&self, now: Millis) -> bool {
        match self.status {
            CallStatus::Due => true,
            CallStatus::Waiting(until) => until <= now,
            CallStatus::Held | CallStatus::Left(_) => false,
        }
    }
}

/// What is owed to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Make a model call, not before this moment.
    Call {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// When.
        not_before: Millis,
    },
    /// Run a tool.
    Tool {
        /// Which run.
        run: ToolRunId,
    },
    /// Look again at this moment: a timer fires or a phase's time is over.
    Wake {
        /// When.
        at: Millis,
    },
}

impl Session {
    /// Everything owed: what was opened and is not closed.
    #[must_use]
    pub fn owed(&self, spec: &FlowSpec) -> Vec<Act> {
        let calls = self.calls.iter().filter_map(|(call, open)| {
            let not_before = match open.status {
                CallStatus::Due => Millis(0),
                CallStatus::Waiting(until) => until,
                CallStatus::Held | CallStatus::Left(_) => return None,
            };
            Some(Act::Call { call: *call, attempt: open.attempt, not_before })
        });
        let tools = self.tools.keys().map(|run| Act::Tool { run: *run });
        calls.chain(tools).chain(self.wake_at(spec).map(|at| Act::Wake { at })).collect()
    }

    /// When the session wants to be looked at next, if nothing else happens.
    #[must_use]
    pub fn wake_at(&self, spec: &FlowSpec) -> Option<Millis> {
        if self.closed.is_some() {
            return None;
        }
        let timers = self.timers.values().map(|timer| timer.at);
        // A phase does not run out in the middle of a turn, nor where no way leads out: to look would change nothing.
        let deadlines = self.phases.iter().filter(|_| self.turn.is_none()).filter_map(|(key, stand)| {
            let graph = spec.graphs.get(&key.graph)?;
            let at = crate::phase::limit::deadline(graph, &stand.now)?;
            crate::phase::limit::expiry(graph, &stand.now, at).map(|_| at)
        });
        timers.chain(deadlines).min()
    }

    /// Whether nothing is owed at once and no turn runs: such a session needs no task.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let nobody_waits = self.queue.is_empty() || self.closed.is_some();
        let owes = !self.calls.is_empty() || !self.tools.is_empty() || !self.deferred.is_empty();
        self.turn.is_none() && !owes && nobody_waits
    }

    /// Whether the answer to a call that was given up is wanted when it comes: the flow went on without it, and nobody
    /// stopped it. It is not owed, so no session is kept at work for it.
    #[must_use]
    pub fn awaits_late(&self, call: CallId) -> bool {
        let given_up = self.given_up.iter().find(|given_up| given_up.call == call);
        self.closed.is_none() && given_up.is_some_and(|given_up| !given_up.stopped)
    }

    /// Whether an event is about a past call that is made once more.
    fn is_recomputed(&self, event: &Event) -> bool {
        let again = |call: &CallId| self.calls.get(call).is_some_and(|open| open.opened.recomputes.is_some());
        match event {
            Event::CallOpened(opened) => opened.recomputes.is_some(),
            Event::CallAnswered(answered) => again(&answered.call),
            Event::CallFailed { call, .. }
            | Event::CallUnknown { call, .. }
            | Event::CallTakenUp { call }
            | Event::CallResolved { call, .. }
            | Event::CallCancelled { call, .. } => again(call),
            _ => false,
        }
    }

    /// Whether an event says that a call failed after it had been given up.
    fn is_late_failure(&self, event: &Event) -> bool {
        matches!(event, Event::CallFailed { call, .. } if !self.calls.contains_key(call))
    }

    /// Calls that wait for a person's decision.
    pub fn held(&self) -> impl Iterator<Item = (&CallId, &OpenCall)> {
        self.calls.iter().filter(|(_, open)| open.status == CallStatus::Held)
    }

    /// The key of the graph that `role` lives by, when `agent` plays it.
    #[must_use]
    pub fn phase_key(spec: &FlowSpec, role: &RoleName, agent: Option<&AgentName>) -> Option<PhaseKey> {
        let graph = spec.graphs.get(spec.roles.get(role)?.graph.as_ref()?)?;
        let owner = match (graph.attached, agent) {
            (crate::phase::Attached::Session, _) => Owner::Session,
            (crate::phase::Attached::Agent, Some(agent)) => Owner::Agent(agent.clone()),
            (crate::phase::Attached::Role | crate::phase::Attached::Agent, _) => Owner::Role(role.clone()),
        };
        Some(PhaseKey { graph: graph.name.clone(), owner })
    }

    /// Every graph of the session that stands somewhere: those attached to it and to its roles, and those of agents seen.
    #[must_use]
    pub fn phase_keys(&self, spec: &FlowSpec) -> Vec<PhaseKey> {
        use crate::phase::Attached;
        let mut keys: Vec<PhaseKey> = Vec::new();
        for graph in spec.graphs.values() {
            let key = |owner: Owner| PhaseKey { graph: graph.name.clone(), owner };
            match graph.attached {
                Attached::Session => keys.push(key(Owner::Session)),
                Attached::Role => {
                    let roles = spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name));
                    keys.extend(roles.map(|role| key(Owner::Role(role.name.clone()))));
                }
                Attached::Agent => {}
            }
        }
        let others: Vec<PhaseKey> = self.phases.keys().filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(others);
        keys
    }

    /// Where a graph stands; one that was never moved stands at its start.
    #[must_use]
    pub fn stand(&self, graph: &PhaseGraph, key: &PhaseKey) -> Stand {
        self.phases.get(key).map(|stand| Stand::clone(stand)).unwrap_or_else(|| Stand {
            now: PhaseState::begin(graph, self.at),
            past: VecDeque::new(),
            handed: BTreeSet::new(),
            counted: None,
        })
    }

    /// The phase of a graph attached to the session or to its owner, if it ever moved or was counted.
    #[must_use]
    pub fn phase(&self, graph: &str, owner: &Owner) -> Option<&PhaseState> {
        let key = PhaseKey { graph: GraphName::from(graph), owner: owner.clone() };
        self.phases.get(&key).map(|stand| &stand.now)
    }

    /// The current phase visit of the role's graph.
    #[must_use]
    pub fn visit(&self, spec: &FlowSpec, role: &RoleName, agent: Option<&AgentName>) -> Option<Visit> {
        let key = Self::phase_key(spec, role, agent)?;
        let stand = self.stand(spec.graphs.get(&key.graph)?, &key);
        Some(Visit { graph: key.graph, phase: stand.now.current, visit: stand.now.visit })
    }

    /// The newest handover of a kind.
    #[must_use]
    pub fn handover(&self, kind: &str) -> Option<&Handover> {
        self.handovers.iter().rev().find(|handover| handover.kind == *kind).map(|handover| &**handover)
    }

    /// The handover of this number, if it is among those kept.
    #[must_use]
    pub fn handover_made(&self, id: HandoverId) -> Option<&Handover> {
        self.handovers.iter().find(|handover| handover.id == id).map(|handover| &**handover)
    }

    /// The message an agent would take next: urgent ones first, each lane in its order.
    #[must_use]
    pub fn next_mail(&self, agent: &AgentName) -> Option<&MessagePosted> {
        self.inboxes.get(agent)?.iter().min_by_key(|mail| (mail.lane, mail.message))
    }

    /// The phases of the session in a few words, for lists.
    #[must_use]
    pub fn phase_label(&self) -> String {
        let phases = self.phases.iter().filter(|(key, _)| !matches!(key.owner, Owner::Agent(_)));
        phases.map(|(_, stand)| stand.now.current.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The window we plan for when a model's card gives `tokens`: less, if the model has refused less. In tokens as its vendor counts.
    #[must_use]
    pub fn window(&self, model: &ModelName, tokens: u32) -> u32 {
        let refused = self.narrow.get(model).map_or(u32::MAX, |refused| self.weight(model).theirs(*refused));
        tokens.min(refused).max(WINDOW_TOKENS_MIN)
    }

    /// What our tokens weigh with a model, as far as it has told.
    #[must_use]
    pub fn weight(&self, model: &ModelName) -> Weight {
        self.weights.get(model).copied().unwrap_or_default()
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
