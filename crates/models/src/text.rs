//! Helpers for prompt texts: find messages, shorten and split texts.

use segue_core::prompt::{ChatRole, Prompt, PromptMessage};

/// Returns the newest user message; empty if there is none.
pub(crate) fn last_user_text(prompt: &Prompt) -> String {
    prompt
        .messages
        .iter()
        .rev()
        .find(|message| message.chat_role == ChatRole::User)
        .map(PromptMessage::text)
        .unwrap_or_default()
}

/// Returns the oldest user message; empty if there is none.
pub(crate) fn first_user_text(prompt: &Prompt) -> String {
    prompt
        .messages
        .iter()
        .find(|message| message.chat_role == ChatRole::User)
        .map(PromptMessage::text)
        .unwrap_or_default()
}

/// Returns all system messages, joined.
pub(crate) fn system_text(prompt: &Prompt) -> String {
    let texts: Vec<_> = prompt
        .messages
        .iter()
        .filter(|message| message.chat_role == ChatRole::System)
        .map(PromptMessage::text)
        .collect();
    texts.join("\n\n")
}

/// Returns `text` on one line of at most `chars_max` characters, with an ellipsis if it was shortened.
pub(crate) fn shorten_to_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        let gap = usize::from(!line.is_empty());
        if gap == 1 && count < chars_max {
            line.push(' ');
        }
        for letter in word.chars() {
            if count + gap >= chars_max {
                line.truncate(line.trim_end().len());
                line.push('…');
                return line;
            }
            line.push(letter);
            count += 1;
        }
        count += gap;
    }
    line
}

/// Returns the longest prefix of `text` that has at most `bytes_max` bytes and ends at a character boundary.
pub(crate) fn truncate_to_bytes(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Iterates over a text in chunks.
#[derive(Debug)]
pub(crate) enum TextChunkIterator {
    /// Given in advance.
    Predefined(std::vec::IntoIter<String>),
    /// Split every `chunk_chars` characters.
    FixedLength { text: String, offset: usize, chunk_chars: usize },
}

impl TextChunkIterator {
    pub(crate) fn from_chunks(chunks: Vec<String>) -> Self {
        Self::Predefined(chunks.into_iter())
    }

    /// Splits `text` every `chars` characters (at least one).
    pub(crate) fn split_every(text: String, chars: usize) -> Self {
        Self::FixedLength { text, offset: 0, chunk_chars: chars.max(1) }
    }

    /// Yields the whole text as one chunk; none if it is empty.
    pub(crate) fn single_chunk(text: String) -> Self {
        Self::split_every(text, usize::MAX)
    }
}

impl Iterator for TextChunkIterator {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self {
            Self::Predefined(chunks) => chunks.next(),
            Self::FixedLength { text, offset, chunk_chars } => {
                let rest = &text[*offset..];
                if rest.is_empty() {
                    return None;
                }
                let length = rest.char_indices().nth(*chunk_chars).map_or(rest.len(), |(at, _)| at);
                *offset += length;
                Some(rest[..length].to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_shortened_to_one_line() {
        assert_eq!(shorten_to_line("  one\n two\tthree ", 50), "one two three");
        assert_eq!(shorten_to_line("one two three", 7), "one two…");
        assert_eq!(shorten_to_line("one two three", 5), "one t…");
        assert_eq!(shorten_to_line("żółć", 2), "żó…");
        assert_eq!(shorten_to_line(&"x".repeat(1 << 20), 4), "xxxx…");
        assert_eq!(shorten_to_line("", 4), "");
    }

    proptest! {
        #[test]
        fn chunks_make_up_the_text_and_none_is_too_long(text in "\\PC*", chars in 0usize..9) {
            let chunks: Vec<_> = TextChunkIterator::split_every(text.clone(), chars).collect();
            prop_assert_eq!(chunks.concat(), text);
            for chunk in chunks {
                prop_assert!((1..=chars.max(1)).contains(&chunk.chars().count()));
            }
        }

        #[test]
        fn a_shortened_text_is_never_longer_than_requested(text in "\\PC*", chars in 0usize..40) {
            prop_assert!(shorten_to_line(&text, chars).chars().count() <= chars + 1);
        }

        #[test]
        fn a_truncated_text_is_a_prefix(text in "\\PC*", bytes in 0usize..40) {
            let start = truncate_to_bytes(&text, bytes);
            prop_assert!(start.len() <= bytes && text.starts_with(start));
        }
    }
}
