//! Patterns as file names know them: `*` is any run of characters, line breaks included; `?` is exactly one. A pattern
//! fits a whole text. There is no way to write a literal star; `contains` is there for that.

use std::fmt;

use crate::limits::GLOB_BYTES_MAX;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(String);

impl Glob {
    pub(super) fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Reads a pattern somebody else wrote.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.len() > GLOB_BYTES_MAX {
            return Err(format!("a pattern of {} bytes is too long; at most {GLOB_BYTES_MAX}", pattern.len()));
        }
        Ok(Self::new(pattern))
    }

    /// Whether the whole of `text` fits. Takes at most pattern times text steps.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut text) = (self.0.as_str(), text);
        // Where to go on if what follows the newest star does not fit: behind the star, one character further.
        let mut retry: Option<(&str, &str)> = None;
        loop {
            let wanted = pattern.chars().next();
            let found = text.chars().next();
            match (wanted, found) {
                (None, None) => return true,
                (Some('*'), _) => {
                    pattern = &pattern[1..];
                    retry = Some((pattern, text));
                }
                (Some(letter), Some(other)) if letter == '?' || letter == other => {
                    pattern = &pattern[letter.len_utf8()..];
                    text = &text[other.len_utf8()..];
                }
                (_, None) => return false,
                (_, Some(_)) => {
                    let Some((after_star, from)) = retry else { return false };
                    let Some(skipped) = from.chars().next() else { return false };
                    text = &from[skipped.len_utf8()..];
                    pattern = after_star;
                    retry = Some((after_star, text));
                }
            }
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).matches(text)
    }

    #[test]
    fn stars_and_question_marks_do_what_they_do_in_file_names() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "any\nthing"),
            ("plan*", "planning"),
            ("*plan*", "make a plan now"),
            ("c?der-*", "coder-1"),
            ("?", "ż"),
            ("*a*b*", "xxaxxbxx"),
            ("**", "x"),
            ("*ab", "aab"),
            ("a*a", "aa"),
        ] {
            assert!(fits(pattern, text), "{pattern} should fit {text}");
        }
        for (pattern, text) in [("", "a"), ("?", ""), ("a*a", "a"), ("plan", "plans"), ("*b", "abc"), ("A", "a")] {
            assert!(!fits(pattern, text), "{pattern} should not fit {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_slow_at_worst_by_its_length() {
        assert!(!fits(&format!("{}b", "*a".repeat(30)), &"a".repeat(20_000)));
        assert!(Glob::parse(&"*".repeat(GLOB_BYTES_MAX + 1)).is_err());
    }

    /// The definition, written as plainly as it can be.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some('*'), _) => (0..=text.len()).any(|skipped| by_definition(&pattern[1..], &text[skipped..])),
            (Some('?'), Some(_)) => by_definition(&pattern[1..], &text[1..]),
            (Some(letter), Some(other)) => letter == other && by_definition(&pattern[1..], &text[1..]),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn fitting_agrees_with_its_definition(pattern in "[ab*?ż]{0,7}", text in "[abż]{0,9}") {
            let (wanted, found): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(fits(&pattern, &text), by_definition(&wanted, &found));
        }
    }
}
