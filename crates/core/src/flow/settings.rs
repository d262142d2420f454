//! What a session of a flow can be told to do otherwise: the name of each setting, what it takes, and what holds where nothing
//! is said. It judges values; what a setting means, only its flow knows.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::ids::ModelName;
use crate::limits::{SETTING_MISFITS_MAX, SETTING_TEXT_CHARS_MAX};

/// A setting.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingSpec {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub takes: Takes,
    /// What holds where nothing is said; null: nothing.
    pub default: Value,
    /// What it does, in a sentence.
    pub about: String,
}

impl SettingSpec {
    /// A setting that holds nothing unless it is set.
    #[must_use]
    pub fn new(name: &str, takes: Takes, about: &str) -> Self {
        Self { name: name.to_owned(), takes, default: Value::Null, about: about.to_owned() }
    }

    /// The same with a value where nothing is said.
    #[must_use]
    pub fn by_default(mut self, default: impl Into<Value>) -> Self {
        self.default = default.into();
        self
    }
}

/// What a setting takes. Null is taken everywhere, and leaves the default.
#[derive(Debug, Clone, PartialEq)]
pub enum Takes {
    /// True or false.
    Switch,
    /// A whole number.
    Number {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// One of these words.
    Word(Vec<String>),
    /// Any text that is not long.
    Text,
    /// The name of a model.
    Model,
    /// A list.
    List {
        /// Of what.
        of: Box<Takes>,
        /// How many at most.
        most: usize,
    },
    /// A table with some of these keys.
    Table(Vec<SettingSpec>),
    /// Any of these.
    OneOf(Vec<Takes>),
}

impl Takes {
    /// One of these words.
    #[must_use]
    pub fn word<const N: usize>(words: [&str; N]) -> Self {
        Self::Word(words.map(str::to_owned).into())
    }

    /// A whole number from `least` to `most`.
    #[must_use]
    pub fn number(least: u64, most: u64) -> Self {
        Self::Number { least, most }
    }

    /// A list of at most so many.
    #[must_use]
    pub fn list(of: Self, most: usize) -> Self {
        Self::List { of: Box::new(of), most }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("true or false"),
            Self::Number { least, most: u64::MAX } => write!(f, "a whole number of at least {least}"),
            Self::Number { least, most } => write!(f, "a whole number from {least} to {most}"),
            Self::Word(words) => f.write_str(&either(words.iter().map(|word| format!("`{word}`")))),
            Self::Text => write!(f, "a text of at most {SETTING_TEXT_CHARS_MAX} characters"),
            Self::Model => f.write_str("a model's name"),
            Self::List { of, most } => write!(f, "a list of at most {most}, each {of}"),
            Self::Table(keys) => {
                let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
                write!(f, "a table with {}", names.join(", "))
            }
            Self::OneOf(choices) => f.write_str(&either(choices.iter().map(ToString::to_string))),
        }
    }
}

fn either(choices: impl Iterator<Item = String>) -> String {
    let mut choices: Vec<String> = choices.collect();
    match choices.pop() {
        Some(last) if !choices.is_empty() => format!("{} or {last}", choices.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Something in settings that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The setting, and where in it: `quorum`, `experts[2].samples`; empty if it is the settings as a whole.
    pub at: String,
    /// What is wrong.
    pub why: Unfit,
}

/// What is wrong with something in settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// There is no such name.
    Unknown {
        /// What was given.
        given: String,
        /// What could have been.
        known: Vec<String>,
    },
    /// The value is of another kind, or out of bounds.
    Value {
        /// What would be right.
        expected: String,
        /// What was given.
        found: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "the settings" } else { &self.at };
        match &self.why {
            Unfit::Unknown { known, .. } if known.is_empty() => write!(f, "`{at}` is unknown; there are no settings"),
            Unfit::Unknown { known, .. } => {
                let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                write!(f, "`{at}` is unknown; there are {}", known.join(", "))
            }
            Unfit::Value { expected, found } => write!(f, "`{at}`: expected {expected}, found {found}"),
        }
    }
}

impl Misfit {
    /// The setting it is in.
    #[must_use]
    pub fn setting(&self) -> &str {
        self.at.split(['.', '[']).next().unwrap_or_default()
    }
}

