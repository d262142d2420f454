//! Test doubles for core's inputs: a token counter that counts words, and texts in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, TextToStore};
use segue_core::context::TokenCounter;
use segue_core::flow::BodyTextLookup;

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
