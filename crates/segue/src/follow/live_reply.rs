//! Prints replies while they stream in, one call at a time. The reply of another concurrent call is printed when it is
//! complete.

use segue_core::ids::CallId;

use super::LiveTurnOutputMode;
use crate::print::text::sanitize_for_terminal;

#[derive(Debug)]
pub(super) struct LiveReplyPrinter {
    live: LiveTurnOutputMode,
    active_attempt: Option<(CallId, u32)>,
    printed_text: String,
}

impl LiveReplyPrinter {
    pub(crate) fn new(live: LiveTurnOutputMode) -> Self {
        Self { live, active_attempt: None, printed_text: String::new() }
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.active_attempt.is_some()
    }

    /// Returns the output for another chunk of a call's reply.
    pub(crate) fn push_chunk(&mut self, call: CallId, attempt: u32, text: &str) -> String {
        if self.live != LiveTurnOutputMode::Stdout {
            return String::new();
        }
        let mut out = String::new();
        match self.active_attempt {
            Some(active) if active == (call, attempt) => {}
            Some((other, _)) if other != call => return out,
            // A new attempt of the same call starts over.
            Some(_) => out = self.abandon_reply(),
            None => {}
        }
        self.active_attempt = Some((call, attempt));
        self.printed_text.push_str(text);
        out + &sanitize_for_terminal(text)
    }

    /// Returns the output for a complete reply: what is still missing of it.
    pub(crate) fn finish_reply(&mut self, call: Option<CallId>, text: &str) -> String {
        if self.live != LiveTurnOutputMode::Stdout {
            return String::new();
        }
        let active = self.active_attempt.map(|(call, _)| call);
        match text.strip_prefix(self.printed_text.as_str()).filter(|_| active.is_some() && active == call) {
            Some(rest) => {
                (self.active_attempt, self.printed_text) = (None, String::new());
                format!("{}\n", sanitize_for_terminal(rest))
            }
            None => format!("{}{}\n", self.abandon_reply(), sanitize_for_terminal(text)),
        }
    }

    /// Returns the output that ends a partial reply which will not be completed.
    pub(crate) fn abandon_reply(&mut self) -> String {
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
    fn printed_chunks_are_not_repeated() {
        let mut printer = LiveReplyPrinter::new(LiveTurnOutputMode::Stdout);
        let out = printer.push_chunk(A, 1, "Hel")
            + &printer.push_chunk(A, 1, "lo")
            + &printer.finish_reply(Some(A), "Hello there");
        assert_eq!(out, "Hello there\n");
        assert!(!printer.is_streaming());
        assert_eq!(printer.finish_reply(None, "By the way"), "By the way\n");
    }

    #[test]
    fn concurrent_replies_do_not_mix() {
        let mut printer = LiveReplyPrinter::new(LiveTurnOutputMode::Stdout);
        let out =
            printer.push_chunk(A, 1, "one ") + &printer.push_chunk(B, 1, "two") + &printer.push_chunk(A, 1, "three");
        assert_eq!(
            out + &printer.finish_reply(Some(A), "one three") + &printer.finish_reply(Some(B), "two"),
            "one three\ntwo\n"
        );
    }

    #[test]
    fn a_new_attempt_and_a_different_text_start_on_a_new_line() {
        let mut printer = LiveReplyPrinter::new(LiveTurnOutputMode::Stdout);
        let out = printer.push_chunk(A, 1, "On")
            + &printer.push_chunk(A, 2, "Once")
            + &printer.finish_reply(Some(A), "Never");
        assert_eq!(out, "On\nOnce\nNever\n");
    }

    #[test]
    fn nothing_is_printed_without_live_output() {
        let mut printer = LiveReplyPrinter::new(LiveTurnOutputMode::Off);
        assert_eq!(
            printer.push_chunk(A, 1, "Hello") + &printer.finish_reply(Some(A), "Hello") + &printer.abandon_reply(),
            ""
        );
    }
}
