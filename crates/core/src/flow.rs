//! What a flow is: roles, phases, recipes, and pure functions over them. A flow does no I/O, reads no clock, draws no
//! random number, and has no means to pick a thread.

pub mod artifact;
pub mod settings;
mod spec;
mod step;
mod text_lookup;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::TextRef;
use crate::context::RenderedFragment;
use crate::event::{CallOpened, CallRequest, PhaseGraphKey, RecordedEvent, ToolRunOpened};
use crate::ids::{CallId, FragmentName, TurnId};
use crate::phase::guard::ConditionVerdict;
use crate::prompt::{ChatRole, Prompt};
use crate::session::Session;
use artifact::Artifact;

pub use spec::{
    CompactionPolicy, FlowCommandSpec, FlowSpec, RetryPolicy, RoleSpec, Summarizer, ToolDeclaration, ToolRunner,
    UnknownOutcomePolicy, Visibility,
};
pub use step::{FlowStep, ReplyText};
pub use text_lookup::{BodyTextLookup, TextResolver};

/// The rules of one kind of conversation.
pub trait Flow: Send + Sync + 'static {
    /// What the flow remembers beyond the session's own state: a fold of events like everything else.
    type State: Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Roles, graphs, handovers and tools, as data.
    fn spec(&self) -> &FlowSpec;

    /// What is wrong with a session's settings beyond what each of them takes. A session with such settings is not opened.
    fn validate_settings(&self, _settings: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Folds an event into the flow's state.
    fn apply(&self, _state: &mut Self::State, _event: &RecordedEvent) {}

    /// What is to be done now that `event` is recorded.
    fn react(&self, view: &FlowContext<'_, Self::State>, event: &RecordedEvent) -> Vec<FlowStep>;

    /// The text of a fragment, asked for only when it will be shown.
    fn render_fragment(
        &self,
        view: &FlowContext<'_, Self::State>,
        request: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment;

    /// Judges a named condition of a guard.
    fn evaluate_condition(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _phase: &PhaseGraphKey,
        condition: &str,
    ) -> ConditionVerdict {
        ConditionVerdict::Fails(format!("no condition is called `{condition}`"))
    }

    /// A fact of the flow's own in words, for people who look on; `state` is the flow's after it.
    fn describe_fact(&self, _state: &Self::State, _kind: &str, _value: &Value) -> FactDisplay {
        FactDisplay::Raw
    }

    /// What an answer comes to, in words for people, where it is not meant to be read as it stands; `view` is from before its
    /// call was opened. Texts may not be at hand.
    fn summarize_answer(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _call: &CallOpened,
        _answer: &str,
    ) -> Option<String> {
        None
    }

    /// What the flow puts on show of its state, for whoever looks at a session.
    fn artifacts(&self, _view: &FlowContext<'_, Self::State>) -> Vec<Artifact> {
        Vec::new()
    }

    /// What a stand-in for a model should answer to a call, so that the flow can be tried without one; nothing leaves it to
    /// the stand-in. No model is ever told it. Texts beyond those of `prompt` may not be at hand.
    fn rehearsal_reply(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _call: &CallOpened,
        _prompt: &Prompt,
    ) -> Option<String> {
        None
    }

    /// Whether one of the flow's own commands can be followed now. If so it is recorded, and the flow reacts to that.
    ///
    /// # Errors
    /// It cannot, and why.
    fn check_command(
        &self,
        _view: &FlowContext<'_, Self::State>,
        command: &str,
        _arguments: &Value,
    ) -> Result<(), String> {
        Err(format!("`{command}` cannot be followed"))
    }
}

/// How a fact of a flow's own is told to people. What models are told is the fragments' business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactDisplay {
    /// As it was recorded.
    Raw,
    /// Not at all: something else tells it.
    Hidden,
    /// In these words, to those who look closely.
    Detail(String),
    /// In these words, beside the conversation.
    Notice(String),
}

/// What a flow may look at.
#[derive(Debug)]
pub struct FlowContext<'a, S> {
    /// The session's state.
    pub session: &'a Session,
    /// The flow's own state.
    pub state: &'a S,
    /// Texts by id.
    pub texts: &'a TextResolver<'a>,
    /// The call or tool run that the event is about, also when the event has just closed it.
    pub subject: &'a EventSubject,
}

/// What an event is about.
#[derive(Debug, Clone, Default)]
pub struct EventSubject {
    /// The call.
    pub call: Option<Arc<CallOpened>>,
    /// The tool run.
    pub tool: Option<ToolRunOpened>,
    /// The turn it belongs to; nothing for what goes on beside turns.
    pub turn: Option<TurnId>,
}

impl<S> FlowContext<'_, S> {
    /// The words of a text.
    #[must_use]
    pub fn read_text(&self, text: TextRef) -> Arc<str> {
        self.texts.resolve(text.body)
    }
}

/// A call that a fragment is asked for.
#[derive(Debug)]
pub struct FragmentRequest<'a> {
    /// What was wished.
    pub call_request: &'a CallRequest,
    /// The call's number.
    pub call: CallId,
    /// The turn that runs.
    pub turn: Option<TurnId>,
    /// Whether the call opens its thread, and is shown the opening of its recipe.
    pub opens_thread: bool,
    /// What is being folded, when a thread is shortened.
    pub compacted: Option<&'a CompactedMessages>,
}

