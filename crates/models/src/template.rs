//! Placeholders in scripted and rehearsed replies: `{{name}}`, `{{name|line}}` for one short line, `{{name|json}}` for use
//! inside a JSON string. The caller looks up the names. Inserted values are never searched for placeholders again.

use crate::limits::{PLACEHOLDER_BYTES_MAX, TEMPLATE_LINE_CHARS_MAX};
use serde_json::Value;

use crate::suggest::did_you_mean_suffix;
use crate::text::shorten_to_line;

const TEMPLATE_FILTERS: [&str; 2] = ["json", "line"];

/// Replaces the placeholders that `lookup` knows; others stay as they are.
pub(crate) fn render_template(text: &str, lookup: &impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    for part in split_template(text) {
        match part {
            ReplyTemplatePart::Literal(plain) => out.push_str(plain),
            ReplyTemplatePart::Placeholder { source, name, filter } => {
                match lookup(name).and_then(|value| apply_template_filter(filter, value)) {
                    Some(value) => out.push_str(&value),
                    None => out.push_str(source),
                };
            }
        }
    }
    out
}

/// Replaces the placeholders in every string of a JSON value, so that the result stays valid JSON.
pub(crate) fn render_json_template(json: &Value, lookup: &impl Fn(&str) -> Option<String>) -> Value {
    match json {
        Value::String(text) => Value::String(render_template(text, lookup)),
        Value::Array(items) => items.iter().map(|item| render_json_template(item, lookup)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| (key.clone(), render_json_template(field, lookup)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => json.clone(),
    }
}

/// Returns an error for the first unknown placeholder or filter.
pub(crate) fn check_template(text: &str, known: &[&str]) -> Result<(), String> {
    for part in split_template(text) {
        let ReplyTemplatePart::Placeholder { source, name, filter } = part else { continue };
        if !known.contains(&name) {
            let guess = did_you_mean_suffix(name, known.iter().copied());
            return Err(format!("unknown placeholder `{source}`{guess} (`raw = true` turns placeholders off)"));
        }
        if let Some(filter) = filter.filter(|filter| !TEMPLATE_FILTERS.contains(filter)) {
            return Err(format!("unknown filter `{filter}` in `{source}`; known filters: `json`, `line`"));
        }
    }
    Ok(())
}

/// Applies [`check_template`] to every string of a JSON value.
pub(crate) fn check_json_template(json: &Value, known: &[&str]) -> Result<(), String> {
    match json {
        Value::String(text) => check_template(text, known),
        Value::Array(items) => items.iter().try_for_each(|item| check_json_template(item, known)),
        Value::Object(fields) => fields.values().try_for_each(|field| check_json_template(field, known)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

enum ReplyTemplatePart<'t> {
    Literal(&'t str),
    Placeholder { source: &'t str, name: &'t str, filter: Option<&'t str> },
}

fn apply_template_filter(filter: Option<&str>, value: String) -> Option<String> {
    match filter {
        None => Some(value),
        Some("line") => Some(shorten_to_line(&value, TEMPLATE_LINE_CHARS_MAX)),
        Some("json") => {
            let quoted = Value::String(value).to_string();
            Some(quoted[1..quoted.len() - 1].to_owned())
        }
        Some(_) => None,
    }
}

fn split_template(text: &str) -> impl Iterator<Item = ReplyTemplatePart<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some((part, length)) = parse_placeholder(rest) {
            rest = &rest[length..];
            return Some(part);
        }
        // The next character is literal, and so is everything up to the next possible placeholder.
        let first = rest.chars().next().map_or(rest.len(), char::len_utf8);
        let length = rest[first..].find("{{").map_or(rest.len(), |at| first + at);
        let (plain, after) = rest.split_at(length);
        rest = after;
        Some(ReplyTemplatePart::Literal(plain))
    })
}

fn parse_placeholder(text: &str) -> Option<(ReplyTemplatePart<'_>, usize)> {
    let inner = text.strip_prefix("{{")?;
    let inner = &inner[..inner.floor_char_boundary(PLACEHOLDER_BYTES_MAX)];
    let inner = &inner[..inner.find("}}")?];
    let (name, filter) = match inner.split_once('|') {
        Some((name, filter)) => (name.trim(), Some(filter.trim())),
        None => (inner.trim(), None),
    };
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_word(name) || !filter.is_none_or(is_word) {
        return None;
    }
    let length = inner.len() + 4;
    Some((ReplyTemplatePart::Placeholder { source: &text[..length], name, filter }, length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value(name: &str) -> Option<String> {
        match name {
            "last" => Some("say \"{{turn}}\"\nplease".to_owned()),
            "turn" => Some("2".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn known_names_are_replaced_once_and_others_stay() {
        assert_eq!(render_template("a {{turn}} b {{ turn }} {{other}} {{", &value), "a 2 b 2 {{other}} {{");
        assert_eq!(render_template("{{last}}", &value), "say \"{{turn}}\"\nplease");
        assert_eq!(render_template("{{last|line}}", &value), "say \"{{turn}}\" please");
        assert_eq!(render_template("{\"x\": \"{{last|json}}\"}", &value), r#"{"x": "say \"{{turn}}\"\nplease"}"#);
        assert_eq!(render_template("{{{turn}}}", &value), "{2}");
        assert_eq!(render_template("{{turn|loud}} {{Not A Name}}", &value), "{{turn|loud}} {{Not A Name}}");
    }

    #[test]
    fn a_filled_json_value_stays_json() {
        let filled = render_json_template(&json!({"a": ["{{last}}", 1], "{{turn}}": null}), &value);
        assert_eq!(filled, json!({"a": ["say \"{{turn}}\"\nplease", 1], "{{turn}}": null}));
    }

    #[test]
    fn an_unknown_placeholder_is_reported_with_a_suggestion() {
        assert_eq!(check_template("{{turn}} {{ not one }} {}", &["turn"]), Ok(()));
        let error = check_template("{{trun}}", &["last", "turn"]).expect_err("unknown");
        assert!(error.starts_with("unknown placeholder `{{trun}}`; did you mean `turn`?"), "{error}");
        assert!(check_template("{{turn|loud}}", &["turn"]).expect_err("unknown").contains("unknown filter `loud`"));
        assert!(check_json_template(&json!({"a": ["{{x}}"]}), &["turn"]).is_err());
    }

    proptest! {
        #[test]
        fn a_text_without_known_names_is_unchanged(text in "[{}a|\\PC]*") {
            prop_assert_eq!(render_template(&text, &|_| None), text);
        }
    }
}
