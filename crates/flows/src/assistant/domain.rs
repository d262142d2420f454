//! A domain: what a person keeps records of, declared as data. Types, their fields, how records refer to one another, and
//! what a value must look like. The flow reads it to know what it may plan, the host of the records to know what it may
//! store; neither knows any particular domain.

mod filter;
mod mcp_server;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use filter::{FilterOperator, RecordFilter, RecordQuery, RecordSort};
pub use mcp_server::{McpServerConfig, McpToolConfig, McpTransport};
pub use record::{LinkResolver, RecordCompleteness, check_record, check_value, is_date, parse_days_from_today};

use crate::limits::{
    DOMAIN_DESCRIPTION_CHARS_MAX, DOMAIN_FIELDS_MAX, DOMAIN_NAME_CHARS_MAX, DOMAIN_SAMPLES_MAX, DOMAIN_TYPES_MAX,
};

/// The domains that come with the program.
const BUILT_IN_DOMAINS: [&str; 2] = [
    include_str!("../../prompts/assistant/domains/kitchen.toml"),
    include_str!("../../prompts/assistant/domains/reading.toml"),
];

/// What a record's own id is called in a filter.
pub const ID_FIELD: &str = "id";
/// What a sample is called by other samples.
pub const SAMPLE_KEY_FIELD: &str = "key";

/// What a person keeps records of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSchema {
    /// Its name.
    pub name: String,
    /// What it is about, for models and people.
    #[serde(default)]
    pub about: String,
    /// The types of record, in the order they are told.
    #[serde(default, rename = "type")]
    pub types: Vec<RecordType>,
    /// Records to begin with, by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<Map<String, Value>>>,
    /// A server that brings the tools, in place of tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<McpServerConfig>,
}

/// A type of record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordType {
    /// Its name; references are made from it (`recipe_1`).
    pub name: String,
    /// What it is, in a few words.
    #[serde(default)]
    pub about: String,
    /// The field that names a record to people.
    pub label: String,
    /// The fields that are read where a summary is enough; the label is always among them.
    #[serde(default)]
    pub summary: Vec<String>,
    /// Its fields, in order.
    pub fields: Vec<RecordField>,
}

/// A field of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordField {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: FieldKind,
    /// What it means, where the name does not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Whether a record must have it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// The only texts it takes, if it does not take any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
    /// The least number it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest number it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// For a link: the type it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For a link: what becomes of it when the record it leads to is deleted.
    #[serde(default, skip_serializing_if = "OnDelete::is_default")]
    pub on_delete: OnDelete,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What the values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    YesNo,
    /// A day, as `2026-01-31`.
    Date,
    /// Several texts.
    List,
    /// One other record.
    Link,
    /// Several other records.
    Links,
}

impl FieldKind {
    /// The word for it, as a declaration writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::YesNo => "yes_no",
            Self::Date => "date",
            Self::List => "list",
            Self::Link => "link",
            Self::Links => "links",
        }
    }

    /// Whether it leads to other records.
    #[must_use]
    pub fn is_link(self) -> bool {
        matches!(self, Self::Link | Self::Links)
    }
}

/// What becomes of a link when the record it leads to is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDelete {
    /// The record is not deleted as long as something leads to it.
    #[default]
    Refuse,
    /// The link is emptied.
    Clear,
}

impl OnDelete {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl DomainSchema {
    /// Reads a declaration.
    ///
    /// # Errors
    /// It is no declaration, or contradicts itself; says where and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let domain: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        domain.validate()
    }

