//! How things look on a terminal and in a pipe: colours, widths, tables, amounts, times. Decides nothing about what is said.

pub mod artifact;
pub mod number_format;
pub mod paint;
pub mod side_by_side;
pub mod text;
pub mod text_table;

use std::io::{IsTerminal, Write};

use crate::limits::{PLAIN_WIDTH_MAX, TABLE_WIDTH_MIN};
use paint::Paint;

/// Where output goes, and what that place can show.
#[derive(Debug, Clone, Copy)]
pub struct RenderOptions {
    /// Colours, where they are wanted.
    pub paint: Paint,
    /// Columns.
    pub width: usize,
    /// Whether a person looks at it as it comes.
    pub is_terminal: bool,
}

impl RenderOptions {
    /// Standard output as it is.
    pub fn for_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)).filter(|_| is_terminal);
        Self {
            paint: Paint::new(is_terminal && are_colors_enabled()),
            width: width.unwrap_or(PLAIN_WIDTH_MAX).max(TABLE_WIDTH_MIN),
            is_terminal,
        }
    }
}

/// Colours for what goes to standard error.
pub fn stderr_paint() -> Paint {
    Paint::new(std::io::stderr().is_terminal() && are_colors_enabled())
}

fn are_colors_enabled() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes to standard output at once.
///
/// # Errors
/// It cannot be written to; main knows a reader that went away from a failure.
pub fn write_stdout(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes a value as JSON, on several lines for people who look at it anyway.
///
/// # Errors
/// As [`out`].
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_stdout(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a line to standard error. That nobody reads it is no failure.
pub fn write_stderr_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
