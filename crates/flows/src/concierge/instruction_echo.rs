//! Recognises replies in which a model tells the user its instructions, as small models do, and removes these sentences.

use std::collections::BTreeSet;

use segue_core::event::CallOpened;

use super::spec::{GUIDANCE_FRAGMENT, NOTICES_FRAGMENT};
use super::state::ConciergeFlowContext;
use crate::limits::{ECHOED_INSTRUCTION_CHARS_MIN, REMOVED_INSTRUCTION_CHARS_MIN};

/// The fragments that tell the concierge how to reply.
const INSTRUCTION_FRAGMENTS: [&str; 5] = ["identity", "never", "part", GUIDANCE_FRAGMENT, NOTICES_FRAGMENT];

/// Marks that end a sentence of an instruction, or a part of one that can stand alone.
const SENTENCE_ENDS: [char; 7] = ['.', '\n', ':', '?', '!', '(', ')'];

/// The sentences of the instructions in a prompt, as words in lower case.
pub(super) struct InstructionSentences(BTreeSet<String>);

impl InstructionSentences {
    /// Collects the sentences in the prompt of `call`.
    pub(super) fn of_call(view: &ConciergeFlowContext<'_>, call: &CallOpened) -> Self {
        let thread = view.session.threads.get(&call.receipt.thread.thread_id());
        let opening = thread.iter().flat_map(|thread| thread.opening.iter().cloned());
        let ask = call.receipt.ask.iter().filter_map(|fragment| Some((fragment.name.clone(), fragment.text?)));
        let texts = opening.chain(ask).filter(|(name, _)| INSTRUCTION_FRAGMENTS.contains(&name.as_str()));
        let sentences = texts.flat_map(|(_, text)| split_into_sentences(&view.read_text(text)));
        Self(sentences.filter(|sentence| sentence.len() >= REMOVED_INSTRUCTION_CHARS_MIN).collect())
    }

    /// Returns whether the text contains a long sentence of the instructions.
    pub(super) fn are_repeated_in(&self, text: &str) -> bool {
        let text = normalize(text);
        let mut long = self.0.iter().filter(|sentence| sentence.len() >= ECHOED_INSTRUCTION_CHARS_MIN);
        long.any(|sentence| text.contains(sentence.as_str()))
    }

    /// Returns the text without the sentences that are, or contain, a sentence of the instructions.
    pub(super) fn remove_from(&self, text: &str) -> String {
        let is_instruction = |part: &str| {
            let part = normalize(part);
            self.0.contains(&part) || (part.len() >= ECHOED_INSTRUCTION_CHARS_MIN && self.are_repeated_in(&part))
        };
        let kept: String = text.split_inclusive(SENTENCE_ENDS).filter(|part| !is_instruction(part)).collect();
        kept.trim().to_owned()
    }
}

fn split_into_sentences(text: &str) -> Vec<String> {
    text.split(SENTENCE_ENDS).map(normalize).collect()
}

/// Returns the words of a text in lower case, without punctuation.
fn normalize(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(instruction: &str) -> InstructionSentences {
        InstructionSentences(split_into_sentences(instruction).into_iter().collect())
    }

    #[test]
    fn long_sentence_of_the_instruction_is_recognised_and_removed() {
        let instruction = "Open up the question before you narrow it. Show a few directions side by side, and what each \
                           leads to. Ask at most one question: the one whose answer would change the most.";
        let sentences = sentences(instruction);
        let reply = "Open up the question before you narrow it. Show a few directions side by side and what each leads \
                     to. Ask at most one question: the one whose answer would change the most.\n\n1. Rent: it is cheap.";
        assert!(sentences.are_repeated_in(reply));
        assert_eq!(sentences.remove_from(reply), "1. Rent: it is cheap.");
    }

    #[test]
    fn reply_in_words_of_its_own_stays_whole() {
        let sentences = sentences("Ask at most one question, at the end. Do not push, and never invent urgency.");
        let reply = "There is no urgency. Do you want to ask a question?";
        assert!(!sentences.are_repeated_in(reply));
        assert_eq!(sentences.remove_from(reply), reply);
    }
}
