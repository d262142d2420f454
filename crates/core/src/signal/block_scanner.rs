//! Splits a text into visible text and blocks in one pass. It decides where blocks begin and end. Of their content it
//! only checks whether a block was intended at all. The result does not depend on how the text is split into chunks.

use super::markdown_lines::MarkdownTracker;
use super::near_miss::{self, CodeFenceMarker, NearMissMarkerMatch};
use super::user_quotes::{UserQuoteMatch, UserQuotedMarkerMatcher};
use super::visible_text::VisibleTextGapMerger;
use super::{BlockComplaint, BlockSet, MarkerIgnoredRegion, fields, push_complaint, shorten_excerpt};
use crate::limits::{BLOCK_BYTES_MAX, BLOCKS_PER_TEXT_MAX, MARKER_SPACES_MAX};

/// The name in every end marker.
pub(super) const END_MARKER_NAME: &str = "END";

/// A scan in progress.
#[derive(Debug)]
pub(super) struct BlockScanner {
    names: BlockSet,
    quotes: UserQuotedMarkerMatcher,
    lines: MarkdownTracker,
    visible: VisibleTextGapMerger,
    /// Text that may become a marker.
    candidate: Option<MarkerCandidate>,
    /// Text from the beginning of a line that may become a near-miss marker.
    held_line: Option<String>,
    /// The fence around a block that has ended. The line that closes it is hidden too.
    fence_to_close: Option<CodeFenceMarker>,
    open: Option<OpenBlock>,
    found: Vec<(String, String)>,
    complaints: Vec<BlockComplaint>,
}

#[derive(Debug)]
struct MarkerCandidate {
    text: String,
    /// True if it is at the beginning of its line.
    begins_line: bool,
    ignored_region: Option<MarkerIgnoredRegion>,
}

#[derive(Debug)]
struct OpenBlock {
    name: String,
    /// The marker as written, which is shown if this is not a block.
    marker: String,
    /// True if the marker is at the beginning of its line.
    begins_line: bool,
    content: String,
    /// The labels of possible end markers. Models often name the block that they close.
    ends: [String; 4],
    /// The matching positions in the user's texts.
    quote_match: UserQuoteMatch,
    /// True if the content is too long to be kept. It is hidden.
    is_dropped: bool,
    /// True if the marker is a near miss.
    is_near_miss: bool,
    /// The fence around the block.
    fence: Option<CodeFenceMarker>,
}

