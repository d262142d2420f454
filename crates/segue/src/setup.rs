//! From configuration to a running engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::decide::Catalog;
use segue_core::event::Busy;
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, ModelName};
use segue_engine::pace::ModelLimits;
use segue_engine::{Casting, Engine, Recovery, Setup};
use segue_models::{Kind, Model, ModelCard, Models, Rehearsal, Scripted};
use segue_store::sqlite::SqliteStore;

use crate::cli::Global;
use crate::config::{self, Config, ModelKind, Pace, Setting, Surroundings};
use crate::limits::CONFIG_BYTES_MAX;

/// The name every role's model has while a script plays them all.
const SCRIPTED: &str = "scripted";

/// A running engine, and whether its model is only a rehearsal.
pub struct Running {
    pub engine: Engine,
    /// Whether a role of some flow is played by the rehearsal model. Must be shown to the user.
    pub rehearsal: bool,
    /// The flow of a new session, where the user names none.
    pub flow: FlowName,
    /// What happens to a message that arrives while a turn runs, in a new session.
    pub busy: Busy,
}

/// How an engine is to be started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start<'s> {
    /// Every role is played from this scenario.
    pub script: Option<&'s Path>,
    /// When it takes up what was left undone.
    pub recovery: Recovery,
}

impl Start<'_> {
    /// A script is for the session it is used with; other sessions that were left undone have no part in it.
    fn recovery(&self) -> Recovery {
        match (self.script, self.recovery) {
            (Some(_), Recovery::Now) => Recovery::OnUse,
            (_, recovery) => recovery,
        }
    }
}

/// What is configured, and where.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Where sessions are kept.
    pub store: Setting<PathBuf>,
}

/// Starts an engine as configured.
pub async fn start_with(global: &Global, start: Start<'_>) -> anyhow::Result<Running> {
    let Loaded { config, store } = load(global)?;
    let (cast, flow) = match start.script {
        Some(file) => scripted(file)?,
        None => (cast(&config)?, None),
    };
    let flows = segue_flows::all();
    let rehearsal = flows.iter().any(|rules| cast.is_rehearsed(rules.spec()));
    let store = open(&store.value)?;
    let setup = Setup {
        models: cast.models,
        casting: cast.casting,
        model_limits: limits(&config),
        settings: config.settings(),
        recovery: start.recovery(),
        ..Setup::new(Arc::new(store), flows, Models::new(), SCRIPTED)
    };
    let engine = Engine::start(setup).await?;
    Ok(Running { engine, rehearsal, flow: flow.unwrap_or(config.flow.value), busy: config.busy.value })
}

/// An engine to look at what is kept, with no models and no wish to change anything. Nothing if there is no store yet.
pub async fn look(global: &Global) -> anyhow::Result<Option<Engine>> {
    let Loaded { store, .. } = load(global)?;
    if !store.value.exists() {
        return Ok(None);
    }
    let store = Arc::new(open(&store.value)?);
    let setup = Setup { recovery: Recovery::Never, ..Setup::new(store, segue_flows::all(), Models::new(), SCRIPTED) };
    Ok(Some(Engine::start(setup).await?))
}

/// As [`look`], where there is nothing to be said without a store.
pub async fn look_into(global: &Global) -> anyhow::Result<Engine> {
    match look(global).await? {
        Some(engine) => Ok(engine),
        None => {
            let Loaded { store, .. } = load(global)?;
            bail!("there are no sessions yet: there is no store at {}", store.value.display())
        }
    }
}

/// Reads the configuration.
pub fn load(global: &Global) -> anyhow::Result<Loaded> {
    let around = Surroundings::here();
    let config = match config::find(global.config.as_deref(), &around) {
        Some(file) => config::parse(&file, &read_config(&file)?)?,
        None => Config::built_in(),
    };
    config::check(&config, &segue_flows::all())?;
    let Some(store) = config.store_path(global.store.as_deref(), &around) else {
        bail!("there is no folder to keep sessions in, since HOME is not set; name a file with --store or SEGUE_STORE");
    };
    Ok(Loaded { config, store })
}

