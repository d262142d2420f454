//! Stand-ins for what core is handed: a token counter that counts words, and texts in a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, TextBody};
use segue_core::context::TokenCounter;
use segue_core::flow::BodyTextLookup;

/// Counts words: exact, and easy to reckon with in a test.
#[derive(Debug, Clone, Copy, Default)]
pub struct WordCounter;

impl TokenCounter for WordCounter {
    fn count_tokens(&self, text: &str) -> u32 {
        u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// Texts by id.
#[derive(Debug, Clone, Default)]
pub struct InMemoryTexts {
    texts: BTreeMap<BodyId, Arc<str>>,
}

impl InMemoryTexts {
    /// Adds texts.
    ///
    /// # Panics
    /// A body's id is not the hash of its text.
    pub fn insert_bodies(&mut self, bodies: &[TextBody]) {
        for body in bodies {
            assert_eq!(BodyId::hash_text(&body.text), body.id, "a body's id is the hash of its text");
            self.texts.insert(body.id, body.text.clone());
        }
    }
}

impl InMemoryTexts {
    /// Adds those of another's texts that are named.
    ///
    /// # Panics
    /// The other has no such text.
    pub fn copy_texts(&mut self, ids: &[BodyId], from: &dyn BodyTextLookup) {
        for id in ids {
            self.texts.insert(*id, from.find_text(*id).expect("what is asked for is stored"));
        }
    }
}

impl BodyTextLookup for InMemoryTexts {
    fn find_text(&self, id: BodyId) -> Option<Arc<str>> {
        self.texts.get(&id).cloned()
    }
}
