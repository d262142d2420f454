//! A configuration as rows for people: what holds, and where each value came from.

use std::path::PathBuf;

use segue_models::card::TokenPrice;
use segue_models::catalog::VendorModelSpec;
use segue_models::vendor::JsonMode;

use super::parser::{mid_turn_policy_name, rehearsal_speed_name};
use super::vendor_model::JSON_MODE_NAMES;
use super::{Config, ConfigValue, ModelConfig, ModelConfigKind, ModelDiscovery, ValueOrigin};

/// Every value that holds: its key, the value, and where it came from.
pub fn config_rows(config: &Config, store: Option<&ConfigValue<PathBuf>>) -> Vec<(String, String, ValueOrigin)> {
    let mut rows = Vec::new();
    if let Some(store) = store {
        rows.push(("store.path".to_owned(), store.value.display().to_string(), store.origin));
    }
    rows.push(("session.flow".to_owned(), config.default_flow.value.to_string(), config.default_flow.origin));
    rows.push((
        "session.busy".to_owned(),
        mid_turn_policy_name(config.mid_turn_policy.value).to_owned(),
        config.mid_turn_policy.origin,
    ));
    rows.push(("models.default".to_owned(), config.default_model.value.to_string(), config.default_model.origin));
    if let Some(fallback) = &config.fallback_model {
        rows.push(("models.fallback".to_owned(), fallback.value.to_string(), fallback.origin));
    }
    if config.discovery.origin != ValueOrigin::Default {
        let discovers = config.discovery.value == ModelDiscovery::On;
        rows.push(("models.discover".to_owned(), discovers.to_string(), config.discovery.origin));
    }
    if let Some(file) = &config.catalog_file {
        rows.push(("catalog.file".to_owned(), file.value.display().to_string(), file.origin));
    }
    for (name, model) in &config.models {
        let values = model_rows(&model.value);
        rows.extend(values.into_iter().map(|(key, value)| (format!("models.{name}.{key}"), value, model.origin)));
    }
    for cast in &config.role_models {
        let flow = cast.flow.as_ref().map(|flow| format!("flows.{flow}.")).unwrap_or_default();
        let phase = cast.phase.as_ref().map(|phase| format!(".phases.{phase}")).unwrap_or_default();
        rows.push((format!("{flow}roles.{}{phase}", cast.role), cast.model.value.to_string(), cast.model.origin));
    }
    for cast in &config.role_fallbacks {
        let flow = cast.flow.as_ref().map(|flow| format!("flows.{flow}.")).unwrap_or_default();
        rows.push((format!("{flow}roles.{}.fallback", cast.role), cast.model.value.to_string(), cast.model.origin));
    }
    for setting in &config.flow_settings {
        let value = setting.value.value.to_string();
        rows.push((format!("flows.{}.{}", setting.flow, setting.name), value, setting.value.origin));
    }
    if let Some(store) = store {
        let records = config.records_path(store);
        rows.push(("records.path".to_owned(), records.value.display().to_string(), records.origin));
    }
    for own in &config.domains {
        let named = format!("{} ({})", own.value.domain.name, own.value.file.display());
        rows.push(("records.domains".to_owned(), named, own.origin));
    }
    for (name, limits) in &config.model_limits {
        rows.push((format!("limits.{name}.calls_max"), limits.calls_max.value.to_string(), limits.calls_max.origin));
        if let Some(calls) = &limits.calls_per_minute_max {
            rows.push((format!("limits.{name}.calls_per_minute_max"), calls.value.to_string(), calls.origin));
        }
        if let Some(silence) = &limits.silence_ms_max {
            rows.push((format!("limits.{name}.silence_s_max"), (silence.value / 1_000).to_string(), silence.origin));
        }
    }
    rows.extend(config.server_limits.config_rows());
    rows
}

fn model_rows(model: &ModelConfig) -> Vec<(&'static str, String)> {
    let mut rows = match &model.kind {
        ModelConfigKind::Rehearsal { speed: pace } => {
            vec![("kind", "rehearsal".to_owned()), ("pace", rehearsal_speed_name(*pace).to_owned())]
        }
        ModelConfigKind::Scripted { file } => {
            vec![("kind", "scripted".to_owned()), ("file", file.display().to_string())]
        }
        ModelConfigKind::Vendor(wanted) => vendor_model_rows(wanted),
    };
    if let Some(tokens) = model.window_tokens {
        rows.push(("window_tokens", tokens.to_string()));
    }
    if let Some(TokenPrice { input, output, cached, written, .. }) = model.price {
        let dollars = |micro: u64| format!("${}", micro as f64 / 1e6);
        let mut price = format!("input {}, output {}, cached {}", dollars(input), dollars(output), dollars(cached));
        if let Some(written) = written {
            price.push_str(&format!(", written {}", dollars(written)));
        }
        rows.push(("price", price));
    }
    rows
}

fn vendor_model_rows(wanted: &VendorModelSpec) -> Vec<(&'static str, String)> {
    let word = |yes: bool| yes.to_string();
    let mut rows = vec![("provider", wanted.provider.clone()), ("model", wanted.model.clone())];
    let more = [
        ("wire", wanted.wire.map(|wire| wire.as_str().to_owned())),
        ("base_url", wanted.base_url.clone()),
        ("key_env", wanted.key_env.clone()),
        ("temperature", wanted.params.temperature.map(|number| number.to_string())),
        ("effort", wanted.params.effort.map(|effort| effort.as_str().to_owned())),
        ("json", wanted.overrides.json.map(json_mode_name)),
        ("images", wanted.overrides.images.map(word)),
        ("tools", wanted.overrides.tools.map(word)),
        ("output_tokens_max", wanted.overrides.output_tokens_max.map(|tokens| tokens.to_string())),
    ];
    rows.extend(more.into_iter().filter_map(|(key, value)| Some((key, value?))));
    rows
}

fn json_mode_name(json: JsonMode) -> String {
    JSON_MODE_NAMES.iter().find(|(_, known)| *known == json).map_or("schema", |(word, _)| word).to_owned()
}
