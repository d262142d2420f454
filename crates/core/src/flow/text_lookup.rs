//! Looks up texts for decisions, which must not perform I/O. A decision that needs a text which is not loaded reports
//! it and is repeated once it is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::body::BodyId;

/// Finds loaded texts. Must give the same results throughout one decision.
pub trait BodyTextLookup {
    /// Returns the text with this id, if it is loaded.
    fn find_text(&self, id: BodyId) -> Option<Arc<str>>;
}

/// The texts that a decision can read: those it creates and those that are loaded. Records the ids of missing texts, so
/// that the decision can be repeated with them.
pub struct DecisionTextResolver<'a> {
    pub(crate) created: BTreeMap<BodyId, Arc<str>>,
    lookup: &'a dyn BodyTextLookup,
    missing: RefCell<BTreeSet<BodyId>>,
}

impl fmt::Debug for DecisionTextResolver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionTextResolver")
            .field("created", &self.created.len())
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl<'a> DecisionTextResolver<'a> {
    /// Creates a resolver over loaded texts.
    #[must_use]
    pub fn new(lookup: &'a dyn BodyTextLookup) -> Self {
        Self { created: BTreeMap::new(), lookup, missing: RefCell::default() }
    }

    /// Returns the text, or an empty one if it is missing. The decision is then repeated with the text loaded.
    #[must_use]
    pub(crate) fn resolve_or_mark_missing(&self, id: BodyId) -> Arc<str> {
        if let Some(text) = self.created.get(&id) {
            return text.clone();
        }
        self.lookup.find_text(id).unwrap_or_else(|| {
            self.missing.borrow_mut().insert(id);
            "".into()
        })
    }

    /// Returns the ids of texts that were requested but not loaded.
    #[must_use]
    pub fn missing_ids(&self) -> Vec<BodyId> {
        self.missing.borrow().iter().copied().collect()
    }
}
