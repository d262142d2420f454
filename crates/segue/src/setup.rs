//! From configuration to a running engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::event::Busy;
use segue_core::flow::Rules;
use segue_core::ids::{FlowName, ModelName};
use segue_domains::{Records, Remote};
use segue_engine::pace::ModelLimits;
use segue_engine::tools::Tools;
use segue_engine::{Engine, Recovery, Setup};
use segue_flows::assistant::tools::{RECORDS, REMOTE};
use segue_models::Models;
use segue_store::sqlite::SqliteStore;

use crate::cast::{self, SCRIPTED, Search, Sheet};
use crate::cli::{Entry, Global, Play};
use crate::config::{self, Config, Origin, Setting, Surroundings};
use crate::limits::CONFIG_BYTES_MAX;
use crate::suggest::hint;

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
    /// Who plays, if not those that are configured.
    pub tape: Tape<'s>,
    /// The model for everybody, if not the one that is configured.
    pub model: Option<&'s str>,
    /// When it takes up what was left undone.
    pub recovery: Recovery,
}

/// What is played from, or written to.
#[derive(Debug, Clone, Copy, Default)]
pub enum Tape<'s> {
    /// Nothing: the models are asked.
    #[default]
    None,
    /// Every role is played from this scenario.
    Script(&'s Path),
    /// The models are asked, and this cassette keeps what is said.
    Record(&'s Path),
    /// Every role is played from this cassette.
    Replay(&'s Path),
}

impl<'s> Tape<'s> {
    /// What the command line says; it allows only one of them.
    pub fn of(script: Option<&'s Path>, record: Option<&'s Path>, replay: Option<&'s Path>) -> Self {
        let script = script.map(Self::Script).or(replay.map(Self::Replay));
        script.or(record.map(Self::Record)).unwrap_or_default()
    }
}

impl<'s> Start<'s> {
    /// To speak in one session as the command line says.
    pub fn to_speak(entry: &'s Entry) -> Self {
        let Play { model, record, replay } = &entry.play;
        let tape = Tape::of(entry.script.as_deref(), record.as_deref(), replay.as_deref());
        Self { tape, model: model.as_deref(), recovery: Recovery::OnUse }
    }

    /// To do something in one session, played from this scenario if there is one.
    pub fn to_act(script: Option<&'s Path>) -> Self {
        Self { tape: Tape::of(script, None, None), model: None, recovery: Recovery::OnUse }
    }

    /// What is played is for the session it is used with; other sessions that were left undone have no part in it.
    fn recovery(&self) -> Recovery {
        match (self.tape, self.recovery) {
            (Tape::Script(_) | Tape::Replay(_), Recovery::Now) => Recovery::OnUse,
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
    let Loaded { mut config, store } = load(global)?;
    if let Some(model) = start.model {
        for_everybody(&mut config, model)?;
    }
    let (cast, flow) = match start.tape {
        Tape::Script(file) => Sheet::scripted(file)?,
        Tape::Replay(file) => (Sheet::replay(file)?.1, None),
        Tape::Record(file) => (sheet(&mut config).await?.record(file)?, None),
        // Whoever calls nobody needs no models, and looks for none.
        Tape::None if start.recovery == Recovery::Never => (Sheet::nobody(), None),
        Tape::None => (sheet(&mut config).await?.cast()?, None),
    };
    let flows = config.flows();
    let rehearsal = flows.iter().any(|rules| cast.is_rehearsed(rules.spec()));
    let records = Records::in_file(&config.records_path(&store).value, config.all_domains());
    let store = open(&store.value)?;
    let setup = Setup {
        tools: Tools::default()
            .with(RECORDS, Arc::new(records))
            .with(REMOTE, Arc::new(Remote::new(config.all_domains()))),
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

/// Everybody who can play, as configured and found.
async fn sheet(config: &mut Config) -> anyhow::Result<Sheet> {
    cast::find_models(config, Search::Enough).await;
    Sheet::of(config).await
}

/// Has a model play everybody that nothing else is said about.
fn for_everybody(config: &mut Config, model: &str) -> anyhow::Result<()> {
    let name = Setting { value: ModelName::from(model), origin: Origin::Argument("--model") };
    config.adopt(&name);
    if !config.models.contains_key(&name.value) {
        let known = config.models.keys().map(ModelName::as_str);
        bail!(
            "there is no model `{model}`{}, or write provider/model, such as anthropic/claude-sonnet-5-5",
            hint(model, known)
        );
    }
    config.default_model = name;
    Ok(())
}

/// An engine to look at what is kept, with no models and no wish to change anything. Nothing if there is no store yet.
pub async fn look(global: &Global) -> anyhow::Result<Option<Engine>> {
    let Loaded { config, store } = load(global)?;
    if !store.value.exists() {
        return Ok(None);
    }
    let store = Arc::new(open(&store.value)?);
    let setup = Setup { recovery: Recovery::Never, ..Setup::new(store, config.flows(), Models::new(), SCRIPTED) };
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

/// Every flow there is, as far as the configuration can be read.
pub fn flows(global: &Global) -> Vec<Arc<dyn Rules>> {
    load(global).map_or_else(|_| segue_flows::all(), |loaded| loaded.config.flows())
}

/// Reads the configuration.
pub fn load(global: &Global) -> anyhow::Result<Loaded> {
    let around = Surroundings::here();
    let look = |path: &Path| read_config(path).map_err(|error| format!("{:#}", error));
    let mut config = match config::find(global.config.as_deref(), &around) {
        Some(file) => config::parse(&file, &read_config(&file)?, &look)?,
        None => Config::built_in(),
    };
    let flows = config.flows();
    config::adopt_settings(&mut config, &flows);
    config::check(&config, &flows)?;
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

fn limits(config: &Config) -> BTreeMap<ModelName, ModelLimits> {
    let limits = config.limits.iter().map(|(model, limits)| {
        let calls_per_minute_max = limits.calls_per_minute_max.as_ref().map(|calls| calls.value);
        let silence_ms_max = limits.silence_ms_max.as_ref().map(|silence| silence.value);
        (model.clone(), ModelLimits { calls_max: limits.calls_max.value, calls_per_minute_max, silence_ms_max })
    });
    limits.collect()
}
