//! What is submitted to a session's inbox: inputs of clients that reached another process, and what sessions send each
//! other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decide::{InputRefusal, OperatorCommand, RELEASE_TOPIC};
use crate::event::{AskOutcome, ChildOutcome, ChildSpawned, MidTurnPolicy};
use crate::flow::SpawnChildRequest;
use crate::ids::{AskId, ChildId, IdempotencyKey, MessageId, SessionId, SessionUid, SubmissionId};
use crate::ledger::ChildUsage;
use crate::prompt::PromptImage;
use crate::turn_options::TurnOptions;

/// An input that waits in a session's inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Submission {
    /// A message from the user, or the first message from the parent session.
    Message {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<IdempotencyKey>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mid_turn_policy: Option<MidTurnPolicy>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<PromptImage>,
    },
    /// A message from a client that brings tools of its own, or requires a format of the answer.
    ClientMessage {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<IdempotencyKey>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<PromptImage>,
        options: TurnOptions,
    },
    /// A command from an operator.
    Command { command: OperatorCommand },
    /// A question from another session.
    Ask {
        /// The sender's id of the question; `None` if it expects no reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<AskId>,
        topic: String,
        body: Value,
    },
    /// The reply to a question.
    Reply { ask: AskId, reply: AskOutcome },
    /// A question could not be delivered.
    AskBounced { ask: AskId },
    /// A reply could not be delivered.
    ReplyBounced { ask: AskId },
    /// The parent session tells its child to close.
    CloseChild { child: ChildId, reason: String },
    /// A child session ended.
    ChildEnded { child: ChildId, outcome: ChildOutcome, usage: ChildUsage },
}

/// The session that submitted an entry, as recorded by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmissionSender {
    pub session: SessionId,
    pub uid: SessionUid,
}

/// An entry of a session's inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxInput {
    pub id: SubmissionId,
    /// `None` if a client submitted it.
    pub sender: Option<SubmissionSender>,
    /// What was submitted, or why it cannot be handled.
    pub content: Result<Submission, String>,
}

/// What became of an entry: the message that was received, if it was one, or why it was refused.
pub type SubmissionOutcome = Result<Option<MessageId>, InputRefusal>;

/// A submission that follows from a decision and is written in the same commit.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmissionToOtherSession {
    pub to: SessionId,
    /// The receiver's identity, if it is known.
    pub expected_uid: Option<SessionUid>,
    pub submission: Submission,
    /// What the sender's own inbox gets if the submission cannot be delivered.
    pub bounce: Option<Submission>,
}

/// A child session that follows from a decision and is created in the same commit.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildToSpawn {
    pub spawned: ChildSpawned,
    pub request: SpawnChildRequest,
}

impl Submission {
    /// Returns true if the entry must be accepted even if the inbox is full, because another session waits for it.
    #[must_use]
    pub fn is_exempt_from_limit(&self) -> bool {
        match self {
            Self::Message { .. } | Self::ClientMessage { .. } => false,
            // A claim that is not released blocks everyone who waits for it.
            Self::Ask { reply_to, topic, .. } => reply_to.is_none() && topic == RELEASE_TOPIC,
            Self::Command { command } => matches!(command, OperatorCommand::Cancel { .. } | OperatorCommand::Close),
            Self::Reply { .. }
            | Self::AskBounced { .. }
            | Self::ReplyBounced { .. }
            | Self::CloseChild { .. }
            | Self::ChildEnded { .. } => true,
        }
    }

    /// Encodes the submission as JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("submissions have string keys and no failing parts")
    }

    /// Decodes a submission.
    ///
    /// # Errors
    /// Fails with the reason if the bytes are not a submission that this version knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("the entry cannot be read by this version: {error}"))
    }
}
