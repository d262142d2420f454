//! Texts by id, for a decision that must not do I/O: what is not at hand is asked for, and the decision taken anew.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::body::BodyId;

/// Finds stored texts. The engine hands one in; it must not change its mind within one decision.
pub trait BodyTextLookup {
    /// The text with this id, if it is at hand.
    fn find_text(&self, id: BodyId) -> Option<Arc<str>>;
}

/// Texts a decision can read: those it makes, and those at hand. It notes which were wanted and not at hand, so that the
/// decision can be taken anew once they are.
pub struct TextResolver<'a> {
    pub(crate) created: BTreeMap<BodyId, Arc<str>>,
    lookup: &'a dyn BodyTextLookup,
    missing: RefCell<BTreeSet<BodyId>>,
}

impl fmt::Debug for TextResolver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts")
            .field("new", &self.created.len())
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl<'a> TextResolver<'a> {
    /// Texts at hand.
    #[must_use]
    pub fn new(lookup: &'a dyn BodyTextLookup) -> Self {
        Self { created: BTreeMap::new(), lookup, missing: RefCell::default() }
    }

    /// The words, or nothing for the time being: the decision is then taken anew with them at hand.
    #[must_use]
    pub fn resolve(&self, id: BodyId) -> Arc<str> {
        if let Some(text) = self.created.get(&id) {
            return text.clone();
        }
        self.lookup.find_text(id).unwrap_or_else(|| {
            self.missing.borrow_mut().insert(id);
            "".into()
        })
    }

    /// Those that were wanted and not at hand.
    #[must_use]
    pub fn missing_ids(&self) -> Vec<BodyId> {
        self.missing.borrow().iter().copied().collect()
    }
}
