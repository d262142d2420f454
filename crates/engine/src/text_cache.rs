//! Texts of one session kept at hand, so that prompts are put together without asking the store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use segue_core::body::{BodyId, TextBody};
use segue_core::flow::BodyTextLookup;
use segue_core::ids::ThreadId;
use segue_core::prompt::Prompt;
use segue_core::session::{PromptPlan, Session, ThreadPromptCache};

use crate::limits::CACHED_TEXT_BYTES_MAX;

/// Texts by id.
#[derive(Debug, Default)]
pub(crate) struct TextCache {
    texts: HashMap<BodyId, Arc<str>, BuildHasherDefault<BodyIdHasher>>,
    bytes: usize,
    /// What each thread was last sent that goes on.
    rendered_threads: BTreeMap<ThreadId, ThreadPromptCache>,
}

/// An id is a hash already: its first bytes will do.
#[derive(Debug, Default)]
struct BodyIdHasher(u64);

impl Hasher for BodyIdHasher {
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

impl TextCache {
    /// Of a text that is here already, the first copy stays: prompts may hold it.
    pub fn insert(&mut self, id: BodyId, text: Arc<str>) {
        if let Entry::Vacant(place) = self.texts.entry(id) {
            self.bytes += text.len();
            place.insert(text);
        }
    }

    pub fn insert_bodies(&mut self, bodies: &[TextBody]) {
        for body in bodies {
            self.insert(body.id, body.text.clone());
        }
    }

    /// The prompt of a call, if all its texts are here.
    pub fn render_prompt(&mut self, plan: &PromptPlan) -> Result<Prompt, BodyId> {
        let receipt = &plan.opened.receipt;
        // As a rule a thread that holds nothing yet ends with its call.
        if receipt.carried.entries == 0 {
            return plan.resolve_prompt(self);
        }
        let thread = receipt.thread.thread_id();
        let mut filled = self.rendered_threads.remove(&thread).unwrap_or_default();
        let prompt = plan.resolve_prompt_cached(&mut filled, self);
        self.rendered_threads.insert(thread, filled);
        prompt
    }

    pub fn missing_ids(&self, ids: impl IntoIterator<Item = BodyId>) -> Vec<BodyId> {
        ids.into_iter().filter(|id| !self.texts.contains_key(id)).collect()
    }

    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Lets go of what no prompt will need, of texts once there is a lot of them.
    pub fn evict_unneeded(&mut self, session: &Session) {
        self.rendered_threads.retain(|thread, _| session.threads.contains_key(thread));
        if self.bytes <= CACHED_TEXT_BYTES_MAX {
            return;
        }
        let needed = bodies_needed_by(session);
        // They hold texts that are let go here.
        self.rendered_threads.clear();
        self.texts.retain(|id, _| needed.contains(id));
        self.bytes = self.texts.values().map(|text| text.len()).sum();
    }
}

impl BodyTextLookup for TextCache {
    fn find_text(&self, id: BodyId) -> Option<Arc<str>> {
        self.texts.get(&id).cloned()
    }
}

fn bodies_needed_by(session: &Session) -> BTreeSet<BodyId> {
    let threads = session.threads.values().flat_map(|thread| {
        let opening = thread.opening.iter().map(|(_, text)| text.body);
        opening.chain(thread.entries.iter().flat_map(|entry| entry.parts.iter().map(|text| text.body)))
    });
    let waiting = session.queued_messages.iter().chain(session.current_turn.iter().flat_map(|turn| &turn.messages));
    threads.chain(waiting.map(|waiting| waiting.text.body)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_text_that_comes_again_the_first_copy_stays_and_is_counted_once() {
        let (mut shelf, id) = (TextCache::default(), BodyId::hash_text("hello"));
        let first: Arc<str> = "hello".into();
        shelf.insert(id, first.clone());
        shelf.insert(id, "hello".into());
        assert!(shelf.find_text(id).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert_eq!(
            (shelf.byte_len(), shelf.missing_ids([id, BodyId::hash_text("other")])),
            (5, vec![BodyId::hash_text("other")])
        );
    }
}
