//! Variety without chance: numbers that follow from the request alone.

use segue_core::body::BodyId;
use segue_core::prompt::Prompt;

use crate::model::CallFacts;

/// A row of numbers.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    /// From what the model is sent and who it is. The session's name plays no part: the same conversation in another session
    /// goes the same way.
    pub(super) fn of(prompt: &Prompt, call: &CallFacts) -> Self {
        let mut digest = BodyId::of(prompt.model.as_str());
        for message in &*prompt.messages {
            digest = digest.chain(BodyId::of_bytes(&[message.speaker as u8]));
            digest = message.parts.iter().fold(digest, |digest, part| digest.chain(BodyId::of(part)));
        }
        let agent = call.agent.as_ref().map_or("", |agent| agent.as_str());
        for name in [call.role.as_str(), call.ask.as_str(), agent] {
            digest = digest.chain(BodyId::of(name));
        }
        digest = digest.chain(BodyId::of_bytes(&call.attempt.to_le_bytes()));
        Self(digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The next number, any.
    pub(super) fn number(&mut self) -> u64 {
        // SplitMix64: a counter with well-mixed bits.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// The next number below `sides`; zero if there are no sides.
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        let number = self.number();
        match u64::try_from(sides) {
            Ok(sides) if sides > 0 => usize::try_from(number % sides).unwrap_or_default(),
            _ => 0,
        }
    }

    /// One of these.
    pub(super) fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        const { assert!(N > 0) };
        from[self.roll(N)]
    }
}
