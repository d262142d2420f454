//! Stored texts. An event refers to a text by the hash of its bytes and never contains the bytes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::prompt::ImageMediaType;

const BODY_ID_BYTES: usize = 24;

/// The first 24 bytes of a text's BLAKE3 hash, written as 32 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyId(pub [u8; BODY_ID_BYTES]);

impl BodyId {
    /// Returns the id of `text`.
    #[must_use]
    pub fn hash_text(text: &str) -> Self {
        Self::hash_bytes(text.as_bytes())
    }

    /// Returns the id of `bytes`; also used to hash other digests.
    #[must_use]
    pub fn hash_bytes(bytes: &[u8]) -> Self {
        let mut id = [0; BODY_ID_BYTES];
        id.copy_from_slice(&blake3::hash(bytes).as_bytes()[..BODY_ID_BYTES]);
        Self(id)
    }

    /// Returns the digest of `self` followed by `next`. This fingerprints a growing list of bodies in constant time.
    #[must_use]
    pub fn chain_hash(self, next: Self) -> Self {
        let mut both = [0; BODY_ID_BYTES * 2];
        both[..BODY_ID_BYTES].copy_from_slice(&self.0);
        both[BODY_ID_BYTES..].copy_from_slice(&next.0);
        Self::hash_bytes(&both)
    }
}

const BASE64URL_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for BodyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = [0u8; BODY_ID_BYTES / 3 * 4];
        for (three, four) in self.0.chunks_exact(3).zip(out.chunks_exact_mut(4)) {
            let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
            for (index, slot) in four.iter_mut().enumerate() {
                *slot = BASE64URL_ALPHABET[(bits >> (18 - 6 * index) & 63) as usize];
            }
        }
        f.pad(std::str::from_utf8(&out).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for BodyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BodyId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || format!("`{text}` is not a body id; expected 32 characters of base64url");
        if text.len() != BODY_ID_BYTES / 3 * 4 {
            return Err(bad());
        }
        let mut id = [0u8; BODY_ID_BYTES];
        for (four, three) in text.as_bytes().chunks_exact(4).zip(id.chunks_exact_mut(3)) {
            let mut bits = 0u32;
            for byte in four {
                let value = BASE64URL_ALPHABET.iter().position(|letter| letter == byte).ok_or_else(bad)?;
                bits = bits << 6 | u32::try_from(value).map_err(|_| bad())?;
            }
            three.copy_from_slice(&bits.to_be_bytes()[1..]);
        }
        Ok(Self(id))
    }
}

impl Serialize for BodyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BodyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A reference from an event to a stored text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRef {
    pub body: BodyId,
    /// The number of tokens, as counted by Segue.
    pub tokens: u32,
}

/// A reference from an event to a stored image. The body holds the image in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    pub body: BodyId,
    pub media_type: ImageMediaType,
}

/// A text that will be stored together with the events that refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextToStore {
    pub id: BodyId,
    pub text: Arc<str>,
    pub kind: BodyVisibility,
}

/// Says whether a text is part of the visible conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyVisibility {
    /// Text that the user wrote or was shown; included in search.
    Conversation,
    /// Internal text, such as prompts, private replies and tool results; not searched.
    Internal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_id_round_trips_through_text() {
        for text in ["", "a", "Hello, world", "żółć"] {
            let id = BodyId::hash_text(text);
            let written = id.to_string();
            assert_eq!(written.len(), 32);
            assert_eq!(written.parse::<BodyId>(), Ok(id));
        }
        assert!("short".parse::<BodyId>().is_err());
        assert!("****************************####".parse::<BodyId>().is_err());
    }

    #[test]
    fn chaining_depends_on_order() {
        let (a, b) = (BodyId::hash_text("a"), BodyId::hash_text("b"));
        assert_ne!(a.chain_hash(b), b.chain_hash(a));
    }
}
