//! The journal's vocabulary: recorded facts, and nothing but facts. State is a fold of these.
//!
//! This is format 1. The format is a promise: what is written here can be read for ever (`codec` brings old ones up to date).

mod bodies;
mod call;
mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{Picture, Text};
use crate::handover::Handover;
use crate::ids::{
    AgentName, CallId, FlowName, GraphName, IdempotencyKey, MessageId, Millis, ModelName, PhaseName, RoleName, Seq,
    SessionId, ThreadId, TimerId, ToolName, ToolRunId, TurnId, WorkName,
};
use crate::phase::guard::Proposer;
use crate::phase::ruling::Refusal;
use crate::phase::state::{Grant, Transition};
use crate::prompt::{Failure, Usage};
use crate::scope::Slot;

pub use call::{CallAnswered, CallDeferred, CallOpened, CallWish, CountedBy, NO_CALL, Next, Recomputes};

impl Event {
    /// Whether nothing is owed for a call any more after this.
    #[must_use]
    pub fn ends_call(&self, wanted: CallId) -> bool {
        match self {
            Self::CallAnswered(answered) => answered.call == wanted,
            Self::CallCancelled { call, .. }
            | Self::CallFailed { call, next: Next::GiveUp, .. }
            | Self::CallUnknown { call, next: Next::GiveUp, .. }
            | Self::CallResolved { call, next: Next::GiveUp } => *call == wanted,
            _ => false,
        }
    }
}

/// An event with its place and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its place in the journal.
    pub seq: Seq,
    /// When it was recorded.
    pub at: Millis,
    /// What happened.
    pub event: Event,
}

/// A fact about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
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
        at: Seq,
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
    MessageReceived(MessageReceived),
    /// An agent left a message for another.
    MessagePosted(MessagePosted),
    /// An agent took a message from its inbox.
    MessageTaken {
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
        again: Option<TurnId>,
    },
    /// Something was said to the user.
    Said(Said),
    /// A turn ended.
    TurnEnded {
        /// Which.
        turn: TurnId,
        /// How.
        outcome: Outcome,
    },
    /// A model call is owed from now on.
    CallOpened(Arc<CallOpened>),
    /// A call must wait for another to finish first.
    CallDeferred(Box<CallDeferred>),
    /// A call that waited goes on: the rule before every call is applied to it now.
    CallResumed {
        /// Which.
        deferred: u32,
    },
    /// A call that waited is no longer wanted.
    CallDropped {
        /// Which.
        deferred: u32,
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
        failure: Failure,
        /// What follows.
        next: Next,
    },
    /// A call goes on on another model, since its own cannot answer.
    CallMoved {
        /// Which.
        call: CallId,
        /// The model it was opened for.
        from: ModelName,
        /// The one that steps in.
        to: ModelName,
    },
    /// A call was in flight when the process died: it may have been billed.
    CallUnknown {
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// What follows.
        next: Next,
    },
    /// A call that this session was copied with, and nobody made here, is made from now on.
    CallTakenUp {
        /// Which.
        call: CallId,
    },
    /// A person decided about a call whose end is not known.
    CallResolved {
        /// Which.
        call: CallId,
        /// What follows.
        next: Next,
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
        text: Text,
        /// Tokens.
        usage: Usage,
        /// Whose figures those are.
        counted_by: CountedBy,
        /// What it cost in millionths of a dollar, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_microusd: Option<u64>,
    },
    /// What a role remembered here is left behind at its next call.
    ThreadReset {
        /// Where.
        slot: Slot,
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
    PhaseRefused(PhaseRefused),
    /// The user allows a skip.
    SkipGranted {
        /// Of which graph.
        phase: PhaseKey,
        /// To where, by whom, and what may be left out.
        grant: Grant,
    },
    /// A handover was made.
    HandoverMade(Handover),
    /// A handover is asked for again.
    HandoverAsked {
        /// Of which kind.
        kind: crate::ids::HandoverKind,
    },
    /// A tool run is owed from now on.
    ToolOpened(ToolOpened),
    /// A tool run ended.
    ToolAnswered {
        /// Which.
        run: ToolRunId,
        /// Whether it did what was asked.
        outcome: ToolOutcome,
        /// What it returned, or why it did not.
        text: Text,
        /// Whether models are told that it did not do what was asked, beside the text. Once they were sent the text alone, and what
        /// they were sent then stays as it was.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// The tools of an answer have answered, and nobody goes on with it.
    RoundDropped {
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
        at: Millis,
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
    WorkLeased {
        /// Who.
        agent: AgentName,
        /// On what.
        work: Option<WorkName>,
    },
    /// A person at the controls wants something of the flow's own.
    Commanded {
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
        why: String,
    },
    /// A fact of the flow's own.
    Fact {
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
    pub busy: Busy,
    /// The flow's settings for this session.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    /// Models that play roles in this session, whatever is configured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cast: BTreeMap<RoleName, ModelName>,
}

/// What happens to a message that arrives while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
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
pub struct MessageReceived {
    /// Its number.
    pub message: MessageId,
    /// What it says.
    pub text: Text,
    /// What the client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<IdempotencyKey>,
    /// What was to happen to it if a turn ran.
    #[serde(default, skip_serializing_if = "is_queued")]
    pub busy: Busy,
    /// What the user shows with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Picture>,
}

fn is_queued(busy: &Busy) -> bool {
    *busy == Busy::Queue
}

/// A message between agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagePosted {
    /// Its number.
    pub message: MessageId,
    /// From whom.
    pub from: AgentName,
    /// To whom.
    pub to: AgentName,
    /// Urgent ones are taken first.
    #[serde(default)]
    pub lane: Lane,
    /// What kind of message, in the flow's words.
    pub topic: String,
    /// What it says.
    pub text: Text,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<MessageId>,
}

/// How soon a message is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Before all others.
    Urgent,
    /// In its order.
    #[default]
    Ordinary,
}

/// Something said to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// In which turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What.
    pub text: Text,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<RoleName>,
    /// The call it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
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
    pub folded: u32,
    /// Places, before folding, of those that stay.
    pub kept: Vec<u32>,
    /// What stands in their place, in parts: the summary, then the user's own words.
    pub summary: Vec<Text>,
    /// Those of the parts that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Text>,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary; nothing if it was trimmed without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<CallId>,
}

/// Whose phase graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseKey {
    /// Which graph.
    pub graph: GraphName,
    /// Attached to whom.
    pub owner: Owner,
}

/// Who has a phase graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The session.
    Session,
    /// A role.
    Role(RoleName),
    /// An agent.
    Agent(AgentName),
}

impl fmt::Display for PhaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Owner::Session => write!(f, "{}", self.graph),
            Owner::Role(role) => write!(f, "{} of {role}", self.graph),
            Owner::Agent(agent) => write!(f, "{} of {agent}", self.graph),
        }
    }
}

/// A transition, with its time in the envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseEntered {
    /// Whose graph.
    pub phase: PhaseKey,
    /// From where to where, by whom, by what right, and what was said about it.
    pub transition: Transition,
}

/// A refused proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRefused {
    /// Whose graph.
    pub phase: PhaseKey,
    /// What was refused and why.
    pub refusal: Refusal,
}

/// A tool run that is owed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOpened {
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
    pub wish: Option<(CallId, String)>,
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
