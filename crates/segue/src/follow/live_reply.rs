//! Words as they come, one speaker at a time, as they are to be written. What a second speaker says meanwhile is shown
//! when it is said.

use segue_core::ids::CallId;

use super::LiveOutput;
use crate::print::text::sanitize_for_terminal;

#[derive(Debug)]
pub(super) struct LiveReplyPrinter {
    live: LiveOutput,
    active_attempt: Option<(CallId, u32)>,
    printed_text: String,
}

impl LiveReplyPrinter {
    pub fn new(live: LiveOutput) -> Self {
        Self { live, active_attempt: None, printed_text: String::new() }
    }

    pub fn is_streaming(&self) -> bool {
        self.active_attempt.is_some()
    }

    /// More words of a call.
    pub fn push_chunk(&mut self, call: CallId, attempt: u32, text: &str) -> String {
        if self.live == LiveOutput::Off {
            return String::new();
        }
        let mut out = String::new();
        match self.active_attempt {
            Some(speaker) if speaker == (call, attempt) => {}
            Some((other, _)) if other != call => return out,
            // Another try of the same call begins anew.
            Some(_) => out = self.abandon_reply(),
            None => {}
        }
        self.active_attempt = Some((call, attempt));
        self.printed_text.push_str(text);
        out + &sanitize_for_terminal(text)
    }

    /// What was said in the end.
    pub fn finish_reply(&mut self, call: Option<CallId>, text: &str) -> String {
        if self.live == LiveOutput::Off {
            return String::new();
        }
        let speaker = self.active_attempt.map(|(call, _)| call);
        match text.strip_prefix(self.printed_text.as_str()).filter(|_| speaker.is_some() && speaker == call) {
            Some(rest) => {
                (self.active_attempt, self.printed_text) = (None, String::new());
                format!("{}\n", sanitize_for_terminal(rest))
            }
            None => format!("{}{}\n", self.abandon_reply(), sanitize_for_terminal(text)),
        }
    }

    /// The speaker will not go on.
    pub fn abandon_reply(&mut self) -> String {
        self.printed_text.clear();
        if self.active_attempt.take().is_some() { "\n".to_owned() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CallId = CallId(1);
    const B: CallId = CallId(2);

    #[test]
    fn what_came_in_words_is_not_said_again() {
        let mut voice = LiveReplyPrinter::new(LiveOutput::Stdout);
        let out =
            voice.push_chunk(A, 1, "Hel") + &voice.push_chunk(A, 1, "lo") + &voice.finish_reply(Some(A), "Hello there");
        assert_eq!(out, "Hello there\n");
        assert!(!voice.is_streaming());
        assert_eq!(voice.finish_reply(None, "By the way"), "By the way\n");
    }

    #[test]
    fn two_speakers_do_not_mix() {
        let mut voice = LiveReplyPrinter::new(LiveOutput::Stdout);
        let out = voice.push_chunk(A, 1, "one ") + &voice.push_chunk(B, 1, "two") + &voice.push_chunk(A, 1, "three");
        assert_eq!(
            out + &voice.finish_reply(Some(A), "one three") + &voice.finish_reply(Some(B), "two"),
            "one three\ntwo\n"
        );
    }

    #[test]
    fn another_try_and_another_text_begin_on_a_new_line() {
        let mut voice = LiveReplyPrinter::new(LiveOutput::Stdout);
        let out =
            voice.push_chunk(A, 1, "On") + &voice.push_chunk(A, 2, "Once") + &voice.finish_reply(Some(A), "Never");
        assert_eq!(out, "On\nOnce\nNever\n");
    }

    #[test]
    fn in_a_pipe_nothing_comes_before_its_time() {
        let mut voice = LiveReplyPrinter::new(LiveOutput::Off);
        assert_eq!(
            voice.push_chunk(A, 1, "Hello") + &voice.finish_reply(Some(A), "Hello") + &voice.abandon_reply(),
            ""
        );
    }
}
