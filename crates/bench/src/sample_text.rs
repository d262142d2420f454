//! Texts of messages and replies: generated prose, cut at a different offset each time. Repeated sentences would
//! compress too well.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use segue_core::context::TokenCounter as _;
use segue_engine::O200kTokenCounter;

/// Characters of a user's message.
pub(crate) const USER_CHARS: usize = 270;
/// Characters of a model's answer.
pub(crate) const REPLY_CHARS: usize = 900;

const PROSE_BYTES: usize = 128 << 10;
const VOCABULARY_SIZE: u64 = 2_048;
/// Distance between the offsets of two texts; coprime to the length of the prose.
const STRIDE: usize = 1_013;

static PROSE: LazyLock<String> = LazyLock::new(|| generate_prose(PROSE_BYTES));
static NEXT_EXCERPT: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn next_user_message() -> String {
    next_excerpt(USER_CHARS)
}

pub(crate) fn next_model_reply() -> String {
    next_excerpt(REPLY_CHARS)
}

/// Returns words of about this many tokens in total, all different from those of the last call.
pub(crate) fn words_of_tokens(tokens: usize) -> String {
    // More than any word needs for a token.
    const CHARS_OF_LONG_TOKEN: usize = 12;
    let excerpt = next_excerpt((tokens * CHARS_OF_LONG_TOKEN).min(PROSE_BYTES / 2));
    let mut words = String::new();
    let mut counted = 0;
    // The first word may be cut.
    for word in excerpt.split_whitespace().skip(1) {
        let word = format!(" {word}");
        counted += O200kTokenCounter.count_tokens(&word) as usize;
        if counted > tokens {
            break;
        }
        words.push_str(&word);
    }
    words.trim_start().to_owned()
}

/// Generates the prose in advance, so that no measurement includes it.
pub(crate) fn prepare_prose() {
    LazyLock::force(&PROSE);
}

fn next_excerpt(chars: usize) -> String {
    let at = NEXT_EXCERPT.fetch_add(STRIDE, Ordering::Relaxed) % (PROSE.len() - chars);
    PROSE[at..at + chars].to_owned()
}

/// Generates prose from a made-up vocabulary, with full stops now and then. ASCII only, so that it can be cut anywhere.
fn generate_prose(bytes: usize) -> String {
    let mut state = 0x5eed_u64;
    let mut random_below = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut prose = String::with_capacity(bytes + 16);
    while prose.len() < bytes {
        prose.push_str(&generate_word(random_below(VOCABULARY_SIZE)));
        prose.push_str(if random_below(12) == 0 { ". " } else { " " });
    }
    prose.truncate(bytes);
    prose
}

/// Generates the word of that number, with two or three syllables.
fn generate_word(number: u64) -> String {
    const HEADS: [&str; 16] = ["k", "r", "t", "m", "s", "l", "n", "d", "v", "p", "st", "gr", "ch", "b", "f", "w"];
    const TAILS: [&str; 16] =
        ["a", "e", "i", "o", "u", "an", "er", "in", "on", "us", "al", "ent", "ing", "ar", "est", "ow"];
    let syllable = |bits: u64| {
        let head = HEADS[usize::try_from(bits & 15).unwrap_or(0)];
        let tail = TAILS[usize::try_from(bits >> 4 & 15).unwrap_or(0)];
        format!("{head}{tail}")
    };
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let last = if number & 1 == 1 { syllable(mixed >> 16) } else { String::new() };
    format!("{}{}{last}", syllable(mixed), syllable(mixed >> 8))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn texts_have_their_length_and_are_all_different() {
        let texts: BTreeSet<String> = (0..500).flat_map(|_| [next_user_message(), next_model_reply()]).collect();
        assert_eq!(texts.len(), 1_000);
        assert!(texts.iter().all(|text| [USER_CHARS, REPLY_CHARS].contains(&text.len())));
    }

    #[test]
    fn words_have_about_as_many_tokens_as_wanted() {
        for wanted in [20, 60, 200] {
            let counted = O200kTokenCounter.count_tokens(&words_of_tokens(wanted)) as usize;
            assert!(counted.abs_diff(wanted) < 10, "{counted} of {wanted}");
        }
    }

    #[test]
    fn the_vocabulary_is_large() {
        let words: BTreeSet<&str> = PROSE.split([' ', '.']).collect();
        assert!(words.len() > 1_900, "{}", words.len());
    }
}
