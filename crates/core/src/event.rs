//! The events of a session's journal. A session's state results from applying them in order.
//!
//! The current format is 1. Everything written in it stays readable: `codec` converts events of older formats.

mod call;
mod exchange;
mod referenced_bodies;
mod summary_line;
mod turn_options;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{ImageRef, TextRef};
use crate::flow::approval::SessionToolApproval;
use crate::handover::Handover;
use crate::ids::{
    AgentName, AskId, CallId, ChildId, FlowName, IdempotencyKey, MessageId, ModelName, PhaseGraphName, PhaseName,
    RoleName, Seq, SessionId, SubmissionId, ThreadId, TimerId, ToolName, ToolRunId, TurnId, UnixMillis, WorkItemName,
};
use crate::phase::guard::PhaseTransitionProposer;
use crate::phase::ruling::PhaseRefusal;
use crate::phase::state::{OneTimePhaseGrant, PhaseTransition};
use crate::prompt::{CallFailure, TokenUsage};
use crate::scope::ThreadKey;
use crate::session::ledger::ChildSessionUsage;
use crate::tool::ToolArtifact;

pub use self::{
    call::{
        CallAnswered, CallOpened, CallQueuedOnThread, CallRequest, CallRerunSpec, RetryDecision, ToolOfferPolicy,
        UsageSource,
    },
    exchange::{
        AskOutcome, AskReceived, AskSent, ChildSessionAllotment, ChildSessionOrigin, ChildSessionOutcome, ChildSpawned,
    },
    turn_options::{ClientToolResult, ClientTurnOptions, RecordedClientTurnOptions},
};
pub(crate) use call::NO_CALL;
pub(crate) use call::to_call_request;

impl Event {
    /// Returns true if the call `call_id` is no longer pending after this event.
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

/// An event with its sequence number and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedEvent {
    pub seq: Seq,
    /// The time at which the event was recorded.
    pub at: UnixMillis,
    pub event: Event,
}

