//! Loads the configuration and starts engines from it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use segue_core::body::BodyId;
use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, ModelName};
use segue_domains::{DomainMcpServersTool, SqliteRecordsTool};
use segue_engine::clock::SystemClock;
use segue_engine::limits::DRAIN_MS_MAX;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::tools::ToolRegistry;
use segue_engine::{CrossNodeSessionUpdateSource, Engine, EngineConfig, SessionPlacement, SessionResumePolicy};
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::{MCP_TOOL, RECORDS_TOOL};
use segue_mcp::McpToolHost;
use segue_models::ModelRegistry;
use segue_server::{ApiKeyLimitCallPolicy, CrossServerSharedState, HttpCrossNodeUpdateSource};
use segue_tools::{CommandSupervisorProgram, WorkspaceToolHost};

use crate::cli::{GlobalArgs, ModelAndCassetteArgs, SessionAndReplySourceArgs};
use crate::commands::{NO_MODEL_WARNING, REHEARSAL_WARNING};
use crate::config::{
    self, Config, ConfigFileOrigin, ConfigValue, ConfigValueOrigin, RecordedDefinitionLoader, UserDirs,
};
use crate::limits::{CONFIG_BYTES_MAX, NODE_DRAIN_MS_MAX};
use crate::model_setup::{self, ModelDiscoveryExtent, ResolvedModelSetup, SCRIPTED_MODEL_NAME};
use crate::print;
use crate::store_location::{ClusterNodeOptions, StoreLocation};
use crate::suggest::suggestion_hint;
use crate::trust::{self, ConfigActionsUsedByCommand, FolderTrustAssessment};

/// A running engine and the defaults of its configuration.
pub(crate) struct EngineWithSessionDefaults {
    pub engine: Engine,
    /// What the servers of the store share besides sessions.
    pub shared: CrossServerSharedState,
    /// What the user must be told if a role of some flow uses the rehearsal model.
    pub rehearsal_warning: Option<&'static str>,
    /// The flow of a new session, if the user names none.
    pub default_flow: FlowName,
    /// What a new session does with a message that arrives during a turn.
    pub mid_turn_policy: MidTurnPolicy,
}

impl EngineWithSessionDefaults {
    /// Whether a role of some flow uses the rehearsal model.
    pub(crate) fn uses_rehearsal_model(&self) -> bool {
        self.rehearsal_warning.is_some()
    }

    /// Warns the user if a role uses the rehearsal model.
    pub(crate) fn print_rehearsal_warning(&self) {
        if let Some(warning) = self.rehearsal_warning {
            print::write_stderr_line(&print::stderr_paint().warning(warning));
        }
    }
}

/// Options for starting an engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineStartOptions<'s> {
    pub playback: ModelRecordOrReplayMode<'s>,
    /// The default model, instead of the configured one.
    pub model: Option<&'s str>,
    /// When the engine resumes pending work.
    pub recovery: SessionResumePolicy,
    /// What this process tells the other nodes of a cluster.
    pub node: ClusterNodeOptions,
}

