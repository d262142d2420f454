//! Checks values against their fields. A value with only one possible meaning is converted (`"25"` for a number); any other is
//! refused.

use serde_json::{Map, Value};

use super::{RecordField, RecordFieldKind, RecordType, format_name_list};
use crate::limits::{RECORD_LIST_ITEMS_MAX, RECORD_TEXT_CHARS_MAX};

/// Which fields a record must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordValidationMode {
    /// A new record: every required field.
    AllRequired,
    /// A change: only the given fields, none of which may clear a required field.
    PartialUpdate,
}

/// Turns the value of a link into the id that is stored.
pub type RecordLinkResolver<'l> = dyn Fn(&RecordField, &str) -> Result<String, String> + 'l;

/// Checks the values of a record and returns them as they are stored.
///
/// # Errors
/// Some values are invalid; the list says which, and why.
pub fn check_record(
    kind: &RecordType,
    values: &Map<String, Value>,
    completeness: RecordValidationMode,
    link: &RecordLinkResolver<'_>,
) -> Result<Map<String, Value>, Vec<String>> {
    let mut checked = Map::new();
    let mut errors = Vec::new();
    for (name, value) in values {
        match kind.expect_field(name).and_then(|field| check_value(field, value, link)) {
            Ok(value) => {
                checked.insert(name.clone(), value);
            }
            Err(why) => errors.push(why),
        }
    }
    for field in kind.fields.iter().filter(|field| field.required) {
        let value = checked.get(&field.name);
        let missing = match completeness {
            RecordValidationMode::AllRequired => value.is_none_or(is_empty_value),
            RecordValidationMode::PartialUpdate => value.is_some_and(is_empty_value),
        };
        // An invalid value was already reported.
        if missing && !(value.is_none() && values.contains_key(&field.name)) {
            errors.push(format!("`{}` is required", field.name));
        }
    }
    if errors.is_empty() { Ok(checked) } else { Err(errors) }
}

