//! Defines what a flow is: its roles, phases and recipes, and pure functions over them. A flow performs no I/O, reads
//! no clock, uses no randomness, and cannot choose a thread.

pub(crate) mod approval;
pub(crate) mod artifact;
pub(crate) mod settings;
mod spec;
mod step;
mod text_lookup;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::TextRef;
use crate::context::RenderedFragment;
use crate::event::{CallOpened, CallRequest, PhaseGraphKey, RecordedEvent, ToolRunOpened};
use crate::ids::{CallId, FragmentName, TurnId};
use crate::phase::PhaseConditionVerdict;
use crate::prompt::{ChatRole, ModelToolSpec, Prompt, ToolCall};
use crate::session::Session;
use crate::signal::SignalForm;

pub use self::{
    approval::{FlowToolApprovalPolicy, OperatorToolApprovalRules, SessionToolApproval, ToolRunPattern},
    artifact::{
        ArtifactButton, ArtifactChecklistItem, ArtifactChecklistItemStatus, ArtifactGraphEdge, ArtifactGraphNode,
        ArtifactMetric, ArtifactNotesItem, ArtifactTableRow, FlowArtifact, TypedArtifactContent,
    },
    settings::{FlowSettingSpec, FlowSettingType, InvalidFlowSetting, collect_named_models, resolve_settings},
    spec::{
        CompactionPolicy, FlowCommandSpec, FlowSpec, FlowToolDeclaration, PrivateAskKind, RetryPolicy,
        RoleAnswerVisibility, RoleCallLimits, RoleSpec, SummarizerRole, ThreadCompactionThreshold, ToolRunnerKind,
        UnknownOutcomePolicy,
    },
    step::{FlowStep, NewOrStoredReplyText, SpawnChildSessionRequest},
    text_lookup::{BodyTextLookup, DecisionTextResolver},
};

/// The rules of one kind of conversation.
pub trait Flow: Send + Sync + 'static {
    /// State of the flow beyond the session's own. It also results from applying events.
    type State: Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Returns the flow's roles, phase graphs, handovers, tools, settings and commands.
    fn spec(&self) -> &FlowSpec;

    /// Returns the text that defines the flow, if it is not defined by code. A session records it when it is opened, and
    /// runs with this definition from then on, also if the flow changes.
    fn definition(&self) -> Option<&str> {
        None
    }

    /// Returns what is wrong with a session's settings beyond the type of each setting. A session with such settings
    /// cannot be opened.
    fn validate_settings(&self, _settings: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Applies an event to the flow's state.
    fn apply(&self, _state: &mut Self::State, _event: &RecordedEvent) {}

    /// Returns the steps that follow from a recorded event.
    fn react(&self, view: &FlowContext<'_, Self::State>, event: &RecordedEvent) -> Vec<FlowStep>;

    /// Renders a fragment. Called only for fragments that the prompt will contain.
    fn render_fragment(
        &self,
        view: &FlowContext<'_, Self::State>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment;

    /// Describes a declared tool to the model of a call that is about to be offered it; `None` if the tool cannot be used now.
    /// A flow overrides this for tools whose descriptions it learns during a session.
    fn describe_tool<'t>(
        &self,
        _view: &FlowContext<'_, Self::State>,
        declared: &'t ModelToolSpec,
    ) -> Option<Cow<'t, ModelToolSpec>> {
        Some(Cow::Borrowed(declared))
    }

    /// Evaluates a condition that a guard names.
    fn evaluate_condition(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        PhaseConditionVerdict::Fails(format!("there is no condition `{condition}`"))
    }

    /// Describes one of the flow's own facts for people. `state` is the flow's state after the fact.
    fn describe_fact(&self, _state: &Self::State, _kind: &str, _value: &Value) -> FactDisplay {
        FactDisplay::Raw
    }

    /// Summarizes an answer for people, if its text is not meant to be read as it is. `view` is from before the call
    /// was opened, and texts may be missing from it.
    fn summarize_answer(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _call: &CallOpened,
        _answer: &str,
    ) -> Option<String> {
        None
    }

    /// Returns the artifacts to show beside the conversation.
    fn artifacts(&self, _view: &FlowContext<'_, Self::State>) -> Vec<FlowArtifact> {
        Vec::new()
    }

    /// Returns the rehearsal model's answer to a call, or `None` to leave it to that model. Real models never see it.
    /// Texts other than those of `prompt` may be missing.
    fn rehearsal_reply(
        &self,
        _view: &FlowContext<'_, Self::State>,
        _call: &CallOpened,
        _prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        None
    }

    /// Checks whether one of the flow's own commands can be run now. If so, the command is recorded and the flow reacts
    /// to that event.
    ///
    /// # Errors
    /// Fails with the reason if the command cannot be run.
    fn check_command(
        &self,
        _view: &FlowContext<'_, Self::State>,
        command: &str,
        _arguments: &Value,
    ) -> Result<(), String> {
        Err(format!("`{command}` cannot be run now"))
    }
}

