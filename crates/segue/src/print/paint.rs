//! Colours as plain ANSI, or nothing at all.

use std::fmt::Display;

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Colours if `on`.
    pub fn new(on: bool) -> Self {
        Self { on }
    }

    /// What stands out.
    pub fn bold(self, text: impl Display) -> String {
        self.with("1", text)
    }

    /// What may be overlooked.
    pub fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }

    /// What is wrong.
    pub fn bad(self, text: impl Display) -> String {
        self.with("31", text)
    }

    /// What is right.
    pub fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    /// What wants attention.
    pub fn warn(self, text: impl Display) -> String {
        self.with("33", text)
    }

    /// What has a name.
    pub fn name(self, text: impl Display) -> String {
        self.with("36", text)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_there_is_no_escape() {
        assert_eq!(Paint::new(false).bad("no"), "no");
        assert_eq!(Paint::new(true).bad("no"), "\x1b[31mno\x1b[0m");
    }
}
