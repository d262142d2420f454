//! Recognises markers that a model almost wrote: other brackets, bold text or a heading instead of brackets, or a code
//! fence around a whole block. It only looks at the beginning of lines, and decides from the text so far, so that a
//! stream can be parsed as it arrives.

use super::{BlockSet, fields};
use crate::limits::{
    FENCE_LENGTH_MIN, MARKER_BRACKETS_MAX, MARKER_SPACES_MAX, NEAR_MISS_BYTES_MAX, NEAR_MISS_LETTERS_MIN,
};

/// What the text from the beginning of a line is, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NearMissMarkerMatch {
    /// The text may still become a near-miss marker.
    Partial {
        /// True if the name of a block is complete, so that the text is hidden if nothing follows.
        is_named: bool,
    },
    /// The text begins with a marker for this block.
    Start {
        name: String,
        /// The length of the marker, with the fence before it.
        len: usize,
        fence: Option<CodeFenceMarker>,
    },
    /// The text is the end of the open block.
    End {
        /// The length of the marker.
        len: usize,
    },
    /// The text is something else.
    NoMatch,
}

/// The characters that opened a code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeFenceMarker {
    pub(super) mark: char,
    length: usize,
}

/// How a line relates to the names that a marker can have.
enum MarkerLineMatch<'a> {
    Partial,
    /// The line is this name in brackets.
    Bracketed(&'a str),
    /// The line is this name with other decoration, or none.
    Decorated(&'a str),
    /// The line is an exact marker for this name.
    Exact(&'a str),
    NoMatch,
}

/// Returns true if a near-miss marker can begin with this character.
pub(super) fn may_begin_start_marker(c: char, names: &BlockSet) -> bool {
    matches!(c, '<' | '>' | '*' | '_' | '#' | '[' | '`' | '~') || names.block_names().any(|name| name.starts_with(c))
}

/// Returns true if a near-miss end marker can begin with this character.
pub(super) fn may_begin_end_marker(c: char) -> bool {
    matches!(c, '<' | '>' | '*' | '_' | '#' | '[' | '`' | '~' | 'E' | '/')
}

/// Classifies text outside blocks. `is_end` says that no text follows.
pub(super) fn match_start_marker(text: &str, names: &BlockSet, is_end: bool) -> NearMissMarkerMatch {
    if text.len() > NEAR_MISS_BYTES_MAX {
        return NearMissMarkerMatch::NoMatch;
    }
    if text.starts_with(['`', '~']) {
        match_fenced_start_marker(text, names, is_end)
    } else {
        match_start_marker_line(text, names, is_end)
    }
}

/// Classifies text at the beginning of a line in a block that `labels` end. In a block that itself began with a near
/// miss, the end may be decorated too, or be the end of the fence around the block.
pub(super) fn match_end_marker(
    text: &str,
    labels: &[String],
    is_near_miss: bool,
    fence: Option<CodeFenceMarker>,
    is_end: bool,
) -> NearMissMarkerMatch {
    if text.len() > NEAR_MISS_BYTES_MAX {
        return NearMissMarkerMatch::NoMatch;
    }
    if let Some(fence) = fence
        && text.starts_with(fence.mark)
    {
        return match_closing_fence(text, fence, is_end);
    }
    let (line, is_complete) = first_line(text, is_end);
    match classify_line(line, labels.iter().map(String::as_str), is_complete) {
        MarkerLineMatch::Partial => NearMissMarkerMatch::Partial { is_named: false },
        MarkerLineMatch::Bracketed(_) => NearMissMarkerMatch::End { len: line.trim_end().len() },
        MarkerLineMatch::Decorated(_) if is_near_miss => NearMissMarkerMatch::End { len: line.trim_end().len() },
        _ => NearMissMarkerMatch::NoMatch,
    }
}

/// Classifies a line that may close `fence`.
pub(super) fn match_closing_fence(text: &str, fence: CodeFenceMarker, is_end: bool) -> NearMissMarkerMatch {
    let (line, is_complete) = first_line(text, is_end);
    let rest = line.trim_start_matches(fence.mark);
    if text.len() > NEAR_MISS_BYTES_MAX || !rest.trim().is_empty() {
        NearMissMarkerMatch::NoMatch
    } else if !is_complete {
        NearMissMarkerMatch::Partial { is_named: false }
    } else if line.len() - rest.len() >= fence.length {
        NearMissMarkerMatch::End { len: line.trim_end().len() }
    } else {
        NearMissMarkerMatch::NoMatch
    }
}

fn match_start_marker_line(text: &str, names: &BlockSet, is_end: bool) -> NearMissMarkerMatch {
    let (line, is_complete) = first_line(text, is_end);
    match classify_line(line, names.block_names(), is_complete) {
        MarkerLineMatch::Partial => NearMissMarkerMatch::Partial { is_named: is_partial_bracketed_marker(line) },
        MarkerLineMatch::Bracketed(name) => {
            NearMissMarkerMatch::Start { name: name.to_owned(), len: line.trim_end().len(), fence: None }
        }
        MarkerLineMatch::Decorated(name) => {
            match_text_after_marker(&text[line.len()..], name, names, is_end).unwrap_or_else(|| {
                NearMissMarkerMatch::Start { name: name.to_owned(), len: line.trim_end().len(), fence: None }
            })
        }
        MarkerLineMatch::Exact(_) | MarkerLineMatch::NoMatch => NearMissMarkerMatch::NoMatch,
    }
}

/// Returns what the text after a marker says about it; `None` if a known key follows.
fn match_text_after_marker(after: &str, name: &str, names: &BlockSet, is_end: bool) -> Option<NearMissMarkerMatch> {
    let partial = NearMissMarkerMatch::Partial { is_named: true };
    let text = after.trim_start();
    let (line, is_complete) = first_line(text, is_end);
    if line.is_empty() {
        return Some(partial);
    }
    let Some(schema) = names.block_schema(name) else { return Some(NearMissMarkerMatch::NoMatch) };
    let is_known = |line: &str| fields::has_known_key(line, schema);
    match line.find(':') {
        Some(colon) if is_known(&line[..=colon]) => None,
        // The asterisks of a bold key may follow the colon.
        Some(colon) if !is_complete && line.len() <= colon + 2 => Some(partial),
        Some(_) if is_known(line) => None,
        None if (!is_complete || is_end) && fields::may_become_known_key(line, schema) => Some(partial),
        _ => Some(NearMissMarkerMatch::NoMatch),
    }
}

/// Classifies a code fence, which is a near miss if it contains a marker in its first line and a known key in the next.
fn match_fenced_start_marker(text: &str, names: &BlockSet, is_end: bool) -> NearMissMarkerMatch {
    let mark = if text.starts_with('`') { '`' } else { '~' };
    let (opening, is_complete) = first_line(text, is_end);
    let info = opening.trim_start_matches(mark);
    let fence = CodeFenceMarker { mark, length: opening.len() - info.len() };
    let is_open_run = info.is_empty() && !is_complete;
    if info.contains('`') || (fence.length < FENCE_LENGTH_MIN && !is_open_run) {
        return NearMissMarkerMatch::NoMatch;
    }
    let inner = text[opening.len()..].trim_start();
    let start = text.len() - inner.len();
    let (line, is_complete) = first_line(inner, is_end);
    if line.is_empty() {
        return NearMissMarkerMatch::Partial { is_named: false };
    }
    match classify_line(line, names.block_names(), is_complete) {
        MarkerLineMatch::Partial => NearMissMarkerMatch::Partial { is_named: false },
        MarkerLineMatch::Bracketed(name) | MarkerLineMatch::Decorated(name) | MarkerLineMatch::Exact(name) => {
            match_text_after_marker(&inner[line.len()..], name, names, is_end).unwrap_or_else(|| {
                NearMissMarkerMatch::Start {
                    name: name.to_owned(),
                    len: start + line.trim_end().len(),
                    fence: Some(fence),
                }
            })
        }
        MarkerLineMatch::NoMatch => NearMissMarkerMatch::NoMatch,
    }
}

/// Returns the first line without its end, and whether it is complete.
fn first_line(text: &str, is_end: bool) -> (&str, bool) {
    match text.find('\n') {
        Some(end) => (&text[..end], true),
        None => (text, is_end),
    }
}

fn classify_line<'a>(line: &str, names: impl Iterator<Item = &'a str>, is_complete: bool) -> MarkerLineMatch<'a> {
    if line.starts_with(['<', '>']) {
        classify_bracketed(line, names, is_complete)
    } else {
        classify_decorated(line, names, is_complete)
    }
}

