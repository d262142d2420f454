//! The journal's vocabulary: recorded facts, and nothing but facts. State is a fold of these.
//!
//! This is format 1. The format is a promise: what is written here can be read for ever (`codec` brings old ones up to date).

mod call;
mod referenced_bodies;
mod summary_line;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{ImageRef, TextRef};
use crate::handover::Handover;
use crate::ids::{
    AgentName, CallId, FlowName, IdempotencyKey, MessageId, ModelName, PhaseGraphName, PhaseName, RoleName, Seq,
    SessionId, ThreadId, TimerId, ToolName, ToolRunId, TurnId, UnixMillis, WorkItemName,
};
use crate::phase::guard::Proposer;
use crate::phase::ruling::PhaseRefusal;
use crate::phase::state::{PhaseTransition, SkipGrant};
use crate::prompt::{CallFailure, TokenUsage};
use crate::scope::ThreadSlot;

pub use call::{
    CallAnswered, CallDeferred, CallOpened, CallRecomputation, CallRequest, NO_CALL, RetryDecision, UsageSource,
};

impl Event {
    /// Whether nothing is owed for a call any more after this.
    #[must_use]
    pub fn ends_call(&self, call_id: CallId) -> bool {
        match self {
            Self::CallAnswered(answered) => answered.call == call_id,
            Self::CallCancelled { call, .. }
            | Self::CallFailed { call, next: RetryDecision::GiveUp, .. }
            | Self::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
            | Self::CallResolved { call, next: RetryDecision::GiveUp } => *call == call_id,
            _ => false,
        }
    }
}

/// An event with its place and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// Its place in the journal.
    pub seq: Seq,
    /// When it was recorded.
    pub at: UnixMillis,
    /// What happened.
    pub event: Event,
}

