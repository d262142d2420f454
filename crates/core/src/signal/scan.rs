//! Reads a text once, character by character, and parts it into visible text and blocks. It decides where blocks begin
//! and end; of what is in them it only asks whether it was meant as a block at all. How the text is cut into chunks makes
//! no difference to it.

use super::lines::Lines;
use super::quoted::{Echo, Quotable};
use super::visible::Visible;
use super::{BlockNames, Complaint, Place, complain, fields};
use crate::limits::{BLOCK_BYTES_MAX, BLOCKS_MAX, MARKER_BLANKS_MAX};

/// The name in every end marker.
pub(super) const END: &str = "END";

/// A reading under way.
#[derive(Debug)]
pub(super) struct Scanner {
    names: BlockNames,
    quotable: Quotable,
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
    /// Whether the marker begins its line.
    begins_line: bool,
    content: String,
    /// What ends it: models like to name what they close.
    ends: [String; 4],
    /// Where the user wrote the same.
    echo: Echo,
    /// Its content has grown too long to be kept and is hidden.
    is_dropped: bool,
}

impl Open {
    /// Whether its marker has a line to itself.
    fn stands_alone(&self) -> bool {
        self.begins_line && self.content.lines().next().unwrap_or_default().trim().is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Marker {
    Start(String),
    End,
}

enum Verdict {
    /// May still become a marker.
    Partial,
    /// Is this marker.
    Whole(Marker),
    /// Is none and cannot become one.
    Not,
}

impl Scanner {
    pub(super) fn new(names: BlockNames, quotable: Quotable) -> Self {
        Self {
            names,
            quotable,
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
            let block = open.name.clone();
            // Of what is cut off nobody can tell whether it would have gone on like the user's.
            if open.echo.is_whole() && !open.stands_alone() && !open.content.trim().is_empty() {
                complain(&mut self.complaints, Complaint::Quoted { block });
                self.show(&open);
            } else if open.is_dropped {
                self.visible.block_removed();
            } else if self.is_meant(&open) {
                complain(&mut self.complaints, Complaint::Unclosed { block });
                self.visible.block_removed();
            } else {
                complain(&mut self.complaints, Complaint::Mentioned { marker: block });
                self.show(&open);
            }
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
                Verdict::Whole(marker) => {
                    self.marker(marker, candidate);
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
        let (label, closing) = named.split_at(named.find('>').unwrap_or(named.len()));
        let label = spaced(label).filter(|_| inner.len() - named.len() <= MARKER_BLANKS_MAX);
        let Some(label) = label else { return Verdict::Not };
        let name = label.trim_end_matches(is_blank);
        if closing.is_empty() {
            let begins =
                |known: &str, start: &str| known.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start));
            let may_be = |known: &str| begins(known, &label) || known.eq_ignore_ascii_case(name);
            return if self.labels().any(may_be) { Verdict::Partial } else { Verdict::Not };
        }
        let place = self.labels().position(|known| known.eq_ignore_ascii_case(name));
        match (place, closing) {
            (Some(_), ">" | ">>") => Verdict::Partial,
            (Some(place), ">>>") => match self.names.names().nth(place) {
                Some(name) => Verdict::Whole(Marker::Start(name.to_owned())),
                None => Verdict::Whole(Marker::End),
            },
            _ => Verdict::Not,
        }
    }

    /// What can stand in a marker here: the names, and in a block what ends it.
    fn labels(&self) -> impl Iterator<Item = &str> {
        let ends = self.open.iter().flat_map(|open| open.ends.iter().map(String::as_str));
        self.names.names().chain(ends)
    }

    fn marker(&mut self, marker: Marker, candidate: Candidate) {
        match (marker, &self.open, candidate.hidden) {
            (Marker::End, Some(_), None) => return self.close(&candidate.text),
            (Marker::End, Some(_), Some(_)) if candidate.begins_line => return self.close(&candidate.text),
            (Marker::Start(name), Some(open), None) if open.echo.is_whole() => {
                // What the user left open is not closed by the model's own block.
                self.release_echo("");
                return self.begin(name, candidate);
            }
            (Marker::Start(inner), Some(open), None) => {
                let complaint = Complaint::StartInside { block: open.name.clone(), inner };
                complain(&mut self.complaints, complaint);
            }
            // A block may well show in a fence what a block looks like.
            (Marker::Start(_), Some(_), Some(_)) => {}
            (Marker::Start(marker), None, Some(place)) => {
                complain(&mut self.complaints, Complaint::Hidden { marker, place });
            }
            (Marker::End, _, place) => {
                let hidden = place.map(|place| Complaint::Hidden { marker: END.to_owned(), place });
                hidden.into_iter().for_each(|complaint| complain(&mut self.complaints, complaint));
            }
            (Marker::Start(name), None, None) => return self.begin(name, candidate),
        }
        for c in candidate.text.chars() {
            self.text(c);
        }
    }

    fn begin(&mut self, name: String, candidate: Candidate) {
        let ends = [END.to_owned(), format!("{END} {name}"), format!("{END}_{name}"), format!("/{name}")];
        let echo = self.quotable.marked(&name);
        let Candidate { text: marker, begins_line, .. } = candidate;
        let content = String::new();
        self.open = Some(Open { name, marker, begins_line, content, ends, echo, is_dropped: false });
        self.lines = Lines::mid_line();
    }

    fn close(&mut self, marker: &str) {
        if self.open.as_ref().is_some_and(|open| self.quotable.ends(&open.echo)) {
            return self.release_echo(marker);
        }
        let Some(open) = self.open.take() else { return };
        if !open.is_dropped {
            if self.found.len() < BLOCKS_MAX {
                self.found.push((open.name, open.content));
            } else {
                complain(&mut self.complaints, Complaint::TooManyBlocks { block: open.name });
            }
        }
        self.lines = Lines::mid_line();
        self.visible.block_removed();
    }

    /// What the user wrote is shown as any text is.
    fn release_echo(&mut self, end: &str) {
        let Some(open) = self.open.take() else { return };
        complain(&mut self.complaints, Complaint::Quoted { block: open.name.clone() });
        self.show(&open);
        end.chars().for_each(|c| self.visible.text(c));
        self.lines = Lines::mid_line();
    }

    /// Whether what has no end was meant as a block and not only mentioned: it holds what such a block holds, its marker
    /// has a line to itself, or nothing follows.
    fn is_meant(&self, open: &Open) -> bool {
        let shape = self.names.shape(&open.name);
        open.stands_alone()
            || open.content.trim().is_empty()
            || shape.is_some_and(|shape| fields::is_any_key(&open.content, shape))
    }

    /// A character that is part of no marker.
    fn text(&mut self, c: char) {
        self.lines.step(c);
        let Some(open) = &mut self.open else {
            self.visible.text(c);
            return;
        };
        if open.is_dropped {
            return;
        }
        open.content.push(c);
        self.quotable.follow(&mut open.echo, c);
        if open.content.len() > BLOCK_BYTES_MAX
            && let Some(mut open) = self.open.take()
        {
            complain(&mut self.complaints, Complaint::TooLong { block: open.name.clone() });
            if !open.echo.is_whole() && self.is_meant(&open) {
                (open.content, open.is_dropped) = (String::new(), true);
                self.open = Some(open);
            } else {
                self.show(&open);
            }
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
            // The text was cut off in the marker of a block.
            let is_cut = candidate.text.chars().any(char::is_alphanumeric);
            if is_cut && self.open.is_none() && candidate.begins_line && candidate.hidden.is_none() {
                complain(&mut self.complaints, Complaint::CutMarker { text: candidate.text });
                self.visible.block_removed();
                return;
            }
            for c in candidate.text.chars() {
                self.text(c);
            }
        }
    }
}

/// What stands in a marker, with one blank for several; nothing if there are too many of them.
fn spaced(label: &str) -> Option<String> {
    let mut out = String::with_capacity(label.len());
    let mut blanks = 0;
    for c in label.chars() {
        blanks = if is_blank(c) { blanks + 1 } else { 0 };
        match blanks {
            0 => out.push(c),
            1 => out.push(' '),
            _ if blanks <= MARKER_BLANKS_MAX => {}
            _ => return None,
        }
    }
    Some(out)
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}
