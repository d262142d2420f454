//! Random numbers for what may be random: the spreading of retries and the names of new sessions.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of numbers; the same seed gives the same numbers.
#[derive(Debug)]
pub struct RandomSource(AtomicU64);

impl RandomSource {
    /// A source that starts here.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A source that starts nobody knows where.
    #[must_use]
    pub fn from_entropy() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::from_seed(RandomState::new().hash_one(std::process::id()))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        // SplitMix64.
        let mut mixed = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A short name made of consonants and vowels in turn, so that people can say it.
    pub fn pronounceable_name(&self) -> String {
        const CONSONANTS: &[u8] = b"bdfghjklmnprstvz";
        const VOWELS: &[u8] = b"aeiou";
        let mut bits = self.next_u64();
        let mut name = String::new();
        for place in 0..8 {
            let letters = if place % 2 == 0 { CONSONANTS } else { VOWELS };
            let count = letters.len() as u64;
            name.push(char::from(letters[usize::try_from(bits % count).unwrap_or(0)]));
            bits /= count;
        }
        name
    }
}
