//! Reads TOML tables field by field, so that every complaint names its line, its entry and the key probably meant.

use segue_core::prompt::FailureKind;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::glob::Glob;
use super::number_range::NumberRange;
use crate::suggest::did_you_mean_suffix;

/// What is wrong with a scenario, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {message}", .place.as_ref().map_or_else(String::new, |place| format!(", {place}")))]
pub struct ScenarioError {
    /// The line, counted from 1.
    pub line: usize,
    /// Which table, such as `[[reply]] 3`.
    pub place: Option<String>,
    /// What is wrong with it.
    pub message: String,
}

/// Where lines begin.
#[derive(Debug)]
pub(super) struct LineIndex(Vec<usize>);

impl LineIndex {
    pub(super) fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// The line of a byte, counted from 1.
    pub(super) fn line_of_byte(&self, byte: usize) -> usize {
        self.0.partition_point(|newline| *newline < byte) + 1
    }
}

/// One table, with what is needed to complain about it.
#[derive(Debug, Clone)]
pub(super) struct ScenarioTable<'t> {
    lines: &'t LineIndex,
    table_name: Option<String>,
    line: usize,
    table: &'t DeTable<'t>,
}

impl<'t> ScenarioTable<'t> {
    /// A table that may hold only `keys`.
    pub(super) fn new(
        lines: &'t LineIndex,
        table_name: Option<String>,
        start: usize,
        table: &'t DeTable<'t>,
        keys: &[&str],
    ) -> Result<Self, ScenarioError> {
        let fields = Self { lines, table_name, line: lines.line_of_byte(start), table };
        for key in table.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                let message = format!("unknown key `{}`{}", key.get_ref(), suggest_known(key.get_ref(), keys));
                return Err(fields.error_at(key.span().start, message));
            }
        }
        Ok(fields)
    }

    /// The line this table begins on.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Which table this is.
    pub(super) fn table_name(&self) -> Option<&str> {
        self.table_name.as_deref()
    }

    /// A complaint about this table as a whole.
    pub(super) fn table_error(&self, message: impl Into<String>) -> ScenarioError {
        ScenarioError { line: self.line, place: self.table_name.clone(), message: message.into() }
    }

    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, ScenarioError> {
        self.read_key(key, "a text in quotes", |value| Ok(value.as_str().map(str::to_owned)))
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        self.read_key(key, "true or false", |value| Ok(value.as_bool()))
    }

    pub(super) fn number<N: TryFrom<u64>>(&self, key: &str) -> Result<Option<N>, ScenarioError> {
        self.read_key(key, "a number, not negative and not too large", |value| {
            Ok(value.as_integer().and_then(parse_toml_integer).and_then(|number| N::try_from(number).ok()))
        })
    }

    /// A text, or several.
    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, ScenarioError> {
        let found = self.read_key(key, "a text in quotes, or a list of them", |value| {
            Ok(match value {
                DeValue::String(text) => Some(vec![text.to_string()]),
                DeValue::Array(items) => items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect(),
                _ => None,
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    /// A name pattern, or several.
    pub(super) fn globs(&self, key: &str) -> Result<Vec<Glob>, ScenarioError> {
        self.strings(key)?
            .iter()
            .map(|name| Glob::parse(name).map_err(|message| self.key_error(key, message)))
            .collect()
    }

    pub(super) fn glob(&self, key: &str) -> Result<Option<Glob>, ScenarioError> {
        self.string(key)?.map(|text| Glob::parse(&text).map_err(|message| self.key_error(key, message))).transpose()
    }

    pub(super) fn number_range(&self, key: &str) -> Result<Option<NumberRange>, ScenarioError> {
        self.read_key(key, "a number, or a range such as \"2..4\"", |value| match value {
            DeValue::String(text) => text.parse().map(Some),
            DeValue::Integer(integer) => {
                Ok(parse_toml_integer(integer).and_then(|number| u32::try_from(number).ok()).map(NumberRange::from))
            }
            _ => Ok(None),
        })
    }

    /// One of the words a closed list is written with.
    pub(super) fn enum_word<W: DeserializeOwned>(&self, key: &str, words: &[&str]) -> Result<Option<W>, ScenarioError> {
        self.read_key(key, "a word in quotes", |value| {
            let Some(word) = value.as_str() else { return Ok(None) };
            let known = |_| format!("unknown word `{word}`{}", suggest_known(word, words));
            serde_json::from_value(Value::from(word)).map(Some).map_err(known)
        })
    }

    pub(super) fn failure_kind(&self, key: &str) -> Result<Option<FailureKind>, ScenarioError> {
        self.enum_word(key, &FAILURE_KIND_WORDS)
    }

    /// Any value as JSON; a text must itself be JSON.
    pub(super) fn json(&self, key: &str) -> Result<Option<Value>, ScenarioError> {
        self.read_key(key, "a table, a list, or JSON in quotes", |value| match value {
            DeValue::String(text) => {
                serde_json::from_str(text).map(Some).map_err(|error| format!("this is no JSON: {error}"))
            }
            other => toml_to_json(other).map(Some),
        })
    }

    /// A table within this one.
    pub(super) fn table(&self, key: &str, keys: &[&str]) -> Result<Option<ScenarioTable<'t>>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let inner = value.get_ref().as_table().ok_or_else(|| self.key_error(key, "expected a table"))?;
        ScenarioTable::new(self.lines, self.table_name.clone(), value.span().start, inner, keys).map(Some)
    }

    /// A list of tables within this one; `place` names the n-th.
    pub(super) fn tables(
        &self,
        key: &str,
        keys: &[&str],
        place: impl Fn(usize) -> Option<String>,
    ) -> Result<Vec<ScenarioTable<'t>>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let items = value.get_ref().as_array().ok_or_else(|| self.key_error(key, "expected a list of tables"))?;
        let tables = items.iter().enumerate().map(|(index, item)| {
            let table = item.get_ref().as_table().ok_or_else(|| self.key_error(key, "expected a list of tables"))?;
            ScenarioTable::new(self.lines, place(index + 1), item.span().start, table, keys)
        });
        tables.collect()
    }

    /// A complaint about one key.
    pub(super) fn key_error(&self, key: &str, message: impl Into<String>) -> ScenarioError {
        let start = self.table.get_key_value(key).map(|(key, _)| key.span().start);
        match start {
            Some(start) => self.error_at(start, format!("`{key}`: {}", message.into())),
            None => self.table_error(message),
        }
    }

    fn error_at(&self, start: usize, message: String) -> ScenarioError {
        ScenarioError { line: self.lines.line_of_byte(start), place: self.table_name.clone(), message }
    }

    fn read_key<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&DeValue<'_>) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, ScenarioError> {
        let Some(value) = self.table.get(key).map(Spanned::get_ref) else { return Ok(None) };
        match read(value) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => Err(self.key_error(key, format!("expected {expected}, found {}", value.type_str()))),
            Err(message) => Err(self.key_error(key, message)),
        }
    }
}

