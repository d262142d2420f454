//! The limits that the rules enforce.

/// Lines of a file, without tests.
pub(crate) const FILE_LINES_MAX: usize = 600;

/// Characters of a text with "you are" that is not taken for a prompt.
pub(crate) const NON_PROMPT_CHARS_MAX: usize = 200;
