//! What the stand-in makes of a prompt: its instructions, what was said to it and by it, what it is about. Reads a bounded
//! part of every message and understands nothing; it counts words.

use crate::limits::{KEYWORDS_MAX, TOPIC_CHARS_MAX, TOPIC_WORDS_MAX};
use segue_core::prompt::{Message, Prompt, Speaker};

use super::words::STOP_WORDS;
use crate::limits::{REHEARSAL_INSTRUCTIONS_BYTES_MAX, REHEARSAL_MESSAGE_BYTES_MAX, REHEARSAL_MESSAGES_MAX};
use crate::text::{cut, shorten};

/// A prompt, read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Standing instructions, and whatever stands before the user's own words in a message.
    pub(super) instructions: String,
    /// What the user said, oldest first; the last one is to be answered.
    said: Vec<String>,
    /// How many messages of the user there are, read or not.
    said_count: usize,
    /// What it said itself, oldest first.
    pub(super) own: Vec<String>,
    /// What tools returned since the user spoke.
    pub(super) results: Vec<String>,
    /// Whether it called a tool since the user spoke.
    pub(super) has_called: bool,
}

impl Reading {
    pub(super) fn of(prompt: &Prompt) -> Self {
        let mut reading = Self::default();
        for message in &*prompt.messages {
            match message.speaker {
                Speaker::System => reading.instruct(&message.parts),
                Speaker::User => {
                    let own_words = message.parts.iter().rposition(|part| !part.trim().is_empty()).unwrap_or_default();
                    reading.instruct(message.parts.get(..own_words).unwrap_or_default());
                    let words = message.parts.get(own_words).map_or("", |part| unwrapped(part));
                    keep(&mut reading.said, cut(words, REHEARSAL_MESSAGE_BYTES_MAX));
                    reading.said_count += 1;
                    reading.results.clear();
                    reading.has_called = false;
                }
                Speaker::Assistant => {
                    keep(&mut reading.own, &head(message));
                    reading.has_called |= !message.tool_calls.is_empty();
                }
                Speaker::Tool => keep(&mut reading.results, &head(message)),
            }
        }
        reading
    }

    /// What is to be answered.
    pub(super) fn last(&self) -> &str {
        self.said.last().map_or("", |text| text)
    }

    /// What the user said first.
    pub(super) fn first(&self) -> &str {
        self.said.first().map_or("", |text| text)
    }

    /// What the user said before the last message.
    pub(super) fn previous(&self) -> Option<&str> {
        self.earlier().last().map(String::as_str)
    }

    /// What the user said before the last message, oldest first.
    pub(super) fn earlier(&self) -> &[String] {
        self.said.split_last().map_or(&[], |(_, earlier)| earlier)
    }

    /// How many messages of the user it was shown.
    pub(super) fn said_count(&self) -> usize {
        self.said_count
    }

    /// What the last message is about, in a few of its own words.
    pub(super) fn topic(&self) -> String {
        topic_of(self.last())
    }

    /// The same of the first one.
    pub(super) fn first_topic(&self) -> String {
        topic_of(self.first())
    }

    /// The telling words of what the user said, newest message first.
    pub(super) fn keywords(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for text in self.said.iter().rev() {
            for word in telling_words(text) {
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

    /// What the last message puts in quotes, or what looks like a file or an address.
    pub(super) fn quoted(&self) -> Option<String> {
        let text = self.last();
        for (open, close) in [('`', '`'), ('"', '"'), ('“', '”')] {
            let inner =
                text.split_once(open).and_then(|(_, rest)| rest.split_once(close)).map(|(inner, _)| inner.trim());
            if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
                return Some(shorten(inner, TOPIC_CHARS_MAX));
            }
        }
        let is_path = |word: &&str| {
            let inside = word.trim_matches(|letter: char| !letter.is_alphanumeric());
            inside.contains('/') || inside.contains('.')
        };
        let trimmed = |word: &str| word.trim_end_matches(|letter: char| ".,;:!?)".contains(letter)).to_owned();
        text.split_whitespace().find(is_path).map(trimmed).filter(|word| word.len() <= TOPIC_CHARS_MAX)
    }

    fn instruct<S: AsRef<str>>(&mut self, parts: &[S]) {
        for part in parts {
            let room = REHEARSAL_INSTRUCTIONS_BYTES_MAX.saturating_sub(self.instructions.len());
            self.instructions.push_str(cut(part.as_ref(), room));
            self.instructions.push_str("\n\n");
        }
    }
}

/// A few words of `text` that name what it is about; empty if it says nothing.
pub(super) fn topic_of(text: &str) -> String {
    let sentences = text.split(|letter: char| ".?!;:\n".contains(letter));
    let weight = |phrase: &Vec<&str>| phrase.iter().filter(|word| is_telling(&bare(word))).count();
    // Reversed, because among equals the last is taken, and the first sentence is to win.
    let phrase = sentences.rev().map(telling_phrase).max_by_key(weight);
    match phrase {
        Some(phrase) if !phrase.is_empty() => shorten(&phrase.join(" "), TOPIC_CHARS_MAX),
        _ => shorten(text, TOPIC_CHARS_MAX),
    }
}

/// The words of `text` that carry meaning, in lower case, in order.
pub(super) fn telling_words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'')
        .map(|word| word.trim_matches('\'').to_lowercase())
        .filter(|word| is_telling(word) && word.len() <= TOPIC_CHARS_MAX)
}

