//! What a flow is: roles, phases, recipes, and pure functions over them. A flow does no I/O, reads no clock, draws no
//! random number, and has no means to pick a thread.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::{BodyId, Text};
use crate::context::{FragmentSpec, Recipe, Rendered};
use crate::event::{CallOpened, CallWish, Lane, Outcome, PhaseKey, Recorded, ToolOpened, ToolOutcome};
use crate::handover::{Document, Provenance, Schema};
use crate::ids::{
    AgentName, AskName, CallId, FlowName, FragmentName, GraphName, HandoverKind, MessageId, RoleName, ToolName,
    ToolRunId, TurnId, WorkName,
};
use crate::phase::PhaseGraph;
use crate::phase::guard::Verdict;
use crate::phase::state::Proposal;
use crate::prompt::{Output, Speaker, ToolSpec};
use crate::scope::{Scope, Until};
use crate::session::Session;
use crate::signal::BlockNames;

/// The rules of one kind of conversation.
pub trait Flow: Send + Sync + 'static {
    /// What the flow remembers beyond the session's own state: a fold of events like everything else.
    type State: Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Roles, graphs, handovers and tools, as data.
    fn spec(&self) -> &FlowSpec;

    /// Folds an event into the flow's state.
    fn apply(&self, _state: &mut Self::State, _event: &Recorded) {}

    /// What is to be done now that `event` is recorded.
    fn react(&self, view: &View<'_, Self::State>, event: &Recorded) -> Vec<Step>;

    /// The text of a fragment, asked for only when it will be shown.
    fn fragment(&self, view: &View<'_, Self::State>, asking: &Asking<'_>, name: &FragmentName) -> Rendered;

    /// Judges a named condition of a guard.
    fn holds(&self, _view: &View<'_, Self::State>, _phase: &PhaseKey, condition: &str) -> Verdict {
        Verdict::No(format!("no condition is called `{condition}`"))
    }
}

/// A flow's data.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    /// Its name.
    pub name: FlowName,
    /// What it is for, in a sentence.
    pub about: String,
    /// Who speaks.
    pub roles: BTreeMap<RoleName, RoleSpec>,
    /// Phase graphs.
    pub graphs: BTreeMap<GraphName, PhaseGraph>,
    /// Documents that cross scope boundaries.
    pub handovers: BTreeMap<HandoverKind, Schema>,
    /// What models may call.
    pub tools: BTreeMap<ToolName, ToolDef>,
}

impl FlowSpec {
    /// A flow with nothing in it yet.
    #[must_use]
    pub fn new(name: &str, about: &str) -> Self {
        Self {
            name: name.into(),
            about: about.to_owned(),
            roles: BTreeMap::new(),
            graphs: BTreeMap::new(),
            handovers: BTreeMap::new(),
            tools: BTreeMap::new(),
        }
    }

    /// The same with a role.
    #[must_use]
    pub fn role(mut self, role: RoleSpec) -> Self {
        self.roles.insert(role.name.clone(), role);
        self
    }

    /// The same with a graph.
    #[must_use]
    pub fn graph(mut self, graph: PhaseGraph) -> Self {
        self.graphs.insert(graph.name.clone(), graph);
        self
    }

    /// The same with a kind of handover.
    #[must_use]
    pub fn handover(mut self, schema: Schema) -> Self {
        self.handovers.insert(schema.kind.clone(), schema);
        self
    }

    /// The same with a tool.
    #[must_use]
    pub fn tool(mut self, tool: ToolDef) -> Self {
        self.tools.insert(tool.spec.name.clone(), tool);
        self
    }

    /// What is wrong with the flow's data; an engine refuses a flow with faults.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for role in self.roles.values() {
            let mut fault = |text: String| faults.push(format!("role `{}`: {text}", role.name));
            role.recipe.faults().into_iter().for_each(&mut fault);
            if let Some(graph) = role.graph.as_ref().filter(|graph| !self.graphs.contains_key(*graph)) {
                fault(format!("there is no graph `{graph}`"));
            }
            for tool in role.tools.iter().filter(|tool| !self.tools.contains_key(*tool)) {
                fault(format!("there is no tool `{tool}`"));
            }
            if let Some(by) = &role.compaction.by
                && !self.roles.get(&by.role).is_some_and(|role| role.recipe.asks.contains_key(&by.ask))
            {
                fault(format!("its compaction asks `{}` for `{}`, which is not there", by.role, by.ask));
            }
            if let Some(by) = &role.compaction.by
                && self.roles.get(&by.role).is_some_and(|by| by.scope != Scope::Fresh || !by.tools.is_empty())
            {
                fault(format!("`{}`, who writes its summaries, must be fresh and use no tools", by.role));
            }
            if role.graph.is_none() && role.scope.ends_with(Until::Phase) {
                fault("its memory lasts a phase visit, and it lives by no graph".to_owned());
            }
        }
        for graph in self.graphs.values() {
            if let Err(found) = graph.validate() {
                faults.extend(found.iter().map(|fault| format!("graph `{}`: {fault}", graph.name)));
            }
        }
        faults
    }
}

