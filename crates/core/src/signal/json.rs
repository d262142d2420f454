//! Finds the JSON in a reply. What a model thinks aloud is left aside; a fenced value goes before a bare one, and in
//! bare text the longest value is taken, for prose is full of small brackets. Only objects and arrays count. It does
//! not know what the value should look like: the caller does, and says so.

use crate::limits::JSON_SCANS_PER_BYTE_MAX;
use serde_json::Value;

use super::{JSON_FULL_SEARCH_BYTES, json_repair};

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonSearchResult {
    /// An object or an array.
    pub value: Option<Value>,
    /// What was not as it should be.
    pub complaints: Vec<JsonComplaint>,
}

/// Something that was not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonComplaint {
    /// There is no object or array.
    #[error("no JSON object or array found")]
    Missing,
    /// There is one, and it is not what the caller wants.
    #[error("the JSON found is not what was asked for")]
    NoneAccepted,
    /// It was not valid and had to be mended.
    #[error("the JSON was not valid and was mended")]
    Repaired,
    /// The text ended before it did; its end is missing.
    #[error("the JSON was cut short and its end is missing")]
    Truncated,
}

/// The JSON of a reply: the first that is valid in a fence, else the first in a fence that can be mended, else the
/// longest in the text.
#[must_use]
pub fn find_json(text: &str) -> JsonSearchResult {
    find_json_where(text, |_| true)
}

/// As [`find`], among those values that are `wanted`.
#[must_use]
pub fn find_json_where(text: &str, wanted: impl Fn(&Value) -> bool) -> JsonSearchResult {
    let mut search = JsonSearch { is_wanted: &wanted, saw_unwanted: false };
    let found = search.parse_whole_text(text).or_else(|| {
        let spoken = strip_reasoning_tags(text);
        let found = search.search_fences_then_text(&spoken);
        // A thought that was cut out may have been part of a string.
        if found.is_none() && spoken.len() < text.len() { search.search_fences_then_text(text) } else { found }
    });
    let Some(found) = found else {
        let complaint = if search.saw_unwanted { JsonComplaint::NoneAccepted } else { JsonComplaint::Missing };
        return JsonSearchResult { value: None, complaints: vec![complaint] };
    };
    let complaints = match (found.is_truncated, found.is_repaired) {
        (true, _) => vec![JsonComplaint::Truncated],
        (false, true) => vec![JsonComplaint::Repaired],
        (false, false) => Vec::new(),
    };
    JsonSearchResult { value: Some(found.value), complaints }
}

/// The one way to write `value` down, with the keys of all objects sorted: what hashes are made of.
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
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
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
            for (place, (key, member)) in members.into_iter().enumerate() {
                if place > 0 {
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
    is_wanted: &'w dyn Fn(&Value) -> bool,
    saw_unwanted: bool,
}

impl JsonSearch<'_> {
    fn accepts(&mut self, value: &Value) -> bool {
        let wants = (self.is_wanted)(value);
        self.saw_unwanted |= !wants;
        wants
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

    /// The whole of `text`, if it is an object or array and nothing else.
    fn parse_whole_text(&mut self, text: &str) -> Option<json_repair::RepairedJson> {
        let text = text.trim();
        let value: Value = text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok())??;
        self.accepts(&value).then_some(json_repair::RepairedJson {
            value,
            end: text.len(),
            is_repaired: false,
            is_truncated: false,
        })
    }

    /// The longest of the outermost values in `text`.
    fn find_longest_value(&mut self, text: &str) -> Option<json_repair::RepairedJson> {
        let mut looks_left = (text.len() + JSON_FULL_SEARCH_BYTES).saturating_mul(JSON_SCANS_PER_BYTE_MAX);
        let mut best: Option<(usize, json_repair::RepairedJson)> = None;
        let mut at = 0;
        while let Some(offset) = text[at..].find(['{', '[']) {
            let start = at + offset;
            match json_repair::repair_json_at(text, start) {
                Ok(found) => {
                    at = found.end;
                    let len = found.end - start;
                    let is_longer = best.as_ref().is_none_or(|(best, _)| len > *best);
                    if !is_accidental_match(&found) && is_longer && self.accepts(&found.value) {
                        best = Some((len, found));
                    }
                }
                Err(given_up) => {
                    at = start + 1;
                    looks_left = looks_left.saturating_sub(given_up - start + 1);
                    if looks_left == 0 {
                        break;
                    }
                }
            }
        }
        best.map(|(_, found)| found)
    }
}

/// In prose, brackets around nothing but numbers refer to a source, and brackets around nothing at all mean nothing.
fn is_accidental_match(found: &json_repair::RepairedJson) -> bool {
    match &found.value {
        Value::Array(items) => items.iter().all(Value::is_number),
        Value::Object(members) => members.is_empty() && found.is_repaired,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The contents of the fences that say they hold JSON, or do not say what they hold.
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

/// `text` without what stands between the tags of a thought. An opening tag counts at the beginning of a line. Without
/// a closing one it is left alone; a closing one without an opening one ends a thought that began with the text.
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
