//! A text that must not be seen: it goes into a header and nowhere else.

use std::fmt;
use std::sync::Arc;

use crate::limits::SECRET_BYTES_MIN;

/// What stands in a secret's place.
const STAND_IN: &str = "[key]";

/// A key. It cannot be printed, compared or written down.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps `text` secret, without the blanks around it that shells and files leave there.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// The text itself, for the header it belongs in.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` without the secret: vendors like to quote the key they refuse.
    #[must_use]
    pub fn strip(&self, text: &str) -> String {
        // A key of three letters would turn every other word into a stand-in, and protects nothing.
        if self.0.len() < SECRET_BYTES_MIN || !text.contains(&*self.0) {
            return text.to_owned();
        }
        text.replace(&*self.0, STAND_IN)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STAND_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed_and_is_taken_out_of_texts() {
        let key = Secret::new(" sk-12345678\n");
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.reveal(), "sk-12345678");
        assert_eq!(key.strip("no such key: sk-12345678."), "no such key: [key].");
    }

    #[test]
    fn a_key_too_short_to_be_one_leaves_texts_alone() {
        assert_eq!(Secret::new("a").strip("a banana"), "a banana");
        assert!(Secret::new(" ").is_empty());
    }
}
