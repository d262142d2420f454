//! Decides which events follow from an input: the events of the input itself, the flow's reactions, and what the rules
//! add. A decision is pure: nothing is changed, and the same arguments give the same decision.

mod approval;
mod asks;
mod call_limits;
mod calls;
mod cancellation;
mod children;
mod client_tools;
mod compaction;
mod draft;
mod fragments;
mod inputs;
mod phases;
mod recompute;
mod steps;
mod submissions;
mod tool_runs;

use serde::{Deserialize, Serialize};

use crate::body::{BodyId, TextToStore};
use crate::context::TokenCounter;
use crate::event::{
    ChildSpawned, ClientToolResult, ClientTurnOptions, MidTurnPolicy, PhaseGraphKey, RecordedEvent, SessionOpened,
    UnknownToolRunOutcomeResolution,
};
use crate::flow::approval::OperatorToolApprovalRules;
use crate::flow::{BodyTextLookup, DynFlow, SpawnChildSessionRequest};
use crate::ids::{
    AgentName, CallId, FlowName, IdempotencyKey, MessageId, ModelName, PhaseName, RoleName, Seq, SessionId,
    SubmissionId, ToolRunId, TurnId, UnixMillis,
};
use crate::prompt::{CallFailure, ModelReply, PromptImage};
use crate::session::SessionState;
use crate::signal::SignalForm;
use crate::tool::ToolResult;
use draft::DecisionDraft;

pub use self::{
    asks::{CLAIM_TOPIC, RELEASE_TOPIC},
    recompute::{PreparedCallRecomputation, RecomputeCallOverrides, prepare_recomputation},
    submissions::{InboxSubmission, SubmissionToOtherSession, SubmittingSession},
};

/// An input to a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionInput {
    /// Opens a session.
    Open(SessionOpened),
    /// Turns a copy of a session's journal into a session of its own.
    Forked {
        /// The id of the copy.
        session: SessionId,
        /// The session that was copied.
        from: SessionId,
        /// The last event that was copied.
        at: Seq,
    },
    /// A message from the user.
    Message {
        text: String,
        /// A key from the client. A message with a known key is not recorded again.
        idempotency_key: Option<IdempotencyKey>,
        /// What happens to the message during a turn; `None` for the session's policy.
        mid_turn_policy: Option<MidTurnPolicy>,
        images: Vec<PromptImage>,
    },
    /// A message from a client that brings tools of its own, or requires a format of the answer.
    ClientMessage {
        text: String,
        /// A key from the client. A message with a known key is not recorded again.
        idempotency_key: Option<IdempotencyKey>,
        images: Vec<PromptImage>,
        options: ClientTurnOptions,
    },
    /// A model's answer.
    Answer {
        call: CallId,
        attempt: u32,
        reply: ModelReply,
        /// The cost in millionths of a US dollar, if known.
        cost_microusd: Option<u64>,
        duration_ms: u64,
    },
    /// A failed attempt of a call.
    CallFailure { call: CallId, attempt: u32, failure: CallFailure },
    /// A tool's result.
    ToolResult { run: ToolRunId, result: ToolResult },
    /// The passing of time: timers fire and phase limits expire.
    Tick,
    /// A restart after a crash: the outcome of everything in flight is unknown.
    Recovered,
    /// A command from an operator.
    Operator(OperatorCommand),
    /// Repeats an earlier call outside the timeline.
    Recompute(Box<PreparedCallRecomputation>),
    /// An entry of the session's inbox.
    Submitted {
        id: SubmissionId,
        /// `None` if a client submitted it.
        sender: Option<SubmittingSession>,
        /// What was submitted, or why it cannot be handled.
        content: Result<InboxSubmission, String>,
    },
}