/// Who speaks, and by what rules.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleSpec {
    /// Its name.
    pub name: RoleName,
    /// How far its memory reaches.
    pub scope: Scope,
    /// The phase graph it lives by.
    pub graph: Option<GraphName>,
    /// What it is shown.
    pub recipe: Recipe,
    /// What form its answer must have.
    pub output: Output,
    /// What it may call.
    pub tools: Vec<ToolName>,
    /// Who hears it.
    pub audience: Audience,
    /// Its longest answer.
    pub reply_tokens_max: u32,
    /// How long we wait for an answer.
    pub timeout_ms: u64,
    /// How often a passing failure is tried again.
    pub retries: Retries,
    /// What happens to a call that was in flight when the process died.
    pub unknown: UnknownPolicy,
    /// How its thread is shortened when it no longer fits.
    pub compaction: Compaction,
}

impl RoleSpec {
    /// A private role with this memory and plain text answers.
    #[must_use]
    pub fn new(name: &str, scope: Scope) -> Self {
        Self {
            name: name.into(),
            scope,
            graph: None,
            recipe: Recipe::default(),
            output: Output::Text,
            tools: Vec::new(),
            audience: Audience::Private,
            reply_tokens_max: 4_096,
            timeout_ms: 120_000,
            retries: Retries::default(),
            unknown: UnknownPolicy::Retry,
            compaction: Compaction::default(),
        }
    }

    /// The same with an opening fragment more.
    #[must_use]
    pub fn opens_with(mut self, spec: FragmentSpec) -> Self {
        self.recipe.opening.push(spec);
        self
    }

    /// The same with an ask of these fragments.
    #[must_use]
    pub fn ask(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.recipe.asks.insert(name.into(), fragments.into_iter().collect());
        self
    }

    /// The same, living by a graph.
    #[must_use]
    pub fn lives_by(mut self, graph: &str) -> Self {
        self.graph = Some(graph.into());
        self
    }

    /// The same, heard by the user as it speaks; blocks of these names are hidden.
    #[must_use]
    pub fn heard_by_user(mut self, blocks: BlockNames) -> Self {
        self.audience = Audience::User { blocks };
        self
    }

    /// The same with a tool more.
    #[must_use]
    pub fn may_use(mut self, tool: &str) -> Self {
        self.tools.push(tool.into());
        self
    }
}

/// Who hears a role while it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// The user, except for what stands in these blocks.
    User {
        /// Names of the hidden blocks.
        blocks: BlockNames,
    },
    /// Nobody; its answer is the flow's.
    Private,
}

/// How often and how fast a passing failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all.
    pub attempts_max: u32,
    /// Wait before the second try; doubles with each further one.
    pub backoff_ms: u64,
    /// Longest wait.
    pub backoff_ms_max: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts_max: 4, backoff_ms: 500, backoff_ms_max: 30_000 }
    }
}

impl Retries {
    /// The wait before try `attempt`, with a jitter of up to half of it; `chance` is any number.
    #[must_use]
    pub fn wait_ms(&self, attempt: u32, chance: u64) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << attempt.saturating_sub(2).min(20));
        let wait = doubled.min(self.backoff_ms_max);
        wait / 2 + chance % (wait / 2 + 1)
    }
}

/// What happens to a call that was in flight when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPolicy {
    /// It is made again.
    Retry,
    /// A person decides.
    Ask,
    /// It has failed.
    Fail,
}

/// How a thread is shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Who writes the summary; nobody: the flow's own words stand in for what is folded.
    pub by: Option<Summariser>,
    /// The fragment that stands in the place of what was folded. The flow fills it.
    pub stands: FragmentName,
    /// Most tokens of the summary.
    pub tokens_max: u32,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { by: None, stands: crate::context::COMPACTION.into(), tokens_max: 1_024 }
    }
}

/// Who writes a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summariser {
    /// The role; it is fresh and has no tools.
    pub role: RoleName,
    /// What it is asked.
    pub ask: AskName,
}

/// A tool as a flow declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDef {
    /// As models are told of it.
    pub spec: ToolSpec,
    /// Who runs it.
    pub runs: Runs,
    /// What happens to a run that was under way when the process died.
    pub unknown: UnknownPolicy,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The flow answers it itself, purely.
    Flow,
    /// The engine's tool host.
    Host,
}

