//! From a state and an input to the events that follow, all of them, in one piece: the input's own, the flow's
//! reactions, and what the rules make of those. Pure: nothing is changed, and the same arguments give the same decision.

mod calls;
mod cancellation;
mod compaction;
mod draft;
mod inputs;
mod phases;
mod recompute;
mod steps;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, TextBody};
use crate::context::TokenCounter;
use crate::event::{MidTurnPolicy, PhaseGraphKey, RecordedEvent, SessionOpened};
use crate::flow::{BodyTextLookup, DynFlow};
use crate::ids::{
    AgentName, CallId, FlowName, IdempotencyKey, MessageId, ModelName, PhaseName, RoleName, Seq, SessionId, ToolRunId,
    UnixMillis,
};
use crate::prompt::{CallFailure, ModelReply, PromptImage};
use crate::session::SessionState;
use draft::DecisionDraft;

pub use recompute::{PreparedRecomputation, RecomputeOptions, prepare_recomputation};

/// What arrives.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionInput {
    /// A session begins.
    Open(SessionOpened),
    /// A copy of a session's journal begins a life of its own.
    Forked {
        /// Its name.
        session: SessionId,
        /// The one it was copied from.
        from: SessionId,
        /// Up to where.
        at: Seq,
    },
    /// A user's message.
    Message {
        /// What it says.
        text: String,
        /// What the client calls it: the same key again is the same message.
        idempotency_key: Option<IdempotencyKey>,
        /// What happens to it while a turn runs; the session's own policy if not given.
        mid_turn_policy: Option<MidTurnPolicy>,
        /// What the user shows with it.
        images: Vec<PromptImage>,
    },
    /// A model's answer.
    Answer {
        /// To which call.
        call: CallId,
        /// To which try.
        attempt: u32,
        /// What it says.
        reply: ModelReply,
        /// What it cost, in millionths of a dollar, where that is known.
        cost_microusd: Option<u64>,
        /// How long it took.
        duration_ms: u64,
    },
    /// A call brought no answer.
    CallFailure {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// Why.
        failure: CallFailure,
    },
    /// A tool's result.
    ToolResult {
        /// Which run.
        run: ToolRunId,
        /// What it returned, or why it did not.
        result: Result<String, String>,
    },
    /// Time has passed: timers fire and phases run out.
    Tick,
    /// The process that ran the session died: what was in flight has an unknown end.
    Recovered,
    /// What a person at the controls wants.
    Operator(OperatorCommand),
    /// A past call is to be made once more, beside the timeline.
    Recompute(Box<PreparedRecomputation>),
}

/// What a person at the controls can want.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorCommand {
    /// Stop the turn that runs.
    Cancel,
    /// Try the last turn again, which failed. What was answered in it is not asked again where the flow can go on from it.
    Retry,
    /// Decide about a call whose end is not known.
    Resolve {
        /// Which.
        call: CallId,
        /// What to do.
        resolution: UnknownCallResolution,
    },
    /// Allow a skip.
    Grant {
        /// Of which graph.
        phase: PhaseGraphKey,
        /// To which phase.
        to: PhaseName,
    },
    /// Propose a phase.
    Propose {
        /// Of which graph.
        phase: PhaseGraphKey,
        /// Which.
        to: PhaseName,
        /// Why.
        reason: Option<String>,
    },
    /// Go back to an earlier visit; nothing is deleted.
    RollBack {
        /// Of which graph.
        phase: PhaseGraphKey,
        /// Which visit.
        visit: u32,
    },
    /// Have a role forget, from its next call on.
    Forget {
        /// Whose memory.
        role: RoleName,
        /// Of which individual.
        agent: Option<AgentName>,
        /// Of the talk with whom.
        peer: Option<AgentName>,
    },
    /// Give the session a title.
    Rename {
        /// The title.
        title: String,
    },
    /// Do what the flow itself offers.
    Flow {
        /// What, by the name the flow gives it.
        command: String,
        /// How.
        #[serde(default)]
        arguments: serde_json::Value,
    },
    /// Close the session.
    Close,
}

/// What to do about a call whose end is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCallResolution {
    /// Make it again, though it may be billed twice.
    Retry,
    /// Take it as failed.
    Fail,
}

/// What a decision may know beyond the state: all of it handed in.
#[derive(Clone, Copy)]
pub struct DecisionEnv<'a> {
    /// The time.
    pub now: UnixMillis,
    /// Any number; spreads retries.
    pub random: u64,
    /// Counts tokens.
    pub token_counter: &'a dyn TokenCounter,
    /// Texts at hand.
    pub texts: &'a dyn BodyTextLookup,
    /// Which model serves whom.
    pub model_selector: &'a dyn ModelSelector,
    /// Who does what is owed afterwards.
    pub dispatch: Dispatch,
}

/// Who does what a decision leaves owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dispatch {
    /// Whoever decides, at once.
    #[default]
    Immediate,
    /// Somebody else, later. So nothing is begun: messages wait for their turn, and calls to be opened.
    Deferred,
}

impl std::fmt::Debug for DecisionEnv<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Which model serves whom, as configured.
pub trait ModelSelector {
    /// The model for a role in a phase.
    fn model_for_role(&self, flow: &FlowName, role: &RoleName, phase: Option<&PhaseName>) -> ModelName;
    /// A model's window.
    fn context_window_tokens(&self, model: &ModelName) -> u32;
    /// The model that steps in for a role where its own cannot answer, if there is one.
    fn fallback_model(&self, flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        let _ = (flow, role);
        None
    }
}