/// A command from the person who operates a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorCommand {
    /// Cancels the current turn.
    Cancel {
        /// The turn to cancel. A command that names another turn than the current one arrived too late and is refused.
        /// `None` for whichever turn is running.
        #[serde(default)]
        turn: Option<TurnId>,
    },
    /// Retries the last turn if it failed. Answers of the failed turn are reused where the flow supports it.
    Retry {
        /// The turn to retry. A command that names another turn than the last one arrived too late and is refused.
        /// `None` for whichever turn was the last.
        #[serde(default)]
        turn: Option<TurnId>,
    },
    /// Decides about a call whose outcome is unknown.
    Resolve { call: CallId, resolution: UnknownCallOutcomeResolution },
    /// Approves a tool run that waits for it.
    Approve {
        run: ToolRunId,
        /// The arguments to use instead of those that were requested.
        #[serde(default)]
        arguments: Option<serde_json::Value>,
        /// Also allows the same role to use the tool for the rest of the session.
        #[serde(default)]
        remember: bool,
        /// The person who approves, if known.
        #[serde(default)]
        by: Option<String>,
    },
    /// Denies a tool run that waits for approval. The model is told the reason.
    Deny {
        run: ToolRunId,
        #[serde(default)]
        reason: String,
    },
    /// Decides about a tool run whose outcome is unknown.
    ResolveToolRun {
        run: ToolRunId,
        resolution: UnknownToolRunOutcomeResolution,
        /// The result for [`UnknownToolRunOutcomeResolution::Done`], or the reason for [`UnknownToolRunOutcomeResolution::Fail`].
        #[serde(default)]
        text: Option<String>,
    },
    /// Gives the results of the tools that the client runs.
    ProvideToolResults {
        /// One result for each run that waits for the client.
        results: Vec<ClientToolResult>,
        /// The options for the rest of the turn.
        #[serde(default)]
        options: ClientTurnOptions,
    },
    /// Grants permission to skip a requirement.
    Grant {
        phase: PhaseGraphKey,
        /// The phase that may be entered.
        to: PhaseName,
    },
    /// Proposes a phase transition.
    Propose { phase: PhaseGraphKey, to: PhaseName, reason: Option<String> },
    /// Returns to an earlier visit. Nothing is deleted.
    RollBack { phase: PhaseGraphKey, visit: u32 },
    /// Resets a role's threads, so that its next calls open new ones.
    Forget {
        role: RoleName,
        /// Only threads of this agent.
        agent: Option<AgentName>,
        /// Only threads with this peer.
        peer: Option<AgentName>,
    },
    /// Sets the session's title.
    Rename { title: String },
    /// Runs a command that the flow defines.
    Flow {
        command: String,
        #[serde(default)]
        arguments: serde_json::Value,
    },
    /// Closes the session.
    Close,
}

/// What to do about a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCallOutcomeResolution {
    /// Attempt the call again, which may be billed twice.
    Retry,
    /// Treat the call as failed.
    Fail,
}

/// Everything that a decision depends on besides the state and the input.
#[derive(Clone, Copy)]
pub struct DecisionEnv<'a> {
    pub now: UnixMillis,
    /// Any number; spreads retries in time.
    pub random: u64,
    pub token_counter: &'a dyn TokenCounter,
    /// The texts that are loaded.
    pub texts: &'a dyn BodyTextLookup,
    pub model_selector: &'a dyn RoleModelResolver,
    /// Checks whether a child session can be opened.
    pub child_checker: &'a dyn ChildSessionValidator,
    /// The operator's rules about tool runs that need approval.
    pub approval_rules: &'a OperatorToolApprovalRules,
    pub dispatch: EffectDispatchMode,
    /// How the flow fails on this input, if it does. It is not asked then: the input is recorded, and the current turn
    /// fails with this reason. Used if the flow loops or panics on something that was already paid for.
    pub flow_error: Option<&'a str>,
}

/// Checks whether a child session can be opened.
pub trait ChildSessionValidator {
    /// Checks the flow and the settings of a child.
    ///
    /// # Errors
    /// Fails with the reason if there is no such flow or the settings are invalid.
    fn check_child(&self, flow: &FlowName, settings: &serde_json::Value) -> Result<(), String>;
}

/// Who performs the effects of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EffectDispatchMode {
    /// This process, immediately.
    #[default]
    Immediate,
    /// Another process, later. Nothing is started: messages are queued, and calls are deferred.
    Deferred,
}

impl std::fmt::Debug for DecisionEnv<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionEnv").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Selects models as configured.
pub trait RoleModelResolver {
    /// Returns the model for a role in a phase.
    fn model_for_role(&self, flow: &FlowName, role: &RoleName, phase: Option<&PhaseName>) -> ModelName;
    /// Returns the size of a model's context window.
    fn context_window_tokens(&self, model: &ModelName) -> u32;
    /// Returns how signals are requested from a model.
    fn signal_form(&self, model: &ModelName) -> SignalForm {
        let _ = model;
        SignalForm::Inline
    }
    /// Returns whether a model is known to support tool calls.
    fn supports_tool_calls(&self, model: &ModelName) -> bool {
        let _ = model;
        true
    }
    /// Returns the model to use for a role if its own model cannot answer.
    fn fallback_model(&self, flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        let _ = (flow, role);
        None
    }
}

/// The events that follow from an input.
#[derive(Debug)]
pub struct Decision {
    /// To be appended in one commit. Empty if there is nothing to record.
    pub events: Vec<RecordedEvent>,
    /// The new texts that the events refer to.
    pub bodies: Vec<TextToStore>,
    /// The state after the events.
    pub state: SessionState,
    /// The id of the message that was received; of the earlier message if its key was known.
    pub message: Option<MessageId>,
    /// What became of the inbox entry, if the input was one: the message that was received, if it was one, or why the
    /// entry was refused.
    pub submission_outcome: Option<Result<Option<MessageId>, InputRefusal>>,
    /// What is submitted to other sessions in the same commit.
    pub submissions: Vec<SubmissionToOtherSession>,
    /// The child sessions that are created in the same commit, each with the request that started it.
    pub children: Vec<(ChildSpawned, SpawnChildSessionRequest)>,
}

/// Why there is no decision.
#[derive(Debug, Clone, PartialEq)]
pub enum DecideError {
    /// The input was refused.
    Refused(InputRefusal),
    /// These texts must be loaded before the decision is repeated.
    MissingTexts(Vec<BodyId>),
}

