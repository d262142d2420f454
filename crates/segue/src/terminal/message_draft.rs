//! When a message is complete. A piece is what comes with one press of the enter key: a line, or a pasted text of many
//! lines, which is taken as it is.

use crate::limits::DRAFT_BYTES_MAX;

const CODE_FENCE: &str = "```";
const TRIPLE_QUOTES: &str = "\"\"\"";

/// A message that is being written.
#[derive(Debug, Default)]
pub struct MessageDraft {
    text: String,
    state: DraftState,
}

/// What keeps a message from being complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum DraftState {
    /// Nothing was written yet.
    #[default]
    Empty,
    /// The last line ended in a backslash.
    ContinuedLine,
    /// A code fence: it is part of the message.
    Fence,
    /// Three quotation marks: they only say where the message begins and ends.
    Quotes,
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub struct WrittenMessage {
    /// What it says.
    pub text: String,
    /// Whether it may be a command: only what stands on one line and in no block can be one.
    pub form: InputForm,
}

/// How a message was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputForm {
    /// As one line.
    Line,
    /// As a text of several lines or in a block.
    Block,
}

impl MessageDraft {
    /// Whether more is to come.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.state != DraftState::Empty
    }

    /// Takes a piece; gives the message if it is complete with it.
    pub fn push_input(&mut self, piece: &str) -> Option<WrittenMessage> {
        let before = self.state;
        let mut piece = piece;
        if before == DraftState::Empty
            && let Some(opened) = piece.trim_start().strip_prefix(TRIPLE_QUOTES)
        {
            (self.state, piece) = (DraftState::Quotes, opened);
        }
        if self.state == DraftState::Quotes {
            return self.push_quoted(piece, before);
        }
        let fenced = (before == DraftState::Fence) != (piece.matches(CODE_FENCE).count() % 2 == 1);
        let too_long = self.text.len() + piece.len() > DRAFT_BYTES_MAX;
        let continued = if fenced { None } else { strip_continuation(piece) };
        self.text.push_str(continued.unwrap_or(piece));
        if (fenced || continued.is_some()) && !too_long {
            self.text.push('\n');
            self.state = if fenced { DraftState::Fence } else { DraftState::ContinuedLine };
            return None;
        }
        Some(self.take_message())
    }

    /// What there is, when nothing more will come.
    pub fn finish(&mut self) -> Option<WrittenMessage> {
        let written = self.is_unfinished().then(|| self.take_message())?;
        (!written.text.trim().is_empty()).then_some(written)
    }

    /// Throws away what was written.
    pub fn discard(&mut self) {
        *self = Self::default();
    }

    fn push_quoted(&mut self, piece: &str, before: DraftState) -> Option<WrittenMessage> {
        let too_long = self.text.len() + piece.len() > DRAFT_BYTES_MAX;
        let closed = piece.trim_end().strip_suffix(TRIPLE_QUOTES);
        if before == DraftState::Empty && closed.is_none() && piece.trim().is_empty() {
            // The opening marks stand on a line of their own.
            return None;
        }
        self.text.push_str(closed.unwrap_or(piece));
        if closed.is_some() || too_long {
            // Nor does the line of the closing marks count.
            if closed.is_some_and(|rest| rest.trim().is_empty()) {
                self.text.truncate(self.text.trim_end_matches([' ', '\t']).len());
                self.text.truncate(self.text.strip_suffix('\n').map_or(self.text.len(), str::len));
            }
            return Some(self.take_message());
        }
        self.text.push('\n');
        None
    }

    fn take_message(&mut self) -> WrittenMessage {
        let Self { mut text, state: open } = std::mem::take(self);
        if open != DraftState::Quotes {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let form = if open == DraftState::Quotes || text.contains('\n') { InputForm::Block } else { InputForm::Line };
        WrittenMessage { text, form }
    }
}

/// The line without the backslash that continues it; two of them are no continuation.
fn strip_continuation(piece: &str) -> Option<&str> {
    let rest = piece.strip_suffix('\\')?;
    (!rest.ends_with('\\')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&str]) -> Vec<(String, InputForm)> {
        let mut draft = MessageDraft::default();
        let mut messages: Vec<WrittenMessage> = pieces.iter().filter_map(|piece| draft.push_input(piece)).collect();
        messages.extend(draft.finish());
        messages.into_iter().map(|written| (written.text, written.form)).collect()
    }

    fn check(pieces: &[&str], messages: &[&str]) {
        let texts: Vec<String> = written(pieces).into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, messages, "{pieces:?}");
    }

    #[test]
    fn a_line_is_a_message() {
        check(&["hello", "bye"], &["hello", "bye"]);
        assert_eq!(written(&["hello"])[0].1, InputForm::Line);
    }

    #[test]
    fn a_backslash_continues_a_line_and_two_do_not() {
        check(&["one \\", "two\\", "three", "four"], &["one \ntwo\nthree", "four"]);
        check(&["a path\\\\"], &["a path\\\\"]);
        check(&["one\\"], &["one"]);
    }

    #[test]
    fn a_fence_stays_open_until_it_is_closed_and_is_part_of_the_message() {
        check(&["look: ```rust", "fn a() {} \\", "", "```", "next"], &["look: ```rust\nfn a() {} \\\n\n```", "next"]);
        check(&["```x``` inline"], &["```x``` inline"]);
        check(&["```", "not closed"], &["```\nnot closed"]);
    }

    #[test]
    fn quotation_marks_enclose_a_message_and_are_not_part_of_it() {
        check(&["\"\"\"", "one\\", "", "two", "\"\"\"", "next"], &["one\\\n\ntwo", "next"]);
        check(&["\"\"\"one", "two\"\"\""], &["one\ntwo"]);
        check(&["\"\"\"/quit\"\"\""], &["/quit"]);
        assert_eq!(written(&["\"\"\"/quit\"\"\""])[0].1, InputForm::Block);
    }

    #[test]
    fn a_pasted_text_is_one_message_as_it_stands() {
        check(&["one \\\ntwo\nthree"], &["one \\\ntwo\nthree"]);
        check(&["/usr/bin\n/usr/lib", "x"], &["/usr/bin\n/usr/lib", "x"]);
        assert_eq!(written(&["/quit\nnot"])[0].1, InputForm::Block);
    }

    proptest::proptest! {
        #[test]
        fn a_text_between_quotation_marks_comes_out_as_it_is(text in "[a-z`\\\\/ ]{1,9}(\n[a-z`\\\\/ ]{0,9}){0,5}") {
            let mut draft = MessageDraft::default();
            proptest::prop_assert_eq!(draft.push_input(TRIPLE_QUOTES), None);
            for line in text.split('\n') {
                proptest::prop_assert_eq!(draft.push_input(line), None);
            }
            let written = draft.push_input(TRIPLE_QUOTES).expect("it is closed");
            proptest::prop_assert_eq!((written.text.as_str(), written.form), (text.as_str(), InputForm::Block));
            proptest::prop_assert!(!draft.is_unfinished());
        }
    }

    #[test]
    fn nothing_written_is_no_message_at_the_end() {
        check(&[], &[]);
        check(&["\"\"\""], &[]);
    }
}
