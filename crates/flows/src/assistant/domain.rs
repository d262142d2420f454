//! The schema of a domain: the types of records, their fields, links and constraints. It is data: the flow reads it to know what it
//! may plan, and the records tool to know what it may store. Neither contains code for a particular domain.

mod filter;
mod mcp_server;
mod record;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use filter::{RecordFieldCondition, RecordFilterOperator, RecordQuery, RecordSort};
pub use mcp_server::{McpServerConfig, McpToolConfig, McpTransport};
pub(crate) use record::is_empty_value;
pub use record::{RecordLinkResolver, RecordValidationMode, check_record, check_value, is_date, parse_days_from_today};
pub use snapshot::{DomainSnapshotParameters, DomainSnapshotQuery, TitledSnapshotQuery};

use crate::limits::{
    DOMAIN_DESCRIPTION_CHARS_MAX, DOMAIN_FIELDS_MAX, DOMAIN_NAME_CHARS_MAX, DOMAIN_SAMPLES_MAX, DOMAIN_TYPES_MAX,
};

/// The declarations of the built-in domains.
const BUILT_IN_DOMAINS: [&str; 2] = [
    include_str!("../../prompts/assistant/domains/kitchen.toml"),
    include_str!("../../prompts/assistant/domains/reading.toml"),
];

/// The name of a record's own id in filters.
pub const ID_FIELD: &str = "id";
/// The field by which samples link to each other.
pub const SAMPLE_KEY_FIELD: &str = "key";

/// The declaration of a domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSchema {
    pub name: String,
    /// A description for models and users.
    #[serde(default)]
    pub about: String,
    /// The types of records, in the order of the declaration.
    #[serde(default, rename = "type")]
    pub types: Vec<RecordType>,
    /// Initial records, by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<Map<String, Value>>>,
    /// Queries whose results prompts show from the first turn on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshot: Vec<DomainSnapshotQuery>,
    /// An MCP server that provides the tools, instead of tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<McpServerConfig>,
}

/// A type of records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordType {
    /// The name, which is also the prefix of references (`recipe_1`).
    pub name: String,
    /// A short description for models and users.
    #[serde(default)]
    pub about: String,
    /// The field whose value is a record's label.
    pub label: String,
    /// The fields of a summary; the label is always one of them.
    #[serde(default)]
    pub summary: Vec<String>,
    /// Whether prompts show all records of this type from the first turn on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub standing: bool,
    pub fields: Vec<RecordField>,
}

/// A field of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordField {
    pub name: String,
    pub kind: RecordFieldKind,
    /// A description, if the name is not enough.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
    /// The allowed texts; any text if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// For links: the type of the linked records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// For links: what happens when the linked record is deleted.
    #[serde(default, skip_serializing_if = "LinkDeletePolicy::is_default")]
    pub on_delete: LinkDeletePolicy,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// The kind of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordFieldKind {
    Text,
    Integer,
    Number,
    YesNo,
    /// A date such as `2026-01-31`.
    Date,
    /// A list of texts.
    List,
    /// A link to one record.
    Link,
    /// Links to several records.
    Links,
}

impl RecordFieldKind {
    /// Returns the name used in declarations.
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

    /// Returns whether the field links to other records.
    #[must_use]
    pub fn is_link(self) -> bool {
        matches!(self, Self::Link | Self::Links)
    }
}

/// What happens to a link when the linked record is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkDeletePolicy {
    /// The linked record cannot be deleted.
    #[default]
    Refuse,
    /// The link is cleared.
    Clear,
}

