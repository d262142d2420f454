//! Who is played by which model, and how wide each model's window is.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::decide::Catalog;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_models::Models;
use segue_models::limits::SAFE_WINDOW_TOKENS;

/// Which model serves whom. The most particular entry wins: flow, role and phase; then flow and role; then role; then the
/// default.
#[derive(Debug, Clone)]
pub struct Casting {
    models: Arc<Models>,
    otherwise: ModelName,
    entries: BTreeMap<(Option<FlowName>, RoleName, Option<PhaseName>), ModelName>,
    /// Who steps in for everybody, and for a role, in one flow or in all.
    stand_in: Option<ModelName>,
    stand_ins: BTreeMap<(Option<FlowName>, RoleName), ModelName>,
}

impl Casting {
    /// Everybody is played by `otherwise`.
    #[must_use]
    pub fn new(models: Arc<Models>, otherwise: ModelName) -> Self {
        Self { models, otherwise, entries: BTreeMap::new(), stand_in: None, stand_ins: BTreeMap::new() }
    }

    /// The same with a model that steps in for everybody whose own cannot answer.
    #[must_use]
    pub fn or_else(mut self, model: ModelName) -> Self {
        self.stand_in = Some(model);
        self
    }

    /// The same with a model that steps in for a role, in one flow only if it is given.
    #[must_use]
    pub fn or_else_for(mut self, flow: Option<FlowName>, role: RoleName, model: ModelName) -> Self {
        self.stand_ins.insert((flow, role), model);
        self
    }

    /// The same with a role played by `model`, in one flow or phase only if they are given.
    #[must_use]
    pub fn cast(mut self, flow: Option<FlowName>, role: RoleName, phase: Option<PhaseName>, model: ModelName) -> Self {
        self.entries.insert((flow, role, phase), model);
        self
    }

    /// The model for everybody else.
    #[must_use]
    pub fn otherwise(&self) -> &ModelName {
        &self.otherwise
    }
}

impl Catalog for Casting {
    fn model_for(&self, flow: &FlowName, role: &RoleName, phase: Option<&PhaseName>) -> ModelName {
        if self.entries.is_empty() {
            return self.otherwise.clone();
        }
        let find = |flow: Option<&FlowName>, phase: Option<&PhaseName>| {
            self.entries.get(&(flow.cloned(), role.clone(), phase.cloned()))
        };
        find(Some(flow), phase)
            .or_else(|| find(Some(flow), None))
            .or_else(|| find(None, phase))
            .or_else(|| find(None, None))
            .unwrap_or(&self.otherwise)
            .clone()
    }

    fn fallback_for(&self, flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        let find = |flow: Option<&FlowName>| self.stand_ins.get(&(flow.cloned(), role.clone()));
        find(Some(flow)).or_else(|| find(None)).or(self.stand_in.as_ref()).cloned()
    }

    fn window_tokens(&self, model: &ModelName) -> u32 {
        self.models.card(model).map_or(SAFE_WINDOW_TOKENS, |card| card.window_tokens)
    }
}
