//! Reads TOML tables field by field, so that every error names its line, its entry and a suggestion.

use segue_core::prompt::CallFailureKind;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::glob::ScenarioGlobPattern;
use super::number_range::ScenarioConditionRange;
use crate::suggest::did_you_mean_suffix;

/// An error in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {message}", .table.as_ref().map_or_else(String::new, |table| format!(", {table}")))]
pub struct ScenarioError {
    /// Counted from 1.
    pub line: usize,
    /// The table, such as `[[reply]] 3`.
    pub table: Option<String>,
    pub message: String,
}

/// The byte offsets of line breaks.
#[derive(Debug)]
pub(super) struct LineIndex(Vec<usize>);

impl LineIndex {
    pub(super) fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// Returns the line number of a byte, counted from 1.
    pub(super) fn line_of_byte(&self, byte: usize) -> usize {
        self.0.partition_point(|newline| *newline < byte) + 1
    }
}

/// A table with its position in the file, for error messages.
#[derive(Debug, Clone)]
pub(super) struct ScenarioTable<'t> {
    lines: &'t LineIndex,
    table_name: Option<String>,
    line: usize,
    table: &'t DeTable<'t>,
}

impl<'t> ScenarioTable<'t> {
    /// Wraps a table that may contain only `keys`.
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

    /// Returns the line on which this table begins.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Returns the table's name, such as `[[reply]] 3`.
    pub(super) fn table_name(&self) -> Option<&str> {
        self.table_name.as_deref()
    }

    /// Builds an error about this table as a whole.
    pub(super) fn table_error(&self, message: impl Into<String>) -> ScenarioError {
        ScenarioError { line: self.line, table: self.table_name.clone(), message: message.into() }
    }

    pub(super) fn contains_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, ScenarioError> {
        self.read_key(key, "a string", |value| Ok(value.as_str().map(str::to_owned)))
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        self.read_key(key, "true or false", |value| Ok(value.as_bool()))
    }

    pub(super) fn number<N: TryFrom<u64>>(&self, key: &str) -> Result<Option<N>, ScenarioError> {
        self.read_key(key, "a non-negative number within range", |value| {
            Ok(value.as_integer().and_then(parse_toml_integer).and_then(|number| N::try_from(number).ok()))
        })
    }

    /// Reads a string or a list of strings.
    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, ScenarioError> {
        let found = self.read_key(key, "a string or a list of strings", |value| {
            Ok(match value {
                DeValue::String(text) => Some(vec![text.to_string()]),
                DeValue::Array(items) => items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect(),
                _ => None,
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Reads a name pattern or a list of them.
    pub(super) fn globs(&self, key: &str) -> Result<Vec<ScenarioGlobPattern>, ScenarioError> {
        self.strings(key)?
            .iter()
            .map(|name| ScenarioGlobPattern::parse(name).map_err(|message| self.key_error(key, message)))
            .collect()
    }

    pub(super) fn glob(&self, key: &str) -> Result<Option<ScenarioGlobPattern>, ScenarioError> {
        self.string(key)?
            .map(|text| ScenarioGlobPattern::parse(&text).map_err(|message| self.key_error(key, message)))
            .transpose()
    }

    pub(super) fn number_range(&self, key: &str) -> Result<Option<ScenarioConditionRange>, ScenarioError> {
        self.read_key(key, "a number, or a range such as \"2..4\"", |value| match value {
            DeValue::String(text) => text.parse().map(Some),
            DeValue::Integer(integer) => Ok(parse_toml_integer(integer)
                .and_then(|number| u32::try_from(number).ok())
                .map(ScenarioConditionRange::from)),
            _ => Ok(None),
        })
    }

    /// Reads one of a fixed set of words.
    pub(super) fn enum_word<W: DeserializeOwned>(&self, key: &str, words: &[&str]) -> Result<Option<W>, ScenarioError> {
        self.read_key(key, "a string", |value| {
            let Some(word) = value.as_str() else { return Ok(None) };
            let unknown_word = |_| format!("unknown word `{word}`{}", suggest_known(word, words));
            serde_json::from_value(Value::from(word)).map(Some).map_err(unknown_word)
        })
    }

    pub(super) fn failure_kind(&self, key: &str) -> Result<Option<CallFailureKind>, ScenarioError> {
        self.enum_word(key, &FAILURE_KIND_WORDS)
    }

    /// Reads any value as JSON; a string must contain JSON itself.
    pub(super) fn json(&self, key: &str) -> Result<Option<Value>, ScenarioError> {
        self.read_key(key, "a table, a list, or a JSON string", |value| match value {
            DeValue::String(text) => {
                serde_json::from_str(text).map(Some).map_err(|error| format!("not valid JSON: {error}"))
            }
            other => toml_to_json(other).map(Some),
        })
    }

    /// Reads a table within this one.
    pub(super) fn table(&self, key: &str, keys: &[&str]) -> Result<Option<ScenarioTable<'t>>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let inner = value.get_ref().as_table().ok_or_else(|| self.key_error(key, "expected a table"))?;
        ScenarioTable::new(self.lines, self.table_name.clone(), value.span().start, inner, keys).map(Some)
    }

    /// Reads a list of tables within this one; `table_name` names the n-th.
    pub(super) fn tables(
        &self,
        key: &str,
        keys: &[&str],
        table_name: impl Fn(usize) -> Option<String>,
    ) -> Result<Vec<ScenarioTable<'t>>, ScenarioError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let items = value.get_ref().as_array().ok_or_else(|| self.key_error(key, "expected a list of tables"))?;
        let tables = items.iter().enumerate().map(|(index, item)| {
            let table = item.get_ref().as_table().ok_or_else(|| self.key_error(key, "expected a list of tables"))?;
            ScenarioTable::new(self.lines, table_name(index + 1), item.span().start, table, keys)
        });
        tables.collect()
    }

    /// Builds an error about one key.
    pub(super) fn key_error(&self, key: &str, message: impl Into<String>) -> ScenarioError {
        let start = self.table.get_key_value(key).map(|(key, _)| key.span().start);
        match start {
            Some(start) => self.error_at(start, format!("`{key}`: {}", message.into())),
            None => self.table_error(message),
        }
    }

    fn error_at(&self, start: usize, message: String) -> ScenarioError {
        ScenarioError { line: self.lines.line_of_byte(start), table: self.table_name.clone(), message }
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

/// The serialized names of [`CallFailureKind`].
pub(super) const FAILURE_KIND_WORDS: [&str; 10] = [
    "invalid_api_key",
    "model_not_found",
    "context_too_long",
    "rate_limit",
    "overload",
    "network",
    "timeout",
    "malformed_reply",
    "refused",
    "bad_request",
];

/// Returns a suggestion, or else all known names.
fn suggest_known(given: &str, known: &[&str]) -> String {
    let guess = did_you_mean_suffix(given, known.iter().copied());
    if guess.is_empty() { format!("; expected one of {}", known.join(", ")) } else { guess }
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
            .ok_or_else(|| format!("`{float}` is not a JSON number"))?,
        DeValue::Datetime(datetime) => Value::from(datetime.to_string()),
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
    fn every_failure_word_is_a_failure_kind() {
        for word in FAILURE_KIND_WORDS {
            let kind: CallFailureKind = serde_json::from_value(Value::from(word)).expect("a kind");
            assert_eq!(serde_json::to_value(kind).expect("a word"), word);
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let lines = LineIndex::new("a\nb\n\nc");
        assert_eq!([0, 1, 2, 3, 4, 5, 99].map(|byte| lines.line_of_byte(byte)), [1, 1, 2, 2, 3, 4, 4]);
    }
}