/// A fact about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The session began.
    SessionOpened(SessionOpened),
    /// The session goes on from a copy of another's journal up to a point.
    SessionForked {
        /// Its own name.
        session: SessionId,
        /// The one it was copied from.
        from: SessionId,
        /// Up to where.
        at_seq: Seq,
    },
    /// The session has another title.
    SessionRenamed {
        /// The title.
        title: String,
    },
    /// The session is over; it takes no more messages.
    SessionClosed {
        /// Why.
        reason: String,
    },
    /// A user's message was accepted.
    UserMessageReceived(UserMessageReceived),
    /// An agent left a message for another.
    AgentMessageSent(AgentMessageSent),
    /// An agent took a message from its inbox.
    AgentMessageReceived {
        /// Which.
        message: MessageId,
    },
    /// A turn began with these messages.
    TurnStarted {
        /// Its number.
        turn: TurnId,
        /// What it answers.
        messages: Vec<MessageId>,
        /// The turn that failed and is tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<TurnId>,
    },
    /// Something was said to the user.
    ReplySent(ReplySent),
    /// A turn ended.
    TurnEnded {
        /// Which.
        turn: TurnId,
        /// How.
        outcome: TurnResult,
    },
    /// A model call is owed from now on.
    CallOpened(Arc<CallOpened>),
    /// A call must wait for another to finish first.
    CallDeferred(Box<CallDeferred>),
    /// A call that waited goes on: the rule before every call is applied to it now.
    DeferredCallResumed {
        /// Which.
        deferred_id: u32,
    },
    /// A call that waited is no longer wanted.
    DeferredCallDropped {
        /// Which.
        deferred_id: u32,
        /// Why.
        reason: String,
    },
    /// A call was answered.
    CallAnswered(Box<CallAnswered>),
    /// A call failed, and what follows. If it had been given up before, nothing does, and it is recorded for what it took.
    CallFailed {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// Why.
        failure: CallFailure,
        /// What follows.
        next: RetryDecision,
    },
    /// A call goes on on another model, since its own cannot answer.
    CallFailedOver {
        /// Which.
        call: CallId,
        /// The model it was opened for.
        from: ModelName,
        /// The one that steps in.
        to: ModelName,
    },
    /// A call was in flight when the process died: it may have been billed.
    CallOutcomeUnknown {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// What follows.
        next: RetryDecision,
    },
    /// A call that this session was copied with, and nobody made here, is made from now on.
    InheritedCallStarted {
        /// Which.
        call: CallId,
    },
    /// A person decided about a call whose end is not known.
    CallResolved {
        /// Which.
        call: CallId,
        /// What follows.
        next: RetryDecision,
    },
    /// A call is no longer wanted.
    CallCancelled {
        /// Which.
        call: CallId,
        /// Why.
        reason: String,
        /// Whether a try of it was under way: it may have been billed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_flight: bool,
    },
    /// An answer came after its call had been given up or cancelled. It is kept and paid for, and changes nothing else.
    CallAnsweredLate {
        /// Which.
        call: CallId,
        /// What it said.
        text: TextRef,
        /// Tokens.
        usage: TokenUsage,
        /// Whose figures those are.
        usage_source: UsageSource,
        /// What it cost in millionths of a dollar, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_microusd: Option<u64>,
    },
    /// What a role remembered here is left behind at its next call.
    ThreadReset {
        /// Where.
        slot: ThreadSlot,
        /// Who wanted it.
        by: Proposer,
        /// Why.
        reason: String,
    },
    /// The older part of a thread was folded into a summary.
    ThreadCompacted(Box<ThreadCompacted>),
    /// A graph entered a phase.
    PhaseEntered(PhaseEntered),
    /// A proposal was refused.
    PhaseTransitionRefused(PhaseTransitionRefused),
    /// The user allows a skip.
    SkipGranted {
        /// Of which graph.
        graph_key: PhaseGraphKey,
        /// To where, by whom, and what may be left out.
        grant: SkipGrant,
    },
    /// A handover was made.
    HandoverCreated(Handover),
    /// A handover is asked for again.
    HandoverRepairRequested {
        /// Of which kind.
        kind: crate::ids::HandoverKind,
    },
    /// A tool run is owed from now on.
    ToolRunOpened(ToolRunOpened),
    /// A tool run ended.
    ToolRunEnded {
        /// Which.
        run: ToolRunId,
        /// Whether it did what was asked.
        outcome: ToolOutcome,
        /// What it returned, or why it did not.
        text: TextRef,
        /// Whether models are told that it did not do what was asked, beside the text. Once they were sent the text alone, and what
        /// they were sent then stays as it was.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// The tools of an answer have answered, and nobody goes on with it.
    ToolRoundDropped {
        /// The call that asked for them.
        call: CallId,
        /// Why.
        reason: String,
    },
    /// A timer runs.
    TimerSet {
        /// Its number.
        timer: TimerId,
        /// The flow's name for it.
        name: String,
        /// When it fires.
        fires_at: UnixMillis,
        /// The turn it was set in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<TurnId>,
    },
    /// A timer fired.
    TimerFired {
        /// Which.
        timer: TimerId,
        /// The flow's name for it.
        name: String,
    },
    /// A timer was stopped.
    TimerStopped {
        /// Which.
        timer: TimerId,
    },
    /// An agent works on something from now on, or on nothing.
    WorkItemAssigned {
        /// Who.
        agent: AgentName,
        /// On what.
        work_item: Option<WorkItemName>,
    },
    /// A person at the controls wants something of the flow's own.
    CommandIssued {
        /// What, by the name the flow gives it.
        command: String,
        /// How.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        arguments: Value,
    },
    /// The flow did something the rules do not allow; it was not done.
    StepRefused {
        /// What it tried.
        step: String,
        /// Why not.
        reason: String,
    },
    /// A fact of the flow's own.
    FlowFactRecorded {
        /// Its kind.
        kind: String,
        /// What it says.
        value: Value,
    },
}

