//! Small helpers for texts.

/// Returns the text, cut to `chars_max` characters.
pub(super) fn truncate_chars(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the last `chars_max` characters of the text.
pub(super) fn last_chars(text: &str, chars_max: usize) -> String {
    let chars = text.chars().count();
    text.chars().skip(chars.saturating_sub(chars_max)).collect()
}

/// Returns a number with its noun.
pub(super) fn count_with_noun(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Returns the words of a text in lower case, without punctuation.
pub(super) fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}