fn classify_bracketed<'a>(line: &str, names: impl Iterator<Item = &'a str>, is_complete: bool) -> MarkerLineMatch<'a> {
    let (opening, rest) = split_leading_equal_chars(line);
    if opening.len() > MARKER_BRACKETS_MAX || (opening == ">" && !rest.is_empty()) {
        return MarkerLineMatch::NoMatch;
    }
    let label = rest.trim_start_matches(is_blank);
    let end = label.find(['<', '>']).unwrap_or(label.len());
    let (label, closing) = label.split_at(end);
    let name = label.trim_end_matches(is_blank);
    if rest.len() - label.len() - closing.len() > MARKER_SPACES_MAX || label.len() - name.len() > MARKER_SPACES_MAX {
        return MarkerLineMatch::NoMatch;
    }
    let (closing, tail) = split_leading_equal_chars(closing);
    // While the text grows, more brackets may follow.
    let is_single = opening.len() == 1 || (closing.len() == 1 && (is_complete || !tail.is_empty()));
    for known in names {
        let is_same = if is_single && !closing.is_empty() { known == name } else { known.eq_ignore_ascii_case(name) };
        let is_part = known.get(..label.len()).is_some_and(|part| part.eq_ignore_ascii_case(label));
        if closing.is_empty() && !is_complete && (is_same || is_part) {
            return MarkerLineMatch::Partial;
        }
        if is_same && !closing.is_empty() && closing.len() <= MARKER_BRACKETS_MAX && tail.trim().is_empty() {
            return match (opening, closing, is_complete) {
                ("<<<", ">>>", true) => MarkerLineMatch::Exact(known),
                (_, _, true) => MarkerLineMatch::Bracketed(known),
                _ => MarkerLineMatch::Partial,
            };
        }
    }
    MarkerLineMatch::NoMatch
}