    /// Reads a declaration that came as JSON, as in a session's settings.
    ///
    /// # Errors
    /// As [`Domain::parse`].
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let domain: Self = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        domain.validate()
    }

    /// The domains that come with the program.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN_DOMAINS
            .iter()
            .map(|text| Self::parse(text).expect("a shipped domain is sound, and tests say so"))
            .collect()
    }

    /// The type of this name.
    #[must_use]
    pub fn find_type(&self, name: &str) -> Option<&RecordType> {
        self.types.iter().find(|kind| kind.name == name)
    }

    /// The type of this name, or a complaint that names those there are.
    ///
    /// # Errors
    /// There is none.
    pub fn expect_type(&self, name: &str) -> Result<&RecordType, String> {
        self.find_type(name)
            .ok_or_else(|| format!("there is no type `{name}`; there are {}", format_name_list(self.type_names())))
    }

    /// The names of the types, in order.
    pub fn type_names(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|kind| kind.name.as_str())
    }

    /// Every field of every type that leads to records of type `to`.
    pub fn fields_linking_to<'d>(&'d self, to: &'d str) -> impl Iterator<Item = (&'d RecordType, &'d RecordField)> {
        let fields = self.types.iter().flat_map(|kind| kind.fields.iter().map(move |field| (kind, field)));
        fields.filter(move |(_, field)| field.to.as_deref() == Some(to))
    }

    fn validate(self) -> Result<Self, String> {
        let faults = self.validation_errors();
        if faults.is_empty() { Ok(self) } else { Err(faults.join("; ")) }
    }

    /// What in the declaration contradicts itself.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        let mut faults: Vec<String> = check_declared_name("the domain", &self.name).into_iter().collect();
        if self.types.is_empty() && self.server.is_none() {
            faults.push("it has no types; a domain needs at least one `[[type]]`".to_owned());
        }
        if self.types.len() > DOMAIN_TYPES_MAX {
            faults.push(format!("it has {} types; at most {DOMAIN_TYPES_MAX} are taken", self.types.len()));
        }
        faults.extend(check_about_length("the domain", &self.about));
        faults.extend(duplicate_name_errors("type", self.type_names()));
        faults.extend(self.types.iter().flat_map(|kind| kind.validation_errors(self)));
        faults.extend(self.sample_errors());
        faults.extend(self.server.iter().flat_map(|server| server.validation_errors(self)));
        faults
    }

    fn sample_errors(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let count: usize = self.samples.values().map(Vec::len).sum();
        if count > DOMAIN_SAMPLES_MAX {
            faults.push(format!("it has {count} samples; at most {DOMAIN_SAMPLES_MAX} are taken"));
        }
        for (name, samples) in &self.samples {
            let kind = match self.expect_type(name) {
                Ok(kind) => kind,
                Err(why) => {
                    faults.push(format!("samples: {why}"));
                    continue;
                }
            };
            for (place, sample) in samples.iter().enumerate() {
                let values = kind.resolve_sample_values(sample, |_| "2000-01-01".to_owned());
                let known = |field: &RecordField, key: &str| self.resolve_sample_key(field, key);
                if let Err(wrong) = check_record(kind, &values, RecordCompleteness::AllRequired, &known) {
                    faults.push(format!("sample {} of `{name}`: {}", place + 1, wrong.join(", ")));
                }
            }
        }
        faults
    }

    /// A link between samples goes by their keys.
    fn resolve_sample_key(&self, field: &RecordField, key: &str) -> Result<String, String> {
        let to = field.to.as_deref().unwrap_or_default();
        let keys =
            self.samples.get(to).into_iter().flatten().filter_map(|sample| sample.get(SAMPLE_KEY_FIELD)?.as_str());
        let keys: Vec<&str> = keys.collect();
        if keys.contains(&key) {
            return Ok(key.to_owned());
        }
        Err(format!("no sample of `{to}` has the key `{key}`; there are {}", format_name_list(keys.into_iter())))
    }
}

impl RecordType {
    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&RecordField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field of this name, or a complaint that names those there are.
    ///
    /// # Errors
    /// There is none.
    pub fn expect_field(&self, name: &str) -> Result<&RecordField, String> {
        self.field(name).ok_or_else(|| {
            let names = self.fields.iter().map(|field| field.name.as_str());
            format!("`{}` has no field `{name}`; it has {}", self.name, format_name_list(names))
        })
    }

    /// The fields of a summary, the label first.
    #[must_use]
    pub fn summary_fields(&self) -> Vec<&RecordField> {
        let names = std::iter::once(&self.label).chain(self.summary.iter().filter(|name| **name != self.label));
        names.filter_map(|name| self.field(name)).collect()
    }

