//! Separates reasoning from the reply where the server leaves it in the text between `<think>` and `</think>`. Only tags at
//! the very beginning count; later ones are part of the reply. If the prompt template already opens the tag, the text contains
//! only the closing one. This must be known in advance, because text that was streamed cannot be taken back.

use crate::model::ReplyChunk;

const THINK_OPEN_TAG: &str = "<think>";
const THINK_CLOSE_TAG: &str = "</think>";

/// Splits a text that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct ThinkTagSplitter {
    state: ThinkTagState,
    buffer: String,
    /// Whether the prompt ends with the opening tag.
    starts_in_thinking: bool,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum ThinkTagState {
    /// Only whitespace so far, or the beginning of a tag.
    #[default]
    Start,
    /// Between the tags.
    Thinking,
    /// Right after the closing tag; whitespace here is not part of the reply.
    AfterThinking,
    /// In the reply text.
    Answer,
}

impl ThinkTagSplitter {
    /// Creates a splitter; `starts_in_thinking` if the prompt opened a thought.
    pub(super) fn new(starts_in_thinking: bool) -> Self {
        Self { starts_in_thinking, ..Self::default() }
    }

    /// Treats the text as reply from the start, because the server separates reasoning itself.
    pub(super) fn treat_start_as_answer(&mut self) {
        self.starts_in_thinking = false;
    }

    /// Adds text and appends the resulting chunks.
    pub(super) fn push(&mut self, text: &str, out: &mut Vec<ReplyChunk>) {
        if self.state == ThinkTagState::Answer {
            push_text_chunk(text.to_owned(), out);
            return;
        }
        self.buffer.push_str(text);
        self.split_buffer(out);
    }

    /// Ends the text and appends what was held back.
    pub(super) fn finish(&mut self, out: &mut Vec<ReplyChunk>) {
        let rest = std::mem::take(&mut self.buffer);
        match self.state {
            ThinkTagState::Thinking => push_reasoning_chunk(rest, out),
            ThinkTagState::Start | ThinkTagState::Answer => push_text_chunk(rest, out),
            ThinkTagState::AfterThinking => {}
        }
    }

    fn split_buffer(&mut self, out: &mut Vec<ReplyChunk>) {
        loop {
            match self.state {
                ThinkTagState::Start => {
                    let text = self.buffer.trim_start();
                    if let Some(rest) = text.strip_prefix(THINK_OPEN_TAG) {
                        self.buffer = rest.to_owned();
                        self.state = ThinkTagState::Thinking;
                    } else if THINK_OPEN_TAG.starts_with(text) {
                        return;
                    } else if self.starts_in_thinking {
                        self.state = ThinkTagState::Thinking;
                    } else {
                        self.state = ThinkTagState::Answer;
                    }
                }
                ThinkTagState::Thinking => match self.buffer.find(THINK_CLOSE_TAG) {
                    Some(end) => {
                        push_reasoning_chunk(self.buffer[..end].to_owned(), out);
                        self.buffer.drain(..end + THINK_CLOSE_TAG.len());
                        self.state = ThinkTagState::AfterThinking;
                    }
                    None => {
                        let complete = self.buffer.len() - partial_close_tag_bytes(&self.buffer);
                        push_reasoning_chunk(self.buffer.drain(..complete).collect(), out);
                        return;
                    }
                },
                ThinkTagState::AfterThinking => {
                    let answer = self.buffer.trim_start().to_owned();
                    self.buffer = answer;
                    if self.buffer.is_empty() {
                        return;
                    }
                    self.state = ThinkTagState::Answer;
                }
                ThinkTagState::Answer => {
                    push_text_chunk(std::mem::take(&mut self.buffer), out);
                    return;
                }
            }
        }
    }
}

/// Returns the number of bytes at the end that may be the beginning of the closing tag.
fn partial_close_tag_bytes(text: &str) -> usize {
    (1..THINK_CLOSE_TAG.len()).rev().find(|bytes| text.ends_with(&THINK_CLOSE_TAG[..*bytes])).unwrap_or(0)
}

fn push_text_chunk(text: String, out: &mut Vec<ReplyChunk>) {
    if !text.is_empty() {
        out.push(ReplyChunk::Text(text));
    }
}

fn push_reasoning_chunk(text: String, out: &mut Vec<ReplyChunk>) {
    if !text.is_empty() {
        out.push(ReplyChunk::Reasoning(text));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split<'p>(chunks: impl IntoIterator<Item = &'p str>) -> (String, String) {
        let (mut splitter, mut out) = (ThinkTagSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk, &mut out);
        }
        splitter.finish(&mut out);
        let (mut reasoning, mut reply) = (String::new(), String::new());
        for chunk in out {
            match chunk {
                ReplyChunk::Text(text) => reply.push_str(&text),
                ReplyChunk::Reasoning(text) => reasoning.push_str(&text),
                other => panic!("{other:?}"),
            }
        }
        (reasoning, reply)
    }

    fn check(text: &str, reasoning: &str, reply: &str) {
        assert_eq!(split([text]), (reasoning.to_owned(), reply.to_owned()), "{text:?}");
    }

    #[test]
    fn reasoning_at_the_beginning_is_separated() {
        check("<think>hm</think>\n\nYes.", "hm", "Yes.");
        check("\n<think>\nhm\n</think>Yes.", "\nhm\n", "Yes.");
        check("<think>never ends", "never ends", "");
        check("<think></think>Yes.", "", "Yes.");
        check("Yes, <think>so</think>.", "", "Yes, <think>so</think>.");
        check("<thin", "", "<thin");
        check("  Yes.", "", "  Yes.");
    }

    #[test]
    fn a_reply_that_starts_in_thinking_is_split_if_that_is_known() {
        let split = |text: &str, is_separated: bool| {
            let (mut splitter, mut out) = (ThinkTagSplitter::new(true), Vec::new());
            if is_separated {
                splitter.treat_start_as_answer();
            }
            text.chars().for_each(|letter| splitter.push(&letter.to_string(), &mut out));
            splitter.finish(&mut out);
            let texts = out
                .iter()
                .filter_map(|chunk| if let ReplyChunk::Text(text) = chunk { Some(text.as_str()) } else { None });
            texts.collect::<String>()
        };
        assert_eq!(split("hm, so\n</think>\n\nYes.", false), "Yes.");
        assert_eq!(split("<think>hm</think>Yes.", false), "Yes.", "some models write the tag anyway");
        assert_eq!(split("never ends", false), "");
        assert_eq!(split("Yes.", true), "Yes.");
        check("hm</think>Yes.", "", "hm</think>Yes.");
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(text in "( |<think>|</think>|<|/|é|a){0,12}", cut in 0usize..60) {
            let mut cut = cut.min(text.len());
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(split([&text[..cut], &text[cut..]]), split([text.as_str()]));
            prop_assert_eq!(split(letters.iter().map(String::as_str)), split([text.as_str()]));
        }
    }
}
