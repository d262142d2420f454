//! Settings of a session: the name, type and default of each. This module checks values; only the flow knows what a
//! setting means.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::ids::ModelName;
use crate::limits::{INVALID_SETTINGS_MAX, SETTING_TEXT_CHARS_MAX};

/// A setting that a flow declares.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSettingSpec {
    pub name: String,
    pub value_type: FlowSettingType,
    /// The default value; null for none.
    pub default: Value,
    /// What the setting does, in one sentence.
    pub description: String,
}

impl FlowSettingSpec {
    /// Creates a setting without a default.
    #[must_use]
    pub fn new(name: &str, value_type: FlowSettingType, description: &str) -> Self {
        Self { name: name.to_owned(), value_type, default: Value::Null, description: description.to_owned() }
    }

    /// Returns the setting with a default.
    #[must_use]
    pub fn with_default(mut self, default: impl Into<Value>) -> Self {
        self.default = default.into();
        self
    }
}

/// The type of a setting. Null is always accepted and means the default.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowSettingType {
    Bool,
    /// A non-negative integer.
    Integer {
        min: u64,
        max: u64,
    },
    /// One of these words.
    Choice(Vec<String>),
    /// A short text.
    Text,
    /// A text of at most this many characters.
    LongText(usize),
    /// A model's name.
    Model,
    List {
        item: Box<FlowSettingType>,
        items_max: usize,
    },
    /// A table with some of these keys.
    Table(Vec<FlowSettingSpec>),
    /// A table that the flow interprets, with at most this many bytes as JSON.
    AnyTable(usize),
    /// Any of these types.
    OneOf(Vec<FlowSettingType>),
}

impl fmt::Display for FlowSettingType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Integer { min, max: u64::MAX } => write!(f, "a whole number of at least {min}"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Choice(words) => f.write_str(&join_with_or(words.iter().map(|word| format!("`{word}`")))),
            Self::Text => write!(f, "a text of at most {SETTING_TEXT_CHARS_MAX} characters"),
            Self::LongText(chars_max) => write!(f, "a text of at most {chars_max} characters"),
            Self::Model => f.write_str("a model's name"),
            Self::List { item, items_max } => write!(f, "a list of at most {items_max}, each {item}"),
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

/// An invalid value or unknown name in settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidFlowSetting {
    /// The name is unknown.
    UnknownName {
        /// The path of the value, such as `quorum` or `experts[2].samples`.
        path: String,
        given: String,
        /// The valid names.
        known: Vec<String>,
    },
    /// The value has the wrong type or is out of range.
    InvalidValue {
        /// The path of the value; empty for the settings as a whole.
        path: String,
        expected: String,
        found: String,
    },
}

impl fmt::Display for InvalidFlowSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { path, known, .. } if known.is_empty() => {
                write!(f, "`{path}` is not a setting; this flow has none")
            }
            Self::UnknownName { path, known, .. } => {
                let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "`{path}` is not a setting; known are {}", known.join(", "))
            }
            Self::InvalidValue { path, expected, found } => {
                let at = if path.is_empty() { "the settings" } else { path };
                write!(f, "`{at}`: expected {expected}, found {found}")
            }
        }
    }
}

impl InvalidFlowSetting {
    /// Returns the name of the top-level setting.
    fn setting_name(&self) -> &str {
        let (Self::UnknownName { path, .. } | Self::InvalidValue { path, .. }) = self;
        path.split(['.', '[']).next().unwrap_or_default()
    }
}

/// Returns the JSON schema of settings, with defaults.
#[must_use]
pub(crate) fn settings_json_schema(specs: &[FlowSettingSpec]) -> Value {
    let properties = specs.iter().map(|spec| {
        let mut property = spec.value_type.json_schema();
        property.insert("description".to_owned(), spec.description.clone().into());
        property.insert("default".to_owned(), spec.default.clone());
        (spec.name.clone(), Value::Object(property))
    });
    json!({ "type": "object", "additionalProperties": false, "properties": properties.collect::<Map<_, _>>() })
}

