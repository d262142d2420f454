//! Texts of one session kept at hand, so that prompts are put together without asking the store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use segue_core::body::{Body, BodyId};
use segue_core::flow::Lookup;
use segue_core::ids::ThreadId;
use segue_core::prompt::Prompt;
use segue_core::session::{Filled, Plan, Session};

use crate::limits::TEXT_BYTES_MAX;

/// Texts by id.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    texts: HashMap<BodyId, Arc<str>, BuildHasherDefault<Prefix>>,
    bytes: usize,
    /// What each thread was last sent that goes on.
    filled: BTreeMap<ThreadId, Filled>,
}

/// An id is a hash already: its first bytes will do.
#[derive(Debug, Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(prefix) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*prefix);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Shelf {
    /// Of a text that is here already, the first copy stays: prompts may hold it.
    pub fn put(&mut self, id: BodyId, text: Arc<str>) {
        if let Entry::Vacant(place) = self.texts.entry(id) {
            self.bytes += text.len();
            place.insert(text);
        }
    }

    pub fn put_all(&mut self, bodies: &[Body]) {
        for body in bodies {
            self.put(body.id, body.text.clone());
        }
    }

    /// The prompt of a call, if all its texts are here.
    pub fn fill(&mut self, plan: &Plan) -> Result<Prompt, BodyId> {
        let receipt = &plan.opened.receipt;
        // As a rule a thread that holds nothing yet ends with its call.
        if receipt.carried.entries == 0 {
            return plan.fill(self);
        }
        let thread = receipt.thread.thread();
        let mut filled = self.filled.remove(&thread).unwrap_or_default();
        let prompt = plan.fill_on(&mut filled, self);
        self.filled.insert(thread, filled);
        prompt
    }

    pub fn missing(&self, ids: impl IntoIterator<Item = BodyId>) -> Vec<BodyId> {
        ids.into_iter().filter(|id| !self.texts.contains_key(id)).collect()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Lets go of what no prompt will need, of texts once there is a lot of them.
    pub fn prune(&mut self, session: &Session) {
        self.filled.retain(|thread, _| session.threads.contains_key(thread));
        if self.bytes <= TEXT_BYTES_MAX {
            return;
        }
        let needed = needed(session);
        // They hold texts that are let go here.
        self.filled.clear();
        self.texts.retain(|id, _| needed.contains(id));
        self.bytes = self.texts.values().map(|text| text.len()).sum();
    }
}

impl Lookup for Shelf {
    fn find(&self, id: BodyId) -> Option<Arc<str>> {
        self.texts.get(&id).cloned()
    }
}

fn needed(session: &Session) -> BTreeSet<BodyId> {
    let threads = session.threads.values().flat_map(|thread| {
        let opening = thread.opening.iter().map(|(_, text)| text.body);
        opening.chain(thread.entries.iter().flat_map(|entry| entry.parts.iter().map(|text| text.body)))
    });
    let waiting = session.queue.iter().chain(session.turn.iter().flat_map(|turn| &turn.messages));
    threads.chain(waiting.map(|waiting| waiting.text.body)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_text_that_comes_again_the_first_copy_stays_and_is_counted_once() {
        let (mut shelf, id) = (Shelf::default(), BodyId::of("hello"));
        let first: Arc<str> = "hello".into();
        shelf.put(id, first.clone());
        shelf.put(id, "hello".into());
        assert!(shelf.find(id).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert_eq!((shelf.bytes(), shelf.missing([id, BodyId::of("other")])), (5, vec![BodyId::of("other")]));
    }
}
