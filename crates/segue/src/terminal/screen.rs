//! What is written where. Replies and what commands answer go to standard output; everything beside the conversation goes to
//! standard error. Decides how lines stay whole on a terminal; what is worth showing is decided elsewhere.

use std::io::{self, IsTerminal, Write};

use unicode_width::UnicodeWidthChar;

use super::terminal_mode;
use crate::limits::{PLAIN_WIDTH_MAX, TERMINAL_COLUMNS_MIN};
use crate::print;
use crate::print::paint::Paint;
use crate::print::text::{sanitize_for_terminal, truncate_to_width};

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// A person at a terminal, as things happen.
    Interactive,
    /// A file or another program: replies only, each in one piece.
    Piped,
}

/// Where the conversation is shown.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    mode: OutputMode,
    paint: Paint,
    size: fn() -> TerminalSize,
    spinner: SpinnerSetting,
    cursor_line: CursorLine,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct TerminalSize {
    pub columns: usize,
    pub rows: usize,
}

/// Whether something may turn while one waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpinnerSetting {
    Enabled,
    Disabled,
}

/// What stands on the line of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorLine {
    Empty,
    Text,
    Spinner,
}

const CLEAR_LINE: &str = "\r\x1b[2K";
const CLEAR_BELOW: &str = "\x1b[J";
const TAB_COLUMNS: usize = 8;

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("seen", &self.mode).field("line", &self.cursor_line).finish_non_exhaustive()
    }
}

impl Screen {
    /// The program's own: live if a person both types and reads there.
    #[must_use]
    pub fn for_stdio() -> Self {
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let live = able && io::stdin().is_terminal() && io::stdout().is_terminal();
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            mode: if live { OutputMode::Interactive } else { OutputMode::Piped },
            paint: if live { print::RenderOptions::for_stdout().paint } else { Paint::new(false) },
            size: terminal_mode::terminal_size,
            spinner: if live && io::stderr().is_terminal() {
                SpinnerSetting::Enabled
            } else {
                SpinnerSetting::Disabled
            },
            cursor_line: CursorLine::Empty,
        }
    }

    /// Who looks.
    #[must_use]
    pub fn output_mode(&self) -> OutputMode {
        self.mode
    }

    /// Its colours.
    #[must_use]
    pub fn paint(&self) -> Paint {
        self.paint
    }

    /// What a page that is printed on it must know.
    #[must_use]
    pub fn render_options(&self) -> print::RenderOptions {
        let is_terminal = self.mode == OutputMode::Interactive;
        let width = if is_terminal { self.columns() } else { PLAIN_WIDTH_MAX };
        print::RenderOptions { paint: self.paint, width, is_terminal }
    }

    /// Words of a reply, as they come.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn write_chunk(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_spinner();
        let text = self.sanitize(text);
        self.out.write_all(text.as_bytes())?;
        self.cursor_line = if text.ends_with('\n') { CursorLine::Empty } else { CursorLine::Text };
        self.out.flush()
    }

    /// A text of its own lines: a whole reply, or what a command answers.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_text(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let text = self.sanitize(text);
        writeln!(self.out, "{}", text.strip_suffix('\n').unwrap_or(&text))?;
        self.out.flush()
    }

    /// The same in the colours it has; for texts of our own only.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_styled(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.out, "{}", text.strip_suffix('\n').unwrap_or(text))?;
        self.out.flush()
    }

    /// A quiet line beside the conversation; for people only.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_note(&mut self, text: &str) -> io::Result<()> {
        match self.mode {
            OutputMode::Interactive => {
                let text = self.paint.dim(sanitize_reply(text));
                self.write_stderr(&text)
            }
            OutputMode::Piped => Ok(()),
        }
    }

    /// What nobody should overlook.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_warning(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.warning(sanitize_reply(text));
        self.write_stderr(&text)
    }

    /// What went wrong.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_error(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.error(sanitize_reply(text));
        self.write_stderr(&text)
    }

    /// Keeps what follows apart, for people.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_blank_line(&mut self) -> io::Result<()> {
        match self.mode {
            OutputMode::Interactive => {
                self.end_line()?;
                self.out.write_all(b"\n")?;
                self.out.flush()
            }
            OutputMode::Piped => Ok(()),
        }
    }

    /// Ends the line of the cursor, if anything stands on it.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn end_line(&mut self) -> io::Result<()> {
        self.clear_spinner();
        if self.cursor_line == CursorLine::Text {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        self.cursor_line = CursorLine::Empty;
        Ok(())
    }

    /// Shows what is waited for, on a line that disappears; nothing if words stand on the line.
    pub fn show_spinner(&mut self, text: &str) {
        if self.spinner == SpinnerSetting::Disabled || self.cursor_line == CursorLine::Text {
            return;
        }
        if text.is_empty() {
            return self.clear_spinner();
        }
        let text = truncate_to_width(&sanitize_reply(text), self.columns() - 1);
        // What cannot be shown beside the conversation is not worth ending it for.
        let _ = write!(self.err, "{CLEAR_LINE}{}", self.paint.dim(&text));
        let _ = self.err.flush();
        self.cursor_line = CursorLine::Spinner;
    }

    /// Takes back the text that was written last, beginning at the start of a line. Says whether that was possible.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn erase_text(&mut self, text: &str) -> io::Result<bool> {
        let size = (self.size)();
        let rows = count_rows(&sanitize_reply(text), size.columns.max(TERMINAL_COLUMNS_MIN));
        if self.mode == OutputMode::Piped || rows > size.rows.saturating_sub(1) {
            return Ok(false);
        }
        self.clear_spinner();
        if rows > 1 {
            write!(self.out, "\x1b[{}A", rows - 1)?;
        }
        write!(self.out, "\r{CLEAR_BELOW}")?;
        self.cursor_line = CursorLine::Empty;
        self.out.flush()?;
        Ok(true)
    }

    /// Columns there are.
    #[must_use]
    pub fn columns(&self) -> usize {
        (self.size)().columns.max(TERMINAL_COLUMNS_MIN)
    }

    fn write_stderr(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let _ = writeln!(self.err, "{text}");
        let _ = self.err.flush();
        Ok(())
    }

    fn clear_spinner(&mut self) {
        if self.cursor_line == CursorLine::Spinner {
            let _ = write!(self.err, "{CLEAR_LINE}");
            let _ = self.err.flush();
            self.cursor_line = CursorLine::Empty;
        }
    }

    /// A model's words cannot move the cursor, change the title or ring the bell.
    fn sanitize<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.mode {
            OutputMode::Interactive => sanitize_reply(text).into(),
            OutputMode::Piped => text.into(),
        }
    }
}

