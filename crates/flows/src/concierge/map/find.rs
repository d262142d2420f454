//! Finds the map in a reply. It knows tags and that a map is an object with claims; what claims are it does not know.

use segue_core::signal::json;
use serde_json::Value;

use super::{Complaint, Found, MapError};

/// A map as it was written.
pub(super) struct Written {
    pub(super) value: Value,
    /// What stands beside it.
    pub(super) narrative: String,
    pub(super) complaints: Vec<Complaint>,
}

/// The map of a reply.
pub(super) fn find(reply: &str) -> Result<Written, MapError> {
    let tags = tags(reply);
    let spans = spans(&tags);
    let valid = spans.iter().rev().find_map(|span| {
        let value: Value = serde_json::from_str(reply[span.start..span.end].trim()).ok()?;
        has_claims(&value).then(|| Written { value, narrative: beside(reply, span), complaints: Vec::new() })
    });
    let mended = || spans.iter().rev().find_map(|span| tagged(reply, span));
    let tagged = valid.or_else(mended).or_else(|| unclosed(reply, &tags));
    tagged.or_else(|| fenced(reply)).or_else(|| untagged(reply, &tags)).ok_or_else(|| {
        let has_empty = json::find_where(reply, |value| value.get("claims").is_some_and(Value::is_array));
        if has_empty.value.is_some() { MapError::NoClaims } else { MapError::Missing }
    })
}

fn has_claims(value: &Value) -> bool {
    value.get("claims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty())
}

fn tagged(reply: &str, span: &Span) -> Option<Written> {
    let found = json::find_where(&reply[span.start..span.end], has_claims);
    Some(Written { value: found.value?, narrative: beside(reply, span), complaints: state_of(&found.complaints) })
}

/// What follows the last opening tag that nothing closes.
fn unclosed(reply: &str, tags: &[Tag]) -> Option<Written> {
    let last = tags.last().filter(|tag| tag.side == Side::Opening)?;
    let found = json::find_where(&reply[last.end..], has_claims);
    let mut complaints = vec![Complaint::Found(Found::UnclosedTag)];
    complaints.extend(state_of(&found.complaints));
    Some(Written { value: found.value?, narrative: around_braces(&reply[last.end..]), complaints })
}

/// The last code fence that holds claims. What follows the word for its language counts.
fn fenced(reply: &str) -> Option<Written> {
    let mut fences: Vec<&str> = Vec::new();
    let mut open: Option<(usize, &str)> = None;
    let mut offset = 0;
    for line in reply.split_inclusive('\n') {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (open, mark) {
            (None, Some(mark)) => open = Some((offset + line.len(), mark)),
            (Some((start, opening)), Some(mark)) if mark == opening => {
                fences.push(&reply[start..offset]);
                open = None;
            }
            _ => {}
        }
        offset += line.len();
    }
    fences.extend(open.map(|(start, _)| &reply[start..]));
    fences.into_iter().rev().find_map(|text| {
        let found = json::find_where(text, has_claims);
        let mut complaints = vec![Complaint::Found(Found::Untagged)];
        complaints.extend(state_of(&found.complaints));
        Some(Written { value: found.value?, narrative: around_braces(reply), complaints })
    })
}

/// Any map in the reply; if an open quote before the last tag hides it, any that follows that tag.
fn untagged(reply: &str, tags: &[Tag]) -> Option<Written> {
    let rest = tags.last().map(|tag| &reply[tag.end..]);
    [Some(reply), rest].into_iter().flatten().find_map(|text| {
        let found = json::find_where(text, |value| has_claims(value) && value.get("edges").is_some());
        let mut complaints = vec![Complaint::Found(Found::Untagged)];
        complaints.extend(state_of(&found.complaints));
        Some(Written { value: found.value?, narrative: around_braces(text), complaints })
    })
}

fn state_of(complaints: &[json::Complaint]) -> Vec<Complaint> {
    let state = |complaint: &json::Complaint| match complaint {
        json::Complaint::Mended => Some(Complaint::Mended),
        json::Complaint::CutShort => Some(Complaint::CutShort),
        json::Complaint::Missing | json::Complaint::Unwanted => None,
    };
    complaints.iter().filter_map(state).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Opening,
    Closing,
}

#[derive(Clone, Copy)]
struct Tag {
    side: Side,
    start: usize,
    end: usize,
}

const OPENING: &str = "<map>";
const CLOSING: &str = "</map>";

fn tags(reply: &str) -> Vec<Tag> {
    let begins = |at: usize, tag: &str| reply[at..].get(..tag.len()).is_some_and(|it| it.eq_ignore_ascii_case(tag));
    let mut tags = Vec::new();
    for (start, _) in reply.match_indices('<') {
        if begins(start, OPENING) {
            tags.push(Tag { side: Side::Opening, start, end: start + OPENING.len() });
        } else if begins(start, CLOSING) {
            tags.push(Tag { side: Side::Closing, start, end: start + CLOSING.len() });
        }
    }
    tags
}

/// What stands between two tags, and where the tags begin and end.
struct Span {
    start: usize,
    end: usize,
    outer_start: usize,
    outer_end: usize,
}

/// What may stand between tags, in order: up to each closing tag, from the first and from the last opening one since
/// the closing tag before. An opening tag within a text of the map is why there are two.
fn spans(tags: &[Tag]) -> Vec<Span> {
    let mut spans = Vec::new();
    let (mut first, mut last): (Option<Tag>, Option<Tag>) = (None, None);
    for tag in tags {
        match tag.side {
            Side::Opening => {
                first = first.or(Some(*tag));
                last = Some(*tag);
            }
            Side::Closing => {
                let span =
                    |open: Tag| Span { start: open.end, end: tag.start, outer_start: open.start, outer_end: tag.end };
                let is_other = first.map(|tag| tag.start) != last.map(|tag| tag.start);
                spans.extend(first.filter(|_| is_other).map(span));
                spans.extend(last.map(span));
                (first, last) = (None, None);
            }
        }
    }
    spans
}

/// What follows the map; if nothing does, what goes before. Either ends where another tag stands.
fn beside(reply: &str, span: &Span) -> String {
    let (before, after) = (&reply[..span.outer_start], &reply[span.outer_end..]);
    let after = tags(after).first().map_or(after, |tag| &after[..tag.start]).trim();
    let before = tags(before).last().map_or(before, |tag| &before[tag.end..]).trim();
    if after.is_empty() { before.to_owned() } else { after.to_owned() }
}

/// As [`beside`], for a map of which only the braces are known.
fn around_braces(text: &str) -> String {
    let after = text.rfind('}').map_or("", |end| &text[end + 1..]);
    let before = text.find('{').map_or("", |start| &text[..start]);
    let clean = |text: &str| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with(['`', '~', ']', '<']));
        lines.collect::<Vec<_>>().join("\n").trim().to_owned()
    };
    let after = clean(after);
    if after.is_empty() { clean(before) } else { after }
}
