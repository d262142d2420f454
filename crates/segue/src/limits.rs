//! Every limit of the program, in one place.

/// Largest configuration file read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Most bytes taken from standard input as a message; the engine's own limit is lower and says so in its own words.
pub const STDIN_BYTES_MAX: u64 = 64 << 20;
/// Sessions read from the list at a time.
pub const LIST_PAGE_MAX: usize = 500;
/// Sessions, calls or names listed in an error.
pub const NAMES_SHOWN_MAX: usize = 8;
/// Events read from a journal at a time.
pub const EVENTS_PAGE_MAX: usize = 512;
/// Pairs of lines a diff compares; what is left beyond is shown as replaced.
pub const DIFF_CELLS_MAX: usize = 4_000_000;
/// Narrowest line a table is fitted to.
pub const TABLE_WIDTH_MIN: usize = 40;
/// Columns of output that goes to no terminal.
pub const PLAIN_WIDTH_MAX: usize = 100;
/// Characters of a text that a timeline shows without `--full`.
pub const SHORT_TEXT_CHARS_MAX: usize = 200;
