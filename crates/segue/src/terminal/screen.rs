//! Output of a conversation. Replies and the results of commands go to standard output, notes and errors to standard
//! error. Keeps lines intact on a terminal; what is shown is decided elsewhere.

use std::io::{self, IsTerminal, Write};

use unicode_width::UnicodeWidthChar;

use super::terminal_mode;
use crate::limits::{PLAIN_WIDTH_MAX, TERMINAL_COLUMNS_MIN};
use crate::print;
use crate::print::paint::Paint;
use crate::print::text::{sanitize_for_terminal, truncate_to_width};

/// Where the output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalOrPipedOutput {
    /// To a terminal, with streaming replies, notes and a spinner.
    Interactive,
    /// To a file or another program: complete replies only.
    Piped,
}

/// The output of a conversation.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    mode: TerminalOrPipedOutput,
    paint: Paint,
    size: fn() -> TerminalSize,
    spinner: SpinnerSetting,
    cursor_line: CursorLineContent,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalSize {
    pub columns: usize,
    pub rows: usize,
}

/// Whether a spinner is shown while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpinnerSetting {
    Enabled,
    Disabled,
}

/// The content of the line with the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorLineContent {
    Empty,
    Text,
    Spinner,
}

const CLEAR_LINE: &str = "\r\x1b[2K";
const CLEAR_BELOW: &str = "\x1b[J";
const TAB_COLUMNS: usize = 8;

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("mode", &self.mode).field("line", &self.cursor_line).finish_non_exhaustive()
    }
}

