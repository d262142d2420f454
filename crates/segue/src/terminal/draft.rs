//! When a message is complete. A piece is what comes with one press of the enter key: a line, or a pasted text of many
//! lines, which is taken as it is.

use crate::limits::DRAFT_BYTES_MAX;

const FENCE: &str = "```";
const QUOTES: &str = "\"\"\"";

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Draft {
    text: String,
    open: Open,
}

/// What keeps a message from being complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Open {
    /// Nothing was written yet.
    #[default]
    Empty,
    /// The last line ended in a backslash.
    Line,
    /// A code fence: it is part of the message.
    Fence,
    /// Three quotation marks: they only say where the message begins and ends.
    Quotes,
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// What it says.
    pub text: String,
    /// Whether it may be a command: only what stands on one line and in no block can be one.
    pub form: Form,
}

/// How a message was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As one line.
    Line,
    /// As a text of several lines or in a block.
    Block,
}

impl Draft {
    /// Whether more is to come.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open != Open::Empty
    }

    /// Takes a piece; gives the message if it is complete with it.
    pub fn push(&mut self, piece: &str) -> Option<Written> {
        let before = self.open;
        let mut piece = piece;
        if before == Open::Empty
            && let Some(opened) = piece.trim_start().strip_prefix(QUOTES)
        {
            (self.open, piece) = (Open::Quotes, opened);
        }
        if self.open == Open::Quotes {
            return self.push_quoted(piece, before);
        }
        let fenced = (before == Open::Fence) != (piece.matches(FENCE).count() % 2 == 1);
        let too_long = self.text.len() + piece.len() > DRAFT_BYTES_MAX;
        let continued = if fenced { None } else { continuation(piece) };
        self.text.push_str(continued.unwrap_or(piece));
        if (fenced || continued.is_some()) && !too_long {
            self.text.push('\n');
            self.open = if fenced { Open::Fence } else { Open::Line };
            return None;
        }
        Some(self.take())
    }

    /// What there is, when nothing more will come.
    pub fn finish(&mut self) -> Option<Written> {
        let written = self.is_open().then(|| self.take())?;
        (!written.text.trim().is_empty()).then_some(written)
    }

    /// Throws away what was written.
    pub fn discard(&mut self) {
        *self = Self::default();
    }

    fn push_quoted(&mut self, piece: &str, before: Open) -> Option<Written> {
        let too_long = self.text.len() + piece.len() > DRAFT_BYTES_MAX;
        let closed = piece.trim_end().strip_suffix(QUOTES);
        if before == Open::Empty && closed.is_none() && piece.trim().is_empty() {
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
            return Some(self.take());
        }
        self.text.push('\n');
        None
    }

    fn take(&mut self) -> Written {
        let Self { mut text, open } = std::mem::take(self);
        if open != Open::Quotes {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let form = if open == Open::Quotes || text.contains('\n') { Form::Block } else { Form::Line };
        Written { text, form }
    }
}

/// The line without the backslash that continues it; two of them are no continuation.
fn continuation(piece: &str) -> Option<&str> {
    let rest = piece.strip_suffix('\\')?;
    (!rest.ends_with('\\')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&str]) -> Vec<(String, Form)> {
        let mut draft = Draft::default();
        let mut messages: Vec<Written> = pieces.iter().filter_map(|piece| draft.push(piece)).collect();
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
        assert_eq!(written(&["hello"])[0].1, Form::Line);
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
        assert_eq!(written(&["\"\"\"/quit\"\"\""])[0].1, Form::Block);
    }

    #[test]
    fn a_pasted_text_is_one_message_as_it_stands() {
        check(&["one \\\ntwo\nthree"], &["one \\\ntwo\nthree"]);
        check(&["/usr/bin\n/usr/lib", "x"], &["/usr/bin\n/usr/lib", "x"]);
        assert_eq!(written(&["/quit\nnot"])[0].1, Form::Block);
    }

    proptest::proptest! {
        #[test]
        fn a_text_between_quotation_marks_comes_out_as_it_is(text in "[a-z`\\\\/ ]{1,9}(\n[a-z`\\\\/ ]{0,9}){0,5}") {
            let mut draft = Draft::default();
            proptest::prop_assert_eq!(draft.push(QUOTES), None);
            for line in text.split('\n') {
                proptest::prop_assert_eq!(draft.push(line), None);
            }
            let written = draft.push(QUOTES).expect("it is closed");
            proptest::prop_assert_eq!((written.text.as_str(), written.form), (text.as_str(), Form::Block));
            proptest::prop_assert!(!draft.is_open());
        }
    }

    #[test]
    fn nothing_written_is_no_message_at_the_end() {
        check(&[], &[]);
        check(&["\"\"\""], &[]);
    }
}