/// Splits off the run of equal characters at the beginning.
fn split_leading_equal_chars(text: &str) -> (&str, &str) {
    let Some(first) = text.chars().next() else { return ("", "") };
    text.split_at(text.len() - text.trim_start_matches(first).len())
}

/// Classifies a line such as `**NAME**`, `## NAME`, `[NAME]` or `NAME:`. The name must be in upper case.
fn classify_decorated<'a>(line: &str, names: impl Iterator<Item = &'a str>, is_complete: bool) -> MarkerLineMatch<'a> {
    let name = line.trim_start_matches(['*', '_', '#', '[', ' ']);
    for known in names {
        if !is_complete && known.starts_with(name) {
            return MarkerLineMatch::Partial;
        }
        let Some(tail) = name.strip_prefix(known) else { continue };
        if tail.trim_end().chars().all(|c| matches!(c, '*' | '_' | '#' | ']' | ':' | ' ')) {
            return if is_complete { MarkerLineMatch::Decorated(known) } else { MarkerLineMatch::Partial };
        }
    }
    MarkerLineMatch::NoMatch
}

/// Returns true if a line that ends the text is enough of a bracketed marker to be hidden.
fn is_partial_bracketed_marker(line: &str) -> bool {
    // The scanner itself hides a text that is cut off in an exact marker. `>> NAME` is a quote.
    let is_other = line.starts_with("<<<") || (line.starts_with('>') && line.contains(is_blank));
    let letters = line.chars().filter(char::is_ascii_uppercase).count();
    line.starts_with(['<', '>']) && !is_other && letters >= NEAR_MISS_LETTERS_MIN
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}