impl FlowSettingType {
    fn json_schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Bool => json!({ "type": "boolean" }),
            Self::Integer { min, max: u64::MAX } => json!({ "type": "integer", "minimum": min }),
            Self::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Self::Choice(words) => json!({ "enum": words }),
            Self::Text => json!({ "type": "string", "maxLength": SETTING_TEXT_CHARS_MAX }),
            Self::LongText(chars_max) => json!({ "type": "string", "maxLength": chars_max }),
            Self::Model => json!({ "type": "string", "format": "model" }),
            Self::List { item, items_max } => {
                json!({ "type": "array", "maxItems": items_max, "items": item.json_schema() })
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

/// Returns every setting with its effective value, which is the given one if it is valid and otherwise the default.
/// Also returns what is invalid.
#[must_use]
pub fn resolve_settings(specs: &[FlowSettingSpec], given: &Value) -> (Value, Vec<InvalidFlowSetting>) {
    let mut invalid = Vec::new();
    check_setting_table("", specs, given, &mut invalid);
    let effective = |spec: &FlowSettingSpec| {
        let given = given.get(&spec.name).filter(|value| !value.is_null());
        let is_valid = !invalid.iter().any(|problem| problem.setting_name() == spec.name);
        (spec.name.clone(), given.filter(|_| is_valid).unwrap_or(&spec.default).clone())
    };
    let effective = Value::Object(specs.iter().map(effective).collect());
    invalid.truncate(INVALID_SETTINGS_MAX);
    (effective, invalid)
}

/// Returns every model that the settings name, with its path.
#[must_use]
pub fn collect_named_models(specs: &[FlowSettingSpec], given: &Value) -> Vec<(String, ModelName)> {
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

fn collect_models_in_value(
    path: &str,
    value_type: &FlowSettingType,
    value: &Value,
    named: &mut Vec<(String, ModelName)>,
) {
    match (value_type, value) {
        (FlowSettingType::Model, Value::String(name)) => named.push((path.to_owned(), name.as_str().into())),
        (FlowSettingType::List { item: item_type, .. }, Value::Array(items)) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_models_in_value(&item_path(path, index), item_type, item, named));
        }
        (FlowSettingType::Table(keys), Value::Object(values)) => {
            for key in keys {
                let value = values.get(&key.name).unwrap_or(&Value::Null);
                collect_models_in_value(&format!("{path}.{}", key.name), &key.value_type, value, named);
            }
        }
        (FlowSettingType::OneOf(choices), value) => {
            let fitting = choices.iter().find(|choice| is_valid_setting_value(choice, value));
            fitting.into_iter().for_each(|choice| collect_models_in_value(path, choice, value, named));
        }
        _ => {}
    }
}

/// Returns the path of a list item, counted from 1.
fn item_path(list_path: &str, index: usize) -> String {
    format!("{list_path}[{}]", index + 1)
}

fn is_valid_setting_value(value_type: &FlowSettingType, value: &Value) -> bool {
    let mut invalid = Vec::new();
    check_setting_value("", value_type, value, &mut invalid);
    invalid.is_empty()
}

fn check_setting_table(
    table_path: &str,
    specs: &[FlowSettingSpec],
    given: &Value,
    invalid: &mut Vec<InvalidFlowSetting>,
) {
    let path = |name: &str| if table_path.is_empty() { name.to_owned() } else { format!("{table_path}.{name}") };
    let empty = Map::new();
    let entries = match given {
        Value::Null => &empty,
        Value::Object(entries) => entries,
        other => {
            let expected = FlowSettingType::Table(specs.to_vec()).to_string();
            let (path, found) = (table_path.to_owned(), describe_setting_value(other));
            invalid.push(InvalidFlowSetting::InvalidValue { path, expected, found });
            return;
        }
    };
    // Sorted, so that errors have the same order whatever the map type.
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in entries {
        match specs.iter().find(|spec| spec.name == *name) {
            Some(spec) => check_setting_value(&path(name), &spec.value_type, value, invalid),
            None => {
                let known = specs.iter().map(|spec| spec.name.clone()).collect();
                invalid.push(InvalidFlowSetting::UnknownName { path: path(name), given: name.clone(), known });
            }
        }
    }
}

fn check_setting_value(path: &str, value_type: &FlowSettingType, value: &Value, invalid: &mut Vec<InvalidFlowSetting>) {
    let is_valid = match (value_type, value) {
        (_, Value::Null) => true,
        (FlowSettingType::Bool, Value::Bool(_)) => true,
        (FlowSettingType::Integer { min, max }, Value::Number(number)) => {
            number.as_u64().is_some_and(|number| (*min..=*max).contains(&number))
        }
        (FlowSettingType::Choice(words), Value::String(word)) => words.contains(word),
        (FlowSettingType::Text, Value::String(text)) => text.chars().count() <= SETTING_TEXT_CHARS_MAX,
        (FlowSettingType::LongText(chars_max), Value::String(text)) => text.chars().count() <= *chars_max,
        (FlowSettingType::Model, Value::String(name)) => {
            !name.is_empty() && name.chars().count() <= SETTING_TEXT_CHARS_MAX
        }
        (FlowSettingType::List { item: item_type, items_max }, Value::Array(items)) if items.len() <= *items_max => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| check_setting_value(&item_path(path, index), item_type, item, invalid));
            true
        }
        (FlowSettingType::Table(keys), Value::Object(_)) => {
            check_setting_table(path, keys, value, invalid);
            true
        }
        (FlowSettingType::AnyTable(bytes_max), Value::Object(_)) => value.to_string().len() <= *bytes_max,
        (FlowSettingType::OneOf(choices), value) => {
            // For a table, name the error inside it rather than say that the whole value is invalid.
            let table_type =
                choices.iter().find(|choice| value.is_object() && matches!(choice, FlowSettingType::Table(_)));
            match table_type {
                Some(table_type) => {
                    check_setting_value(path, table_type, value, invalid);
                    true
                }
                None => choices.iter().any(|choice| is_valid_setting_value(choice, value)),
            }
        }
        _ => false,
    };
    if !is_valid {
        let (expected, found) = (value_type.to_string(), describe_setting_value(value));
        invalid.push(InvalidFlowSetting::InvalidValue { path: path.to_owned(), expected, found });
    }
}

