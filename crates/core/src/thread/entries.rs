//! The messages of a thread, kept so that a copy costs next to nothing, and adding to a copy little more: of a long thread
//! nothing but the end is touched.

use std::iter::Chain;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Entry;
use crate::limits::NEWEST_ENTRIES_MAX;

/// Messages, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    shared: imbl::Vector<Arc<Entry>>,
    newest: Vec<Arc<Entry>>,
}

impl Entries {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len() + self.newest.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at a place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&Arc<Entry>> {
        match place.checked_sub(self.shared.len()) {
            Some(place) => self.newest.get(place),
            None => self.shared.get(place),
        }
    }

    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.get(0)
    }

    /// All of them.
    pub fn iter(&self) -> Iter<'_> {
        self.shared.iter().chain(&self.newest)
    }

    /// Adds one.
    pub fn push(&mut self, entry: Arc<Entry>) {
        if self.newest.len() == NEWEST_ENTRIES_MAX {
            self.shared.extend(self.newest.drain(..));
        }
        self.newest.push(entry);
    }
}

/// Goes through messages, oldest first.
pub type Iter<'e> =
    Chain<imbl::vector::Iter<'e, Arc<Entry>, imbl::shared_ptr::DefaultSharedPtr>, slice::Iter<'e, Arc<Entry>>>;

impl<'e> IntoIterator for &'e Entries {
    type Item = &'e Arc<Entry>;
    type IntoIter = Iter<'e>;

    fn into_iter(self) -> Iter<'e> {
        self.iter()
    }
}

impl FromIterator<Arc<Entry>> for Entries {
    fn from_iter<I: IntoIterator<Item = Arc<Entry>>>(entries: I) -> Self {
        Self { shared: entries.into_iter().collect(), newest: Vec::new() }
    }
}

impl Index<usize> for Entries {
    type Output = Arc<Entry>;

    fn index(&self, place: usize) -> &Arc<Entry> {
        self.get(place).expect("a place that is there")
    }
}

/// The same messages, wherever they lie.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Arc<Entry>>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CallId;
    use crate::prompt::Speaker;

    fn entry(call: u32) -> Arc<Entry> {
        Arc::new(Entry::silent(CallId(call), Speaker::User))
    }

    #[test]
    fn what_is_added_stands_at_its_place_and_a_copy_knows_nothing_of_it() {
        let mut entries = Entries::default();
        let mut copies = Vec::new();
        for call in 0..50 {
            copies.push(entries.clone());
            entries.push(entry(call));
        }
        for (length, copy) in copies.iter().enumerate() {
            assert_eq!((copy.len(), copy.is_empty()), (length, length == 0));
            assert!(copy.iter().eq(entries.iter().take(length)), "{length}");
            assert!(copy.get(length).is_none());
            assert_eq!(*copy, (0..).map(entry).take(length).collect(), "made at once");
        }
        assert_eq!((entries[7].call, entries[8].call, entries[49].call), (CallId(7), CallId(8), CallId(49)));
        let written = serde_json::to_string(&entries).expect("no key could fail");
        assert_eq!(serde_json::from_str::<Entries>(&written).expect("as written"), entries);
    }
}
