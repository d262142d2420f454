//! What a session of a flow can be told to do otherwise: the name of each setting, what it takes, and what holds where nothing
//! is said. It judges values; what a setting means, only its flow knows.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::ids::ModelName;
use crate::limits::{INVALID_SETTINGS_MAX, SETTING_TEXT_CHARS_MAX};

/// A setting.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingSpec {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub value_type: SettingType,
    /// What holds where nothing is said; null: nothing.
    pub default: Value,
    /// What it does, in a sentence.
    pub description: String,
}

impl SettingSpec {
    /// A setting that holds nothing unless it is set.
    #[must_use]
    pub fn new(name: &str, value_type: SettingType, description: &str) -> Self {
        Self { name: name.to_owned(), value_type, default: Value::Null, description: description.to_owned() }
    }

    /// The same with a value where nothing is said.
    #[must_use]
    pub fn with_default(mut self, default: impl Into<Value>) -> Self {
        self.default = default.into();
        self
    }
}

/// What a setting takes. Null is taken everywhere, and leaves the default.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingType {
    /// True or false.
    Bool,
    /// A whole number.
    Integer {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// One of these words.
    Choice(Vec<String>),
    /// Any text that is not long.
    Text,
    /// The name of a model.
    Model,
    /// A list.
    List {
        /// Of what.
        item: Box<SettingType>,
        /// How many at most.
        items_max: usize,
    },
    /// A table with some of these keys.
    Table(Vec<SettingSpec>),
    /// A table of whatever the flow makes of it, of at most so many bytes as JSON.
    AnyTable(usize),
    /// Any of these.
    OneOf(Vec<SettingType>),
}

impl SettingType {
    /// One of these words.
    #[must_use]
    pub fn choice<const N: usize>(words: [&str; N]) -> Self {
        Self::Choice(words.map(str::to_owned).into())
    }

    /// A whole number from `least` to `most`.
    #[must_use]
    pub fn integer(min: u64, max: u64) -> Self {
        Self::Integer { min, max }
    }

    /// A list of at most so many.
    #[must_use]
    pub fn list(item: Self, items_max: usize) -> Self {
        Self::List { item: Box::new(item), items_max }
    }
}

impl fmt::Display for SettingType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Integer { min: least, max: u64::MAX } => write!(f, "a whole number of at least {least}"),
            Self::Integer { min: least, max: most } => write!(f, "a whole number from {least} to {most}"),
            Self::Choice(words) => f.write_str(&join_with_or(words.iter().map(|word| format!("`{word}`")))),
            Self::Text => write!(f, "a text of at most {SETTING_TEXT_CHARS_MAX} characters"),
            Self::Model => f.write_str("a model's name"),
            Self::List { item: of, items_max: most } => write!(f, "a list of at most {most}, each {of}"),
            Self::Table(keys) => {
                let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
                write!(f, "a table with {}", names.join(", "))
            }
            Self::AnyTable(bytes_max) => write!(f, "a table of at most {bytes_max} bytes"),
            Self::OneOf(choices) => f.write_str(&join_with_or(choices.iter().map(ToString::to_string))),
        }
    }
}

fn join_with_or(choices: impl Iterator<Item = String>) -> String {
    let mut choices: Vec<String> = choices.collect();
    match choices.pop() {
        Some(last) if !choices.is_empty() => format!("{} or {last}", choices.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Something in settings that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The setting, and where in it: `quorum`, `experts[2].samples`; empty if it is the settings as a whole.
    pub path: String,
    /// What is wrong.
    pub problem: SettingProblem,
}

/// What is wrong with something in settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingProblem {
    /// There is no such name.
    UnknownName {
        /// What was given.
        given: String,
        /// What could have been.
        known: Vec<String>,
    },
    /// The value is of another kind, or out of bounds.
    InvalidValue {
        /// What would be right.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.path.is_empty() { "the settings" } else { &self.path };
        match &self.problem {
            SettingProblem::UnknownName { known, .. } if known.is_empty() => {
                write!(f, "`{at}` is unknown; there are no settings")
            }
            SettingProblem::UnknownName { known, .. } => {
                let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "`{at}` is unknown; there are {}", known.join(", "))
            }
            SettingProblem::InvalidValue { expected, found } => write!(f, "`{at}`: expected {expected}, found {found}"),
        }
    }
}

