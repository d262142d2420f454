//! Counts tokens. One vocabulary serves all models: for those with another vocabulary the count is an estimate, which
//! core corrects per model by the counts that the vendor reports.
//!
//! Texts are many and each is counted once, so the counts of single words are cached.

use crate::limits::CACHED_WORD_BYTES_MAX;
use std::cell::RefCell;
use std::sync::LazyLock;

use segue_core::context::TokenCounter;
use tiktoken::CoreBpe;

/// Loaded on a separate thread: loading needs as much memory again as the vocabulary, which is returned when the thread
/// ends.
static VOCABULARY: LazyLock<CoreBpe> = LazyLock::new(|| {
    let load = tiktoken::encoding::o200k_base;
    // If no thread can be started, loading here only needs more memory.
    std::thread::Builder::new().spawn(load).ok().and_then(|thread| thread.join().ok()).unwrap_or_else(load)
});

/// Counts with the o200k vocabulary, which is loaded on first use.
#[derive(Debug, Clone, Copy, Default)]
pub struct O200kTokenCounter;

impl TokenCounter for O200kTokenCounter {
    fn count_tokens(&self, text: &str) -> u32 {
        let count: usize = TOKEN_COUNT_CACHE
            .with_borrow_mut(|cache| split_before_spaces(text).map(|word| cache.count_word_tokens(word)).sum());
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// Splits a text before each space that follows a visible character. The vocabulary's own rules split there too, since
/// a space can only begin a token, and they never look back across such a point. So the parts can be counted
/// separately.
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
        let word = &text[start..end];
        start = end;
        Some(word)
    })
}

/// Returns the index of the next space from `from` on, or the length. Checks eight bytes at a time.
fn find_next_space(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let (chunks, rest) = bytes[from..].as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        // A space becomes a zero byte here; the lowest set bit of `found` marks the first zero byte.
        let zeroed = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(b' '));
        let found = zeroed.wrapping_sub(ONES) & !zeroed & (ONES << 7);
        if found != 0 {
            return from + index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let index = rest.iter().position(|byte| *byte == b' ');
    index.map_or(bytes.len(), |index| bytes.len() - rest.len() + index)
}

const TOKEN_CACHE_SLOTS: usize = 1 << 14;

thread_local! {
    static TOKEN_COUNT_CACHE: RefCell<WordTokenCountCache> = RefCell::new(WordTokenCountCache(vec![0; TOKEN_CACHE_SLOTS]));
}

/// A cache of the counts of short words. A slot holds the upper 56 bits of the word's hash, which identify the word,
/// and its count in the lower 8 bits: eight bytes per slot, so that the cache fits the processor's cache.
struct WordTokenCountCache(Vec<u64>);

/// The bits of a slot that hold the count.
const COUNT_MASK: u64 = 0xff;

impl WordTokenCountCache {
    fn count_word_tokens(&mut self, word: &str) -> usize {
        let Some(hash) = hash_word(word.as_bytes()) else { return VOCABULARY.count(word) };
        // Each hash has two slots, so that two words of the same place do not evict each other.
        let slot_index = usize::try_from(hash >> 48).unwrap_or(0) % (TOKEN_CACHE_SLOTS / 2) * 2;
        let matches_hash = |slot: u64| slot & !COUNT_MASK == hash & !COUNT_MASK;
        if !matches_hash(self.0[slot_index]) {
            self.0.swap(slot_index, slot_index + 1);
            if !matches_hash(self.0[slot_index]) {
                // A word has at most one token per byte, so the count fits.
                let count = VOCABULARY.count(word) as u64;
                self.0[slot_index] = (hash & !COUNT_MASK) | (count & COUNT_MASK);
            }
        }
        (self.0[slot_index] & COUNT_MASK) as usize
    }
}

/// Hashes a word that is short enough to be cached. The hash is never that of an empty slot.
fn hash_word(word: &[u8]) -> Option<u64> {
    if word.len() > CACHED_WORD_BYTES_MAX {
        return None;
    }
    let mix = |hash: u64, value: u64| {
        let product = u128::from(hash ^ value) * 0x9e37_79b9_7f4a_7c15_u128;
        product as u64 ^ (product >> 64) as u64
    };
    let (chunks, rest) = word.as_chunks::<8>();
    let hash = chunks.iter().fold(0x2545_f491_4f6c_dd1d, |hash, chunk| mix(hash, u64::from_le_bytes(*chunk)));
    // At most seven bytes, with the length above them, so that no two words give the same number.
    let rest = rest.iter().fold(word.len() as u64, |value, byte| value << 8 | u64::from(*byte));
    Some(mix(hash, rest) | (COUNT_MASK + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check_count(text: &str) {
        let whole = u32::try_from(VOCABULARY.count(text)).expect("short");
        // Twice: computed, and cached.
        assert_eq!(
            (O200kTokenCounter.count_tokens(text), O200kTokenCounter.count_tokens(text)),
            (whole, whole),
            "{text:?}"
        );
    }

    #[test]
    fn counting_word_by_word_gives_the_count_of_the_text() {
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
            check_count(text);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_the_same_count_word_by_word(text in "([a-zA-Z]{1,9}|[ \t\n]{1,3}|'(s|ll|D)|[0-9]{1,5}|[.,;:!?/'\"-]{1,3}| |\\PC){0,60}") {
            check_count(&text);
        }
    }
}
