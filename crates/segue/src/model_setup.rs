//! From configuration to models: finds those nobody configured, works out how each is reached, and has them play. What a cassette needs to
//! be played again without any of that is written on it here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use futures_util::future::join_all;
use segue_core::decide::ModelSelector as _;
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_engine::ModelAssignment;
use segue_models::cassette::{CassettePlayer, CassetteRecorder};
use segue_models::catalog::{VendorModelSpec, WindowSource};
use segue_models::http::{HttpTransport, ReqwestTransport, TimeoutProfile};
use segue_models::vendor::{Credentials, ModelEndpoint, WireFormat};
use segue_models::{
    LanguageModel, ModelCard, ModelRegistry, ModelSource, RehearsalModel, ScriptedModel, VendorModel, discovery,
};
use serde::{Deserialize, Serialize};

use crate::config::{self, Config, ConfigValue, ModelConfigKind, ModelDiscovery, RehearsalSpeed, ValueOrigin};

/// The variable that switches the search for models off.
pub const DISCOVER_ENV: &str = "SEGUE_DISCOVER";

/// How hard models are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryScope {
    /// Until somebody can play.
    UntilFound,
    /// Everywhere.
    Everywhere,
}

/// A variable of the environment.
pub fn read_env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Adds the models that are found by their keys or on this machine. If nobody said which model is for everybody, the first of them is.
pub async fn discover_models(config: &mut Config, scope: DiscoveryScope) {
    let is_off = read_env_var(DISCOVER_ENV).is_some_and(|word| ["off", "no", "false", "0"].contains(&word.trim()));
    if is_off || config.discovery.value == ModelDiscovery::Off {
        return;
    }
    let nobody_said = config.default_model.origin == ValueOrigin::Default;
    let mut found = discovery::discover_by_api_keys(&config.catalog, &read_env_var);
    if scope == DiscoveryScope::Everywhere || (nobody_said && found.is_empty()) {
        found.extend(
            discovery::discover_ollama_models(
                &ReqwestTransport::new(TimeoutProfile::Probe),
                &config.catalog,
                &read_env_var,
            )
            .await,
        );
    }
    if let Some(first) = found.first().filter(|_| nobody_said) {
        config.default_model = ConfigValue { value: discovered_model_name(first), origin: ValueOrigin::Discovered };
    }
    for wanted in found {
        let name = discovered_model_name(&wanted);
        let model =
            config::ModelConfig { kind: ModelConfigKind::Vendor(Box::new(wanted)), window_tokens: None, price: None };
        config.models.entry(name).or_insert(ConfigValue { value: model, origin: ValueOrigin::Discovered });
    }
}

/// What a model is called that nobody gave a name: provider and model, as it can be asked for.
fn discovered_model_name(wanted: &VendorModelSpec) -> ModelName {
    let VendorModelSpec { provider, model, .. } = wanted;
    match model.strip_prefix(provider.as_str()) {
        Some(rest) if rest.starts_with('/') => model.as_str().into(),
        _ => format!("{provider}/{model}").into(),
    }
}

/// Who plays whom, and how everybody is reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResolvedModelSetup {
    default_model: ModelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fallback_model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    role_assignments: Vec<RoleAssignment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    role_fallbacks: Vec<RoleAssignment>,
    pub models: BTreeMap<ModelName, ResolvedModel>,
}

/// A role and its model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RoleAssignment {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<FlowName>,
    role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<PhaseName>,
    model: ModelName,
}

impl From<&config::RoleModelConfig> for RoleAssignment {
    fn from(cast: &config::RoleModelConfig) -> Self {
        let config::RoleModelConfig { flow, role, phase, model } = cast;
        Self { flow: flow.clone(), role: role.clone(), phase: phase.clone(), model: model.value.clone() }
    }
}

/// A model, before it is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedModel {
    /// A real one.
    Vendor {
        connection: Box<ModelEndpoint>,
        card: ModelCard,
        /// Whether its window is only assumed.
        #[serde(default)]
        is_window_assumed: bool,
    },
    /// A stand-in.
    Rehearsal { is_instant: bool, card: Option<ModelCard> },
    /// From a scenario.
    Scripted { file: PathBuf, card: Option<ModelCard> },
}

