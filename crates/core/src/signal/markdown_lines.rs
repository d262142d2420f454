//! Tracks the Markdown structure of a text as it arrives, as far as it decides whether a marker counts: fences, quotes,
//! list items and runs of backticks.

use super::MarkerIgnoredRegion;
use crate::limits::{FENCE_LENGTH_MIN, LIST_NUMBER_DIGITS_MAX, MARKDOWN_INDENT_MAX};

const TAB_COLUMNS: usize = 4;

/// The Markdown state at the current character.
#[derive(Debug, Default)]
pub(super) struct MarkdownTracker {
    fence: Option<OpenCodeFence>,
    /// The column at which the content of the innermost list item begins; 0 outside lists.
    list_column: usize,
    line: MarkdownLineState,
}

#[derive(Debug)]
struct OpenCodeFence {
    mark: char,
    length: usize,
    indent_max: usize,
}

#[derive(Debug, Default)]
struct MarkdownLineState {
    /// The current column, as long as the prefix is not final.
    column: usize,
    /// True if anything but whitespace was read.
    started: bool,
    prefix: MarkdownLinePrefix,
    /// The length of the current run of backticks.
    run: usize,
    /// The length of the run that opened a code span.
    span: Option<usize>,
}

/// The kind of a line, as far as it is known.
#[derive(Debug, Default, Clone, Copy)]
enum MarkdownLinePrefix {
    /// Only whitespace and list markers so far.
    #[default]
    Blank,
    /// A possible list marker at this column.
    Bullet {
        indent: usize,
    },
    /// Digits that may become a list marker.
    Digits {
        indent: usize,
        count: u8,
    },
    /// A run of fence characters.
    FenceRun {
        mark: char,
        length: usize,
    },
    /// The text after such a run: whether it is blank so far, and whether it has backticks.
    FenceTail {
        mark: char,
        length: usize,
        blank: bool,
        ticks: bool,
    },
    Quote,
    /// Anything else.
    Plain,
}

impl MarkdownTracker {
    /// Returns the state in the middle of an ordinary line.
    pub(super) fn mid_line() -> Self {
        Self {
            line: MarkdownLineState {
                started: true,
                prefix: MarkdownLinePrefix::Plain,
                ..MarkdownLineState::default()
            },
            ..Self::default()
        }
    }

    /// Returns true if only whitespace was read on this line.
    pub(super) fn is_at_line_start(&self) -> bool {
        !self.line.started
    }

    /// Returns why a marker here is ignored; `None` if it counts.
    pub(super) fn ignored_region(&self) -> Option<MarkerIgnoredRegion> {
        if self.fence.is_some() {
            return Some(MarkerIgnoredRegion::CodeFence);
        }
        match self.line.prefix {
            MarkdownLinePrefix::Quote => return Some(MarkerIgnoredRegion::Quote),
            MarkdownLinePrefix::FenceRun { mark: '~', length }
            | MarkdownLinePrefix::FenceTail { mark: '~', length, .. }
                if length >= FENCE_LENGTH_MIN =>
            {
                return Some(MarkerIgnoredRegion::CodeFence);
            }
            _ => {}
        }
        self.line.open_code_span_length().map(|_| MarkerIgnoredRegion::CodeSpan)
    }

