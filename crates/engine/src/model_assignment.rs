//! Which model plays each role, and the size of each model's context window.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::decide::{InputRefusal, RoleModelResolver};
use segue_core::flow::FlowSpec;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_core::signal::SignalForm;
use segue_models::ModelRegistry;
use segue_models::limits::FALLBACK_WINDOW_TOKENS;

use crate::engine::Engine;
use crate::error::Error;

/// Assigns models to roles. The most specific entry wins: flow, role and phase; then flow and role; then role and
/// phase; then role; then the default model.
#[derive(Debug, Clone)]
pub struct ModelAssignment {
    models: Arc<ModelRegistry>,
    default_model: ModelName,
    entries: BTreeMap<(Option<FlowName>, RoleName, Option<PhaseName>), ModelName>,
    /// Replaces any role's model that cannot answer, unless the role has a fallback of its own.
    fallback: Option<ModelName>,
    role_fallbacks: BTreeMap<(Option<FlowName>, RoleName), ModelName>,
}

impl ModelAssignment {
    /// Assigns `default_model` to every role.
    #[must_use]
    pub fn new(models: Arc<ModelRegistry>, default_model: ModelName) -> Self {
        Self { models, default_model, entries: BTreeMap::new(), fallback: None, role_fallbacks: BTreeMap::new() }
    }

    /// Adds a fallback model for every role whose own model cannot answer.
    #[must_use]
    pub fn with_fallback(mut self, model: ModelName) -> Self {
        self.fallback = Some(model);
        self
    }

    /// Adds a fallback model for one role, limited to one flow if given.
    #[must_use]
    pub fn with_role_fallback(mut self, flow: Option<FlowName>, role: RoleName, model: ModelName) -> Self {
        self.role_fallbacks.insert((flow, role), model);
        self
    }

    /// Assigns `model` to a role, limited to one flow or phase if given.
    #[must_use]
    pub fn with_role_model(
        mut self,
        flow: Option<FlowName>,
        role: RoleName,
        phase: Option<PhaseName>,
        model: ModelName,
    ) -> Self {
        self.entries.insert((flow, role, phase), model);
        self
    }

    /// Returns the model for roles without an entry.
    #[must_use]
    pub fn default_model(&self) -> &ModelName {
        &self.default_model
    }
}

impl RoleModelResolver for ModelAssignment {
    fn model_for_role(&self, flow: &FlowName, role: &RoleName, phase: Option<&PhaseName>) -> ModelName {
        if self.entries.is_empty() {
            return self.default_model.clone();
        }
        let find = |flow: Option<&FlowName>, phase: Option<&PhaseName>| {
            self.entries.get(&(flow.cloned(), role.clone(), phase.cloned()))
        };
        find(Some(flow), phase)
            .or_else(|| find(Some(flow), None))
            .or_else(|| find(None, phase))
            .or_else(|| find(None, None))
            .unwrap_or(&self.default_model)
            .clone()
    }

    fn fallback_model(&self, flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        let find = |flow: Option<&FlowName>| self.role_fallbacks.get(&(flow.cloned(), role.clone()));
        find(Some(flow)).or_else(|| find(None)).or(self.fallback.as_ref()).cloned()
    }

    fn context_window_tokens(&self, model: &ModelName) -> u32 {
        self.models.card(model).map_or(FALLBACK_WINDOW_TOKENS, |card| card.window_tokens)
    }

    fn signal_form(&self, model: &ModelName) -> SignalForm {
        self.models.card(model).map_or(SignalForm::Structured, |card| card.signal_form)
    }

    fn supports_tool_calls(&self, model: &ModelName) -> bool {
        self.models.card(model).is_ok_and(|card| card.has_tool_calls)
    }
}

impl Engine {
    /// Checks that the roles exist in the flow and the models in the registry.
    pub(crate) fn validate_role_models(
        &self,
        spec: &FlowSpec,
        role_models: &BTreeMap<RoleName, ModelName>,
    ) -> Result<(), Error> {
        for (role, model) in role_models {
            if !spec.roles.contains_key(role) {
                let known = spec.roles.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(InputRefusal::NoSuchRole { role: role.clone(), known }.into());
            }
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        Ok(())
    }
}
