//! Colours: on a terminal whose user did not say otherwise, nowhere else.

/// How texts are set off from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// With colours.
    Coloured,
    /// Without.
    Plain,
}

impl Style {
    /// What the user's environment allows on a terminal: `NO_COLOR` switches colours off, whatever it says.
    #[must_use]
    pub fn of_terminal() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let unable = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if unwanted || unable { Self::Plain } else { Self::Coloured }
    }

    /// Beside the conversation.
    #[must_use]
    pub fn quiet(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// What names something.
    #[must_use]
    pub fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What should not be overlooked.
    #[must_use]
    pub fn warning(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// What went wrong.
    #[must_use]
    pub fn wrong(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Where the user writes.
    #[must_use]
    pub fn prompt(self, text: &str) -> String {
        self.paint("1;36", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Coloured | Self::Plain => text.to_owned(),
        }
    }
}
