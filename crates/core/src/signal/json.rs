//! Finds the JSON in a reply. Reasoning is ignored. A value in a code fence is preferred, and in plain text the longest
//! value, because prose contains many small brackets. Only objects and arrays count. The caller says which values it
//! accepts.

use crate::limits::JSON_SCANS_PER_BYTE_MAX;
use serde_json::Value;

use super::{JSON_FULL_SEARCH_BYTES, json_repair};

/// The result of a search for JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonSearchResult {
    /// An object or an array.
    pub value: Option<Value>,
    pub complaints: Vec<JsonComplaint>,
}

/// A problem with the JSON in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonComplaint {
    /// There is no object or array.
    #[error("no JSON object or array found")]
    Missing,
    /// The caller accepted none of the values.
    #[error("the JSON is not of the expected form")]
    NoneAccepted,
    /// The JSON was invalid and was repaired.
    #[error("the JSON was invalid and was repaired")]
    Repaired,
    /// The text ended before the JSON did.
    #[error("the JSON was cut off and its end is missing")]
    Truncated,
}

/// Finds the JSON of a reply among the values that `accepts` returns true for: the first valid value in a fence, else the
/// first repairable one in a fence, else the longest in the text.
#[must_use]
pub fn find_json_where(text: &str, accepts: impl Fn(&Value) -> bool) -> JsonSearchResult {
    let mut search = JsonSearch { is_accepted: &accepts, saw_rejected: false };
    let found = search.parse_whole_text(text).or_else(|| {
        let without_reasoning = strip_reasoning_tags(text);
        let found = search.search_fences_then_text(&without_reasoning);
        // What looked like reasoning may have been part of a string.
        if found.is_none() && without_reasoning.len() < text.len() {
            search.search_fences_then_text(text)
        } else {
            found
        }
    });
    let Some(found) = found else {
        let complaint = if search.saw_rejected { JsonComplaint::NoneAccepted } else { JsonComplaint::Missing };
        return JsonSearchResult { value: None, complaints: vec![complaint] };
    };
    let complaints = match (found.is_truncated, found.is_repaired) {
        (true, _) => vec![JsonComplaint::Truncated],
        (false, true) => vec![JsonComplaint::Repaired],
        (false, false) => Vec::new(),
    };
    JsonSearchResult { value: Some(found.value), complaints }
}

/// Returns the canonical form of `value`, with sorted keys, for hashing.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_canonical_json(value, &mut out);
    out
}

fn write_canonical_json(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical_json(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical_json(member, out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

struct JsonSearch<'w> {
    is_accepted: &'w dyn Fn(&Value) -> bool,
    saw_rejected: bool,
}

impl JsonSearch<'_> {
    fn check_acceptance(&mut self, value: &Value) -> bool {
        let accepted = (self.is_accepted)(value);
        self.saw_rejected |= !accepted;
        accepted
    }

    fn search_fences_then_text(&mut self, text: &str) -> Option<json_repair::RepairedJson> {
        let fences = json_code_fences(text);
        for fence in &fences {
            if let Some(found) = self.parse_whole_text(fence) {
                return Some(found);
            }
        }
        for fence in &fences {
            if let Some(found) = self.find_longest_value(fence) {
                return Some(found);
            }
        }
        self.find_longest_value(text)
    }

    /// Parses the whole of `text`, if it is an object or array and nothing else.
    fn parse_whole_text(&mut self, text: &str) -> Option<json_repair::RepairedJson> {
        let text = text.trim();
        let value: Value = text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok())??;
        self.check_acceptance(&value).then_some(json_repair::RepairedJson {
            value,
            end: text.len(),
            is_repaired: false,
            is_truncated: false,
        })
    }

    /// Returns the longest of the outermost values in `text`.
    fn find_longest_value(&mut self, text: &str) -> Option<json_repair::RepairedJson> {
        let mut scans_left = (text.len() + JSON_FULL_SEARCH_BYTES).saturating_mul(JSON_SCANS_PER_BYTE_MAX);
        let mut best: Option<(usize, json_repair::RepairedJson)> = None;
        let mut at = 0;
        while let Some(offset) = text[at..].find(['{', '[']) {
            let start = at + offset;
            match json_repair::parse_repairable_json_at(text, start) {
                Ok(found) => {
                    at = found.end;
                    let len = found.end - start;
                    let is_longer = best.as_ref().is_none_or(|(best, _)| len > *best);
                    if !is_accidental_match(&found) && is_longer && self.check_acceptance(&found.value) {
                        best = Some((len, found));
                    }
                }
                Err(failed_at) => {
                    at = start + 1;
                    scans_left = scans_left.saturating_sub(failed_at - start + 1);
                    if scans_left == 0 {
                        break;
                    }
                }
            }
        }
        best.map(|(_, found)| found)
    }
}

