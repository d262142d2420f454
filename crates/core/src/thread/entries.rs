//! The messages of a thread, kept so that a copy costs next to nothing, and adding to a copy little more: of a long thread
//! nothing but the end is touched.

use std::iter::Chain;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ThreadEntry;
use crate::limits::UNSHARED_ENTRIES_MAX;

/// Messages, oldest first.
#[derive(Debug, Clone, Default)]
pub struct ThreadEntries {
    shared: imbl::Vector<Arc<ThreadEntry>>,
    newest: Vec<Arc<ThreadEntry>>,
}

impl ThreadEntries {
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
    pub fn get(&self, index: usize) -> Option<&Arc<ThreadEntry>> {
        match index.checked_sub(self.shared.len()) {
            Some(place) => self.newest.get(place),
            None => self.shared.get(index),
        }
    }

    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<ThreadEntry>> {
        self.get(0)
    }

    /// All of them.
    pub fn iter(&self) -> ThreadEntriesIter<'_> {
        self.shared.iter().chain(&self.newest)
    }

    /// Adds one.
    pub fn push(&mut self, entry: Arc<ThreadEntry>) {
        if self.newest.len() == UNSHARED_ENTRIES_MAX {
            self.shared.extend(self.newest.drain(..));
        }
        self.newest.push(entry);
    }
}

/// Goes through messages, oldest first.
pub type ThreadEntriesIter<'e> = Chain<
    imbl::vector::Iter<'e, Arc<ThreadEntry>, imbl::shared_ptr::DefaultSharedPtr>,
    slice::Iter<'e, Arc<ThreadEntry>>,
>;

impl<'e> IntoIterator for &'e ThreadEntries {
    type Item = &'e Arc<ThreadEntry>;
    type IntoIter = ThreadEntriesIter<'e>;

    fn into_iter(self) -> ThreadEntriesIter<'e> {
        self.iter()
    }
}

impl FromIterator<Arc<ThreadEntry>> for ThreadEntries {
    fn from_iter<I: IntoIterator<Item = Arc<ThreadEntry>>>(entries: I) -> Self {
        Self { shared: entries.into_iter().collect(), newest: Vec::new() }
    }
}

impl Index<usize> for ThreadEntries {
    type Output = Arc<ThreadEntry>;

    fn index(&self, place: usize) -> &Arc<ThreadEntry> {
        self.get(place).expect("a place that is there")
    }
}

/// The same messages, wherever they lie.
impl PartialEq for ThreadEntries {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl Serialize for ThreadEntries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for ThreadEntries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Arc<ThreadEntry>>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CallId;
    use crate::prompt::ChatRole;

    fn entry(call: u32) -> Arc<ThreadEntry> {
        Arc::new(ThreadEntry::empty(CallId(call), ChatRole::User))
    }

    #[test]
    fn what_is_added_stands_at_its_place_and_a_copy_knows_nothing_of_it() {
        let mut entries = ThreadEntries::default();
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
        assert_eq!(serde_json::from_str::<ThreadEntries>(&written).expect("as written"), entries);
    }
}
