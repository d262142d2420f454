//! Splits texts into words and matches whole phrases in them, ignoring case.

use std::ops::Range;

/// A word and its position in the text.
#[derive(Debug)]
pub(super) struct TextWord {
    /// The word in lower case, with `'` as its apostrophe.
    pub(super) text: String,
    pub(super) range: Range<usize>,
    /// The separation from the previous word.
    pub(super) gap: WordSeparation,
}

/// The separation between two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordSeparation {
    /// Only blanks, hyphens, underscores or asterisks: the words may form a phrase.
    Adjacent,
    /// Any other character: a phrase or clause ends.
    Separated,
}

/// Returns the words of `text` in order. An apostrophe belongs to a word if a letter follows; an underscore separates
/// words.
pub(super) fn split_words(text: &str) -> Vec<TextWord> {
    let mut words: Vec<TextWord> = Vec::new();
    let mut characters = text.char_indices().peekable();
    let mut gap = WordSeparation::Separated;
    while let Some((start, c)) = characters.next() {
        if !c.is_alphanumeric() {
            let is_close = matches!(c, ' ' | '\t' | '-' | '_' | '*');
            gap = if is_close { gap } else { WordSeparation::Separated };
            continue;
        }
        let mut word = TextWord { text: c.to_lowercase().collect(), range: start..start + c.len_utf8(), gap };
        while let Some((at, c)) = characters.next_if(|(at, c)| is_word_char(text, *at, *c)) {
            word.text.extend(if c == '’' { '\'' } else { c }.to_lowercase());
            word.range.end = at + c.len_utf8();
        }
        words.push(word);
        gap = WordSeparation::Adjacent;
    }
    words
}

fn is_word_char(text: &str, at: usize, c: char) -> bool {
    let next = || text[at + c.len_utf8()..].chars().next();
    c.is_alphanumeric() || (matches!(c, '\'' | '’') && next().is_some_and(char::is_alphanumeric))
}

/// Returns whether `words` start with `phrase`.
pub(super) fn starts_with_phrase(words: &[TextWord], phrase: &str) -> bool {
    let mut count = 0;
    let fits = phrase.split(' ').all(|wanted| {
        let word = words.get(count);
        let fits = word.is_some_and(|word| word.text == wanted && (count == 0 || word.gap == WordSeparation::Adjacent));
        count += 1;
        fits
    });
    fits && count > 0
}