/// The text as it may be shown: harmless, with line breaks of one kind.
fn sanitize_reply(text: &str) -> String {
    sanitize_for_terminal(&text.replace('\r', ""))
}

/// Rows that a text takes from the start of a line to the cursor behind it.
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
pub mod tests {
    use std::num::NonZero;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A terminal in memory.
    #[derive(Clone)]
    pub struct TestTerminal(Arc<Mutex<vt100::Parser>>);

    impl Write for TestTerminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut parser = self.0.lock().expect("no test panicked here");
            for byte in bytes {
                // As a terminal driver does.
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

        pub fn new() -> (Self, Screen) {
            Self::of(Self::SMALL, || Self::SMALL)
        }

        /// One on which nothing is wrapped and nothing is lost.
        pub fn tall() -> (Self, Screen) {
            Self::of(Self::TALL, || Self::TALL)
        }

        /// One on which nearly everything is wrapped and nothing is lost.
        pub fn narrow() -> (Self, Screen) {
            Self::of(Self::NARROW, || Self::NARROW)
        }

        fn of(TerminalSize { columns, rows }: TerminalSize, size: fn() -> TerminalSize) -> (Self, Screen) {
            let cells = |count: usize| u16::try_from(count).ok().and_then(NonZero::new).expect("a few");
            let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
            let glass = Self(Arc::new(Mutex::new(parser)));
            let screen = Screen {
                out: Box::new(glass.clone()),
                err: Box::new(glass.clone()),
                mode: OutputMode::Interactive,
                paint: Paint::new(true),
                size,
                spinner: SpinnerSetting::Enabled,
                cursor_line: CursorLine::Empty,
            };
            (glass, screen)
        }

        /// A file that replies are written to.
        pub fn piped() -> (Self, Screen) {
            let (glass, screen) = Self::new();
            (
                glass,
                Screen {
                    mode: OutputMode::Piped,
                    paint: Paint::new(false),
                    spinner: SpinnerSetting::Disabled,
                    ..screen
                },
            )
        }

        /// What can be read on it, without empty lines at the end.
        pub fn text(&self) -> String {
            self.0.lock().expect("no test panicked here").screen().contents().trim_end().to_owned()
        }
    }

    #[test]
    fn a_spinner_leaves_nothing_behind() {
        let (glass, mut screen) = TestTerminal::new();
        screen.show_spinner("waiting for a rather long list of models to answer");
        assert_eq!(glass.text(), "waiting for a rather long list of mode…");
        screen.show_spinner("waiting");
        assert_eq!(glass.text(), "waiting");
        screen.write_chunk("Hello").expect("written");
        screen.show_spinner("still waiting");
        screen.write_chunk(" there").expect("written");
        screen.end_line().expect("written");
        screen.show_spinner("more");
        screen.print_note("a note").expect("written");
        assert_eq!(glass.text(), "Hello there\na note");
    }

    #[test]
    fn what_was_written_last_can_be_taken_back_while_it_is_on_the_screen() {
        let (glass, mut screen) = TestTerminal::new();
        screen.print_text("before").expect("written");
        let long = "A line of more than forty columns, which goes on in the next row.\nAnd 日本語\tone more";
        screen.write_chunk(long).expect("written");
        assert!(screen.erase_text(long).expect("written"));
        assert_eq!(glass.text(), "before");
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
        assert_eq!(count_rows(&"日".repeat(21), 41), 2, "a wide letter is never parted");
    }

    #[test]
    fn a_models_words_cannot_steer_the_terminal() {
        let (glass, mut screen) = TestTerminal::new();
        screen.write_chunk("a\x1b[2Jb\x07\u{9b}c\r\nd").expect("written");
        // This terminal shows nothing for what was harmful; the mark in its place takes a column all the same.
        assert_eq!(glass.text(), "a[2Jbc\nd");
        assert_eq!(sanitize_reply("\x1b[2J"), "\u{fffd}[2J");
        let (glass, mut screen) = TestTerminal::piped();
        screen.print_note("only for people").expect("written");
        screen.show_spinner("only for people");
        screen.print_text("a reply").expect("written");
        assert_eq!(glass.text(), "a reply");
    }
}