/// The rehearsal model's answer to a call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowRehearsalReply {
    /// The text, with placeholders that the model fills in.
    pub text: String,
    /// The tools that it calls.
    pub tool_calls: Vec<ToolCall>,
}

impl From<String> for FlowRehearsalReply {
    fn from(text: String) -> Self {
        Self { text, tool_calls: Vec::new() }
    }
}

/// How one of a flow's own facts is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactDisplay {
    /// As recorded.
    Raw,
    /// Not shown.
    Hidden,
    /// As this text, in detailed views only.
    Detail(String),
    /// As this text, in the conversation view.
    Notice(String),
}

/// The parts of a session that a flow may read. `S` is the flow's own state, or [`DynFlowState`] where its type is erased.
#[derive(Debug)]
pub struct FlowContext<'a, S> {
    pub session: &'a Session,
    pub state: &'a S,
    pub texts: &'a DecisionTextResolver<'a>,
    /// The call or tool run of the event, even if the event has just closed it.
    pub subject: &'a EventSubject,
}

/// The call, tool run and turn that an event belongs to.
#[derive(Debug, Clone, Default)]
pub struct EventSubject {
    pub call: Option<Arc<CallOpened>>,
    pub tool: Option<ToolRunOpened>,
    /// The turn; `None` for events outside turns.
    pub turn: Option<TurnId>,
    /// The phase graph of the role or agent whose work led to the event.
    pub phase_graph: Option<PhaseGraphKey>,
}

impl<S> Clone for FlowContext<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for FlowContext<'_, S> {}

impl<S> FlowContext<'_, S> {
    /// Returns the content of a stored text.
    #[must_use]
    pub fn read_text(&self, text: TextRef) -> Arc<str> {
        self.texts.resolve_or_mark_missing(text.body)
    }
}

/// The call for which a fragment is rendered.
#[derive(Debug)]
pub struct FragmentRenderContext<'a> {
    pub call_request: &'a CallRequest,
    pub call: CallId,
    /// The current turn.
    pub turn: Option<TurnId>,
    /// True if the call opens its thread, so that its prompt contains the opening of the recipe.
    pub opens_thread: bool,
    /// How signals are requested from the model of the call.
    pub signal_form: SignalForm,
    /// The messages that are being folded, if the fragment is part of a compaction.
    pub compacted: Option<&'a MessagesToCompact>,
}

/// The messages of a thread that a compaction folds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagesToCompact {
    pub messages: Vec<(ChatRole, String)>,
    /// The summary that a model wrote, if there is one yet.
    pub summary: Option<String>,
}

/// A flow's state with its type erased. Clones share it.
#[derive(Clone)]
pub struct DynFlowState {
    inner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DynFlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynFlowState")
    }
}

impl DynFlowState {
    fn new<S: Send + Sync + 'static>(state: S) -> Self {
        Self { inner: Arc::new(state) }
    }

    /// Returns the state if it has type `S`.
    #[must_use]
    pub fn downcast_ref<S: 'static>(&self) -> Option<&S> {
        self.inner.downcast_ref()
    }

    fn update<S: Clone + Send + Sync + 'static>(&mut self, change: impl FnOnce(&mut S)) {
        // The value is taken out, so that a state without other owners is changed in place.
        let inner = std::mem::replace(&mut self.inner, Arc::new(()));
        let mut state = inner.downcast::<S>().expect("a flow's state is only ever made by that flow");
        change(Arc::make_mut(&mut state));
        self.inner = state;
    }
}

