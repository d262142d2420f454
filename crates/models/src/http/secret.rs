//! A text that must not be seen: it goes into a header and nowhere else.

use std::fmt;
use std::sync::Arc;

use crate::limits::SECRET_BYTES_MIN;

/// What stands in a secret's place.
const REDACTED: &str = "[key]";

/// A key. It cannot be printed, compared or written down.
#[derive(Clone)]
pub struct SecretString {
    text: Arc<str>,
    /// Other forms of it that would give it away, the longest first.
    aliases: Arc<[String]>,
}

impl SecretString {
    /// Keeps `text` secret, without the blanks around it that shells and files leave there.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.trim().into(), aliases: Arc::default() }
    }

    /// The same, with other forms of it that are as secret.
    pub(crate) fn with_aliases(self, aliases: impl IntoIterator<Item = String>) -> Self {
        let mut forms: Vec<String> = aliases.into_iter().collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self { aliases: forms.into(), ..self }
    }

    /// The text itself, for the header it belongs in.
    pub(crate) fn expose_secret(&self) -> &str {
        &self.text
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// `text` without the secret: vendors like to quote the key they refuse.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        // A key of three letters would turn every other word into a stand-in, and protects nothing.
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
    fn a_secret_is_not_printed_and_is_taken_out_of_texts() {
        let key = SecretString::new(" sk-12345678\n");
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.expose_secret(), "sk-12345678");
        assert_eq!(key.redact("no such key: sk-12345678."), "no such key: [key].");
    }

    #[test]
    fn every_form_of_a_secret_is_taken_out() {
        let login =
            SecretString::new("bWU6aHVudGVyMg==").with_aliases(["hunter22".to_owned(), "me:hunter22".to_owned()]);
        assert_eq!(login.expose_secret(), "bWU6aHVudGVyMg==");
        assert_eq!(login.redact("bWU6aHVudGVyMg== me:hunter22 or hunter22"), "[key] [key] or [key]");
    }

    #[test]
    fn a_key_too_short_to_be_one_leaves_texts_alone() {
        assert_eq!(SecretString::new("a").redact("a banana"), "a banana");
        assert!(SecretString::new(" ").is_empty());
    }
}
