//! The configuration: where sessions are stored, which models exist, which role uses which model, and the defaults of a
//! new session. Every value has an origin. Parsing is here; starting an engine from it is in [`crate::setup`].

mod approval;
mod flow_files;
mod locations;
mod mcp_servers;
mod parser;
mod prompts;
mod records;
mod server_limits;
mod table_reader;
mod value_rows;
mod vendor_model;
mod workspaces;

use std::collections::BTreeMap;
use std::path::PathBuf;

use segue_core::event::MidTurnPolicy;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_mcp::McpServerWithAllowedOwners;
use segue_models::ModelCatalog;
use segue_models::card::TokenPrice;
use segue_models::catalog::RequestedVendorModel;
use segue_tools::WorkspaceConfig;
use serde_json::Value;

pub(crate) use approval::ApprovalConfig;
pub(crate) use flow_files::{FlowFile, REPLACEABLE_FLOW, RecordedDefinitionLoader};
pub(crate) use locations::{ConfigFileOrigin, UserDirs, find_config_file};
pub(crate) use parser::{add_models_named_in_flow_settings, parse_config, validate_config};
pub(crate) use records::{DomainFile, default_records_path};
pub(crate) use server_limits::ServerLimitsConfig;
pub(crate) use value_rows::config_rows;
pub(crate) use workspaces::workspace_state_folder;

/// The default flow of a new session.
pub(crate) const DEFAULT_FLOW: &str = "chat";
/// The name of the built-in rehearsal model.
pub(crate) const REHEARSAL_MODEL_NAME: &str = "rehearsal";

/// The whole configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// The file it was read from, if any.
    pub file: Option<PathBuf>,
    /// The path of the store, if configured.
    pub store: Option<ConfigValue<PathBuf>>,
    /// The flow of a new session.
    pub default_flow: ConfigValue<FlowName>,
    /// What a new session does with a message that arrives during a turn.
    pub mid_turn_policy: ConfigValue<MidTurnPolicy>,
    pub models: BTreeMap<ModelName, ConfigValue<ModelConfig>>,
    /// The model of every role without a model of its own.
    pub default_model: ConfigValue<ModelName>,
    /// The fallback of every role without a fallback of its own.
    pub fallback_model: Option<ConfigValue<ModelName>>,
    pub discovery: ConfigValue<ModelDiscoverySetting>,
    /// The known providers and models: the built-in catalog, extended by the user's file.
    pub catalog: ModelCatalog,
    /// The user's catalog file, if any.
    pub catalog_file: Option<ConfigValue<PathBuf>>,
    /// The models of single roles.
    pub role_models: Vec<RoleModelConfig>,
    /// The fallback models of single roles.
    pub role_fallbacks: Vec<RoleModelConfig>,
    /// The flows that have a table in the file.
    pub configured_flows: Vec<ConfigValue<FlowName>>,
    /// The settings of new sessions, in file order.
    pub flow_settings: Vec<FlowSettingConfig>,
    /// The path of the records database, if configured.
    pub records: Option<ConfigValue<PathBuf>>,
    /// The user's own domains.
    pub domains: Vec<ConfigValue<DomainFile>>,
    /// The folders in which agents work, by name.
    pub workspaces: BTreeMap<String, ConfigValue<WorkspaceConfig>>,
    /// The MCP servers whose tools phases can list, by name.
    pub mcp_servers: BTreeMap<String, ConfigValue<McpServerWithAllowedOwners>>,
    /// The user's own flows.
    pub flow_files: Vec<ConfigValue<FlowFile>>,
    pub model_limits: BTreeMap<ModelName, ModelCallLimitsConfig>,
    pub server_limits: ServerLimitsConfig,
    /// Which tool runs wait for a person.
    pub approval: ApprovalConfig,
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConfigValue<T> {
    pub value: T,
    pub origin: ConfigValueOrigin,
}

impl<T> ConfigValue<T> {
    fn from_default(value: T) -> Self {
        Self { value, origin: ConfigValueOrigin::Default }
    }
}