/// What a flow wants done. The core checks each and records what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Call a model.
    Call(CallWish),
    /// Say something to the user.
    Say {
        /// What.
        text: Speech,
        /// By whom.
        by: Option<RoleName>,
        /// The call it came from.
        call: Option<CallId>,
    },
    /// End the turn that runs.
    EndTurn(Outcome),
    /// Propose a phase.
    Propose {
        /// Whose graph.
        phase: PhaseKey,
        /// What.
        proposal: Proposal,
    },
    /// Make a handover.
    Hand {
        /// Of which kind.
        kind: HandoverKind,
        /// What it says.
        document: Document,
        /// The calls it came from.
        calls: Vec<CallId>,
        /// How it came about.
        how: Provenance,
    },
    /// Note that a handover is asked for again.
    AskHandover(HandoverKind),
    /// Record a fact of the flow's own.
    Note {
        /// Its kind.
        kind: String,
        /// What it says.
        value: Value,
    },
    /// Run a tool that no model asked for.
    RunTool {
        /// Which.
        tool: ToolName,
        /// With what.
        arguments: Value,
        /// On whose behalf.
        agent: Option<AgentName>,
    },
    /// Answer a tool that the flow runs itself.
    AnswerTool {
        /// Which run.
        run: ToolRunId,
        /// Whether it did what was asked.
        outcome: ToolOutcome,
        /// What it returns.
        text: String,
    },
    /// Start a timer; one of the same name is replaced.
    SetTimer {
        /// Its name.
        name: String,
        /// When it fires.
        after_ms: u64,
    },
    /// Stop a timer.
    StopTimer {
        /// Its name.
        name: String,
    },
    /// Leave a message for an agent.
    Post {
        /// From whom.
        from: AgentName,
        /// To whom.
        to: AgentName,
        /// How soon it is taken.
        lane: Lane,
        /// What kind of message.
        topic: String,
        /// What it says.
        text: String,
        /// The message it answers.
        answers: Option<MessageId>,
    },
    /// Take the next message from an agent's inbox; the flow hears of it as an event.
    Take {
        /// Whose inbox.
        agent: AgentName,
    },
    /// Say what an agent works on.
    Lease {
        /// Who.
        agent: AgentName,
        /// On what.
        work: Option<WorkName>,
    },
    /// Have a role forget what it remembers there, from its next call on.
    Forget {
        /// Whose memory, as a call would name it.
        wish: CallWish,
        /// Why.
        reason: String,
    },
    /// Stop a call.
    Cancel {
        /// Which.
        call: CallId,
        /// Why.
        reason: String,
    },
    /// Give the session a title.
    Title(String),
    /// Close the session.
    Close {
        /// Why.
        reason: String,
    },
}

/// What is said: new words, or a text that is stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speech {
    /// New words.
    New(String),
    /// Words that are stored.
    Stored(Text),
}

/// What a flow may look at.
#[derive(Debug)]
pub struct View<'a, S> {
    /// The session's state.
    pub session: &'a Session,
    /// The flow's own state.
    pub state: &'a S,
    /// Texts by id.
    pub texts: &'a Texts<'a>,
    /// The call or tool run that the event is about, also when the event has just closed it.
    pub about: &'a About,
}

/// What an event is about.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The call.
    pub call: Option<Arc<CallOpened>>,
    /// The tool run.
    pub tool: Option<ToolOpened>,
    /// The turn it belongs to; nothing for what goes on beside turns.
    pub turn: Option<TurnId>,
}

impl<S> View<'_, S> {
    /// The words of a text.
    #[must_use]
    pub fn text(&self, text: Text) -> Arc<str> {
        self.texts.get(text.body)
    }
}

/// A call that a fragment is asked for.
#[derive(Debug)]
pub struct Asking<'a> {
    /// What was wished.
    pub wish: &'a CallWish,
    /// The call's number.
    pub call: CallId,
    /// The turn that runs.
    pub turn: Option<TurnId>,
    /// What is being folded, when a thread is shortened.
    pub folding: Option<&'a Folding>,
}

/// The part of a thread that is folded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folding {
    /// What was said, in order.
    pub entries: Vec<(Speaker, String)>,
    /// The summary a model wrote of it, once it has.
    pub summary: Option<String>,
}

/// Finds stored texts. The engine hands one in; it must not change its mind within one decision.
pub trait Lookup {
    /// The text with this id, if it is at hand.
    fn find(&self, id: BodyId) -> Option<Arc<str>>;
}