impl ResolvedModel {
    async fn resolve(
        model: &config::ModelConfig,
        config: &Config,
        probe: Option<&ReqwestTransport>,
    ) -> anyhow::Result<Self> {
        let card = |window: Option<u32>| window.map(|window_tokens| ModelCard { window_tokens, price: model.price });
        Ok(match &model.kind {
            ModelConfigKind::Rehearsal { speed: pace } => {
                Self::Rehearsal { is_instant: *pace == RehearsalSpeed::Instant, card: card(model.window_tokens) }
            }
            ModelConfigKind::Scripted { file } => {
                let window = load_scenario(file)?.1.describe().window_tokens;
                Self::Scripted { file: file.clone(), card: card(Some(model.window_tokens.unwrap_or(window))) }
            }
            ModelConfigKind::Vendor(wanted) => {
                let mut wanted: VendorModelSpec = (**wanted).clone();
                wanted.overrides.window_tokens = model.window_tokens.or(wanted.overrides.window_tokens);
                wanted.overrides.price = model.price.or(wanted.overrides.price);
                let wanted = discovery::apply_ollama_env(wanted, &read_env_var);
                let mut found = config.catalog.resolve_model(&wanted, &read_env_var)?;
                let mut is_window_assumed = found.window_source == WindowSource::Assumed;
                // A local server tells at once; others are not kept waiting for.
                let is_near = is_local_connection(&found.endpoint) || found.endpoint.wire == WireFormat::Ollama;
                if let Some(probe) = probe.filter(|_| is_window_assumed && is_near) {
                    let told = discovery::probe_capabilities(probe, &found.endpoint).await;
                    told.apply_to(&mut found.endpoint.capabilities);
                    found.card.window_tokens = found.endpoint.capabilities.window_tokens;
                    is_window_assumed = told.window_tokens.is_none();
                }
                Self::Vendor { connection: Box::new(found.endpoint), card: found.card, is_window_assumed }
            }
        })
    }

    /// Its key, if it wants one: the variable, and whether it is set.
    pub fn api_key_env(&self) -> Option<(&str, bool)> {
        match self {
            Self::Vendor { connection, .. } => match &connection.credentials {
                Credentials::ApiKey { env, key } => Some((env, key.is_some())),
                Credentials::Basic { env, .. } => Some((env, true)),
                Credentials::None => None,
            },
            Self::Rehearsal { .. } | Self::Scripted { .. } => None,
        }
    }

    fn build(&self, transport: &Arc<dyn HttpTransport>) -> anyhow::Result<(Arc<dyn LanguageModel>, Option<ModelCard>)> {
        Ok(match self {
            Self::Vendor { connection, card, .. } => {
                (Arc::new(VendorModel::new((**connection).clone(), transport.clone())), Some(*card))
            }
            Self::Rehearsal { is_instant: true, card } => (Arc::new(RehearsalModel::instant()), *card),
            Self::Rehearsal { is_instant: false, card } => (Arc::new(RehearsalModel::default()), *card),
            Self::Scripted { file, card } => (Arc::new(load_scenario(file)?.1), *card),
        })
    }
}

fn is_local_connection(connection: &ModelEndpoint) -> bool {
    let rest = connection.base_url.split_once("://").map_or("", |(_, rest)| rest);
    ["localhost", "127.", "[::1]"].iter().any(|start| rest.starts_with(start))
}

impl ResolvedModelSetup {
    /// Who is configured to play whom.
    pub async fn from_config(config: &Config) -> anyhow::Result<Self> {
        let probe = ReqwestTransport::new(TimeoutProfile::Probe);
        // Of those that were only found, nobody is asked about but who plays.
        let plays = config.used_models();
        let members =
            config.models.iter().map(|(name, model)| {
                let is_asked = model.origin != ValueOrigin::Discovered || plays.contains(name);
                let member = ResolvedModel::resolve(&model.value, config, is_asked.then_some(&probe));
                async move {
                    Ok((name.clone(), member.await.with_context(|| format!("the model `{name}` cannot be used"))?))
                }
            });
        let members: anyhow::Result<BTreeMap<ModelName, ResolvedModel>> = join_all(members).await.into_iter().collect();
        let members = members?;
        Ok(Self {
            default_model: config.default_model.value.clone(),
            fallback_model: config.fallback_model.as_ref().map(|model| model.value.clone()),
            role_assignments: config.role_models.iter().map(RoleAssignment::from).collect(),
            role_fallbacks: config.role_fallbacks.iter().map(RoleAssignment::from).collect(),
            models: members,
        })
    }

    /// One script for all roles, and the flow it is for.
    pub fn load_script(file: &Path) -> anyhow::Result<(AssignedModels, Option<FlowName>)> {
        let (flow, model) = load_scenario(file)?;
        let models = Arc::new(ModelRegistry::from_single_model(Arc::new(model)));
        let casting = ModelAssignment::new(models.clone(), SCRIPTED_MODEL_NAME.into());
        Ok((AssignedModels { models, assignment: casting }, flow))
    }

    /// No models at all.
    pub fn without_models() -> AssignedModels {
        let models = Arc::new(ModelRegistry::new());
        AssignedModels { assignment: ModelAssignment::new(models.clone(), SCRIPTED_MODEL_NAME.into()), models }
    }

