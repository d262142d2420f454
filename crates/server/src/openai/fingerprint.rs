//! Fingerprints of conversations, by which their sessions are found again. All fingerprints that a long conversation may have
//! are computed in one pass over its messages.

use std::collections::VecDeque;

use segue_core::body::BodyId;
use segue_core::ids::FlowName;
use segue_core::limits::SESSION_LIMITS;

use super::conversation::{ClientMessageContent, MessageAuthor, PART_SEPARATOR};
use crate::caller::Caller;

/// Odd, so that no information is lost by multiplication.
const MULTIPLIER: u128 = 0x2d99_787b_8f5a_3c61_9f4a_7c15_f39c_c605;

/// The fingerprint of a conversation of one owner and flow.
///
/// It is a polynomial over the hashes of the messages, so that it can be extended at its end and computed from a suffix. It is
/// only used to find candidates: their messages are compared before a session is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConversationFingerprint {
    owner_and_flow: BodyId,
    messages: u128,
}

impl ConversationFingerprint {
    /// Returns the fingerprint of a conversation without messages.
    #[must_use]
    pub(crate) fn empty(caller: &Caller, flow: &FlowName) -> Self {
        let owner = caller.owner.as_deref().unwrap_or_default();
        Self { owner_and_flow: BodyId::hash_text(&format!("{owner}\0{flow}")), messages: 0 }
    }

    /// Extends the fingerprint by a message and its reply.
    #[must_use]
    pub(crate) fn extend(self, asked: BodyId, answered: BodyId) -> Self {
        let messages = append_hash(append_hash(self.messages, asked), answered);
        Self { messages, ..self }
    }

    /// Returns the fingerprint as an id. Fingerprints of different owners or flows never have the same id.
    #[must_use]
    pub(crate) fn to_fingerprint_hash(self) -> BodyId {
        self.owner_and_flow.chain_hash(BodyId::hash_bytes(&self.messages.to_le_bytes()))
    }
}

fn append_hash(messages: u128, hash: BodyId) -> u128 {
    messages.wrapping_mul(MULTIPLIER).wrapping_add(hash_to_u128(hash))
}

fn hash_to_u128(hash: BodyId) -> u128 {
    hash.0.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// The hashes of a conversation's messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConversationHashes {
    /// For each message, the hash of the conversation up to it as one flattened message.
    flattened: Vec<BodyId>,
    /// For each message, the polynomial of the messages from it to the one before the last.
    suffixes: Vec<u128>,
    /// The powers of the multiplier.
    powers: Vec<u128>,
}

impl ConversationHashes {
    /// Hashes each message once, and all flattened beginnings together in one pass.
    #[must_use]
    pub(crate) fn compute(
        instructions: &str,
        messages: &[(MessageAuthor, ClientMessageContent)],
        first_message: &ClientMessageContent,
    ) -> Self {
        let flattened = hash_flattened(instructions, messages, first_message);
        let prior = messages.len().saturating_sub(1);
        let mut suffixes = vec![0; messages.len() + 1];
        let mut powers = vec![1_u128; messages.len() + 1];
        for index in 1..powers.len() {
            powers[index] = powers[index - 1].wrapping_mul(MULTIPLIER);
        }
        for index in (0..prior).rev() {
            let value = hash_to_u128(messages[index].1.content_hash());
            suffixes[index] = value.wrapping_mul(powers[prior - 1 - index]).wrapping_add(suffixes[index + 1]);
        }
        Self { flattened, suffixes, powers }
    }

    /// Returns the hash of the conversation up to `index` as one flattened message.
    #[must_use]
    pub(crate) fn flattened_hash(&self, index: usize) -> BodyId {
        self.flattened[index]
    }