/// How a session began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The format its journal is written in.
    pub format: u32,
    /// Its name.
    pub session: SessionId,
    /// Which kind of conversation.
    pub flow: FlowName,
    /// Its title, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What happens to a message that arrives while a turn runs.
    #[serde(default)]
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for this session.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    /// Models that play roles in this session, whatever is configured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_overrides: BTreeMap<RoleName, ModelName>,
}

/// What happens to a message that arrives while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MidTurnPolicy {
    /// It waits; each gets a turn of its own.
    #[default]
    Queue,
    /// It waits; all that wait share the next turn.
    Coalesce,
    /// It is not accepted.
    Reject,
    /// The running turn is stopped for it.
    Interrupt,
}

/// A user's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserMessageReceived {
    /// Its number.
    pub message: MessageId,
    /// What it says.
    pub text: TextRef,
    /// What the client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// What was to happen to it if a turn ran.
    #[serde(default, skip_serializing_if = "is_queued")]
    pub mid_turn_policy: MidTurnPolicy,
    /// What the user shows with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
}

fn is_queued(policy: &MidTurnPolicy) -> bool {
    *policy == MidTurnPolicy::Queue
}

/// A message between agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentMessageSent {
    /// Its number.
    pub message: MessageId,
    /// From whom.
    pub from: AgentName,
    /// To whom.
    pub to: AgentName,
    /// Urgent ones are taken first.
    #[serde(default)]
    pub priority: MessagePriority,
    /// What kind of message, in the flow's words.
    pub topic: String,
    /// What it says.
    pub text: TextRef,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<MessageId>,
}

/// How soon a message is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessagePriority {
    /// Before all others.
    Urgent,
    /// In its order.
    #[default]
    Normal,
}

/// Something said to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplySent {
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What.
    pub text: TextRef,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The call it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnResult {
    /// It is done.
    Done,
    /// It could not be done.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was stopped.
    Cancelled,
    /// Another message took its place.
    Interrupted,
}

/// A thread that was shortened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCompacted {
    /// Which.
    pub thread: ThreadId,
    /// Messages folded.
    pub folded_entries: u32,
    /// Places, before folding, of those that stay.
    pub kept_indices: Vec<u32>,
    /// What stands in their place, in parts: the summary, then the user's own words.
    pub summary: Vec<TextRef>,
    /// Those of the parts that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_texts: Vec<TextRef>,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary; nothing if it was trimmed without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_call: Option<CallId>,
}

/// Whose phase graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseGraphKey {
    /// Which graph.
    pub graph: PhaseGraphName,
    /// Attached to whom.
    pub owner: PhaseGraphOwner,
}

/// Who has a phase graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseGraphOwner {
    /// The session.
    Session,
    /// A role.
    Role(RoleName),
    /// An agent.
    Agent(AgentName),
}

impl fmt::Display for PhaseGraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            PhaseGraphOwner::Session => write!(f, "{}", self.graph),
            PhaseGraphOwner::Role(role) => write!(f, "{} of {role}", self.graph),
            PhaseGraphOwner::Agent(agent) => write!(f, "{} of {agent}", self.graph),
        }
    }
}

/// A transition, with its time in the envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseEntered {
    /// Whose graph.
    pub graph_key: PhaseGraphKey,
    /// From where to where, by whom, by what right, and what was said about it.
    pub transition: PhaseTransition,
}

/// A refused proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseTransitionRefused {
    /// Whose graph.
    pub graph_key: PhaseGraphKey,
    /// What was refused and why.
    pub refusal: PhaseRefusal,
}

/// A tool run that is owed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRunOpened {
    /// Its number.
    pub run: ToolRunId,
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Which tool.
    pub tool: ToolName,
    /// With what.
    pub arguments: Value,
    /// The call that asked for it, and the model's own id for the wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<(CallId, String)>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The phase it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
}

/// How a tool run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It did what was asked.
    Done,
    /// It could not.
    Failed,
    /// It was not allowed.
    Refused,
    /// The process died while it ran, and it may have had its effect.
    Unknown,
    /// It is no longer wanted.
    Cancelled,
}
