//! Words as they come, one speaker at a time, as they are to be written. What a second speaker says meanwhile is shown
//! when it is said.

use segue_core::ids::CallId;

use super::Live;
use crate::print::text::harmless;

#[derive(Debug)]
pub(super) struct Voice {
    live: Live,
    speaking: Option<(CallId, u32)>,
    spoken: String,
}

impl Voice {
    pub fn new(live: Live) -> Self {
        Self { live, speaking: None, spoken: String::new() }
    }

    pub fn is_speaking(&self) -> bool {
        self.speaking.is_some()
    }

    /// More words of a call.
    pub fn words(&mut self, call: CallId, attempt: u32, text: &str) -> String {
        if self.live == Live::Nothing {
            return String::new();
        }
        let mut out = String::new();
        match self.speaking {
            Some(speaker) if speaker == (call, attempt) => {}
            Some((other, _)) if other != call => return out,
            // Another try of the same call begins anew.
            Some(_) => out = self.break_off(),
            None => {}
        }
        self.speaking = Some((call, attempt));
        self.spoken.push_str(text);
        out + &harmless(text)
    }

    /// What was said in the end.
    pub fn said(&mut self, call: Option<CallId>, text: &str) -> String {
        if self.live == Live::Nothing {
            return String::new();
        }
        let speaker = self.speaking.map(|(call, _)| call);
        match text.strip_prefix(self.spoken.as_str()).filter(|_| speaker.is_some() && speaker == call) {
            Some(rest) => {
                (self.speaking, self.spoken) = (None, String::new());
                format!("{}\n", harmless(rest))
            }
            None => format!("{}{}\n", self.break_off(), harmless(text)),
        }
    }

    /// The speaker will not go on.
    pub fn break_off(&mut self) -> String {
        self.spoken.clear();
        if self.speaking.take().is_some() { "\n".to_owned() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CallId = CallId(1);
    const B: CallId = CallId(2);

    #[test]
    fn what_came_in_words_is_not_said_again() {
        let mut voice = Voice::new(Live::Words);
        let out = voice.words(A, 1, "Hel") + &voice.words(A, 1, "lo") + &voice.said(Some(A), "Hello there");
        assert_eq!(out, "Hello there\n");
        assert!(!voice.is_speaking());
        assert_eq!(voice.said(None, "By the way"), "By the way\n");
    }

    #[test]
    fn two_speakers_do_not_mix() {
        let mut voice = Voice::new(Live::Words);
        let out = voice.words(A, 1, "one ") + &voice.words(B, 1, "two") + &voice.words(A, 1, "three");
        assert_eq!(out + &voice.said(Some(A), "one three") + &voice.said(Some(B), "two"), "one three\ntwo\n");
    }

    #[test]
    fn another_try_and_another_text_begin_on_a_new_line() {
        let mut voice = Voice::new(Live::Words);
        let out = voice.words(A, 1, "On") + &voice.words(A, 2, "Once") + &voice.said(Some(A), "Never");
        assert_eq!(out, "On\nOnce\nNever\n");
    }

    #[test]
    fn in_a_pipe_nothing_comes_before_its_time() {
        let mut voice = Voice::new(Live::Nothing);
        assert_eq!(voice.words(A, 1, "Hello") + &voice.said(Some(A), "Hello") + &voice.break_off(), "");
    }
}
