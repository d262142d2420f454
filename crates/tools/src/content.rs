//! The content of a file: its digest, and whether it is text.

use crate::limits::BINARY_PROBE_BYTES;

/// The bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileContent(pub Vec<u8>);

impl FileContent {
    /// Returns the content as text, or `None` for a binary file.
    pub(crate) fn as_text(&self) -> Option<&str> {
        text_of_bytes(&self.0)
    }

    pub(crate) fn digest(&self) -> String {
        digest_of_bytes(&self.0)
    }
}

/// Returns the bytes as text, or `None` if they contain a zero byte near the start or are not UTF-8.
pub(crate) fn text_of_bytes(bytes: &[u8]) -> Option<&str> {
    let probe = &bytes[..bytes.len().min(BINARY_PROBE_BYTES)];
    if probe.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// Returns the digest by which contents are compared and stored.
pub(crate) fn digest_of_bytes(bytes: &[u8]) -> String {
    short_hex(&blake3::hash(bytes))
}

/// Returns the first half of a hash, which is long enough that no two contents have the same by accident.
pub(crate) fn short_hex(hash: &blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}
