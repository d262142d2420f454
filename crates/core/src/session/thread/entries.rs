//! Stores the messages of a thread so that copies are cheap, and so is appending to a copy: only the end of a long
//! thread is touched.

use std::iter::Chain;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ThreadMessage;
use crate::limits::UNSHARED_ENTRIES_MAX;

/// The messages of a thread, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadMessageList {
    shared: imbl::Vector<Arc<ThreadMessage>>,
    newest: Vec<Arc<ThreadMessage>>,
}

impl ThreadMessageList {
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.shared.len() + self.newest.len()
    }

    /// Returns the message at `index`.
    #[must_use]
    pub(crate) fn get(&self, index: usize) -> Option<&Arc<ThreadMessage>> {
        match index.checked_sub(self.shared.len()) {
            Some(index) => self.newest.get(index),
            None => self.shared.get(index),
        }
    }

    /// Returns the oldest message.
    #[must_use]
    pub(crate) fn first(&self) -> Option<&Arc<ThreadMessage>> {
        self.get(0)
    }

    /// Iterates over all messages, oldest first.
    pub(crate) fn iter(&self) -> ThreadMessageIter<'_> {
        self.shared.iter().chain(&self.newest)
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, entry: Arc<ThreadMessage>) {
        if self.newest.len() == UNSHARED_ENTRIES_MAX {
            self.shared.extend(self.newest.drain(..));
        }
        self.newest.push(entry);
    }
}

/// An iterator over the messages of a thread, oldest first.
pub(crate) type ThreadMessageIter<'e> = Chain<
    imbl::vector::Iter<'e, Arc<ThreadMessage>, imbl::shared_ptr::DefaultSharedPtr>,
    slice::Iter<'e, Arc<ThreadMessage>>,
>;

impl<'e> IntoIterator for &'e ThreadMessageList {
    type Item = &'e Arc<ThreadMessage>;
    type IntoIter = ThreadMessageIter<'e>;

    fn into_iter(self) -> ThreadMessageIter<'e> {
        self.iter()
    }
}

impl FromIterator<Arc<ThreadMessage>> for ThreadMessageList {
    fn from_iter<I: IntoIterator<Item = Arc<ThreadMessage>>>(entries: I) -> Self {
        Self { shared: entries.into_iter().collect(), newest: Vec::new() }
    }
}

impl Index<usize> for ThreadMessageList {
    type Output = Arc<ThreadMessage>;

    fn index(&self, index: usize) -> &Arc<ThreadMessage> {
        self.get(index).expect("the index is in range")
    }
}

/// Compares the messages, not how they are stored.
impl PartialEq for ThreadMessageList {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl Serialize for ThreadMessageList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for ThreadMessageList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Arc<ThreadMessage>>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CallId;
    use crate::prompt::ChatRole;

    fn entry(call: u32) -> Arc<ThreadMessage> {
        Arc::new(ThreadMessage::empty(CallId(call), ChatRole::User))
    }

    #[test]
    fn appended_messages_are_in_order_and_copies_do_not_change() {
        let mut entries = ThreadMessageList::default();
        let mut copies = Vec::new();
        for call in 0..50 {
            copies.push(entries.clone());
            entries.push(entry(call));
        }
        for (length, copy) in copies.iter().enumerate() {
            assert_eq!(copy.len(), length);
            assert!(copy.iter().eq(entries.iter().take(length)), "{length}");
            assert!(copy.get(length).is_none());
            assert_eq!(*copy, (0..).map(entry).take(length).collect(), "made at once");
        }
        assert_eq!((entries[7].call, entries[8].call, entries[49].call), (CallId(7), CallId(8), CallId(49)));
        let written = serde_json::to_string(&entries).expect("no key could fail");
        assert_eq!(serde_json::from_str::<ThreadMessageList>(&written).expect("as written"), entries);
    }
}
