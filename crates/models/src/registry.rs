//! The configured models by name. Does not decide which model a role uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::ids::ModelName;
use segue_core::prompt::{CallFailure, CallFailureKind};

use crate::card::ModelCard;
use crate::limits::MODEL_NAMES_SHOWN_MAX;
use crate::model::LanguageModel;
use crate::suggest::did_you_mean_suffix;

/// The configured models.
#[derive(Debug, Clone, Default)]
pub struct ModelRegistry {
    named: BTreeMap<ModelName, RegisteredModel>,
    fallback: Option<RegisteredModel>,
}

#[derive(Debug, Clone)]
struct RegisteredModel {
    model: Arc<dyn LanguageModel>,
    card: ModelCard,
}

impl RegisteredModel {
    fn unpriced(model: Arc<dyn LanguageModel>) -> Self {
        let card = ModelCard::unpriced(model.describe().window_tokens);
        Self { model, card }
    }
}

impl ModelRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry in which one model answers to every name, for example to run a whole flow on a simulated model.
    #[must_use]
    pub fn from_single_model(model: Arc<dyn LanguageModel>) -> Self {
        Self { named: BTreeMap::new(), fallback: Some(RegisteredModel::unpriced(model)) }
    }

    /// Adds a model of unknown price, replacing any other of that name.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<ModelName>, model: Arc<dyn LanguageModel>) -> Self {
        self.named.insert(name.into(), RegisteredModel::unpriced(model));
        self
    }

    /// Adds a model with its card, replacing any other of that name.
    #[must_use]
    pub fn with_card(mut self, name: impl Into<ModelName>, model: Arc<dyn LanguageModel>, card: ModelCard) -> Self {
        self.named.insert(name.into(), RegisteredModel { model, card });
        self
    }

    /// Returns the model of that name.
    ///
    /// # Errors
    /// `ModelNotFound`, with the known names and a suggestion.
    pub fn get(&self, name: &ModelName) -> Result<Arc<dyn LanguageModel>, CallFailure> {
        self.find_model(name).map(|entry| Arc::clone(&entry.model))
    }

    /// Returns the card of the model of that name.
    ///
    /// # Errors
    /// `ModelNotFound`, as for [`ModelRegistry::get`].
    pub fn card(&self, name: &ModelName) -> Result<ModelCard, CallFailure> {
        self.find_model(name).map(|entry| entry.card)
    }

    /// Returns every named model with its card, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelName, &Arc<dyn LanguageModel>, ModelCard)> {
        self.named.iter().map(|(name, entry)| (name, &entry.model, entry.card))
    }

    fn find_model(&self, name: &ModelName) -> Result<&RegisteredModel, CallFailure> {
        self.named.get(name).or(self.fallback.as_ref()).ok_or_else(|| self.unknown_model_failure(name))
    }

    fn unknown_model_failure(&self, name: &ModelName) -> CallFailure {
        let mut message = format!("`{name}` is not configured");
        message.push_str(&did_you_mean_suffix(name.as_str(), self.named.keys().map(ModelName::as_str)));
        let shown: Vec<_> = self.named.keys().take(MODEL_NAMES_SHOWN_MAX).map(|known| format!("`{known}`")).collect();
        if shown.is_empty() {
            message.push_str("; no models are configured");
        } else {
            let separator = if message.ends_with('?') { "" } else { ";" };
            message.push_str(&format!("{separator} known models: {}", shown.join(", ")));
        }
        if self.named.len() > shown.len() {
            message.push_str(&format!(" and {} more", self.named.len() - shown.len()));
        }
        CallFailure::new(CallFailureKind::ModelNotFound, message)
    }
}

#[cfg(test)]
mod tests {
    use segue_core::prompt::TokenUsage;

    use super::*;
    use crate::card::TokenPrice;
    use crate::rehearsal::RehearsalModel;

    fn demo_model() -> Arc<dyn LanguageModel> {
        Arc::new(RehearsalModel::instant())
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_a_suggestion() {
        let models = ModelRegistry::new().with_model("gpt-small", demo_model()).with_model("opus", demo_model());
        assert!(models.get(&"opus".into()).is_ok());
        let failure = models.get(&"gpt-smal".into()).expect_err("not there");
        assert_eq!(failure.kind, CallFailureKind::ModelNotFound);
        assert_eq!(
            failure.to_string(),
            "no such model: `gpt-smal` is not configured; did you mean `gpt-small`? known models: `gpt-small`, `opus`"
        );
        assert_eq!(
            ModelRegistry::new().get(&"x".into()).expect_err("none").message,
            "`x` is not configured; no models are configured"
        );
    }

    #[test]
    fn a_long_list_of_names_is_shortened() {
        let models =
            (0..40).fold(ModelRegistry::new(), |models, n| models.with_model(format!("m{n:02}"), demo_model()));
        let message = models.get(&"zzz".into()).expect_err("not there").message;
        assert!(message.ends_with("`m11` and 28 more"), "{message}");
    }

    #[test]
    fn one_model_can_answer_to_every_name() {
        let models = ModelRegistry::from_single_model(demo_model());
        assert!(models.get(&"any".into()).is_ok());
        assert_eq!(models.card(&"any".into()).expect("known").price, None);
    }

    #[test]
    fn a_given_card_is_used() {
        let price = TokenPrice::flat(1_000_000, 0, 0);
        let card = ModelCard { price: Some(price), ..ModelCard::unpriced(7) };
        let models = ModelRegistry::new().with_card("m", demo_model(), card);
        let found = models.card(&"m".into()).expect("known");
        assert_eq!(
            (found.window_tokens, found.cost(TokenUsage { input_tokens: 9, ..TokenUsage::default() })),
            (7, Some(9))
        );
        assert_eq!(models.iter().count(), 1);
    }
}