    /// Returns the fingerprint of the earlier messages if those up to `start` are one flattened message.
    #[must_use]
    pub(crate) fn fingerprint_from(&self, start: usize, caller: &Caller, flow: &FlowName) -> ConversationFingerprint {
        let later_count = self.flattened.len().saturating_sub(start + 2);
        let first = hash_to_u128(self.flattened[start]).wrapping_mul(self.powers[later_count]);
        let messages = first.wrapping_add(self.suffixes[start + 1]);
        ConversationFingerprint { messages, ..ConversationFingerprint::empty(caller, flow) }
    }
}

/// Computes the body id of a text that is given in parts.
#[derive(Debug, Default)]
struct IncrementalBodyIdHasher(blake3::Hasher);

impl IncrementalBodyIdHasher {
    fn update(&mut self, part: &str) {
        self.0.update(part.as_bytes());
    }

    /// Returns the id of the text so far. More parts may follow.
    fn body_id(&self) -> BodyId {
        let hash = *self.0.finalize().as_bytes();
        BodyId(*hash.first_chunk().expect("a hash is longer than an id"))
    }
}

/// Must return the content hash of `ClientConversation::flattened_up_to` for each message.
fn hash_flattened(
    instructions: &str,
    messages: &[(MessageAuthor, ClientMessageContent)],
    first_message: &ClientMessageContent,
) -> Vec<BodyId> {
    let mut hasher = IncrementalBodyIdHasher::default();
    if !instructions.is_empty() {
        hasher.update("system: ");
        hasher.update(instructions);
    }
    let mut is_first_part = instructions.is_empty();
    let mut newest_images = VecDeque::new();
    let mut hashes = Vec::with_capacity(messages.len());
    for (author, content) in messages {
        if !is_first_part {
            hasher.update(PART_SEPARATOR);
        }
        is_first_part = false;
        let label = author.label();
        // White space at the end does not count, unless more text follows.
        let flat_text = content.flat_text();
        let text = flat_text.trim_end();
        hasher.update(if text.is_empty() { label.trim_end() } else { label });
        hasher.update(text);
        let text_hash = hasher.body_id();
        hasher.update(if text.is_empty() { &label[label.trim_end().len()..] } else { "" });
        hasher.update(&flat_text[text.len()..]);
        newest_images.extend(content.image_hashes());
        let excess = newest_images.len().saturating_sub(SESSION_LIMITS.images_per_message_max);
        newest_images.drain(..excess);
        hashes.push(newest_images.iter().copied().fold(text_hash, BodyId::chain_hash));
    }
    if let Some(first) = hashes.first_mut() {
        *first = first_message.content_hash();
    }
    hashes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::conversation::ClientConversation;
    use super::*;

    #[test]
    fn fingerprints_in_one_pass_equal_those_of_each_prefix() {
        const GIF: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";
        let image = json!({"type": "image_url", "image_url": {"url": GIF}});
        let caller = Caller { owner: Some("acme".into()), ..Caller::default() };
        for system in ["", "be kind"] {
            let mut messages = vec![json!({"role": "system", "content": system})];
            for turn in 0..20 {
                let text = json!({"type": "text", "text": format!(" question {turn} \n")});
                let content = if turn % 3 == 0 { json!([text, image]) } else { json!([text]) };
                messages.push(json!({"role": "user", "content": content}));
                let answer = if turn == 7 { "  ".to_owned() } else { format!("answer {turn}\n") };
                messages.push(json!({"role": "assistant", "content": answer}));
            }
            messages.push(json!({"role": "user", "content": "go on"}));
            let conversation = ClientConversation::parse(&messages, None).expect("it parses");
            let mut count = 0;
            for prefix in conversation.possible_prefixes() {
                let empty = ConversationFingerprint::empty(&caller, &"chat".into());
                let separately = prefix.exchanges().fold(empty, |fingerprint, (asked, answered)| {
                    fingerprint.extend(asked.content_hash(), answered.content_hash())
                });
                assert_eq!(prefix.fingerprint(&caller, &"chat".into()), separately);
                assert_eq!(prefix.first_message_hash(), prefix.first_message().content_hash());
                count += 1;
            }
            assert_eq!(count, 20);
        }
    }
}