impl Screen {
    /// Returns the screen of the process: interactive if both standard input and output are terminals.
    #[must_use]
    pub(crate) fn for_stdio() -> Self {
        let is_capable = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_interactive = is_capable && io::stdin().is_terminal() && io::stdout().is_terminal();
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            mode: if is_interactive { TerminalOrPipedOutput::Interactive } else { TerminalOrPipedOutput::Piped },
            paint: if is_interactive { print::CliOutputCapabilities::for_stdout().paint } else { Paint::new(false) },
            size: terminal_mode::terminal_size,
            spinner: if is_interactive && io::stderr().is_terminal() {
                SpinnerSetting::Enabled
            } else {
                SpinnerSetting::Disabled
            },
            cursor_line: CursorLineContent::Empty,
        }
    }

    #[must_use]
    pub(crate) fn output_mode(&self) -> TerminalOrPipedOutput {
        self.mode
    }

    #[must_use]
    pub(crate) fn paint(&self) -> Paint {
        self.paint
    }

    /// Returns the options for rendering text for this screen.
    #[must_use]
    pub(crate) fn render_options(&self) -> print::CliOutputCapabilities {
        let is_terminal = self.mode == TerminalOrPipedOutput::Interactive;
        let width = if is_terminal { self.columns() } else { PLAIN_WIDTH_MAX };
        print::CliOutputCapabilities { paint: self.paint, width, is_terminal }
    }

    /// Writes a chunk of a reply, without a line break.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn write_chunk(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_spinner();
        let text = self.sanitize(text);
        self.out.write_all(text.as_bytes())?;
        self.cursor_line = if text.ends_with('\n') { CursorLineContent::Empty } else { CursorLineContent::Text };
        self.out.flush()
    }

    /// Writes a text on lines of its own: a complete reply, or the result of a command.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_text(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let text = self.sanitize(text);
        writeln!(self.out, "{}", text.strip_suffix('\n').unwrap_or(&text))?;
        self.out.flush()
    }

    /// Writes a text with colour codes on lines of its own. The text must be trusted or sanitized.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_styled(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "{}", text.strip_suffix('\n').unwrap_or(text))?;
        self.out.flush()
    }

    /// Writes a dimmed line to standard error, in interactive mode only.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_note(&mut self, text: &str) -> io::Result<()> {
        match self.mode {
            TerminalOrPipedOutput::Interactive => {
                let text = self.paint.dim(sanitize_reply(text));
                self.write_stderr(&text)
            }
            TerminalOrPipedOutput::Piped => Ok(()),
        }
    }

    /// Writes a warning to standard error.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_warning(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.warning(sanitize_reply(text));
        self.write_stderr(&text)
    }

    /// Writes an error to standard error.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_error(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.error(sanitize_reply(text));
        self.write_stderr(&text)
    }

    /// Writes an empty line, in interactive mode only.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_blank_line(&mut self) -> io::Result<()> {
        match self.mode {
            TerminalOrPipedOutput::Interactive => {
                self.end_line()?;
                self.out.write_all(b"\n")?;
                self.out.flush()
            }
            TerminalOrPipedOutput::Piped => Ok(()),
        }
    }

    /// Ends the line with the cursor, if it is not empty.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        self.clear_spinner();
        if self.cursor_line == CursorLineContent::Text {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        self.cursor_line = CursorLineContent::Empty;
        Ok(())
    }

    /// Shows a progress line that disappears with the next output. Does nothing while a reply is on the line.
    pub(crate) fn show_spinner(&mut self, text: &str) {
        if self.spinner == SpinnerSetting::Disabled || self.cursor_line == CursorLineContent::Text {
            return;
        }
        if text.is_empty() {
            return self.clear_spinner();
        }
        let text = truncate_to_width(&sanitize_reply(text), self.columns() - 1);
        // The errors may be dropped: a missing spinner does not end the conversation.
        let _ = write!(self.err, "{CLEAR_LINE}{}", self.paint.dim(&text));
        let _ = self.err.flush();
        self.cursor_line = CursorLineContent::Spinner;
    }

    /// Erases the text that was written last, from the start of its first line. Returns whether that was possible.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn erase_text(&mut self, text: &str) -> io::Result<bool> {
        let size = (self.size)();
        let rows = count_rows(&sanitize_reply(text), size.columns.max(TERMINAL_COLUMNS_MIN));
        if self.mode == TerminalOrPipedOutput::Piped || rows > size.rows.saturating_sub(1) {
            return Ok(false);
        }
        self.clear_spinner();
        if rows > 1 {
            write!(self.out, "\x1b[{}A", rows - 1)?;
        }
        write!(self.out, "\r{CLEAR_BELOW}")?;
        self.cursor_line = CursorLineContent::Empty;
        self.out.flush()?;
        Ok(true)
    }

    #[must_use]
    pub(crate) fn columns(&self) -> usize {
        (self.size)().columns.max(TERMINAL_COLUMNS_MIN)
    }

    fn write_stderr(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let _ = writeln!(self.err, "{text}");
        let _ = self.err.flush();
        Ok(())
    }

    fn clear_spinner(&mut self) {
        if self.cursor_line == CursorLineContent::Spinner {
            let _ = write!(self.err, "{CLEAR_LINE}");
            let _ = self.err.flush();
            self.cursor_line = CursorLineContent::Empty;
        }
    }

    /// Removes control sequences on a terminal, so that a reply cannot move the cursor or change the title.
    fn sanitize<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.mode {
            TerminalOrPipedOutput::Interactive => sanitize_reply(text).into(),
            TerminalOrPipedOutput::Piped => text.into(),
        }
    }
}

/// Returns the sanitized text with `\n` as the only line break.
fn sanitize_reply(text: &str) -> String {
    sanitize_for_terminal(&text.replace('\r', ""))
}

