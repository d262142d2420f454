//! Caches histories, so that a repeated view of a long session only reads the new events. Each history is brought up to date
//! before it is used, and replaced if the session was deleted and created again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, Error};
use tokio::sync::Mutex as AsyncMutex;

use super::SessionHistory;
use crate::limits::{HISTORIES_CACHED_MAX, READ_EVENTS_MAX};

/// Histories by session.
#[derive(Debug, Default)]
pub(crate) struct SessionHistoryCache {
    entries: Mutex<HashMap<SessionId, CachedSessionHistory>>,
}

#[derive(Debug, Clone)]
struct CachedSessionHistory {
    history: Arc<AsyncMutex<SessionHistory>>,
    last_used: Instant,
}

impl SessionHistoryCache {
    /// Passes a session's history to `read`, as it is now or after the event `at`.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub(crate) async fn with_history<T>(
        &self,
        engine: &Engine,
        session: &SessionId,
        at: Option<Seq>,
        read: impl FnOnce(&SessionHistory) -> T,
    ) -> Result<T, Error> {
        if let Some(at) = at {
            let mut history = SessionHistory::default();
            fold_new_events(engine, session, &mut history, at).await?;
            return Ok(read(&history));
        }
        let cached = self.get_or_create(session);
        let mut history = cached.lock().await;
        if history.first_event.is_some() {
            let first = engine.read_events(session, Seq(0), 1).await?;
            if first.first() != history.first_event.as_deref() {
                *history = SessionHistory::default();
            }
        }
        fold_new_events(engine, session, &mut history, Seq(u64::MAX)).await?;
        Ok(read(&history))
    }

    fn get_or_create(&self, session: &SessionId) -> Arc<AsyncMutex<SessionHistory>> {
        let mut cached = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= HISTORIES_CACHED_MAX && !cached.contains_key(session) {
            let oldest = cached.iter().min_by_key(|(_, cached)| cached.last_used).map(|(session, _)| session.clone());
            oldest.into_iter().for_each(|oldest| drop(cached.remove(&oldest)));
        }
        let entry = cached
            .entry(session.clone())
            .or_insert_with(|| CachedSessionHistory { history: Arc::default(), last_used: Instant::now() });
        entry.last_used = Instant::now();
        entry.history.clone()
    }
}

async fn fold_new_events(
    engine: &Engine,
    session: &SessionId,
    history: &mut SessionHistory,
    to: Seq,
) -> Result<(), Error> {
    while history.last_seq < to {
        let left = usize::try_from(to.0 - history.last_seq.0).unwrap_or(usize::MAX);
        let events = engine.read_events(session, history.last_seq, left.min(READ_EVENTS_MAX)).await?;
        events.iter().for_each(|event| history.apply_event(event));
        if events.len() < READ_EVENTS_MAX {
            break;
        }
    }
    Ok(())
}