/// Why an input was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputRefusal {
    #[error("the session is already open")]
    AlreadyOpen,
    #[error("the session was never opened")]
    NotOpen,
    #[error("the session is closed ({reason}); fork it to continue from here")]
    Closed { reason: String },
    /// A turn is running, and the policy is to reject messages.
    #[error("a turn is running and this session accepts one message at a time; try again after it has ended")]
    Busy,
    #[error("{waiting} messages are already waiting, which is the maximum; try again after some are answered")]
    QueueFull { waiting: usize },
    #[error("the message is empty")]
    EmptyMessage,
    #[error("the message has {bytes} bytes, but at most {most} are allowed; shorten it or send it in parts")]
    MessageTooLong { bytes: usize, most: usize },
    #[error(
        "the message contains the control character U+{code:04X} at character {position}; only tabs and line breaks are allowed"
    )]
    ControlCharacter {
        code: u32,
        /// The position in characters, from 1.
        position: usize,
    },
    #[error("the message has {count} images, but at most {most} are allowed")]
    TooManyImages { count: usize, most: usize },
    #[error("image {number} has {bytes} bytes, but at most {most} are allowed; make it smaller")]
    ImageTooBig {
        /// The number of the image, from 1.
        number: usize,
        bytes: usize,
        most: usize,
    },
    /// The data of an image is not base64.
    #[error("image {number} is not base64; send the bytes of the file, base64-encoded")]
    InvalidImage {
        /// The number of the image, from 1.
        number: usize,
    },
    #[error("the idempotency key has {bytes} bytes, but at most {most} are allowed")]
    IdempotencyKeyTooLong { bytes: usize, most: usize },
    /// The call is not pending.
    #[error("{call} (attempt {attempt}) is not waiting for an answer; it was answered, abandoned or never made")]
    CallNotPending { call: CallId, attempt: u32 },
    /// The tool run is not pending.
    #[error("{run} is not waiting for a result")]
    ToolRunNotPending { run: ToolRunId },
    /// A command is for a tool run that does not wait for it.
    #[error("{run} is not waiting for this decision: it {why}")]
    ToolRunNotHeld {
        run: ToolRunId,
        /// What the run does instead, to follow "it".
        why: String,
    },
    /// The tools or the output format of a client cannot be used.
    #[error("the options of the message cannot be used: {why}")]
    InvalidTurnOptions { why: String },
    /// The arguments that a person chose for a tool run cannot be used.
    #[error("the arguments for the tool run cannot be used: {why}")]
    BadToolArguments { why: String },
    /// The call is not waiting for an operator.
    #[error("{call} is not waiting for a decision")]
    NoResolutionNeeded { call: CallId },
    /// No further call may be opened.
    #[error("{why}; try again after some have ended")]
    TooManyCalls {
        /// The limit that was reached.
        why: String,
    },
    #[error("no turn is running, so there is nothing to cancel")]
    NoTurnRunning,
    #[error("the last turn did not fail, so there is nothing to retry")]
    LastTurnNotFailed,
    /// A command names a turn, but another turn has followed.
    #[error("the command is for {named}, but the session is at {current}; check the session before you try again")]
    StaleTurn { named: TurnId, current: TurnId },
    /// A phase command was refused.
    #[error("{0}")]
    PhaseCommandRefused(String),
    #[error("the flow has no role `{role}`; it has {known}")]
    NoSuchRole {
        role: RoleName,
        /// The roles of the flow, as text.
        known: String,
    },
    #[error("the flow has no command `{command}`; {known}")]
    NoSuchCommand {
        command: String,
        /// The commands of the flow, as text.
        known: String,
    },
    /// The flow refused its command.
    #[error("{0}")]
    FlowCommandRefused(String),
    /// A child, a question or a claim is not open, or belongs to another session.
    #[error("{0}")]
    NotWaiting(String),
    /// The flow does not answer such questions.
    #[error("the flow does not answer questions about `{topic}`")]
    UnknownTopic { topic: String },
    /// An inbox entry could not be handled.
    #[error("{0}")]
    UnusableSubmission(String),
    /// The flow did not stop taking steps.
    #[error("the flow took more than {most} steps for one input; this is a bug in the flow, and nothing was recorded")]
    TooManySteps { most: usize },
}

/// Decides which events follow from `input`.
///
/// # Errors
/// Fails if the input is refused or texts must be loaded first.
pub fn decide(
    flow: &dyn DynFlow,
    state: &SessionState,
    input: SessionInput,
    env: DecisionEnv<'_>,
) -> Result<Decision, DecideError> {
    let mut draft = DecisionDraft::new(flow, state, env);
    let decided = draft.handle_input(input).and_then(|()| match env.flow_error {
        None => draft.run_to_completion(),
        Some(reason) => {
            draft.fail_turn_and_drop_tool_rounds(reason);
            Ok(())
        }
    });
    // A flow may have been misled by missing texts, so only a decision with all texts counts.
    draft.into_decision(decided)
}
