//! From configuration to models: finds those nobody configured, works out how each is reached, and has them play. What a cassette needs to
//! be played again without any of that is written on it here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use futures_util::future::join_all;
use segue_core::decide::Catalog as _;
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_engine::Casting;
use segue_models::cassette::{Player, Recorder};
use segue_models::catalog::{Wanted, WindowIs};
use segue_models::http::{Client, Patience, Transport};
use segue_models::vendor::{Access, Connection, Wire};
use segue_models::{Kind, Model, ModelCard, Models, Rehearsal, Scripted, Vendor, discover};
use serde::{Deserialize, Serialize};

use crate::config::{self, Config, Discovery, ModelKind, Origin, Pace, Setting};

/// The variable that switches the search for models off.
pub const DISCOVER: &str = "SEGUE_DISCOVER";

/// How hard models are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Until somebody can play.
    Enough,
    /// Everywhere.
    Thorough,
}

/// A variable of the environment.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Adds the models that are found by their keys or on this machine. If nobody said which model is for everybody, the first of them is.
pub async fn find_models(config: &mut Config, search: Search) {
    let is_off = env(DISCOVER).is_some_and(|word| ["off", "no", "false", "0"].contains(&word.trim()));
    if is_off || config.discovery.value == Discovery::Off {
        return;
    }
    let nobody_said = config.default_model.origin == Origin::Default;
    let mut found = discover::by_keys(&config.catalog, &env);
    if search == Search::Thorough || (nobody_said && found.is_empty()) {
        found.extend(discover::ollama(&Client::new(Patience::Little), &config.catalog, &env).await);
    }
    if let Some(first) = found.first().filter(|_| nobody_said) {
        config.default_model = Setting { value: found_name(first), origin: Origin::Found };
    }
    for wanted in found {
        let name = found_name(&wanted);
        let model = config::Model { kind: ModelKind::Vendor(Box::new(wanted)), window_tokens: None, price: None };
        config.models.entry(name).or_insert(Setting { value: model, origin: Origin::Found });
    }
}

/// What a model is called that nobody gave a name: provider and model, as it can be asked for.
fn found_name(wanted: &Wanted) -> ModelName {
    let Wanted { provider, model, .. } = wanted;
    match model.strip_prefix(provider.as_str()) {
        Some(rest) if rest.starts_with('/') => model.as_str().into(),
        _ => format!("{provider}/{model}").into(),
    }
}

/// Who plays whom, and how everybody is reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sheet {
    default: ModelName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fallback: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fallbacks: Vec<Part>,
    pub members: BTreeMap<ModelName, Member>,
}

/// A role and its model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flow: Option<FlowName>,
    role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<PhaseName>,
    model: ModelName,
}

impl From<&config::Cast> for Part {
    fn from(cast: &config::Cast) -> Self {
        let config::Cast { flow, role, phase, model } = cast;
        Self { flow: flow.clone(), role: role.clone(), phase: phase.clone(), model: model.value.clone() }
    }
}

