//! A text that must not be displayed: it is only sent in a header.

use std::fmt;
use std::sync::Arc;

use crate::limits::SECRET_BYTES_MIN;

/// Replaces a secret in texts.
const REDACTED: &str = "[key]";

/// An API key or password. It cannot be displayed, compared or serialized.
#[derive(Clone)]
pub struct SecretString {
    text: Arc<str>,
    /// Other forms of the secret that must be redacted too, longest first.
    aliases: Arc<[String]>,
}

impl SecretString {
    /// Wraps a secret, without surrounding whitespace.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.trim().into(), aliases: Arc::default() }
    }

    /// Adds other forms of the secret, which are redacted too.
    pub(crate) fn with_aliases(self, aliases: impl IntoIterator<Item = String>) -> Self {
        let mut forms: Vec<String> = aliases.into_iter().collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self { aliases: forms.into(), ..self }
    }

    /// Returns the secret, for its header.
    pub(crate) fn expose_secret(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Removes the secret from a text, because vendors may quote the key they refuse.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        // A very short key would match ordinary words.
        let forms = std::iter::once(&*self.text).chain(self.aliases.iter().map(String::as_str));
        let forms = forms.filter(|form| form.len() >= SECRET_BYTES_MIN);
        forms.fold(text.to_owned(), |text, form| if text.contains(form) { text.replace(form, REDACTED) } else { text })
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_displayed_and_is_removed_from_texts() {
        let key = SecretString::new(" sk-12345678\n");
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.expose_secret(), "sk-12345678");
        assert_eq!(key.redact("no such key: sk-12345678."), "no such key: [key].");
    }

    #[test]
    fn every_form_of_a_secret_is_removed() {
        let login =
            SecretString::new("bWU6aHVudGVyMg==").with_aliases(["hunter22".to_owned(), "me:hunter22".to_owned()]);
        assert_eq!(login.expose_secret(), "bWU6aHVudGVyMg==");
        assert_eq!(login.redact("bWU6aHVudGVyMg== me:hunter22 or hunter22"), "[key] [key] or [key]");
    }

    #[test]
    fn a_very_short_key_is_not_redacted() {
        assert_eq!(SecretString::new("a").redact("a banana"), "a banana");
        assert!(SecretString::new(" ").is_empty());
    }
}
