//! Stand-ins for what core is handed: a token counter that counts words, and texts in a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{Body, BodyId};
use segue_core::context::Count;
use segue_core::flow::Lookup;

/// Counts words: exact, and easy to reckon with in a test.
#[derive(Debug, Clone, Copy, Default)]
pub struct Words;

impl Count for Words {
    fn count(&self, text: &str) -> u32 {
        u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// Texts by id.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    texts: BTreeMap<BodyId, Arc<str>>,
}

impl Shelf {
    /// Adds texts.
    ///
    /// # Panics
    /// A body's id is not the hash of its text.
    pub fn put(&mut self, bodies: &[Body]) {
        for body in bodies {
            assert_eq!(BodyId::of(&body.text), body.id, "a body's id is the hash of its text");
            self.texts.insert(body.id, body.text.clone());
        }
    }
}

impl Shelf {
    /// Adds those of another's texts that are named.
    ///
    /// # Panics
    /// The other has no such text.
    pub fn fetch(&mut self, ids: &[BodyId], from: &dyn Lookup) {
        for id in ids {
            self.texts.insert(*id, from.find(*id).expect("what is asked for is stored"));
        }
    }
}

impl Lookup for Shelf {
    fn find(&self, id: BodyId) -> Option<Arc<str>> {
        self.texts.get(&id).cloned()
    }
}