/// Describes a value in an error message.
fn describe_setting_value(value: &Value) -> String {
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

    fn choice<const N: usize>(words: [&str; N]) -> FlowSettingType {
        FlowSettingType::Choice(words.map(str::to_owned).into())
    }

    fn list(item: FlowSettingType, items_max: usize) -> FlowSettingType {
        FlowSettingType::List { item: Box::new(item), items_max }
    }
    use serde_json::json;

    fn specs() -> Vec<FlowSettingSpec> {
        let expert = vec![
            FlowSettingSpec::new("model", FlowSettingType::Model, "which"),
            FlowSettingSpec::new("times", FlowSettingType::Integer { min: 1, max: 9 }, "how often"),
        ];
        let experts = list(FlowSettingType::OneOf(vec![FlowSettingType::Model, FlowSettingType::Table(expert)]), 3);
        vec![
            FlowSettingSpec::new("loud", FlowSettingType::Bool, "how it sounds").with_default(false),
            FlowSettingSpec::new("most", FlowSettingType::Integer { min: 1, max: u64::MAX }, "how many"),
            FlowSettingSpec::new("tone", choice(["warm", "cool"]), "how it feels").with_default("warm"),
            FlowSettingSpec::new("experts", experts, "who").with_default(json!([])),
        ]
    }

    fn complaints(given: &Value) -> Vec<String> {
        resolve_settings(&specs(), given).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn settings_have_a_json_schema() {
        let samples =
            FlowSettingSpec::new("samples", FlowSettingType::Integer { min: 1, max: 9 }, "how many").with_default(3);
        let stance = FlowSettingSpec::new(
            "stance",
            FlowSettingType::OneOf(vec![choice(["a", "b"]), FlowSettingType::Bool]),
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
    fn valid_values_are_used_and_defaults_elsewhere() {
        let (effective, invalid) =
            resolve_settings(&specs(), &json!({"most": 4, "tone": null, "experts": ["ant", {"model": "bee"}]}));
        assert_eq!(invalid, []);
        let experts = json!(["ant", {"model": "bee"}]);
        assert_eq!(effective, json!({"loud": false, "most": 4, "tone": "warm", "experts": experts}));
        assert_eq!(resolve_settings(&specs(), &Value::Null).0["most"], Value::Null);
    }

    #[test]
    fn invalid_values_are_reported_and_leave_the_default() {
        let given = json!({"loud": "yes", "most": 0, "tone": "hot", "tune": 1, "experts": ["ant", {"times": 10, "colour": 1}, 7]});
        assert_eq!(
            complaints(&given),
            [
                "`experts[2].colour` is not a setting; known are `model`, `times`",
                "`experts[2].times`: expected a whole number from 1 to 9, found the number 10",
                "`experts[3]`: expected a model's name or a table with `model`, `times`, found the number 7",
                "`loud`: expected true or false, found `yes`",
                "`most`: expected a whole number of at least 1, found the number 0",
                "`tone`: expected `warm` or `cool`, found `hot`",
                "`tune` is not a setting; known are `loud`, `most`, `tone`, `experts`",
            ]
            .map(str::to_owned)
        );
        assert_eq!(resolve_settings(&specs(), &given).0, resolve_settings(&specs(), &Value::Null).0);
        assert_eq!(
            complaints(&json!([])),
            ["`the settings`: expected a table with `loud`, `most`, `tone`, `experts`, found a list of 0"]
        );
        assert!(complaints(&json!({"experts": [1, 2, 3, 4]}))[0].contains("a list of at most 3"));
        assert_eq!(
            resolve_settings(&[], &json!({"a": 1})).1[0].to_string(),
            "`a` is not a setting; this flow has none"
        );
    }

    #[test]
    fn any_table_of_allowed_size_is_accepted() {
        let specs = [FlowSettingSpec::new(
            "plan",
            FlowSettingType::OneOf(vec![choice(["usual"]), FlowSettingType::AnyTable(40)]),
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
    fn models_are_found_at_every_level() {
        let given = json!({"experts": ["ant", {"model": "bee"}, {"times": 2}], "tone": "warm"});
        let named: Vec<String> =
            collect_named_models(&specs(), &given).into_iter().map(|(at, model)| format!("{at} {model}")).collect();
        assert_eq!(named, ["experts[1] ant", "experts[2].model bee"]);
    }
}
