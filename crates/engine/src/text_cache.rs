//! The cached texts of one session, so that prompts are rendered without reading the store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use segue_core::body::{BodyId, TextToStore};
use segue_core::flow::BodyTextLookup;
use segue_core::ids::ThreadId;
use segue_core::prompt::Prompt;
use segue_core::session::{Session, ThreadPromptCache, UnloadedPrompt};

use crate::limits::CACHED_TEXT_BYTES_MAX;

/// Cached texts by id, and rendered thread prefixes.
#[derive(Debug, Default)]
pub(crate) struct TextCache {
    texts: HashMap<BodyId, Arc<str>, BuildHasherDefault<BodyIdIdentityHasher>>,
    bytes: usize,
    /// The rendered messages of threads that continue.
    rendered_threads: BTreeMap<ThreadId, ThreadPromptCache>,
}

/// Uses the first bytes of a body id, which is a hash already.
#[derive(Debug, Default)]
struct BodyIdIdentityHasher(u64);

impl Hasher for BodyIdIdentityHasher {
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
    /// Adds a text. If it is cached already, the first copy stays, because prompts may share it.
    pub(crate) fn insert(&mut self, id: BodyId, text: Arc<str>) {
        if let Entry::Vacant(entry) = self.texts.entry(id) {
            self.bytes += text.len();
            entry.insert(text);
        }
    }

    pub(crate) fn insert_bodies(&mut self, bodies: &[TextToStore]) {
        for body in bodies {
            self.insert(body.id, body.text.clone());
        }
    }

    /// Renders the prompt of a call, if all its texts are cached.
    pub(crate) fn render_prompt(&mut self, plan: &UnloadedPrompt) -> Result<Prompt, BodyId> {
        let receipt = &plan.opened.receipt;
        // A thread without entries usually ends with its first call, so there is nothing to cache.
        if receipt.carried.entries == 0 {
            return plan.resolve_prompt(&mut ThreadPromptCache::default(), self);
        }
        let thread = receipt.thread.thread_id();
        let mut rendered = self.rendered_threads.remove(&thread).unwrap_or_default();
        let prompt = plan.resolve_prompt(&mut rendered, self);
        self.rendered_threads.insert(thread, rendered);
        prompt
    }

    pub(crate) fn missing_ids(&self, ids: impl IntoIterator<Item = BodyId>) -> Vec<BodyId> {
        ids.into_iter().filter(|id| !self.texts.contains_key(id)).collect()
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Evicts rendered threads that have ended, and texts that no prompt needs once there are too many bytes.
    pub(crate) fn evict_unneeded_texts(&mut self, session: &Session) {
        self.rendered_threads.retain(|thread, _| session.threads.contains_key(thread));
        if self.bytes <= CACHED_TEXT_BYTES_MAX {
            return;
        }
        let needed = session.prompt_text_ids();
        // These hold on to texts that are evicted here.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_inserted_twice_keeps_its_first_copy_and_is_counted_once() {
        let (mut cache, id) = (TextCache::default(), BodyId::hash_text("hello"));
        let first: Arc<str> = "hello".into();
        cache.insert(id, first.clone());
        cache.insert(id, "hello".into());
        assert!(cache.find_text(id).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert_eq!(
            (cache.byte_len(), cache.missing_ids([id, BodyId::hash_text("other")])),
            (5, vec![BodyId::hash_text("other")])
        );
    }
}
