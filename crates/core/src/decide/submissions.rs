//! Handles the entries of a session's inbox. Every entry ends in a recorded event, so that it is handled once.

use super::InputRefusal;
use super::draft::DecisionDraft;
use crate::event::{Event, MidTurnPolicy};
use crate::submission::{InboxInput, Submission, SubmissionSender};
use crate::turn_options::TurnOptions;

impl DecisionDraft<'_> {
    /// Handles an entry of the inbox. If it is refused, the refusal is recorded.
    pub(super) fn handle_submission(&mut self, entry: InboxInput) {
        let InboxInput { id, sender, content } = entry;
        let result = match content {
            Ok(submission) => self.handle_submitted(sender.as_ref(), submission),
            Err(why) => Err(InputRefusal::UnusableSubmission(why)),
        };
        let refusal = result.as_ref().err().map(ToString::to_string);
        self.record_event(Event::SubmissionHandled { submission: id, refusal });
        self.submission_outcome = Some(result.map(|()| self.message));
    }

    fn handle_submitted(
        &mut self,
        sender: Option<&SubmissionSender>,
        submission: Submission,
    ) -> Result<(), InputRefusal> {
        match submission {
            Submission::Message { text, idempotency_key, mid_turn_policy, images } => {
                if sender.is_none() {
                    let options = TurnOptions::default();
                    return self.receive_message(text, idempotency_key, mid_turn_policy, images, &options);
                }
                if !self.is_sent_by_parent(sender) {
                    return Err(InputRefusal::UnusableSubmission("sessions do not send user messages".to_owned()));
                }
                let (policy, options) = (Some(MidTurnPolicy::Queue), TurnOptions::default());
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
            Submission::ClientMessage { text, idempotency_key, images, options } => match sender {
                Some(_) => Err(InputRefusal::UnusableSubmission("sessions do not send user messages".to_owned())),
                None => self.receive_message(text, idempotency_key, None, images, &options),
            },
            Submission::Command { command } => match sender {
                Some(_) => Err(InputRefusal::UnusableSubmission("sessions do not send commands".to_owned())),
                None => self.handle_command(command),
            },
            Submission::Ask { reply_to, topic, body } => self.receive_ask(sender, reply_to, topic, body),
            Submission::Reply { ask, reply } => self.receive_reply(sender, ask, reply),
            Submission::AskBounced { ask } => {
                self.require_own_entry(sender)?;
                self.receive_bounced_ask(ask)
            }
            Submission::ReplyBounced { ask } => {
                self.require_own_entry(sender)?;
                self.record_event(Event::ReplyUndelivered { ask });
                Ok(())
            }
            Submission::CloseChild { child, reason } => self.close_as_child(sender, child, &reason),
            Submission::ChildEnded { child, outcome, usage } => self.end_child(sender, child, outcome, usage),
        }
    }

    /// Refuses an entry that only the session's own commits can contain.
    fn require_own_entry(&self, sender: Option<&SubmissionSender>) -> Result<(), InputRefusal> {
        match sender {
            Some(sender) if self.session().id.as_ref() == Some(&sender.session) => Ok(()),
            _ => Err(InputRefusal::UnusableSubmission("only the store reports what it could not deliver".to_owned())),
        }
    }
}
