//! What the door remembers for a while: in which session a conversation was held, and which answers were heard. Both can be lost: then
//! the session is searched for, and an answer counts as not heard.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use segue_core::body::BodyId;
use segue_core::ids::{MessageId, SessionId};

use crate::limits::{CONVERSATIONS_MAX, SESSIONS_OF_CONVERSATION_MAX};

/// What the door remembers.
#[derive(Debug, Default)]
pub struct Heard {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    held_in: HashMap<BodyId, Vec<SessionId>>,
    held_order: VecDeque<BodyId>,
    answers: HashSet<(SessionId, MessageId)>,
    answers_order: VecDeque<(SessionId, MessageId)>,
}

impl Heard {
    /// The answer to a message was heard; with it, the conversation is known by this.
    pub fn note(&self, conversation: Option<BodyId>, session: &SessionId, message: MessageId) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conversation) = conversation {
            inner.held_in(conversation, session);
        }
        let answer = (session.clone(), message);
        if inner.answers.insert(answer.clone()) {
            inner.answers_order.push_back(answer);
        }
        if let Some(oldest) = oldest(&mut inner.answers_order) {
            inner.answers.remove(&oldest);
        }
    }

    /// The sessions in which it was held, newest first.
    #[must_use]
    pub fn sessions(&self, conversation: BodyId) -> Vec<SessionId> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.held_in.get(&conversation).cloned().unwrap_or_default()
    }

    /// Whether the answer to a message was heard, as far as is remembered.
    #[must_use]
    pub fn was_heard(&self, session: &SessionId, message: MessageId) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.answers.contains(&(session.clone(), message))
    }
}

impl Inner {
    fn held_in(&mut self, conversation: BodyId, session: &SessionId) {
        let is_new = !self.held_in.contains_key(&conversation);
        let sessions = self.held_in.entry(conversation).or_default();
        sessions.retain(|known| known != session);
        sessions.insert(0, session.clone());
        sessions.truncate(SESSIONS_OF_CONVERSATION_MAX);
        if is_new {
            self.held_order.push_back(conversation);
        }
        if let Some(oldest) = oldest(&mut self.held_order) {
            self.held_in.remove(&oldest);
        }
    }
}

fn oldest<T>(order: &mut VecDeque<T>) -> Option<T> {
    if order.len() > CONVERSATIONS_MAX { order.pop_front() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_session_comes_first_and_the_oldest_conversation_goes() {
        let heard = Heard::default();
        let id = |number: usize| BodyId::of(&number.to_string());
        heard.note(Some(id(0)), &"a".into(), MessageId(1));
        heard.note(Some(id(0)), &"b".into(), MessageId(1));
        assert_eq!(heard.sessions(id(0)), [SessionId::from("b"), "a".into()]);
        assert!(heard.was_heard(&"a".into(), MessageId(1)) && !heard.was_heard(&"a".into(), MessageId(2)));
        for number in 1..=CONVERSATIONS_MAX {
            heard.note(Some(id(number)), &"c".into(), MessageId(u32::try_from(number).expect("small")));
        }
        assert!(heard.sessions(id(0)).is_empty());
        assert!(!heard.was_heard(&"a".into(), MessageId(1)));
    }
}