/// The part of a thread that is folded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactedMessages {
    /// What was said, in order.
    pub messages: Vec<(ChatRole, String)>,
    /// The summary a model wrote of it, once it has.
    pub summary: Option<String>,
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
    pub fn downcast_ref<S: 'static>(&self) -> Option<&S> {
        self.inner.downcast_ref()
    }

    fn update<S: Clone + Send + Sync + 'static>(&mut self, change: impl FnOnce(&mut S)) {
        // Taken out, so that a state nobody else holds is changed in place.
        let inner = std::mem::replace(&mut self.inner, Arc::new(()));
        let mut state = inner.downcast::<S>().expect("a flow's state is only ever made by that flow");
        change(Arc::make_mut(&mut state));
        self.inner = state;
    }
}

/// A flow with its state's type hidden: what the engine holds.
pub trait DynFlow: Send + Sync {
    /// The flow's data.
    fn spec(&self) -> &FlowSpec;
    /// What is wrong with settings beyond what each takes.
    fn validate_settings(&self, settings: &Value) -> Vec<String>;
    /// The state before any event.
    fn initial_state(&self) -> FlowState;
    /// Folds an event.
    fn apply(&self, state: &mut FlowState, event: &RecordedEvent);
    /// What is to be done.
    fn react(&self, context: DynFlowContext<'_>, event: &RecordedEvent) -> Vec<FlowStep>;
    /// The text of a fragment.
    fn render_fragment(
        &self,
        context: DynFlowContext<'_>,
        request: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment;
    /// Judges a named condition.
    fn evaluate_condition(
        &self,
        context: DynFlowContext<'_>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> ConditionVerdict;
    /// A fact of the flow's own in words.
    fn describe_fact(&self, state: &FlowState, kind: &str, value: &Value) -> FactDisplay;
    /// What an answer comes to, in words for people.
    fn summarize_answer(&self, context: DynFlowContext<'_>, call: &CallOpened, answer: &str) -> Option<String>;
    /// What is on show.
    fn artifacts(&self, context: DynFlowContext<'_>) -> Vec<Artifact>;
    /// What a stand-in for a model should answer.
    fn rehearsal_reply(&self, context: DynFlowContext<'_>, call: &CallOpened, prompt: &Prompt) -> Option<String>;
    /// Whether one of the flow's own commands can be followed now.
    ///
    /// # Errors
    /// It cannot, and why.
    fn check_command(&self, context: DynFlowContext<'_>, command: &str, arguments: &Value) -> Result<(), String>;
    /// The state as JSON, for a snapshot.
    fn serialize_state(&self, state: &FlowState) -> Option<Value>;
    /// The state from a snapshot's JSON.
    fn deserialize_state(&self, value: Value) -> Option<FlowState>;
}

impl<F: Flow> DynFlow for F {
    fn spec(&self) -> &FlowSpec {
        Flow::spec(self)
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        Flow::validate_settings(self, settings)
    }

    fn initial_state(&self) -> FlowState {
        FlowState::new(F::State::default())
    }

    fn apply(&self, state: &mut FlowState, event: &RecordedEvent) {
        state.update::<F::State>(|state| Flow::apply(self, state, event));
    }

    fn react(&self, context: DynFlowContext<'_>, event: &RecordedEvent) -> Vec<FlowStep> {
        Flow::react(self, &context.downcast::<F>(), event)
    }

    fn render_fragment(
        &self,
        context: DynFlowContext<'_>,
        request: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        Flow::render_fragment(self, &context.downcast::<F>(), request, name)
    }

    fn evaluate_condition(
        &self,
        context: DynFlowContext<'_>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> ConditionVerdict {
        Flow::evaluate_condition(self, &context.downcast::<F>(), phase, condition)
    }

    fn describe_fact(&self, state: &FlowState, kind: &str, value: &Value) -> FactDisplay {
        state.downcast_ref::<F::State>().map_or(FactDisplay::Raw, |state| Flow::describe_fact(self, state, kind, value))
    }

    fn summarize_answer(&self, context: DynFlowContext<'_>, call: &CallOpened, answer: &str) -> Option<String> {
        Flow::summarize_answer(self, &context.downcast::<F>(), call, answer)
    }

    fn artifacts(&self, context: DynFlowContext<'_>) -> Vec<Artifact> {
        Flow::artifacts(self, &context.downcast::<F>())
    }

    fn rehearsal_reply(&self, context: DynFlowContext<'_>, call: &CallOpened, prompt: &Prompt) -> Option<String> {
        Flow::rehearsal_reply(self, &context.downcast::<F>(), call, prompt)
    }

    fn check_command(&self, context: DynFlowContext<'_>, command: &str, arguments: &Value) -> Result<(), String> {
        Flow::check_command(self, &context.downcast::<F>(), command, arguments)
    }

    fn serialize_state(&self, state: &FlowState) -> Option<Value> {
        serde_json::to_value(state.downcast_ref::<F::State>()?).ok()
    }

    fn deserialize_state(&self, value: Value) -> Option<FlowState> {
        serde_json::from_value::<F::State>(value).ok().map(FlowState::new)
    }
}

/// What a flow may look at, before its state's type is known.
#[derive(Debug, Clone, Copy)]
pub struct DynFlowContext<'a> {
    /// The session's state.
    pub session: &'a Session,
    /// The flow's own state.
    pub state: &'a FlowState,
    /// Texts by id.
    pub texts: &'a TextResolver<'a>,
    /// What the event is about.
    pub subject: &'a EventSubject,
}

impl<'a> DynFlowContext<'a> {
    fn downcast<F: Flow>(self) -> FlowContext<'a, F::State> {
        let state = self.state.downcast_ref::<F::State>().expect("a flow's state is only ever made by that flow");
        FlowContext { session: self.session, state, texts: self.texts, subject: self.subject }
    }
}
