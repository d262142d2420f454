//! Knows, while a text comes in character by character, whether a marker would count here. Of Markdown it knows what
//! that takes: fences, quotes, list items, runs of backticks. It renders nothing.

use super::Place;
use crate::limits::{FENCE_LENGTH_MIN, INDENT_MAX, LIST_DIGITS_MAX};

const TAB_COLUMNS: usize = 4;

/// The state of the lines read so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    fence: Option<Fence>,
    /// The column at which the content of the innermost list item begins; 0 outside lists.
    list_column: usize,
    line: Line,
}

#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent_max: usize,
}

#[derive(Debug, Default)]
struct Line {
    /// Columns read, as long as the lead is not settled.
    column: usize,
    /// Whether anything but white space was read.
    begun: bool,
    lead: Lead,
    /// The run of backticks being read.
    run: usize,
    /// The length of the run that opened a code span.
    span: Option<usize>,
}

/// What a line turns out to be.
#[derive(Debug, Default, Clone, Copy)]
enum Lead {
    /// Nothing but white space and list marks so far.
    #[default]
    Blank,
    /// What may be the mark of a list item that begins at this column.
    Bullet { indent: usize },
    /// Digits that may become such a mark.
    Digits { indent: usize, count: u8 },
    /// A run of fence characters.
    Run { mark: char, length: usize },
    /// What comes behind such a run: only blanks so far, any backtick so far.
    Tail { mark: char, length: usize, blank: bool, ticks: bool },
    /// A quote.
    Quote,
    /// Anything else.
    Plain,
}

impl Lines {
    /// As in the middle of an ordinary line.
    pub(super) fn mid_line() -> Self {
        Self { line: Line { begun: true, lead: Lead::Plain, ..Line::default() }, ..Self::default() }
    }

    /// Whether only white space was read on this line.
    pub(super) fn at_line_start(&self) -> bool {
        !self.line.begun
    }

    /// Why a marker that begins here does not count; `None` if it does.
    pub(super) fn hides(&self) -> Option<Place> {
        if self.fence.is_some() {
            return Some(Place::Fence);
        }
        match self.line.lead {
            Lead::Quote => return Some(Place::Quote),
            Lead::Run { mark: '~', length } | Lead::Tail { mark: '~', length, .. } if length >= FENCE_LENGTH_MIN => {
                return Some(Place::Fence);
            }
            _ => {}
        }
        self.line.span_after_run().map(|_| Place::Code)
    }

    /// Takes the next character.
    pub(super) fn step(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            return;
        }
        if c == '`' {
            self.line.run += 1;
        } else {
            self.line.span = self.line.span_after_run();
            self.line.run = 0;
        }
        self.line.lead = self.lead_after(c);
        self.line.begun |= !is_blank(c);
        if !matches!(self.line.lead, Lead::Plain | Lead::Quote) {
            self.line.column += if c == '\t' { TAB_COLUMNS - self.line.column % TAB_COLUMNS } else { 1 };
        }
        if matches!(self.line.lead, Lead::Blank) && self.line.begun {
            // A list mark was just read: what follows it is indented by as much.
            self.list_column = self.line.column;
        }
    }

    fn lead_after(&mut self, c: char) -> Lead {
        match self.line.lead {
            Lead::Blank if is_blank(c) => Lead::Blank,
            Lead::Blank => self.lead_of(c),
            Lead::Bullet { .. } if is_blank(c) => Lead::Blank,
            Lead::Digits { indent, count } if c.is_ascii_digit() && count < LIST_DIGITS_MAX => {
                Lead::Digits { indent, count: count + 1 }
            }
            Lead::Digits { indent, .. } if c == '.' || c == ')' => Lead::Bullet { indent },
            Lead::Bullet { indent } | Lead::Digits { indent, .. } => {
                self.list_column = self.list_column.min(indent);
                Lead::Plain
            }
            Lead::Run { mark, length } if c == mark => Lead::Run { mark, length: length + 1 },
            Lead::Run { mark, length } => Lead::Tail { mark, length, blank: is_blank(c), ticks: c == '`' },
            Lead::Tail { mark, length, blank, ticks } => {
                Lead::Tail { mark, length, blank: blank && is_blank(c), ticks: ticks || c == '`' }
            }
            Lead::Quote => Lead::Quote,
            Lead::Plain => Lead::Plain,
        }
    }

    /// What a line becomes whose first character past the indentation is `c`.
    fn lead_of(&mut self, c: char) -> Lead {
        let indent = self.line.column;
        if let Some(fence) = &self.fence {
            let may_close = c == fence.mark && indent <= fence.indent_max;
            return if may_close { Lead::Run { mark: c, length: 1 } } else { Lead::Plain };
        }
        if indent > self.list_column + INDENT_MAX {
            return Lead::Plain;
        }
        match c {
            '-' | '*' | '+' => return Lead::Bullet { indent },
            '0'..='9' => return Lead::Digits { indent, count: 1 },
            _ => self.list_column = self.list_column.min(indent),
        }
        match c {
            '`' | '~' => Lead::Run { mark: c, length: 1 },
            '>' => Lead::Quote,
            _ => Lead::Plain,
        }
    }

    fn end_line(&mut self) {
        let (mark, length, blank, ticks) = match self.line.lead {
            Lead::Run { mark, length } => (mark, length, true, false),
            Lead::Tail { mark, length, blank, ticks } => (mark, length, blank, ticks),
            _ => (' ', 0, false, false),
        };
        match &self.fence {
            Some(fence) if blank && length >= fence.length => self.fence = None,
            Some(_) => {}
            None if length >= FENCE_LENGTH_MIN && (mark == '~' || !ticks) => {
                self.fence = Some(Fence { mark, length, indent_max: self.list_column + INDENT_MAX });
            }
            None => {}
        }
        self.line = Line::default();
    }
}

impl Line {
    /// The code span that is open once the present run of backticks has ended.
    fn span_after_run(&self) -> Option<usize> {
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
