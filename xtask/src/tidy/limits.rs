//! The numbers the rules hold code to.

/// Lines of a file, not counting what is for tests only.
pub const FILE_LINES_MAX: usize = 600;

/// Characters of a text that speaks to somebody as "you" before it counts as a prompt.
pub const NON_PROMPT_CHARS_MAX: usize = 200;
