//! Pseudo-random numbers seeded by the request, so that the same request gets the same reply.

use segue_core::body::BodyId;
use segue_core::prompt::Prompt;

use crate::model::ModelCallOrigin;

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub(super) struct SeededRng(u64);

impl SeededRng {
    /// Seeds from the prompt and the role, ask, agent and attempt. The session is not included, so the same conversation in
    /// another session gets the same replies.
    pub(super) fn from_call(prompt: &Prompt, call: &ModelCallOrigin) -> Self {
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

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Returns the next number below `bound`; zero if `bound` is zero.
    pub(super) fn next_below(&mut self, bound: usize) -> usize {
        let number = self.next_u64();
        match u64::try_from(bound) {
            Ok(bound) if bound > 0 => usize::try_from(number % bound).unwrap_or_default(),
            _ => 0,
        }
    }

    /// Returns one of the items.
    pub(super) fn choose<T: Copy, const N: usize>(&mut self, items: [T; N]) -> T {
        const { assert!(N > 0) };
        items[self.next_below(N)]
    }
}
