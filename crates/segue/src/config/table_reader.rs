//! Reads a TOML file key by key, so that every complaint names the file, the line, the key, and what would be right.
//! Knows no particular key.

use std::path::{Path, PathBuf};

use segue_core::ids::ModelName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigValue, ValueOrigin};
use crate::suggest::suggestion_hint;

/// What is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {message}", file.display())]
pub struct ConfigError {
    /// In which file.
    pub file: PathBuf,
    /// On which line.
    pub line: usize,
    /// What.
    pub message: String,
}

/// Words that end the name of a key whose value is a secret.
const SECRET_KEY_SUFFIXES: [&str; 8] =
    ["key", "apikey", "token", "secret", "password", "passphrase", "credential", "credentials"];

/// The text of a file, to turn places into lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigSource<'t> {
    pub file: &'t Path,
    pub text: &'t str,
}

impl<'t> ConfigSource<'t> {
    pub fn error_at(&self, byte: usize, message: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: self.line_number(byte), message: message.into() }
    }

    fn line_number(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().iter().take(byte);
        before.filter(|byte| **byte == b'\n').count() + 1
    }
}

/// One table of the file.
#[derive(Debug, Clone)]
pub(super) struct ConfigTable<'t> {
    source: ConfigSource<'t>,
    /// What its keys are called from the top: empty, or `models.fast.`.
    prefix: String,
    offset: usize,
    table: &'t DeTable<'t>,
}

/// One key of a table whose keys are names.
pub(super) struct TableEntry<'t> {
    pub name: String,
    pub offset: usize,
    pub value: &'t DeValue<'t>,
    pub value_offset: usize,
}

impl<'t> ConfigTable<'t> {
    pub fn root(page: ConfigSource<'t>, table: &'t DeTable<'t>) -> Result<Self, ConfigError> {
        let table = Self { source: page, prefix: String::new(), offset: 0, table };
        table.reject_secrets()?;
        Ok(table)
    }

