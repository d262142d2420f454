//! Parts what a model thinks from what it says, where the server leaves the thoughts in the text between `<think>` and
//! `</think>`. Only thoughts at the very beginning count: further on, the tags are something the model talks about. Where the template
//! opens the tag in the prompt only the closing one is written, and since words that were shown cannot be taken back, that must be known
//! before.

use crate::model::ReplyChunk;

const THINK_OPEN_TAG: &str = "<think>";
const THINK_CLOSE_TAG: &str = "</think>";

/// Parts a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct ThinkTagSplitter {
    state: SplitterState,
    buffer: String,
    /// Whether the prompt ends with the opening tag.
    starts_in_thinking: bool,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum SplitterState {
    /// Nothing but blanks so far, or the beginning of a tag.
    #[default]
    Start,
    /// Between the tags.
    Thinking,
    /// Right behind the closing tag: the blanks that set the answer off from it are no part of the answer.
    AfterThinking,
    /// In the answer.
    Answer,
}

impl ThinkTagSplitter {
    /// Parts a text that begins within a thought if the prompt opened one.
    pub fn new(starts_in_thinking: bool) -> Self {
        Self { starts_in_thinking, ..Self::default() }
    }

    /// The server tells thoughts itself, so the text is all answer unless it says otherwise.
    pub fn expect_answer_first(&mut self) {
        self.starts_in_thinking = false;
    }

    /// Takes in more text and adds what it turns out to be.
    pub fn push(&mut self, text: &str, out: &mut Vec<ReplyChunk>) {
        if self.state == SplitterState::Answer {
            push_text_chunk(text.to_owned(), out);
            return;
        }
        self.buffer.push_str(text);
        self.split_buffer(out);
    }

    /// The text is over: what was held back is what it looks like.
    pub fn finish(&mut self, out: &mut Vec<ReplyChunk>) {
        let held = std::mem::take(&mut self.buffer);
        match self.state {
            SplitterState::Thinking => push_reasoning_chunk(held, out),
            SplitterState::Start | SplitterState::Answer => push_text_chunk(held, out),
            SplitterState::AfterThinking => {}
        }
    }

    fn split_buffer(&mut self, out: &mut Vec<ReplyChunk>) {
        loop {
            match self.state {
                SplitterState::Start => {
                    let text = self.buffer.trim_start();
                    if let Some(thought) = text.strip_prefix(THINK_OPEN_TAG) {
                        self.buffer = thought.to_owned();
                        self.state = SplitterState::Thinking;
                    } else if THINK_OPEN_TAG.starts_with(text) {
                        return;
                    } else if self.starts_in_thinking {
                        self.state = SplitterState::Thinking;
                    } else {
                        self.state = SplitterState::Answer;
                    }
                }
                SplitterState::Thinking => match self.buffer.find(THINK_CLOSE_TAG) {
                    Some(end) => {
                        push_reasoning_chunk(self.buffer[..end].to_owned(), out);
                        self.buffer.drain(..end + THINK_CLOSE_TAG.len());
                        self.state = SplitterState::AfterThinking;
                    }
                    None => {
                        let kept = self.buffer.len() - partial_close_tag_bytes(&self.buffer);
                        push_reasoning_chunk(self.buffer.drain(..kept).collect(), out);
                        return;
                    }
                },
                SplitterState::AfterThinking => {
                    let answer = self.buffer.trim_start().to_owned();
                    self.buffer = answer;
                    if self.buffer.is_empty() {
                        return;
                    }
                    self.state = SplitterState::Answer;
                }
                SplitterState::Answer => {
                    push_text_chunk(std::mem::take(&mut self.buffer), out);
                    return;
                }
            }
        }
    }
}

/// Bytes at the end that may be the beginning of the closing tag.
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

    fn parted<'p>(pieces: impl IntoIterator<Item = &'p str>) -> (String, String) {
        let (mut think, mut out) = (ThinkTagSplitter::default(), Vec::new());
        for piece in pieces {
            think.push(piece, &mut out);
        }
        think.finish(&mut out);
        let (mut thought, mut said) = (String::new(), String::new());
        for chunk in out {
            match chunk {
                ReplyChunk::Text(text) => said.push_str(&text),
                ReplyChunk::Reasoning(text) => thought.push_str(&text),
                other => panic!("{other:?}"),
            }
        }
        (thought, said)
    }

    fn check(text: &str, thought: &str, said: &str) {
        assert_eq!(parted([text]), (thought.to_owned(), said.to_owned()), "{text:?}");
    }

    #[test]
    fn thoughts_at_the_beginning_are_set_apart() {
        check("<think>hm</think>\n\nYes.", "hm", "Yes.");
        check("\n<think>\nhm\n</think>Yes.", "\nhm\n", "Yes.");
        check("<think>never ends", "never ends", "");
        check("<think></think>Yes.", "", "Yes.");
        check("Yes, <think>so</think>.", "", "Yes, <think>so</think>.");
        check("<thin", "", "<thin");
        check("  Yes.", "", "  Yes.");
    }

    #[test]
    fn an_answer_that_begins_within_a_thought_is_parted_where_that_is_known() {
        let parted = |text: &str, is_told: bool| {
            let (mut think, mut out) = (ThinkTagSplitter::new(true), Vec::new());
            if is_told {
                think.expect_answer_first();
            }
            text.chars().for_each(|letter| think.push(&letter.to_string(), &mut out));
            think.finish(&mut out);
            let said = out
                .iter()
                .filter_map(|chunk| if let ReplyChunk::Text(text) = chunk { Some(text.as_str()) } else { None });
            said.collect::<String>()
        };
        assert_eq!(parted("hm, so\n</think>\n\nYes.", false), "Yes.");
        assert_eq!(parted("<think>hm</think>Yes.", false), "Yes.", "some write the tag all the same");
        assert_eq!(parted("never ends", false), "");
        assert_eq!(parted("Yes.", true), "Yes.");
        check("hm</think>Yes.", "", "hm</think>Yes.");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_pieces_are_cut(text in "( |<think>|</think>|<|/|é|a){0,12}", cut in 0usize..60) {
            let mut cut = cut.min(text.len());
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(parted([&text[..cut], &text[cut..]]), parted([text.as_str()]));
            prop_assert_eq!(parted(letters.iter().map(String::as_str)), parted([text.as_str()]));
        }
    }
}
