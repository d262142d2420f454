//! Random numbers for retry jitter and for the names of new sessions. Not cryptographic.

use std::sync::atomic::{AtomicU64, Ordering};

/// A random number generator; the same seed gives the same numbers.
#[derive(Debug)]
pub struct RandomSource(AtomicU64);

impl RandomSource {
    /// Creates a generator with a fixed seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Creates a generator with a random seed.
    #[must_use]
    pub fn from_entropy() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::from_seed(RandomState::new().hash_one(std::process::id()))
    }

    /// Returns the next number.
    pub fn next_u64(&self) -> u64 {
        // The SplitMix64 generator.
        let mut mixed = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a short name of alternating consonants and vowels, so that people can pronounce it.
    pub fn pronounceable_name(&self) -> String {
        const CONSONANTS: &[u8] = b"bdfghjklmnprstvz";
        const VOWELS: &[u8] = b"aeiou";
        let mut bits = self.next_u64();
        let mut name = String::new();
        for index in 0..8 {
            let letters = if index % 2 == 0 { CONSONANTS } else { VOWELS };
            let count = letters.len() as u64;
            name.push(char::from(letters[usize::try_from(bits % count).unwrap_or(0)]));
            bits /= count;
        }
        name
    }
}
