//! The terminal's modes: quiet while a turn runs, and as they were found when the program leaves, whatever happened between.

#[cfg(unix)]
pub use unix::{Modes, size};

#[cfg(not(unix))]
pub use elsewhere::{Modes, size};

const SIZE_UNKNOWN: super::screen::Size = super::screen::Size { columns: 80, rows: 24 };

#[cfg(unix)]
mod unix {
    use std::io::Write;

    use rustix::stdio::{stdin, stdout};
    use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
    use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr};

    use super::super::screen::{Seen, Size};
    use super::SIZE_UNKNOWN;

    const BRACKETED_PASTE_OFF: &[u8] = b"\x1b[?2004l";

    /// The modes as they were found; nothing if there is no terminal.
    #[derive(Debug)]
    pub struct Modes {
        found: Option<Termios>,
    }

    impl Modes {
        /// Remembers the modes as they are, if a person looks.
        #[must_use]
        pub fn remember(seen: Seen) -> Self {
            match seen {
                Seen::Live => Self { found: tcgetattr(stdin()).ok() },
                Seen::Piped => Self { found: None },
            }
        }

        /// What is typed from now on is not shown and not touched: it waits for the next prompt. Ctrl-C still interrupts.
        pub fn hush(&self) {
            let Some(mut modes) = self.found.clone() else { return };
            modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            modes.input_modes.remove(InputModes::ICRNL);
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            // A terminal that cannot be hushed shows more than it should, and works.
            let _ = tcsetattr(stdin(), OptionalActions::Drain, &modes);
        }

        /// The modes as they were found.
        pub fn restore(&self) {
            if let Some(found) = &self.found {
                let _ = tcsetattr(stdin(), OptionalActions::Drain, found);
            }
        }
    }

    impl Drop for Modes {
        fn drop(&mut self) {
            if self.found.is_some() {
                self.restore();
                let mut out = std::io::stdout();
                let _ = out.write_all(BRACKETED_PASTE_OFF);
                let _ = out.flush();
            }
        }
    }

    /// The size of the terminal.
    #[must_use]
    pub fn size() -> Size {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
            }
            Ok(_) | Err(_) => SIZE_UNKNOWN,
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use super::super::screen::{Seen, Size};
    use super::SIZE_UNKNOWN;

    /// Nothing is changed, so nothing needs restoring.
    #[derive(Debug)]
    pub struct Modes;

    impl Modes {
        /// Nothing to remember.
        #[must_use]
        pub fn remember(_: Seen) -> Self {
            Self
        }

        /// Nothing to hush.
        pub fn hush(&self) {}

        /// Nothing to restore.
        pub fn restore(&self) {}
    }

    /// A usual size.
    #[must_use]
    pub fn size() -> Size {
        SIZE_UNKNOWN
    }
}
