//! One message being answered, as a client of the door hears it: words that only ever grow. What was streamed cannot be taken back, so a
//! try that starts over is told after a break, and nothing is told twice.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, Seq, TurnId};
use segue_engine::{Error, SessionUpdate, Subscription, UserMessage};

use super::conversation::extend_fingerprint;
use super::session_lookup::ResolvedRequest;
use crate::api::common_types::TurnResultView;
use crate::api::messages::{MessageResult, build_message_result, check_turn_capacity};
use crate::api::session_view::with_session_history;
use crate::extract::SessionRef;
use crate::history::CallEndEntry;
use crate::problem::HttpProblem;

/// What is heard next.
#[derive(Debug)]
pub enum ReplyUpdate {
    /// More words.
    TextDelta(String),
    /// The turn is over.
    Finished(Box<FinishedReply>),
}

/// How it ended.
#[derive(Debug)]
pub struct FinishedReply {
    /// What the message led to.
    pub report: MessageResult,
    /// Why the last answer that was heard stopped, in the words of OpenAI's API.
    pub finish_reason: &'static str,
}

/// A message being answered.
#[derive(Debug)]
pub struct ReplyStream {
    session_ref: SessionRef,
    /// The message.
    pub message: MessageId,
    message_hash: BodyId,
    prior_fingerprint: Option<BodyId>,
    subscription: Subscription,
    turn: Option<TurnId>,
    delta_merger: TextDeltaMerger,
    wants_deltas: bool,
    is_finished: bool,
}

impl ReplyStream {
    /// Says what is to be said, and listens.
    ///
    /// # Errors
    /// It is not accepted.
    pub async fn start(request: ResolvedRequest, words: bool) -> Result<Self, HttpProblem> {
        let ResolvedRequest {
            session_ref: held,
            content: wanted,
            idempotency_key: key,
            existing_message: known,
            prior_fingerprint: so_far,
        } = request;
        let asked = wanted.content_hash();
        let message = match known {
            Some(message) => message,
            None => {
                check_turn_capacity(&held)?;
                let message =
                    UserMessage { idempotency_key: key, images: wanted.images, ..UserMessage::from(wanted.text) };
                held.app.engine.send_message(&held.session, message).await.map_err(|error| held.to_problem(error))?
            }
        };
        let after = with_session_history(&held, None, |chronicle| {
            chronicle.messages.get(&message).map(|note| note.position.seq)
        });
        let after = Seq(after.await?.unwrap_or_default().0.saturating_sub(1));
        let listener = held.app.engine.subscribe(&held.session, after).await.map_err(|error| held.to_problem(error))?;
        Ok(Self {
            session_ref: held,
            message,
            message_hash: asked,
            prior_fingerprint: so_far,
            subscription: listener,
            turn: None,
            delta_merger: TextDeltaMerger::default(),
            wants_deltas: words,
            is_finished: false,
        })
    }

    /// The session.
    #[must_use]
    pub fn session_name(&self) -> String {
        self.session_ref.public_name()
    }