/// A recorded fact about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The session was created.
    SessionOpened(SessionOpened),
    /// The session was created as a copy of another session's journal up to an event.
    SessionForked {
        /// The id of the new session.
        session: SessionId,
        /// The session that was copied.
        from: SessionId,
        /// The last event that was copied.
        at_seq: Seq,
    },
    /// The session's title was changed.
    SessionRenamed { title: String },
    /// The session was closed and accepts no more messages.
    SessionClosed { reason: String },
    /// A message from the user was accepted.
    UserMessageReceived(UserMessageReceived),
    /// An agent sent a message to another agent.
    AgentMessageSent(AgentMessageSent),
    /// An agent received a message from its inbox.
    AgentMessageReceived { message: MessageId },
    /// A turn started with these messages.
    TurnStarted {
        turn: TurnId,
        /// The user messages that the turn answers.
        messages: Vec<MessageId>,
        /// The failed turn that this one retries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_of: Option<TurnId>,
    },
    /// The client sent other options for the rest of a turn.
    TurnOptionsChanged { turn: TurnId, options: RecordedClientTurnOptions },
    /// A reply was sent to the user.
    ReplySent(ReplySent),
    /// A turn ended.
    TurnEnded { turn: TurnId, outcome: TurnOutcome },
    /// A model call was opened; it is pending from now on.
    CallOpened(Arc<CallOpened>),
    /// A call was deferred until another call ends.
    CallDeferred(Box<CallQueuedOnThread>),
    /// A deferred call was resumed. Its thread is chosen now.
    DeferredCallResumed { deferred_id: u32 },
    /// A deferred call was dropped because it is no longer needed.
    DeferredCallDropped { deferred_id: u32, reason: String },
    /// A model answered a call.
    CallAnswered(Box<CallAnswered>),
    /// An attempt of a call failed. If the call was abandoned before, the event only records the cost.
    CallFailed {
        call: CallId,
        attempt: u32,
        failure: CallFailure,
        /// What happens to the call next.
        next: RetryDecision,
    },
    /// A call was moved to another model because its own cannot answer.
    CallFailedOver {
        call: CallId,
        /// The model that was called before.
        from: ModelName,
        /// The fallback model.
        to: ModelName,
    },
    /// An attempt was in flight when the process died. It may have been billed.
    CallOutcomeUnknown {
        call: CallId,
        attempt: u32,
        /// What happens to the call next.
        next: RetryDecision,
    },
    /// A call that was pending when this session was forked was started here.
    InheritedCallStarted { call: CallId },
    /// An operator decided about a call whose outcome is unknown.
    CallResolved {
        call: CallId,
        /// What happens to the call next.
        next: RetryDecision,
    },
    /// A call was cancelled.
    CallCancelled {
        call: CallId,
        reason: String,
        /// True if an attempt was in flight, which may have been billed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_flight: bool,
    },
    /// An answer arrived after its call was abandoned or cancelled. Its cost is counted, but it has no other effect.
    CallAnsweredLate {
        call: CallId,
        text: TextRef,
        usage: TokenUsage,
        usage_source: UsageSource,
        /// The cost in millionths of a US dollar, if the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_microusd: Option<u64>,
    },
    /// A thread was reset. The next call in its slot opens a new thread.
    ThreadReset { slot: ThreadKey, by: PhaseTransitionProposer, reason: String },
    /// The oldest messages of a thread were replaced by a summary.
    ThreadCompacted(Box<ThreadCompacted>),
    /// A phase graph entered a phase.
    PhaseEntered(PhaseEntered),
    /// A proposed phase transition was refused.
    PhaseTransitionRefused { graph_key: PhaseGraphKey, refusal: PhaseRefusal },
    /// The flow counted a round of the current phase visit.
    PhaseRoundCounted { graph_key: PhaseGraphKey },
    /// The user granted permission to skip a requirement.
    SkipGranted {
        graph_key: PhaseGraphKey,
        /// The target phase, the proposer, and the requirements that may be skipped.
        grant: OneTimePhaseGrant,
    },
    /// A handover was created.
    HandoverCreated(Handover),
    /// The model was asked to repair a missing or broken handover.
    HandoverRepairRequested { kind: crate::ids::HandoverKind },
    /// A tool run was opened; it is pending from now on.
    ToolRunOpened(ToolRunOpened),
    /// A tool run waits for a person.
    ToolRunHeld {
        run: ToolRunId,
        reason: ToolRunHoldReason,
        /// The role that requested the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<RoleName>,
    },
    /// A person approved a tool run, which is started now.
    ToolRunApproved {
        run: ToolRunId,
        /// The person, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The arguments that the person chose instead of those that were requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited_arguments: Option<Value>,
    },
    /// A tool run was denied. It ends without having started.
    ToolRunDenied {
        run: ToolRunId,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// An operator decided about a tool run whose outcome is unknown.
    ToolRunResolved { run: ToolRunId, resolution: UnknownToolRunOutcomeResolution },
    /// A person allowed a role to use a tool for the rest of the session.
    ToolApprovalRuleAdded(SessionToolApproval),
    /// A tool run ended.
    ToolRunEnded {
        run: ToolRunId,
        outcome: ToolRunOutcome,
        /// The tool's result, or the reason why there is none.
        text: TextRef,
        /// True if models are also told that the run failed. Events of older versions lack the field, and their prompts
        /// must not change.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
        /// The result as data. Models do not see it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Files and diffs that the run produced.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        artifacts: Vec<ToolArtifact<TextRef>>,
    },
    /// The tools requested by a reply have finished, but no call continues with their results.
    ToolRoundDropped {
        /// The call that requested the tools.
        call: CallId,
        reason: String,
    },
    /// A timer was set.
    TimerSet {
        timer: TimerId,
        /// The name given by the flow.
        name: String,
        fires_at: UnixMillis,
        /// The turn in which it was set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<TurnId>,
    },
    /// A timer fired.
    TimerFired {
        timer: TimerId,
        /// The name given by the flow.
        name: String,
    },
    /// A timer was stopped.
    TimerStopped { timer: TimerId },
    /// An agent was assigned a work item, or has none any more.
    WorkItemAssigned { agent: AgentName, work_item: Option<WorkItemName> },
    /// An operator issued a command that the flow defines.
    CommandIssued {
        command: String,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        arguments: Value,
    },
    /// The flow requested a step that the rules forbid. The step was not taken.
    StepRefused {
        /// A description of the step.
        step: String,
        reason: String,
    },
    /// An entry of the session's inbox was handled.
    SubmissionHandled {
        submission: SubmissionId,
        /// Why it was refused, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
    },
    /// A child session was started.
    ChildSpawned(Box<ChildSpawned>),
    /// A child session was told to close.
    ChildCloseRequested { child: ChildId, reason: String },
    /// A child session ended.
    ChildEnded { child: ChildId, outcome: ChildSessionOutcome, usage: ChildSessionUsage },
    /// A child session that the parent no longer waits for reported its usage.
    ChildUsageReported { child: ChildId, usage: ChildSessionUsage },
    /// The result that the session reports to its parent was set.
    ResultSet { result: Value },
    /// The session reported its end to its parent.
    ResultReported,
    /// A question was sent to another session.
    AskSent(Box<AskSent>),
    /// A question to another session ended.
    AskEnded { ask: AskId, outcome: AskOutcome },
    /// A question from another session arrived.
    AskReceived(Box<AskReceived>),
    /// A question from another session was answered or refused.
    AskReplied { ask: AskId, reply: AskOutcome },
    /// A question from another session was dropped without a reply.
    ReceivedAskDropped { ask: AskId, reason: String },
    /// A reply could not be delivered, because the session that asked no longer exists.
    ReplyUndelivered { ask: AskId },
    /// A claim of a workspace was requested, with a question to the workspace.
    ClaimRequested { workspace: SessionId, name: String, ask: AskId },
    /// The session's claim ended.
    ClaimReleased { workspace: SessionId, name: String, reason: String },
    /// The flow recorded a fact of its own.
    FlowFactRecorded {
        /// The kind of fact, as named by the flow.
        kind: String,
        value: Value,
    },
}

