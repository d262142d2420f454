//! Turns a configuration into models: discovers models, resolves how each one is reached, and assigns them to roles. The
//! resolved setup is also written to cassettes, so that a recording can be replayed without the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use futures_util::future::join_all;
use segue_core::decide::RoleModelResolver as _;
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_engine::ModelAssignment;
use segue_eval::results::StoredEvaluationResultList;
use segue_models::cassette::{CassetteRecordingTransport, CassetteReplayTransport};
use segue_models::catalog::{ContextWindowSource, RequestedVendorModel};
use segue_models::http::{CompletionOrProbeTimeouts, HttpTransport, ReqwestTransport};
use segue_models::vendor::{ModelEndpoint, VendorCredentials, WireFormat};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelCard, ModelRegistry, RehearsalModel, ScriptedModel, VendorModelClient,
    discovery,
};
use serde::{Deserialize, Serialize};

use crate::config::{
    self, Config, ConfigValue, ConfigValueOrigin, ModelConfigKind, ModelDiscoverySetting, RehearsalSpeed, UserDirs,
};
use crate::evaluation_results::load_evaluation_results;

/// The environment variable that turns off model discovery.
pub(crate) const DISCOVER_ENV: &str = "SEGUE_DISCOVER";

/// Where models are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelDiscoveryExtent {
    /// By API keys, and in an Ollama only if a default model is still missing.
    UntilFound,
    /// By API keys and in an Ollama.
    Everywhere,
}

pub(crate) fn read_env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Adds the models that are found by API keys or on this machine. The first one becomes the default model if none is
/// configured.
pub(crate) async fn discover_models(config: &mut Config, scope: ModelDiscoveryExtent) {
    let is_off = read_env_var(DISCOVER_ENV).is_some_and(|value| ["off", "no", "false", "0"].contains(&value.trim()));
    if is_off || config.discovery.value == ModelDiscoverySetting::Off {
        return;
    }
    let needs_default = config.default_model.origin == ConfigValueOrigin::Default;
    let mut found = discovery::discover_by_api_keys(&config.catalog, &read_env_var);
    if scope == ModelDiscoveryExtent::Everywhere || (needs_default && found.is_empty()) {
        found.extend(
            discovery::discover_ollama_models(
                &ReqwestTransport::new(CompletionOrProbeTimeouts::Probe),
                &config.catalog,
                &read_env_var,
            )
            .await,
        );
    }
    if let Some(first) = found.first().filter(|_| needs_default) {
        config.default_model =
            ConfigValue { value: discovered_model_name(first), origin: ConfigValueOrigin::Discovered };
    }
    for spec in found {
        let name = discovered_model_name(&spec);
        let model =
            config::ModelConfig { kind: ModelConfigKind::Vendor(Box::new(spec)), window_tokens: None, price: None };
        config.models.entry(name).or_insert(ConfigValue { value: model, origin: ConfigValueOrigin::Discovered });
    }
}

/// Returns the name of a discovered model, in the form `provider/model`.
fn discovered_model_name(spec: &RequestedVendorModel) -> ModelName {
    let RequestedVendorModel { provider, model, .. } = spec;
    match model.strip_prefix(provider.as_str()) {
        Some(rest) if rest.starts_with('/') => model.as_str().into(),
        _ => format!("{provider}/{model}").into(),
    }
}

/// All models with their endpoints, and their assignment to roles. Written to cassettes as metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ResolvedModelSetup {
    default_model: ModelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fallback_model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    role_assignments: Vec<RoleModelAssignment>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    role_fallbacks: Vec<RoleModelAssignment>,
    pub models: BTreeMap<ModelName, ResolvedModel>,
}

/// The model of a role, possibly limited to a flow or a phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RoleModelAssignment {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<FlowName>,
    role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<PhaseName>,
    model: ModelName,
}

impl From<&config::RoleModelConfig> for RoleModelAssignment {
    fn from(role_model: &config::RoleModelConfig) -> Self {
        let config::RoleModelConfig { flow, role, phase, model } = role_model;
        Self { flow: flow.clone(), role: role.clone(), phase: phase.clone(), model: model.value.clone() }
    }
}

