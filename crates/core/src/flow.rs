//! What a flow is: roles, phases, recipes, and pure functions over them. A flow does no I/O, reads no clock, draws no
//! random number, and has no means to pick a thread.

pub mod exhibit;
pub mod settings;
mod spec;
mod step;
mod texts;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::Text;
use crate::context::Rendered;
use crate::event::{CallOpened, CallWish, PhaseKey, Recorded, ToolOpened};
use crate::ids::{CallId, FragmentName, TurnId};
use crate::phase::guard::Verdict;
use crate::prompt::{Prompt, Speaker};
use crate::session::Session;
use exhibit::Exhibit;

pub use spec::{
    Audience, CommandSpec, Compaction, FlowSpec, Retries, RoleSpec, Runs, Summariser, ToolDef, UnknownPolicy,
};
pub use step::{Speech, Step};
pub use texts::{Lookup, Texts};

/// The rules of one kind of conversation.
pub trait Flow: Send + Sync + 'static {
    /// What the flow remembers beyond the session's own state: a fold of events like everything else.
    type State: Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Roles, graphs, handovers and tools, as data.
    fn spec(&self) -> &FlowSpec;

    /// What is wrong with a session's settings beyond what each of them takes. A session with such settings is not opened.
    fn unfit(&self, _settings: &Value) -> Vec<String> {
        Vec::new()
    }

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

    /// A fact of the flow's own in words, for people who look on; `state` is the flow's after it.
    fn tell(&self, _state: &Self::State, _kind: &str, _value: &Value) -> Telling {
        Telling::AsItStands
    }

    /// What an answer comes to, in words for people, where it is not meant to be read as it stands; `view` is from before its
    /// call was opened. Texts may not be at hand.
    fn gist(&self, _view: &View<'_, Self::State>, _call: &CallOpened, _answer: &str) -> Option<String> {
        None
    }

    /// What the flow puts on show of its state, for whoever looks at a session.
    fn exhibits(&self, _view: &View<'_, Self::State>) -> Vec<Exhibit> {
        Vec::new()
    }

    /// What a stand-in for a model should answer to a call, so that the flow can be tried without one; nothing leaves it to
    /// the stand-in. No model is ever told it. Texts beyond those of `prompt` may not be at hand.
    fn rehearse(&self, _view: &View<'_, Self::State>, _call: &CallOpened, _prompt: &Prompt) -> Option<String> {
        None
    }

    /// Whether one of the flow's own commands can be followed now. If so it is recorded, and the flow reacts to that.
    ///
    /// # Errors
    /// It cannot, and why.
    fn permits(&self, _view: &View<'_, Self::State>, command: &str, _arguments: &Value) -> Result<(), String> {
        Err(format!("`{command}` cannot be followed"))
    }
}

/// How a fact of a flow's own is told to people. What models are told is the fragments' business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Telling {
    /// As it was recorded.
    AsItStands,
    /// Not at all: something else tells it.
    Nothing,
    /// In these words, to those who look closely.
    Detail(String),
    /// In these words, beside the conversation.
    News(String),
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
    /// Whether the call opens its thread, and is shown the opening of its recipe.
    pub opens: bool,
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
    /// What is wrong with settings beyond what each takes.
    fn unfit(&self, settings: &Value) -> Vec<String>;
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
    /// A fact of the flow's own in words.
    fn tell(&self, state: &FlowState, kind: &str, value: &Value) -> Telling;
    /// What an answer comes to, in words for people.
    fn gist(&self, sight: Sight<'_>, call: &CallOpened, answer: &str) -> Option<String>;
    /// What is on show.
    fn exhibits(&self, sight: Sight<'_>) -> Vec<Exhibit>;
    /// What a stand-in for a model should answer.
    fn rehearse(&self, sight: Sight<'_>, call: &CallOpened, prompt: &Prompt) -> Option<String>;
    /// Whether one of the flow's own commands can be followed now.
    ///
    /// # Errors
    /// It cannot, and why.
    fn permits(&self, sight: Sight<'_>, command: &str, arguments: &Value) -> Result<(), String>;
    /// The state as JSON, for a snapshot.
    fn save(&self, state: &FlowState) -> Option<Value>;
    /// The state from a snapshot's JSON.
    fn load(&self, value: Value) -> Option<FlowState>;
}

impl<F: Flow> Rules for F {
    fn spec(&self) -> &FlowSpec {
        Flow::spec(self)
    }

    fn unfit(&self, settings: &Value) -> Vec<String> {
        Flow::unfit(self, settings)
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

    fn tell(&self, state: &FlowState, kind: &str, value: &Value) -> Telling {
        state.get::<F::State>().map_or(Telling::AsItStands, |state| Flow::tell(self, state, kind, value))
    }

    fn gist(&self, sight: Sight<'_>, call: &CallOpened, answer: &str) -> Option<String> {
        Flow::gist(self, &sight.view::<F>(), call, answer)
    }

    fn exhibits(&self, sight: Sight<'_>) -> Vec<Exhibit> {
        Flow::exhibits(self, &sight.view::<F>())
    }

    fn rehearse(&self, sight: Sight<'_>, call: &CallOpened, prompt: &Prompt) -> Option<String> {
        Flow::rehearse(self, &sight.view::<F>(), call, prompt)
    }

    fn permits(&self, sight: Sight<'_>, command: &str, arguments: &Value) -> Result<(), String> {
        Flow::permits(self, &sight.view::<F>(), command, arguments)
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
