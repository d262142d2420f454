//! What the program is told to do it with: where sessions are kept, which models there are, who is played by which, and how
//! a new session begins. Every value knows where it came from. Decides nothing about conversations.

mod locations;
mod parser;
mod records;
mod server_limits;
mod table_reader;
mod value_rows;
mod vendor_model;

use std::collections::BTreeMap;
use std::path::PathBuf;

use segue_core::event::MidTurnPolicy;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_models::ModelCatalog;
use segue_models::card::TokenPrice;
use segue_models::catalog::VendorModelSpec;
use serde_json::Value;

pub use locations::{UserDirs, find_config_file};
pub use parser::{add_models_from_settings, parse_config, validate_config};
pub use records::UserDomain;
pub use server_limits::ServerLimitsConfig;
pub use value_rows::config_rows;

/// The flow of a new session, where nothing else is said.
pub const DEFAULT_FLOW: &str = "chat";
/// The model that is always there.
pub const REHEARSAL_MODEL_NAME: &str = "rehearsal";

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from, if there is one.
    pub file: Option<PathBuf>,
    /// Where sessions are kept, if the file says so.
    pub store: Option<ConfigValue<PathBuf>>,
    /// The flow of a new session.
    pub default_flow: ConfigValue<FlowName>,
    /// What happens to a message that arrives while a turn runs, in a new session.
    pub mid_turn_policy: ConfigValue<MidTurnPolicy>,
    /// The models at hand.
    pub models: BTreeMap<ModelName, ConfigValue<ModelConfig>>,
    /// The model of every role that nothing else is said about.
    pub default_model: ConfigValue<ModelName>,
    /// The model that steps in for every role's own, where nothing else is said.
    pub fallback_model: Option<ConfigValue<ModelName>>,
    /// Whether models are looked for that nobody configured.
    pub discovery: ConfigValue<ModelDiscovery>,
    /// Who serves models, and what is known of them.
    pub catalog: ModelCatalog,
    /// The user's own part of it, if there is one.
    pub catalog_file: Option<ConfigValue<PathBuf>>,
    /// Which model plays whom.
    pub role_models: Vec<RoleModelConfig>,
    /// Which model steps in for whom.
    pub role_fallbacks: Vec<RoleModelConfig>,
    /// The flows that the file has a table of.
    pub configured_flows: Vec<ConfigValue<FlowName>>,
    /// How new sessions of a flow are set, in the file's order.
    pub flow_settings: Vec<FlowSetting>,
    /// Where records are kept, if the file says so.
    pub records: Option<ConfigValue<PathBuf>>,
    /// Domains of the user's own.
    pub domains: Vec<ConfigValue<UserDomain>>,
    /// What each model may be asked to bear.
    pub model_limits: BTreeMap<ModelName, ModelLimitsConfig>,
    /// What the server bears.
    pub server_limits: ServerLimitsConfig,
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigValue<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: ValueOrigin,
}

impl<T> ConfigValue<T> {
    fn from_default(value: T) -> Self {
        Self { value, origin: ValueOrigin::Default }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File {
        /// On this line.
        line: usize,
    },
    /// The environment.
    Environment(&'static str),
    /// The command line.
    Argument(&'static str),
    /// It was found, and nobody had to say anything.
    Discovered,
}

/// Whether models are looked for that nobody configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelDiscovery {
    /// By the keys in the environment, and on this machine.
    #[default]
    On,
    /// Not at all.
    Off,
}

/// A model to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// What it is.
    pub kind: ModelConfigKind,
    /// Its window, where the model itself does not say or is to be held to less.
    pub window_tokens: Option<u32>,
    /// Its price, if it is known.
    pub price: Option<TokenPrice>,
}

/// The kinds of model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelConfigKind {
    /// A stand-in that needs no network.
    Rehearsal {
        /// How fast it talks.
        speed: RehearsalSpeed,
    },
    /// Answers from a scenario.
    Scripted {
        /// The scenario's file.
        file: PathBuf,
    },
    /// A real one.
    Vendor(Box<VendorModelSpec>),
}

/// The words for kinds of model, as they stand in the file.
pub const MODEL_KIND_NAMES: [&str; 3] = ["rehearsal", "scripted", "vendor"];

/// How fast the rehearsal model talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RehearsalSpeed {
    /// As fast as people read.
    #[default]
    Reading,
    /// At once.
    Instant,
}

/// Which model plays a role, where.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleModelConfig {
    /// In this flow only.
    pub flow: Option<FlowName>,
    /// Who.
    pub role: RoleName,
    /// In this phase only.
    pub phase: Option<PhaseName>,
    /// By which model.
    pub model: ConfigValue<ModelName>,
}

/// How new sessions of a flow are set in one respect.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSetting {
    /// Which flow.
    pub flow: FlowName,
    /// Which setting.
    pub name: String,
    /// To what.
    pub value: ConfigValue<Value>,
}

/// What a model may be asked to bear.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelLimitsConfig {
    /// Calls at once.
    pub calls_max: ConfigValue<usize>,
    /// Calls a minute; no limit if absent.
    pub calls_per_minute_max: Option<ConfigValue<u32>>,
    /// Longest silence of an answer under way; as long as its role waits if absent.
    pub silence_ms_max: Option<ConfigValue<u64>>,
}

impl Config {
    /// What holds where no file says otherwise.
    pub fn built_in() -> Self {
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
            discovery: ConfigValue::from_default(ModelDiscovery::default()),
            catalog: ModelCatalog::built_in(),
            catalog_file: None,
            role_models: Vec::new(),
            role_fallbacks: Vec::new(),
            configured_flows: Vec::new(),
            flow_settings: Vec::new(),
            records: None,
            domains: Vec::new(),
            model_limits: BTreeMap::new(),
            server_limits: ServerLimitsConfig::default(),
        }
    }
}

impl Config {
    /// How new sessions of each flow are set.
    pub fn settings_by_flow(&self) -> BTreeMap<FlowName, Value> {
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
