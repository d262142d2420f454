//! What a flow can want done. Core checks each step and records what comes of it.

use serde_json::Value;

use crate::body::Text;
use crate::event::{CallWish, Lane, Outcome, PhaseKey, ToolOutcome};
use crate::handover::{Document, Provenance};
use crate::ids::{AgentName, CallId, HandoverKind, MessageId, RoleName, ToolName, ToolRunId, WorkName};
use crate::phase::state::Proposal;

/// What a flow wants done. The core checks each and records what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Call a model.
    Call(CallWish),
    /// Say something to the user.
    Say {
        /// What.
        text: Speech,
        /// By whom.
        by: Option<RoleName>,
        /// The call it came from.
        call: Option<CallId>,
    },
    /// End the turn that runs. What is still owed for it is given up.
    EndTurn(Outcome),
    /// Propose a phase.
    Propose {
        /// Whose graph.
        phase: PhaseKey,
        /// What.
        proposal: Proposal,
    },
    /// Make a handover.
    Hand {
        /// Of which kind.
        kind: HandoverKind,
        /// What it says.
        document: Document,
        /// The calls it came from.
        calls: Vec<CallId>,
        /// How it came about.
        how: Provenance,
    },
    /// Note that a handover is asked for again.
    AskHandover(HandoverKind),
    /// Record a fact of the flow's own.
    Note {
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
    Post {
        /// From whom.
        from: AgentName,
        /// To whom.
        to: AgentName,
        /// How soon it is taken.
        lane: Lane,
        /// What kind of message.
        topic: String,
        /// What it says.
        text: String,
        /// The message it answers.
        answers: Option<MessageId>,
    },
    /// Take the next message from an agent's inbox; the flow hears of it as an event.
    Take {
        /// Whose inbox.
        agent: AgentName,
    },
    /// Say what an agent works on.
    Lease {
        /// Who.
        agent: AgentName,
        /// On what.
        work: Option<WorkName>,
    },
    /// Have a role forget what it remembers there, from its next call on.
    Forget {
        /// Whose memory, as a call would name it.
        wish: CallWish,
        /// Why.
        reason: String,
    },
    /// Give up a call: the flow goes on without it. An answer that comes all the same is recorded and paid for, and the flow
    /// has nothing to do with it.
    Cancel {
        /// Which.
        call: CallId,
        /// Why.
        reason: String,
    },
    /// Give the session a title.
    Title(String),
    /// Close the session.
    Close {
        /// Why.
        reason: String,
    },
}

/// What is said: new words, or a text that is stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speech {
    /// New words.
    New(String),
    /// Words that are stored.
    Stored(Text),
}