    /// What is heard next; nothing once it has ended.
    ///
    /// # Errors
    /// The turn brought nothing, or the session cannot be read any more.
    pub async fn next_update(&mut self) -> Result<Option<ReplyUpdate>, HttpProblem> {
        while !self.is_finished {
            let app = self.session_ref.app.clone();
            let update = tokio::select! {
                () = app.wait_for_shutdown(), if self.wants_deltas => return Err(self.session_ref.to_problem(Error::ShuttingDown)),
                update = self.subscription.next_update() => update.map_err(|error| self.session_ref.to_problem(error))?,
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, offset: at, text }
                    if self.wants_deltas && self.turn.is_some() =>
                {
                    if let Some(words) = self.delta_merger.push_delta(call, attempt, at, &text) {
                        return Ok(Some(ReplyUpdate::TextDelta(words)));
                    }
                }
                SessionUpdate::TextDelta { .. } => {}
                SessionUpdate::Event(recorded) => {
                    if let Some(heard) = self.handle_event(&recorded.event).await? {
                        return Ok(Some(heard));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn handle_event(&mut self, event: &Event) -> Result<Option<ReplyUpdate>, HttpProblem> {
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&self.message) => self.turn = Some(*turn),
            Event::ReplySent(said) if self.turn.is_some() && self.wants_deltas => {
                let engine = &self.session_ref.app.engine;
                let texts = engine.read_texts(&self.session_ref.session, &[said.text.body]).await;
                let texts = texts.map_err(|error| self.session_ref.to_problem(error))?;
                let text = texts.first().map(ToString::to_string).unwrap_or_default();
                return Ok(self.delta_merger.push_final_text(said.call, &text).map(ReplyUpdate::TextDelta));
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

    async fn build_finished_reply(&self) -> Result<FinishedReply, HttpProblem> {
        let report = build_message_result(&self.session_ref, self.message, None).await?;
        if report.reply.is_empty() {
            return Err(no_reply_problem(&report.outcome));
        }
        let finish = with_session_history(&self.session_ref, None, |chronicle| {
            let call = report.replies.last().and_then(|reply| reply.call.as_ref()?.parse::<CallId>().ok());
            match call.and_then(|call| chronicle.calls.get(&call)).and_then(|note| note.end.as_ref()) {
                Some(CallEndEntry::Answered { stop_reason: Some(segue_core::prompt::StopReason::Length), .. }) => {
                    "length"
                }
                Some(CallEndEntry::Answered {
                    stop_reason: Some(segue_core::prompt::StopReason::ContentFilter),
                    ..
                }) => "content_filter",
                _ => "stop",
            }
        });
        let finish = finish.await?;
        Ok(FinishedReply { report, finish_reason: finish })
    }

    /// The answer was heard.
    pub fn mark_delivered(&self, reply: &str) {
        let conversation = self.prior_fingerprint.map(|so_far| extend_fingerprint(so_far, self.message_hash, reply));
        self.session_ref.app.conversation_cache.record_delivery(conversation, &self.session_ref.session, self.message);
    }
}

/// A turn that brought no words: there is nothing to answer with, and asking again at once would not help.
fn no_reply_problem(outcome: &TurnResultView) -> HttpProblem {
    let why = match outcome {
        TurnResultView::Failed { reason } => reason.clone(),
        TurnResultView::Cancelled => "it was stopped".to_owned(),
        TurnResultView::Interrupted => "another message took its place".to_owned(),
        TurnResultView::Done => "nothing was said".to_owned(),
    };
    HttpProblem::new("turn-failed", format!("the turn brought no answer: {why}")).with_extension("retry", false)
}

/// Words as they were told, one speaker at a time.
#[derive(Debug, Default)]
struct TextDeltaMerger {
    /// Whether anything was told yet.
    has_output: bool,
    current_call: Option<StreamedCall>,
}

#[derive(Debug)]
struct StreamedCall {
    call: CallId,
    attempt: u32,
    /// What this try has said.
    text: String,
    /// What was told of the call.
    sent_text: String,
}

const PARAGRAPH_BREAK: &str = "\n\n";

impl TextDeltaMerger {
    fn push_delta(&mut self, call: CallId, attempt: u32, at: usize, text: &str) -> Option<String> {
        let is_first = self.current_call.is_none();
        let speaker = self.current_call.get_or_insert_with(|| StreamedCall {
            call,
            attempt,
            text: String::new(),
            sent_text: String::new(),
        });
        if speaker.call != call {
            // What a second speaker says meanwhile is told when it is said.
            return None;
        }
        if speaker.attempt != attempt {
            speaker.attempt = attempt;
            speaker.text.clear();
        }
        if speaker.text.is_char_boundary(at) {
            speaker.text.truncate(at);
        }
        speaker.text.push_str(text);
        let more = speaker.take_unsent_text()?;
        let before = if is_first && self.has_output { PARAGRAPH_BREAK } else { "" };
        self.has_output = true;
        Some(format!("{before}{more}"))
    }

    fn push_final_text(&mut self, call: Option<CallId>, text: &str) -> Option<String> {
        let speaker = self.current_call.take_if(|speaker| Some(speaker.call) == call);
        let more = match speaker {
            Some(mut speaker) if !speaker.sent_text.is_empty() => {
                text.clone_into(&mut speaker.text);
                // White space at its end may have been left away.
                if speaker.sent_text.trim_end() == text.trim_end() { None } else { speaker.take_unsent_text() }
            }
            _ if text.is_empty() => None,
            _ => Some(format!("{}{text}", if self.has_output { PARAGRAPH_BREAK } else { "" })),
        };
        self.has_output |= more.is_some();
        more
    }
}

impl StreamedCall {
    /// What is to be told so that all of this try was.
    fn take_unsent_text(&mut self) -> Option<String> {
        if let Some(more) = self.text.strip_prefix(self.sent_text.as_str()) {
            let more = more.to_owned();
            self.sent_text.clone_from(&self.text);
            return Some(more).filter(|more| !more.is_empty());
        }
        // It starts over, and says the same so far.
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
    fn what_came_in_words_is_not_told_again() {
        let mut voice = TextDeltaMerger::default();
        let heard = [
            voice.push_delta(A, 1, 0, "Hel"),
            voice.push_delta(A, 1, 3, "lo"),
            voice.push_final_text(Some(A), "Hello there"),
        ];
        assert_eq!(all(heard), "Hello there");
        let heard = [
            voice.push_delta(B, 1, 0, "And"),
            voice.push_final_text(Some(B), "And so on"),
            voice.push_final_text(None, "Bye"),
        ];
        assert_eq!(all(heard), "\n\nAnd so on\n\nBye");
    }

    #[test]
    fn a_try_that_starts_over_and_says_the_same_is_told_once() {
        let mut voice = TextDeltaMerger::default();
        let heard = [
            voice.push_delta(A, 1, 0, "Once upon"),
            voice.push_delta(A, 2, 0, "Once"),
            voice.push_delta(A, 2, 4, " upon a time"),
            voice.push_final_text(Some(A), "Once upon a time"),
        ];
        assert_eq!(all(heard), "Once upon a time");
    }

    #[test]
    fn a_try_that_says_something_else_is_told_after_a_break() {
        let mut voice = TextDeltaMerger::default();
        let heard = [
            voice.push_delta(A, 1, 0, "On"),
            voice.push_delta(A, 2, 0, "Never"),
            voice.push_final_text(Some(A), "Never mind"),
        ];
        assert_eq!(all(heard), "On\n\nNever mind");
    }

    #[test]
    fn two_speakers_do_not_mix() {
        let mut voice = TextDeltaMerger::default();
        let heard = [
            voice.push_delta(A, 1, 0, "one "),
            voice.push_delta(B, 1, 0, "two"),
            voice.push_delta(A, 1, 4, "three"),
            voice.push_final_text(Some(A), "one three"),
            voice.push_final_text(Some(B), "two"),
        ];
        assert_eq!(all(heard), "one three\n\ntwo");
    }
}
