//! Formatting of output for terminals and pipes: colours, widths, tables, amounts and times.

pub(crate) mod artifact;
pub(crate) mod number_format;
pub(crate) mod paint;
pub(crate) mod side_by_side;
pub(crate) mod text;
pub(crate) mod text_table;

use std::io::{IsTerminal, Write};

use crate::limits::{PLAIN_WIDTH_MAX, TABLE_WIDTH_MIN};
use paint::Paint;

/// What the destination of some output can show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CliOutputCapabilities {
    pub paint: Paint,
    /// Columns per line.
    pub width: usize,
    pub is_terminal: bool,
}

impl CliOutputCapabilities {
    /// Returns the options for standard output.
    pub(crate) fn for_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)).filter(|_| is_terminal);
        Self {
            paint: Paint::new(is_terminal && are_colors_enabled()),
            width: width.unwrap_or(PLAIN_WIDTH_MAX).max(TABLE_WIDTH_MIN),
            is_terminal,
        }
    }
}

/// Returns the colours for standard error.
pub(crate) fn stderr_paint() -> Paint {
    Paint::new(is_stderr_colored())
}

/// Returns whether standard error shows colours.
pub(crate) fn is_stderr_colored() -> bool {
    std::io::stderr().is_terminal() && are_colors_enabled()
}

fn are_colors_enabled() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes to standard output and flushes it.
///
/// # Errors
/// Returns an error if the write fails. `main` ignores a broken pipe.
pub(crate) fn write_stdout(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes a value to standard output as indented JSON.
///
/// # Errors
/// Returns an error if the write fails.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_stdout(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Asks a question on the terminal, and returns whether the answer is yes.
///
/// # Errors
/// Returns an error if the terminal cannot be read or written.
pub(crate) fn confirm_on_terminal(question: &str) -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Writes a line to standard error. A failed write is ignored, because there is no other place to report it.
pub(crate) fn write_stderr_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
