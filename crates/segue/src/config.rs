//! What the program is told to do it with: where sessions are kept, which models there are, who is played by which, and how
//! a new session begins. Every value knows where it came from. Decides nothing about conversations.

mod find;
mod read;
mod reader;
mod records;
mod rows;
mod server;
mod vendor;

use std::collections::BTreeMap;
use std::path::PathBuf;

use segue_core::event::Busy;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_models::Catalog;
use segue_models::card::Price;
use segue_models::catalog::Wanted;
use serde_json::Value;

pub use find::{Surroundings, find};
pub use read::{adopt_settings, check, parse};
pub use records::OwnDomain;
pub use rows::rows;
pub use server::Server;

/// The flow of a new session, where nothing else is said.
pub const DEFAULT_FLOW: &str = "chat";
/// The model that is always there.
pub const REHEARSAL: &str = "rehearsal";

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from, if there is one.
    pub file: Option<PathBuf>,
    /// Where sessions are kept, if the file says so.
    pub store: Option<Setting<PathBuf>>,
    /// The flow of a new session.
    pub flow: Setting<FlowName>,
    /// What happens to a message that arrives while a turn runs, in a new session.
    pub busy: Setting<Busy>,
    /// The models at hand.
    pub models: BTreeMap<ModelName, Setting<Model>>,
    /// The model of every role that nothing else is said about.
    pub default_model: Setting<ModelName>,
    /// The model that steps in for every role's own, where nothing else is said.
    pub fallback_model: Option<Setting<ModelName>>,
    /// Whether models are looked for that nobody configured.
    pub discovery: Setting<Discovery>,
    /// Who serves models, and what is known of them.
    pub catalog: Catalog,
    /// The user's own part of it, if there is one.
    pub catalog_file: Option<Setting<PathBuf>>,
    /// Which model plays whom.
    pub casts: Vec<Cast>,
    /// Which model steps in for whom.
    pub fallbacks: Vec<Cast>,
    /// The flows that the file has a table of.
    pub named_flows: Vec<Setting<FlowName>>,
    /// How new sessions of a flow are set, in the file's order.
    pub settings: Vec<FlowSetting>,
    /// Where records are kept, if the file says so.
    pub records: Option<Setting<PathBuf>>,
    /// Domains of the user's own.
    pub domains: Vec<Setting<OwnDomain>>,
    /// What each model may be asked to bear.
    pub limits: BTreeMap<ModelName, Limits>,
    /// What the server bears.
    pub server: Server,
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
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
    Found,
}

/// Whether models are looked for that nobody configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discovery {
    /// By the keys in the environment, and on this machine.
    #[default]
    On,
    /// Not at all.
    Off,
}

/// A model to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What it is.
    pub kind: ModelKind,
    /// Its window, where the model itself does not say or is to be held to less.
    pub window_tokens: Option<u32>,
    /// Its price, if it is known.
    pub price: Option<Price>,
}

/// The kinds of model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelKind {
    /// A stand-in that needs no network.
    Rehearsal {
        /// How fast it talks.
        pace: Pace,
    },
    /// Answers from a scenario.
    Scripted {
        /// The scenario's file.
        file: PathBuf,
    },
    /// A real one.
    Vendor(Box<Wanted>),
}

/// The words for kinds of model, as they stand in the file.
pub const KINDS: [&str; 3] = ["rehearsal", "scripted", "vendor"];

/// How fast the rehearsal model talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// As fast as people read.
    #[default]
    Reading,
    /// At once.
    Instant,
}

/// Which model plays a role, where.
#[derive(Debug, Clone, PartialEq)]
pub struct Cast {
    /// In this flow only.
    pub flow: Option<FlowName>,
    /// Who.
    pub role: RoleName,
    /// In this phase only.
    pub phase: Option<PhaseName>,
    /// By which model.
    pub model: Setting<ModelName>,
}

/// How new sessions of a flow are set in one respect.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSetting {
    /// Which flow.
    pub flow: FlowName,
    /// Which setting.
    pub name: String,
    /// To what.
    pub value: Setting<Value>,
}

/// What a model may be asked to bear.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Calls at once.
    pub calls_max: Setting<usize>,
    /// Calls a minute; no limit if absent.
    pub calls_per_minute_max: Option<Setting<u32>>,
    /// Longest silence of an answer under way; as long as its role waits if absent.
    pub silence_ms_max: Option<Setting<u64>>,
}

impl Config {
    /// What holds where no file says otherwise.
    pub fn built_in() -> Self {
        Self {
            file: None,
            store: None,
            flow: Setting::default(DEFAULT_FLOW.into()),
            busy: Setting::default(Busy::default()),
            models: BTreeMap::from([(REHEARSAL.into(), Setting::default(Model::rehearsal()))]),
            default_model: Setting::default(REHEARSAL.into()),
            fallback_model: None,
            discovery: Setting::default(Discovery::default()),
            catalog: Catalog::built_in(),
            catalog_file: None,
            casts: Vec::new(),
            fallbacks: Vec::new(),
            named_flows: Vec::new(),
            settings: Vec::new(),
            records: None,
            domains: Vec::new(),
            limits: BTreeMap::new(),
            server: Server::default(),
        }
    }
}

impl Config {
    /// How new sessions of each flow are set.
    pub fn settings(&self) -> BTreeMap<FlowName, Value> {
        let mut flows: BTreeMap<FlowName, serde_json::Map<String, Value>> = BTreeMap::new();
        for setting in &self.settings {
            let settings = flows.entry(setting.flow.clone()).or_default();
            settings.insert(setting.name.clone(), setting.value.value.clone());
        }
        flows.into_iter().map(|(flow, settings)| (flow, Value::Object(settings))).collect()
    }
}

impl Model {
    fn rehearsal() -> Self {
        Self { kind: ModelKind::Rehearsal { pace: Pace::default() }, window_tokens: None, price: None }
    }
}

#[cfg(test)]
mod tests;
