//! Parses the settings of a flow, as written in `--set quorum=2` and `[flows.concierge]`, by the type of each setting.
//! The flow's specification validates them.

use anyhow::{Context, bail};
use segue_core::flow::{FlowSettingSpec, FlowSettingType, FlowSpec, InvalidFlowSetting};
use segue_core::ids::{FlowName, SessionId};
use segue_engine::Engine;
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::limits::CONFIG_BYTES_MAX;
use crate::suggest::suggestion_hint;

/// Parses settings of the form `NAME=VALUE`; returns `Null` if there are none.
pub(crate) fn parse_settings(spec: &FlowSpec, words: &[String]) -> anyhow::Result<Value> {
    if words.is_empty() {
        return Ok(Value::Null);
    }
    let mut settings = Map::new();
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            bail!("setting `{word}` has no value; write NAME=VALUE");
        };
        let (name, text) = (name.trim(), text.trim());
        let known = spec.settings.iter().find(|setting| setting.name == name);
        let value = match known {
            Some(setting) if can_be_toml_file(&setting.value_type) && is_toml_path(text) => load_toml_as_json(text)?,
            Some(setting) => parse_setting_value(setting, text),
            None => Value::String(text.to_owned()),
        };
        if settings.insert(name.to_owned(), value).is_some() {
            bail!("setting `{name}` is given twice");
        }
    }
    let settings = Value::Object(settings);
    if let Some(invalid) = spec.invalid_settings(&settings).first() {
        bail!("setting {}", invalid_setting_message(spec, "", invalid));
    }
    Ok(settings)
}

/// Parses the settings of a new session; returns `Null` if there are none.
pub(crate) fn parse_new_session_settings(engine: &Engine, flow: &FlowName, words: &[String]) -> anyhow::Result<Value> {
    // Opening the session reports an unknown flow.
    let spec = engine.flows().map(|flow| flow.spec()).find(|spec| spec.name == *flow);
    spec.map_or(Ok(Value::Null), |spec| parse_settings(spec, words))
}

/// Returns the error for `--set` with an existing session.
pub(crate) fn settings_fixed_message(session: &SessionId) -> String {
    format!("the settings of session `{session}` cannot change; omit --set, or start another session")
}

/// Describes an invalid setting; `prefix` is the path of the table it is in.
pub(crate) fn invalid_setting_message(spec: &FlowSpec, prefix: &str, invalid: &InvalidFlowSetting) -> String {
    match invalid {
        InvalidFlowSetting::UnknownName { path, known, .. } if known.is_empty() => {
            format!("`{prefix}{path}` is unknown; flow `{}` has no settings", spec.name)
        }
        InvalidFlowSetting::UnknownName { path, given, known } => {
            format!("`{prefix}{path}` is unknown{}", suggestion_hint(given, known.iter().map(String::as_str)))
        }
        InvalidFlowSetting::InvalidValue { path, expected, found } => {
            format!("`{prefix}{path}`: expected {expected}, found {found}")
        }
    }
}

/// Parses a value as typed on the command line: strings need no quotes, and lists no brackets.
fn parse_setting_value(setting: &FlowSettingSpec, text: &str) -> Value {
    match &setting.value_type {
        FlowSettingType::Choice(_) | FlowSettingType::Text | FlowSettingType::LongText(_) | FlowSettingType::Model => {
            Value::String(strip_quotes(text).to_owned())
        }
        FlowSettingType::List { .. } if !text.starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(
                items.map(|item| parse_toml_value(item).unwrap_or_else(|| strip_quotes(item).into())).collect(),
            )
        }
        _ => parse_toml_value(text).unwrap_or_else(|| text.into()),
    }
}

/// Whether a setting accepts a whole table, which may be given as a TOML file.
fn can_be_toml_file(value_type: &FlowSettingType) -> bool {
    match value_type {
        FlowSettingType::AnyTable(_) => true,
        FlowSettingType::OneOf(choices) => choices.iter().any(can_be_toml_file),
        _ => false,
    }
}

fn is_toml_path(text: &str) -> bool {
    text.ends_with(".toml")
}

fn load_toml_as_json(path: &str) -> anyhow::Result<Value> {
    let bytes = std::fs::metadata(path).with_context(|| format!("cannot read {path}"))?.len();
    if bytes > CONFIG_BYTES_MAX {
        bail!("{path} has {bytes} bytes; the limit is {CONFIG_BYTES_MAX}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let table = DeTable::parse(&text).map_err(|error| anyhow::anyhow!("{path}: {}", error.message()))?;
    Ok(toml_to_json(&DeValue::Table(table.into_inner())))
}

fn strip_quotes(text: &str) -> &str {
    let quoted = |mark: char| text.strip_prefix(mark)?.strip_suffix(mark);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text)
}

fn parse_toml_value(text: &str) -> Option<Value> {
    let line = format!("value = {text}");
    let table = DeTable::parse(&line).ok()?;
    table.get_ref().get("value").map(|value| toml_to_json(value.get_ref()))
}

/// Converts a TOML value to JSON.
pub(crate) fn toml_to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            number.map_or_else(|_| Value::String(integer.as_str().to_owned()), Value::from)
        }
        DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| toml_to_json(item.get_ref())).collect()),
        DeValue::Table(table) => {
            let entry = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                (std::borrow::Cow::to_string(name.get_ref()), toml_to_json(value.get_ref()))
            };
            Value::Object(table.iter().map(entry).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec() -> FlowSpec {
        segue_flows::concierge::spec::concierge_flow_spec()
    }

    fn set(words: &[&str]) -> Result<Value, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        parse_settings(&spec(), &words).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_parsed_by_the_type_of_the_setting() {
        assert_eq!(set(&[]), Ok(Value::Null));
        assert_eq!(
            set(&["quorum=2", "confirm_batches = true", "stance=\"decide\"", "mapper=owl", "experts=ant, bee"]),
            Ok(
                json!({"quorum": 2, "confirm_batches": true, "stance": "decide", "mapper": "owl", "experts": ["ant", "bee"]})
            )
        );
        assert_eq!(
            set(&["experts=[\"ant\", {model = \"bee\", samples = 2}]"]),
            Ok(json!({"experts": ["ant", {"model": "bee", "samples": 2}]}))
        );
    }

    #[test]
    fn an_invalid_setting_is_refused_with_the_expected_value() {
        let error = |word: &str| set(&[word]).expect_err("it is invalid");
        assert_eq!(error("qorum=2"), "setting `qorum` is unknown; did you mean `quorum`?");
        assert_eq!(error("quorum=two"), "setting `quorum`: expected a whole number from 1 to 32, found `two`");
        assert_eq!(
            error("stance=bold"),
            "setting `stance`: expected `default`, `decide`, `explore` or `challenge`, found `bold`"
        );
        assert_eq!(error("quorum"), "setting `quorum` has no value; write NAME=VALUE");
        assert_eq!(set(&["quorum=1", "quorum=2"]).expect_err("twice"), "setting `quorum` is given twice");
        let none =
            parse_settings(&FlowSpec::new("plain", "no settings"), &["a=1".to_owned()]).expect_err("there are none");
        assert_eq!(none.to_string(), "setting `a` is unknown; flow `plain` has no settings");
    }
}