    /// The values of a sample, with `day` for a date that is so many days from today.
    pub fn resolve_sample_values(
        &self,
        sample: &Map<String, Value>,
        date_after_days: impl Fn(i64) -> String,
    ) -> Map<String, Value> {
        let values = sample.iter().filter(|(name, _)| *name != SAMPLE_KEY_FIELD).map(|(name, value)| {
            let is_date = self.field(name).is_some_and(|field| field.kind == FieldKind::Date);
            let days = value.as_str().filter(|_| is_date).and_then(parse_days_from_today);
            (name.clone(), days.map_or_else(|| value.clone(), |days| Value::String(date_after_days(days))))
        });
        values.collect()
    }

    fn validation_errors(&self, domain: &DomainSchema) -> Vec<String> {
        let what = format!("type `{}`", self.name);
        let mut faults: Vec<String> = check_declared_name(&what, &self.name).into_iter().collect();
        if self.name.starts_with("gen_") {
            faults.push(format!("{what}: names that begin with `gen_` are those of drafts; choose another"));
        }
        if self.fields.len() > DOMAIN_FIELDS_MAX {
            faults.push(format!("{what} has {} fields; at most {DOMAIN_FIELDS_MAX} are taken", self.fields.len()));
        }
        faults.extend(check_about_length(&what, &self.about));
        faults.extend(duplicate_name_errors(
            &format!("field of {what}"),
            self.fields.iter().map(|field| field.name.as_str()),
        ));
        match self.field(&self.label) {
            Some(field) if matches!(field.kind, FieldKind::Text | FieldKind::Date | FieldKind::Link) => {}
            Some(_) => faults.push(format!("{what}: its label `{}` must be a text, a date or a link", self.label)),
            None => faults.push(format!("{what}: its label `{}` is none of its fields", self.label)),
        }
        for name in self.summary.iter().filter(|name| self.field(name).is_none()) {
            faults.push(format!("{what}: `{name}` in its summary is none of its fields"));
        }
        faults.extend(self.fields.iter().flat_map(|field| field.validation_errors(&what, domain)));
        faults
    }
}

impl RecordField {
    fn validation_errors(&self, what: &str, domain: &DomainSchema) -> Vec<String> {
        let what = format!("{what}, field `{}`", self.name);
        let mut faults: Vec<String> = check_declared_name(&what, &self.name).into_iter().collect();
        if [ID_FIELD, SAMPLE_KEY_FIELD].contains(&self.name.as_str()) {
            faults.push(format!("{what}: `{ID_FIELD}` and `{SAMPLE_KEY_FIELD}` are taken; choose another name"));
        }
        faults.extend(check_about_length(&what, &self.about));
        match (&self.to, self.kind.is_link()) {
            (None, true) => faults.push(format!("{what}: a link needs `to`, the type it leads to")),
            (Some(_), false) => faults.push(format!("{what}: `to` is for links")),
            (Some(to), true) if domain.find_type(to).is_none() => {
                faults.push(format!("{what}: it leads to `{to}`, and there is no such type"));
            }
            _ => {}
        }
        if !self.one_of.is_empty() && !matches!(self.kind, FieldKind::Text | FieldKind::List) {
            faults.push(format!("{what}: `one_of` is for texts and lists"));
        }
        let numeric = matches!(self.kind, FieldKind::Integer | FieldKind::Number);
        if (self.min.is_some() || self.max.is_some()) && !numeric {
            faults.push(format!("{what}: `min` and `max` are for numbers"));
        }
        faults
    }
}

fn check_declared_name(what: &str, name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(fits)
        && name.chars().count() <= DOMAIN_NAME_CHARS_MAX;
    (!sound).then(|| {
        format!(
            "{what}: `{name}` cannot be its name; a name has up to {DOMAIN_NAME_CHARS_MAX} small letters, digits and `_`, and begins with a letter"
        )
    })
}

fn check_about_length(what: &str, about: &str) -> Option<String> {
    let chars = about.chars().count();
    (chars > DOMAIN_DESCRIPTION_CHARS_MAX).then(|| {
        format!("{what}: its `about` has {chars} characters; at most {DOMAIN_DESCRIPTION_CHARS_MAX} are taken")
    })
}

fn duplicate_name_errors<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).map(|name| format!("the {what} `{name}` is there twice")).collect()
}

/// Names in backticks, for a complaint.
pub(crate) fn format_name_list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