fn read_config(file: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot read the configuration {}", file.display());
    let bytes = std::fs::metadata(file).with_context(named)?.len();
    if bytes > CONFIG_BYTES_MAX {
        bail!("the configuration {} has {bytes} bytes; at most {CONFIG_BYTES_MAX} are read", file.display());
    }
    std::fs::read_to_string(file).with_context(named)
}

fn open(path: &Path) -> anyhow::Result<SqliteStore> {
    SqliteStore::open(path).with_context(|| format!("cannot open the store {}", path.display()))
}

/// Models, and who is played by which.
#[derive(Debug)]
pub struct CastModels {
    pub models: Arc<Models>,
    pub casting: Casting,
}

impl CastModels {
    /// Whether a role of the flow is played by the rehearsal model.
    pub fn is_rehearsed(&self, spec: &FlowSpec) -> bool {
        self.parts(spec)
            .iter()
            .any(|(_, _, model)| self.models.get(model).is_ok_and(|model| model.describe().kind == Kind::Rehearsal))
    }

    /// Every role of a flow with the model that plays it, and its phase where that has a model of its own.
    pub fn parts(&self, spec: &FlowSpec) -> Vec<(String, Option<String>, ModelName)> {
        let mut parts = Vec::new();
        for role in spec.roles.values() {
            let usual = self.casting.model_for(&spec.name, &role.name, None);
            parts.push((role.name.to_string(), None, usual.clone()));
            let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
            for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
                let cast = self.casting.model_for(&spec.name, &role.name, Some(&phase.name));
                let model = phase.model_for(&role.name).cloned().unwrap_or(cast);
                if model != usual {
                    parts.push((role.name.to_string(), Some(phase.name.to_string()), model));
                }
            }
        }
        parts
    }
}

/// The models of a configuration.
pub fn cast(config: &Config) -> anyhow::Result<CastModels> {
    let mut models = Models::new();
    for (name, model) in &config.models {
        let made = make(&model.value.kind).with_context(|| format!("the model `{name}` cannot be used"))?;
        let window_tokens = model.value.window_tokens.unwrap_or(made.describe().window_tokens);
        models = models.with_card(name.clone(), made, ModelCard { window_tokens, price: model.value.price });
    }
    let models = Arc::new(models);
    let casting = Casting::new(models.clone(), config.default_model.value.clone());
    let casting = config.casts.iter().fold(casting, |casting, cast| {
        casting.cast(cast.flow.clone(), cast.role.clone(), cast.phase.clone(), cast.model.value.clone())
    });
    Ok(CastModels { models, casting })
}

fn make(kind: &ModelKind) -> anyhow::Result<Arc<dyn Model>> {
    Ok(match kind {
        ModelKind::Rehearsal { pace: Pace::Reading } => Arc::new(Rehearsal::default()),
        ModelKind::Rehearsal { pace: Pace::Instant } => Arc::new(Rehearsal::instant()),
        ModelKind::Scripted { file } => Arc::new(read_script(file)?.1),
    })
}

/// One script for all roles, and the flow it is for.
fn scripted(file: &Path) -> anyhow::Result<(CastModels, Option<FlowName>)> {
    let (flow, model) = read_script(file)?;
    let models = Arc::new(Models::only(Arc::new(model)));
    let casting = Casting::new(models.clone(), SCRIPTED.into());
    Ok((CastModels { models, casting }, flow))
}

fn read_script(file: &Path) -> anyhow::Result<(Option<FlowName>, Scripted)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let wrong = || format!("the scenario {} has a mistake", file.display());
    let scenario: segue_models::scripted::Scenario = text.parse().with_context(wrong)?;
    let flow = scenario.flow.clone();
    Ok((flow, text.parse().with_context(wrong)?))
}

fn limits(config: &Config) -> BTreeMap<ModelName, ModelLimits> {
    let limits = config.limits.iter().map(|(model, limits)| {
        let calls_per_minute_max = limits.calls_per_minute_max.as_ref().map(|calls| calls.value);
        (model.clone(), ModelLimits { calls_max: limits.calls_max.value, calls_per_minute_max })
    });
    limits.collect()
}