/// Whether two words, in lower case, are forms of one.
pub(super) fn alike(one: &str, other: &str) -> bool {
    const STEM_CHARS: usize = 5;
    let stem = |word: &str| {
        word.char_indices().nth(STEM_CHARS - 1).map(|(at, letter)| word[..at + letter.len_utf8()].to_owned())
    };
    one == other || matches!((stem(one), stem(other)), (Some(one), Some(other)) if one == other)
}

fn is_telling(word: &str) -> bool {
    word.chars().count() >= 3 && !STOP_WORDS.contains(&word)
}

fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// From the first telling word on, without a weak ending.
fn telling_phrase(sentence: &str) -> Vec<&str> {
    let words: Vec<_> = sentence.split_whitespace().collect();
    let start = words.iter().position(|word| is_telling(&bare(word))).unwrap_or(words.len());
    let mut phrase: Vec<_> = words[start..].iter().take(TOPIC_WORDS_MAX).copied().collect();
    while phrase.last().is_some_and(|word| !is_telling(&bare(word))) {
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

/// What a fence around the user's words holds.
fn unwrapped(part: &str) -> &str {
    let part = part.trim();
    let inner = part.strip_prefix('<').and_then(|rest| {
        let (tag, rest) = rest.split_once('>')?;
        let name = tag.split_whitespace().next()?;
        rest.strip_suffix('>')?.strip_suffix(name)?.strip_suffix("</")
    });
    inner.unwrap_or(part).trim()
}

fn head(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        let room = REHEARSAL_MESSAGE_BYTES_MAX.saturating_sub(text.len());
        text.push_str(cut(part, room));
        text.push('\n');
    }
    text.trim().to_owned()
}

/// Keeps the first and the newest.
fn keep(list: &mut Vec<String>, text: &str) {
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
            assert_eq!(topic_of(text), topic);
        }
        assert!(topic_of(&"x".repeat(1 << 20)).chars().count() <= TOPIC_CHARS_MAX + 1);
    }

    #[test]
    fn the_users_words_are_found_behind_context_and_inside_a_fence() {
        let mut message = Message::plain(Speaker::User, "Context: the moon.");
        message.parts.push("<user_message from=\"u\">\nIs it <b>cheese</b>?\n</user_message>".into());
        message.parts.push("  ".into());
        let prompt = Prompt {
            model: "m".into(),
            messages: vec![message].into(),
            tools: vec![],
            output: segue_core::prompt::Output::Text,
            reply_tokens_max: 1,
        };
        let reading = Reading::of(&prompt);
        assert_eq!(reading.last(), "Is it <b>cheese</b>?");
        assert_eq!(reading.instructions.trim(), "Context: the moon.");
    }

    #[test]
    fn forms_of_a_word_are_alike() {
        assert!(alike("planning", "plann") && alike("searching", "search") && alike("plan", "plan"));
        assert!(!alike("plan", "plane") && !alike("read", "reader") && !alike("", "plan"));
    }

    #[test]
    fn what_is_quoted_or_looks_like_a_file_is_found() {
        let quoted = |text: &str| Reading { said: vec![text.to_owned()], ..Reading::default() }.quoted();
        assert_eq!(quoted("open `a b` now").as_deref(), Some("a b"));
        assert_eq!(quoted("read src/main.rs, please").as_deref(), Some("src/main.rs"));
        assert_eq!(quoted("read notes.txt."), Some("notes.txt".to_owned()));
        assert_eq!(quoted("just talk."), None);
        assert_eq!(quoted("an ` alone"), None);
    }
}
