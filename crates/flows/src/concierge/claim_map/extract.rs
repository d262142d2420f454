//! Finds the JSON of the map in a reply. It does not interpret claims.

use segue_core::signal::{JsonComplaint, find_json_where};
use serde_json::Value;

use super::{ClaimMapComplaint, ClaimMapParseError, ClaimMapTagDefect};

/// The JSON of a map and the text around it.
pub(super) struct ExtractedClaimMapJson {
    pub(super) value: Value,
    /// The prose around the map.
    pub(super) narrative: String,
    pub(super) complaints: Vec<ClaimMapComplaint>,
}

/// Extracts the map from a reply.
pub(super) fn extract_map_json(reply: &str) -> Result<ExtractedClaimMapJson, ClaimMapParseError> {
    let tags = find_map_tags(reply);
    let spans = tag_spans(&tags);
    let valid = spans.iter().rev().find_map(|span| {
        let value: Value = serde_json::from_str(reply[span.start..span.end].trim()).ok()?;
        has_claims_list(&value).then(|| ExtractedClaimMapJson {
            value,
            narrative: narrative_around_span(reply, span),
            complaints: Vec::new(),
        })
    });
    let repaired = || spans.iter().rev().find_map(|span| extract_tagged_map(reply, span));
    let tagged = valid.or_else(repaired).or_else(|| extract_unclosed_map(reply, &tags));
    tagged.or_else(|| extract_fenced_map(reply)).or_else(|| extract_untagged_map(reply, &tags)).ok_or_else(|| {
        let has_empty = find_json_where(reply, |value| value.get("claims").is_some_and(Value::is_array));
        if has_empty.value.is_some() { ClaimMapParseError::NoClaims } else { ClaimMapParseError::NoMapFound }
    })
}

fn has_claims_list(value: &Value) -> bool {
    value.get("claims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty())
}

fn extract_tagged_map(reply: &str, span: &TaggedSpan) -> Option<ExtractedClaimMapJson> {
    let found = find_json_where(&reply[span.start..span.end], has_claims_list);
    Some(ExtractedClaimMapJson {
        value: found.value?,
        narrative: narrative_around_span(reply, span),
        complaints: convert_json_complaints(&found.complaints),
    })
}

/// Extracts the map after an opening tag that is never closed.
fn extract_unclosed_map(reply: &str, tags: &[ClaimMapTag]) -> Option<ExtractedClaimMapJson> {
    let last = tags.last().filter(|tag| tag.kind == OpeningOrClosingTag::Opening)?;
    let found = find_json_where(&reply[last.end..], has_claims_list);
    let mut complaints = vec![ClaimMapComplaint::BadTags(ClaimMapTagDefect::UnclosedTag)];
    complaints.extend(convert_json_complaints(&found.complaints));
    Some(ExtractedClaimMapJson {
        value: found.value?,
        narrative: narrative_around_braces(&reply[last.end..]),
        complaints,
    })
}

/// Extracts the map from the last code fence with claims.
fn extract_fenced_map(reply: &str) -> Option<ExtractedClaimMapJson> {
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
        let found = find_json_where(text, has_claims_list);
        let mut complaints = vec![ClaimMapComplaint::BadTags(ClaimMapTagDefect::Untagged)];
        complaints.extend(convert_json_complaints(&found.complaints));
        Some(ExtractedClaimMapJson { value: found.value?, narrative: narrative_around_braces(reply), complaints })
    })
}

/// Extracts any map in the reply. If an open quote before the last tag hides it, the text after that tag is searched.
fn extract_untagged_map(reply: &str, tags: &[ClaimMapTag]) -> Option<ExtractedClaimMapJson> {
    let rest = tags.last().map(|tag| &reply[tag.end..]);
    [Some(reply), rest].into_iter().flatten().find_map(|text| {
        let found = find_json_where(text, |value| has_claims_list(value) && value.get("edges").is_some());
        let mut complaints = vec![ClaimMapComplaint::BadTags(ClaimMapTagDefect::Untagged)];
        complaints.extend(convert_json_complaints(&found.complaints));
        Some(ExtractedClaimMapJson { value: found.value?, narrative: narrative_around_braces(text), complaints })
    })
}

