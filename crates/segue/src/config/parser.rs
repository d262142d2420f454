//! Parses and validates a configuration file. The names of all keys are in this module and its siblings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::event::MidTurnPolicy;
use segue_core::flow::{DynFlow, FlowSpec, collect_named_models};
use segue_core::ids::{FlowName, ModelName, RoleName};
use segue_engine::limits::MODEL_CONCURRENT_CALLS_MAX;
use segue_models::ModelCatalog;
use segue_models::card::TokenPrice;
use toml::de::{DeTable, DeValue};

use super::approval::{self, APPROVAL_KEYS};
use super::flow_files::{self, FLOW_FILE_KEY};
use super::records::{self, RECORDS_KEYS};
use super::server_limits::{self, SERVER_KEYS};
use super::table_reader::{ConfigError, ConfigFileText, ConfigTable, ConfigTableEntry};
use super::vendor_model::{self, VENDOR_KEYS};
use super::{
    Config, ConfigValue, ConfigValueOrigin, FlowSettingConfig, MODEL_KIND_NAMES, ModelCallLimitsConfig, ModelConfig,
    ModelConfigKind, ModelDiscoverySetting, REHEARSAL_MODEL_NAME, RehearsalSpeed, RoleModelConfig, mcp_servers,
    prompts, workspaces,
};
use crate::setting_values::{invalid_setting_message, toml_to_json};
use crate::store_location::StoreLocation;
use crate::suggest::{format_name_list, suggestion_hint};

pub(super) const TOP_KEYS: [&str; 12] = [
    "store",
    "session",
    "models",
    "catalog",
    "roles",
    "flows",
    "records",
    "workspaces",
    "mcp_servers",
    "approval",
    "limits",
    "server",
];
pub(super) const STORE_KEYS: [&str; 1] = ["path"];
pub(super) const SESSION_KEYS: [&str; 2] = ["flow", "mid_turn_policy"];
pub(super) const MODEL_KEYS: [&str; 3] = ["kind", "window_tokens", "price"];
pub(super) const REHEARSAL_KEYS: [&str; 1] = ["speed"];
pub(super) const SCRIPTED_KEYS: [&str; 1] = ["file"];
pub(super) const PRICE_KEYS: [&str; 4] = ["input", "output", "cache_read", "cache_write"];
pub(super) const CATALOG_KEYS: [&str; 1] = ["file"];
/// A key of `[flows.NAME]` that is not a setting of the flow.
pub(super) const ROLES_KEY: &str = "roles";
pub(super) const ROLE_KEYS: [&str; 3] = ["default", "phases", "fallback"];
pub(super) const MODEL_LIMIT_KEYS: [&str; 3] = ["calls_max", "calls_per_minute_max", "idle_s_max"];

/// The `kind` of a vendor model.
const VENDOR_KIND_NAME: &str = "vendor";
/// The keys of `[models]` that are not names of models.
pub(super) const RESERVED_MODEL_KEYS: [&str; 3] = [DEFAULT_MODEL_KEY, FALLBACK_MODEL_KEY, DISCOVER_KEY];
const DEFAULT_MODEL_KEY: &str = "default";
const FALLBACK_MODEL_KEY: &str = "fallback";
const DISCOVER_KEY: &str = "discover";

const MID_TURN_POLICY_NAMES: [(&str, MidTurnPolicy); 4] = [
    ("queue", MidTurnPolicy::Queue),
    ("coalesce", MidTurnPolicy::Coalesce),
    ("reject", MidTurnPolicy::Reject),
    ("interrupt", MidTurnPolicy::Interrupt),
];
const REHEARSAL_SPEED_NAMES: [(&str, RehearsalSpeed); 2] =
    [("realtime", RehearsalSpeed::Realtime), ("instant", RehearsalSpeed::Instant)];

