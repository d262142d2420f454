//! What is submitted to a session's inbox: inputs of clients that reached another process, and what sessions send each
//! other. Every entry ends in a recorded event, so that it is handled once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::draft::DecisionDraft;
use super::{InputRefusal, OperatorCommand};
use crate::event::{AskOutcome, ChildSessionOutcome, ClientTurnOptions, Event, MidTurnPolicy};
use crate::ids::{AskId, ChildId, IdempotencyKey, SessionId, SessionUid, SubmissionId};
use crate::prompt::PromptImage;
use crate::session::ledger::ChildSessionUsage;

/// An input that waits in a session's inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InboxSubmission {
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
        options: ClientTurnOptions,
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
    ChildEnded { child: ChildId, outcome: ChildSessionOutcome, usage: ChildSessionUsage },
}

/// The session that submitted an entry, as recorded by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittingSession {
    pub session: SessionId,
    pub uid: SessionUid,
}

/// A submission that follows from a decision and is written in the same commit.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmissionToOtherSession {
    pub to: SessionId,
    /// The receiver's identity, if it is known.
    pub expected_uid: Option<SessionUid>,
    pub submission: InboxSubmission,
    /// What the sender's own inbox gets if the submission cannot be delivered.
    pub bounce: Option<InboxSubmission>,
}

impl DecisionDraft<'_> {
    /// Handles an entry of the inbox. If it is refused, the refusal is recorded.
    pub(super) fn handle_submission(
        &mut self,
        id: SubmissionId,
        sender: Option<&SubmittingSession>,
        content: Result<InboxSubmission, String>,
    ) {
        let result = match content {
            Ok(submission) => self.handle_submitted(sender, submission),
            Err(why) => Err(InputRefusal::UnusableSubmission(why)),
        };
        let refusal = result.as_ref().err().map(ToString::to_string);
        self.record_event(Event::SubmissionHandled { submission: id, refusal });
        self.submission_outcome = Some(result.map(|()| self.message));
    }

    fn handle_submitted(
        &mut self,
        sender: Option<&SubmittingSession>,
        submission: InboxSubmission,
    ) -> Result<(), InputRefusal> {
        match submission {
            InboxSubmission::Message { text, idempotency_key, mid_turn_policy, images } => {
                if sender.is_none() {
                    let options = ClientTurnOptions::default();
                    return self.receive_message(text, idempotency_key, mid_turn_policy, images, &options);
                }
                if !self.is_sent_by_parent(sender) {
                    return Err(InputRefusal::UnusableSubmission("sessions do not send user messages".to_owned()));
                }
                let (policy, options) = (Some(MidTurnPolicy::Queue), ClientTurnOptions::default());
                let received = self.receive_message(text, idempotency_key, policy, images, &options);
                if let Err(refusal) = &received
                    && self.session().closed_reason.is_none()
                {
                    // Without its first message the child would wait for ever.
                    self.record_event(Event::SessionClosed {
                        reason: format!("its first message was refused: {refusal}"),
                    });
                }
                received
            }
            InboxSubmission::ClientMessage { text, idempotency_key, images, options } => match sender {
                Some(_) => Err(InputRefusal::UnusableSubmission("sessions do not send user messages".to_owned())),
                None => self.receive_message(text, idempotency_key, None, images, &options),
            },
            InboxSubmission::Command { command } => match sender {
                Some(_) => Err(InputRefusal::UnusableSubmission("sessions do not send commands".to_owned())),
                None => self.handle_command(command),
            },
            InboxSubmission::Ask { reply_to, topic, body } => self.receive_ask(sender, reply_to, topic, body),
            InboxSubmission::Reply { ask, reply } => self.receive_reply(sender, ask, reply),
            InboxSubmission::AskBounced { ask } => {
                self.require_own_entry(sender)?;
                self.receive_bounced_ask(ask)
            }
            InboxSubmission::ReplyBounced { ask } => {
                self.require_own_entry(sender)?;
                self.record_event(Event::ReplyUndelivered { ask });
                Ok(())
            }
            InboxSubmission::CloseChild { child, reason } => self.close_as_child(sender, child, &reason),
            InboxSubmission::ChildEnded { child, outcome, usage } => self.end_child(sender, child, outcome, usage),
        }
    }

    /// Refuses an entry that only the session's own commits can contain.
    fn require_own_entry(&self, sender: Option<&SubmittingSession>) -> Result<(), InputRefusal> {
        match sender {
            Some(sender) if self.session().id.as_ref() == Some(&sender.session) => Ok(()),
            _ => Err(InputRefusal::UnusableSubmission("only the store reports what it could not deliver".to_owned())),
        }
    }
}