    /// Processes the next character.
    pub(super) fn push_char(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            return;
        }
        if c == '`' {
            self.line.run += 1;
        } else {
            self.line.span = self.line.open_code_span_length();
            self.line.run = 0;
        }
        self.line.prefix = self.next_prefix(c);
        self.line.started |= !is_blank(c);
        if !matches!(self.line.prefix, MarkdownLinePrefix::Plain | MarkdownLinePrefix::Quote) {
            self.line.column += if c == '\t' { TAB_COLUMNS - self.line.column % TAB_COLUMNS } else { 1 };
        }
        if matches!(self.line.prefix, MarkdownLinePrefix::Blank) && self.line.started {
            // A list marker was just read; the content of the item is indented by as much.
            self.list_column = self.line.column;
        }
    }

    fn next_prefix(&mut self, c: char) -> MarkdownLinePrefix {
        match self.line.prefix {
            MarkdownLinePrefix::Blank if is_blank(c) => MarkdownLinePrefix::Blank,
            MarkdownLinePrefix::Blank => self.initial_prefix(c),
            MarkdownLinePrefix::Bullet { .. } if is_blank(c) => MarkdownLinePrefix::Blank,
            MarkdownLinePrefix::Digits { indent, count } if c.is_ascii_digit() && count < LIST_NUMBER_DIGITS_MAX => {
                MarkdownLinePrefix::Digits { indent, count: count + 1 }
            }
            MarkdownLinePrefix::Digits { indent, .. } if c == '.' || c == ')' => MarkdownLinePrefix::Bullet { indent },
            MarkdownLinePrefix::Bullet { indent } | MarkdownLinePrefix::Digits { indent, .. } => {
                self.list_column = self.list_column.min(indent);
                MarkdownLinePrefix::Plain
            }
            MarkdownLinePrefix::FenceRun { mark, length } if c == mark => {
                MarkdownLinePrefix::FenceRun { mark, length: length + 1 }
            }
            MarkdownLinePrefix::FenceRun { mark, length } => {
                MarkdownLinePrefix::FenceTail { mark, length, blank: is_blank(c), ticks: c == '`' }
            }
            MarkdownLinePrefix::FenceTail { mark, length, blank, ticks } => {
                MarkdownLinePrefix::FenceTail { mark, length, blank: blank && is_blank(c), ticks: ticks || c == '`' }
            }
            MarkdownLinePrefix::Quote => MarkdownLinePrefix::Quote,
            MarkdownLinePrefix::Plain => MarkdownLinePrefix::Plain,
        }
    }

    /// Returns the kind of a line whose first character after the indentation is `c`.
    fn initial_prefix(&mut self, c: char) -> MarkdownLinePrefix {
        let indent = self.line.column;
        if let Some(fence) = &self.fence {
            let may_close = c == fence.mark && indent <= fence.indent_max;
            return if may_close {
                MarkdownLinePrefix::FenceRun { mark: c, length: 1 }
            } else {
                MarkdownLinePrefix::Plain
            };
        }
        if indent > self.list_column + MARKDOWN_INDENT_MAX {
            return MarkdownLinePrefix::Plain;
        }
        match c {
            '-' | '*' | '+' => return MarkdownLinePrefix::Bullet { indent },
            '0'..='9' => return MarkdownLinePrefix::Digits { indent, count: 1 },
            _ => self.list_column = self.list_column.min(indent),
        }
        match c {
            '`' | '~' => MarkdownLinePrefix::FenceRun { mark: c, length: 1 },
            '>' => MarkdownLinePrefix::Quote,
            _ => MarkdownLinePrefix::Plain,
        }
    }

    fn end_line(&mut self) {
        let (mark, length, blank, ticks) = match self.line.prefix {
            MarkdownLinePrefix::FenceRun { mark, length } => (mark, length, true, false),
            MarkdownLinePrefix::FenceTail { mark, length, blank, ticks } => (mark, length, blank, ticks),
            _ => (' ', 0, false, false),
        };
        match &self.fence {
            Some(fence) if blank && length >= fence.length => self.fence = None,
            Some(_) => {}
            None if length >= FENCE_LENGTH_MIN && (mark == '~' || !ticks) => {
                self.fence = Some(OpenCodeFence { mark, length, indent_max: self.list_column + MARKDOWN_INDENT_MAX });
            }
            None => {}
        }
        self.line = MarkdownLineState::default();
    }
}

impl MarkdownLineState {
    /// Returns the length of the code span that is open after the current run of backticks.
    fn open_code_span_length(&self) -> Option<usize> {
        match (self.run, self.span) {
            (0, span) => span,
            (run, None) => Some(run),
            (run, Some(opened)) if run == opened => None,
            (_, span) => span,
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}