/// A model, before it is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// A real one.
    Vendor {
        connection: Box<Connection>,
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

impl Member {
    async fn of(model: &config::Model, config: &Config, probe: Option<&Client>) -> anyhow::Result<Self> {
        let card = |window: Option<u32>| window.map(|window_tokens| ModelCard { window_tokens, price: model.price });
        Ok(match &model.kind {
            ModelKind::Rehearsal { pace } => {
                Self::Rehearsal { is_instant: *pace == Pace::Instant, card: card(model.window_tokens) }
            }
            ModelKind::Scripted { file } => {
                let window = read_script(file)?.1.describe().window_tokens;
                Self::Scripted { file: file.clone(), card: card(Some(model.window_tokens.unwrap_or(window))) }
            }
            ModelKind::Vendor(wanted) => {
                let mut wanted: Wanted = (**wanted).clone();
                wanted.known.window_tokens = model.window_tokens.or(wanted.known.window_tokens);
                wanted.known.price = model.price.or(wanted.known.price);
                let wanted = discover::placed(wanted, &env);
                let mut found = config.catalog.find(&wanted, &env)?;
                let mut is_window_assumed = found.window == WindowIs::Assumed;
                // A local server tells at once; others are not kept waiting for.
                let is_near = is_here(&found.connection) || found.connection.wire == Wire::Ollama;
                if let Some(probe) = probe.filter(|_| is_window_assumed && is_near) {
                    let told = discover::told(probe, &found.connection).await;
                    told.improve(&mut found.connection.skills);
                    found.card.window_tokens = found.connection.skills.window_tokens;
                    is_window_assumed = told.window_tokens.is_none();
                }
                Self::Vendor { connection: Box::new(found.connection), card: found.card, is_window_assumed }
            }
        })
    }

    /// Its key, if it wants one: the variable, and whether it is set.
    pub fn key(&self) -> Option<(&str, bool)> {
        match self {
            Self::Vendor { connection, .. } => match &connection.key {
                Access::Key { env, key } => Some((env, key.is_some())),
                Access::Login { env, .. } => Some((env, true)),
                Access::Open => None,
            },
            Self::Rehearsal { .. } | Self::Scripted { .. } => None,
        }
    }

    fn make(&self, transport: &Arc<dyn Transport>) -> anyhow::Result<(Arc<dyn Model>, Option<ModelCard>)> {
        Ok(match self {
            Self::Vendor { connection, card, .. } => {
                (Arc::new(Vendor::new((**connection).clone(), transport.clone())), Some(*card))
            }
            Self::Rehearsal { is_instant: true, card } => (Arc::new(Rehearsal::instant()), *card),
            Self::Rehearsal { is_instant: false, card } => (Arc::new(Rehearsal::default()), *card),
            Self::Scripted { file, card } => (Arc::new(read_script(file)?.1), *card),
        })
    }
}

fn is_here(connection: &Connection) -> bool {
    let rest = connection.base_url.split_once("://").map_or("", |(_, rest)| rest);
    ["localhost", "127.", "[::1]"].iter().any(|start| rest.starts_with(start))
}

impl Sheet {
    /// Who is configured to play whom.
    pub async fn of(config: &Config) -> anyhow::Result<Self> {
        let probe = Client::new(Patience::Little);
        // Of those that were only found, nobody is asked about but who plays.
        let plays = config.named_models();
        let members =
            config.models.iter().map(|(name, model)| {
                let is_asked = model.origin != Origin::Found || plays.contains(name);
                let member = Member::of(&model.value, config, is_asked.then_some(&probe));
                async move {
                    Ok((name.clone(), member.await.with_context(|| format!("the model `{name}` cannot be used"))?))
                }
            });
        let members: anyhow::Result<BTreeMap<ModelName, Member>> = join_all(members).await.into_iter().collect();
        let members = members?;
        Ok(Self {
            default: config.default_model.value.clone(),
            fallback: config.fallback_model.as_ref().map(|model| model.value.clone()),
            parts: config.casts.iter().map(Part::from).collect(),
            fallbacks: config.fallbacks.iter().map(Part::from).collect(),
            members,
        })
    }

    /// One script for all roles, and the flow it is for.
    pub fn scripted(file: &Path) -> anyhow::Result<(CastModels, Option<FlowName>)> {
        let (flow, model) = read_script(file)?;
        let models = Arc::new(Models::only(Arc::new(model)));
        let casting = Casting::new(models.clone(), SCRIPTED.into());
        Ok((CastModels { models, casting }, flow))
    }

    /// No models at all.
    pub fn nobody() -> CastModels {
        let models = Arc::new(Models::new());
        CastModels { casting: Casting::new(models.clone(), SCRIPTED.into()), models }
    }

    /// Has everybody play over the network.
    pub fn cast(&self) -> anyhow::Result<CastModels> {
        self.cast_over(Arc::new(Client::new(Patience::Ample)))
    }

    /// The same, and writes down what is said to vendors and by them.
    pub fn record(&self, file: &Path) -> anyhow::Result<CastModels> {
        if !self.members.values().any(|member| matches!(member, Member::Vendor { .. })) {
            bail!("there is nothing to record: no real model is configured or found (see `segue doctor`)");
        }
        let client = Arc::new(Client::new(Patience::Ample));
        let recorder = Recorder::new(client, file, serde_json::to_value(self)?)?;
        self.cast_over(Arc::new(recorder))
    }

    /// Who played when a cassette was recorded, and has them say it again.
    pub fn replay(file: &Path) -> anyhow::Result<(Self, CastModels)> {
        let player = Player::new(file)?;
        let sheet: Self = serde_json::from_value(player.cast().clone())
            .with_context(|| format!("the cassette {} does not say who played", file.display()))?;
        let cast = sheet.cast_over(Arc::new(player))?;
        Ok((sheet, cast))
    }

    fn cast_over(&self, transport: Arc<dyn Transport>) -> anyhow::Result<CastModels> {
        let mut models = Models::new();
        for (name, member) in &self.members {
            let made = member.make(&transport).with_context(|| format!("the model `{name}` cannot be used"))?;
            models = match made {
                (model, Some(card)) => models.with_card(name.clone(), model, card),
                (model, None) => models.with(name.clone(), model),
            };
        }
        let models = Arc::new(models);
        let mut casting = Casting::new(models.clone(), self.default.clone());
        for Part { flow, role, phase, model } in self.parts.clone() {
            casting = casting.cast(flow, role, phase, model);
        }
        if let Some(model) = &self.fallback {
            casting = casting.or_else(model.clone());
        }
        for Part { flow, role, model, .. } in self.fallbacks.clone() {
            casting = casting.or_else_for(flow, role, model);
        }
        Ok(CastModels { models, casting })
    }
}

/// The name every role's model has while a script plays them all.
pub const SCRIPTED: &str = "scripted";

/// Models, and who is played by which.
#[derive(Debug)]
pub struct CastModels {
    pub models: Arc<Models>,
    pub casting: Casting,
}

/// A role of a flow with the model that plays it.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    pub role: RoleName,
    /// The phase, where it has a model of its own.
    pub phase: Option<PhaseName>,
    pub model: ModelName,
    /// Who steps in where that one cannot answer.
    pub fallback: Option<ModelName>,
}