impl LinkDeletePolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl DomainSchema {
    /// Parses a declaration in TOML.
    ///
    /// # Errors
    /// The declaration is invalid; the text says where, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let domain: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        domain.validate()
    }

    /// Parses a declaration in JSON, as in a session's settings.
    ///
    /// # Errors
    /// As for [`DomainSchema::parse`].
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let domain: Self = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        domain.validate()
    }

    /// Returns the built-in domains.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        BUILT_IN_DOMAINS
            .iter()
            .map(|text| Self::parse(text).expect("the built-in domains are valid, as tests check"))
            .collect()
    }

    /// Returns the type with this name.
    #[must_use]
    pub fn find_type(&self, name: &str) -> Option<&RecordType> {
        self.types.iter().find(|kind| kind.name == name)
    }

    /// Returns the type with this name, or an error that lists the existing ones.
    ///
    /// # Errors
    /// There is no such name.
    pub fn expect_type(&self, name: &str) -> Result<&RecordType, String> {
        self.find_type(name)
            .ok_or_else(|| format!("there is no type `{name}`; the types are {}", format_name_list(self.type_names())))
    }

    /// Returns the names of the types, in the order of the declaration.
    pub fn type_names(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|kind| kind.name.as_str())
    }

    /// Returns every field that links to records of type `to`, with its type.
    pub fn fields_linking_to<'d>(&'d self, to: &'d str) -> impl Iterator<Item = (&'d RecordType, &'d RecordField)> {
        let fields = self.types.iter().flat_map(|kind| kind.fields.iter().map(move |field| (kind, field)));
        fields.filter(move |(_, field)| field.to.as_deref() == Some(to))
    }

    fn validate(self) -> Result<Self, String> {
        let errors = self.validation_errors();
        if errors.is_empty() { Ok(self) } else { Err(errors.join("; ")) }
    }

    /// Returns everything that is wrong with the declaration.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        let mut errors: Vec<String> = check_declared_name("the domain", &self.name).into_iter().collect();
        if self.types.is_empty() && self.server.is_none() {
            errors.push("the domain has no types; declare at least one `[[type]]`".to_owned());
        }
        if self.types.len() > DOMAIN_TYPES_MAX {
            errors.push(format!("the domain has {} types; at most {DOMAIN_TYPES_MAX} are allowed", self.types.len()));
        }
        errors.extend(check_about_length("the domain", &self.about));
        errors.extend(duplicate_name_errors("type", self.type_names()));
        errors.extend(self.types.iter().flat_map(|kind| kind.validation_errors(self)));
        errors.extend(self.sample_errors());
        errors.extend(self.snapshot_errors());
        errors.extend(self.server.iter().flat_map(|server| server.validation_errors(self)));
        errors
    }

    fn sample_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let count: usize = self.samples.values().map(Vec::len).sum();
        if count > DOMAIN_SAMPLES_MAX {
            errors.push(format!("the domain has {count} samples; at most {DOMAIN_SAMPLES_MAX} are allowed"));
        }
        for (name, samples) in &self.samples {
            let kind = match self.expect_type(name) {
                Ok(kind) => kind,
                Err(why) => {
                    errors.push(format!("samples: {why}"));
                    continue;
                }
            };
            for (index, sample) in samples.iter().enumerate() {
                let values = kind.resolve_sample_values(sample, |_| "2000-01-01".to_owned());
                let known = |field: &RecordField, key: &str| self.resolve_sample_key(field, key);
                if let Err(wrong) = check_record(kind, &values, RecordValidationMode::AllRequired, &known) {
                    errors.push(format!("sample {} of `{name}`: {}", index + 1, wrong.join(", ")));
                }
            }
        }
        errors
    }

    /// Checks a link between samples, which uses their keys.
    fn resolve_sample_key(&self, field: &RecordField, key: &str) -> Result<String, String> {
        let to = field.to.as_deref().unwrap_or_default();
        let keys =
            self.samples.get(to).into_iter().flatten().filter_map(|sample| sample.get(SAMPLE_KEY_FIELD)?.as_str());
        let keys: Vec<&str> = keys.collect();
        if keys.contains(&key) {
            return Ok(key.to_owned());
        }
        Err(format!("no sample of `{to}` has the key `{key}`; the keys are {}", format_name_list(keys.into_iter())))
    }
}

impl RecordType {
    /// Returns the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&RecordField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the field with this name, or an error that lists the existing ones.
    ///
    /// # Errors
    /// There is no such name.
    pub fn expect_field(&self, name: &str) -> Result<&RecordField, String> {
        self.field(name).ok_or_else(|| {
            let names = self.fields.iter().map(|field| field.name.as_str());
            format!("`{}` has no field `{name}`; its fields are {}", self.name, format_name_list(names))
        })
    }

    /// Returns the fields of a summary, the label first.
    #[must_use]
    pub fn summary_fields(&self) -> Vec<&RecordField> {
        let names = std::iter::once(&self.label).chain(self.summary.iter().filter(|name| **name != self.label));
        names.filter_map(|name| self.field(name)).collect()
    }