/// Returns the name of a mid-turn policy in the file.
pub(super) fn mid_turn_policy_name(policy: MidTurnPolicy) -> &'static str {
    MID_TURN_POLICY_NAMES.iter().find(|(_, known)| *known == policy).map_or("queue", |(name, _)| name)
}

/// Returns the name of a rehearsal speed in the file.
pub(super) fn rehearsal_speed_name(speed: RehearsalSpeed) -> &'static str {
    REHEARSAL_SPEED_NAMES.iter().find(|(_, known)| *known == speed).map_or("realtime", |(name, _)| name)
}

/// Parses a configuration file. `read_file` reads another file that this one names.
///
/// # Errors
/// Returns an error with the file, the line and the expected value.
pub(crate) fn parse_config(
    file: &Path,
    text: &str,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
) -> Result<Config, ConfigError> {
    let source = ConfigFileText { file, text };
    let table = DeTable::parse(text)
        .map_err(|error| source.error_at(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let top = ConfigTable::root(source, table.get_ref())?.deny_unknown_keys(&TOP_KEYS)?;
    let mut config = Config { file: Some(file.to_owned()), ..Config::built_in() };
    if let Some(store) = top.subtable("store")? {
        let path = store.deny_unknown_keys(&STORE_KEYS)?.string("path")?;
        config.store = path.map(|path| {
            let value = match StoreLocation::parse(Path::new(&path.value)) {
                StoreLocation::Database(url) => PathBuf::from(url),
                StoreLocation::File(_) => resolve_relative_path(file, &path.value),
            };
            ConfigValue { value, origin: path.origin }
        });
    }
    if let Some(session) = top.subtable("session")? {
        let session = session.deny_unknown_keys(&SESSION_KEYS)?;
        if let Some(flow) = session.string("flow")? {
            config.default_flow = ConfigValue { value: flow.value.into(), origin: flow.origin };
        }
        let policy = session.choice("mid_turn_policy", &MID_TURN_POLICY_NAMES)?;
        config.mid_turn_policy = policy.unwrap_or(config.mid_turn_policy);
    }
    if let Some(table) = top.subtable("catalog")? {
        read_catalog(&table.deny_unknown_keys(&CATALOG_KEYS)?, file, read_file, &mut config)?;
    }
    read_models(&top, file, &mut config)?;
    if let Some(roles) = top.subtable("roles")? {
        read_role_models(&roles, None, &mut config)?;
    }
    if let Some(flows) = top.subtable("flows")? {
        for named in flows.entries() {
            let flow = flows.entry_table(&named)?;
            let name = FlowName::from(named.name.as_str());
            config.configured_flows.push(ConfigValue { value: name.clone(), origin: flows.origin_at(named.offset) });
            if let Some(roles) = flow.subtable(ROLES_KEY)? {
                read_role_models(&roles, Some(&name), &mut config)?;
            }
            flow_files::read_flow_file(&flow, &name, file, read_file, &mut config)?;
            let is_setting = |name: &str| name != ROLES_KEY && name != FLOW_FILE_KEY;
            for setting in flow.entries().iter().filter(|setting| is_setting(&setting.name)) {
                let value = ConfigValue { value: toml_to_json(setting.value), origin: flow.origin_at(setting.offset) };
                config.flow_settings.push(FlowSettingConfig { flow: name.clone(), name: setting.name.clone(), value });
            }
        }
    }
    if let Some(table) = top.subtable("records")? {
        records::read_records(&table.deny_unknown_keys(&RECORDS_KEYS)?, file, read_file, &mut config)?;
    }
    records::load_domains_from_settings(file, read_file, &mut config)?;
    if let Some(table) = top.subtable("workspaces")? {
        workspaces::read_workspaces(&table, file, &mut config)?;
    }
    if let Some(table) = top.subtable("mcp_servers")? {
        mcp_servers::read_mcp_servers(&table, &mut config)?;
    }
    mcp_servers::check_listed_servers(&top, &config)?;
    prompts::load_prompt_files(file, read_file, &mut config)?;
    if let Some(table) = top.subtable("approval")? {
        approval::read_approval(&table.deny_unknown_keys(&APPROVAL_KEYS)?, &mut config)?;
    }
    if let Some(limits) = top.subtable("limits")? {
        read_model_limits(&limits, &mut config)?;
    }
    if let Some(table) = top.subtable("server")? {
        server_limits::read_server_limits(&table.deny_unknown_keys(&SERVER_KEYS)?, &mut config)?;
    }
    for name in assigned_models(&config) {
        config.add_shorthand_model(&name);
    }
    check_assigned_models(&top, &config)?;
    Ok(config)
}

fn read_catalog(
    table: &ConfigTable<'_>,
    file: &Path,
    read_file: &dyn Fn(&Path) -> Result<String, String>,
    config: &mut Config,
) -> Result<(), ConfigError> {
    let Some(named) = table.string("file")? else { return Ok(()) };
    let path = resolve_relative_path(file, &named.value);
    let file_error = |reason: String| {
        table.error_at(table.key_offset("file"), format!("`catalog.file`: {}: {reason}", path.display()))
    };
    let text = read_file(&path).map_err(file_error)?;
    let user_catalog = ModelCatalog::parse(&text).map_err(|error| file_error(error.to_string()))?;
    config.catalog = std::mem::take(&mut config.catalog).extended_with(user_catalog);
    config.catalog_file = Some(ConfigValue { value: path, origin: named.origin });
    Ok(())
}

/// Resolves a path relative to the folder of the configuration file.
pub(super) fn resolve_relative_path(file: &Path, path: &str) -> std::path::PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn read_models(top: &ConfigTable<'_>, file: &Path, config: &mut Config) -> Result<(), ConfigError> {
    let Some(models) = top.subtable("models")? else { return Ok(()) };
    if let Some(discover) = models.boolean(DISCOVER_KEY)? {
        let value = if discover.value { ModelDiscoverySetting::On } else { ModelDiscoverySetting::Off };
        config.discovery = ConfigValue { value, origin: discover.origin };
    }
    let fallback = models.string(FALLBACK_MODEL_KEY)?;
    config.fallback_model = fallback.map(|name| ConfigValue { value: name.value.into(), origin: name.origin });
    for named in models.entries().iter().filter(|named| !RESERVED_MODEL_KEYS.contains(&named.name.as_str())) {
        let model = read_model(&models.entry_table(named)?, file, &named.name, &config.catalog)?;
        let model = ConfigValue { value: model, origin: models.origin_at(named.offset) };
        config.models.insert(named.name.as_str().into(), model);
    }
    if let Some(default) = models.string(DEFAULT_MODEL_KEY)? {
        config.default_model = ConfigValue { value: default.value.into(), origin: default.origin };
        return Ok(());
    }
    let mut configured = config.models.iter().filter(|(_, model)| model.origin != ConfigValueOrigin::Default);
    match (configured.next(), configured.next()) {
        (Some((name, model)), None) => {
            config.default_model = ConfigValue { value: name.clone(), origin: model.origin };
            Ok(())
        }
        (Some(_), Some(_)) => {
            let names = format_name_list(config.models.keys().map(ModelName::as_str));
            Err(models.table_error(format!(
                "`models.default` is missing: with several models, name the default one; there are {names}"
            )))
        }
        (None, _) => Ok(()),
    }
}

fn read_model(
    table: &ConfigTable<'_>,
    file: &Path,
    name: &str,
    catalog: &ModelCatalog,
) -> Result<ModelConfig, ConfigError> {
    let kind = match table.string("kind")? {
        Some(kind) => kind.value,
        None if table.string("provider")?.is_some() => VENDOR_KIND_NAME.to_owned(),
        None => {
            let message = format!(
                "`models.{name}` needs a `provider`, such as \"anthropic\", or a `kind`, one of {}",
                format_name_list(MODEL_KIND_NAMES)
            );
            return Err(table.table_error(message));
        }
    };
    let keys = |own: &[&'static str]| MODEL_KEYS.iter().chain(own).copied().collect::<Vec<_>>();
    let (table, kind) = match kind.as_str() {
        "rehearsal" => {
            let table = table.clone().deny_unknown_keys(&keys(&REHEARSAL_KEYS))?;
            let speed = table.choice("speed", &REHEARSAL_SPEED_NAMES)?.map(|speed| speed.value).unwrap_or_default();
            (table, ModelConfigKind::Rehearsal { speed })
        }
        "scripted" => {
            let table = table.clone().deny_unknown_keys(&keys(&SCRIPTED_KEYS))?;
            let Some(script) = table.string("file")? else {
                return Err(
                    table.table_error(format!("`models.{name}.file` is missing: the scenario with its replies"))
                );
            };
            (table, ModelConfigKind::Scripted { file: resolve_relative_path(file, &script.value) })
        }
        VENDOR_KIND_NAME => {
            let table = table.clone().deny_unknown_keys(&keys(&VENDOR_KEYS))?;
            let spec = vendor_model::read_vendor_model(&table, name, catalog)?;
            (table, ModelConfigKind::Vendor(Box::new(spec)))
        }
        other => {
            let message =
                format!("`models.{name}.kind`: unknown kind `{other}`{}", suggestion_hint(other, MODEL_KIND_NAMES));
            return Err(table.error_at(table.key_offset("kind"), message));
        }
    };
    let window_tokens = table.integer("window_tokens", 1)?.map(|tokens| tokens.value);
    let price = match table.subtable("price")? {
        Some(price) => Some(read_price(price.deny_unknown_keys(&PRICE_KEYS)?)?),
        None => None,
    };
    Ok(ModelConfig { kind, window_tokens, price })
}

fn read_price(table: ConfigTable<'_>) -> Result<TokenPrice, ConfigError> {
    let required = |key: &str| {
        let found = table.dollars_as_micros(key)?;
        found
            .map(|dollars| dollars.value)
            .ok_or_else(|| table.table_error(format!("a price needs `{key}`: dollars per million tokens")))
    };
    let (input, output) = (required("input")?, required("output")?);
    let cache_read = table.dollars_as_micros("cache_read")?.map_or(input, |price| price.value);
    let cache_write = table.dollars_as_micros("cache_write")?.map(|price| price.value);
    Ok(TokenPrice { written: cache_write, ..TokenPrice::flat(input, output, cache_read) })
}

fn read_role_models(roles: &ConfigTable<'_>, flow: Option<&FlowName>, config: &mut Config) -> Result<(), ConfigError> {
    for named in roles.entries() {
        let role = RoleName::from(named.name.as_str());
        let role_model = |phase: Option<&str>, model| RoleModelConfig {
            flow: flow.cloned(),
            role: role.clone(),
            phase: phase.map(Into::into),
            model,
        };
        if !matches!(named.value, DeValue::Table(_)) {
            config.role_models.push(role_model(None, roles.model_name(&named)?));
            continue;
        }
        let table = roles.entry_table(&named)?.deny_unknown_keys(&ROLE_KEYS)?;
        let model = |found: ConfigValue<String>| ConfigValue { value: found.value.into(), origin: found.origin };
        if let Some(default) = table.string("default")? {
            config.role_models.push(role_model(None, model(default)));
        }
        if let Some(fallback) = table.string("fallback")? {
            config.role_fallbacks.push(role_model(None, model(fallback)));
        }
        if let Some(phases) = table.subtable("phases")? {
            for phase in phases.entries() {
                config.role_models.push(role_model(Some(&phase.name), phases.model_name(&phase)?));
            }
        }
    }
    Ok(())
}

fn read_model_limits(limits: &ConfigTable<'_>, config: &mut Config) -> Result<(), ConfigError> {
    for named in limits.entries() {
        require_known_model(limits, &named, config)?;
        let table = limits.entry_table(&named)?.deny_unknown_keys(&MODEL_LIMIT_KEYS)?;
        let calls_max = table
            .integer("calls_max", 1)?
            .unwrap_or(ConfigValue { value: MODEL_CONCURRENT_CALLS_MAX, origin: ConfigValueOrigin::Default });
        let idle = table.integer("idle_s_max", 1)?;
        let limit = ModelCallLimitsConfig {
            calls_max,
            calls_per_minute_max: table.integer("calls_per_minute_max", 1)?,
            idle_ms_max: idle.map(|seconds: ConfigValue<u32>| ConfigValue {
                value: u64::from(seconds.value) * 1_000,
                origin: seconds.origin,
            }),
        };
        config.model_limits.insert(named.name.as_str().into(), limit);
    }
    Ok(())
}

fn require_known_model(
    table: &ConfigTable<'_>,
    named: &ConfigTableEntry<'_>,
    config: &Config,
) -> Result<(), ConfigError> {
    if config.models.contains_key(named.name.as_str()) {
        return Ok(());
    }
    Err(table.error_at(named.offset, unknown_model_message(&named.name, config)))
}

fn unknown_model_message(name: &str, config: &Config) -> String {
    format!("there is no model `{name}`{}", suggestion_hint(name, config.models.keys().map(ModelName::as_str)))
}

/// Checks that every assigned model exists.
fn check_assigned_models(top: &ConfigTable<'_>, config: &Config) -> Result<(), ConfigError> {
    for setting in assigned_models(config) {
        if setting.value != REHEARSAL_MODEL_NAME && !config.models.contains_key(&setting.value) {
            return Err(error_at_origin(top, setting.origin, unknown_model_message(setting.value.as_str(), config)));
        }
    }
    Ok(())
}

impl Config {
    /// Returns every model that is assigned to a role, is a fallback, or is named in a flow's settings.
    pub(crate) fn used_models(&self) -> BTreeSet<ModelName> {
        let flows = self.flows();
        let used = assigned_models(self).into_iter().chain(models_named_in_settings(self, &flows));
        used.map(|model| model.value).collect()
    }
}

/// Returns the default model, the models of roles, and all fallbacks.
fn assigned_models(config: &Config) -> Vec<ConfigValue<ModelName>> {
    let role_models = config.role_models.iter().chain(&config.role_fallbacks).map(|role| &role.model);
    std::iter::once(&config.default_model).chain(&config.fallback_model).chain(role_models).cloned().collect()
}

/// Adds the models that a flow's settings name as `provider/model`.
pub(crate) fn add_models_named_in_flow_settings(config: &mut Config, flows: &[Arc<dyn DynFlow>]) {
    let named = models_named_in_settings(config, flows);
    named.iter().for_each(|name| config.add_shorthand_model(name));
}

fn models_named_in_settings(config: &Config, flows: &[Arc<dyn DynFlow>]) -> Vec<ConfigValue<ModelName>> {
    let mut named = Vec::new();
    for setting in &config.flow_settings {
        let Some(flow) = flows.iter().find(|flow| flow.spec().name == setting.flow) else { continue };
        let settings = serde_json::json!({ &setting.name: setting.value.value });
        let models = collect_named_models(&flow.spec().settings, &settings).into_iter();
        named.extend(models.map(|(_, model)| ConfigValue { value: model, origin: setting.value.origin }));
    }
    named
}

fn error_at_origin(top: &ConfigTable<'_>, origin: ConfigValueOrigin, message: String) -> ConfigError {
    let mut error = top.table_error(message);
    if let ConfigValueOrigin::File { line } = origin {
        error.line = line;
    }
    error
}

/// Checks that every flow, role and phase in the configuration exists, and that every setting is valid.
///
/// # Errors
/// Returns the first mistake.
pub(crate) fn validate_config(config: &Config, flows: &[Arc<dyn DynFlow>]) -> Result<(), ConfigError> {
    let specs: Vec<&FlowSpec> = flows.iter().map(|flow| flow.spec()).collect();
    let file = config.file.clone().unwrap_or_default();
    let mistake = |origin: ConfigValueOrigin, message: String| {
        let line = if let ConfigValueOrigin::File { line } = origin { line } else { 1 };
        Err(ConfigError { file: file.clone(), line, message })
    };
    let flow_names = || specs.iter().map(|spec| spec.name.as_str());
    if !specs.iter().any(|spec| spec.name == config.default_flow.value) {
        let name = config.default_flow.value.as_str();
        return mistake(
            config.default_flow.origin,
            format!("`session.flow`: there is no flow `{name}`{}", suggestion_hint(name, flow_names())),
        );
    }
    for role_model in config.role_models.iter().chain(&config.role_fallbacks) {
        let origin = role_model.model.origin;
        if let Some(flow) = role_model.flow.as_ref().filter(|flow| !specs.iter().any(|spec| spec.name == **flow)) {
            let hint = suggestion_hint(flow.as_str(), flow_names());
            return mistake(origin, format!("there is no flow `{flow}`{hint}"));
        }
        let matching = specs.iter().filter(|spec| role_model.flow.as_ref().is_none_or(|flow| *flow == spec.name));
        let roles: Vec<&str> = matching.clone().flat_map(|spec| spec.roles.keys()).map(RoleName::as_str).collect();
        if !roles.contains(&role_model.role.as_str()) {
            let role = role_model.role.as_str();
            let hint = suggestion_hint(role, roles.iter().copied());
            return mistake(origin, format!("there is no role `{role}`{hint}"));
        }
        let Some(phase) = &role_model.phase else { continue };
        let graphs = matching.flat_map(|spec| spec.graphs.values());
        let phases: Vec<&str> = graphs.flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
        if !phases.contains(&phase.as_str()) {
            let phase = phase.as_str();
            return mistake(
                origin,
                format!("there is no phase `{phase}`{}", suggestion_hint(phase, phases.iter().copied())),
            );
        }
    }
    check_flow_settings(config, &specs).or_else(|(origin, message)| mistake(origin, message))?;
    // An empty table of an unknown flow is a mistake too.
    match config.configured_flows.iter().find(|named| !specs.iter().any(|spec| spec.name == named.value)) {
        Some(named) => {
            let name = named.value.as_str();
            mistake(named.origin, format!("there is no flow `{name}`{}", suggestion_hint(name, flow_names())))
        }
        None => Ok(()),
    }
}

/// Checks that every setting is valid for its flow, and that the models it names exist.
fn check_flow_settings(config: &Config, specs: &[&FlowSpec]) -> Result<(), (ConfigValueOrigin, String)> {
    for setting in &config.flow_settings {
        let (flow, origin) = (setting.flow.as_str(), setting.value.origin);
        let Some(spec) = specs.iter().find(|spec| spec.name == flow) else {
            let known = specs.iter().map(|spec| spec.name.as_str());
            return Err((origin, format!("there is no flow `{flow}`{}", suggestion_hint(flow, known))));
        };
        let settings = serde_json::json!({ &setting.name: setting.value.value });
        if let Some(invalid) = spec.invalid_settings(&settings).first() {
            return Err((origin, invalid_setting_message(spec, &format!("flows.{flow}."), invalid)));
        }
        for (path, model) in collect_named_models(&spec.settings, &settings) {
            if !config.models.contains_key(&model) {
                return Err((
                    origin,
                    format!("`flows.{flow}.{path}`: {}", unknown_model_message(model.as_str(), config)),
                ));
            }
        }
    }
    Ok(())
}