/// The description of a model, complete enough to build it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResolvedModel {
    Vendor {
        connection: Box<ModelEndpoint>,
        card: ModelCard,
        /// Whether the context window is a default, because neither the catalog nor the server knows it.
        #[serde(default)]
        is_window_assumed: bool,
    },
    Rehearsal {
        is_instant: bool,
        card: Option<ModelCard>,
    },
    Scripted {
        file: PathBuf,
        card: Option<ModelCard>,
    },
}

impl ResolvedModel {
    async fn resolve(
        model: &config::ModelConfig,
        config: &Config,
        probe: Option<&ReqwestTransport>,
    ) -> anyhow::Result<Self> {
        let card =
            |window: Option<u32>| window.map(|window| ModelCard { price: model.price, ..ModelCard::unpriced(window) });
        Ok(match &model.kind {
            ModelConfigKind::Rehearsal { speed } => {
                Self::Rehearsal { is_instant: *speed == RehearsalSpeed::Instant, card: card(model.window_tokens) }
            }
            ModelConfigKind::Scripted { file } => {
                let window = load_scenario(file)?.1.describe().window_tokens;
                Self::Scripted { file: file.clone(), card: card(Some(model.window_tokens.unwrap_or(window))) }
            }
            ModelConfigKind::Vendor(spec) => {
                let mut spec: RequestedVendorModel = (**spec).clone();
                spec.overrides.window_tokens = model.window_tokens.or(spec.overrides.window_tokens);
                spec.overrides.price = model.price.or(spec.overrides.price);
                let spec = discovery::apply_ollama_env(spec, &read_env_var);
                let mut resolved = config.catalog.resolve_model(&spec, &read_env_var)?;
                let mut is_window_assumed = resolved.window_source == ContextWindowSource::Assumed;
                // Only local servers are probed, because they respond quickly.
                let is_local = is_local_connection(&resolved.endpoint) || resolved.endpoint.wire == WireFormat::Ollama;
                if let Some(probe) = probe.filter(|_| is_window_assumed && is_local) {
                    let probed = discovery::probe_capabilities(probe, &resolved.endpoint).await;
                    probed.apply_to(&mut resolved.endpoint.capabilities);
                    resolved.card.window_tokens = resolved.endpoint.capabilities.window_tokens;
                    is_window_assumed = probed.window_tokens.is_none();
                }
                Self::Vendor { connection: Box::new(resolved.endpoint), card: resolved.card, is_window_assumed }
            }
        })
    }

    /// Returns the environment variable of the API key, if the model needs one, and whether it is set.
    pub(crate) fn api_key_env_with_presence(&self) -> Option<(&str, bool)> {
        match self {
            Self::Vendor { connection, .. } => match &connection.credentials {
                VendorCredentials::ApiKey { env, key } => Some((env, key.is_some())),
                VendorCredentials::Basic { env, .. } => Some((env, true)),
                VendorCredentials::None => None,
            },
            Self::Rehearsal { .. } | Self::Scripted { .. } => None,
        }
    }

    /// Returns the model as its provider knows it; `None` if it is not a vendor's.
    pub(crate) fn provider_model_name(&self) -> Option<String> {
        match self {
            Self::Vendor { connection, .. } => Some(format!("{}/{}", connection.provider, connection.model)),
            Self::Rehearsal { .. } | Self::Scripted { .. } => None,
        }
    }

    /// Applies what evaluations found out about the model.
    fn apply_evaluation_results(&mut self, results: &StoredEvaluationResultList) {
        let form = self.provider_model_name().and_then(|identity| results.signal_form(&identity));
        if let (Self::Vendor { card, .. }, Some(form)) = (self, form) {
            card.signal_form = form;
        }
    }

