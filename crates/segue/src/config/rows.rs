//! A configuration as rows for people: what holds, and where each value came from.

use std::path::PathBuf;

use segue_models::card::Price;

use super::read::{busy_word, pace_word};
use super::{Config, Model, ModelKind, Origin, Setting};

/// Every value that holds: its key, the value, and where it came from.
pub fn rows(config: &Config, store: Option<&Setting<PathBuf>>) -> Vec<(String, String, Origin)> {
    let mut rows = Vec::new();
    if let Some(store) = store {
        rows.push(("store.path".to_owned(), store.value.display().to_string(), store.origin));
    }
    rows.push(("session.flow".to_owned(), config.flow.value.to_string(), config.flow.origin));
    rows.push(("session.busy".to_owned(), busy_word(config.busy.value).to_owned(), config.busy.origin));
    rows.push(("models.default".to_owned(), config.default_model.value.to_string(), config.default_model.origin));
    for (name, model) in &config.models {
        let values = model_rows(&model.value);
        rows.extend(values.into_iter().map(|(key, value)| (format!("models.{name}.{key}"), value, model.origin)));
    }
    for cast in &config.casts {
        let flow = cast.flow.as_ref().map(|flow| format!("flows.{flow}.")).unwrap_or_default();
        let phase = cast.phase.as_ref().map(|phase| format!(".phases.{phase}")).unwrap_or_default();
        rows.push((format!("{flow}roles.{}{phase}", cast.role), cast.model.value.to_string(), cast.model.origin));
    }
    for setting in &config.settings {
        let value = setting.value.value.to_string();
        rows.push((format!("flows.{}.{}", setting.flow, setting.name), value, setting.value.origin));
    }
    for (name, limits) in &config.limits {
        rows.push((format!("limits.{name}.calls_max"), limits.calls_max.value.to_string(), limits.calls_max.origin));
        if let Some(calls) = &limits.calls_per_minute_max {
            rows.push((format!("limits.{name}.calls_per_minute_max"), calls.value.to_string(), calls.origin));
        }
    }
    rows
}

fn model_rows(model: &Model) -> Vec<(&'static str, String)> {
    let mut rows = match &model.kind {
        ModelKind::Rehearsal { pace } => {
            vec![("kind", "rehearsal".to_owned()), ("pace", pace_word(*pace).to_owned())]
        }
        ModelKind::Scripted { file } => vec![("kind", "scripted".to_owned()), ("file", file.display().to_string())],
    };
    if let Some(tokens) = model.window_tokens {
        rows.push(("window_tokens", tokens.to_string()));
    }
    if let Some(Price { input, output, cached, .. }) = model.price {
        let dollars = |micro: u64| format!("${}", micro as f64 / 1e6);
        let price = format!("input {}, output {}, cached {}", dollars(input), dollars(output), dollars(cached));
        rows.push(("price", price));
    }
    rows
}