/// A flow with the type of its state erased. The engine uses this trait. Every [`Flow`] implements it.
pub trait DynFlow: Send + Sync {
    /// See [`Flow::spec`].
    fn spec(&self) -> &FlowSpec;
    /// See [`Flow::definition`].
    fn definition(&self) -> Option<&str>;
    /// See [`Flow::validate_settings`].
    fn validate_settings(&self, settings: &Value) -> Vec<String>;
    /// Returns the state before any event.
    fn initial_state(&self) -> DynFlowState;
    /// See [`Flow::apply`].
    fn apply(&self, state: &mut DynFlowState, event: &RecordedEvent);
    /// See [`Flow::react`].
    fn react(&self, context: FlowContext<'_, DynFlowState>, event: &RecordedEvent) -> Vec<FlowStep>;
    /// See [`Flow::render_fragment`].
    fn render_fragment(
        &self,
        context: FlowContext<'_, DynFlowState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment;
    /// See [`Flow::describe_tool`].
    fn describe_tool<'t>(
        &self,
        context: FlowContext<'_, DynFlowState>,
        declared: &'t ModelToolSpec,
    ) -> Option<Cow<'t, ModelToolSpec>>;
    /// See [`Flow::evaluate_condition`].
    fn evaluate_condition(
        &self,
        context: FlowContext<'_, DynFlowState>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict;
    /// See [`Flow::describe_fact`].
    fn describe_fact(&self, state: &DynFlowState, kind: &str, value: &Value) -> FactDisplay;
    /// See [`Flow::summarize_answer`].
    fn summarize_answer(
        &self,
        context: FlowContext<'_, DynFlowState>,
        call: &CallOpened,
        answer: &str,
    ) -> Option<String>;
    /// See [`Flow::artifacts`].
    fn artifacts(&self, context: FlowContext<'_, DynFlowState>) -> Vec<FlowArtifact>;
    /// See [`Flow::rehearsal_reply`].
    fn rehearsal_reply(
        &self,
        context: FlowContext<'_, DynFlowState>,
        call: &CallOpened,
        prompt: &Prompt,
    ) -> Option<FlowRehearsalReply>;
    /// See [`Flow::check_command`].
    ///
    /// # Errors
    /// Fails with the reason if the command cannot be run.
    fn check_command(
        &self,
        context: FlowContext<'_, DynFlowState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String>;
    /// Returns the state as JSON for a snapshot.
    fn serialize_state(&self, state: &DynFlowState) -> Option<Value>;
    /// Restores the state from a snapshot's JSON.
    fn deserialize_state(&self, value: Value) -> Option<DynFlowState>;
}

impl<F: Flow> DynFlow for F {
    fn spec(&self) -> &FlowSpec {
        Flow::spec(self)
    }

    fn definition(&self) -> Option<&str> {
        Flow::definition(self)
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        Flow::validate_settings(self, settings)
    }

    fn initial_state(&self) -> DynFlowState {
        DynFlowState::new(F::State::default())
    }

    fn apply(&self, state: &mut DynFlowState, event: &RecordedEvent) {
        state.update::<F::State>(|state| Flow::apply(self, state, event));
    }

    fn react(&self, context: FlowContext<'_, DynFlowState>, event: &RecordedEvent) -> Vec<FlowStep> {
        Flow::react(self, &context.downcast::<F>(), event)
    }

    fn render_fragment(
        &self,
        context: FlowContext<'_, DynFlowState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        Flow::render_fragment(self, &context.downcast::<F>(), request, name)
    }

    fn describe_tool<'t>(
        &self,
        context: FlowContext<'_, DynFlowState>,
        declared: &'t ModelToolSpec,
    ) -> Option<Cow<'t, ModelToolSpec>> {
        Flow::describe_tool(self, &context.downcast::<F>(), declared)
    }

    fn evaluate_condition(
        &self,
        context: FlowContext<'_, DynFlowState>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        Flow::evaluate_condition(self, &context.downcast::<F>(), phase, condition)
    }

    fn describe_fact(&self, state: &DynFlowState, kind: &str, value: &Value) -> FactDisplay {
        state.downcast_ref::<F::State>().map_or(FactDisplay::Raw, |state| Flow::describe_fact(self, state, kind, value))
    }

    fn summarize_answer(
        &self,
        context: FlowContext<'_, DynFlowState>,
        call: &CallOpened,
        answer: &str,
    ) -> Option<String> {
        Flow::summarize_answer(self, &context.downcast::<F>(), call, answer)
    }

    fn artifacts(&self, context: FlowContext<'_, DynFlowState>) -> Vec<FlowArtifact> {
        Flow::artifacts(self, &context.downcast::<F>())
    }

    fn rehearsal_reply(
        &self,
        context: FlowContext<'_, DynFlowState>,
        call: &CallOpened,
        prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        Flow::rehearsal_reply(self, &context.downcast::<F>(), call, prompt)
    }

    fn check_command(
        &self,
        context: FlowContext<'_, DynFlowState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        Flow::check_command(self, &context.downcast::<F>(), command, arguments)
    }

    fn serialize_state(&self, state: &DynFlowState) -> Option<Value> {
        serde_json::to_value(state.downcast_ref::<F::State>()?).ok()
    }

    fn deserialize_state(&self, value: Value) -> Option<DynFlowState> {
        serde_json::from_value::<F::State>(value).ok().map(DynFlowState::new)
    }
}

impl<'a> FlowContext<'a, DynFlowState> {
    fn downcast<F: Flow>(self) -> FlowContext<'a, F::State> {
        let state = self.state.downcast_ref::<F::State>().expect("a flow's state is only ever made by that flow");
        FlowContext { session: self.session, state, texts: self.texts, subject: self.subject }
    }
}
