//! Variety without chance: numbers that follow from the request alone.

use segue_core::body::BodyId;
use segue_core::prompt::Prompt;

use crate::model::CallMetadata;

/// A row of numbers.
#[derive(Debug, Clone)]
pub(super) struct SeededRng(u64);

impl SeededRng {
    /// From what the model is sent and who it is. The session's name plays no part: the same conversation in another session
    /// goes the same way.
    pub(super) fn from_call(prompt: &Prompt, call: &CallMetadata) -> Self {
        let mut digest = BodyId::hash_text(prompt.model.as_str());
        for message in &*prompt.messages {
            digest = digest.chain_hash(BodyId::hash_bytes(&[message.chat_role as u8]));
            digest = message.parts.iter().fold(digest, |digest, part| digest.chain_hash(BodyId::hash_text(part)));
        }
        let agent = call.agent.as_ref().map_or("", |agent| agent.as_str());
        for name in [call.role.as_str(), call.ask.as_str(), agent] {
            digest = digest.chain_hash(BodyId::hash_text(name));
        }
        digest = digest.chain_hash(BodyId::hash_bytes(&call.attempt.to_le_bytes()));
        Self(digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The next number, any.
    pub(super) fn next_u64(&mut self) -> u64 {
        // SplitMix64: a counter with well-mixed bits.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// The next number below `sides`; zero if there are no sides.
    pub(super) fn next_below(&mut self, bound: usize) -> usize {
        let number = self.next_u64();
        match u64::try_from(bound) {
            Ok(sides) if sides > 0 => usize::try_from(number % sides).unwrap_or_default(),
            _ => 0,
        }
    }

    /// One of these.
    pub(super) fn choose<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        const { assert!(N > 0) };
        from[self.next_below(N)]
    }
}
