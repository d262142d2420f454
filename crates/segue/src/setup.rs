//! From configuration to a running engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, ModelName};
use segue_domains::{McpServersTool, SqliteRecordsTool};
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, RecoveryPolicy};
use segue_flows::assistant::tools::{MCP_TOOL, RECORDS_TOOL};
use segue_models::ModelRegistry;
use segue_store::sqlite::SqliteStore;

use crate::cli::{GlobalArgs, ModelArgs, SessionArgs};
use crate::config::{self, Config, ConfigValue, UserDirs, ValueOrigin};
use crate::limits::CONFIG_BYTES_MAX;
use crate::model_setup::{self, DiscoveryScope, ResolvedModelSetup, SCRIPTED_MODEL_NAME};
use crate::suggest::suggestion_hint;

/// A running engine, and whether its model is only a rehearsal.
pub struct RunningEngine {
    pub engine: Engine,
    /// Whether a role of some flow is played by the rehearsal model. Must be shown to the user.
    pub uses_rehearsal_model: bool,
    /// The flow of a new session, where the user names none.
    pub default_flow: FlowName,
    /// What happens to a message that arrives while a turn runs, in a new session.
    pub mid_turn_policy: MidTurnPolicy,
}

/// How an engine is to be started.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineStartOptions<'s> {
    /// Who plays, if not those that are configured.
    pub playback: PlaybackMode<'s>,
    /// The model for everybody, if not the one that is configured.
    pub model: Option<&'s str>,
    /// When it takes up what was left undone.
    pub recovery: RecoveryPolicy,
}

