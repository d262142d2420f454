//! Extracts from a prompt what the rehearsal model needs: instructions, messages, tool results, topics and keywords. Reads a
//! bounded part of every message.

use crate::limits::{KEYWORDS_MAX, TOPIC_CHARS_MAX, TOPIC_WORDS_MAX};
use segue_core::prompt::{ChatRole, Prompt, PromptMessage};

use super::phrases::STOP_WORDS;
use crate::limits::{REHEARSAL_INSTRUCTIONS_BYTES_MAX, REHEARSAL_MESSAGE_BYTES_MAX, REHEARSAL_MESSAGES_MAX};
use crate::text::{shorten_to_line, truncate_to_bytes};

/// The parts of a prompt that the rehearsal model uses.
#[derive(Debug, Default)]
pub(super) struct RehearsalPromptParts {
    /// System messages, and everything before the user's own text in user messages.
    pub(super) instructions: String,
    /// Oldest first; the last one is to be answered.
    user_messages: Vec<String>,
    /// Includes messages that were not kept.
    user_message_count: usize,
    /// Oldest first.
    pub(super) assistant_messages: Vec<String>,
    /// Tool results since the last user message.
    pub(super) tool_results: Vec<String>,
    /// Whether a tool was called since the last user message.
    pub(super) has_called_tool: bool,
}

impl RehearsalPromptParts {
    pub(super) fn from_prompt(prompt: &Prompt) -> Self {
        let mut parsed = Self::default();
        for message in &*prompt.messages {
            match message.chat_role {
                ChatRole::System => parsed.add_instructions(&message.parts),
                ChatRole::User => {
                    let user_part = message.parts.iter().rposition(|part| !part.trim().is_empty()).unwrap_or_default();
                    parsed.add_instructions(message.parts.get(..user_part).unwrap_or_default());
                    let words = message.parts.get(user_part).map_or("", |part| strip_enclosing_tag(part));
                    push_bounded(&mut parsed.user_messages, truncate_to_bytes(words, REHEARSAL_MESSAGE_BYTES_MAX));
                    parsed.user_message_count += 1;
                    parsed.tool_results.clear();
                    parsed.has_called_tool = false;
                }
                ChatRole::Assistant => {
                    push_bounded(&mut parsed.assistant_messages, &message_prefix(message));
                    parsed.has_called_tool |= !message.tool_calls.is_empty();
                }
                ChatRole::Tool => push_bounded(&mut parsed.tool_results, &message_prefix(message)),
            }
        }
        parsed
    }

    pub(super) fn last_user_text(&self) -> &str {
        self.user_messages.last().map_or("", |text| text)
    }

    pub(super) fn first_user_text(&self) -> &str {
        self.user_messages.first().map_or("", |text| text)
    }

    /// Returns the user message before the last one.
    pub(super) fn previous_user_text(&self) -> Option<&str> {
        self.earlier_user_texts().last().map(String::as_str)
    }

    /// Returns all user messages before the last one, oldest first.
    pub(super) fn earlier_user_texts(&self) -> &[String] {
        self.user_messages.split_last().map_or(&[], |(_, earlier)| earlier)
    }

    pub(super) fn user_message_count(&self) -> usize {
        self.user_message_count
    }

    /// Returns the topic of the last user message, in a few of its own words.
    pub(super) fn last_topic(&self) -> String {
        extract_topic(self.last_user_text())
    }

    /// Returns the topic of the first user message.
    pub(super) fn first_topic(&self) -> String {
        extract_topic(self.first_user_text())
    }

    /// Returns the content words of the user messages, newest message first.
    pub(super) fn keywords(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for text in self.user_messages.iter().rev() {
            for word in content_words(text) {
                if found.len() == KEYWORDS_MAX {
                    return found;
                }
                if !found.contains(&word) {
                    found.push(word);
                }
            }
        }
        found
    }

    /// Returns the quoted part of the last user message, or a word that looks like a file or URL.
    pub(super) fn quoted_text_or_path(&self) -> Option<String> {
        let text = self.last_user_text();
        for (open, close) in [('`', '`'), ('"', '"'), ('“', '”')] {
            let inner =
                text.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(inner, _)| inner.trim());
            if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
                return Some(shorten_to_line(inner, TOPIC_CHARS_MAX));
            }
        }
        let is_path = |word: &&str| {
            let inside = word.trim_matches(|letter: char| !letter.is_alphanumeric());
            inside.contains('/') || inside.contains('.')
        };
        let trimmed = |word: &str| word.trim_end_matches(|letter: char| ".,;:!?)".contains(letter)).to_owned();
        text.split_whitespace().find(is_path).map(trimmed).filter(|word| word.len() <= TOPIC_CHARS_MAX)
    }

    fn add_instructions<S: AsRef<str>>(&mut self, parts: &[S]) {
        for part in parts {
            let room = REHEARSAL_INSTRUCTIONS_BYTES_MAX.saturating_sub(self.instructions.len());
            self.instructions.push_str(truncate_to_bytes(part.as_ref(), room));
            self.instructions.push_str("\n\n");
        }
    }
}

/// Returns a few words of `text` that name its topic; empty if `text` is empty.
pub(super) fn extract_topic(text: &str) -> String {
    let sentences = text.split(|letter: char| ".?!;:\n".contains(letter));
    let weight = |phrase: &Vec<&str>| phrase.iter().filter(|word| is_content_word(&normalize_word(word))).count();
    // Reversed because `max_by_key` returns the last of equals, and the first sentence should win.
    let phrase = sentences.rev().map(extract_content_phrase).max_by_key(weight);
    match phrase {
        Some(phrase) if !phrase.is_empty() => shorten_to_line(&phrase.join(" "), TOPIC_CHARS_MAX),
        _ => shorten_to_line(text, TOPIC_CHARS_MAX),
    }
}

