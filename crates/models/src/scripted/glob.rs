//! Glob patterns: `*` matches any number of characters, including line breaks; `?` matches exactly one. A pattern must match
//! the whole text. A literal star cannot be written; use `contains` for that.

use std::fmt;

use crate::limits::GLOB_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScenarioGlobPattern(String);

impl ScenarioGlobPattern {
    pub(super) fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// Checks the length of a pattern from a file.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.len() > GLOB_BYTES_MAX {
            return Err(format!("the pattern is too long: {} bytes (limit {GLOB_BYTES_MAX})", pattern.len()));
        }
        Ok(Self::new(pattern))
    }

    /// Returns whether the whole of `text` matches. Takes at most pattern length times text length steps.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut text) = (self.0.as_str(), text);
        // Where to retry if the text after the newest star does not match: after the star, one character later.
        let mut retry: Option<(&str, &str)> = None;
        loop {
            let expected = pattern.chars().next();
            let found = text.chars().next();
            match (expected, found) {
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

impl fmt::Display for ScenarioGlobPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        ScenarioGlobPattern::new(pattern).matches(text)
    }

    #[test]
    fn stars_and_question_marks_work_as_in_file_names() {
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
            assert!(matches(pattern, text), "{pattern} should match {text}");
        }
        for (pattern, text) in [("", "a"), ("?", ""), ("a*a", "a"), ("plan", "plans"), ("*b", "abc"), ("A", "a")] {
            assert!(!matches(pattern, text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_time() {
        assert!(!matches(&format!("{}b", "*a".repeat(30)), &"a".repeat(20_000)));
        assert!(ScenarioGlobPattern::parse(&"*".repeat(GLOB_BYTES_MAX + 1)).is_err());
    }

    /// A naive implementation, to compare with.
    fn matches_naively(pattern: &[char], text: &[char]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some('*'), _) => (0..=text.len()).any(|skipped| matches_naively(&pattern[1..], &text[skipped..])),
            (Some('?'), Some(_)) => matches_naively(&pattern[1..], &text[1..]),
            (Some(letter), Some(other)) => letter == other && matches_naively(&pattern[1..], &text[1..]),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_naive_implementation(pattern in "[ab*?ż]{0,7}", text in "[abż]{0,9}") {
            let (pattern_chars, text_chars): (Vec<_>, Vec<_>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), matches_naively(&pattern_chars, &text_chars));
        }
    }
}
