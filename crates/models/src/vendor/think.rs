//! Parts what a model thinks from what it says, where the server leaves the thoughts in the text between `<think>` and
//! `</think>`. Only thoughts at the very beginning count: further on, the tags are something the model talks about. Where the template
//! opens the tag in the prompt only the closing one is written, and since words that were shown cannot be taken back, that must be known
//! before.

use crate::model::Chunk;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Parts a text that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Think {
    at: At,
    held: String,
    /// Whether the prompt ends with the opening tag.
    is_opened: bool,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum At {
    /// Nothing but blanks so far, or the beginning of a tag.
    #[default]
    Start,
    /// Between the tags.
    Thought,
    /// Right behind the closing tag: the blanks that set the answer off from it are no part of the answer.
    Gap,
    /// In the answer.
    Answer,
}

impl Think {
    /// Parts a text that begins within a thought if the prompt opened one.
    pub fn opened(is_opened: bool) -> Self {
        Self { is_opened, ..Self::default() }
    }

    /// The server tells thoughts itself, so the text is all answer unless it says otherwise.
    pub fn are_told_apart(&mut self) {
        self.is_opened = false;
    }

    /// Takes in more text and adds what it turns out to be.
    pub fn push(&mut self, text: &str, out: &mut Vec<Chunk>) {
        if self.at == At::Answer {
            say(text.to_owned(), out);
            return;
        }
        self.held.push_str(text);
        self.sort(out);
    }

    /// The text is over: what was held back is what it looks like.
    pub fn finish(&mut self, out: &mut Vec<Chunk>) {
        let held = std::mem::take(&mut self.held);
        match self.at {
            At::Thought => think(held, out),
            At::Start | At::Answer => say(held, out),
            At::Gap => {}
        }
    }

    fn sort(&mut self, out: &mut Vec<Chunk>) {
        loop {
            match self.at {
                At::Start => {
                    let text = self.held.trim_start();
                    if let Some(thought) = text.strip_prefix(OPEN) {
                        self.held = thought.to_owned();
                        self.at = At::Thought;
                    } else if OPEN.starts_with(text) {
                        return;
                    } else if self.is_opened {
                        self.at = At::Thought;
                    } else {
                        self.at = At::Answer;
                    }
                }
                At::Thought => match self.held.find(CLOSE) {
                    Some(end) => {
                        think(self.held[..end].to_owned(), out);
                        self.held.drain(..end + CLOSE.len());
                        self.at = At::Gap;
                    }
                    None => {
                        let kept = self.held.len() - partial(&self.held);
                        think(self.held.drain(..kept).collect(), out);
                        return;
                    }
                },
                At::Gap => {
                    let answer = self.held.trim_start().to_owned();
                    self.held = answer;
                    if self.held.is_empty() {
                        return;
                    }
                    self.at = At::Answer;
                }
                At::Answer => {
                    say(std::mem::take(&mut self.held), out);
                    return;
                }
            }
        }
    }
}

/// Bytes at the end that may be the beginning of the closing tag.
fn partial(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|bytes| text.ends_with(&CLOSE[..*bytes])).unwrap_or(0)
}

fn say(text: String, out: &mut Vec<Chunk>) {
    if !text.is_empty() {
        out.push(Chunk::Text(text));
    }
}

fn think(text: String, out: &mut Vec<Chunk>) {
    if !text.is_empty() {
        out.push(Chunk::Reasoning(text));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parted<'p>(pieces: impl IntoIterator<Item = &'p str>) -> (String, String) {
        let (mut think, mut out) = (Think::default(), Vec::new());
        for piece in pieces {
            think.push(piece, &mut out);
        }
        think.finish(&mut out);
        let (mut thought, mut said) = (String::new(), String::new());
        for chunk in out {
            match chunk {
                Chunk::Text(text) => said.push_str(&text),
                Chunk::Reasoning(text) => thought.push_str(&text),
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
            let (mut think, mut out) = (Think::opened(true), Vec::new());
            if is_told {
                think.are_told_apart();
            }
            text.chars().for_each(|letter| think.push(&letter.to_string(), &mut out));
            think.finish(&mut out);
            let said =
                out.iter().filter_map(|chunk| if let Chunk::Text(text) = chunk { Some(text.as_str()) } else { None });
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
