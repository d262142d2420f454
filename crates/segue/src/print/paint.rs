//! ANSI colours for text on terminals.

use std::fmt::Display;

/// Colours text, if it is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    enabled: bool,
}

impl Paint {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.wrap_in_code("1", text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.wrap_in_code("2", text)
    }

    pub(crate) fn error(self, text: impl Display) -> String {
        self.wrap_in_code("31", text)
    }

    pub(crate) fn success(self, text: impl Display) -> String {
        self.wrap_in_code("32", text)
    }

    pub(crate) fn warning(self, text: impl Display) -> String {
        self.wrap_in_code("33", text)
    }

    /// Colours names and prompts.
    pub(crate) fn highlight(self, text: impl Display) -> String {
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
    fn disabled_paint_adds_no_escape_codes() {
        assert_eq!(Paint::new(false).error("no"), "no");
        assert_eq!(Paint::new(true).error("no"), "\x1b[31mno\x1b[0m");
    }
}
