//! Events between sessions: children, asks and claims.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AskId, ChildId, FlowName, SessionId, SessionUid, TurnId, UnixMillis};

/// A child session that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildSpawned {
    pub child: ChildId,
    /// The name of the child session.
    pub session: SessionId,
    pub flow: FlowName,
    /// The flow's own name for the child.
    pub key: String,
    /// The turn in which it was started. When the turn ends, the child is told to close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When the parent stops waiting for the child.
    pub deadline: UnixMillis,
    pub allotment: ChildSessionAllotment,
}

/// What a child session and its descendants may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSessionAllotment {
    /// The money for its calls and those of its descendants, in millionths of a US dollar; `None` for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd_max: Option<u64>,
    /// How many generations of children it may have.
    pub depth_max: u32,
    /// How many descendants it may have.
    pub descendants_max: u32,
    /// How many children it may have at the same time.
    pub children_at_once_max: u32,
}

/// How a child session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildSessionOutcome {
    /// It closed with a result.
    Done { result: Value },
    /// It closed without a result.
    Closed { reason: String },
    /// It could not be opened.
    NotOpened { reason: String },
    /// The parent stopped waiting.
    TimedOut,
    /// It was deleted.
    Deleted,
    /// The parent was copied while the child ran; the child belongs to the original.
    Detached,
}

/// A question to another session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskSent {
    pub ask: AskId,
    pub to: SessionId,
    /// The kind of question, as declared by the receiver's flow.
    pub topic: String,
    pub body: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When the session stops waiting for the reply.
    pub deadline: UnixMillis,
}

/// How a question to another session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskOutcome {
    Answered {
        body: Value,
    },
    /// The receiver refused the question, or could not be reached.
    Refused {
        reason: String,
    },
    /// There was no reply in time.
    Expired,
    /// The reply is no longer needed.
    Cancelled {
        reason: String,
    },
}

/// A question from another session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskReceived {
    pub ask: AskId,
    pub from: SessionId,
    /// The identity of the sender, so that a reply never reaches another session of the same name.
    pub from_uid: SessionUid,
    /// The sender's own id of the question; `None` if no reply is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<AskId>,
    pub topic: String,
    pub body: Value,
}

/// Why a session exists: another session started it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildSessionOrigin {
    pub parent: SessionId,
    /// The parent's id of this session.
    pub child: ChildId,
    pub allotment: ChildSessionAllotment,
}
