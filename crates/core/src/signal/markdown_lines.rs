//! Knows, while a text comes in character by character, whether a marker would count here. Of Markdown it knows what
//! that takes: fences, quotes, list items, runs of backticks. It renders nothing.

use super::IgnoredRegion;
use crate::limits::{FENCE_LENGTH_MIN, LIST_NUMBER_DIGITS_MAX, MARKDOWN_INDENT_MAX};

const TAB_COLUMNS: usize = 4;

/// The state of the lines read so far.
#[derive(Debug, Default)]
pub(super) struct MarkdownTracker {
    fence: Option<OpenCodeFence>,
    /// The column at which the content of the innermost list item begins; 0 outside lists.
    list_column: usize,
    line: MarkdownLine,
}

#[derive(Debug)]
struct OpenCodeFence {
    mark: char,
    length: usize,
    indent_max: usize,
}

#[derive(Debug, Default)]
struct MarkdownLine {
    /// Columns read, as long as the lead is not settled.
    column: usize,
    /// Whether anything but white space was read.
    begun: bool,
    lead: LinePrefix,
    /// The run of backticks being read.
    run: usize,
    /// The length of the run that opened a code span.
    span: Option<usize>,
}

/// What a line turns out to be.
#[derive(Debug, Default, Clone, Copy)]
enum LinePrefix {
    /// Nothing but white space and list marks so far.
    #[default]
    Blank,
    /// What may be the mark of a list item that begins at this column.
    Bullet { indent: usize },
    /// Digits that may become such a mark.
    Digits { indent: usize, count: u8 },
    /// A run of fence characters.
    FenceRun { mark: char, length: usize },
    /// What comes behind such a run: only blanks so far, any backtick so far.
    FenceTail { mark: char, length: usize, blank: bool, ticks: bool },
    /// A quote.
    Quote,
    /// Anything else.
    Plain,
}

impl MarkdownTracker {
    /// As in the middle of an ordinary line.
    pub(super) fn mid_line() -> Self {
        Self {
            line: MarkdownLine { begun: true, lead: LinePrefix::Plain, ..MarkdownLine::default() },
            ..Self::default()
        }
    }

    /// Whether only white space was read on this line.
    pub(super) fn is_at_line_start(&self) -> bool {
        !self.line.begun
    }

    /// Why a marker that begins here does not count; `None` if it does.
    pub(super) fn ignored_region(&self) -> Option<IgnoredRegion> {
        if self.fence.is_some() {
            return Some(IgnoredRegion::CodeFence);
        }
        match self.line.lead {
            LinePrefix::Quote => return Some(IgnoredRegion::Quote),
            LinePrefix::FenceRun { mark: '~', length } | LinePrefix::FenceTail { mark: '~', length, .. }
                if length >= FENCE_LENGTH_MIN =>
            {
                return Some(IgnoredRegion::CodeFence);
            }
            _ => {}
        }
        self.line.code_span_after_run().map(|_| IgnoredRegion::CodeSpan)
    }

    /// Takes the next character.
    pub(super) fn push_char(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            return;
        }
        if c == '`' {
            self.line.run += 1;
        } else {
            self.line.span = self.line.code_span_after_run();
            self.line.run = 0;
        }
        self.line.lead = self.next_prefix(c);
        self.line.begun |= !is_blank(c);
        if !matches!(self.line.lead, LinePrefix::Plain | LinePrefix::Quote) {
            self.line.column += if c == '\t' { TAB_COLUMNS - self.line.column % TAB_COLUMNS } else { 1 };
        }
        if matches!(self.line.lead, LinePrefix::Blank) && self.line.begun {
            // A list mark was just read: what follows it is indented by as much.
            self.list_column = self.line.column;
        }
    }

    fn next_prefix(&mut self, c: char) -> LinePrefix {
        match self.line.lead {
            LinePrefix::Blank if is_blank(c) => LinePrefix::Blank,
            LinePrefix::Blank => self.initial_prefix(c),
            LinePrefix::Bullet { .. } if is_blank(c) => LinePrefix::Blank,
            LinePrefix::Digits { indent, count } if c.is_ascii_digit() && count < LIST_NUMBER_DIGITS_MAX => {
                LinePrefix::Digits { indent, count: count + 1 }
            }
            LinePrefix::Digits { indent, .. } if c == '.' || c == ')' => LinePrefix::Bullet { indent },
            LinePrefix::Bullet { indent } | LinePrefix::Digits { indent, .. } => {
                self.list_column = self.list_column.min(indent);
                LinePrefix::Plain
            }
            LinePrefix::FenceRun { mark, length } if c == mark => LinePrefix::FenceRun { mark, length: length + 1 },
            LinePrefix::FenceRun { mark, length } => {
                LinePrefix::FenceTail { mark, length, blank: is_blank(c), ticks: c == '`' }
            }
            LinePrefix::FenceTail { mark, length, blank, ticks } => {
                LinePrefix::FenceTail { mark, length, blank: blank && is_blank(c), ticks: ticks || c == '`' }
            }
            LinePrefix::Quote => LinePrefix::Quote,
            LinePrefix::Plain => LinePrefix::Plain,
        }
    }

    /// What a line becomes whose first character past the indentation is `c`.
    fn initial_prefix(&mut self, c: char) -> LinePrefix {
        let indent = self.line.column;
        if let Some(fence) = &self.fence {
            let may_close = c == fence.mark && indent <= fence.indent_max;
            return if may_close { LinePrefix::FenceRun { mark: c, length: 1 } } else { LinePrefix::Plain };
        }
        if indent > self.list_column + MARKDOWN_INDENT_MAX {
            return LinePrefix::Plain;
        }
        match c {
            '-' | '*' | '+' => return LinePrefix::Bullet { indent },
            '0'..='9' => return LinePrefix::Digits { indent, count: 1 },
            _ => self.list_column = self.list_column.min(indent),
        }
        match c {
            '`' | '~' => LinePrefix::FenceRun { mark: c, length: 1 },
            '>' => LinePrefix::Quote,
            _ => LinePrefix::Plain,
        }
    }

    fn end_line(&mut self) {
        let (mark, length, blank, ticks) = match self.line.lead {
            LinePrefix::FenceRun { mark, length } => (mark, length, true, false),
            LinePrefix::FenceTail { mark, length, blank, ticks } => (mark, length, blank, ticks),
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
        self.line = MarkdownLine::default();
    }
}

impl MarkdownLine {
    /// The code span that is open once the present run of backticks has ended.
    fn code_span_after_run(&self) -> Option<usize> {
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