    /// Returns the values of a sample, with dates such as `today+3` resolved by `date_after_days`.
    pub fn resolve_sample_values(
        &self,
        sample: &Map<String, Value>,
        date_after_days: impl Fn(i64) -> String,
    ) -> Map<String, Value> {
        let values = sample.iter().filter(|(name, _)| *name != SAMPLE_KEY_FIELD).map(|(name, value)| {
            let is_date = self.field(name).is_some_and(|field| field.kind == RecordFieldKind::Date);
            let days = value.as_str().filter(|_| is_date).and_then(parse_days_from_today);
            (name.clone(), days.map_or_else(|| value.clone(), |days| Value::String(date_after_days(days))))
        });
        values.collect()
    }

    fn validation_errors(&self, domain: &DomainSchema) -> Vec<String> {
        let what = format!("type `{}`", self.name);
        let mut errors: Vec<String> = check_declared_name(&what, &self.name).into_iter().collect();
        if self.name.starts_with("gen_") {
            errors.push(format!("{what}: names that begin with `gen_` are reserved for drafts; choose another"));
        }
        if self.fields.len() > DOMAIN_FIELDS_MAX {
            errors.push(format!("{what} has {} fields; at most {DOMAIN_FIELDS_MAX} are allowed", self.fields.len()));
        }
        errors.extend(check_about_length(&what, &self.about));
        errors.extend(duplicate_name_errors(
            &format!("field of {what}"),
            self.fields.iter().map(|field| field.name.as_str()),
        ));
        match self.field(&self.label) {
            Some(field)
                if matches!(field.kind, RecordFieldKind::Text | RecordFieldKind::Date | RecordFieldKind::Link) => {}
            Some(_) => {
                errors.push(format!("{what}: the label field `{}` must be a text, a date or a link", self.label))
            }
            None => errors.push(format!("{what}: the label `{}` is not one of its fields", self.label)),
        }
        for name in self.summary.iter().filter(|name| self.field(name).is_none()) {
            errors.push(format!("{what}: `{name}` in the summary is not one of its fields"));
        }
        errors.extend(self.fields.iter().flat_map(|field| field.validation_errors(&what, domain)));
        errors
    }
}

impl RecordField {
    fn validation_errors(&self, what: &str, domain: &DomainSchema) -> Vec<String> {
        let what = format!("{what}, field `{}`", self.name);
        let mut errors: Vec<String> = check_declared_name(&what, &self.name).into_iter().collect();
        if [ID_FIELD, SAMPLE_KEY_FIELD].contains(&self.name.as_str()) {
            errors.push(format!("{what}: `{ID_FIELD}` and `{SAMPLE_KEY_FIELD}` are reserved; choose another name"));
        }
        errors.extend(check_about_length(&what, &self.about));
        match (&self.to, self.kind.is_link()) {
            (None, true) => errors.push(format!("{what}: a link needs `to`, the type of the linked records")),
            (Some(_), false) => errors.push(format!("{what}: `to` is only for links")),
            (Some(to), true) if domain.find_type(to).is_none() => {
                errors.push(format!("{what}: it links to `{to}`, but there is no such type"));
            }
            _ => {}
        }
        if !self.one_of.is_empty() && !matches!(self.kind, RecordFieldKind::Text | RecordFieldKind::List) {
            errors.push(format!("{what}: `one_of` is only for texts and lists"));
        }
        let numeric = matches!(self.kind, RecordFieldKind::Integer | RecordFieldKind::Number);
        if (self.min.is_some() || self.max.is_some()) && !numeric {
            errors.push(format!("{what}: `min` and `max` are only for numbers"));
        }
        errors
    }
}

fn check_declared_name(what: &str, name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(fits)
        && name.chars().count() <= DOMAIN_NAME_CHARS_MAX;
    (!is_valid).then(|| {
        format!(
            "{what}: `{name}` is not a valid name; use up to {DOMAIN_NAME_CHARS_MAX} lowercase letters, digits and `_`, beginning with a letter"
        )
    })
}

fn check_about_length(what: &str, about: &str) -> Option<String> {
    let chars = about.chars().count();
    (chars > DOMAIN_DESCRIPTION_CHARS_MAX)
        .then(|| format!("{what}: `about` has {chars} characters; at most {DOMAIN_DESCRIPTION_CHARS_MAX} are allowed"))
}

fn duplicate_name_errors<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).map(|name| format!("the {what} `{name}` is declared twice")).collect()
}

/// Formats names for an error text: in backticks, separated by commas.
pub(crate) fn format_name_list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