impl InvalidSetting {
    /// The setting it is in.
    #[must_use]
    pub fn setting_name(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or_default()
    }
}

/// What settings may hold, as a JSON schema with defaults.
#[must_use]
pub fn settings_json_schema(specs: &[SettingSpec]) -> Value {
    let properties = specs.iter().map(|spec| {
        let mut property = spec.value_type.json_schema();
        property.insert("description".to_owned(), spec.description.clone().into());
        property.insert("default".to_owned(), spec.default.clone());
        (spec.name.clone(), Value::Object(property))
    });
    json!({ "type": "object", "additionalProperties": false, "properties": properties.collect::<Map<_, _>>() })
}

impl SettingType {
    fn json_schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Bool => json!({ "type": "boolean" }),
            Self::Integer { min: least, max: u64::MAX } => json!({ "type": "integer", "minimum": least }),
            Self::Integer { min: least, max: most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Self::Choice(words) => json!({ "enum": words }),
            Self::Text => json!({ "type": "string", "maxLength": SETTING_TEXT_CHARS_MAX }),
            Self::Model => json!({ "type": "string", "format": "model" }),
            Self::List { item: of, items_max: most } => {
                json!({ "type": "array", "maxItems": most, "items": of.json_schema() })
            }
            Self::Table(keys) => settings_json_schema(keys),
            Self::AnyTable(_) => json!({ "type": "object" }),
            Self::OneOf(choices) => json!({ "anyOf": choices.iter().map(Self::json_schema).collect::<Vec<_>>() }),
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

/// Every setting with the value that holds: the one given if it fits, else the default. And what does not fit.
#[must_use]
pub fn resolve_settings(specs: &[SettingSpec], given: &Value) -> (Value, Vec<InvalidSetting>) {
    let mut misfits = Vec::new();
    check_table("", specs, given, &mut misfits);
    let holds = |spec: &SettingSpec| {
        let given = given.get(&spec.name).filter(|value| !value.is_null());
        let fits = !misfits.iter().any(|misfit| misfit.setting_name() == spec.name);
        (spec.name.clone(), given.filter(|_| fits).unwrap_or(&spec.default).clone())
    };
    let holds = Value::Object(specs.iter().map(holds).collect());
    misfits.truncate(INVALID_SETTINGS_MAX);
    (holds, misfits)
}

/// Every model that settings name, and where.
#[must_use]
pub fn collect_named_models(specs: &[SettingSpec], given: &Value) -> Vec<(String, ModelName)> {
    let mut named = Vec::new();
    for spec in specs {
        collect_models_in_value(
            &spec.name,
            &spec.value_type,
            given.get(&spec.name).unwrap_or(&Value::Null),
            &mut named,
        );
    }
    named
}

fn collect_models_in_value(path: &str, value_type: &SettingType, value: &Value, named: &mut Vec<(String, ModelName)>) {
    match (value_type, value) {
        (SettingType::Model, Value::String(name)) => named.push((path.to_owned(), name.as_str().into())),
        (SettingType::List { item: of, .. }, Value::Array(items)) => {
            items
                .iter()
                .enumerate()
                .for_each(|(place, item)| collect_models_in_value(&item_path(path, place), of, item, named));
        }
        (SettingType::Table(keys), Value::Object(values)) => {
            for key in keys {
                let value = values.get(&key.name).unwrap_or(&Value::Null);
                collect_models_in_value(&format!("{path}.{}", key.name), &key.value_type, value, named);
            }
        }
        (SettingType::OneOf(choices), value) => {
            let fitting = choices.iter().find(|choice| is_valid_value(choice, value));
            fitting.into_iter().for_each(|choice| collect_models_in_value(path, choice, value, named));
        }
        _ => {}
    }
}

/// The place of a list's item, counted as people do.
fn item_path(list_path: &str, index: usize) -> String {
    format!("{list_path}[{}]", index + 1)
}

fn is_valid_value(value_type: &SettingType, value: &Value) -> bool {
    let mut misfits = Vec::new();
    check_value("", value_type, value, &mut misfits);
    misfits.is_empty()
}

fn check_table(table_path: &str, specs: &[SettingSpec], given: &Value, invalid: &mut Vec<InvalidSetting>) {
    let path = |name: &str| if table_path.is_empty() { name.to_owned() } else { format!("{table_path}.{name}") };
    let empty = Map::new();
    let entries = match given {
        Value::Null => &empty,
        Value::Object(entries) => entries,
        other => {
            let expected = SettingType::Table(specs.to_vec()).to_string();
            invalid.push(InvalidSetting {
                path: table_path.to_owned(),
                problem: SettingProblem::InvalidValue { expected, found: describe_value(other) },
            });
            return;
        }
    };
    // Whatever order a map keeps, complaints have one.
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in entries {
        match specs.iter().find(|spec| spec.name == *name) {
            Some(spec) => check_value(&path(name), &spec.value_type, value, invalid),
            None => {
                let known = specs.iter().map(|spec| spec.name.clone()).collect();
                invalid.push(InvalidSetting {
                    path: path(name),
                    problem: SettingProblem::UnknownName { given: name.clone(), known },
                });
            }
        }
    }
}

fn check_value(path: &str, value_type: &SettingType, value: &Value, invalid: &mut Vec<InvalidSetting>) {
    let is_fit = match (value_type, value) {
        (_, Value::Null) => true,
        (SettingType::Bool, Value::Bool(_)) => true,
        (SettingType::Integer { min: least, max: most }, Value::Number(number)) => {
            number.as_u64().is_some_and(|number| (*least..=*most).contains(&number))
        }
        (SettingType::Choice(words), Value::String(word)) => words.contains(word),
        (SettingType::Text, Value::String(text)) => text.chars().count() <= SETTING_TEXT_CHARS_MAX,
        (SettingType::Model, Value::String(name)) => !name.is_empty() && name.chars().count() <= SETTING_TEXT_CHARS_MAX,
        (SettingType::List { item: of, items_max: most }, Value::Array(items)) if items.len() <= *most => {
            items.iter().enumerate().for_each(|(place, item)| check_value(&item_path(path, place), of, item, invalid));
            true
        }
        (SettingType::Table(keys), Value::Object(_)) => {
            check_table(path, keys, value, invalid);
            true
        }
        (SettingType::AnyTable(bytes_max), Value::Object(_)) => value.to_string().len() <= *bytes_max,
        (SettingType::OneOf(choices), value) => {
            // Of a table that was meant as one, what is wrong in it is worth more than that it is wrong.
            let meant = choices.iter().find(|choice| value.is_object() && matches!(choice, SettingType::Table(_)));
            match meant {
                Some(meant) => {
                    check_value(path, meant, value, invalid);
                    true
                }
                None => choices.iter().any(|choice| is_valid_value(choice, value)),
            }
        }
        _ => false,
    };
    if !is_fit {
        let why = SettingProblem::InvalidValue { expected: value_type.to_string(), found: describe_value(value) };
        invalid.push(InvalidSetting { path: path.to_owned(), problem: why });
    }
}

/// A value as a complaint cites it.
fn describe_value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.chars().count() <= SETTING_TEXT_CHARS_MAX => format!("`{text}`"),
        Value::String(text) => format!("a text of {} characters", text.chars().count()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn specs() -> Vec<SettingSpec> {
        let seat = vec![
            SettingSpec::new("model", SettingType::Model, "which"),
            SettingSpec::new("times", SettingType::integer(1, 9), "how often"),
        ];
        let seats = SettingType::list(SettingType::OneOf(vec![SettingType::Model, SettingType::Table(seat)]), 3);
        vec![
            SettingSpec::new("loud", SettingType::Bool, "how it sounds").with_default(false),
            SettingSpec::new("most", SettingType::integer(1, u64::MAX), "how many"),
            SettingSpec::new("tone", SettingType::choice(["warm", "cool"]), "how it feels").with_default("warm"),
            SettingSpec::new("seats", seats, "who").with_default(json!([])),
        ]
    }

    fn complaints(given: &Value) -> Vec<String> {
        resolve_settings(&specs(), given).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn settings_are_described_to_forms() {
        let samples = SettingSpec::new("samples", SettingType::integer(1, 9), "how many").with_default(3);
        let stance = SettingSpec::new(
            "stance",
            SettingType::OneOf(vec![SettingType::choice(["a", "b"]), SettingType::Bool]),
            "how",
        );
        assert_eq!(
            settings_json_schema(&[samples, stance]),
            json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "samples": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many", "default": 3},
                    "stance": {"anyOf": [{"enum": ["a", "b"]}, {"type": "boolean"}], "description": "how", "default": null},
                },
            })
        );
    }

