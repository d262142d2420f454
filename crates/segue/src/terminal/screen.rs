//! What is written where. Replies and what commands answer go to standard output; everything beside the conversation goes to
//! standard error. Decides how lines stay whole on a terminal; what is worth showing is decided elsewhere.

use std::io::{self, IsTerminal, Write};

use unicode_width::UnicodeWidthChar;

use super::modes;
use crate::limits::{COLUMNS_MIN, PLAIN_WIDTH_MAX};
use crate::print;
use crate::print::paint::Paint;
use crate::print::text::{fitted, harmless};

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A person at a terminal, as things happen.
    Live,
    /// A file or another program: replies only, each in one piece.
    Piped,
}

/// Where the conversation is shown.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    seen: Seen,
    paint: Paint,
    size: fn() -> Size,
    spins: Spins,
    line: Line,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// Whether something may turn while one waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spins {
    Yes,
    No,
}

/// What stands on the line of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Empty,
    Words,
    Spinner,
}

const CLEAR_LINE: &str = "\r\x1b[2K";
const CLEAR_BELOW: &str = "\x1b[J";
const TAB_COLUMNS: usize = 8;

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("seen", &self.seen).field("line", &self.line).finish_non_exhaustive()
    }
}

impl Screen {
    /// The program's own: live if a person both types and reads there.
    #[must_use]
    pub fn standard() -> Self {
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let live = able && io::stdin().is_terminal() && io::stdout().is_terminal();
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            seen: if live { Seen::Live } else { Seen::Piped },
            paint: if live { print::Screen::here().paint } else { Paint::new(false) },
            size: modes::size,
            spins: if live && io::stderr().is_terminal() { Spins::Yes } else { Spins::No },
            line: Line::Empty,
        }
    }

    /// Who looks.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Its colours.
    #[must_use]
    pub fn paint(&self) -> Paint {
        self.paint
    }

    /// What a page that is printed on it must know.
    #[must_use]
    pub fn page(&self) -> print::Screen {
        let is_terminal = self.seen == Seen::Live;
        let width = if is_terminal { self.columns() } else { PLAIN_WIDTH_MAX };
        print::Screen { paint: self.paint, width, is_terminal }
    }

    /// Words of a reply, as they come.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn words(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_spinner();
        let text = self.fit_to_show(text);
        self.out.write_all(text.as_bytes())?;
        self.line = if text.ends_with('\n') { Line::Empty } else { Line::Words };
        self.out.flush()
    }

    /// A text of its own lines: a whole reply, or what a command answers.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let text = self.fit_to_show(text);
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
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        match self.seen {
            Seen::Live => {
                let text = self.paint.dim(visible(text));
                self.beside(&text)
            }
            Seen::Piped => Ok(()),
        }
    }

    /// What nobody should overlook.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn warning(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.warn(visible(text));
        self.beside(&text)
    }

    /// What went wrong.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn error(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint.bad(visible(text));
        self.beside(&text)
    }

    /// Keeps what follows apart, for people.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn blank(&mut self) -> io::Result<()> {
        match self.seen {
            Seen::Live => {
                self.end_line()?;
                self.out.write_all(b"\n")?;
                self.out.flush()
            }
            Seen::Piped => Ok(()),
        }
    }

    /// Ends the line of the cursor, if anything stands on it.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn end_line(&mut self) -> io::Result<()> {
        self.clear_spinner();
        if self.line == Line::Words {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        self.line = Line::Empty;
        Ok(())
    }

    /// Shows what is waited for, on a line that disappears; nothing if words stand on the line.
    pub fn spin(&mut self, text: &str) {
        if self.spins == Spins::No || self.line == Line::Words {
            return;
        }
        if text.is_empty() {
            return self.clear_spinner();
        }
        let text = fitted(&visible(text), self.columns() - 1);
        // What cannot be shown beside the conversation is not worth ending it for.
        let _ = write!(self.err, "{CLEAR_LINE}{}", self.paint.dim(&text));
        let _ = self.err.flush();
        self.line = Line::Spinner;
    }

    /// Takes back the text that was written last, beginning at the start of a line. Says whether that was possible.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn take_back(&mut self, text: &str) -> io::Result<bool> {
        let size = (self.size)();
        let rows = rows(&visible(text), size.columns.max(COLUMNS_MIN));
        if self.seen == Seen::Piped || rows > size.rows.saturating_sub(1) {
            return Ok(false);
        }
        self.clear_spinner();
        if rows > 1 {
            write!(self.out, "\x1b[{}A", rows - 1)?;
        }
        write!(self.out, "\r{CLEAR_BELOW}")?;
        self.line = Line::Empty;
        self.out.flush()?;
        Ok(true)
    }

    /// Columns there are.
    #[must_use]
    pub fn columns(&self) -> usize {
        (self.size)().columns.max(COLUMNS_MIN)
    }

    fn beside(&mut self, text: &str) -> io::Result<()> {
        self.end_line()?;
        let _ = writeln!(self.err, "{text}");
        let _ = self.err.flush();
        Ok(())
    }

    fn clear_spinner(&mut self) {
        if self.line == Line::Spinner {
            let _ = write!(self.err, "{CLEAR_LINE}");
            let _ = self.err.flush();
            self.line = Line::Empty;
        }
    }

    /// A model's words cannot move the cursor, change the title or ring the bell.
    fn fit_to_show<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        match self.seen {
            Seen::Live => visible(text).into(),
            Seen::Piped => text.into(),
        }
    }
}