impl CastModels {
    /// Whether a role of the flow is played by the rehearsal model.
    pub fn is_rehearsed(&self, spec: &FlowSpec) -> bool {
        self.parts(spec).iter().any(|part| self.kind(&part.model) == Some(Kind::Rehearsal))
    }

    /// What kind of model that is.
    pub fn kind(&self, model: &ModelName) -> Option<Kind> {
        self.models.get(model).ok().map(|model| model.describe().kind)
    }

    /// Every role of a flow with the model that plays it.
    pub fn parts(&self, spec: &FlowSpec) -> Vec<Played> {
        let mut parts = Vec::new();
        for role in spec.roles.values() {
            let usual = self.casting.model_for(&spec.name, &role.name, None);
            let fallback = self.casting.fallback_for(&spec.name, &role.name);
            let played = |phase, model: ModelName| {
                let fallback = fallback.clone().filter(|fallback| *fallback != model);
                Played { role: role.name.clone(), phase, model, fallback }
            };
            parts.push(played(None, usual.clone()));
            let graph = role.graph.as_ref().and_then(|graph| spec.graphs.get(graph));
            for phase in graph.into_iter().flat_map(|graph| &graph.phases) {
                let cast = self.casting.model_for(&spec.name, &role.name, Some(&phase.name));
                let model = phase.model_for(&role.name).cloned().unwrap_or(cast);
                if model != usual {
                    parts.push(played(Some(phase.name.clone()), model));
                }
            }
        }
        parts
    }
}

fn read_script(file: &Path) -> anyhow::Result<(Option<FlowName>, Scripted)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let wrong = || format!("the scenario {} has a mistake", file.display());
    let scenario: segue_models::scripted::Scenario = text.parse().with_context(wrong)?;
    let flow = scenario.flow.clone();
    Ok((flow, text.parse().with_context(wrong)?))
}
