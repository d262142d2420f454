//! Streams the reply to one message as text that only grows. Streamed text cannot be taken back: if an attempt starts over
//! with another text, that text follows after a paragraph break. No text is sent twice.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, Seq, TurnId};
use segue_engine::{Error, SessionUpdate, Subscription, UserMessage};

use super::fingerprint::ConversationFingerprint;
use super::session_lookup::ResolvedClientRequest;
use crate::api::common_types::TurnResultView;
use crate::api::messages::{MessageResult, build_message_result};
use crate::api::session_view::with_session_history;
use crate::extract::RequestedSession;
use crate::history::CallEndHistoryEntry;
use crate::problem::HttpProblem;
use crate::usage::admit_turn;

/// The next part of a reply.
#[derive(Debug)]
pub(crate) enum ReplyUpdate {
    /// More text.
    TextDelta(String),
    /// The turn has ended.
    Finished(Box<OpenAiTurnResult>),
}

/// The result of a reply.
#[derive(Debug)]
pub(crate) struct OpenAiTurnResult {
    pub report: MessageResult,
    /// Why the last reply ended, as OpenAI's `finish_reason`.
    pub finish_reason: &'static str,
}

/// A message that is being answered.
#[derive(Debug)]
pub(crate) struct TurnReplyStream {
    session_ref: RequestedSession,
    pub message: MessageId,
    message_hash: BodyId,
    prior_fingerprint: Option<ConversationFingerprint>,
    subscription: Subscription,
    turn: Option<TurnId>,
    delta_merger: MultiCallTextMerger,
    wants_deltas: bool,
    is_finished: bool,
}

impl TurnReplyStream {
    /// Sends the message, unless it exists already, and subscribes to its session.
    ///
    /// # Errors
    /// The message is not accepted.
    pub(crate) async fn start(request: ResolvedClientRequest, wants_deltas: bool) -> Result<Self, HttpProblem> {
        let ResolvedClientRequest { session_ref, content, idempotency_key, existing_message, prior_fingerprint } =
            request;
        let message_hash = content.content_hash();
        let message = match existing_message {
            Some(message) => message,
            None => {
                let _admitted = admit_turn(&session_ref).await?;
                let message =
                    UserMessage { idempotency_key, images: content.images, ..UserMessage::from(content.text) };
                session_ref
                    .app
                    .engine
                    .send_message(&session_ref.session, message)
                    .await
                    .map_err(|error| session_ref.to_problem(error))?
            }
        };
        let after = with_session_history(&session_ref, None, |history| {
            history.messages.get(&message).map(|entry| entry.position.seq)
        });
        let after = Seq(after.await?.unwrap_or_default().0.saturating_sub(1));
        let subscription = session_ref
            .app
            .engine
            .subscribe(&session_ref.session, after)
            .await
            .map_err(|error| session_ref.to_problem(error))?;
        Ok(Self {
            session_ref,
            message,
            message_hash,
            prior_fingerprint,
            subscription,
            turn: None,
            delta_merger: MultiCallTextMerger::default(),
            wants_deltas,
            is_finished: false,
        })
    }

    /// Returns the session's name as the caller knows it.
    #[must_use]
    pub(crate) fn session_name(&self) -> String {
        self.session_ref.public_name()
    }

