//! Typed access to the tables of a TOML file. Every error names the file, the line, the key and the expected value.
//! The names of the keys are in the parser.

use std::path::{Path, PathBuf};

use segue_core::ids::ModelName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigValue, ConfigValueOrigin};
use crate::suggest::suggestion_hint;

/// A mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {message}", file.display())]
pub(crate) struct ConfigError {
    pub file: PathBuf,
    pub line: usize,
    pub message: String,
}

/// A key whose name ends with one of these words has a secret as its value.
const SECRET_KEY_SUFFIXES: [&str; 8] =
    ["key", "apikey", "token", "secret", "password", "passphrase", "credential", "credentials"];

/// The text of a file, used to turn byte offsets into line numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigFileText<'t> {
    pub file: &'t Path,
    pub text: &'t str,
}

impl<'t> ConfigFileText<'t> {
    pub(crate) fn error_at(&self, byte: usize, message: impl Into<String>) -> ConfigError {
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
    source: ConfigFileText<'t>,
    /// The path of the table with a trailing dot, such as `models.fast.`; empty for the root.
    prefix: String,
    offset: usize,
    table: &'t DeTable<'t>,
}

/// One key of a table whose keys are names.
pub(super) struct ConfigTableEntry<'t> {
    pub name: String,
    pub offset: usize,
    pub value: &'t DeValue<'t>,
    pub value_offset: usize,
}

impl<'t> ConfigTable<'t> {
    pub(crate) fn root(source: ConfigFileText<'t>, table: &'t DeTable<'t>) -> Result<Self, ConfigError> {
        let table = Self { source, prefix: String::new(), offset: 0, table };
        table.reject_secrets()?;
        Ok(table)
    }

    /// Returns an error if the table has a key that is not in `known`.
    pub(crate) fn deny_unknown_keys(self, known: &[&str]) -> Result<Self, ConfigError> {
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

    /// Returns an error about the table as a whole.
    pub(crate) fn table_error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error_at(self.offset, message)
    }

    /// Returns an error at a byte offset.
    pub(crate) fn error_at(&self, byte: usize, message: impl Into<String>) -> ConfigError {
        self.source.error_at(byte, message)
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<ConfigValue<String>>, ConfigError> {
        self.read_value(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// Reads a list of strings; empty if the key is absent.
    pub(crate) fn string_list(&self, key: &str) -> Result<Vec<ConfigValue<String>>, ConfigError> {
        let found = self.read_value(key, "a list of strings", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        })?;
        let Some(ConfigValue { value, origin }) = found else { return Ok(Vec::new()) };
        Ok(value.into_iter().map(|value| ConfigValue { value, origin }).collect())
    }

    /// Reads a whole number of at least `least`.
    pub(crate) fn integer<N: TryFrom<u64>>(
        &self,
        key: &str,
        least: u64,
    ) -> Result<Option<ConfigValue<N>>, ConfigError> {
        self.read_value(key, &format!("a whole number of at least {least}"), |value| {
            let integer = value.as_integer()?;
            let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            N::try_from(number).ok().filter(|_| number >= least)
        })
    }

    /// Reads a number from `least` to `most`, with or without a decimal point.
    pub(crate) fn float(&self, key: &str, least: f64, most: f64) -> Result<Option<ConfigValue<f64>>, ConfigError> {
        self.read_value(key, &format!("a number from {least} to {most}"), |value| {
            let number: f64 = match value {
                DeValue::Float(float) => float.as_str().parse().ok()?,
                DeValue::Integer(integer) => integer.as_str().parse().ok()?,
                _ => return None,
            };
            (least..=most).contains(&number).then_some(number)
        })
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<ConfigValue<bool>>, ConfigError> {
        self.read_value(key, "true or false", |value| value.as_bool())
    }

    /// Reads an amount of dollars and returns it in micro-dollars.
    pub(crate) fn dollars_as_micros(&self, key: &str) -> Result<Option<ConfigValue<u64>>, ConfigError> {
        self.read_value(key, "an amount of dollars such as 0.25", |value| {
            let amount: f64 = match value {
                DeValue::Float(float) => float.as_str().parse().ok()?,
                DeValue::Integer(integer) => integer.as_str().parse().ok()?,
                _ => return None,
            };
            let micro = (amount * 1e6).round();
            // Below this bound an f64 holds whole numbers exactly, and no price is higher.
            (0.0..1e15).contains(&micro).then_some(micro as u64)
        })
    }

    /// Reads one of several named values.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<ConfigValue<T>>, ConfigError> {
        let Some(found) = self.string(key)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == found.value) {
            Some((_, value)) => Ok(Some(ConfigValue { value: *value, origin: found.origin })),
            None => {
                let hint = suggestion_hint(&found.value, choices.iter().map(|(name, _)| *name));
                Err(self.source.error_at(
                    self.key_offset(key),
                    format!("`{}{key}`: unknown value `{}`{hint}", self.prefix, found.value),
                ))
            }
        }
    }

    /// Returns the table at a key of this one.
    pub(crate) fn subtable(&self, key: &str) -> Result<Option<ConfigTable<'t>>, ConfigError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        self.nested_table(key, name.span().start, value.get_ref(), value.span().start).map(Some)
    }

