//! Small questions about texts and prompts: what was said last, how to quote it briefly, where it may be cut.

use segue_core::prompt::{ChatRole, Prompt, PromptMessage};

/// The newest message put to the model; empty if there is none.
pub(crate) fn last_user_text(prompt: &Prompt) -> String {
    prompt
        .messages
        .iter()
        .rev()
        .find(|message| message.chat_role == ChatRole::User)
        .map(PromptMessage::text)
        .unwrap_or_default()
}

/// The oldest message put to the model; empty if there is none.
pub(crate) fn first_user_text(prompt: &Prompt) -> String {
    prompt
        .messages
        .iter()
        .find(|message| message.chat_role == ChatRole::User)
        .map(PromptMessage::text)
        .unwrap_or_default()
}

/// The standing instructions, one after the other.
pub(crate) fn system_text(prompt: &Prompt) -> String {
    let texts: Vec<_> = prompt
        .messages
        .iter()
        .filter(|message| message.chat_role == ChatRole::System)
        .map(PromptMessage::text)
        .collect();
    texts.join("\n\n")
}

/// `text` on one line, at most `chars_max` characters, with an ellipsis if something was left out.
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

/// The longest beginning of `text` that is no longer than `bytes_max` and ends between two characters.
pub(crate) fn truncate_to_bytes(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A text in pieces, made as they are asked for.
#[derive(Debug)]
pub(crate) enum TextChunks {
    /// As they were given.
    Predefined(std::vec::IntoIter<String>),
    /// Cut every so many characters.
    FixedLength { text: String, offset: usize, chunk_chars: usize },
}

impl TextChunks {
    pub(crate) fn from_chunks(chunks: Vec<String>) -> Self {
        Self::Predefined(chunks.into_iter())
    }

    /// Cuts `text` every `chars` characters (at least one).
    pub(crate) fn split_every(text: String, chars: usize) -> Self {
        Self::FixedLength { text, offset: 0, chunk_chars: chars.max(1) }
    }

    /// The whole text as one piece; none if it is empty.
    pub(crate) fn single_chunk(text: String) -> Self {
        Self::split_every(text, usize::MAX)
    }
}

impl Iterator for TextChunks {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self {
            Self::Predefined(pieces) => pieces.next(),
            Self::FixedLength { text, offset: from, chunk_chars: chars } => {
                let rest = &text[*from..];
                if rest.is_empty() {
                    return None;
                }
                let length = rest.char_indices().nth(*chars).map_or(rest.len(), |(at, _)| at);
                *from += length;
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
    fn a_long_text_is_quoted_on_one_short_line() {
        assert_eq!(shorten_to_line("  one\n two\tthree ", 50), "one two three");
        assert_eq!(shorten_to_line("one two three", 7), "one two…");
        assert_eq!(shorten_to_line("one two three", 5), "one t…");
        assert_eq!(shorten_to_line("żółć", 2), "żó…");
        assert_eq!(shorten_to_line(&"x".repeat(1 << 20), 4), "xxxx…");
        assert_eq!(shorten_to_line("", 4), "");
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_text_and_none_is_too_long(text in "\\PC*", chars in 0usize..9) {
            let pieces: Vec<_> = TextChunks::split_every(text.clone(), chars).collect();
            prop_assert_eq!(pieces.concat(), text);
            for piece in pieces {
                prop_assert!((1..=chars.max(1)).contains(&piece.chars().count()));
            }
        }

        #[test]
        fn a_quote_is_never_longer_than_asked(text in "\\PC*", chars in 0usize..40) {
            prop_assert!(shorten_to_line(&text, chars).chars().count() <= chars + 1);
        }

        #[test]
        fn a_cut_is_a_beginning(text in "\\PC*", bytes in 0usize..40) {
            let start = truncate_to_bytes(&text, bytes);
            prop_assert!(start.len() <= bytes && text.starts_with(start));
        }
    }
}
