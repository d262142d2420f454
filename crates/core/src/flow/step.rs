//! The steps that a flow can request. Core checks each step and records the resulting events.

use serde_json::Value;

use crate::body::TextRef;
use crate::event::{
    AgentMessagePriority, CallRequest, ChildSessionAllotment, PhaseGraphKey, ToolRunOutcome, TurnOutcome,
};
use crate::handover::{HandoverDocument, HandoverProvenance};
use crate::ids::{
    AgentName, AskId, CallId, ChildId, FlowName, HandoverKind, MessageId, PhaseName, RoleName, SessionId, ToolName,
    ToolRunId, WorkItemName,
};
use crate::phase::{PhaseTransitionNote, PhaseTransitionProposer};

/// A step that a flow requests. Core checks it and records the resulting events.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowStep {
    /// Calls a model.
    Call(CallRequest),
    /// Sends a reply to the user.
    Reply {
        text: NewOrStoredReplyText,
        /// The role that replies.
        role: Option<RoleName>,
        /// The call that produced the text.
        call: Option<CallId>,
    },
    /// Starts a turn without a message, for a command that needs an answer.
    StartTurn,
    /// Ends the current turn and cancels its pending work.
    EndTurn(TurnOutcome),
    /// Proposes a phase transition.
    ProposePhase { phase: PhaseGraphKey, to: PhaseName, by: PhaseTransitionProposer, note: PhaseTransitionNote },
    /// Counts a round of the current visit, for [`PhaseLimit::rounds_max`](crate::phase::PhaseLimit::rounds_max). If
    /// the limit is reached, the exit is entered at once, before the next step.
    CountRound { phase: PhaseGraphKey },
    /// Creates a handover.
    MakeHandover {
        kind: HandoverKind,
        document: HandoverDocument,
        /// The calls that produced it.
        calls: Vec<CallId>,
        provenance: HandoverProvenance,
    },
    /// Records that a model is asked to repair a handover.
    RequestHandover(HandoverKind),
    /// Records a fact of the flow's own.
    RecordFact {
        /// The kind of fact, as named by the flow.
        kind: String,
        value: Value,
    },
    /// Runs a tool that no model requested.
    RunTool {
        tool: ToolName,
        arguments: Value,
        /// The agent for which the tool runs.
        agent: Option<AgentName>,
    },
    /// Runs a tool that a model requested in the text of its answer. It is checked like a tool call: the role must have the
    /// tool, the phase must allow it, and it may need approval. No call continues with its result.
    RunToolFromText {
        /// The answered call.
        call: CallId,
        role: RoleName,
        agent: Option<AgentName>,
        tool: ToolName,
        arguments: Value,
    },
    /// Answers a tool run that the flow handles itself.
    AnswerTool {
        run: ToolRunId,
        outcome: ToolRunOutcome,
        /// The result.
        text: String,
    },
    /// Sets a timer and replaces one of the same name.
    SetTimer { name: String, after_ms: u64 },
    /// Stops a timer.
    StopTimer { name: String },
    /// Sends a message to an agent.
    Send {
        from: AgentName,
        to: AgentName,
        priority: AgentMessagePriority,
        /// The kind of message, as named by the flow.
        topic: String,
        text: String,
        in_reply_to: Option<MessageId>,
    },
    /// Receives the next message from an agent's inbox. The flow sees it as an event.
    Receive { agent: AgentName },
    /// Assigns a work item to an agent, or none.
    AssignWork { agent: AgentName, work: Option<WorkItemName> },
    /// Resets a role's thread, so that its next call opens a new one.
    ResetThread {
        /// A call that would use the thread.
        request: CallRequest,
        reason: String,
    },
    /// Abandons a call. An answer that still arrives is recorded and its cost is counted, but the flow does not see it.
    CancelCall { call: CallId, reason: String },
    /// Ends the tool round of an answer, so that no call continues with the results of its tools. They stay in the
    /// thread, and the next call of the thread sees them.
    EndToolRound { call: CallId, reason: String },
    /// Starts a child session. The flow sees its end as an event.
    Spawn(SpawnChildSessionRequest),
    /// Tells a child session to close.
    CloseChild { child: ChildId, reason: String },
    /// Sets the result that a child session reports to its parent when it has closed.
    SetResult(Value),
    /// Asks another session of the same owner. The flow sees the reply, or that there is none, as an event.
    Ask {
        to: SessionId,
        topic: String,
        body: Value,
        /// How long to wait for the reply.
        wait_ms: u64,
    },
    /// Sends something to another session of the same owner that needs no reply.
    Tell { to: SessionId, topic: String, body: Value },
    /// Replies to a question from another session, or refuses it with a reason.
    AnswerAsk { ask: AskId, reply: Result<Value, String> },
    /// Requests a claim of a workspace. The flow sees the end of the question as an event.
    Claim { workspace: SessionId, name: String, wait_ms: u64 },
    /// Releases the session's claim.
    ReleaseClaim { reason: String },
    /// Sets the session's title.
    SetTitle(String),
    /// Closes the session.
    CloseSession { reason: String },
}

/// A request to start a child session.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnChildSessionRequest {
    pub flow: FlowName,
    /// The flow's own name for the child.
    pub key: String,
    pub title: Option<String>,
    pub settings: Value,
    /// The first message of the child.
    pub message: String,
    /// How long the parent waits for the child.
    pub wait_ms: u64,
    /// What the child may use; `None` for a share of what is left.
    pub allotment: Option<ChildSessionAllotment>,
}

/// The text of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewOrStoredReplyText {
    /// A new text.
    New(String),
    /// A text that is already stored.
    Stored(TextRef),
}
