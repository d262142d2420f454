//! Joins input to messages. An input is what one press of the enter key submits: a line, or a pasted text of several
//! lines, which stays as it is.

use crate::limits::DRAFT_BYTES_MAX;

const CODE_FENCE: &str = "```";
const TRIPLE_QUOTES: &str = "\"\"\"";

/// A message that may still be incomplete.
#[derive(Debug, Default)]
pub(crate) struct MessageDraft {
    text: String,
    state: IncompleteTypedMessageReason,
}

/// Why a message is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum IncompleteTypedMessageReason {
    /// There is no input yet.
    #[default]
    Empty,
    /// The last line ended with a backslash.
    ContinuedLine,
    /// A code fence is open. It is part of the message.
    Fence,
    /// Triple quotes are open. They are not part of the message.
    Quotes,
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypedUserMessage {
    pub text: String,
    pub form: LineOrBlockInput,
}

/// How a message was written. Only a single line can be a slash command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineOrBlockInput {
    Line,
    /// Several lines, or a text in triple quotes.
    Block,
}

impl MessageDraft {
    /// Whether the message needs more input.
    #[must_use]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.state != IncompleteTypedMessageReason::Empty
    }

    /// Appends an input, and returns the message if it is complete.
    pub(crate) fn push_input(&mut self, input: &str) -> Option<TypedUserMessage> {
        let before = self.state;
        let mut input = input;
        if before == IncompleteTypedMessageReason::Empty
            && let Some(opened) = input.trim_start().strip_prefix(TRIPLE_QUOTES)
        {
            (self.state, input) = (IncompleteTypedMessageReason::Quotes, opened);
        }
        if self.state == IncompleteTypedMessageReason::Quotes {
            return self.push_quoted(input, before);
        }
        let is_fenced = (before == IncompleteTypedMessageReason::Fence) != (input.matches(CODE_FENCE).count() % 2 == 1);
        let is_too_long = self.text.len() + input.len() > DRAFT_BYTES_MAX;
        let continued = if is_fenced { None } else { strip_continuation(input) };
        self.text.push_str(continued.unwrap_or(input));
        if (is_fenced || continued.is_some()) && !is_too_long {
            self.text.push('\n');
            self.state = if is_fenced {
                IncompleteTypedMessageReason::Fence
            } else {
                IncompleteTypedMessageReason::ContinuedLine
            };
            return None;
        }
        Some(self.take_message())
    }

    /// Returns the incomplete message at the end of input; `None` if it is empty.
    pub(crate) fn finish(&mut self) -> Option<TypedUserMessage> {
        let written = self.is_unfinished().then(|| self.take_message())?;
        (!written.text.trim().is_empty()).then_some(written)
    }

    /// Discards all input so far.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }

    fn push_quoted(&mut self, input: &str, before: IncompleteTypedMessageReason) -> Option<TypedUserMessage> {
        let is_too_long = self.text.len() + input.len() > DRAFT_BYTES_MAX;
        let closed = input.trim_end().strip_suffix(TRIPLE_QUOTES);
        if before == IncompleteTypedMessageReason::Empty && closed.is_none() && input.trim().is_empty() {
            // The opening quotes are on a line of their own, which is not part of the message.
            return None;
        }
        self.text.push_str(closed.unwrap_or(input));
        if closed.is_some() || is_too_long {
            // The same holds for closing quotes on a line of their own.
            if closed.is_some_and(|rest| rest.trim().is_empty()) {
                self.text.truncate(self.text.trim_end_matches([' ', '\t']).len());
                self.text.truncate(self.text.strip_suffix('\n').map_or(self.text.len(), str::len));
            }
            return Some(self.take_message());
        }
        self.text.push('\n');
        None
    }

    fn take_message(&mut self) -> TypedUserMessage {
        let Self { mut text, state } = std::mem::take(self);
        if state != IncompleteTypedMessageReason::Quotes {
            text.truncate(text.trim_end_matches('\n').len());
        }
        let form = if state == IncompleteTypedMessageReason::Quotes || text.contains('\n') {
            LineOrBlockInput::Block
        } else {
            LineOrBlockInput::Line
        };
        TypedUserMessage { text, form }
    }
}

/// Returns a continued line without its final backslash; `None` if the line has none or ends with two.
fn strip_continuation(line: &str) -> Option<&str> {
    let rest = line.strip_suffix('\\')?;
    (!rest.ends_with('\\')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(inputs: &[&str]) -> Vec<(String, LineOrBlockInput)> {
        let mut draft = MessageDraft::default();
        let mut messages: Vec<TypedUserMessage> = inputs.iter().filter_map(|input| draft.push_input(input)).collect();
        messages.extend(draft.finish());
        messages.into_iter().map(|written| (written.text, written.form)).collect()
    }

    fn check(inputs: &[&str], messages: &[&str]) {
        let texts: Vec<String> = written(inputs).into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, messages, "{inputs:?}");
    }

    #[test]
    fn a_line_is_a_message() {
        check(&["hello", "bye"], &["hello", "bye"]);
        assert_eq!(written(&["hello"])[0].1, LineOrBlockInput::Line);
    }

    #[test]
    fn a_backslash_continues_a_line_and_two_do_not() {
        check(&["one \\", "two\\", "three", "four"], &["one \ntwo\nthree", "four"]);
        check(&["a path\\\\"], &["a path\\\\"]);
        check(&["one\\"], &["one"]);
    }

    #[test]
    fn a_code_fence_is_open_until_it_is_closed_and_part_of_the_message() {
        check(&["look: ```rust", "fn a() {} \\", "", "```", "next"], &["look: ```rust\nfn a() {} \\\n\n```", "next"]);
        check(&["```x``` inline"], &["```x``` inline"]);
        check(&["```", "not closed"], &["```\nnot closed"]);
    }

    #[test]
    fn triple_quotes_enclose_a_message_and_are_not_part_of_it() {
        check(&["\"\"\"", "one\\", "", "two", "\"\"\"", "next"], &["one\\\n\ntwo", "next"]);
        check(&["\"\"\"one", "two\"\"\""], &["one\ntwo"]);
        check(&["\"\"\"/quit\"\"\""], &["/quit"]);
        assert_eq!(written(&["\"\"\"/quit\"\"\""])[0].1, LineOrBlockInput::Block);
    }

    #[test]
    fn a_pasted_text_is_one_unchanged_message() {
        check(&["one \\\ntwo\nthree"], &["one \\\ntwo\nthree"]);
        check(&["/usr/bin\n/usr/lib", "x"], &["/usr/bin\n/usr/lib", "x"]);
        assert_eq!(written(&["/quit\nnot"])[0].1, LineOrBlockInput::Block);
    }

    proptest::proptest! {
        #[test]
        fn a_text_in_triple_quotes_is_unchanged(text in "[a-z`\\\\/ ]{1,9}(\n[a-z`\\\\/ ]{0,9}){0,5}") {
            let mut draft = MessageDraft::default();
            proptest::prop_assert_eq!(draft.push_input(TRIPLE_QUOTES), None);
            for line in text.split('\n') {
                proptest::prop_assert_eq!(draft.push_input(line), None);
            }
            let written = draft.push_input(TRIPLE_QUOTES).expect("it is closed");
            proptest::prop_assert_eq!((written.text.as_str(), written.form), (text.as_str(), LineOrBlockInput::Block));
            proptest::prop_assert!(!draft.is_unfinished());
        }
    }

    #[test]
    fn an_empty_draft_is_no_message() {
        check(&[], &[]);
        check(&["\"\"\""], &[]);
    }
}