/// What settings may hold, as a JSON schema with defaults.
#[must_use]
pub fn schema(specs: &[SettingSpec]) -> Value {
    let properties = specs.iter().map(|spec| {
        let mut property = spec.takes.schema();
        property.insert("description".to_owned(), spec.about.clone().into());
        property.insert("default".to_owned(), spec.default.clone());
        (spec.name.clone(), Value::Object(property))
    });
    json!({ "type": "object", "additionalProperties": false, "properties": properties.collect::<Map<_, _>>() })
}

impl Takes {
    fn schema(&self) -> Map<String, Value> {
        let schema = match self {
            Self::Switch => json!({ "type": "boolean" }),
            Self::Number { least, most: u64::MAX } => json!({ "type": "integer", "minimum": least }),
            Self::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Self::Word(words) => json!({ "enum": words }),
            Self::Text => json!({ "type": "string", "maxLength": SETTING_TEXT_CHARS_MAX }),
            Self::Model => json!({ "type": "string", "format": "model" }),
            Self::List { of, most } => json!({ "type": "array", "maxItems": most, "items": of.schema() }),
            Self::Table(keys) => schema(keys),
            Self::OneOf(choices) => json!({ "anyOf": choices.iter().map(Self::schema).collect::<Vec<_>>() }),
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

/// Every setting with the value that holds: the one given if it fits, else the default. And what does not fit.
#[must_use]
pub fn settled(specs: &[SettingSpec], given: &Value) -> (Value, Vec<Misfit>) {
    let mut misfits = Vec::new();
    judge_table("", specs, given, &mut misfits);
    let holds = |spec: &SettingSpec| {
        let given = given.get(&spec.name).filter(|value| !value.is_null());
        let fits = !misfits.iter().any(|misfit| misfit.setting() == spec.name);
        (spec.name.clone(), given.filter(|_| fits).unwrap_or(&spec.default).clone())
    };
    let holds = Value::Object(specs.iter().map(holds).collect());
    misfits.truncate(SETTING_MISFITS_MAX);
    (holds, misfits)
}

/// Every model that settings name, and where.
#[must_use]
pub fn models_named(specs: &[SettingSpec], given: &Value) -> Vec<(String, ModelName)> {
    let mut named = Vec::new();
    for spec in specs {
        models_in(&spec.name, &spec.takes, given.get(&spec.name).unwrap_or(&Value::Null), &mut named);
    }
    named
}

fn models_in(at: &str, takes: &Takes, value: &Value, named: &mut Vec<(String, ModelName)>) {
    match (takes, value) {
        (Takes::Model, Value::String(name)) => named.push((at.to_owned(), name.as_str().into())),
        (Takes::List { of, .. }, Value::Array(items)) => {
            items.iter().enumerate().for_each(|(place, item)| models_in(&nth(at, place), of, item, named));
        }
        (Takes::Table(keys), Value::Object(values)) => {
            for key in keys {
                let value = values.get(&key.name).unwrap_or(&Value::Null);
                models_in(&format!("{at}.{}", key.name), &key.takes, value, named);
            }
        }
        (Takes::OneOf(choices), value) => {
            let fitting = choices.iter().find(|choice| fits(choice, value));
            fitting.into_iter().for_each(|choice| models_in(at, choice, value, named));
        }
        _ => {}
    }
}

/// The place of a list's item, counted as people do.
fn nth(at: &str, place: usize) -> String {
    format!("{at}[{}]", place + 1)
}

fn fits(takes: &Takes, value: &Value) -> bool {
    let mut misfits = Vec::new();
    judge("", takes, value, &mut misfits);
    misfits.is_empty()
}

fn judge_table(at: &str, specs: &[SettingSpec], given: &Value, misfits: &mut Vec<Misfit>) {
    let path = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    let empty = Map::new();
    let entries = match given {
        Value::Null => &empty,
        Value::Object(entries) => entries,
        other => {
            let expected = Takes::Table(specs.to_vec()).to_string();
            misfits.push(Misfit { at: at.to_owned(), why: Unfit::Value { expected, found: said(other) } });
            return;
        }
    };
    // Whatever order a map keeps, complaints have one.
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in entries {
        match specs.iter().find(|spec| spec.name == *name) {
            Some(spec) => judge(&path(name), &spec.takes, value, misfits),
            None => {
                let known = specs.iter().map(|spec| spec.name.clone()).collect();
                misfits.push(Misfit { at: path(name), why: Unfit::Unknown { given: name.clone(), known } });
            }
        }
    }
}

fn judge(at: &str, takes: &Takes, value: &Value, misfits: &mut Vec<Misfit>) {
    let is_fit = match (takes, value) {
        (_, Value::Null) => true,
        (Takes::Switch, Value::Bool(_)) => true,
        (Takes::Number { least, most }, Value::Number(number)) => {
            number.as_u64().is_some_and(|number| (*least..=*most).contains(&number))
        }
        (Takes::Word(words), Value::String(word)) => words.contains(word),
        (Takes::Text, Value::String(text)) => text.chars().count() <= SETTING_TEXT_CHARS_MAX,
        (Takes::Model, Value::String(name)) => !name.is_empty() && name.chars().count() <= SETTING_TEXT_CHARS_MAX,
        (Takes::List { of, most }, Value::Array(items)) if items.len() <= *most => {
            items.iter().enumerate().for_each(|(place, item)| judge(&nth(at, place), of, item, misfits));
            true
        }
        (Takes::Table(keys), Value::Object(_)) => {
            judge_table(at, keys, value, misfits);
            true
        }
        (Takes::OneOf(choices), value) => {
            // Of a table that was meant as one, what is wrong in it is worth more than that it is wrong.
            let meant = choices.iter().find(|choice| value.is_object() && matches!(choice, Takes::Table(_)));
            match meant {
                Some(meant) => {
                    judge(at, meant, value, misfits);
                    true
                }
                None => choices.iter().any(|choice| fits(choice, value)),
            }
        }
        _ => false,
    };
    if !is_fit {
        let why = Unfit::Value { expected: takes.to_string(), found: said(value) };
        misfits.push(Misfit { at: at.to_owned(), why });
    }
}

/// A value as a complaint cites it.
fn said(value: &Value) -> String {
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
            SettingSpec::new("model", Takes::Model, "which"),
            SettingSpec::new("times", Takes::number(1, 9), "how often"),
        ];
        let seats = Takes::list(Takes::OneOf(vec![Takes::Model, Takes::Table(seat)]), 3);
        vec![
            SettingSpec::new("loud", Takes::Switch, "how it sounds").by_default(false),
            SettingSpec::new("most", Takes::number(1, u64::MAX), "how many"),
            SettingSpec::new("tone", Takes::word(["warm", "cool"]), "how it feels").by_default("warm"),
            SettingSpec::new("seats", seats, "who").by_default(json!([])),
        ]
    }

    fn complaints(given: &Value) -> Vec<String> {
        settled(&specs(), given).1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn settings_are_described_to_forms() {
        let samples = SettingSpec::new("samples", Takes::number(1, 9), "how many").by_default(3);
        let stance = SettingSpec::new("stance", Takes::OneOf(vec![Takes::word(["a", "b"]), Takes::Switch]), "how");
        assert_eq!(
            schema(&[samples, stance]),
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
        let (holds, misfits) = settled(&specs(), &json!({"most": 4, "tone": null, "seats": ["ant", {"model": "bee"}]}));
        assert_eq!(misfits, []);
        let seats = json!(["ant", {"model": "bee"}]);
        assert_eq!(holds, json!({"loud": false, "most": 4, "tone": "warm", "seats": seats}));
        assert_eq!(settled(&specs(), &Value::Null).0["most"], Value::Null);
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
        assert_eq!(settled(&specs(), &given).0, settled(&specs(), &Value::Null).0);
        assert_eq!(
            complaints(&json!([])),
            ["`the settings`: expected a table with `loud`, `most`, `tone`, `seats`, found a list of 0"]
        );
        assert!(complaints(&json!({"seats": [1, 2, 3, 4]}))[0].contains("a list of at most 3"));
        assert_eq!(settled(&[], &json!({"a": 1})).1[0].to_string(), "`a` is unknown; there are no settings");
    }

    #[test]
    fn models_are_found_wherever_they_are_named() {
        let given = json!({"seats": ["ant", {"model": "bee"}, {"times": 2}], "tone": "warm"});
        let named: Vec<String> =
            models_named(&specs(), &given).into_iter().map(|(at, model)| format!("{at} {model}")).collect();
        assert_eq!(named, ["seats[1] ant", "seats[2].model bee"]);
    }
}