/// What follows from an input.
#[derive(Debug)]
pub struct Decision {
    /// To be appended in one commit. None: nothing happened that is worth recording.
    pub events: Vec<RecordedEvent>,
    /// The texts they name that are new.
    pub bodies: Vec<TextBody>,
    /// The state once they are recorded.
    pub state: SessionState,
    /// The message this input was, if it was one; an old one if its key was known.
    pub message: Option<MessageId>,
}

/// Why there is no decision.
#[derive(Debug, Clone, PartialEq)]
pub enum DecideError {
    /// The input is not accepted.
    Refused(InputRefusal),
    /// These texts must be at hand first; then ask again.
    MissingTexts(Vec<BodyId>),
}

/// Why an input is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputRefusal {
    /// The session exists already.
    #[error("the session was opened already")]
    AlreadyOpen,
    /// The session does not exist yet.
    #[error("the session was never opened")]
    NotOpen,
    /// The session is closed.
    #[error("the session is closed ({reason}); fork it to go on from here")]
    Closed {
        /// Why it was closed.
        reason: String,
    },
    /// A turn runs, and the policy is to refuse.
    #[error("a turn is running and this session takes one message at a time; try again when it has ended")]
    Busy,
    /// Too many messages wait.
    #[error("{waiting} messages are waiting already, the most a session takes; try again when some are answered")]
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// The message is empty.
    #[error("the message is empty; write something")]
    EmptyMessage,
    /// The message is too long.
    #[error("the message has {bytes} bytes; at most {most} are taken, so send it in parts or as a file's summary")]
    MessageTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most we take.
        most: usize,
    },
    /// The message holds a control character.
    #[error(
        "the message holds the control character U+{code:04X} at character {position}; only tab and line breaks are taken"
    )]
    ControlCharacter {
        /// Which.
        code: u32,
        /// Where, counted in characters from 1.
        position: usize,
    },
    /// There are too many images.
    #[error("the message shows {count} images; at most {most} are taken")]
    TooManyImages {
        /// How many.
        count: usize,
        /// The most we take.
        most: usize,
    },
    /// An image is too big.
    #[error("image {number} has {bytes} bytes; at most {most} are taken, so make it smaller")]
    ImageTooBig {
        /// Which, counted from 1.
        number: usize,
        /// Its bytes.
        bytes: usize,
        /// The most we take.
        most: usize,
    },
    /// What should be an image is none.
    #[error("image {number} is no base64; send the bytes of the file, encoded")]
    InvalidImage {
        /// Which, counted from 1.
        number: usize,
    },
    /// The idempotency key is too long.
    #[error("the idempotency key has {bytes} bytes; at most {most} are taken")]
    IdempotencyKeyTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most we take.
        most: usize,
    },
    /// The call is not owed.
    #[error("{call} (try {attempt}) is not waiting for an answer; it was answered, given up or never made")]
    CallNotPending {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
    },
    /// The tool run is not owed.
    #[error("{run} is not waiting for a result")]
    ToolRunNotPending {
        /// Which.
        run: ToolRunId,
    },
    /// The call does not wait for a person.
    #[error("{call} does not wait for a decision")]
    NoResolutionNeeded {
        /// Which.
        call: CallId,
    },
    /// No further call may be opened.
    #[error("{why}; try again when some have ended")]
    TooManyCalls {
        /// Which limit stands in the way.
        why: String,
    },
    /// No turn runs.
    #[error("no turn is running, so there is nothing to cancel")]
    NoTurnRunning,
    /// The last turn did not fail.
    #[error("the last turn did not fail, so there is nothing to try again")]
    LastTurnNotFailed,
    /// A command about phases was refused.
    #[error("{0}")]
    PhaseCommandRefused(String),
    /// There is no such role.
    #[error("the flow has no role `{role}`; it has {known}")]
    NoSuchRole {
        /// What was named.
        role: RoleName,
        /// What could have been.
        known: String,
    },
    /// There is no such command.
    #[error("the flow has no command `{command}`; it has {known}")]
    NoSuchCommand {
        /// What was named.
        command: String,
        /// What could have been.
        known: String,
    },
    /// A command of the flow's own was refused.
    #[error("{0}")]
    FlowCommandRefused(String),
    /// The flow went on and on.
    #[error(
        "the flow took more than {most} steps for one input; this is a fault of the flow, and nothing was recorded"
    )]
    TooManySteps {
        /// The most we take.
        most: usize,
    },
}

/// Decides. See the module's words.
///
/// # Errors
/// The input is refused, or texts are needed first.
pub fn decide(
    flow: &dyn DynFlow,
    state: &SessionState,
    input: SessionInput,
    env: DecisionEnv<'_>,
) -> Result<Decision, DecideError> {
    let mut draft = DecisionDraft::new(flow, state, env);
    let decided = draft.handle_input(input).and_then(|()| draft.run_to_completion());
    // Without the texts a flow may have been misled: only a decision taken with all of them counts.
    draft.finish(decided)
}

/// Records an input without asking the flow, and ends the turn that runs: what is left to do where the flow goes on and on,
/// or breaks down, over something that was paid for.
///
/// # Errors
/// The input is refused.
pub fn decide_without_flow(
    flow: &dyn DynFlow,
    state: &SessionState,
    input: SessionInput,
    env: DecisionEnv<'_>,
    reason: &str,
) -> Result<Decision, DecideError> {
    let mut draft = DecisionDraft::new(flow, state, env);
    let taken = draft.handle_input(input);
    if taken.is_ok() {
        draft.fail_turn_and_rounds(reason);
    }
    draft.finish(taken)
}
