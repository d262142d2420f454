//! Renders a configuration as rows for `segue config`.

use std::path::{Path, PathBuf};

use segue_models::card::TokenPrice;
use segue_models::catalog::RequestedVendorModel;
use segue_models::vendor::JsonMode;

use super::parser::{mid_turn_policy_name, rehearsal_speed_name};
use super::vendor_model::JSON_MODE_NAMES;
use super::{
    Config, ConfigValue, ConfigValueOrigin, ModelConfig, ModelConfigKind, ModelDiscoverySetting, RoleModelConfig,
};
use crate::store_location::StoreLocation;

/// Returns the key, value and origin of every effective value. `store` is the path of the store and its data folder.
pub(crate) fn config_rows(
    config: &Config,
    store: Option<(&ConfigValue<PathBuf>, &Path)>,
) -> Vec<(String, String, ConfigValueOrigin)> {
    let mut rows = Vec::new();
    if let Some((store, _)) = store {
        rows.push(("store.path".to_owned(), StoreLocation::parse(&store.value).describe(), store.origin));
    }
    rows.push(("session.flow".to_owned(), config.default_flow.value.to_string(), config.default_flow.origin));
    rows.push((
        "session.mid_turn_policy".to_owned(),
        mid_turn_policy_name(config.mid_turn_policy.value).to_owned(),
        config.mid_turn_policy.origin,
    ));
    rows.push(("models.default".to_owned(), config.default_model.value.to_string(), config.default_model.origin));
    if let Some(fallback) = &config.fallback_model {
        rows.push(("models.fallback".to_owned(), fallback.value.to_string(), fallback.origin));
    }
    if config.discovery.origin != ConfigValueOrigin::Default {
        let discovers = config.discovery.value == ModelDiscoverySetting::On;
        rows.push(("models.discover".to_owned(), discovers.to_string(), config.discovery.origin));
    }
    if let Some(file) = &config.catalog_file {
        rows.push(("catalog.file".to_owned(), file.value.display().to_string(), file.origin));
    }
    for (name, model) in &config.models {
        let values = model_rows(&model.value);
        rows.extend(values.into_iter().map(|(key, value)| (format!("models.{name}.{key}"), value, model.origin)));
    }
    for RoleModelConfig { flow, role, phase, model } in &config.role_models {
        let flow = flow.as_ref().map(|flow| format!("flows.{flow}.")).unwrap_or_default();
        let phase = phase.as_ref().map(|phase| format!(".phases.{phase}")).unwrap_or_default();
        rows.push((format!("{flow}roles.{role}{phase}"), model.value.to_string(), model.origin));
    }
    for RoleModelConfig { flow, role, model, .. } in &config.role_fallbacks {
        let flow = flow.as_ref().map(|flow| format!("flows.{flow}.")).unwrap_or_default();
        rows.push((format!("{flow}roles.{role}.fallback"), model.value.to_string(), model.origin));
    }
    for setting in &config.flow_settings {
        let value = match setting.overridden_prompts().as_slice() {
            [] => setting.value.value.to_string(),
            // The texts are too long to print.
            prompts => prompts.join(", "),
        };
        rows.push((format!("flows.{}.{}", setting.flow, setting.name), value, setting.value.origin));
    }
    if let Some((store, data_folder)) = store {
        let records = config.records_path(store, data_folder);
        rows.push(("records.path".to_owned(), records.value.display().to_string(), records.origin));
    }
    for domain in &config.domains {
        let value = format!("{} ({})", domain.value.domain.name, domain.value.file.display());
        rows.push(("records.domains".to_owned(), value, domain.origin));
    }
    rows.extend(config.workspace_rows());
    rows.extend(config.mcp_server_rows());
    for (name, limits) in &config.model_limits {
        rows.push((format!("limits.{name}.calls_max"), limits.calls_max.value.to_string(), limits.calls_max.origin));
        if let Some(calls) = &limits.calls_per_minute_max {
            rows.push((format!("limits.{name}.calls_per_minute_max"), calls.value.to_string(), calls.origin));
        }
        if let Some(idle) = &limits.idle_ms_max {
            rows.push((format!("limits.{name}.idle_s_max"), (idle.value / 1_000).to_string(), idle.origin));
        }
    }
    rows.extend(config.approval.config_rows());
    rows.extend(config.server_limits.config_rows());
    rows
}

fn model_rows(model: &ModelConfig) -> Vec<(&'static str, String)> {
    let mut rows = match &model.kind {
        ModelConfigKind::Rehearsal { speed } => {
            vec![("kind", "rehearsal".to_owned()), ("speed", rehearsal_speed_name(*speed).to_owned())]
        }
        ModelConfigKind::Scripted { file } => {
            vec![("kind", "scripted".to_owned()), ("file", file.display().to_string())]
        }
        ModelConfigKind::Vendor(spec) => vendor_model_rows(spec),
    };
    if let Some(tokens) = model.window_tokens {
        rows.push(("window_tokens", tokens.to_string()));
    }
    if let Some(TokenPrice { input, output, cached, written, .. }) = model.price {
        let dollars = |micro: u64| format!("${}", micro as f64 / 1e6);
        let mut price = format!("input {}, output {}, cache_read {}", dollars(input), dollars(output), dollars(cached));
        if let Some(written) = written {
            price.push_str(&format!(", cache_write {}", dollars(written)));
        }
        rows.push(("price", price));
    }
    rows
}

fn vendor_model_rows(spec: &RequestedVendorModel) -> Vec<(&'static str, String)> {
    let flag = |value: bool| value.to_string();
    let mut rows = vec![("provider", spec.provider.clone()), ("model", spec.model.clone())];
    let optional = [
        ("api_format", spec.wire.map(|format| format.as_str().to_owned())),
        ("base_url", spec.base_url.clone()),
        ("key_env", spec.key_env.clone()),
        ("temperature", spec.params.temperature.map(|number| number.to_string())),
        ("effort", spec.params.effort.map(|effort| effort.as_str().to_owned())),
        ("json", spec.overrides.json.map(json_mode_name)),
        ("images", spec.overrides.images.map(flag)),
        ("tools", spec.overrides.tools.map(flag)),
        ("output_tokens_max", spec.overrides.output_tokens_max.map(|tokens| tokens.to_string())),
    ];
    rows.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
    rows
}

fn json_mode_name(json: JsonMode) -> String {
    JSON_MODE_NAMES.iter().find(|(_, known)| *known == json).map_or("schema", |(name, _)| name).to_owned()
}
