//! Which models there are, by the names the configuration gives them. Decides nothing about which one a role uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::ids::ModelName;
use segue_core::prompt::{Failure, FailureKind};

use crate::card::ModelCard;
use crate::limits::NAMES_SHOWN_MAX;
use crate::model::Model;
use crate::suggest::did_you_mean;

/// The models at hand.
#[derive(Debug, Clone, Default)]
pub struct Models {
    named: BTreeMap<ModelName, Entry>,
    otherwise: Option<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    model: Arc<dyn Model>,
    card: ModelCard,
}

impl Entry {
    fn unpriced(model: Arc<dyn Model>) -> Self {
        let card = ModelCard::unpriced(model.describe().window_tokens);
        Self { model, card }
    }
}

impl Models {
    /// No models.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One model that answers to every name: how a whole flow is run on a stand-in.
    #[must_use]
    pub fn only(model: Arc<dyn Model>) -> Self {
        Self { named: BTreeMap::new(), otherwise: Some(Entry::unpriced(model)) }
    }

    /// Adds a model of unknown price, in place of any other of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<ModelName>, model: Arc<dyn Model>) -> Self {
        self.named.insert(name.into(), Entry::unpriced(model));
        self
    }

    /// Adds a model with its card, in place of any other of that name.
    #[must_use]
    pub fn with_card(mut self, name: impl Into<ModelName>, model: Arc<dyn Model>, card: ModelCard) -> Self {
        self.named.insert(name.into(), Entry { model, card });
        self
    }

    /// The model of that name.
    ///
    /// # Errors
    /// `NoSuchModel`, naming the models there are and the one probably meant.
    pub fn get(&self, name: &ModelName) -> Result<Arc<dyn Model>, Failure> {
        self.entry(name).map(|entry| Arc::clone(&entry.model))
    }

    /// The card of the model of that name.
    ///
    /// # Errors
    /// `NoSuchModel`, as [`Models::get`].
    pub fn card(&self, name: &ModelName) -> Result<ModelCard, Failure> {
        self.entry(name).map(|entry| entry.card)
    }

    /// Every named model, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelName, &Arc<dyn Model>, ModelCard)> {
        self.named.iter().map(|(name, entry)| (name, &entry.model, entry.card))
    }

    fn entry(&self, name: &ModelName) -> Result<&Entry, Failure> {
        self.named.get(name).or(self.otherwise.as_ref()).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &ModelName) -> Failure {
        let mut message = format!("`{name}` is not configured");
        message.push_str(&did_you_mean(name.as_str(), self.named.keys().map(ModelName::as_str)));
        let shown: Vec<_> = self.named.keys().take(NAMES_SHOWN_MAX).map(|known| format!("`{known}`")).collect();
        if shown.is_empty() {
            message.push_str("; no models are configured");
        } else {
            let separator = if message.ends_with('?') { "" } else { ";" };
            message.push_str(&format!("{separator} known models: {}", shown.join(", ")));
        }
        if self.named.len() > shown.len() {
            message.push_str(&format!(" and {} more", self.named.len() - shown.len()));
        }
        Failure::new(FailureKind::NoSuchModel, message)
    }
}

#[cfg(test)]
mod tests {
    use segue_core::prompt::Usage;

    use super::*;
    use crate::card::Price;
    use crate::rehearsal::Rehearsal;

    fn stand_in() -> Arc<dyn Model> {
        Arc::new(Rehearsal::instant())
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones_and_the_likely_one() {
        let models = Models::new().with("gpt-small", stand_in()).with("opus", stand_in());
        assert!(models.get(&"opus".into()).is_ok());
        let failure = models.get(&"gpt-smal".into()).expect_err("not there");
        assert_eq!(failure.kind, FailureKind::NoSuchModel);
        assert_eq!(
            failure.to_string(),
            "no such model: `gpt-smal` is not configured; did you mean `gpt-small`? known models: `gpt-small`, `opus`"
        );
        assert_eq!(
            Models::new().get(&"x".into()).expect_err("none").message,
            "`x` is not configured; no models are configured"
        );
    }

    #[test]
    fn a_long_list_of_names_is_shortened() {
        let models = (0..40).fold(Models::new(), |models, n| models.with(format!("m{n:02}"), stand_in()));
        let message = models.get(&"zzz".into()).expect_err("not there").message;
        assert!(message.ends_with("`m11` and 28 more"), "{message}");
    }

    #[test]
    fn one_model_can_answer_to_every_name() {
        let models = Models::only(stand_in());
        assert!(models.get(&"whatever".into()).is_ok());
        assert_eq!(models.card(&"whatever".into()).expect("known").price, None);
    }

    #[test]
    fn a_card_given_is_the_card_used() {
        let price = Price::plain(1_000_000, 0, 0);
        let card = ModelCard { window_tokens: 7, price: Some(price) };
        let models = Models::new().with_card("m", stand_in(), card);
        let found = models.card(&"m".into()).expect("known");
        assert_eq!((found.window_tokens, found.cost(Usage { input: 9, ..Usage::default() })), (7, Some(9)));
        assert_eq!(models.iter().count(), 1);
    }
}
