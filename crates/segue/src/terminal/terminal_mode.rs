//! The mode of the terminal: no echo while a turn runs, and the original mode when the program ends.

#[cfg(unix)]
pub(crate) use unix::{TerminalModeGuard, terminal_size};

#[cfg(not(unix))]
pub(crate) use non_unix::{TerminalModeGuard, terminal_size};

const DEFAULT_TERMINAL_SIZE: super::screen::TerminalSize = super::screen::TerminalSize { columns: 80, rows: 24 };

#[cfg(unix)]
mod unix {
    use std::io::Write;

    use rustix::stdio::{stdin, stdout};
    use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
    use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr};

    use super::super::screen::{TerminalOrPipedOutput, TerminalSize};
    use super::DEFAULT_TERMINAL_SIZE;

    const BRACKETED_PASTE_OFF: &[u8] = b"\x1b[?2004l";

    /// The original mode, which is restored when this is dropped.
    #[derive(Debug)]
    pub(crate) struct TerminalModeGuard {
        /// `None` without a terminal.
        original: Option<Termios>,
    }

    impl TerminalModeGuard {
        /// Saves the current mode, in interactive mode only.
        #[must_use]
        pub(crate) fn capture(mode: TerminalOrPipedOutput) -> Self {
            match mode {
                TerminalOrPipedOutput::Interactive => Self { original: tcgetattr(stdin()).ok() },
                TerminalOrPipedOutput::Piped => Self { original: None },
            }
        }

        /// Turns off echo and line editing. Typed input stays in the buffer for the next prompt; Ctrl-C still works.
        pub(crate) fn disable_echo(&self) {
            let Some(mut modes) = self.original.clone() else { return };
            modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            modes.input_modes.remove(InputModes::ICRNL);
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            // The error may be dropped: with echo the terminal only shows more than it should.
            let _ = tcsetattr(stdin(), OptionalActions::Drain, &modes);
        }

        /// Restores the original mode.
        pub(crate) fn restore(&self) {
            if let Some(original) = &self.original {
                let _ = tcsetattr(stdin(), OptionalActions::Drain, original);
            }
        }
    }

    impl Drop for TerminalModeGuard {
        fn drop(&mut self) {
            if self.original.is_some() {
                self.restore();
                let mut out = std::io::stdout();
                let _ = out.write_all(BRACKETED_PASTE_OFF);
                let _ = out.flush();
            }
        }
    }

    /// Returns the size of the terminal.
    #[must_use]
    pub(crate) fn terminal_size() -> TerminalSize {
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
    use super::super::screen::{TerminalOrPipedOutput, TerminalSize};
    use super::DEFAULT_TERMINAL_SIZE;

    /// Nothing is changed, so nothing needs restoring.
    #[derive(Debug)]
    pub(crate) struct TerminalModeGuard;

    impl TerminalModeGuard {
        /// Captures nothing on this platform.
        #[must_use]
        pub(crate) fn capture(_: TerminalOrPipedOutput) -> Self {
            Self
        }

        /// Does nothing on this platform.
        pub(crate) fn disable_echo(&self) {}

        /// Does nothing on this platform.
        pub(crate) fn restore(&self) {}
    }

    /// Returns a usual size.
    #[must_use]
    pub(crate) fn terminal_size() -> TerminalSize {
        DEFAULT_TERMINAL_SIZE
    }
}
