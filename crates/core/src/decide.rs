//! From a state and an input to the events that follow, all of them, in one piece: the input's own, the flow's
//! reactions, and what the rules make of those. Pure: nothing is changed, and the same arguments give the same decision.

mod calls;
mod compaction;
mod draft;
mod ends;
mod inputs;
mod phases;
mod recompute;
mod steps;

use serde::{Deserialize, Serialize};

use crate::body::{Body, BodyId};
use crate::context::Count;
use crate::event::{Busy, PhaseKey, Recorded, SessionOpened};
use crate::flow::{Lookup, Rules};
use crate::ids::{
    AgentName, CallId, FlowName, IdempotencyKey, MessageId, Millis, ModelName, PhaseName, RoleName, Seq, SessionId,
    ToolRunId,
};
use crate::prompt::{Failure, Image, Reply};
use crate::session::State;
use draft::Draft;

pub use recompute::{Change, Recomputation, frozen};

/// What arrives.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
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
        key: Option<IdempotencyKey>,
        /// What happens to it while a turn runs; the session's own policy if not given.
        busy: Option<Busy>,
        /// What the user shows with it.
        images: Vec<Image>,
    },
    /// A model's answer.
    Answer {
        /// To which call.
        call: CallId,
        /// To which try.
        attempt: u32,
        /// What it says.
        reply: Reply,
        /// What it cost, in millionths of a dollar, where that is known.
        cost_microusd: Option<u64>,
        /// How long it took.
        ms: u64,
    },
    /// A call brought no answer.
    Failure {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// Why.
        failure: Failure,
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
    Operator(Command),
    /// A past call is to be made once more, beside the timeline.
    Recompute(Box<Recomputation>),
}

/// What a person at the controls can want.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop the turn that runs.
    Cancel,
    /// Try the last turn again, which failed. What was answered in it is not asked again where the flow can go on from it.
    Retry,
    /// Decide about a call whose end is not known.
    Resolve {
        /// Which.
        call: CallId,
        /// What to do.
        how: Resolution,
    },
    /// Allow a skip.
    Grant {
        /// Of which graph.
        phase: PhaseKey,
        /// To which phase.
        to: PhaseName,
    },
    /// Propose a phase.
    Propose {
        /// Of which graph.
        phase: PhaseKey,
        /// Which.
        to: PhaseName,
        /// Why.
        reason: Option<String>,
    },
    /// Go back to an earlier visit; nothing is deleted.
    RollBack {
        /// Of which graph.
        phase: PhaseKey,
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
pub enum Resolution {
    /// Make it again, though it may be billed twice.
    Retry,
    /// Take it as failed.
    Fail,
}

/// What a decision may know beyond the state: all of it handed in.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The time.
    pub now: Millis,
    /// Any number; spreads retries.
    pub chance: u64,
    /// Counts tokens.
    pub count: &'a dyn Count,
    /// Texts at hand.
    pub texts: &'a dyn Lookup,
    /// Which model serves whom.
    pub catalog: &'a dyn Catalog,
    /// Who does what is owed afterwards.
    pub doing: Doing,
}

/// Who does what a decision leaves owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doing {
    /// Whoever decides, at once.
    #[default]
    Here,
    /// Somebody else, later. So nothing is begun: messages wait for their turn, and calls to be opened.
    Elsewhere,
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Which model serves whom, as configured.
pub trait Catalog {
    /// The model for a role in a phase.
    fn model_for(&self, flow: &FlowName, role: &RoleName, phase: Option<&PhaseName>) -> ModelName;
    /// A model's window.
    fn window_tokens(&self, model: &ModelName) -> u32;
    /// The model that steps in for a role where its own cannot answer, if there is one.
    fn fallback_for(&self, flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        let _ = (flow, role);
        None
    }
}

/// What follows from an input.
#[derive(Debug)]
pub struct Decision {
    /// To be appended in one commit. None: nothing happened that is worth recording.
    pub events: Vec<Recorded>,
    /// The texts they name that are new.
    pub bodies: Vec<Body>,
    /// The state once they are recorded.
    pub state: State,
    /// The message this input was, if it was one; an old one if its key was known.
    pub message: Option<MessageId>,
}

/// Why there is no decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Undecided {
    /// The input is not accepted.
    Refused(Refusal),
    /// These texts must be at hand first; then ask again.
    NeedTexts(Vec<BodyId>),
}

/// Why an input is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
        "the message holds the control character U+{code:04X} at character {at}; only tab and line breaks are taken"
    )]
    ControlCharacter {
        /// Which.
        code: u32,
        /// Where, counted in characters from 1.
        at: usize,
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
    #[error("image {place} has {bytes} bytes; at most {most} are taken, so make it smaller")]
    ImageTooBig {
        /// Which, counted from 1.
        place: usize,
        /// Its bytes.
        bytes: usize,
        /// The most we take.
        most: usize,
    },
    /// What should be an image is none.
    #[error("image {place} is no base64; send the bytes of the file, encoded")]
    NoImage {
        /// Which, counted from 1.
        place: usize,
    },
    /// The idempotency key is too long.
    #[error("the idempotency key has {bytes} bytes; at most {most} are taken")]
    KeyTooLong {
        /// Its bytes.
        bytes: usize,
        /// The most we take.
        most: usize,
    },
    /// The call is not owed.
    #[error("{call} (try {attempt}) is not waiting for an answer; it was answered, given up or never made")]
    NotOwed {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
    },
    /// The tool run is not owed.
    #[error("{run} is not waiting for a result")]
    ToolNotOwed {
        /// Which.
        run: ToolRunId,
    },
    /// The call does not wait for a person.
    #[error("{call} does not wait for a decision")]
    NotHeld {
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
    NothingRuns,
    /// The last turn did not fail.
    #[error("the last turn did not fail, so there is nothing to try again")]
    NothingFailed,
    /// A command about phases was refused.
    #[error("{0}")]
    Phase(String),
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
    Command(String),
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
pub fn decide(rules: &dyn Rules, state: &State, input: Input, env: Env<'_>) -> Result<Decision, Undecided> {
    let mut draft = Draft::new(rules, state, env);
    let decided = draft.take_in(input).and_then(|()| draft.run());
    // Without the texts a flow may have been misled: only a decision taken with all of them counts.
    draft.finish(decided)
}

/// Records an input without asking the flow, and ends the turn that runs: what is left to do where the flow goes on and on,
/// or breaks down, over something that was paid for.
///
/// # Errors
/// The input is refused.
pub fn give_up(
    rules: &dyn Rules,
    state: &State,
    input: Input,
    env: Env<'_>,
    reason: &str,
) -> Result<Decision, Undecided> {
    let mut draft = Draft::new(rules, state, env);
    let taken = draft.take_in(input);
    if taken.is_ok() {
        draft.let_go(reason);
    }
    draft.finish(taken)
}