/// Texts a decision can read: those it makes, and those at hand. It notes which were wanted and not at hand, so that the
/// decision can be taken anew once they are.
pub struct Texts<'a> {
    pub(crate) new: BTreeMap<BodyId, Arc<str>>,
    known: &'a dyn Lookup,
    missing: RefCell<BTreeSet<BodyId>>,
}

impl fmt::Debug for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").field("new", &self.new.len()).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl<'a> Texts<'a> {
    /// Texts at hand.
    #[must_use]
    pub fn new(known: &'a dyn Lookup) -> Self {
        Self { new: BTreeMap::new(), known, missing: RefCell::default() }
    }

    /// The words, or nothing for the time being: the decision is then taken anew with them at hand.
    #[must_use]
    pub fn get(&self, id: BodyId) -> Arc<str> {
        if let Some(text) = self.new.get(&id) {
            return text.clone();
        }
        self.known.find(id).unwrap_or_else(|| {
            self.missing.borrow_mut().insert(id);
            "".into()
        })
    }

    pub(crate) fn missing(&self) -> Vec<BodyId> {
        self.missing.borrow().iter().copied().collect()
    }
}

/// A flow's state with its type hidden. Cloning shares it.
#[derive(Clone)]
pub struct FlowState {
    inner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for FlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowState")
    }
}

impl FlowState {
    fn new<S: Send + Sync + 'static>(state: S) -> Self {
        Self { inner: Arc::new(state) }
    }

    /// The state, if it is of this type.
    #[must_use]
    pub fn get<S: 'static>(&self) -> Option<&S> {
        self.inner.downcast_ref()
    }

    fn change<S: Clone + Send + Sync + 'static>(&mut self, change: impl FnOnce(&mut S)) {
        // Taken out, so that a state nobody else holds is changed in place.
        let inner = std::mem::replace(&mut self.inner, Arc::new(()));
        let mut state = inner.downcast::<S>().expect("a flow's state is only ever made by that flow");
        change(Arc::make_mut(&mut state));
        self.inner = state;
    }
}

/// A flow with its state's type hidden: what the engine holds.
pub trait Rules: Send + Sync {
    /// The flow's data.
    fn spec(&self) -> &FlowSpec;
    /// The state before any event.
    fn fresh(&self) -> FlowState;
    /// Folds an event.
    fn apply(&self, state: &mut FlowState, event: &Recorded);
    /// What is to be done.
    fn react(&self, sight: Sight<'_>, event: &Recorded) -> Vec<Step>;
    /// The text of a fragment.
    fn fragment(&self, sight: Sight<'_>, asking: &Asking<'_>, name: &FragmentName) -> Rendered;
    /// Judges a named condition.
    fn holds(&self, sight: Sight<'_>, phase: &PhaseKey, condition: &str) -> Verdict;
    /// The state as JSON, for a snapshot.
    fn save(&self, state: &FlowState) -> Option<Value>;
    /// The state from a snapshot's JSON.
    fn load(&self, value: Value) -> Option<FlowState>;
}

impl<F: Flow> Rules for F {
    fn spec(&self) -> &FlowSpec {
        Flow::spec(self)
    }

    fn fresh(&self) -> FlowState {
        FlowState::new(F::State::default())
    }

    fn apply(&self, state: &mut FlowState, event: &Recorded) {
        state.change::<F::State>(|state| Flow::apply(self, state, event));
    }

    fn react(&self, sight: Sight<'_>, event: &Recorded) -> Vec<Step> {
        Flow::react(self, &sight.view::<F>(), event)
    }

    fn fragment(&self, sight: Sight<'_>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        Flow::fragment(self, &sight.view::<F>(), asking, name)
    }

    fn holds(&self, sight: Sight<'_>, phase: &PhaseKey, condition: &str) -> Verdict {
        Flow::holds(self, &sight.view::<F>(), phase, condition)
    }

    fn save(&self, state: &FlowState) -> Option<Value> {
        serde_json::to_value(state.get::<F::State>()?).ok()
    }

    fn load(&self, value: Value) -> Option<FlowState> {
        serde_json::from_value::<F::State>(value).ok().map(FlowState::new)
    }
}

/// What a flow may look at, before its state's type is known.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// The session's state.
    pub session: &'a Session,
    /// The flow's own state.
    pub state: &'a FlowState,
    /// Texts by id.
    pub texts: &'a Texts<'a>,
    /// What the event is about.
    pub about: &'a About,
}

impl<'a> Sight<'a> {
    fn view<F: Flow>(self) -> View<'a, F::State> {
        let state = self.state.get::<F::State>().expect("a flow's state is only ever made by that flow");
        View { session: self.session, state, texts: self.texts, about: self.about }
    }
}
