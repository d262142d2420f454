//! Words of a text, whole and in any case, as the tables of cues and of machinery terms compare them.

use std::ops::Range;

/// A word and where it stands.
#[derive(Debug)]
pub(super) struct TextWord {
    /// In lower case, with a plain apostrophe.
    pub(super) text: String,
    pub(super) range: Range<usize>,
    /// What stands between it and the word before.
    pub(super) gap: WordGap,
}

/// What stands between two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordGap {
    /// Blanks or a hyphen: the words may form a phrase.
    Adjacent,
    /// Anything else: a phrase or a clause ends.
    Separated,
}

/// The words of a text, in order. An apostrophe belongs to a word if letters follow; an underscore parts words.
pub(super) fn split_words(text: &str) -> Vec<TextWord> {
    let mut words: Vec<TextWord> = Vec::new();
    let mut characters = text.char_indices().peekable();
    let mut gap = WordGap::Separated;
    while let Some((start, c)) = characters.next() {
        if !c.is_alphanumeric() {
            let is_close = matches!(c, ' ' | '\t' | '-' | '_' | '*');
            gap = if is_close { gap } else { WordGap::Separated };
            continue;
        }
        let mut word = TextWord { text: c.to_lowercase().collect(), range: start..start + c.len_utf8(), gap };
        while let Some((at, c)) = characters.next_if(|(at, c)| is_word_char(text, *at, *c)) {
            word.text.extend(if c == '’' { '\'' } else { c }.to_lowercase());
            word.range.end = at + c.len_utf8();
        }
        words.push(word);
        gap = WordGap::Adjacent;
    }
    words
}

fn is_word_char(text: &str, at: usize, c: char) -> bool {
    let next = || text[at + c.len_utf8()..].chars().next();
    c.is_alphanumeric() || (matches!(c, '\'' | '’') && next().is_some_and(char::is_alphanumeric))
}

/// Whether the phrase stands at the beginning of `words`.
pub(super) fn starts_with_phrase(words: &[TextWord], phrase: &str) -> bool {
    let mut count = 0;
    let fits = phrase.split(' ').all(|wanted| {
        let word = words.get(count);
        let fits = word.is_some_and(|word| word.text == wanted && (count == 0 || word.gap == WordGap::Adjacent));
        count += 1;
        fits
    });
    fits && count > 0
}