    /// Has everybody play over the network.
    pub fn connect(&self) -> anyhow::Result<AssignedModels> {
        self.build_models(Arc::new(ReqwestTransport::new(TimeoutProfile::Completion)))
    }

    /// The same, and writes down what is said to vendors and by them.
    pub fn connect_recording(&self, file: &Path) -> anyhow::Result<AssignedModels> {
        if !self.models.values().any(|member| matches!(member, ResolvedModel::Vendor { .. })) {
            bail!("there is nothing to record: no real model is configured or found (see `segue doctor`)");
        }
        let client = Arc::new(ReqwestTransport::new(TimeoutProfile::Completion));
        let recorder = CassetteRecorder::new(client, file, serde_json::to_value(self)?)?;
        self.build_models(Arc::new(recorder))
    }

    /// Who played when a cassette was recorded, and has them say it again.
    pub fn load_cassette(file: &Path) -> anyhow::Result<(Self, AssignedModels)> {
        let player = CassettePlayer::new(file)?;
        let sheet: Self = serde_json::from_value(player.metadata().clone())
            .with_context(|| format!("the cassette {} does not say who played", file.display()))?;
        let cast = sheet.build_models(Arc::new(player))?;
        Ok((sheet, cast))
    }

    fn build_models(&self, transport: Arc<dyn HttpTransport>) -> anyhow::Result<AssignedModels> {
        let mut models = ModelRegistry::new();
        for (name, member) in &self.models {
            let made = member.build(&transport).with_context(|| format!("the model `{name}` cannot be used"))?;
            models = match made {
                (model, Some(card)) => models.with_card(name.clone(), model, card),
                (model, None) => models.with_model(name.clone(), model),
            };
        }
        let models = Arc::new(models);
        let mut casting = ModelAssignment::new(models.clone(), self.default_model.clone());
        for RoleAssignment { flow, role, phase, model } in self.role_assignments.clone() {
            casting = casting.with_role_model(flow, role, phase, model);
        }
        if let Some(model) = &self.fallback_model {
            casting = casting.with_fallback(model.clone());
        }
        for RoleAssignment { flow, role, model, .. } in self.role_fallbacks.clone() {
            casting = casting.with_role_fallback(flow, role, model);
        }
        Ok(AssignedModels { models, assignment: casting })
    }
}

/// The name every role's model has while a script plays them all.
pub const SCRIPTED_MODEL_NAME: &str = "scripted";

/// Models, and who is played by which.
#[derive(Debug)]
pub struct AssignedModels {
    pub models: Arc<ModelRegistry>,
    pub assignment: ModelAssignment,
}

/// A role of a flow with the model that plays it.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleModel {
    pub role: RoleName,
    /// The phase, where it has a model of its own.
    pub phase: Option<PhaseName>,
    pub model: ModelName,
    /// Who steps in where that one cannot answer.
    pub fallback: Option<ModelName>,
}

impl AssignedModels {
    /// Whether a role of the flow is played by the rehearsal model.
    pub fn uses_rehearsal_model(&self, spec: &FlowSpec) -> bool {
        self.role_models(spec).iter().any(|part| self.model_source(&part.model) == Some(ModelSource::Rehearsal))
    }

    /// What kind of model that is.
    pub fn model_source(&self, model: &ModelName) -> Option<ModelSource> {
        self.models.get(model).ok().map(|model| model.describe().kind)
    }

    /// Every role of a flow with the model that plays it.
    pub fn role_models(&self, spec: &FlowSpec) -> Vec<RoleModel> {
        let mut parts = Vec::new();
        for role in spec.roles.values() {
            let usual = self.assignment.model_for_role(&spec.name, &role.name, None);
            let fallback = self.assignment.fallback_model(&spec.name, &role.name);
            let played = |phase, model: ModelName| {
                let fallback = fallback.clone().filter(|fallback| *fallback != model);
                RoleModel { role: role.name.clone(), phase, model, fallback }
            };
            parts.push(played(None, usual.clone()));
            let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
            for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
                let cast = self.assignment.model_for_role(&spec.name, &role.name, Some(&phase.name));
                let model = phase.model_for_role(&role.name).cloned().unwrap_or(cast);
                if model != usual {
                    parts.push(played(Some(phase.name.clone()), model));
                }
            }
        }
        parts
    }
}

fn load_scenario(file: &Path) -> anyhow::Result<(Option<FlowName>, ScriptedModel)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let wrong = || format!("the scenario {} has a mistake", file.display());
    let scenario: segue_models::scripted::Scenario = text.parse().with_context(wrong)?;
    let flow = scenario.flow.clone();
    Ok((flow, text.parse().with_context(wrong)?))
}
