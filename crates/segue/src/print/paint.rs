//! Colours as plain ANSI, or nothing at all.

use std::fmt::Display;

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    enabled: bool,
}

impl Paint {
    /// Colours if `on`.
    pub fn new(on: bool) -> Self {
        Self { enabled: on }
    }

    /// What stands out.
    pub fn bold(self, text: impl Display) -> String {
        self.wrap_in_code("1", text)
    }

    /// What may be overlooked.
    pub fn dim(self, text: impl Display) -> String {
        self.wrap_in_code("2", text)
    }

    /// What is wrong.
    pub fn error(self, text: impl Display) -> String {
        self.wrap_in_code("31", text)
    }

    /// What is right.
    pub fn success(self, text: impl Display) -> String {
        self.wrap_in_code("32", text)
    }

    /// What wants attention.
    pub fn warning(self, text: impl Display) -> String {
        self.wrap_in_code("33", text)
    }

    /// What has a name.
    pub fn highlight(self, text: impl Display) -> String {
        self.wrap_in_code("36", text)
    }

    fn wrap_in_code(self, code: &str, text: impl Display) -> String {
        if self.enabled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_there_is_no_escape() {
        assert_eq!(Paint::new(false).error("no"), "no");
        assert_eq!(Paint::new(true).error("no"), "\x1b[31mno\x1b[0m");
    }
}