    #[test]
    fn what_is_given_and_fits_holds_and_the_default_elsewhere() {
        let (holds, misfits) =
            resolve_settings(&specs(), &json!({"most": 4, "tone": null, "seats": ["ant", {"model": "bee"}]}));
        assert_eq!(misfits, []);
        let seats = json!(["ant", {"model": "bee"}]);
        assert_eq!(holds, json!({"loud": false, "most": 4, "tone": "warm", "seats": seats}));
        assert_eq!(resolve_settings(&specs(), &Value::Null).0["most"], Value::Null);
    }

    #[test]
    fn what_does_not_fit_is_named_and_leaves_the_default() {
        let given = json!({"loud": "yes", "most": 0, "tone": "hot", "tune": 1, "seats": ["ant", {"times": 10, "colour": 1}, 7]});
        assert_eq!(
            complaints(&given),
            [
                "`loud`: expected true or false, found `yes`",
                "`most`: expected a whole number of at least 1, found the number 0",
                "`seats[2].colour` is unknown; there are `model`, `times`",
                "`seats[2].times`: expected a whole number from 1 to 9, found the number 10",
                "`seats[3]`: expected a model's name or a table with `model`, `times`, found the number 7",
                "`tone`: expected `warm` or `cool`, found `hot`",
                "`tune` is unknown; there are `loud`, `most`, `tone`, `seats`",
            ]
            .map(str::to_owned)
        );
        assert_eq!(resolve_settings(&specs(), &given).0, resolve_settings(&specs(), &Value::Null).0);
        assert_eq!(
            complaints(&json!([])),
            ["`the settings`: expected a table with `loud`, `most`, `tone`, `seats`, found a list of 0"]
        );
        assert!(complaints(&json!({"seats": [1, 2, 3, 4]}))[0].contains("a list of at most 3"));
        assert_eq!(resolve_settings(&[], &json!({"a": 1})).1[0].to_string(), "`a` is unknown; there are no settings");
    }