fn convert_json_complaints(complaints: &[JsonComplaint]) -> Vec<ClaimMapComplaint> {
    let convert = |complaint: &JsonComplaint| match complaint {
        JsonComplaint::Repaired => Some(ClaimMapComplaint::JsonRepaired),
        JsonComplaint::Truncated => Some(ClaimMapComplaint::JsonTruncated),
        JsonComplaint::Missing | JsonComplaint::NoneAccepted => None,
    };
    complaints.iter().filter_map(convert).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpeningOrClosingTag {
    Opening,
    Closing,
}

#[derive(Clone, Copy)]
struct ClaimMapTag {
    kind: OpeningOrClosingTag,
    start: usize,
    end: usize,
}

const OPENING_TAG: &str = "<map>";
const CLOSING_TAG: &str = "</map>";

fn find_map_tags(reply: &str) -> Vec<ClaimMapTag> {
    let begins = |at: usize, tag: &str| reply[at..].get(..tag.len()).is_some_and(|it| it.eq_ignore_ascii_case(tag));
    let mut tags = Vec::new();
    for (start, _) in reply.match_indices('<') {
        if begins(start, OPENING_TAG) {
            tags.push(ClaimMapTag { kind: OpeningOrClosingTag::Opening, start, end: start + OPENING_TAG.len() });
        } else if begins(start, CLOSING_TAG) {
            tags.push(ClaimMapTag { kind: OpeningOrClosingTag::Closing, start, end: start + CLOSING_TAG.len() });
        }
    }
    tags
}

/// The range between two tags, and the range including them.
struct TaggedSpan {
    start: usize,
    end: usize,
    outer_start: usize,
    outer_end: usize,
}

/// Returns the candidate ranges between tags, in order. Each closing tag is paired with the first and with the last opening
/// tag since the previous closing tag, because a text in the map may contain an opening tag.
fn tag_spans(tags: &[ClaimMapTag]) -> Vec<TaggedSpan> {
    let mut spans = Vec::new();
    let (mut first, mut last): (Option<ClaimMapTag>, Option<ClaimMapTag>) = (None, None);
    for tag in tags {
        match tag.kind {
            OpeningOrClosingTag::Opening => {
                first = first.or(Some(*tag));
                last = Some(*tag);
            }
            OpeningOrClosingTag::Closing => {
                let span = |open: ClaimMapTag| TaggedSpan {
                    start: open.end,
                    end: tag.start,
                    outer_start: open.start,
                    outer_end: tag.end,
                };
                let is_other = first.map(|tag| tag.start) != last.map(|tag| tag.start);
                spans.extend(first.filter(|_| is_other).map(span));
                spans.extend(last.map(span));
                (first, last) = (None, None);
            }
        }
    }
    spans
}

/// Returns the text after the map up to the next tag, or the text before it if there is none after it.
fn narrative_around_span(reply: &str, span: &TaggedSpan) -> String {
    let (before, after) = (&reply[..span.outer_start], &reply[span.outer_end..]);
    let after = find_map_tags(after).first().map_or(after, |tag| &after[..tag.start]).trim();
    let before = find_map_tags(before).last().map_or(before, |tag| &before[tag.end..]).trim();
    if after.is_empty() { before.to_owned() } else { after.to_owned() }
}

/// Like [`narrative_around_span`], for a map without tags.
fn narrative_around_braces(text: &str) -> String {
    let after = text.rfind('}').map_or("", |end| &text[end + 1..]);
    let before = text.find('{').map_or("", |start| &text[..start]);
    let clean = |text: &str| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with(['`', '~', ']', '<']));
        lines.collect::<Vec<_>>().join("\n").trim().to_owned()
    };
    let after = clean(after);
    if after.is_empty() { clean(before) } else { after }
}
