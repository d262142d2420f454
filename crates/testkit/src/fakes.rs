//! Test doubles for core's inputs: a token counter that counts words, texts in memory, and the choice of models.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, TextToStore};
use segue_core::context::TokenCounter;
use segue_core::decide::RoleModelResolver;
use segue_core::flow::BodyTextLookup;
use segue_core::ids::{FlowName, ModelName, PhaseName, RoleName};
use segue_core::signal::SignalForm;

use crate::harness::TEST_MODEL;

/// Counts words as tokens, which makes token numbers easy to predict.
#[derive(Debug, Clone, Copy, Default)]
pub struct WordCounter;

impl TokenCounter for WordCounter {
    fn count_tokens(&self, text: &str) -> u32 {
        u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// Texts in memory.
#[derive(Debug, Clone, Default)]
pub struct InMemoryTexts {
    texts: BTreeMap<BodyId, Arc<str>>,
}

impl InMemoryTexts {
    /// Adds texts.
    ///
    /// # Panics
    /// Panics if the id of a body is not the hash of its text.
    pub fn insert_bodies(&mut self, bodies: &[TextToStore]) {
        for body in bodies {
            assert_eq!(BodyId::hash_text(&body.text), body.id, "a body's id is the hash of its text");
            self.texts.insert(body.id, body.text.clone());
        }
    }
}

impl InMemoryTexts {
    /// Copies texts from another lookup.
    ///
    /// # Panics
    /// Panics if a text is missing there.
    pub fn copy_texts(&mut self, ids: &[BodyId], from: &dyn BodyTextLookup) {
        for id in ids {
            self.texts.insert(*id, from.find_text(*id).expect("the text is stored"));
        }
    }
}

impl BodyTextLookup for InMemoryTexts {
    fn find_text(&self, id: BodyId) -> Option<Arc<str>> {
        self.texts.get(&id).cloned()
    }
}

/// The models of a session under test.
#[derive(Debug, Clone)]
pub(crate) struct TestModelSelector {
    pub(crate) models: BTreeMap<RoleName, ModelName>,
    pub(crate) fallbacks: BTreeMap<RoleName, ModelName>,
    pub(crate) window: u32,
    pub(crate) windows: BTreeMap<ModelName, u32>,
    pub(crate) structured_models: BTreeSet<ModelName>,
    pub(crate) models_without_tools: BTreeSet<ModelName>,
}

impl TestModelSelector {
    pub(crate) fn new() -> Self {
        Self {
            models: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            window: 100_000,
            windows: BTreeMap::new(),
            structured_models: BTreeSet::new(),
            models_without_tools: BTreeSet::new(),
        }
    }
}

impl RoleModelResolver for TestModelSelector {
    fn model_for_role(&self, _flow: &FlowName, role: &RoleName, _phase: Option<&PhaseName>) -> ModelName {
        self.models.get(role).cloned().unwrap_or_else(|| TEST_MODEL.into())
    }

    fn context_window_tokens(&self, model: &ModelName) -> u32 {
        self.windows.get(model).copied().unwrap_or(self.window)
    }

    fn signal_form(&self, model: &ModelName) -> SignalForm {
        if self.structured_models.contains(model) { SignalForm::Structured } else { SignalForm::Inline }
    }

    fn supports_tool_calls(&self, model: &ModelName) -> bool {
        !self.models_without_tools.contains(model)
    }

    fn fallback_model(&self, _flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        self.fallbacks.get(role).cloned()
    }
}
