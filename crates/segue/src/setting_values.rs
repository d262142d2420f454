//! Settings of a flow as people write them: `--set quorum=2` and `[flows.concierge]`. Reads values by what each setting takes;
//! whether they fit is for the flow's own data to say.

use anyhow::{Context, bail};
use segue_core::flow::FlowSpec;
use segue_core::flow::settings::{InvalidSetting, SettingProblem, SettingSpec, SettingType};
use segue_core::ids::{FlowName, SessionId};
use segue_engine::Engine;
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::limits::CONFIG_BYTES_MAX;
use crate::suggest::suggestion_hint;

/// Settings from the command line, each `name=value`; nothing if there are none.
pub fn parse_settings(spec: &FlowSpec, words: &[String]) -> anyhow::Result<Value> {
    if words.is_empty() {
        return Ok(Value::Null);
    }
    let mut settings = Map::new();
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            bail!("the setting `{word}` has no value; write NAME=VALUE");
        };
        let (name, text) = (name.trim(), text.trim());
        let known = spec.settings.iter().find(|setting| setting.name == name);
        let value = match known {
            Some(setting) if accepts_document(&setting.value_type) && is_toml_path(text) => load_toml_as_json(text)?,
            Some(setting) => parse_setting_value(setting, text),
            None => Value::String(text.to_owned()),
        };
        if settings.insert(name.to_owned(), value).is_some() {
            bail!("the setting `{name}` is given twice; say it once");
        }
    }
    let settings = Value::Object(settings);
    if let Some(misfit) = spec.invalid_settings(&settings).first() {
        bail!("the setting {}", invalid_setting_message(spec, "", misfit));
    }
    Ok(settings)
}

/// Settings from the command line for a new session; nothing if there are none.
pub fn parse_new_session_settings(engine: &Engine, flow: &FlowName, words: &[String]) -> anyhow::Result<Value> {
    // Of a flow that is not there, its opening complains.
    let spec = engine.flows().map(|rules| rules.spec()).find(|spec| spec.name == *flow);
    spec.map_or(Ok(Value::Null), |spec| parse_settings(spec, words))
}

/// Why a session that exists is not set.
pub fn settings_fixed_message(session: &SessionId) -> String {
    format!("the session `{session}` was set when it was begun; leave --set out, or begin another")
}

/// What is wrong, under the name it has where it was written.
pub fn invalid_setting_message(spec: &FlowSpec, prefix: &str, invalid: &InvalidSetting) -> String {
    let at = format!("{prefix}{}", invalid.path);
    match &invalid.problem {
        SettingProblem::UnknownName { known, .. } if known.is_empty() => {
            format!("`{at}` is unknown; the flow `{}` has no settings", spec.name)
        }
        SettingProblem::UnknownName { given, known } => {
            format!("`{at}` is unknown{}", suggestion_hint(given, known.iter().map(String::as_str)))
        }
        SettingProblem::InvalidValue { expected, found } => format!("`{at}`: expected {expected}, found {found}"),
    }
}

/// A value as it is typed: words need no quotes, and a list no brackets.
fn parse_setting_value(setting: &SettingSpec, text: &str) -> Value {
    match &setting.value_type {
        SettingType::Choice(_) | SettingType::Text | SettingType::Model => Value::String(strip_quotes(text).to_owned()),
        SettingType::List { .. } if !text.starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(
                items.map(|item| parse_toml_value(item).unwrap_or_else(|| strip_quotes(item).into())).collect(),
            )
        }
        _ => parse_toml_value(text).unwrap_or_else(|| text.into()),
    }
}

/// Whether a setting takes a whole document: then it may be given as a file.
fn accepts_document(takes: &SettingType) -> bool {
    match takes {
        SettingType::AnyTable(_) => true,
        SettingType::OneOf(choices) => choices.iter().any(accepts_document),
        _ => false,
    }
}

fn is_toml_path(text: &str) -> bool {
    text.ends_with(".toml")
}

/// A file as JSON.
fn load_toml_as_json(path: &str) -> anyhow::Result<Value> {
    let bytes = std::fs::metadata(path).with_context(|| format!("cannot read {path}"))?.len();
    if bytes > CONFIG_BYTES_MAX {
        bail!("{path} has {bytes} bytes; at most {CONFIG_BYTES_MAX} are read");
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

/// A value of a configuration file as JSON.
pub fn toml_to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            number.map_or_else(|_| Value::String(integer.as_str().to_owned()), Value::from)
        }
        DeValue::Float(float) => float.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(yes) => Value::Bool(*yes),
        DeValue::Datetime(moment) => Value::String(moment.to_string()),
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
    fn values_are_read_by_what_the_setting_takes() {
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
    fn what_does_not_fit_is_told_with_what_would() {
        let wrong = |word: &str| set(&[word]).expect_err("it does not fit");
        assert_eq!(wrong("qorum=2"), "the setting `qorum` is unknown; did you mean `quorum`?");
        assert_eq!(wrong("quorum=two"), "the setting `quorum`: expected a whole number from 1 to 32, found `two`");
        assert_eq!(
            wrong("stance=bold"),
            "the setting `stance`: expected `default`, `decide`, `explore` or `challenge`, found `bold`"
        );
        assert_eq!(wrong("quorum"), "the setting `quorum` has no value; write NAME=VALUE");
        assert_eq!(
            set(&["quorum=1", "quorum=2"]).expect_err("twice"),
            "the setting `quorum` is given twice; say it once"
        );
        let none =
            parse_settings(&FlowSpec::new("plain", "nothing to set"), &["a=1".to_owned()]).expect_err("there are none");
        assert_eq!(none.to_string(), "the setting `a` is unknown; the flow `plain` has no settings");
    }
}
