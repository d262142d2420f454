//! What a flow can want done. Core checks each step and records what comes of it.

use serde_json::Value;

use crate::body::TextRef;
use crate::event::{CallRequest, MessagePriority, PhaseGraphKey, ToolOutcome, TurnResult};
use crate::handover::{HandoverDocument, HandoverProvenance};
use crate::ids::{AgentName, CallId, HandoverKind, MessageId, RoleName, ToolName, ToolRunId, WorkItemName};
use crate::phase::state::PhaseProposal;

/// What a flow wants done. The core checks each and records what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowStep {
    /// Call a model.
    Call(CallRequest),
    /// Say something to the user.
    Reply {
        /// What.
        text: ReplyText,
        /// By whom.
        role: Option<RoleName>,
        /// The call it came from.
        call: Option<CallId>,
    },
    /// End the turn that runs. What is still owed for it is given up.
    EndTurn(TurnResult),
    /// Propose a phase.
    ProposePhase {
        /// Whose graph.
        phase: PhaseGraphKey,
        /// What.
        proposal: PhaseProposal,
    },
    /// Make a handover.
    MakeHandover {
        /// Of which kind.
        kind: HandoverKind,
        /// What it says.
        document: HandoverDocument,
        /// The calls it came from.
        calls: Vec<CallId>,
        /// How it came about.
        provenance: HandoverProvenance,
    },
    /// Note that a handover is asked for again.
    RequestHandover(HandoverKind),
    /// Record a fact of the flow's own.
    RecordFact {
        /// Its kind.
        kind: String,
        /// What it says.
        value: Value,
    },
    /// Run a tool that no model asked for.
    RunTool {
        /// Which.
        tool: ToolName,
        /// With what.
        arguments: Value,
        /// On whose behalf.
        agent: Option<AgentName>,
    },
    /// Answer a tool that the flow runs itself.
    AnswerTool {
        /// Which run.
        run: ToolRunId,
        /// Whether it did what was asked.
        outcome: ToolOutcome,
        /// What it returns.
        text: String,
    },
    /// Start a timer; one of the same name is replaced.
    SetTimer {
        /// Its name.
        name: String,
        /// When it fires.
        after_ms: u64,
    },
    /// Stop a timer.
    StopTimer {
        /// Its name.
        name: String,
    },
    /// Leave a message for an agent.
    Send {
        /// From whom.
        from: AgentName,
        /// To whom.
        to: AgentName,
        /// How soon it is taken.
        priority: MessagePriority,
        /// What kind of message.
        topic: String,
        /// What it says.
        text: String,
        /// The message it answers.
        in_reply_to: Option<MessageId>,
    },
    /// Take the next message from an agent's inbox; the flow hears of it as an event.
    Receive {
        /// Whose inbox.
        agent: AgentName,
    },
    /// Say what an agent works on.
    AssignWork {
        /// Who.
        agent: AgentName,
        /// On what.
        work: Option<WorkItemName>,
    },
    /// Have a role forget what it remembers there, from its next call on.
    ResetThread {
        /// Whose memory, as a call would name it.
        request: CallRequest,
        /// Why.
        reason: String,
    },
    /// Give up a call: the flow goes on without it. An answer that comes all the same is recorded and paid for, and the flow
    /// has nothing to do with it.
    CancelCall {
        /// Which.
        call: CallId,
        /// Why.
        reason: String,
    },
    /// Give the session a title.
    SetTitle(String),
    /// Close the session.
    CloseSession {
        /// Why.
        reason: String,
    },
}

/// What is said: new words, or a text that is stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyText {
    /// New words.
    New(String),
    /// Words that are stored.
    Stored(TextRef),
}
