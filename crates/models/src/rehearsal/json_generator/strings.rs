//! Generates strings: by format, or else by field name, cut or padded to the required length.

use crate::limits::REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX;
use serde_json::{Map, Value};

use super::{RehearsalJsonGenerator, RehearsalJsonValuePosition, size_bound};
use crate::limits::REHEARSAL_STRING_CHARS_MAX;
use crate::rehearsal::phrases;
use crate::text::shorten_to_line;

impl RehearsalJsonGenerator<'_> {
    pub(super) fn generate_string(
        &mut self,
        fields: &Map<String, Value>,
        position: RehearsalJsonValuePosition<'_>,
    ) -> Value {
        let format = fields.get("format").and_then(Value::as_str).and_then(example_for_format);
        let text = format.unwrap_or_else(|| self.string_for_field(position));
        let length_min =
            size_bound(fields, "minLength").and_then(|length_min| usize::try_from(length_min).ok()).unwrap_or(0);
        let length_max = size_bound(fields, "maxLength")
            .and_then(|length_max| usize::try_from(length_max).ok())
            .unwrap_or(usize::MAX);
        Value::String(fit_to_length(text, length_min.min(REHEARSAL_STRING_CHARS_MAX), length_max))
    }

    /// Returns a plausible value for a field of this name.
    fn string_for_field(&mut self, position: RehearsalJsonValuePosition<'_>) -> String {
        let key = position.key.to_lowercase();
        let is = |names: &[&str]| names.iter().any(|name| key == *name || key.ends_with(&format!("_{name}")));
        let prompt = self.prompt;
        let topic = Some(prompt.last_topic()).filter(|topic| !topic.is_empty()).unwrap_or_else(phrases::fallback_topic);
        let keywords = prompt.keywords();
        let keyword =
            keywords.get(position.index % keywords.len().max(1)).cloned().unwrap_or_else(phrases::fallback_topic);
        if key == "id" {
            let id = format!("{}_{}", singularize(position.parent), position.index + 1);
            self.generated_ids.push(id.clone());
            return id;
        }
        if is(&["from", "to", "source", "target", "ref", "id", "depends_on", "challenges"])
            && !self.generated_ids.is_empty()
        {
            let start = usize::from(is(&["to", "target"]));
            return self.generated_ids[(position.index + start) % self.generated_ids.len()].clone();
        }
        if is(&["path", "file", "url", "uri", "address", "ref"]) {
            return prompt.quoted_text_or_path().unwrap_or_else(|| "notes.txt".to_owned());
        }
        if is(&["query", "search", "terms"]) {
            return prompt.quoted_text_or_path().unwrap_or_else(|| keywords.join(" "));
        }
        if is(&["label", "title", "name", "heading"]) {
            return phrases::title_phrase(&keyword, position.index);
        }
        if is(&["topic", "subject", "goal"]) {
            return topic;
        }
        if is(&["reason", "rationale", "why"]) {
            return phrases::reason_phrase(&topic);
        }
        if is(&["question"]) {
            return phrases::question_phrase(&keyword);
        }
        if is(&["message", "request"]) {
            return shorten_to_line(prompt.last_user_text(), REHEARSAL_SCHEMA_STRINGS_LINE_CHARS_MAX);
        }
        if is(&["reply", "answer", "response"]) {
            return format!("{} {}", phrases::filler_sentence(&topic, position.index), phrases::REHEARSAL_MARK);
        }
        phrases::filler_sentence(&topic, position.index)
    }
}

fn example_for_format(format: &str) -> Option<String> {
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

fn singularize(name: &str) -> &str {
    let name = if name.is_empty() { "item" } else { name };
    name.strip_suffix('s').filter(|stem| !stem.is_empty()).unwrap_or(name)
}

fn fit_to_length(text: String, length_min: usize, length_max: usize) -> String {
    let count = text.chars().count();
    if count > length_max {
        return text.chars().take(length_max).collect();
    }
    if count < length_min {
        let filler = if text.is_empty() { phrases::fallback_topic() } else { text.clone() };
        let endless =
            text.chars().chain(std::iter::repeat_n([' '].into_iter().chain(filler.chars()), length_min).flatten());
        return endless.take(length_min).collect();
    }
    text
}
