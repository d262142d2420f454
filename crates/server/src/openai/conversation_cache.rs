//! Caches in which session each conversation is, and which replies were delivered. Entries may be lost: then the session is
//! searched for, and a reply counts as not delivered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use segue_core::body::BodyId;
use segue_core::ids::SessionId;

use super::transcript::ReplyKey;
use crate::limits::{CONVERSATIONS_CACHED_MAX, SESSIONS_PER_CONVERSATION_MAX};

/// Cached sessions and deliveries.
#[derive(Debug, Default)]
pub(crate) struct OpenAiConversationCache {
    inner: Mutex<OpenAiConversationCacheInner>,
}

#[derive(Debug, Default)]
struct OpenAiConversationCacheInner {
    sessions_by_conversation: HashMap<BodyId, Vec<SessionId>>,
    conversation_order: VecDeque<BodyId>,
    delivered_replies: HashSet<(SessionId, ReplyKey)>,
    delivered_order: VecDeque<(SessionId, ReplyKey)>,
}

impl OpenAiConversationCache {
    /// Records that a reply was delivered, and the fingerprint of the conversation after it.
    pub(crate) fn record_delivery(&self, conversation: Option<BodyId>, session: &SessionId, reply: ReplyKey) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conversation) = conversation {
            inner.remember_session(conversation, session);
        }
        let reply = (session.clone(), reply);
        if inner.delivered_replies.insert(reply.clone()) {
            inner.delivered_order.push_back(reply);
        }
        if let Some(oldest) = evict_oldest(&mut inner.delivered_order) {
            inner.delivered_replies.remove(&oldest);
        }
    }

    /// Returns the sessions that hold a conversation, newest first.
    #[must_use]
    pub(crate) fn find_sessions(&self, conversation: BodyId) -> Vec<SessionId> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sessions_by_conversation.get(&conversation).cloned().unwrap_or_default()
    }

    /// Returns whether a reply is known to be delivered.
    #[must_use]
    pub(crate) fn was_delivered(&self, session: &SessionId, reply: ReplyKey) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.delivered_replies.contains(&(session.clone(), reply))
    }
}

impl OpenAiConversationCacheInner {
    fn remember_session(&mut self, conversation: BodyId, session: &SessionId) {
        let is_new = !self.sessions_by_conversation.contains_key(&conversation);
        let sessions = self.sessions_by_conversation.entry(conversation).or_default();
        sessions.retain(|known| known != session);
        sessions.insert(0, session.clone());
        sessions.truncate(SESSIONS_PER_CONVERSATION_MAX);
        if is_new {
            self.conversation_order.push_back(conversation);
        }
        if let Some(oldest) = evict_oldest(&mut self.conversation_order) {
            self.sessions_by_conversation.remove(&oldest);
        }
    }
}

fn evict_oldest<T>(order: &mut VecDeque<T>) -> Option<T> {
    if order.len() > CONVERSATIONS_CACHED_MAX { order.pop_front() } else { None }
}

#[cfg(test)]
mod tests {
    use segue_core::ids::MessageId;

    use super::*;

    fn reply_to(message: u32) -> ReplyKey {
        ReplyKey { message: MessageId(message), first_run: None }
    }

    #[test]
    fn newest_session_comes_first_and_oldest_conversation_is_evicted() {
        let cache = OpenAiConversationCache::default();
        let id = |number: usize| BodyId::hash_text(&number.to_string());
        cache.record_delivery(Some(id(0)), &"a".into(), reply_to(1));
        cache.record_delivery(Some(id(0)), &"b".into(), reply_to(1));
        assert_eq!(cache.find_sessions(id(0)), [SessionId::from("b"), "a".into()]);
        assert!(cache.was_delivered(&"a".into(), reply_to(1)) && !cache.was_delivered(&"a".into(), reply_to(2)));
        for number in 1..=CONVERSATIONS_CACHED_MAX {
            cache.record_delivery(Some(id(number)), &"c".into(), reply_to(u32::try_from(number).expect("small")));
        }
        assert!(cache.find_sessions(id(0)).is_empty());
        assert!(!cache.was_delivered(&"a".into(), reply_to(1)));
    }
}
