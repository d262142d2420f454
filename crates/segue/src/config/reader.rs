//! Reads a TOML file key by key, so that every complaint names the file, the line, the key, and what would be right.
//! Knows no particular key.

use std::path::{Path, PathBuf};

use segue_core::ids::ModelName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Origin, Setting};
use crate::suggest::hint;

/// What is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {message}", file.display())]
pub struct Error {
    /// In which file.
    pub file: PathBuf,
    /// On which line.
    pub line: usize,
    /// What.
    pub message: String,
}

/// Words that end the name of a key whose value is a secret.
const SECRET_ENDINGS: [&str; 8] =
    ["key", "apikey", "token", "secret", "password", "passphrase", "credential", "credentials"];

/// The text of a file, to turn places into lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page<'t> {
    pub file: &'t Path,
    pub text: &'t str,
}

impl<'t> Page<'t> {
    pub fn error(&self, byte: usize, message: impl Into<String>) -> Error {
        Error { file: self.file.to_owned(), line: self.line(byte), message: message.into() }
    }

    fn line(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().iter().take(byte);
        before.filter(|byte| **byte == b'\n').count() + 1
    }
}

/// One table of the file.
#[derive(Debug, Clone)]
pub(super) struct Table<'t> {
    page: Page<'t>,
    /// What its keys are called from the top: empty, or `models.fast.`.
    prefix: String,
    start: usize,
    table: &'t DeTable<'t>,
}

/// One key of a table whose keys are names.
pub(super) struct Named<'t> {
    pub name: String,
    pub start: usize,
    pub value: &'t DeValue<'t>,
    pub value_start: usize,
}

impl<'t> Table<'t> {
    pub fn top(page: Page<'t>, table: &'t DeTable<'t>) -> Result<Self, Error> {
        let table = Self { page, prefix: String::new(), start: 0, table };
        table.refuse_secrets()?;
        Ok(table)
    }