impl OpenBlock {
    /// Returns true if the marker has its own line.
    fn has_marker_on_own_line(&self) -> bool {
        self.begins_line && self.content.lines().next().unwrap_or_default().trim().is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BlockMarker {
    Start(String),
    End,
}

enum BlockMarkerMatch {
    /// The text may still become a marker.
    Partial,
    /// The text is this marker.
    Complete(BlockMarker),
    /// The text is not a marker and cannot become one.
    NoMatch,
}

impl BlockScanner {
    pub(super) fn new(names: BlockSet, quotes: UserQuotedMarkerMatcher) -> Self {
        Self {
            names,
            quotes,
            lines: MarkdownTracker::default(),
            visible: VisibleTextGapMerger::default(),
            candidate: None,
            held_line: None,
            fence_to_close: None,
            open: None,
            found: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Processes the next chunk and returns the visible text that is final now.
    pub(super) fn push(&mut self, chunk: &str) -> String {
        for c in chunk.chars() {
            self.push_char(c);
        }
        self.visible.take_ready()
    }

    /// Ends the text and returns the rest of the visible text.
    pub(super) fn finish(&mut self) -> String {
        self.flush_possible_marker_line();
        self.flush_marker_candidate();
        if let Some(open) = self.open.take() {
            let block = open.name.clone();
            // For a block that is cut off, it is unknown whether it would have continued like the user's.
            if open.quote_match.is_matching() && !open.has_marker_on_own_line() && !open.content.trim().is_empty() {
                push_complaint(&mut self.complaints, BlockComplaint::QuotedFromUser { block });
                self.show_as_text(&open);
            } else if open.is_dropped {
                self.visible.mark_block_removed();
            } else if self.is_intended_block(&open) {
                push_complaint(&mut self.complaints, BlockComplaint::UnclosedBlock { block });
                self.visible.mark_block_removed();
            } else {
                push_complaint(&mut self.complaints, BlockComplaint::MarkerMentioned { marker: block });
                self.show_as_text(&open);
            }
        }
        self.visible.finish();
        self.visible.take_ready()
    }

    /// Returns the names and contents of the blocks, and the complaints.
    pub(super) fn into_blocks_and_complaints(self) -> (Vec<(String, String)>, Vec<BlockComplaint>) {
        (self.found, self.complaints)
    }

    /// Drops the blocks found so far, if only the visible text is needed.
    pub(super) fn discard_blocks(&mut self) {
        self.found.clear();
        self.complaints.clear();
    }

    fn push_char(&mut self, c: char) {
        if let Some(mut held) = self.held_line.take() {
            held.push(c);
            self.handle_possible_marker_line(held);
        } else if self.may_begin_near_miss(c) {
            self.handle_possible_marker_line(c.to_string());
        } else {
            self.push_char_outside_near_miss(c);
        }
    }

    fn may_begin_near_miss(&self, c: char) -> bool {
        if self.candidate.is_some() || !self.lines.is_at_line_start() {
            return false;
        }
        match &self.open {
            Some(_) => near_miss::may_begin_end_marker(c),
            None => self.lines.ignored_region().is_none() && near_miss::may_begin_start_marker(c, &self.names),
        }
    }

    fn match_possible_marker_line(&self, text: &str, is_end: bool) -> NearMissMarkerMatch {
        let found = match (&self.open, self.fence_to_close) {
            (Some(open), _) => near_miss::match_end_marker(text, &open.ends, open.is_near_miss, open.fence, is_end),
            (None, Some(fence)) if text.starts_with(fence.mark) => near_miss::match_closing_fence(text, fence, is_end),
            (None, _) => near_miss::match_start_marker(text, &self.names, is_end),
        };
        match &found {
            NearMissMarkerMatch::Start { name, len, fence } => {
                let is_quote = match fence {
                    Some(_) => self.quotes.start_quote_match(name).is_matching(),
                    None => self.quotes.has_user_line(&text[..*len]),
                };
                if is_quote { NearMissMarkerMatch::NoMatch } else { found }
            }
            _ => found,
        }
    }

    fn handle_possible_marker_line(&mut self, text: String) {
        match self.match_possible_marker_line(&text, false) {
            NearMissMarkerMatch::Partial { .. } => self.held_line = Some(text),
            found => self.apply_near_miss(found, &text),
        }
    }

    fn flush_possible_marker_line(&mut self) {
        while let Some(text) = self.held_line.take() {
            let so_far = self.match_possible_marker_line(&text, false);
            let found = self.match_possible_marker_line(&text, true);
            let is_cut = [&so_far, &found].contains(&&NearMissMarkerMatch::Partial { is_named: true });
            if is_cut && !matches!(found, NearMissMarkerMatch::Start { .. } | NearMissMarkerMatch::End { .. }) {
                push_complaint(&mut self.complaints, BlockComplaint::TruncatedMarker { text: shorten_excerpt(&text) });
                self.visible.mark_block_removed();
            } else {
                self.apply_near_miss(found, &text);
            }
        }
    }

    /// Opens or closes a block at a near-miss marker, or treats the text as ordinary.
    fn apply_near_miss(&mut self, found: NearMissMarkerMatch, text: &str) {
        let len = match found {
            NearMissMarkerMatch::Start { name, len, fence } => {
                self.complain_of_near_miss(&text[..len], &name);
                let marker = text[..len].to_owned();
                self.open_block(name, MarkerCandidate { text: marker, begins_line: true, ignored_region: None });
                if let Some(open) = &mut self.open {
                    (open.is_near_miss, open.fence) = (true, fence);
                }
                self.fence_to_close = None;
                len
            }
            NearMissMarkerMatch::End { len } if self.open.is_some() => {
                self.complain_of_near_miss(&text[..len], END_MARKER_NAME);
                let is_fence =
                    self.open.as_ref().and_then(|open| open.fence).is_some_and(|it| text.starts_with(it.mark));
                self.close_block(&text[..len]);
                self.fence_to_close = self.fence_to_close.filter(|_| !is_fence);
                len
            }
            NearMissMarkerMatch::End { len } => {
                self.fence_to_close = None;
                self.lines = MarkdownTracker::mid_line();
                self.visible.mark_block_removed();
                len
            }
            NearMissMarkerMatch::Partial { .. } | NearMissMarkerMatch::NoMatch => {
                let first = text.chars().next();
                first.into_iter().for_each(|c| self.push_char_outside_near_miss(c));
                first.map_or(0, char::len_utf8)
            }
        };
        text[len..].chars().for_each(|c| self.push_char(c));
    }

    fn complain_of_near_miss(&mut self, marker: &str, name: &str) {
        let complaint = BlockComplaint::NearMissMarker { marker: shorten_excerpt(marker), name: name.to_owned() };
        push_complaint(&mut self.complaints, complaint);
    }

    /// Processes a character that does not belong to a near-miss marker.
    fn push_char_outside_near_miss(&mut self, c: char) {
        if let Some(mut candidate) = self.candidate.take() {
            candidate.text.push(c);
            match self.match_marker(&candidate.text) {
                BlockMarkerMatch::Partial => {
                    self.candidate = Some(candidate);
                    return;
                }
                BlockMarkerMatch::Complete(marker) => {
                    self.handle_marker(marker, candidate);
                    return;
                }
                BlockMarkerMatch::NoMatch => {
                    candidate.text.pop();
                }
            }
            let in_run = c == '<' && candidate.text == "<<<";
            let ordinary = if in_run { "<" } else { candidate.text.as_str() };
            for c in ordinary.chars() {
                self.push_char_outside_marker(c);
            }
            if in_run {
                self.candidate = Some(MarkerCandidate { begins_line: false, ..candidate });
                return;
            }
        }
        if c == '<' {
            self.candidate = Some(MarkerCandidate {
                text: c.to_string(),
                begins_line: self.lines.is_at_line_start(),
                ignored_region: self.lines.ignored_region(),
            });
        } else {
            self.push_char_outside_marker(c);
        }
    }

    /// Returns whether `text`, which begins with `<`, is a marker or may become one. It is never longer than the
    /// longest marker.
    fn match_marker(&self, text: &str) -> BlockMarkerMatch {
        let Some(inner) = text.strip_prefix("<<<") else {
            return if text.len() < 3 && text.bytes().all(|byte| byte == b'<') {
                BlockMarkerMatch::Partial
            } else {
                BlockMarkerMatch::NoMatch
            };
        };
        let named = inner.trim_start_matches(is_blank);
        let (label, closing) = named.split_at(named.find('>').unwrap_or(named.len()));
        let label = collapse_blanks(label).filter(|_| inner.len() - named.len() <= MARKER_SPACES_MAX);
        let Some(label) = label else { return BlockMarkerMatch::NoMatch };
        let name = label.trim_end_matches(is_blank);
        if closing.is_empty() {
            let begins =
                |known: &str, start: &str| known.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start));
            let may_be = |known: &str| begins(known, &label) || known.eq_ignore_ascii_case(name);
            return if self.marker_labels().any(may_be) {
                BlockMarkerMatch::Partial
            } else {
                BlockMarkerMatch::NoMatch
            };
        }
        let index = self.marker_labels().position(|known| known.eq_ignore_ascii_case(name));
        match (index, closing) {
            (Some(_), ">" | ">>") => BlockMarkerMatch::Partial,
            (Some(index), ">>>") => match self.names.block_names().nth(index) {
                Some(name) => BlockMarkerMatch::Complete(BlockMarker::Start(name.to_owned())),
                None => BlockMarkerMatch::Complete(BlockMarker::End),
            },
            _ => BlockMarkerMatch::NoMatch,
        }
    }

    /// Returns the labels that a marker can have here: the block names and, in a block, its end labels.
    fn marker_labels(&self) -> impl Iterator<Item = &str> {
        let ends = self.open.iter().flat_map(|open| open.ends.iter().map(String::as_str));
        self.names.block_names().chain(ends)
    }

    fn handle_marker(&mut self, marker: BlockMarker, candidate: MarkerCandidate) {
        match (marker, &self.open, candidate.ignored_region) {
            (BlockMarker::End, Some(_), None) => return self.close_block(&candidate.text),
            (BlockMarker::End, Some(_), Some(_)) if candidate.begins_line => return self.close_block(&candidate.text),
            (BlockMarker::Start(name), Some(open), None) if open.quote_match.is_matching() => {
                // A block that the user left open is not closed by the model's own block.
                self.show_quoted_block("");
                return self.open_block(name, candidate);
            }
            (BlockMarker::Start(inner), Some(open), None) => {
                let complaint = BlockComplaint::NestedStartMarker { block: open.name.clone(), inner };
                push_complaint(&mut self.complaints, complaint);
            }
            // A block may show an example of a block in a fence.
            (BlockMarker::Start(_), Some(_), Some(_)) => {}
            (BlockMarker::Start(marker), None, Some(region)) => {
                push_complaint(
                    &mut self.complaints,
                    BlockComplaint::IgnoredMarker { marker, region: region.to_string() },
                );
            }
            (BlockMarker::End, _, region) => {
                let hidden = region.map(|region| BlockComplaint::IgnoredMarker {
                    marker: END_MARKER_NAME.to_owned(),
                    region: region.to_string(),
                });
                hidden.into_iter().for_each(|complaint| push_complaint(&mut self.complaints, complaint));
            }
            (BlockMarker::Start(name), None, None) => return self.open_block(name, candidate),
        }
        for c in candidate.text.chars() {
            self.push_char_outside_marker(c);
        }
    }

    fn open_block(&mut self, name: String, candidate: MarkerCandidate) {
        let ends = [
            END_MARKER_NAME.to_owned(),
            format!("{END_MARKER_NAME} {name}"),
            format!("{END_MARKER_NAME}_{name}"),
            format!("/{name}"),
        ];
        let quote_match = self.quotes.start_quote_match(&name);
        let MarkerCandidate { text: marker, begins_line, .. } = candidate;
        let content = String::new();
        self.open = Some(OpenBlock {
            name,
            marker,
            begins_line,
            content,
            ends,
            quote_match,
            is_dropped: false,
            is_near_miss: false,
            fence: None,
        });
        self.lines = MarkdownTracker::mid_line();
    }

    fn close_block(&mut self, marker: &str) {
        if self.open.as_ref().is_some_and(|open| self.quotes.is_complete_quote(&open.quote_match)) {
            return self.show_quoted_block(marker);
        }
        let Some(open) = self.open.take() else { return };
        self.fence_to_close = open.fence;
        if !open.is_dropped {
            if self.found.len() < BLOCKS_PER_TEXT_MAX {
                self.found.push((open.name, open.content));
            } else {
                push_complaint(&mut self.complaints, BlockComplaint::TooManyBlocks { block: open.name });
            }
        }
        self.lines = MarkdownTracker::mid_line();
        self.visible.mark_block_removed();
    }

    /// Shows a block that is quoted from the user.
    fn show_quoted_block(&mut self, end: &str) {
        let Some(open) = self.open.take() else { return };
        push_complaint(&mut self.complaints, BlockComplaint::QuotedFromUser { block: open.name.clone() });
        self.show_as_text(&open);
        end.chars().for_each(|c| self.visible.push_char(c));
        self.lines = MarkdownTracker::mid_line();
    }

    /// Returns true if a block without an end was intended as one and not only mentioned: it contains a known key, its
    /// marker has its own line, or nothing follows.
    fn is_intended_block(&self, open: &OpenBlock) -> bool {
        let schema = self.names.block_schema(&open.name);
        open.has_marker_on_own_line()
            || open.content.trim().is_empty()
            || schema.is_some_and(|schema| fields::has_known_key(&open.content, schema))
    }

    /// Processes a character that is not part of a marker.
    fn push_char_outside_marker(&mut self, c: char) {
        self.lines.push_char(c);
        let Some(open) = &mut self.open else {
            self.visible.push_char(c);
            return;
        };
        if open.is_dropped {
            return;
        }
        open.content.push(c);
        self.quotes.advance_quote_match(&mut open.quote_match, c);
        if open.content.len() > BLOCK_BYTES_MAX
            && let Some(mut open) = self.open.take()
        {
            push_complaint(&mut self.complaints, BlockComplaint::BlockTooLong { block: open.name.clone() });
            if !open.quote_match.is_matching() && self.is_intended_block(&open) {
                (open.content, open.is_dropped) = (String::new(), true);
                self.open = Some(open);
            } else {
                self.show_as_text(&open);
            }
        }
    }

    /// Shows text that is not a block.
    fn show_as_text(&mut self, open: &OpenBlock) {
        for c in open.marker.chars().chain(open.content.chars()) {
            self.visible.push_char(c);
        }
    }

    fn flush_marker_candidate(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            // The text was cut off in the marker of a block.
            let is_cut = candidate.text.chars().any(char::is_alphanumeric);
            if is_cut && self.open.is_none() && candidate.begins_line && candidate.ignored_region.is_none() {
                push_complaint(&mut self.complaints, BlockComplaint::TruncatedMarker { text: candidate.text });
                self.visible.mark_block_removed();
                return;
            }
            for c in candidate.text.chars() {
                self.push_char_outside_marker(c);
            }
        }
    }
}

/// Replaces each run of blanks in a label by one space; returns `None` if a run is too long.
fn collapse_blanks(label: &str) -> Option<String> {
    let mut out = String::with_capacity(label.len());
    let mut blanks = 0;
    for c in label.chars() {
        blanks = if is_blank(c) { blanks + 1 } else { 0 };
        match blanks {
            0 => out.push(c),
            1 => out.push(' '),
            _ if blanks <= MARKER_SPACES_MAX => {}
            _ => return None,
        }
    }
    Some(out)
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}
