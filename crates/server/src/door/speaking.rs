//! One message being answered, as a client of the door hears it: words that only ever grow. What was streamed cannot be taken back, so a
//! try that starts over is told after a break, and nothing is told twice.

use segue_core::body::BodyId;
use segue_core::event::Event;
use segue_core::ids::{CallId, MessageId, Seq, TurnId};
use segue_engine::{Error, Message, Subscription, Update};

use super::find::Landing;
use super::history::further;
use crate::api::messages::{MessageReport, report, room_for_turn};
use crate::api::session_view::chronicle;
use crate::api::shapes::TurnOutcome;
use crate::chronicle::CallEnd;
use crate::extract::Held;
use crate::problem::Problem;

/// What is heard next.
#[derive(Debug)]
pub enum Heard {
    /// More words.
    Words(String),
    /// The turn is over.
    Ended(Box<Ended>),
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// What the message led to.
    pub report: MessageReport,
    /// Why the last answer that was heard stopped, in the words of OpenAI's API.
    pub finish: &'static str,
}

/// A message being answered.
#[derive(Debug)]
pub struct Speaking {
    held: Held,
    /// The message.
    pub message: MessageId,
    asked: BodyId,
    so_far: Option<BodyId>,
    listener: Subscription,
    turn: Option<TurnId>,
    voice: Voice,
    words: bool,
    over: bool,
}