/// Returns the number of terminal rows that a text takes, from the start of its first line.
fn count_rows(text: &str, columns: usize) -> usize {
    let (mut rows, mut column) = (1, 0);
    for c in text.chars() {
        match c {
            '\n' => (rows, column) = (rows + 1, 0),
            '\t' => column = ((column / TAB_COLUMNS + 1) * TAB_COLUMNS).min(columns - 1),
            c => {
                let width = c.width().unwrap_or(0);
                if column + width > columns {
                    (rows, column) = (rows + 1, 0);
                }
                column += width;
            }
        }
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZero;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A terminal in memory.
    #[derive(Clone)]
    pub(crate) struct TestTerminal(Arc<Mutex<vt100::Parser>>);

    impl Write for TestTerminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut parser = self.0.lock().expect("no test panicked here");
            for byte in bytes {
                // A terminal driver adds the carriage return.
                parser.process(if *byte == b'\n' { b"\r\n" } else { std::slice::from_ref(byte) });
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TestTerminal {
        const SMALL: TerminalSize = TerminalSize { columns: 40, rows: 12 };
        const TALL: TerminalSize = TerminalSize { columns: 250, rows: 100 };
        const NARROW: TerminalSize = TerminalSize { columns: 24, rows: 100 };

        pub(crate) fn new() -> (Self, Screen) {
            Self::with_size(Self::SMALL, || Self::SMALL)
        }

        /// A terminal that wraps no line and keeps all rows.
        pub(crate) fn tall() -> (Self, Screen) {
            Self::with_size(Self::TALL, || Self::TALL)
        }

        /// A terminal that wraps most lines and keeps all rows.
        pub(crate) fn narrow() -> (Self, Screen) {
            Self::with_size(Self::NARROW, || Self::NARROW)
        }

        fn with_size(TerminalSize { columns, rows }: TerminalSize, size: fn() -> TerminalSize) -> (Self, Screen) {
            let cells = |count: usize| u16::try_from(count).ok().and_then(NonZero::new).expect("a few");
            let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
            let terminal = Self(Arc::new(Mutex::new(parser)));
            let screen = Screen {
                out: Box::new(terminal.clone()),
                err: Box::new(terminal.clone()),
                mode: TerminalOrPipedOutput::Interactive,
                paint: Paint::new(true),
                size,
                spinner: SpinnerSetting::Enabled,
                cursor_line: CursorLineContent::Empty,
            };
            (terminal, screen)
        }

        /// The same in piped mode.
        pub(crate) fn piped() -> (Self, Screen) {
            let (terminal, screen) = Self::new();
            (
                terminal,
                Screen {
                    mode: TerminalOrPipedOutput::Piped,
                    paint: Paint::new(false),
                    spinner: SpinnerSetting::Disabled,
                    ..screen
                },
            )
        }

        /// The visible text, without empty lines at the end.
        pub(crate) fn text(&self) -> String {
            self.0.lock().expect("no test panicked here").screen().contents().trim_end().to_owned()
        }
    }

    #[test]
    fn a_spinner_is_erased_by_the_next_output() {
        let (terminal, mut screen) = TestTerminal::new();
        screen.show_spinner("waiting for a rather long list of models to answer");
        assert_eq!(terminal.text(), "waiting for a rather long list of mode…");
        screen.show_spinner("waiting");
        assert_eq!(terminal.text(), "waiting");
        screen.write_chunk("Hello").expect("written");
        screen.show_spinner("still waiting");
        screen.write_chunk(" there").expect("written");
        screen.end_line().expect("written");
        screen.show_spinner("more");
        screen.print_note("a note").expect("written");
        assert_eq!(terminal.text(), "Hello there\na note");
    }

    #[test]
    fn the_last_text_can_be_erased_while_it_is_on_the_screen() {
        let (terminal, mut screen) = TestTerminal::new();
        screen.print_text("before").expect("written");
        let long = "A line of more than forty columns, which goes on in the next row.\nAnd 日本語\tone more";
        screen.write_chunk(long).expect("written");
        assert!(screen.erase_text(long).expect("written"));
        assert_eq!(terminal.text(), "before");
        let too_long = "a\n".repeat(20);
        screen.write_chunk(&too_long).expect("written");
        assert!(!screen.erase_text(&too_long).expect("written"));
    }

    #[test]
    fn rows_are_counted_as_a_terminal_does() {
        let full = "x".repeat(40);
        let cases = [("", 1), ("a\n", 2), (full.as_str(), 1), ("日本", 1)];
        for (text, count) in cases {
            assert_eq!(count_rows(text, 40), count, "{text:?}");
        }
        assert_eq!(count_rows(&format!("{full}y"), 40), 2);
        assert_eq!(count_rows(&"日".repeat(21), 41), 2, "a wide character is never split");
    }

    #[test]
    fn control_sequences_in_a_reply_are_not_interpreted() {
        let (terminal, mut screen) = TestTerminal::new();
        screen.write_chunk("a\x1b[2Jb\x07\u{9b}c\r\nd").expect("written");
        // This terminal shows nothing for the replacement character, though it takes a column.
        assert_eq!(terminal.text(), "a[2Jbc\nd");
        assert_eq!(sanitize_reply("\x1b[2J"), "\u{fffd}[2J");
        let (terminal, mut screen) = TestTerminal::piped();
        screen.print_note("only on terminals").expect("written");
        screen.show_spinner("only on terminals");
        screen.print_text("a reply").expect("written");
        assert_eq!(terminal.text(), "a reply");
    }
}
