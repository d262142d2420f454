//! The terminal's modes: quiet while a turn runs, and as they were found when the program leaves, whatever happened between.

#[cfg(unix)]
pub use unix::{TerminalMode, terminal_size};

#[cfg(not(unix))]
pub use non_unix::{TerminalMode, terminal_size};

const DEFAULT_TERMINAL_SIZE: super::screen::TerminalSize = super::screen::TerminalSize { columns: 80, rows: 24 };

#[cfg(unix)]
mod unix {
    use std::io::Write;

    use rustix::stdio::{stdin, stdout};
    use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
    use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr};

    use super::super::screen::{OutputMode, TerminalSize};
    use super::DEFAULT_TERMINAL_SIZE;

    const BRACKETED_PASTE_OFF: &[u8] = b"\x1b[?2004l";

    /// The modes as they were found; nothing if there is no terminal.
    #[derive(Debug)]
    pub struct TerminalMode {
        original: Option<Termios>,
    }

    impl TerminalMode {
        /// Remembers the modes as they are, if a person looks.
        #[must_use]
        pub fn capture(seen: OutputMode) -> Self {
            match seen {
                OutputMode::Interactive => Self { original: tcgetattr(stdin()).ok() },
                OutputMode::Piped => Self { original: None },
            }
        }

        /// What is typed from now on is not shown and not touched: it waits for the next prompt. Ctrl-C still interrupts.
        pub fn disable_echo(&self) {
            let Some(mut modes) = self.original.clone() else { return };
            modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            modes.input_modes.remove(InputModes::ICRNL);
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            // A terminal that cannot be hushed shows more than it should, and works.
            let _ = tcsetattr(stdin(), OptionalActions::Drain, &modes);
        }

        /// The modes as they were found.
        pub fn restore(&self) {
            if let Some(found) = &self.original {
                let _ = tcsetattr(stdin(), OptionalActions::Drain, found);
            }
        }
    }

    impl Drop for TerminalMode {
        fn drop(&mut self) {
            if self.original.is_some() {
                self.restore();
                let mut out = std::io::stdout();
                let _ = out.write_all(BRACKETED_PASTE_OFF);
                let _ = out.flush();
            }
        }
    }

    /// The size of the terminal.
    #[must_use]
    pub fn terminal_size() -> TerminalSize {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                TerminalSize { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
            }
            Ok(_) | Err(_) => DEFAULT_TERMINAL_SIZE,
        }
    }
}

#[cfg(not(unix))]
mod non_unix {
    use super::super::screen::{OutputMode, TerminalSize};
    use super::DEFAULT_TERMINAL_SIZE;

    /// Nothing is changed, so nothing needs restoring.
    #[derive(Debug)]
    pub struct TerminalMode;

    impl TerminalMode {
        /// Captures nothing on this platform.
        #[must_use]
        pub fn capture(_: OutputMode) -> Self {
            Self
        }

        /// Does nothing on this platform.
        pub fn disable_echo(&self) {}

        /// Does nothing on this platform.
        pub fn restore(&self) {}
    }

    /// The size that most terminals have.
    #[must_use]
    pub fn terminal_size() -> TerminalSize {
        DEFAULT_TERMINAL_SIZE
    }
}