/// The first event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The format of the journal.
    pub format: u32,
    pub session: SessionId,
    pub flow: FlowName,
    /// The text that defines the flow, if it is not defined by code. The session runs with this definition, also if the
    /// flow changes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_definition: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What happens by default to a message that arrives during a turn.
    #[serde(default)]
    pub mid_turn_policy: MidTurnPolicy,
    /// The flow's settings for this session.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub settings: Value,
    /// Models that this session uses for roles instead of the configured ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_overrides: BTreeMap<RoleName, ModelName>,
    /// The session that started this one, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_origin: Option<ChildSessionOrigin>,
}

/// What happens to a message that arrives during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MidTurnPolicy {
    /// The message waits and gets its own turn.
    #[default]
    Queue,
    /// The message waits; all waiting messages share the next turn.
    Coalesce,
    /// The message is rejected.
    Reject,
    /// The current turn is interrupted.
    Interrupt,
}

/// A message from the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserMessageReceived {
    pub message: MessageId,
    pub text: TextRef,
    /// The key sent by the client to recognise a repeated request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    #[serde(default, skip_serializing_if = "is_queued")]
    pub mid_turn_policy: MidTurnPolicy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// What the client asks of the calls that answer the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<RecordedClientTurnOptions>,
}

fn is_queued(policy: &MidTurnPolicy) -> bool {
    *policy == MidTurnPolicy::Queue
}

/// A message from one agent to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentMessageSent {
    pub message: MessageId,
    pub from: AgentName,
    pub to: AgentName,
    #[serde(default)]
    pub priority: AgentMessagePriority,
    /// The kind of message, as named by the flow.
    pub topic: String,
    pub text: TextRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<MessageId>,
}

/// The order in which an agent receives messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMessagePriority {
    /// Received before all normal messages.
    Urgent,
    /// Received in order of sending.
    #[default]
    Normal,
}

/// A reply to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplySent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    pub text: TextRef,
    /// The role that replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The call that produced the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Done,
    Failed {
        reason: String,
    },
    /// The turn was cancelled.
    Cancelled,
    /// The turn was interrupted by a new message.
    Interrupted,
}

/// The result of compacting a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCompacted {
    pub thread: ThreadId,
    /// The number of messages that were folded into the summary.
    pub folded_entries: u32,
    /// The indices, before compaction, of the messages that were kept.
    pub kept_indices: Vec<u32>,
    /// The texts that replace the folded messages: the summary, then the user's own words.
    pub summary: Vec<TextRef>,
    /// The texts in `summary` that are the user's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user_texts: Vec<TextRef>,
    pub tokens_before: u32,
    pub tokens_after: u32,
    /// The call that wrote the summary; `None` if the messages were trimmed without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_call: Option<CallId>,
}

/// Identifies one instance of a phase graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseGraphKey {
    pub graph: PhaseGraphName,
    pub owner: PhaseStateOwner,
}

/// The owner of a phase graph's state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseStateOwner {
    Session,
    Role(RoleName),
    Agent(AgentName),
}

impl fmt::Display for PhaseGraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            PhaseStateOwner::Session => write!(f, "{}", self.graph),
            PhaseStateOwner::Role(role) => write!(f, "{} of {role}", self.graph),
            PhaseStateOwner::Agent(agent) => write!(f, "{} of {agent}", self.graph),
        }
    }
}

/// A transition into a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseEntered {
    pub graph_key: PhaseGraphKey,
    pub transition: PhaseTransition,
}

/// A pending tool run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRunOpened {
    pub run: ToolRunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    pub tool: ToolName,
    pub arguments: Value,
    /// The call that requested the tool, and the model's own id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<(CallId, String)>,
    /// The agent for which the tool runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The phase in which the tool runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
}

/// Why a tool run waits for a person or a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRunHoldReason {
    /// It has not started and needs approval.
    Approval,
    /// It was in progress when the process died, and may or may not have taken effect.
    UnknownOutcome,
    /// The client runs the tool and sends the result.
    ClientResult,
}

/// What happens to a tool run whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownToolRunOutcomeResolution {
    /// It runs again.
    RunAgain,
    /// It has failed.
    Fail,
    /// It is done, with a result that the operator gives.
    Done,
}

/// The result of a tool run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRunOutcome {
    /// The tool succeeded.
    Done,
    /// The tool failed.
    Failed,
    /// The tool was not allowed.
    Refused,
    /// The process died during the run. The tool may have had its effect.
    Unknown,
    /// The run was cancelled.
    Cancelled,
}