    /// Refuses keys that are not among these.
    pub fn only(self, known: &[&str]) -> Result<Self, Error> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let message = format!("unknown key `{}{name}`{}", self.prefix, hint(name, known.iter().copied()));
                return Err(self.page.error(key.span().start, message));
            }
        }
        Ok(self)
    }

    /// A complaint about the table as a whole.
    pub fn complain(&self, message: impl Into<String>) -> Error {
        self.page.error(self.start, message)
    }

    /// A complaint about a place in the file.
    pub fn error(&self, byte: usize, message: impl Into<String>) -> Error {
        self.page.error(byte, message)
    }

    pub fn text(&self, key: &str) -> Result<Option<Setting<String>>, Error> {
        self.read(key, "a text in quotes", |value| value.as_str().map(str::to_owned))
    }

    /// A list of texts; none if the key is not there.
    pub fn texts(&self, key: &str) -> Result<Vec<Setting<String>>, Error> {
        let found = self.read(key, "a list of texts in quotes", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        })?;
        let Some(Setting { value, origin }) = found else { return Ok(Vec::new()) };
        Ok(value.into_iter().map(|value| Setting { value, origin }).collect())
    }

    /// A whole number of at least `least`.
    pub fn number<N: TryFrom<u64>>(&self, key: &str, least: u64) -> Result<Option<Setting<N>>, Error> {
        self.read(key, &format!("a whole number of at least {least}"), |value| {
            let integer = value.as_integer()?;
            let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            N::try_from(number).ok().filter(|_| number >= least)
        })
    }

    /// A number between two others, with or without a point.
    pub fn decimal(&self, key: &str, least: f64, most: f64) -> Result<Option<Setting<f64>>, Error> {
        self.read(key, &format!("a number from {least} to {most}"), |value| {
            let number: f64 = match value {
                DeValue::Float(float) => float.as_str().parse().ok()?,
                DeValue::Integer(integer) => integer.as_str().parse().ok()?,
                _ => return None,
            };
            (least..=most).contains(&number).then_some(number)
        })
    }

    /// Yes or no.
    pub fn flag(&self, key: &str) -> Result<Option<Setting<bool>>, Error> {
        self.read(key, "true or false", |value| value.as_bool())
    }

    /// An amount of dollars, as micro-dollars.
    pub fn dollars(&self, key: &str) -> Result<Option<Setting<u64>>, Error> {
        self.read(key, "an amount of dollars such as 0.25", |value| {
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
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<Setting<T>>, Error> {
        let Some(found) = self.text(key)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == found.value) {
            Some((_, value)) => Ok(Some(Setting { value: *value, origin: found.origin })),
            None => {
                let known = hint(&found.value, words.iter().map(|(word, _)| *word));
                Err(self.page.error(
                    self.start_of(key),
                    format!("`{}{key}`: no such word `{}`{known}", self.prefix, found.value),
                ))
            }
        }
    }

    /// A table within this one.
    pub fn table(&self, key: &str) -> Result<Option<Table<'t>>, Error> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        self.inner(key, name.span().start, value.get_ref(), value.span().start).map(Some)
    }

    /// The table that is the value of a name in this one.
    pub fn named_table(&self, named: &Named<'t>) -> Result<Table<'t>, Error> {
        self.inner(&named.name, named.start, named.value, named.value_start)
    }

    fn inner(&self, key: &str, start: usize, value: &'t DeValue<'t>, value_start: usize) -> Result<Table<'t>, Error> {
        let table = value.as_table().ok_or_else(|| self.page.error(start, self.expected(key, "a table", value)))?;
        // The value of a `[heading]` begins at its bracket; that of an inline table at its brace.
        let start = if start == 0 { value_start } else { start };
        let table = Self { page: self.page, prefix: format!("{}{key}.", self.prefix), start, table };
        table.refuse_secrets()?;
        Ok(table)
    }

    /// Every key of a table whose keys are names, in the file's order.
    pub fn names(&self) -> Vec<Named<'t>> {
        let mut names: Vec<Named<'t>> = self
            .table
            .iter()
            .map(|(name, value)| Named {
                name: name.get_ref().to_string(),
                start: name.span().start,
                value: value.get_ref(),
                value_start: value.span().start,
            })
            .collect();
        names.sort_by_key(|named| named.start);
        names
    }

    /// A model's name as the value of `named`.
    pub fn model(&self, named: &Named<'t>) -> Result<Setting<ModelName>, Error> {
        match named.value.as_str() {
            Some(text) => Ok(Setting { value: text.into(), origin: self.origin(named.start) }),
            None => {
                Err(self.page.error(named.start, self.expected(&named.name, "a model's name in quotes", named.value)))
            }
        }
    }

    pub fn origin(&self, byte: usize) -> Origin {
        Origin::File { line: self.page.line(byte) }
    }

    /// Where a key stands, to complain about its value.
    pub fn start_of(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.start, |(key, _)| key.span().start)
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Result<Option<Setting<T>>, Error> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        let start = name.span().start;
        match read(Spanned::get_ref(value)) {
            Some(value) => Ok(Some(Setting { value, origin: self.origin(start) })),
            None => Err(self.page.error(start, self.expected(key, expected, value.get_ref()))),
        }
    }

    fn expected(&self, key: &str, expected: &str, found: &DeValue<'_>) -> String {
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
    fn refuse_secrets(&self) -> Result<(), Error> {
        for (key, value) in self.table {
            let name = key.get_ref().to_lowercase().replace('-', "_");
            let is_secret = name.rsplit('_').next().is_some_and(|end| SECRET_ENDINGS.contains(&end));
            if is_secret && !matches!(value.get_ref(), DeValue::Table(_)) {
                let message = format!(
                    "`{}{}` looks like a secret; secrets are taken from the environment only, so remove it here and set it there",
                    self.prefix,
                    key.get_ref()
                );
                return Err(self.page.error(key.span().start, message));
            }
        }
        Ok(())
    }
}