    fn build_model(
        &self,
        transport: &Arc<dyn HttpTransport>,
    ) -> anyhow::Result<(Arc<dyn LanguageModel>, Option<ModelCard>)> {
        Ok(match self {
            Self::Vendor { connection, card, .. } => {
                (Arc::new(VendorModelClient::new((**connection).clone(), transport.clone())), Some(*card))
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
    /// Resolves all models of a configuration.
    pub(crate) async fn from_config(config: &Config) -> anyhow::Result<Self> {
        let probe = ReqwestTransport::new(CompletionOrProbeTimeouts::Probe);
        // A discovered model is probed only if it is used.
        let used = config.used_models();
        let models = config.models.iter().map(|(name, model)| {
            let is_probed = model.origin != ConfigValueOrigin::Discovered || used.contains(name);
            let resolved = ResolvedModel::resolve(&model.value, config, is_probed.then_some(&probe));
            async move { Ok((name.clone(), resolved.await.with_context(|| unusable_model_message(name))?)) }
        });
        let models: anyhow::Result<BTreeMap<ModelName, ResolvedModel>> = join_all(models).await.into_iter().collect();
        let mut models = models?;
        // Without results the catalog decides, which is always possible.
        let results = load_evaluation_results(&UserDirs::from_env()).unwrap_or_else(|error| {
            tracing::warn!(error = format!("{error:#}"), "the results of evaluations are not used");
            StoredEvaluationResultList::default()
        });
        models.values_mut().for_each(|model| model.apply_evaluation_results(&results));
        Ok(Self {
            default_model: config.default_model.value.clone(),
            fallback_model: config.fallback_model.as_ref().map(|model| model.value.clone()),
            role_assignments: config.role_models.iter().map(RoleModelAssignment::from).collect(),
            role_fallbacks: config.role_fallbacks.iter().map(RoleModelAssignment::from).collect(),
            models,
        })
    }

    pub(crate) fn default_model(&self) -> &ModelName {
        &self.default_model
    }

    /// Returns the setup with one model for all roles.
    pub(crate) fn with_only_model(&self, name: &ModelName) -> Self {
        let models = self.models.get(name).map(|model| (name.clone(), model.clone())).into_iter().collect();
        let (role_assignments, role_fallbacks) = (Vec::new(), Vec::new());
        Self { default_model: name.clone(), fallback_model: None, role_assignments, role_fallbacks, models }
    }

    /// Returns a model as its provider knows it; `None` if it is not a vendor's.
    pub(crate) fn provider_model_name(&self, name: &ModelName) -> Option<String> {
        self.models.get(name)?.provider_model_name()
    }

    /// Loads a scenario as the model of all roles. Returns also the flow that the scenario is for, if it names one.
    pub(crate) fn load_script(file: &Path) -> anyhow::Result<(ModelsWithRoleAssignment, Option<FlowName>)> {
        let (flow, model) = load_scenario(file)?;
        let models = Arc::new(ModelRegistry::from_single_model(Arc::new(model)));
        let assignment = ModelAssignment::new(models.clone(), SCRIPTED_MODEL_NAME.into());
        Ok((ModelsWithRoleAssignment { models, assignment }, flow))
    }

    /// Returns an assignment without models, for engines that make no calls.
    pub(crate) fn without_models() -> ModelsWithRoleAssignment {
        let models = Arc::new(ModelRegistry::new());
        ModelsWithRoleAssignment {
            assignment: ModelAssignment::new(models.clone(), SCRIPTED_MODEL_NAME.into()),
            models,
        }
    }

    /// Builds all models, with calls over the network.
    pub(crate) fn connect(&self) -> anyhow::Result<ModelsWithRoleAssignment> {
        self.build_models(Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion)))
    }

    /// Builds all models, with calls over the network that are recorded in a cassette.
    pub(crate) fn connect_recording(&self, file: &Path) -> anyhow::Result<ModelsWithRoleAssignment> {
        if !self.models.values().any(|model| matches!(model, ResolvedModel::Vendor { .. })) {
            bail!("nothing to record: no vendor model is configured or discovered (see `segue doctor`)");
        }
        let client = Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion));
        let recorder = CassetteRecordingTransport::new(client, file, serde_json::to_value(self)?)?;
        self.build_models(Arc::new(recorder))
    }

