//! What the arrow keys bring back: where it is kept, and what is better not kept.

use std::path::PathBuf;

use crate::limits::{HISTORY_MESSAGE_BYTES_MAX, SECRET_WORD_CHARS_MIN};

/// The file that lines are kept in: in the user's folder for data, if there is one.
#[must_use]
pub fn history_path() -> Option<PathBuf> {
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

/// Whether a line may be kept: it is not too long, does not begin with a space, and does not look as if a secret were in it.
#[must_use]
pub fn is_safe_to_store(text: &str) -> bool {
    let hidden = text.starts_with(' ');
    !hidden && !text.trim().is_empty() && text.len() <= HISTORY_MESSAGE_BYTES_MAX && !contains_secret(text)
}

/// How keys of well-known services begin.
const API_KEY_PREFIXES: &[&str] =
    &["sk-", "sk_", "pk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza"];
/// What secrets are called.
const SECRET_WORDS: &[&str] = &["password", "passwd", "passphrase", "secret", "token", "api key", "api_key", "apikey"];
/// A key of a well-known service is at least so long.
const SHORTEST_API_KEY_CHARS: usize = 12;

fn contains_secret(text: &str) -> bool {
    if text.contains("-----BEGIN") {
        return true;
    }
    let lower = text.to_lowercase();
    let named = SECRET_WORDS.iter().any(|name| {
        lower.match_indices(name).any(|(at, _)| {
            let after = lower[at + name.len()..].trim_start_matches([' ', '"', '\'']);
            after.starts_with([':', '='])
        })
    });
    named || text.split(|c: char| c.is_whitespace() || "\"'`=:,;()<>[]{}".contains(c)).any(looks_like_api_key)
}

fn looks_like_api_key(word: &str) -> bool {
    let long = word.chars().count();
    if long >= SHORTEST_API_KEY_CHARS && API_KEY_PREFIXES.iter().any(|beginning| word.starts_with(beginning)) {
        return true;
    }
    let letters = word.chars().any(|c| c.is_ascii_alphabetic());
    let digits = word.chars().any(|c| c.is_ascii_digit());
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c));
    long >= SECRET_WORD_CHARS_MIN && letters && digits && plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_kept() {
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
    fn ordinary_lines_are_kept() {
        for line in [
            "how do I reset my password?",
            "/title tokens and secrets",
            "look at crates/core2/src/session/apply_everything.rs",
            "a\nb",
            "sk-8 is short",
        ] {
            assert!(is_safe_to_store(line), "{line}");
        }
        assert!(!is_safe_to_store(&"x ".repeat(HISTORY_MESSAGE_BYTES_MAX)));
    }
}