/// Returns the words of `text` that are not stop words, in lower case.
pub(super) fn content_words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'')
        .map(|word| word.trim_matches('\'').to_lowercase())
        .filter(|word| is_content_word(word) && word.len() <= TOPIC_CHARS_MAX)
}

/// Returns whether two lowercase words are forms of the same word.
pub(super) fn have_same_stem(one: &str, other: &str) -> bool {
    const STEM_CHARS: usize = 5;
    let stem = |word: &str| {
        word.char_indices().nth(STEM_CHARS - 1).map(|(at, letter)| word[..at + letter.len_utf8()].to_owned())
    };
    one == other || matches!((stem(one), stem(other)), (Some(one), Some(other)) if one == other)
}

fn is_content_word(word: &str) -> bool {
    word.chars().count() >= 3 && !STOP_WORDS.contains(&word)
}

fn normalize_word(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Returns the words from the first content word to the last one, up to a limit.
fn extract_content_phrase(sentence: &str) -> Vec<&str> {
    let words: Vec<_> = sentence.split_whitespace().collect();
    let start = words.iter().position(|word| is_content_word(&normalize_word(word))).unwrap_or(words.len());
    let mut phrase: Vec<_> = words[start..].iter().take(TOPIC_WORDS_MAX).copied().collect();
    while phrase.last().is_some_and(|word| !is_content_word(&normalize_word(word))) {
        phrase.pop();
    }
    let edge = |letter: char| !letter.is_alphanumeric();
    if let Some(first) = phrase.first_mut() {
        *first = first.trim_start_matches(edge);
    }
    if let Some(last) = phrase.last_mut() {
        *last = last.trim_end_matches(edge);
    }
    phrase
}

/// Removes an enclosing XML-style tag from the user's text.
fn strip_enclosing_tag(part: &str) -> &str {
    let part = part.trim();
    let inner = part.strip_prefix('<').and_then(|rest| {
        let (tag, rest) = rest.split_once('>')?;
        let name = tag.split_whitespace().next()?;
        rest.strip_suffix('>')?.strip_suffix(name)?.strip_suffix("</")
    });
    inner.unwrap_or(part).trim()
}

fn message_prefix(message: &PromptMessage) -> String {
    let mut text = String::new();
    for part in &message.parts {
        let room = REHEARSAL_MESSAGE_BYTES_MAX.saturating_sub(text.len());
        text.push_str(truncate_to_bytes(part, room));
        text.push('\n');
    }
    text.trim().to_owned()
}

/// Adds a text to a bounded list, which keeps the first and the newest.
fn push_bounded(list: &mut Vec<String>, text: &str) {
    if list.len() == REHEARSAL_MESSAGES_MAX {
        list.remove(1);
    }
    list.push(text.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_few_words_of_the_message() {
        for (text, topic) in [
            ("How do I paint my fence before winter?", "paint my fence before winter"),
            ("Hi. I would like to bake bread with rye flour, and soon!", "bake bread with rye flour"),
            ("ok", "ok"),
            ("", ""),
            ("¿Dónde está la biblioteca?", "Dónde está la biblioteca"),
        ] {
            assert_eq!(extract_topic(text), topic);
        }
        assert!(extract_topic(&"x".repeat(1 << 20)).chars().count() <= TOPIC_CHARS_MAX + 1);
    }

    #[test]
    fn the_users_text_is_found_after_context_and_inside_a_tag() {
        let mut message = PromptMessage::from_text(ChatRole::User, "Context: the moon.");
        message.parts.push("<user_message from=\"u\">\nIs it <b>cheese</b>?\n</user_message>".into());
        message.parts.push("  ".into());
        let prompt = Prompt {
            model: "m".into(),
            messages: vec![message].into(),
            tools: vec![],
            tool_use: segue_core::prompt::ModelToolUseRules::default(),
            output_format: segue_core::prompt::ModelOutputFormat::Text,
            reply_tokens_max: 1,
        };
        let parsed = RehearsalPromptParts::from_prompt(&prompt);
        assert_eq!(parsed.last_user_text(), "Is it <b>cheese</b>?");
        assert_eq!(parsed.instructions.trim(), "Context: the moon.");
    }

    #[test]
    fn forms_of_a_word_have_the_same_stem() {
        assert!(
            have_same_stem("planning", "plann")
                && have_same_stem("searching", "search")
                && have_same_stem("plan", "plan")
        );
        assert!(!have_same_stem("plan", "plane") && !have_same_stem("read", "reader") && !have_same_stem("", "plan"));
    }

    #[test]
    fn quoted_text_and_file_names_are_found() {
        let quoted = |text: &str| {
            RehearsalPromptParts { user_messages: vec![text.to_owned()], ..RehearsalPromptParts::default() }
                .quoted_text_or_path()
        };
        assert_eq!(quoted("open `a b` now").as_deref(), Some("a b"));
        assert_eq!(quoted("read src/main.rs, please").as_deref(), Some("src/main.rs"));
        assert_eq!(quoted("read notes.txt."), Some("notes.txt".to_owned()));
        assert_eq!(quoted("just talk."), None);
        assert_eq!(quoted("an ` alone"), None);
    }
}