    /// Refuses keys that are not among these.
    pub fn deny_unknown_keys(self, known: &[&str]) -> Result<Self, ConfigError> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let message =
                    format!("unknown key `{}{name}`{}", self.prefix, suggestion_hint(name, known.iter().copied()));
                return Err(self.source.error_at(key.span().start, message));
            }
        }
        Ok(self)
    }

    /// A complaint about the table as a whole.
    pub fn table_error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error_at(self.offset, message)
    }

    /// A complaint about a place in the file.
    pub fn error_at(&self, byte: usize, message: impl Into<String>) -> ConfigError {
        self.source.error_at(byte, message)
    }

    pub fn string(&self, key: &str) -> Result<Option<ConfigValue<String>>, ConfigError> {
        self.read_value(key, "a text in quotes", |value| value.as_str().map(str::to_owned))
    }

    /// A list of texts; none if the key is not there.
    pub fn string_list(&self, key: &str) -> Result<Vec<ConfigValue<String>>, ConfigError> {
        let found = self.read_value(key, "a list of texts in quotes", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        })?;
        let Some(ConfigValue { value, origin }) = found else { return Ok(Vec::new()) };
        Ok(value.into_iter().map(|value| ConfigValue { value, origin }).collect())
    }

    /// A whole number of at least `least`.
    pub fn integer<N: TryFrom<u64>>(&self, key: &str, least: u64) -> Result<Option<ConfigValue<N>>, ConfigError> {
        self.read_value(key, &format!("a whole number of at least {least}"), |value| {
            let integer = value.as_integer()?;
            let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            N::try_from(number).ok().filter(|_| number >= least)
        })
    }

    /// A number between two others, with or without a point.
    pub fn float(&self, key: &str, least: f64, most: f64) -> Result<Option<ConfigValue<f64>>, ConfigError> {
        self.read_value(key, &format!("a number from {least} to {most}"), |value| {
            let number: f64 = match value {
                DeValue::Float(float) => float.as_str().parse().ok()?,
                DeValue::Integer(integer) => integer.as_str().parse().ok()?,
                _ => return None,
            };
            (least..=most).contains(&number).then_some(number)
        })
    }

    /// Yes or no.
    pub fn boolean(&self, key: &str) -> Result<Option<ConfigValue<bool>>, ConfigError> {
        self.read_value(key, "true or false", |value| value.as_bool())
    }

    /// An amount of dollars, as micro-dollars.
    pub fn dollars_as_micros(&self, key: &str) -> Result<Option<ConfigValue<u64>>, ConfigError> {
        self.read_value(key, "an amount of dollars such as 0.25", |value| {
            let amount: f64 = match value {
                DeValue::Float(float) => float.as_str().parse().ok()?,
                DeValue::Integer(integer) => integer.as_str().parse().ok()?,
                _ => return None,
            };
            let micro = (amount * 1e6).round();
            // Beyond this no price is meant, and a whole number is exact below it.
            (0.0..1e15).contains(&micro).then_some(micro as u64)
        })
    }

    /// One of the words of a closed list.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<ConfigValue<T>>, ConfigError> {
        let Some(found) = self.string(key)? else { return Ok(None) };
        match choices.iter().find(|(word, _)| *word == found.value) {
            Some((_, value)) => Ok(Some(ConfigValue { value: *value, origin: found.origin })),
            None => {
                let known = suggestion_hint(&found.value, choices.iter().map(|(word, _)| *word));
                Err(self.source.error_at(
                    self.key_offset(key),
                    format!("`{}{key}`: no such word `{}`{known}", self.prefix, found.value),
                ))
            }
        }
    }

    /// A table within this one.
    pub fn subtable(&self, key: &str) -> Result<Option<ConfigTable<'t>>, ConfigError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        self.nested_table(key, name.span().start, value.get_ref(), value.span().start).map(Some)
    }

    /// The table that is the value of a name in this one.
    pub fn entry_table(&self, named: &TableEntry<'t>) -> Result<ConfigTable<'t>, ConfigError> {
        self.nested_table(&named.name, named.offset, named.value, named.value_offset)
    }

    fn nested_table(
        &self,
        key: &str,
        start: usize,
        value: &'t DeValue<'t>,
        value_start: usize,
    ) -> Result<ConfigTable<'t>, ConfigError> {
        let table = value
            .as_table()
            .ok_or_else(|| self.source.error_at(start, self.type_mismatch_message(key, "a table", value)))?;
        // The value of a `[heading]` begins at its bracket; that of an inline table at its brace.
        let start = if start == 0 { value_start } else { start };
        let table = Self { source: self.source, prefix: format!("{}{key}.", self.prefix), offset: start, table };
        table.reject_secrets()?;
        Ok(table)
    }

    /// Every key of a table whose keys are names, in the file's order.
    pub fn entries(&self) -> Vec<TableEntry<'t>> {
        let mut names: Vec<TableEntry<'t>> = self
            .table
            .iter()
            .map(|(name, value)| TableEntry {
                name: name.get_ref().to_string(),
                offset: name.span().start,
                value: value.get_ref(),
                value_offset: value.span().start,
            })
            .collect();
        names.sort_by_key(|named| named.offset);
        names
    }

    /// A model's name as the value of `named`.
    pub fn model_name(&self, named: &TableEntry<'t>) -> Result<ConfigValue<ModelName>, ConfigError> {
        match named.value.as_str() {
            Some(text) => Ok(ConfigValue { value: text.into(), origin: self.origin_at(named.offset) }),
            None => Err(self.source.error_at(
                named.offset,
                self.type_mismatch_message(&named.name, "a model's name in quotes", named.value),
            )),
        }
    }

    pub fn origin_at(&self, byte: usize) -> ValueOrigin {
        ValueOrigin::File { line: self.source.line_number(byte) }
    }

    /// Where a key stands, to complain about its value.
    pub fn key_offset(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.offset, |(key, _)| key.span().start)
    }

    fn read_value<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Result<Option<ConfigValue<T>>, ConfigError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        let start = name.span().start;
        match read(Spanned::get_ref(value)) {
            Some(value) => Ok(Some(ConfigValue { value, origin: self.origin_at(start) })),
            None => Err(self.source.error_at(start, self.type_mismatch_message(key, expected, value.get_ref()))),
        }
    }

    fn type_mismatch_message(&self, key: &str, expected: &str, found: &DeValue<'_>) -> String {
        let found = match found {
            DeValue::Integer(integer) => format!("the number {}", integer.as_str()),
            DeValue::Float(float) => format!("the number {}", float.as_str()),
            DeValue::Boolean(yes) => format!("{yes}"),
            DeValue::String(_) => "a text".to_owned(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
            DeValue::Datetime(_) => "a date".to_owned(),
        };
        format!("`{}{key}`: expected {expected}, found {found}", self.prefix)
    }

    /// A secret in a file is an accident waiting to be committed.
    fn reject_secrets(&self) -> Result<(), ConfigError> {
        for (key, value) in self.table {
            let name = key.get_ref().to_lowercase().replace('-', "_");
            let is_secret = name.rsplit('_').next().is_some_and(|end| SECRET_KEY_SUFFIXES.contains(&end));
            if is_secret && !matches!(value.get_ref(), DeValue::Table(_)) {
                let message = format!(
                    "`{}{}` looks like a secret; secrets are taken from the environment only, so remove it here and set it there",
                    self.prefix,
                    key.get_ref()
                );
                return Err(self.source.error_at(key.span().start, message));
            }
        }
        Ok(())
    }
}
