//! Token counts. One vocabulary for all models: an estimate for those that have another, which core corrects for each model by what its
//! vendor reports with its answers.
//!
//! Every text is counted once and there are many, so the counts of single words are remembered.

use std::cell::RefCell;
use std::sync::LazyLock;

use segue_core::context::TokenCounter;
use tiktoken::CoreBpe;

/// Loaded on a thread of its own: what that takes beside the vocabulary itself, which is as much again, goes back with the thread.
static VOCABULARY: LazyLock<CoreBpe> = LazyLock::new(|| {
    let load = tiktoken::encoding::o200k_base;
    std::thread::Builder::new().spawn(load).ok().and_then(|thread| thread.join().ok()).unwrap_or_else(load)
});

/// Counts with the o200k vocabulary, which is loaded when it is first needed.
#[derive(Debug, Clone, Copy, Default)]
pub struct O200kTokenCounter;

impl TokenCounter for O200kTokenCounter {
    fn count_tokens(&self, text: &str) -> u32 {
        let count: usize = TOKEN_COUNT_CACHE
            .with_borrow_mut(|known| split_before_spaces(text).map(|stretch| known.count(stretch)).sum());
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// Parts a text before each blank that follows something visible. The vocabulary's own rules part it there too, since a
/// blank only ever begins a token, and never look back across such a place; so the parts can be counted one by one.
fn split_before_spaces(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == bytes.len() {
            return None;
        }
        let mut end = find_next_space(bytes, start + 1);
        while end < bytes.len() && !bytes[end - 1].is_ascii_graphic() {
            end = find_next_space(bytes, end + 1);
        }
        let stretch = &text[start..end];
        start = end;
        Some(stretch)
    })
}

/// The place of the next blank from here on, or the end. Looks at eight bytes at a time: most words have no more.
fn find_next_space(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let (eights, rest) = bytes[from..].as_chunks::<8>();
    for (place, eight) in eights.iter().enumerate() {
        // A blank is zero in here, and the lowest of the high bits that are left stands where the first zero does.
        let zeroed = u64::from_le_bytes(*eight) ^ (ONES * u64::from(b' '));
        let found = zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7);
        if found != 0 {
            return from + place * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let place = rest.iter().position(|byte| *byte == b' ');
    place.map_or(bytes.len(), |place| bytes.len() - rest.len() + place)
}

const CACHED_WORD_BYTES_MAX: usize = 24;
const TOKEN_CACHE_SLOTS: usize = 1 << 14;

thread_local! {
    static TOKEN_COUNT_CACHE: RefCell<TokenCountCache> = RefCell::new(TokenCountCache(vec![0; TOKEN_CACHE_SLOTS]));
}

/// Short stretches counted lately; a new one takes the place of an old one. A slot holds the upper 56 bits of a stretch's
/// hash, which tell one from another, and its count below them: eight bytes each, so that all of it stays close to the
/// processor.
struct TokenCountCache(Vec<u64>);

/// The bits of a slot that hold its count.
const COUNT_MASK: u64 = 0xff;

impl TokenCountCache {
    fn count(&mut self, stretch: &str) -> usize {
        let Some(hash) = hash_word(stretch.as_bytes()) else { return VOCABULARY.count(stretch) };
        // Two slots share a place, so that two words that meet there do not drive each other out.
        let newer = usize::try_from(hash >> 48).unwrap_or(0) % (TOKEN_CACHE_SLOTS / 2) * 2;
        let is = |slot: u64| slot & !COUNT_MASK == hash & !COUNT_MASK;
        if !is(self.0[newer]) {
            self.0.swap(newer, newer + 1);
            if !is(self.0[newer]) {
                // A stretch has no more tokens than bytes, and few bytes.
                let count = VOCABULARY.count(stretch) as u64;
                self.0[newer] = (hash & !COUNT_MASK) | (count & COUNT_MASK);
            }
        }
        (self.0[newer] & COUNT_MASK) as usize
    }
}

/// Of a stretch that is short enough to be remembered. Never that of an empty slot.
fn hash_word(stretch: &[u8]) -> Option<u64> {
    if stretch.len() > CACHED_WORD_BYTES_MAX {
        return None;
    }
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        product as u64 ^ (product >> 64) as u64
    };
    let (eights, rest) = stretch.as_chunks::<8>();
    let hash = eights.iter().fold(0x2545_f491_4f6c_dd1d, |hash, eight| mix(hash, u64::from_le_bytes(*eight)));
    // Seven bytes at most, and the length above them: no two stretches give the same words.
    let rest = rest.iter().fold(stretch.len() as u64, |word, byte| word << 8 | u64::from(*byte));
    Some(mix(hash, rest) | (COUNT_MASK + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_counted_as_a_whole(text: &str) {
        let whole = u32::try_from(VOCABULARY.count(text)).expect("short");
        // Twice: counted anew, and remembered.
        assert_eq!(
            (O200kTokenCounter.count_tokens(text), O200kTokenCounter.count_tokens(text)),
            (whole, whole),
            "{text:?}"
        );
    }

    #[test]
    fn words_counted_one_by_one_give_the_count_of_the_text() {
        for text in [
            "",
            " ",
            "a b c",
            "It's what they'd said: 'no'  two blanks, \t tabs\n\nand lines \r\n 1234 5 numbers v2 go",
            "McDonald's ALLCAPS camelCase snake_case é è Ünïcödé 漢字 かな mixed漢字words end",
            "a_word_that_is_much_longer_than_any_slot_could_ever_hold and on it goes",
            "trailing blank after a word ",
            "ac",
            "\0ab",
            "abcdefgh",
            "`bcdefgh\0",
        ] {
            is_counted_as_a_whole(text);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_the_same_count_in_parts(text in "([a-zA-Z]{1,9}|[ \t\n]{1,3}|'(s|ll|D)|[0-9]{1,5}|[.,;:!?/'\"-]{1,3}| |\\PC){0,60}") {
            is_counted_as_a_whole(&text);
        }
    }
}