/// The text as it may be shown: harmless, with line breaks of one kind.
fn visible(text: &str) -> String {
    harmless(&text.replace('\r', ""))
}

/// Rows that a text takes from the start of a line to the cursor behind it.
fn rows(text: &str, columns: usize) -> usize {
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
    pub struct Glass(Arc<Mutex<vt100::Parser>>);

    impl Write for Glass {
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

    impl Glass {
        const SMALL: Size = Size { columns: 40, rows: 12 };
        const TALL: Size = Size { columns: 250, rows: 100 };
        const NARROW: Size = Size { columns: 24, rows: 100 };

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

        fn of(Size { columns, rows }: Size, size: fn() -> Size) -> (Self, Screen) {
            let cells = |count: usize| u16::try_from(count).ok().and_then(NonZero::new).expect("a few");
            let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
            let glass = Self(Arc::new(Mutex::new(parser)));
            let screen = Screen {
                out: Box::new(glass.clone()),
                err: Box::new(glass.clone()),
                seen: Seen::Live,
                paint: Paint::new(true),
                size,
                spins: Spins::Yes,
                line: Line::Empty,
            };
            (glass, screen)
        }

        /// A file that replies are written to.
        pub fn piped() -> (Self, Screen) {
            let (glass, screen) = Self::new();
            (glass, Screen { seen: Seen::Piped, paint: Paint::new(false), spins: Spins::No, ..screen })
        }

        /// What can be read on it, without empty lines at the end.
        pub fn text(&self) -> String {
            self.0.lock().expect("no test panicked here").screen().contents().trim_end().to_owned()
        }
    }

    #[test]
    fn a_spinner_leaves_nothing_behind() {
        let (glass, mut screen) = Glass::new();
        screen.spin("waiting for a rather long list of models to answer");
        assert_eq!(glass.text(), "waiting for a rather long list of mode…");
        screen.spin("waiting");
        assert_eq!(glass.text(), "waiting");
        screen.words("Hello").expect("written");
        screen.spin("still waiting");
        screen.words(" there").expect("written");
        screen.end_line().expect("written");
        screen.spin("more");
        screen.note("a note").expect("written");
        assert_eq!(glass.text(), "Hello there\na note");
    }

    #[test]
    fn what_was_written_last_can_be_taken_back_while_it_is_on_the_screen() {
        let (glass, mut screen) = Glass::new();
        screen.print("before").expect("written");
        let long = "A line of more than forty columns, which goes on in the next row.\nAnd 日本語\tone more";
        screen.words(long).expect("written");
        assert!(screen.take_back(long).expect("written"));
        assert_eq!(glass.text(), "before");
        let too_long = "a\n".repeat(20);
        screen.words(&too_long).expect("written");
        assert!(!screen.take_back(&too_long).expect("written"));
    }

    #[test]
    fn rows_are_counted_as_a_terminal_does() {
        let full = "x".repeat(40);
        let cases = [("", 1), ("a\n", 2), (full.as_str(), 1), ("日本", 1)];
        for (text, count) in cases {
            assert_eq!(rows(text, 40), count, "{text:?}");
        }
        assert_eq!(rows(&format!("{full}y"), 40), 2);
        assert_eq!(rows(&"日".repeat(21), 41), 2, "a wide letter is never parted");
    }

    #[test]
    fn a_models_words_cannot_steer_the_terminal() {
        let (glass, mut screen) = Glass::new();
        screen.words("a\x1b[2Jb\x07\u{9b}c\r\nd").expect("written");
        // This terminal shows nothing for what was harmful; the mark in its place takes a column all the same.
        assert_eq!(glass.text(), "a[2Jbc\nd");
        assert_eq!(visible("\x1b[2J"), "\u{fffd}[2J");
        let (glass, mut screen) = Glass::piped();
        screen.note("only for people").expect("written");
        screen.spin("only for people");
        screen.print("a reply").expect("written");
        assert_eq!(glass.text(), "a reply");
    }
}