/// Where replies come from, and whether they are recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum ModelRecordOrReplayMode<'s> {
    /// From the configured models.
    #[default]
    Live,
    /// From a scenario, for all roles.
    Script(&'s Path),
    /// From the configured models, recorded in a cassette.
    Record(&'s Path),
    /// From a cassette.
    Replay(&'s Path),
}

impl<'s> ModelRecordOrReplayMode<'s> {
    /// Returns the mode for the command line, which allows only one of these options.
    pub(crate) fn from_args(script: Option<&'s Path>, record: Option<&'s Path>, replay: Option<&'s Path>) -> Self {
        let script = script.map(Self::Script).or(replay.map(Self::Replay));
        script.or(record.map(Self::Record)).unwrap_or_default()
    }
}

impl<'s> EngineStartOptions<'s> {
    /// Returns the options for a conversation in one session.
    pub(crate) fn for_session_args(session_args: &'s SessionAndReplySourceArgs) -> Self {
        let ModelAndCassetteArgs { model, record, replay } = &session_args.model_args;
        let playback =
            ModelRecordOrReplayMode::from_args(session_args.script.as_deref(), record.as_deref(), replay.as_deref());
        Self {
            playback,
            model: model.as_deref(),
            recovery: SessionResumePolicy::OnUse,
            node: ClusterNodeOptions::default(),
        }
    }

    /// Returns the options for a command on one session, with replies from a scenario if one is given.
    pub(crate) fn for_command(script: Option<&'s Path>) -> Self {
        Self {
            playback: ModelRecordOrReplayMode::from_args(script, None, None),
            model: None,
            recovery: SessionResumePolicy::OnUse,
            node: ClusterNodeOptions::default(),
        }
    }

    /// Returns what an engine with these options may do that needs trust.
    fn required_trust(&self) -> Option<ConfigActionsUsedByCommand> {
        match (self.playback, self.recovery) {
            (ModelRecordOrReplayMode::Script(_) | ModelRecordOrReplayMode::Replay(_), _) => {
                Some(ConfigActionsUsedByCommand::DomainServers)
            }
            (ModelRecordOrReplayMode::Live, SessionResumePolicy::Never) => None,
            (ModelRecordOrReplayMode::Live | ModelRecordOrReplayMode::Record(_), _) => {
                Some(ConfigActionsUsedByCommand::Everything)
            }
        }
    }

    /// Returns the recovery policy. A scenario or cassette is written for one session, so it must not answer pending
    /// calls of others.
    fn effective_recovery(&self) -> SessionResumePolicy {
        match (self.playback, self.recovery) {
            (
                ModelRecordOrReplayMode::Script(_) | ModelRecordOrReplayMode::Replay(_),
                SessionResumePolicy::Immediate,
            ) => SessionResumePolicy::OnUse,
            (_, recovery) => recovery,
        }
    }
}

/// The configuration and the effective path of the store.
#[derive(Debug)]
pub(crate) struct ConfigWithStorePath {
    pub config: Config,
    pub store_path: ConfigValue<PathBuf>,
    /// The folder for files that belong to the store.
    pub data_folder: PathBuf,
    /// Whether the configuration is trusted, if it is the one of the current folder.
    pub folder_trust: Option<FolderTrustAssessment>,
}

impl ConfigWithStorePath {
    /// Whether the configuration may use keys, call other servers and start programs.
    pub(crate) fn is_trusted(&self) -> bool {
        self.folder_trust.as_ref().is_none_or(|trust| trust.status.allows_use())
    }
}

/// Loads the configuration and starts an engine with it.
pub(crate) async fn start_engine(
    global: &GlobalArgs,
    start: EngineStartOptions<'_>,
) -> anyhow::Result<EngineWithSessionDefaults> {
    let ConfigWithStorePath { mut config, store_path: store, data_folder, folder_trust } = load_config(global)?;
    if let Some(scope) = start.required_trust() {
        trust::require_trust(folder_trust.as_ref(), scope)?;
    }
    if let Some(model) = start.model {
        set_default_model(&mut config, model)?;
    }
    let (assigned, flow) = match start.playback {
        ModelRecordOrReplayMode::Script(file) => ResolvedModelSetup::load_script(file)?,
        ModelRecordOrReplayMode::Replay(file) => (ResolvedModelSetup::load_cassette(file)?.1, None),
        ModelRecordOrReplayMode::Record(file) => {
            (resolve_model_setup(&mut config).await?.connect_recording(file)?, None)
        }
        // An engine that makes no calls needs no models, so none are discovered.
        ModelRecordOrReplayMode::Live if start.recovery == SessionResumePolicy::Never => {
            (ResolvedModelSetup::without_models(), None)
        }
        ModelRecordOrReplayMode::Live => (resolve_model_setup(&mut config).await?.connect()?, None),
    };
    let flows = config.flows();
    let warning = match config.default_model.origin {
        ConfigValueOrigin::Default => NO_MODEL_WARNING,
        _ => REHEARSAL_WARNING,
    };
    let uses_rehearsal_model = flows.iter().any(|flow| assigned.uses_rehearsal_model(flow.spec()));
    let records_path = config.records_path(&store, &data_folder).value;
    let records = SqliteRecordsTool::in_file(&records_path, config.all_domains());
    let workspace_state = match StoreLocation::parse(&store.value) {
        StoreLocation::File(path) => config::workspace_state_folder(path),
        StoreLocation::Database(_) => data_folder.join("workspaces"),
    };
    let workspaces =
        WorkspaceToolHost::new(&workspace_state, config.workspace_registry(), CommandSupervisorProgram::this_program());
    let agent_servers = McpToolHost::new(config.mcp_agent_servers());
    let is_cluster = matches!(StoreLocation::parse(&store.value), StoreLocation::Database(_));
    let (store, shared) =
        StoreLocation::parse(&store.value).open_with_shared_state(start.node.clone(), &data_folder)?;
    let recovery = start.effective_recovery();
    // The results of running calls are recorded, so that the node that resumes the sessions need not repeat them.
    let is_serving = recovery == SessionResumePolicy::Immediate;
    let drain_ms_max = if is_cluster && is_serving { NODE_DRAIN_MS_MAX } else { DRAIN_MS_MAX };
    let live_updates: Option<Arc<dyn CrossNodeSessionUpdateSource>> =
        match start.node.secret.clone().filter(|_| is_cluster) {
            Some(secret) => Some(Arc::new(HttpCrossNodeUpdateSource::new(secret).map_err(anyhow::Error::msg)?)),
            None => None,
        };
    // Without other nodes there is nobody to leave a session to.
    let placement = config.session_placement_for_labels(&start.node.placements).filter(|_| is_cluster);
    let setup = EngineConfig {
        placement: placement.map(|placement| Arc::new(placement) as Arc<dyn SessionPlacement>),
        tools: agent_servers.add_to(workspaces.add_to(tool_registry(records, config.all_domains()))),
        models: assigned.models,
        model_assignment: assigned.assignment,
        model_limits: engine_model_limits(&config),
        default_settings: config.settings_by_flow(),
        approval_rules: config.approval.to_rules(),
        flow_loader: Some(Arc::new(RecordedDefinitionLoader)),
        recovery,
        live_updates,
        drain_ms_max,
        call_policy: Arc::new(ApiKeyLimitCallPolicy::new(&shared, Arc::new(SystemClock))),
        ..EngineConfig::new(store, flows, ModelRegistry::new(), SCRIPTED_MODEL_NAME)
    };
    let engine = Engine::start(setup).await?;
    Ok(EngineWithSessionDefaults {
        engine,
        shared,
        rehearsal_warning: uses_rehearsal_model.then_some(warning),
        default_flow: flow.unwrap_or(config.default_flow.value),
        mid_turn_policy: config.mid_turn_policy.value,
    })
}

/// Returns the tools of the flows.
pub(crate) fn tool_registry(records: SqliteRecordsTool, domains: ConfiguredDomains) -> ToolRegistry {
    ToolRegistry::default()
        .with_tool(RECORDS_TOOL, Arc::new(records))
        .with_tool(MCP_TOOL, Arc::new(DomainMcpServersTool::new(domains)))
}

/// Discovers models if needed, and resolves all of them.
async fn resolve_model_setup(config: &mut Config) -> anyhow::Result<ResolvedModelSetup> {
    model_setup::discover_models(config, ModelDiscoveryExtent::UntilFound).await;
    ResolvedModelSetup::from_config(config).await
}

/// Makes a model the default model, or returns an error if there is no such model.
pub(crate) fn set_default_model(config: &mut Config, model: &str) -> anyhow::Result<()> {
    let name = ConfigValue { value: ModelName::from(model), origin: ConfigValueOrigin::Argument("--model") };
    config.add_shorthand_model(&name);
    if !config.models.contains_key(&name.value) {
        let known = config.models.keys().map(ModelName::as_str);
        bail!(
            "there is no model `{model}`{}; or write provider/model, like anthropic/claude-sonnet-5-5",
            suggestion_hint(model, known)
        );
    }
    config.default_model = name;
    Ok(())
}

/// Opens an engine that only reads the store; `None` if there is no store yet.
pub(crate) async fn open_read_only_engine(global: &GlobalArgs) -> anyhow::Result<Option<Engine>> {
    let ConfigWithStorePath { config, store_path: store, .. } = load_config(global)?;
    let location = StoreLocation::parse(&store.value);
    if !location.may_exist() {
        return Ok(None);
    }
    let store = location.open(ClusterNodeOptions::default())?;
    let setup = EngineConfig {
        flow_loader: Some(Arc::new(RecordedDefinitionLoader)),
        recovery: SessionResumePolicy::Never,
        ..EngineConfig::new(store, config.flows(), ModelRegistry::new(), SCRIPTED_MODEL_NAME)
    };
    Ok(Some(Engine::start(setup).await?))
}

/// Opens an engine that only reads the store, or returns an error if there is no store yet.
pub(crate) async fn require_read_only_engine(global: &GlobalArgs) -> anyhow::Result<Engine> {
    match open_read_only_engine(global).await? {
        Some(engine) => Ok(engine),
        None => {
            let ConfigWithStorePath { store_path: store, .. } = load_config(global)?;
            bail!(
                "there are no sessions yet: the store {} does not exist",
                StoreLocation::parse(&store.value).describe()
            )
        }
    }
}

/// Returns all flows: the built-in ones, and those of the configuration.
pub(crate) fn available_flows(global: &GlobalArgs) -> anyhow::Result<Vec<Arc<dyn DynFlow>>> {
    Ok(load_config(global)?.config.flows())
}

/// Loads and validates the configuration.
pub(crate) fn load_config(global: &GlobalArgs) -> anyhow::Result<ConfigWithStorePath> {
    let dirs = UserDirs::from_env();
    let found = config::find_config_file(global.config.as_deref(), &dirs);
    let (mut config, digest) = match &found {
        Some((file, _)) => parse_config_with_digest(file)?,
        None => (Config::built_in(), BodyId::hash_text("")),
    };
    let flows = config.flows();
    config::add_models_named_in_flow_settings(&mut config, &flows);
    config::validate_config(&config, &flows)?;
    let Some(store) = config.store_path(global.store.as_deref(), &dirs) else {
        bail!("there is no default store, because HOME is not set; name a file with --store or SEGUE_STORE");
    };
    let folder_trust = match &found {
        Some((file, ConfigFileOrigin::CurrentFolder)) => {
            Some(FolderTrustAssessment::assess(file, digest, &config, &dirs)?)
        }
        Some((_, ConfigFileOrigin::User)) | None => None,
    };
    let data_folder = StoreLocation::parse(&store.value).data_folder(dirs.default_store_path().as_deref());
    Ok(ConfigWithStorePath { config, store_path: store, data_folder, folder_trust })
}

/// Parses a configuration file, and returns also the digest of its text and of the files that it names.
fn parse_config_with_digest(file: &Path) -> anyhow::Result<(Config, BodyId)> {
    let text = read_config_file(file)?;
    let digest = Cell::new(BodyId::hash_text(&text));
    let read_file = |path: &Path| {
        let text = read_config_file(path).map_err(|error| format!("{error:#}"))?;
        digest.set(digest.get().chain_hash(BodyId::hash_text(&text)));
        Ok(text)
    };
    let config = config::parse_config(file, &text, &read_file)?;
    Ok((config, digest.get()))
}

fn read_config_file(file: &Path) -> anyhow::Result<String> {
    let read_error = || format!("cannot read the configuration {}", file.display());
    let bytes = std::fs::metadata(file).with_context(read_error)?.len();
    if bytes > CONFIG_BYTES_MAX {
        bail!("the configuration {} has {bytes} bytes; the limit is {CONFIG_BYTES_MAX}", file.display());
    }
    std::fs::read_to_string(file).with_context(read_error)
}

pub(crate) fn engine_model_limits(config: &Config) -> BTreeMap<ModelName, ModelCallLimits> {
    let limits = config.model_limits.iter().map(|(model, limits)| {
        let calls_per_minute_max = limits.calls_per_minute_max.as_ref().map(|calls| calls.value);
        let silence_ms_max = limits.idle_ms_max.as_ref().map(|idle| idle.value);
        (
            model.clone(),
            ModelCallLimits { concurrent_calls_max: limits.calls_max.value, calls_per_minute_max, silence_ms_max },
        )
    });
    limits.collect()
}