/// What is played from, or written to.
#[derive(Debug, Clone, Copy, Default)]
pub enum PlaybackMode<'s> {
    /// Nothing: the models are asked.
    #[default]
    Live,
    /// Every role is played from this scenario.
    Script(&'s Path),
    /// The models are asked, and this cassette keeps what is said.
    Record(&'s Path),
    /// Every role is played from this cassette.
    Replay(&'s Path),
}

impl<'s> PlaybackMode<'s> {
    /// What the command line says; it allows only one of them.
    pub fn from_args(script: Option<&'s Path>, record: Option<&'s Path>, replay: Option<&'s Path>) -> Self {
        let script = script.map(Self::Script).or(replay.map(Self::Replay));
        script.or(record.map(Self::Record)).unwrap_or_default()
    }
}

impl<'s> EngineStartOptions<'s> {
    /// To speak in one session as the command line says.
    pub fn for_session_args(session_args: &'s SessionArgs) -> Self {
        let ModelArgs { model, record, replay } = &session_args.model_args;
        let tape = PlaybackMode::from_args(session_args.script.as_deref(), record.as_deref(), replay.as_deref());
        Self { playback: tape, model: model.as_deref(), recovery: RecoveryPolicy::OnUse }
    }

    /// To do something in one session, played from this scenario if there is one.
    pub fn for_command(script: Option<&'s Path>) -> Self {
        Self { playback: PlaybackMode::from_args(script, None, None), model: None, recovery: RecoveryPolicy::OnUse }
    }

    /// What is played is for the session it is used with; other sessions that were left undone have no part in it.
    fn effective_recovery(&self) -> RecoveryPolicy {
        match (self.playback, self.recovery) {
            (PlaybackMode::Script(_) | PlaybackMode::Replay(_), RecoveryPolicy::Immediate) => RecoveryPolicy::OnUse,
            (_, recovery) => recovery,
        }
    }
}

/// What is configured, and where.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// Where sessions are kept.
    pub store_path: ConfigValue<PathBuf>,
}

/// Starts an engine as configured.
pub async fn start_engine(global: &GlobalArgs, start: EngineStartOptions<'_>) -> anyhow::Result<RunningEngine> {
    let LoadedConfig { mut config, store_path: store } = load_config(global)?;
    if let Some(model) = start.model {
        set_default_model(&mut config, model)?;
    }
    let (cast, flow) = match start.playback {
        PlaybackMode::Script(file) => ResolvedModelSetup::load_script(file)?,
        PlaybackMode::Replay(file) => (ResolvedModelSetup::load_cassette(file)?.1, None),
        PlaybackMode::Record(file) => (resolve_model_setup(&mut config).await?.connect_recording(file)?, None),
        // Whoever calls nobody needs no models, and looks for none.
        PlaybackMode::Live if start.recovery == RecoveryPolicy::Never => (ResolvedModelSetup::without_models(), None),
        PlaybackMode::Live => (resolve_model_setup(&mut config).await?.connect()?, None),
    };
    let flows = config.flows();
    let rehearsal = flows.iter().any(|rules| cast.uses_rehearsal_model(rules.spec()));
    let records = SqliteRecordsTool::in_file(&config.records_path(&store).value, config.all_domains());
    let store = open_store(&store.value)?;
    let setup = EngineConfig {
        tools: ToolRegistry::default()
            .with_tool(RECORDS_TOOL, Arc::new(records))
            .with_tool(MCP_TOOL, Arc::new(McpServersTool::new(config.all_domains()))),
        models: cast.models,
        model_assignment: cast.assignment,
        model_limits: engine_model_limits(&config),
        default_settings: config.settings_by_flow(),
        recovery: start.effective_recovery(),
        ..EngineConfig::new(Arc::new(store), flows, ModelRegistry::new(), SCRIPTED_MODEL_NAME)
    };
    let engine = Engine::start(setup).await?;
    Ok(RunningEngine {
        engine,
        uses_rehearsal_model: rehearsal,
        default_flow: flow.unwrap_or(config.default_flow.value),
        mid_turn_policy: config.mid_turn_policy.value,
    })
}

/// Everybody who can play, as configured and found.
async fn resolve_model_setup(config: &mut Config) -> anyhow::Result<ResolvedModelSetup> {
    model_setup::discover_models(config, DiscoveryScope::UntilFound).await;
    ResolvedModelSetup::from_config(config).await
}

/// Has a model play everybody that nothing else is said about.
fn set_default_model(config: &mut Config, model: &str) -> anyhow::Result<()> {
    let name = ConfigValue { value: ModelName::from(model), origin: ValueOrigin::Argument("--model") };
    config.add_shorthand_model(&name);
    if !config.models.contains_key(&name.value) {
        let known = config.models.keys().map(ModelName::as_str);
        bail!(
            "there is no model `{model}`{}, or write provider/model, such as anthropic/claude-sonnet-5-5",
            suggestion_hint(model, known)
        );
    }
    config.default_model = name;
    Ok(())
}

/// An engine to look at what is kept, with no models and no wish to change anything. Nothing if there is no store yet.
pub async fn open_read_only_engine(global: &GlobalArgs) -> anyhow::Result<Option<Engine>> {
    let LoadedConfig { config, store_path: store } = load_config(global)?;
    if !store.value.exists() {
        return Ok(None);
    }
    let store = Arc::new(open_store(&store.value)?);
    let setup = EngineConfig {
        recovery: RecoveryPolicy::Never,
        ..EngineConfig::new(store, config.flows(), ModelRegistry::new(), SCRIPTED_MODEL_NAME)
    };
    Ok(Some(Engine::start(setup).await?))
}

/// As [`look`], where there is nothing to be said without a store.
pub async fn require_read_only_engine(global: &GlobalArgs) -> anyhow::Result<Engine> {
    match open_read_only_engine(global).await? {
        Some(engine) => Ok(engine),
        None => {
            let LoadedConfig { store_path: store, .. } = load_config(global)?;
            bail!("there are no sessions yet: there is no store at {}", store.value.display())
        }
    }
}

/// Every flow there is, as far as the configuration can be read.
pub fn available_flows(global: &GlobalArgs) -> Vec<Arc<dyn DynFlow>> {
    load_config(global).map_or_else(|_| segue_flows::built_in_flows(), |loaded| loaded.config.flows())
}

/// Reads the configuration.
pub fn load_config(global: &GlobalArgs) -> anyhow::Result<LoadedConfig> {
    let around = UserDirs::from_env();
    let look = |path: &Path| read_config_file(path).map_err(|error| format!("{:#}", error));
    let mut config = match config::find_config_file(global.config.as_deref(), &around) {
        Some(file) => config::parse_config(&file, &read_config_file(&file)?, &look)?,
        None => Config::built_in(),
    };
    let flows = config.flows();
    config::add_models_from_settings(&mut config, &flows);
    config::validate_config(&config, &flows)?;
    let Some(store) = config.store_path(global.store.as_deref(), &around) else {
        bail!("there is no folder to keep sessions in, since HOME is not set; name a file with --store or SEGUE_STORE");
    };
    Ok(LoadedConfig { config, store_path: store })
}

fn read_config_file(file: &Path) -> anyhow::Result<String> {
    let named = || format!("cannot read the configuration {}", file.display());
    let bytes = std::fs::metadata(file).with_context(named)?.len();
    if bytes > CONFIG_BYTES_MAX {
        bail!("the configuration {} has {bytes} bytes; at most {CONFIG_BYTES_MAX} are read", file.display());
    }
    std::fs::read_to_string(file).with_context(named)
}

fn open_store(path: &Path) -> anyhow::Result<SqliteStore> {
    SqliteStore::open(path).with_context(|| format!("cannot open the store {}", path.display()))
}

fn engine_model_limits(config: &Config) -> BTreeMap<ModelName, ModelCallLimits> {
    let limits = config.model_limits.iter().map(|(model, limits)| {
        let calls_per_minute_max = limits.calls_per_minute_max.as_ref().map(|calls| calls.value);
        let silence_ms_max = limits.silence_ms_max.as_ref().map(|silence| silence.value);
        (
            model.clone(),
            ModelCallLimits { concurrent_calls_max: limits.calls_max.value, calls_per_minute_max, silence_ms_max },
        )
    });
    limits.collect()
}