/// The origin of a configuration value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigValueOrigin {
    Default,
    /// A line of the configuration file.
    File {
        line: usize,
    },
    /// An environment variable.
    Environment(&'static str),
    /// An option on the command line.
    Argument(&'static str),
    /// A model that was discovered.
    Discovered,
}

/// Whether models are discovered that are not configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ModelDiscoverySetting {
    /// By API keys in the environment, and in an Ollama on this machine.
    #[default]
    On,
    Off,
}

/// A configured model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelConfig {
    pub kind: ModelConfigKind,
    /// The context window, if it is not the one of the model or the catalog.
    pub window_tokens: Option<u32>,
    /// The price, if it is not the one of the catalog.
    pub price: Option<TokenPrice>,
}

/// The kind of a configured model, with its own settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelConfigKind {
    /// The built-in demo model.
    Rehearsal { speed: RehearsalSpeed },
    /// A model that replies from a scenario file.
    Scripted { file: PathBuf },
    /// A model that is called over the network.
    Vendor(Box<RequestedVendorModel>),
}

/// The names of the kinds of model in the file.
pub(crate) const MODEL_KIND_NAMES: [&str; 3] = ["rehearsal", "scripted", "vendor"];

/// How fast the rehearsal model streams its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RehearsalSpeed {
    /// At the speed of reading.
    #[default]
    Realtime,
    Instant,
}

/// The model of a role, possibly limited to a flow or a phase.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleModelConfig {
    pub flow: Option<FlowName>,
    pub role: RoleName,
    pub phase: Option<PhaseName>,
    pub model: ConfigValue<ModelName>,
}

/// One setting of the new sessions of a flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowSettingConfig {
    pub flow: FlowName,
    pub name: String,
    pub value: ConfigValue<Value>,
}

/// The limits on calls to one model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelCallLimitsConfig {
    /// Concurrent calls.
    pub calls_max: ConfigValue<usize>,
    /// Calls per minute; unlimited if absent.
    pub calls_per_minute_max: Option<ConfigValue<u32>>,
    /// Longest time without data from a running call; the role's own limit if absent.
    pub idle_ms_max: Option<ConfigValue<u64>>,
}

impl Config {
    /// Returns the configuration of a program without a configuration file.
    pub(crate) fn built_in() -> Self {
        Self {
            file: None,
            store: None,
            default_flow: ConfigValue::from_default(DEFAULT_FLOW.into()),
            mid_turn_policy: ConfigValue::from_default(MidTurnPolicy::default()),
            models: BTreeMap::from([(
                REHEARSAL_MODEL_NAME.into(),
                ConfigValue::from_default(ModelConfig::rehearsal()),
            )]),
            default_model: ConfigValue::from_default(REHEARSAL_MODEL_NAME.into()),
            fallback_model: None,
            discovery: ConfigValue::from_default(ModelDiscoverySetting::default()),
            catalog: ModelCatalog::built_in(),
            catalog_file: None,
            role_models: Vec::new(),
            role_fallbacks: Vec::new(),
            configured_flows: Vec::new(),
            flow_settings: Vec::new(),
            records: None,
            domains: Vec::new(),
            workspaces: BTreeMap::new(),
            mcp_servers: BTreeMap::new(),
            flow_files: Vec::new(),
            model_limits: BTreeMap::new(),
            server_limits: ServerLimitsConfig::default(),
            approval: ApprovalConfig::default(),
        }
    }
}

impl Config {
    /// Returns the settings of new sessions, by flow.
    pub(crate) fn settings_by_flow(&self) -> BTreeMap<FlowName, Value> {
        let mut flows: BTreeMap<FlowName, serde_json::Map<String, Value>> = BTreeMap::new();
        for setting in &self.flow_settings {
            let settings = flows.entry(setting.flow.clone()).or_default();
            settings.insert(setting.name.clone(), setting.value.value.clone());
        }
        flows.into_iter().map(|(flow, settings)| (flow, Value::Object(settings))).collect()
    }
}

impl ModelConfig {
    fn rehearsal() -> Self {
        Self { kind: ModelConfigKind::Rehearsal { speed: RehearsalSpeed::default() }, window_tokens: None, price: None }
    }
}

#[cfg(test)]
mod tests;
