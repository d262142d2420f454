//! Which models there are, by the names the configuration gives them. Decides nothing about which one a role uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::ids::ModelName;
use segue_core::prompt::{CallFailure, FailureKind};

use crate::card::ModelCard;
use crate::limits::MODEL_NAMES_SHOWN_MAX;
use crate::model::LanguageModel;
use crate::suggest::did_you_mean_suffix;

/// The models at hand.
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
    /// No models.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One model that answers to every name: how a whole flow is run on a stand-in.
    #[must_use]
    pub fn from_single_model(model: Arc<dyn LanguageModel>) -> Self {
        Self { named: BTreeMap::new(), fallback: Some(RegisteredModel::unpriced(model)) }
    }

    /// Adds a model of unknown price, in place of any other of that name.
    #[must_use]
    pub fn with_model(mut self, name: impl Into<ModelName>, model: Arc<dyn LanguageModel>) -> Self {
        self.named.insert(name.into(), RegisteredModel::unpriced(model));
        self
    }

    /// Adds a model with its card, in place of any other of that name.
    #[must_use]
    pub fn with_card(mut self, name: impl Into<ModelName>, model: Arc<dyn LanguageModel>, card: ModelCard) -> Self {
        self.named.insert(name.into(), RegisteredModel { model, card });
        self
    }

    /// The model of that name.
    ///
    /// # Errors
    /// `NoSuchModel`, naming the models there are and the one probably meant.
    pub fn get(&self, name: &ModelName) -> Result<Arc<dyn LanguageModel>, CallFailure> {
        self.find_model(name).map(|entry| Arc::clone(&entry.model))
    }

    /// The card of the model of that name.
    ///
    /// # Errors
    /// `NoSuchModel`, as [`Models::get`].
    pub fn card(&self, name: &ModelName) -> Result<ModelCard, CallFailure> {
        self.find_model(name).map(|entry| entry.card)
    }

    /// Every named model, by name.
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
        CallFailure::new(FailureKind::ModelNotFound, message)
    }
}

#[cfg(test)]
mod tests {
    use segue_core::prompt::TokenUsage;

    use super::*;
    use crate::card::TokenPrice;
    use crate::rehearsal::RehearsalModel;

    fn stand_in() -> Arc<dyn LanguageModel> {
        Arc::new(RehearsalModel::instant())
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones_and_the_likely_one() {
        let models = ModelRegistry::new().with_model("gpt-small", stand_in()).with_model("opus", stand_in());
        assert!(models.get(&"opus".into()).is_ok());
        let failure = models.get(&"gpt-smal".into()).expect_err("not there");
        assert_eq!(failure.kind, FailureKind::ModelNotFound);
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
        let models = (0..40).fold(ModelRegistry::new(), |models, n| models.with_model(format!("m{n:02}"), stand_in()));
        let message = models.get(&"zzz".into()).expect_err("not there").message;
        assert!(message.ends_with("`m11` and 28 more"), "{message}");
    }

    #[test]
    fn one_model_can_answer_to_every_name() {
        let models = ModelRegistry::from_single_model(stand_in());
        assert!(models.get(&"whatever".into()).is_ok());
        assert_eq!(models.card(&"whatever".into()).expect("known").price, None);
    }

    #[test]
    fn a_card_given_is_the_card_used() {
        let price = TokenPrice::flat(1_000_000, 0, 0);
        let card = ModelCard { window_tokens: 7, price: Some(price) };
        let models = ModelRegistry::new().with_card("m", stand_in(), card);
        let found = models.card(&"m".into()).expect("known");
        assert_eq!(
            (found.window_tokens, found.cost(TokenUsage { input_tokens: 9, ..TokenUsage::default() })),
            (7, Some(9))
        );
        assert_eq!(models.iter().count(), 1);
    }
}
