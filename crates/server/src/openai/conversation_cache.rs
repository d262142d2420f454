//! What the door remembers for a while: in which session a conversation was held, and which answers were heard. Both can be lost: then
//! the session is searched for, and an answer counts as not heard.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use segue_core::body::BodyId;
use segue_core::ids::{MessageId, SessionId};

use crate::limits::{CONVERSATIONS_CACHED_MAX, SESSIONS_PER_CONVERSATION_MAX};

/// What the door remembers.
#[derive(Debug, Default)]
pub struct ConversationCache {
    inner: Mutex<ConversationCacheInner>,
}

#[derive(Debug, Default)]
struct ConversationCacheInner {
    sessions_by_conversation: HashMap<BodyId, Vec<SessionId>>,
    conversation_order: VecDeque<BodyId>,
    delivered_replies: HashSet<(SessionId, MessageId)>,
    delivered_order: VecDeque<(SessionId, MessageId)>,
}

impl ConversationCache {
    /// The answer to a message was heard; with it, the conversation is known by this.
    pub fn record_delivery(&self, conversation: Option<BodyId>, session: &SessionId, message: MessageId) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conversation) = conversation {
            inner.remember_session(conversation, session);
        }
        let answer = (session.clone(), message);
        if inner.delivered_replies.insert(answer.clone()) {
            inner.delivered_order.push_back(answer);
        }
        if let Some(oldest) = evict_oldest(&mut inner.delivered_order) {
            inner.delivered_replies.remove(&oldest);
        }
    }

    /// The sessions in which it was held, newest first.
    #[must_use]
    pub fn find_sessions(&self, conversation: BodyId) -> Vec<SessionId> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sessions_by_conversation.get(&conversation).cloned().unwrap_or_default()
    }

    /// Whether the answer to a message was heard, as far as is remembered.
    #[must_use]
    pub fn was_delivered(&self, session: &SessionId, message: MessageId) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.delivered_replies.contains(&(session.clone(), message))
    }
}

impl ConversationCacheInner {
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
    use super::*;

    #[test]
    fn the_newest_session_comes_first_and_the_oldest_conversation_goes() {
        let heard = ConversationCache::default();
        let id = |number: usize| BodyId::hash_text(&number.to_string());
        heard.record_delivery(Some(id(0)), &"a".into(), MessageId(1));
        heard.record_delivery(Some(id(0)), &"b".into(), MessageId(1));
        assert_eq!(heard.find_sessions(id(0)), [SessionId::from("b"), "a".into()]);
        assert!(heard.was_delivered(&"a".into(), MessageId(1)) && !heard.was_delivered(&"a".into(), MessageId(2)));
        for number in 1..=CONVERSATIONS_CACHED_MAX {
            heard.record_delivery(Some(id(number)), &"c".into(), MessageId(u32::try_from(number).expect("small")));
        }
        assert!(heard.find_sessions(id(0)).is_empty());
        assert!(!heard.was_delivered(&"a".into(), MessageId(1)));
    }
}