    /// Returns the next part of the reply; `None` after its end.
    ///
    /// # Errors
    /// The turn produced no reply, or the session can no longer be read.
    pub(crate) async fn next_update(&mut self) -> Result<Option<ReplyUpdate>, HttpProblem> {
        while !self.is_finished {
            let app = self.session_ref.app.clone();
            let update = tokio::select! {
                biased;
                () = app.keys.wait_for_revocation(&self.session_ref.caller) => return Err(HttpProblem::key_revoked()),
                () = app.wait_for_shutdown(), if self.wants_deltas => return Err(self.session_ref.to_problem(Error::ShuttingDown)),
                update = self.subscription.next_update() => update.map_err(|error| self.session_ref.to_problem(error))?,
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, offset, text }
                    if self.wants_deltas && self.turn.is_some() =>
                {
                    if let Some(text) = self.delta_merger.push_delta(call, attempt, offset, &text) {
                        return Ok(Some(ReplyUpdate::TextDelta(text)));
                    }
                }
                SessionUpdate::TextDelta { .. } | SessionUpdate::ToolProgress { .. } => {}
                SessionUpdate::Event(recorded) => {
                    if let Some(update) = self.handle_event(&recorded.event).await? {
                        return Ok(Some(update));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn handle_event(&mut self, event: &Event) -> Result<Option<ReplyUpdate>, HttpProblem> {
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&self.message) => self.turn = Some(*turn),
            Event::ReplySent(reply) if self.turn.is_some() && self.wants_deltas => {
                let engine = &self.session_ref.app.engine;
                let texts = engine.read_texts(&self.session_ref.session, &[reply.text.body]).await;
                let texts = texts.map_err(|error| self.session_ref.to_problem(error))?;
                let text = texts.first().map(ToString::to_string).unwrap_or_default();
                return Ok(self.delta_merger.push_final_text(reply.call, &text).map(ReplyUpdate::TextDelta));
            }
            Event::TurnEnded { turn, .. } if self.turn == Some(*turn) => {
                self.is_finished = true;
                return self.build_finished_reply().await.map(|ended| Some(ReplyUpdate::Finished(Box::new(ended))));
            }
            Event::SessionClosed { reason } if self.turn.is_none() => {
                let refusal = segue_core::decide::InputRefusal::Closed { reason: reason.clone() };
                return Err(self.session_ref.to_problem(Error::Refused(refusal)));
            }
            _ => {}
        }
        Ok(None)
    }

    async fn build_finished_reply(&self) -> Result<OpenAiTurnResult, HttpProblem> {
        let report = build_message_result(&self.session_ref, self.message, None).await?;
        if report.reply.is_empty() {
            return Err(no_reply_problem(&report.outcome));
        }
        let finish_reason = with_session_history(&self.session_ref, None, |history| {
            let call = report.replies.last().and_then(|reply| reply.call.as_ref()?.parse::<CallId>().ok());
            match call.and_then(|call| history.calls.get(&call)).and_then(|entry| entry.end.as_ref()) {
                Some(CallEndHistoryEntry::Answered {
                    stop_reason:
                        Some(segue_core::prompt::StopReason::Length | segue_core::prompt::StopReason::Repetition),
                    ..
                }) => "length",
                Some(CallEndHistoryEntry::Answered {
                    stop_reason: Some(segue_core::prompt::StopReason::ContentFilter),
                    ..
                }) => "content_filter",
                _ => "stop",
            }
        });
        let finish_reason = finish_reason.await?;
        Ok(OpenAiTurnResult { report, finish_reason })
    }

    /// Records that the reply was delivered.
    pub(crate) fn mark_delivered(&self, reply: &str) {
        let conversation =
            self.prior_fingerprint.map(|prior_fingerprint| prior_fingerprint.extend(self.message_hash, reply).id());
        self.session_ref.app.conversation_cache.record_delivery(conversation, &self.session_ref.session, self.message);
    }
}

/// Builds the problem for a turn without a reply. Repeating the request at once would not help.
fn no_reply_problem(outcome: &TurnResultView) -> HttpProblem {
    let reason = match outcome {
        TurnResultView::Failed { reason } => reason.clone(),
        TurnResultView::Cancelled => "it was cancelled".to_owned(),
        TurnResultView::Interrupted => "another message replaced it".to_owned(),
        TurnResultView::Done => "the flow sent no reply".to_owned(),
    };
    HttpProblem::new("turn-failed", format!("the turn produced no reply: {reason}"))
        .with_extension("should_retry", false)
}

/// Merges the text deltas of several calls and attempts into one growing text.
#[derive(Debug, Default)]
struct MultiCallTextMerger {
    has_output: bool,
    current_call: Option<StreamedCall>,
}

#[derive(Debug)]
struct StreamedCall {
    call: CallId,
    attempt: u32,
    /// The text of the current attempt.
    text: String,
    /// The text sent for this call so far.
    sent_text: String,
}

const PARAGRAPH_BREAK: &str = "\n\n";

impl MultiCallTextMerger {
    fn push_delta(&mut self, call: CallId, attempt: u32, offset: usize, text: &str) -> Option<String> {
        let is_first = self.current_call.is_none();
        let current = self.current_call.get_or_insert_with(|| StreamedCall {
            call,
            attempt,
            text: String::new(),
            sent_text: String::new(),
        });
        if current.call != call {
            // The text of a second call is sent as a whole with its reply event.
            return None;
        }
        if current.attempt != attempt {
            current.attempt = attempt;
            current.text.clear();
        }
        if current.text.is_char_boundary(offset) {
            current.text.truncate(offset);
        }
        current.text.push_str(text);
        let more = current.take_unsent_text()?;
        let before = if is_first && self.has_output { PARAGRAPH_BREAK } else { "" };
        self.has_output = true;
        Some(format!("{before}{more}"))
    }

    fn push_final_text(&mut self, call: Option<CallId>, text: &str) -> Option<String> {
        let current = self.current_call.take_if(|current| Some(current.call) == call);
        let more = match current {
            Some(mut current) if !current.sent_text.is_empty() => {
                text.clone_into(&mut current.text);
                // Trailing white space may have been trimmed.
                if current.sent_text.trim_end() == text.trim_end() { None } else { current.take_unsent_text() }
            }
            _ if text.is_empty() => None,
            _ => Some(format!("{}{text}", if self.has_output { PARAGRAPH_BREAK } else { "" })),
        };
        self.has_output |= more.is_some();
        more
    }
}

impl StreamedCall {
    /// Returns the text to send so that all of the current attempt has been sent.
    fn take_unsent_text(&mut self) -> Option<String> {
        if let Some(more) = self.text.strip_prefix(self.sent_text.as_str()) {
            let more = more.to_owned();
            self.sent_text.clone_from(&self.text);
            return Some(more).filter(|more| !more.is_empty());
        }
        // The attempt started over and repeats what was sent.
        if self.sent_text.starts_with(self.text.as_str()) {
            return None;
        }
        self.sent_text.clone_from(&self.text);
        Some(format!("{PARAGRAPH_BREAK}{}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CallId = CallId(1);
    const B: CallId = CallId(2);

    fn all(parts: impl IntoIterator<Item = Option<String>>) -> String {
        parts.into_iter().flatten().collect()
    }

    #[test]
    fn streamed_text_is_not_sent_again() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "Hel"),
            merger.push_delta(A, 1, 3, "lo"),
            merger.push_final_text(Some(A), "Hello there"),
        ];
        assert_eq!(all(update), "Hello there");
        let update = [
            merger.push_delta(B, 1, 0, "And"),
            merger.push_final_text(Some(B), "And so on"),
            merger.push_final_text(None, "Bye"),
        ];
        assert_eq!(all(update), "\n\nAnd so on\n\nBye");
    }

    #[test]
    fn repeated_text_of_a_retry_is_sent_once() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "Once upon"),
            merger.push_delta(A, 2, 0, "Once"),
            merger.push_delta(A, 2, 4, " upon a time"),
            merger.push_final_text(Some(A), "Once upon a time"),
        ];
        assert_eq!(all(update), "Once upon a time");
    }

    #[test]
    fn different_text_of_a_retry_follows_a_paragraph_break() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "On"),
            merger.push_delta(A, 2, 0, "Never"),
            merger.push_final_text(Some(A), "Never mind"),
        ];
        assert_eq!(all(update), "On\n\nNever mind");
    }

    #[test]
    fn texts_of_two_calls_are_not_interleaved() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "one "),
            merger.push_delta(B, 1, 0, "two"),
            merger.push_delta(A, 1, 4, "three"),
            merger.push_final_text(Some(A), "one three"),
            merger.push_final_text(Some(B), "two"),
        ];
        assert_eq!(all(update), "one three\n\ntwo");
    }
}