    /// Builds the models of a cassette, with replies from its recording.
    pub(crate) fn load_cassette(file: &Path) -> anyhow::Result<(Self, ModelsWithRoleAssignment)> {
        let player = CassetteReplayTransport::new(file)?;
        let setup: Self = serde_json::from_value(player.metadata().clone())
            .with_context(|| format!("the cassette {} has no valid model setup", file.display()))?;
        let assigned = setup.build_models(Arc::new(player))?;
        Ok((setup, assigned))
    }

    fn build_models(&self, transport: Arc<dyn HttpTransport>) -> anyhow::Result<ModelsWithRoleAssignment> {
        let mut models = ModelRegistry::new();
        for (name, resolved) in &self.models {
            let built = resolved.build_model(&transport).with_context(|| unusable_model_message(name))?;
            models = match built {
                (model, Some(card)) => models.with_card(name.clone(), model, card),
                (model, None) => models.with_model(name.clone(), model),
            };
        }
        let models = Arc::new(models);
        let mut assignment = ModelAssignment::new(models.clone(), self.default_model.clone());
        for RoleModelAssignment { flow, role, phase, model } in self.role_assignments.clone() {
            assignment = assignment.with_role_model(flow, role, phase, model);
        }
        if let Some(model) = &self.fallback_model {
            assignment = assignment.with_fallback(model.clone());
        }
        for RoleModelAssignment { flow, role, model, .. } in self.role_fallbacks.clone() {
            assignment = assignment.with_role_fallback(flow, role, model);
        }
        Ok(ModelsWithRoleAssignment { models, assignment })
    }
}

fn unusable_model_message(name: &ModelName) -> String {
    format!("model `{name}` cannot be used")
}

/// The name of the model of all roles when replies come from a scenario.
pub(crate) const SCRIPTED_MODEL_NAME: &str = "scripted";

/// The models, and their assignment to roles.
#[derive(Debug)]
pub(crate) struct ModelsWithRoleAssignment {
    pub models: Arc<ModelRegistry>,
    pub assignment: ModelAssignment,
}

/// The model of a role, in all phases or in one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleModelWithFallback {
    pub role: RoleName,
    /// The phase in which the role has this model; `None` for all other phases.
    pub phase: Option<PhaseName>,
    pub model: ModelName,
    pub fallback: Option<ModelName>,
}

impl ModelsWithRoleAssignment {
    /// Whether a role of the flow uses the rehearsal model.
    pub(crate) fn uses_rehearsal_model(&self, spec: &FlowSpec) -> bool {
        self.role_models(spec).iter().any(|role| self.model_kind(&role.model) == Some(ModelBackendKind::Rehearsal))
    }

    /// Returns the kind of a model, or `None` if there is no such model.
    pub(crate) fn model_kind(&self, model: &ModelName) -> Option<ModelBackendKind> {
        self.models.get(model).ok().map(|model| model.describe().kind)
    }

    /// Returns the model of every role of a flow, and of every phase in which it is another one.
    pub(crate) fn role_models(&self, spec: &FlowSpec) -> Vec<RoleModelWithFallback> {
        let mut role_models = Vec::new();
        for role in spec.roles.values() {
            let default_model = self.assignment.model_for_role(&spec.name, &role.name, None);
            let fallback = self.assignment.fallback_model(&spec.name, &role.name);
            let role_model = |phase, model: ModelName| {
                let fallback = fallback.clone().filter(|fallback| *fallback != model);
                RoleModelWithFallback { role: role.name.clone(), phase, model, fallback }
            };
            role_models.push(role_model(None, default_model.clone()));
            let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
            for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
                let assigned = self.assignment.model_for_role(&spec.name, &role.name, Some(&phase.name));
                let model = phase.models.get(&role.name).or(phase.model.as_ref()).cloned().unwrap_or(assigned);
                if model != default_model {
                    role_models.push(role_model(Some(phase.name.clone()), model));
                }
            }
        }
        role_models
    }
}

fn load_scenario(file: &Path) -> anyhow::Result<(Option<FlowName>, ScriptedModel)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let invalid = || format!("the scenario {} is invalid", file.display());
    let scenario: segue_models::scripted::Scenario = text.parse().with_context(invalid)?;
    let flow = scenario.flow.clone();
    Ok((flow, text.parse().with_context(invalid)?))
}
