//! The input history: its location, and which lines must not be saved.

use std::path::PathBuf;

use crate::limits::{HISTORY_MESSAGE_BYTES_MAX, SECRET_WORD_CHARS_MIN};

/// Returns the path of the history file, or `None` without a data folder.
#[must_use]
pub(crate) fn history_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || folder("HOME");
    let data = folder("XDG_DATA_HOME").or_else(|| {
        if cfg!(windows) {
            folder("APPDATA")
        } else if cfg!(target_os = "macos") {
            home().map(|home| home.join("Library").join("Application Support"))
        } else {
            home().map(|home| home.join(".local").join("share"))
        }
    });
    Some(data?.join("segue").join("history"))
}

/// Whether a line may be saved: it is not too long, does not begin with a space, and contains nothing like a secret.
#[must_use]
pub(crate) fn is_safe_to_store(text: &str) -> bool {
    let is_hidden = text.starts_with(' ');
    !is_hidden && !text.trim().is_empty() && text.len() <= HISTORY_MESSAGE_BYTES_MAX && !contains_secret(text)
}

/// Prefixes of API keys of well-known services.
const API_KEY_PREFIXES: &[&str] =
    &["sk-", "sk_", "pk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza"];
/// Words that announce a secret.
const SECRET_WORDS: &[&str] = &["password", "passwd", "passphrase", "secret", "token", "api key", "api_key", "apikey"];
/// The shortest API key of these services.
const SHORTEST_API_KEY_CHARS: usize = 12;

fn contains_secret(text: &str) -> bool {
    if text.contains("-----BEGIN") {
        return true;
    }
    let lower = text.to_lowercase();
    let has_assignment = SECRET_WORDS.iter().any(|word| {
        lower.match_indices(word).any(|(offset, _)| {
            let after = lower[offset + word.len()..].trim_start_matches([' ', '"', '\'']);
            after.starts_with([':', '='])
        })
    });
    has_assignment || text.split(|c: char| c.is_whitespace() || "\"'`=:,;()<>[]{}".contains(c)).any(looks_like_api_key)
}

fn looks_like_api_key(word: &str) -> bool {
    let chars = word.chars().count();
    if chars >= SHORTEST_API_KEY_CHARS && API_KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
        return true;
    }
    let has_letters = word.chars().any(|c| c.is_ascii_alphabetic());
    let has_digits = word.chars().any(|c| c.is_ascii_digit());
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c));
    chars >= SECRET_WORD_CHARS_MIN && has_letters && has_digits && is_plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_saved() {
        for secret in [
            "use sk-abc123def456ghi",
            "my password: hunter2",
            "API_KEY=abc",
            "the \"token\" = x",
            "-----BEGIN PRIVATE KEY-----",
            "key a1B2c3D4e5F6g7H8i9J0k1L2m3",
            " nobody should see this",
        ] {
            assert!(!is_safe_to_store(secret), "{secret}");
        }
    }

    #[test]
    fn ordinary_lines_are_saved() {
        for line in [
            "how do I reset my password?",
            "/rename tokens and secrets",
            "look at crates/core2/src/session/apply_everything.rs",
            "a\nb",
            "sk-8 is short",
        ] {
            assert!(is_safe_to_store(line), "{line}");
        }
        assert!(!is_safe_to_store(&"x ".repeat(HISTORY_MESSAGE_BYTES_MAX)));
    }
}
