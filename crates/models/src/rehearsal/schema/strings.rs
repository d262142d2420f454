//! Texts for fields: by their format, by what their name suggests, cut or stretched to the length asked for.

use crate::limits::REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX;
use serde_json::{Map, Value};

use super::{Maker, Spot, limit};
use crate::limits::REHEARSAL_STRING_CHARS_MAX;
use crate::rehearsal::words;
use crate::text::shorten;

impl Maker<'_> {
    pub(super) fn string(&mut self, fields: &Map<String, Value>, spot: Spot<'_>) -> Value {
        let format = fields.get("format").and_then(Value::as_str).and_then(formatted);
        let text = format.unwrap_or_else(|| self.named(spot));
        let least = limit(fields, "minLength").and_then(|least| usize::try_from(least).ok()).unwrap_or(0);
        let most = limit(fields, "maxLength").and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        Value::String(fitted(text, least.min(REHEARSAL_STRING_CHARS_MAX), most))
    }

    /// What a field of this name may hold.
    fn named(&mut self, spot: Spot<'_>) -> String {
        let key = spot.key.to_lowercase();
        let is = |names: &[&str]| names.iter().any(|name| key == *name || key.ends_with(&format!("_{name}")));
        let reading = self.reading;
        let topic = Some(reading.topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(words::no_topic);
        let keywords = reading.keywords();
        let keyword = keywords.get(spot.index % keywords.len().max(1)).cloned().unwrap_or_else(words::no_topic);
        if key == "id" {
            let id = format!("{}_{}", singular(spot.parent), spot.index + 1);
            self.ids.push(id.clone());
            return id;
        }
        if is(&["from", "to", "source", "target", "ref", "id", "depends_on", "challenges"]) && !self.ids.is_empty() {
            let start = usize::from(is(&["to", "target"]));
            return self.ids[(spot.index + start) % self.ids.len()].clone();
        }
        if is(&["path", "file", "url", "uri", "address", "ref"]) {
            return reading.quoted().unwrap_or_else(|| "notes.txt".to_owned());
        }
        if is(&["query", "search", "terms"]) {
            return reading.quoted().unwrap_or_else(|| keywords.join(" "));
        }
        if is(&["label", "title", "name", "heading"]) {
            return words::title(&keyword, spot.index);
        }
        if is(&["topic", "subject", "goal"]) {
            return topic;
        }
        if is(&["reason", "rationale", "why"]) {
            return words::reason(&topic);
        }
        if is(&["question"]) {
            return words::question(&keyword);
        }
        if is(&["message", "request"]) {
            return shorten(reading.last(), REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX);
        }
        if is(&["reply", "answer", "response"]) {
            return format!("{} {}", words::sentence(&topic, spot.index), words::MARK);
        }
        words::sentence(&topic, spot.index)
    }
}

fn formatted(format: &str) -> Option<String> {
    let text = match format {
        "date" => "2030-01-31",
        "time" => "12:00:00Z",
        "date-time" => "2030-01-31T12:00:00Z",
        "duration" => "P1D",
        "email" => "someone@example.com",
        "hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "url" | "uri-reference" | "iri" => "https://example.com/",
        "uuid" => "00000000-0000-4000-8000-000000000001",
        _ => return None,
    };
    Some(text.to_owned())
}

fn singular(name: &str) -> &str {
    let name = if name.is_empty() { "item" } else { name };
    name.strip_suffix('s').filter(|stem| !stem.is_empty()).unwrap_or(name)
}

fn fitted(text: String, least: usize, most: usize) -> String {
    let count = text.chars().count();
    if count > most {
        return text.chars().take(most).collect();
    }
    if count < least {
        let filler = if text.is_empty() { words::no_topic() } else { text.clone() };
        let endless = text.chars().chain(std::iter::repeat_n([' '].into_iter().chain(filler.chars()), least).flatten());
        return endless.take(least).collect();
    }
    text
}