    #[test]
    fn a_document_is_any_table_that_is_not_too_long() {
        let specs = [SettingSpec::new(
            "plan",
            SettingType::OneOf(vec![SettingType::choice(["usual"]), SettingType::AnyTable(40)]),
            "which",
        )];
        let complaint = |given: Value| resolve_settings(&specs, &given).1.first().map(ToString::to_string);
        assert_eq!(complaint(json!({"plan": "usual"})), None);
        assert_eq!(complaint(json!({"plan": {"any": {"depth": [1]}}})), None);
        assert_eq!(
            complaint(json!({"plan": {"long": "x".repeat(40)}})).as_deref(),
            Some("`plan`: expected `usual` or a table of at most 40 bytes, found a table")
        );
        assert_eq!(settings_json_schema(&specs)["properties"]["plan"]["anyOf"][1], json!({"type": "object"}));
    }

    #[test]
    fn models_are_found_wherever_they_are_named() {
        let given = json!({"seats": ["ant", {"model": "bee"}, {"times": 2}], "tone": "warm"});
        let named: Vec<String> =
            collect_named_models(&specs(), &given).into_iter().map(|(at, model)| format!("{at} {model}")).collect();
        assert_eq!(named, ["seats[1] ant", "seats[2].model bee"]);
    }
}