    /// Returns the table of an entry of this one.
    pub(crate) fn entry_table(&self, named: &ConfigTableEntry<'t>) -> Result<ConfigTable<'t>, ConfigError> {
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
        // The span of a `[heading]` starts at its bracket, that of an inline table at its brace.
        let start = if start == 0 { value_start } else { start };
        let table = Self { source: self.source, prefix: format!("{}{key}.", self.prefix), offset: start, table };
        table.reject_secrets()?;
        Ok(table)
    }

    /// Returns all entries of a table whose keys are names, in file order.
    pub(crate) fn entries(&self) -> Vec<ConfigTableEntry<'t>> {
        let mut names: Vec<ConfigTableEntry<'t>> = self
            .table
            .iter()
            .map(|(name, value)| ConfigTableEntry {
                name: name.get_ref().to_string(),
                offset: name.span().start,
                value: value.get_ref(),
                value_offset: value.span().start,
            })
            .collect();
        names.sort_by_key(|named| named.offset);
        names
    }

    /// Reads the name of a model from the value of an entry.
    pub(crate) fn model_name(&self, named: &ConfigTableEntry<'t>) -> Result<ConfigValue<ModelName>, ConfigError> {
        match named.value.as_str() {
            Some(text) => Ok(ConfigValue { value: text.into(), origin: self.origin_at(named.offset) }),
            None => Err(self.source.error_at(
                named.offset,
                self.type_mismatch_message(&named.name, "the name of a model as a string", named.value),
            )),
        }
    }

    pub(crate) fn origin_at(&self, byte: usize) -> ConfigValueOrigin {
        ConfigValueOrigin::File { line: self.source.line_number(byte) }
    }

    /// Returns the byte offset of a key, or of the table if the key is absent.
    pub(crate) fn key_offset(&self, key: &str) -> usize {
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
            DeValue::Boolean(value) => format!("{value}"),
            DeValue::String(_) => "a string".to_owned(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
            DeValue::Datetime(_) => "a date".to_owned(),
        };
        format!("`{}{key}`: expected {expected}, found {found}", self.prefix)
    }

    /// Returns an error if a key looks like a secret, which could be committed with the file by accident.
    fn reject_secrets(&self) -> Result<(), ConfigError> {
        for (key, value) in self.table {
            let name = key.get_ref().to_lowercase().replace('-', "_");
            let is_secret = name.rsplit('_').next().is_some_and(|end| SECRET_KEY_SUFFIXES.contains(&end));
            if is_secret && !matches!(value.get_ref(), DeValue::Table(_)) {
                let message = format!(
                    "`{}{}` looks like a secret; remove it and set it in the environment instead",
                    self.prefix,
                    key.get_ref()
                );
                return Err(self.source.error_at(key.span().start, message));
            }
        }
        Ok(())
    }
}