impl Speaking {
    /// Says what is to be said, and listens.
    ///
    /// # Errors
    /// It is not accepted.
    pub async fn begin(landing: Landing, words: bool) -> Result<Self, Problem> {
        let Landing { held, words: wanted, key, known, so_far } = landing;
        let asked = wanted.id();
        let message = match known {
            Some(message) => message,
            None => {
                room_for_turn(&held)?;
                let message = Message { key, images: wanted.images, ..Message::from(wanted.text) };
                held.app.engine.send(&held.session, message).await.map_err(|error| held.problem(error))?
            }
        };
        let after = chronicle(&held, None, |chronicle| chronicle.messages.get(&message).map(|note| note.place.seq));
        let after = Seq(after.await?.unwrap_or_default().0.saturating_sub(1));
        let listener = held.app.engine.subscribe(&held.session, after).await.map_err(|error| held.problem(error))?;
        Ok(Self { held, message, asked, so_far, listener, turn: None, voice: Voice::default(), words, over: false })
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> String {
        self.held.name()
    }

    /// What is heard next; nothing once it has ended.
    ///
    /// # Errors
    /// The turn brought nothing, or the session cannot be read any more.
    pub async fn next(&mut self) -> Result<Option<Heard>, Problem> {
        while !self.over {
            let app = self.held.app.clone();
            let update = tokio::select! {
                () = app.closed(), if self.words => return Err(self.held.problem(Error::ShuttingDown)),
                update = self.listener.next() => update.map_err(|error| self.held.problem(error))?,
            };
            match update {
                Update::Words { call, attempt, at, text } if self.words && self.turn.is_some() => {
                    if let Some(words) = self.voice.words(call, attempt, at, &text) {
                        return Ok(Some(Heard::Words(words)));
                    }
                }
                Update::Words { .. } => {}
                Update::Event(recorded) => {
                    if let Some(heard) = self.event(&recorded.event).await? {
                        return Ok(Some(heard));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn event(&mut self, event: &Event) -> Result<Option<Heard>, Problem> {
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&self.message) => self.turn = Some(*turn),
            Event::Said(said) if self.turn.is_some() && self.words => {
                let engine = &self.held.app.engine;
                let texts = engine.texts(&self.held.session, &[said.text.body]).await;
                let texts = texts.map_err(|error| self.held.problem(error))?;
                let text = texts.first().map(ToString::to_string).unwrap_or_default();
                return Ok(self.voice.said(said.call, &text).map(Heard::Words));
            }
            Event::TurnEnded { turn, .. } if self.turn == Some(*turn) => {
                self.over = true;
                return self.ended().await.map(|ended| Some(Heard::Ended(Box::new(ended))));
            }
            Event::SessionClosed { reason } if self.turn.is_none() => {
                let refusal = segue_core::decide::Refusal::Closed { reason: reason.clone() };
                return Err(self.held.problem(Error::Refused(refusal)));
            }
            _ => {}
        }
        Ok(None)
    }

    async fn ended(&self) -> Result<Ended, Problem> {
        let report = report(&self.held, self.message, None).await?;
        if report.reply.is_empty() {
            return Err(nothing_said(&report.outcome));
        }
        let finish = chronicle(&self.held, None, |chronicle| {
            let call = report.replies.last().and_then(|reply| reply.call.as_ref()?.parse::<CallId>().ok());
            match call.and_then(|call| chronicle.calls.get(&call)).and_then(|note| note.end.as_ref()) {
                Some(CallEnd::Answered { stop: Some(segue_core::prompt::Stop::Length), .. }) => "length",
                Some(CallEnd::Answered { stop: Some(segue_core::prompt::Stop::Filtered), .. }) => "content_filter",
                _ => "stop",
            }
        });
        let finish = finish.await?;
        Ok(Ended { report, finish })
    }

    /// The answer was heard.
    pub fn heard(&self, reply: &str) {
        let conversation = self.so_far.map(|so_far| further(so_far, self.asked, reply));
        self.held.app.heard.note(conversation, &self.held.session, self.message);
    }
}

/// A turn that brought no words: there is nothing to answer with, and asking again at once would not help.
fn nothing_said(outcome: &TurnOutcome) -> Problem {
    let why = match outcome {
        TurnOutcome::Failed { reason } => reason.clone(),
        TurnOutcome::Cancelled => "it was stopped".to_owned(),
        TurnOutcome::Interrupted => "another message took its place".to_owned(),
        TurnOutcome::Done => "nothing was said".to_owned(),
    };
    Problem::new("turn-failed", format!("the turn brought no answer: {why}")).with("retry", false)
}

/// Words as they were told, one speaker at a time.
#[derive(Debug, Default)]
struct Voice {
    /// Whether anything was told yet.
    told: bool,
    speaker: Option<Speaker>,
}

#[derive(Debug)]
struct Speaker {
    call: CallId,
    attempt: u32,
    /// What this try has said.
    text: String,
    /// What was told of the call.
    told: String,
}

const BREAK: &str = "\n\n";

impl Voice {
    fn words(&mut self, call: CallId, attempt: u32, at: usize, text: &str) -> Option<String> {
        let is_first = self.speaker.is_none();
        let speaker =
            self.speaker.get_or_insert_with(|| Speaker { call, attempt, text: String::new(), told: String::new() });
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
        let more = speaker.catch_up()?;
        let before = if is_first && self.told { BREAK } else { "" };
        self.told = true;
        Some(format!("{before}{more}"))
    }

    fn said(&mut self, call: Option<CallId>, text: &str) -> Option<String> {
        let speaker = self.speaker.take_if(|speaker| Some(speaker.call) == call);
        let more = match speaker {
            Some(mut speaker) if !speaker.told.is_empty() => {
                text.clone_into(&mut speaker.text);
                // White space at its end may have been left away.
                if speaker.told.trim_end() == text.trim_end() { None } else { speaker.catch_up() }
            }
            _ if text.is_empty() => None,
            _ => Some(format!("{}{text}", if self.told { BREAK } else { "" })),
        };
        self.told |= more.is_some();
        more
    }
}

impl Speaker {
    /// What is to be told so that all of this try was.
    fn catch_up(&mut self) -> Option<String> {
        if let Some(more) = self.text.strip_prefix(self.told.as_str()) {
            let more = more.to_owned();
            self.told.clone_from(&self.text);
            return Some(more).filter(|more| !more.is_empty());
        }
        // It starts over, and says the same so far.
        if self.told.starts_with(self.text.as_str()) {
            return None;
        }
        self.told.clone_from(&self.text);
        Some(format!("{BREAK}{}", self.text))
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
        let mut voice = Voice::default();
        let heard = [voice.words(A, 1, 0, "Hel"), voice.words(A, 1, 3, "lo"), voice.said(Some(A), "Hello there")];
        assert_eq!(all(heard), "Hello there");
        let heard = [voice.words(B, 1, 0, "And"), voice.said(Some(B), "And so on"), voice.said(None, "Bye")];
        assert_eq!(all(heard), "\n\nAnd so on\n\nBye");
    }

    #[test]
    fn a_try_that_starts_over_and_says_the_same_is_told_once() {
        let mut voice = Voice::default();
        let heard = [
            voice.words(A, 1, 0, "Once upon"),
            voice.words(A, 2, 0, "Once"),
            voice.words(A, 2, 4, " upon a time"),
            voice.said(Some(A), "Once upon a time"),
        ];
        assert_eq!(all(heard), "Once upon a time");
    }

    #[test]
    fn a_try_that_says_something_else_is_told_after_a_break() {
        let mut voice = Voice::default();
        let heard = [voice.words(A, 1, 0, "On"), voice.words(A, 2, 0, "Never"), voice.said(Some(A), "Never mind")];
        assert_eq!(all(heard), "On\n\nNever mind");
    }

    #[test]
    fn two_speakers_do_not_mix() {
        let mut voice = Voice::default();
        let heard = [
            voice.words(A, 1, 0, "one "),
            voice.words(B, 1, 0, "two"),
            voice.words(A, 1, 4, "three"),
            voice.said(Some(A), "one three"),
            voice.said(Some(B), "two"),
        ];
        assert_eq!(all(heard), "one three\n\ntwo");
    }
}
