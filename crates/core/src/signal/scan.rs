//! Reads a text once, character by character, and parts it into visible text and blocks. It decides where blocks begin
//! and end; what is in them is not its business. How the text is cut into chunks makes no difference to it.

use super::lines::Lines;
use super::visible::Visible;
use super::{Complaint, Place, complain};
use crate::limits::{BLOCK_BYTES_MAX, BLOCKS_MAX, MARKER_BLANKS_MAX};

/// The name in every end marker.
pub(super) const END: &str = "END";

/// A reading under way.
#[derive(Debug)]
pub(super) struct Scanner {
    names: Vec<String>,
    lines: Lines,
    visible: Visible,
    /// What may become a marker.
    candidate: Option<Candidate>,
    open: Option<Open>,
    found: Vec<(String, String)>,
    complaints: Vec<Complaint>,
}

#[derive(Debug)]
struct Candidate {
    text: String,
    /// Whether it begins its line.
    begins_line: bool,
    hidden: Option<Place>,
}

#[derive(Debug)]
struct Open {
    name: String,
    /// The marker as it was written, to be shown should this be no block.
    marker: String,
    content: String,
}

enum Verdict {
    /// May still become a marker.
    Partial,
    /// Is the marker of this name.
    Whole(String),
    /// Is none and cannot become one.
    Not,
}

impl Scanner {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            names,
            lines: Lines::default(),
            visible: Visible::default(),
            candidate: None,
            open: None,
            found: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Takes the next chunk; returns the visible text that is certain now.
    pub(super) fn push(&mut self, chunk: &str) -> String {
        for c in chunk.chars() {
            self.step(c);
        }
        self.visible.take()
    }

    /// The text has ended; returns the rest of the visible text.
    pub(super) fn finish(&mut self) -> String {
        self.release_candidate();
        if let Some(open) = self.open.take() {
            complain(&mut self.complaints, Complaint::Unclosed { block: open.name.clone() });
            self.show(&open);
        }
        self.visible.end();
        self.visible.take()
    }

    /// Names and contents of the blocks found, and what was amiss.
    pub(super) fn into_findings(self) -> (Vec<(String, String)>, Vec<Complaint>) {
        (self.found, self.complaints)
    }

    /// Forgets the blocks found so far, for a reader who wants only the visible text.
    pub(super) fn forget_findings(&mut self) {
        self.found.clear();
        self.complaints.clear();
    }

    fn step(&mut self, c: char) {
        if let Some(mut candidate) = self.candidate.take() {
            candidate.text.push(c);
            match self.judge(&candidate.text) {
                Verdict::Partial => {
                    self.candidate = Some(candidate);
                    return;
                }
                Verdict::Whole(name) => {
                    self.marker(name, candidate);
                    return;
                }
                Verdict::Not => {
                    candidate.text.pop();
                }
            }
            let in_run = c == '<' && candidate.text == "<<<";
            let ordinary = if in_run { "<" } else { candidate.text.as_str() };
            for c in ordinary.chars() {
                self.text(c);
            }
            if in_run {
                self.candidate = Some(Candidate { begins_line: false, ..candidate });
                return;
            }
        }
        if c == '<' {
            self.candidate = Some(Candidate {
                text: c.to_string(),
                begins_line: self.lines.at_line_start(),
                hidden: self.lines.hides(),
            });
        } else {
            self.text(c);
        }
    }

    /// What `text`, which begins with `<`, is or may become. It is never longer than the longest marker.
    fn judge(&self, text: &str) -> Verdict {
        let Some(inner) = text.strip_prefix("<<<") else {
            return if text.len() < 3 && text.bytes().all(|byte| byte == b'<') {
                Verdict::Partial
            } else {
                Verdict::Not
            };
        };
        let named = inner.trim_start_matches(is_blank);
        let name_len = named.find(|c| is_blank(c) || c == '>').unwrap_or(named.len());
        let (name, rest) = named.split_at(name_len);
        let closing = rest.trim_start_matches(is_blank);
        if inner.len() - named.len() > MARKER_BLANKS_MAX || rest.len() - closing.len() > MARKER_BLANKS_MAX {
            return Verdict::Not;
        }
        let end = self.open.is_some().then_some(END);
        let mut known = self.names.iter().map(String::as_str).chain(end);
        if rest.is_empty() {
            let begins = |full: &str| full.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
            return if known.any(begins) { Verdict::Partial } else { Verdict::Not };
        }
        match (known.find(|full| full.eq_ignore_ascii_case(name)), closing) {
            (Some(_), "" | ">" | ">>") => Verdict::Partial,
            (Some(full), ">>>") => Verdict::Whole(full.to_owned()),
            _ => Verdict::Not,
        }
    }

    fn marker(&mut self, name: String, candidate: Candidate) {
        let is_end = name == END;
        match (&self.open, candidate.hidden) {
            (Some(_), None) if is_end => return self.close(),
            (Some(_), Some(_)) if is_end && candidate.begins_line => return self.close(),
            (Some(open), None) => {
                let complaint = Complaint::StartInside { block: open.name.clone(), inner: name };
                complain(&mut self.complaints, complaint);
            }
            // A block may well show in a fence what a block looks like.
            (Some(_), Some(_)) if !is_end => {}
            (_, Some(place)) => complain(&mut self.complaints, Complaint::Hidden { marker: name, place }),
            (None, None) => {
                self.open = Some(Open { name, marker: candidate.text, content: String::new() });
                self.lines = Lines::mid_line();
                return;
            }
        }
        for c in candidate.text.chars() {
            self.text(c);
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.found.len() < BLOCKS_MAX {
            self.found.push((open.name, open.content));
        } else {
            complain(&mut self.complaints, Complaint::TooManyBlocks { block: open.name });
        }
        self.lines = Lines::mid_line();
        self.visible.block_removed();
    }

    /// A character that is part of no marker.
    fn text(&mut self, c: char) {
        self.lines.step(c);
        let Some(open) = &mut self.open else {
            self.visible.text(c);
            return;
        };
        open.content.push(c);
        if open.content.len() > BLOCK_BYTES_MAX
            && let Some(open) = self.open.take()
        {
            complain(&mut self.complaints, Complaint::TooLong { block: open.name.clone() });
            self.show(&open);
        }
    }

    /// Shows what turned out to be no block.
    fn show(&mut self, open: &Open) {
        for c in open.marker.chars().chain(open.content.chars()) {
            self.visible.text(c);
        }
    }

    fn release_candidate(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            for c in candidate.text.chars() {
                self.text(c);
            }
        }
    }
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}