/// In prose, brackets around numbers are references, and empty brackets mean nothing.
fn is_accidental_match(found: &json_repair::RepairedJson) -> bool {
    match &found.value {
        Value::Array(items) => items.iter().all(Value::is_number),
        Value::Object(members) => members.is_empty() && found.is_repaired,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns the contents of the code fences that are labelled as JSON or not labelled.
fn json_code_fences(text: &str) -> Vec<&str> {
    let mut fences = Vec::new();
    let mut open: Option<(&str, bool, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let mark = &trimmed[..trimmed.len() - trimmed.trim_start_matches(['`', '~']).len()];
        let is_mark =
            mark.len() >= 3 && (mark.bytes().all(|byte| byte == b'`') || mark.bytes().all(|byte| byte == b'~'));
        let info = trimmed[mark.len()..].trim();
        match open {
            Some((opening, is_json, start)) if is_mark && mark.starts_with(opening) && info.is_empty() => {
                if is_json {
                    fences.push(&text[start..offset]);
                }
                open = None;
            }
            None if is_mark && !info.contains('`') => {
                let is_json = info.is_empty() || info.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("json"));
                open = Some((mark, is_json, offset + line.len()));
            }
            _ => {}
        }
        offset += line.len();
    }
    if let Some((_, true, start)) = open {
        fences.push(&text[start..]);
    }
    fences
}

const REASONING_TAGS: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
];

/// Removes reasoning between tags. An opening tag must be at the beginning of a line. Without a closing tag it is kept.
/// A closing tag without an opening one ends reasoning that began with the text.
fn strip_reasoning_tags(text: &str) -> String {
    let mut out = String::new();
    let mut no_more = [false; REASONING_TAGS.len()];
    let (mut kept, mut at) = (0, 0);
    while let Some(offset) = text[at..].find('<') {
        at += offset;
        let begins = |tag: &str| text[at..].get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        if let Some((_, closing)) = REASONING_TAGS.iter().find(|(_, closing)| begins(closing)) {
            at += closing.len();
            kept = at;
            out.clear();
            continue;
        }
        let opened = REASONING_TAGS.iter().position(|(opening, _)| begins(opening));
        let before = text[kept..at].trim_end_matches([' ', '\t']);
        let begins_line = before.is_empty() || before.ends_with('\n');
        if let Some(kind) = opened
            && begins_line
            && !no_more[kind]
        {
            match find_ignoring_case(&text[at..], REASONING_TAGS[kind].1) {
                Some(end) => {
                    out.push_str(&text[kept..at]);
                    at += end + REASONING_TAGS[kind].1.len();
                    kept = at;
                    continue;
                }
                None => no_more[kind] = true,
            }
        }
        at += 1;
    }
    out.push_str(&text[kept..]);
    out
}

fn find_ignoring_case(text: &str, tag: &str) -> Option<usize> {
    text.as_bytes().windows(tag.len()).position(|window| window.eq_ignore_ascii_case(tag.as_bytes()))
}
