//! Numbers that look random and follow from a seed.

/// A source of numbers; the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x9E37_79B9_7F4A_7C15)
    }

    pub fn next_u64(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Dice of their own, so that one part of a run does not disturb another.
    pub fn split(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// A number from 0 to one below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.next_u64() % most }
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in so many of a hundred cases.
    pub fn chance_percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("it fits")]
    }
}