/// The words for [`FailureKind`], as they are serialised.
pub(super) const FAILURE_KIND_WORDS: [&str; 10] = [
    "bad_key",
    "no_such_model",
    "context_too_long",
    "rate_limit",
    "overload",
    "network",
    "timeout",
    "malformed",
    "refused",
    "bad_request",
];

/// What was probably meant; failing that, all there is.
fn suggest_known(given: &str, known: &[&str]) -> String {
    let guess = did_you_mean_suffix(given, known.iter().copied());
    if guess.is_empty() { format!("; known are {}", known.join(", ")) } else { guess }
}

fn parse_toml_integer(integer: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn toml_to_json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map(Value::from)
            .map_err(|_| format!("`{integer}` does not fit into 64 bits"))?,
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| format!("`{float}` is no JSON number"))?,
        DeValue::Datetime(moment) => Value::from(moment.to_string()),
        DeValue::Array(items) => items.iter().map(|item| toml_to_json(item.get_ref())).collect::<Result<_, _>>()?,
        DeValue::Table(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, field)| Ok((key.get_ref().to_string(), toml_to_json(field.get_ref())?)))
                .collect::<Result<_, String>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_word_is_a_kind() {
        for word in FAILURE_KIND_WORDS {
            let kind: FailureKind = serde_json::from_value(Value::from(word)).expect("a kind");
            assert_eq!(serde_json::to_value(kind).expect("a word"), word);
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let lines = LineIndex::new("a\nb\n\nc");
        assert_eq!([0, 1, 2, 3, 4, 5, 99].map(|byte| lines.line_of_byte(byte)), [1, 1, 2, 2, 3, 4, 4]);
    }
}