/// Returns whether a value says nothing: it is null, a blank text or an empty list.
pub(crate) fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Checks a value and returns it as it is stored.
///
/// # Errors
/// The value is invalid; the text says why.
pub fn check_value(field: &RecordField, value: &Value, link: &RecordLinkResolver<'_>) -> Result<Value, String> {
    let wrong = |expected: &str| Err(format!("`{}` must be {expected}, not {value}", field.name));
    match (field.kind, value) {
        (_, Value::Null) => Ok(Value::Null),
        (RecordFieldKind::Text, Value::String(text)) => check_text_value(field, text),
        (RecordFieldKind::Text, Value::Number(number)) => check_text_value(field, &number.to_string()),
        (RecordFieldKind::Text, _) => wrong("a text"),
        (RecordFieldKind::Integer | RecordFieldKind::Number, _) => check_number_value(field, value),
        (RecordFieldKind::YesNo, Value::Bool(_)) => Ok(value.clone()),
        (RecordFieldKind::YesNo, Value::String(text)) => match text.trim().to_lowercase().as_str() {
            "yes" | "true" => Ok(Value::Bool(true)),
            "no" | "false" => Ok(Value::Bool(false)),
            _ => wrong("true or false"),
        },
        (RecordFieldKind::YesNo, _) => wrong("true or false"),
        (RecordFieldKind::Date, Value::String(text)) if is_date(text.trim()) => {
            Ok(Value::String(text.trim().to_owned()))
        }
        (RecordFieldKind::Date, _) => wrong("a date such as \"2026-01-31\""),
        (RecordFieldKind::List, Value::Array(items)) => {
            check_item_count(field, items.len())?;
            let texts = items.iter().map(|item| match item {
                Value::String(text) => check_text_value(field, text),
                Value::Number(number) => check_text_value(field, &number.to_string()),
                _ => Err(format!("`{}` must be a list of texts, not of {item}", field.name)),
            });
            texts.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (RecordFieldKind::List, Value::String(text)) => Ok(Value::Array(vec![check_text_value(field, text)?])),
        (RecordFieldKind::List, _) => wrong("a list of texts"),
        (RecordFieldKind::Link, Value::String(to)) => link(field, to).map(Value::String),
        (RecordFieldKind::Link, _) => wrong("one reference"),
        (RecordFieldKind::Links, Value::Array(items)) => {
            check_item_count(field, items.len())?;
            let ids = items.iter().map(|item| match item {
                Value::String(to) => link(field, to).map(Value::String),
                _ => Err(format!("`{}` must be a list of references, not of {item}", field.name)),
            });
            ids.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (RecordFieldKind::Links, Value::String(to)) => Ok(Value::Array(vec![Value::String(link(field, to)?)])),
        (RecordFieldKind::Links, _) => wrong("a list of references"),
    }
}

fn check_item_count(field: &RecordField, items: usize) -> Result<(), String> {
    if items > RECORD_LIST_ITEMS_MAX {
        return Err(format!("`{}` has {items} items; at most {RECORD_LIST_ITEMS_MAX} are allowed", field.name));
    }
    Ok(())
}

fn check_text_value(field: &RecordField, text: &str) -> Result<Value, String> {
    let chars = text.chars().count();
    if chars > RECORD_TEXT_CHARS_MAX {
        return Err(format!("`{}` has {chars} characters; at most {RECORD_TEXT_CHARS_MAX} are allowed", field.name));
    }
    // The samples in prompts have such placeholders.
    if text.trim() == format!("<{}>", field.name) {
        return Err(format!("`{}` is a placeholder; give the real value", field.name));
    }
    if field.one_of.is_empty() {
        return Ok(Value::String(text.to_owned()));
    }
    let meant = field.one_of.iter().find(|known| known.eq_ignore_ascii_case(text.trim()));
    let known = || format_name_list(field.one_of.iter().map(String::as_str));
    meant
        .map(|known| Value::String(known.clone()))
        .ok_or_else(|| format!("`{}` must be one of {}, not `{text}`", field.name, known()))
}

fn check_number_value(field: &RecordField, value: &Value) -> Result<Value, String> {
    let expected = if field.kind == RecordFieldKind::Integer { "a whole number" } else { "a number" };
    let wrong = || format!("`{}` must be {expected}, not {value}", field.name);
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    let number = number.filter(|number| number.is_finite()).ok_or_else(wrong)?;
    if let Some(min) = field.min.filter(|min| number < *min) {
        return Err(format!("`{}` must be at least {min}, not {number}", field.name));
    }
    if let Some(max) = field.max.filter(|max| number > *max) {
        return Err(format!("`{}` must be at most {max}, not {number}", field.name));
    }
    if field.kind == RecordFieldKind::Number {
        return Ok(Value::from(number));
    }
    // Larger integers are not exact as floats.
    if number.fract() != 0.0 || number.abs() > 9e15 {
        return Err(wrong());
    }
    Ok(Value::from(number as i64))
}

/// Returns whether a text is a valid date such as `2026-01-31`.
#[must_use]
pub fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok())?
    };
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else { return false };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Parses a sample's date relative to today: `today`, `today+3` or `today-3`.
#[must_use]
pub fn parse_days_from_today(text: &str) -> Option<i64> {
    let rest = text.strip_prefix("today")?;
    if rest.is_empty() { Some(0) } else { rest.parse().ok().filter(|_| rest.starts_with(['+', '-'])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(kind: &str) -> RecordField {
        serde_json::from_value(json!({"name": "f", "kind": kind, "to": null})).expect("a field")
    }

    fn checked(kind: &str, value: Value) -> Result<Value, String> {
        check_value(&field(kind), &value, &|_, to| Ok(format!("id-of-{to}")))
    }

    #[test]
    fn unambiguous_values_are_converted() {
        for (kind, value, stored) in [
            ("integer", json!("25"), json!(25)),
            ("integer", json!(25.0), json!(25)),
            ("number", json!("2.5"), json!(2.5)),
            ("yes_no", json!("Yes"), json!(true)),
            ("list", json!("one"), json!(["one"])),
            ("text", json!(7), json!("7")),
            ("date", json!(" 2024-02-29 "), json!("2024-02-29")),
            ("link", json!("a_1"), json!("id-of-a_1")),
            ("links", json!(["a_1", "a_2"]), json!(["id-of-a_1", "id-of-a_2"])),
            ("date", Value::Null, Value::Null),
        ] {
            assert_eq!(checked(kind, value), Ok(stored));
        }
    }

    #[test]
    fn invalid_values_are_refused_with_the_field_name() {
        for (kind, value) in [
            ("integer", json!("many")),
            ("integer", json!(1.5)),
            ("number", json!("nan")),
            ("yes_no", json!(1)),
            ("date", json!("2023-02-29")),
            ("date", json!("tomorrow")),
            ("list", json!([["x"]])),
            ("link", json!(["a_1"])),
            ("text", json!({"a": 1})),
        ] {
            let why = checked(kind, value).expect_err("refused");
            assert!(why.starts_with("`f` must be"), "{why}");
        }
    }

    #[test]
    fn dates_must_exist_in_the_calendar() {
        for day in ["2000-02-29", "2026-12-31", "0001-01-01"] {
            assert!(is_date(day), "{day}");
        }
        for day in
            ["1900-02-29", "2026-13-01", "2026-04-31", "2026-1-1", "2026-01-00", "26-01-01", "2026/01/01", "२०२६-०१"]
        {
            assert!(!is_date(day), "{day}");
        }
    }
}
