//! Accounts at hand, so that looking at a long session again costs only what is new. An account is a cache: it is brought up to
//! date from the journal before every use, and thrown away when the session is another of the same name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, Error};
use tokio::sync::Mutex as AsyncMutex;

use super::SessionHistory;
use crate::limits::{HISTORIES_CACHED_MAX, READ_EVENTS_MAX};

/// Accounts by session.
#[derive(Debug, Default)]
pub struct HistoryCache {
    entries: Mutex<HashMap<SessionId, CachedHistory>>,
}

#[derive(Debug, Clone)]
struct CachedHistory {
    history: Arc<AsyncMutex<SessionHistory>>,
    last_used: Instant,
}

impl HistoryCache {
    /// Does something with a session's account as it stands now, or as it stood after the event `at`.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn with_history<T>(
        &self,
        engine: &Engine,
        session: &SessionId,
        at: Option<Seq>,
        read: impl FnOnce(&SessionHistory) -> T,
    ) -> Result<T, Error> {
        if let Some(at) = at {
            let mut chronicle = SessionHistory::default();
            fold_new_events(engine, session, &mut chronicle, at).await?;
            return Ok(read(&chronicle));
        }
        let kept = self.get_or_create(session);
        let mut chronicle = kept.lock().await;
        if chronicle.first_event.is_some() {
            let first = engine.read_events(session, Seq(0), 1).await?;
            if first.first() != chronicle.first_event.as_deref() {
                *chronicle = SessionHistory::default();
            }
        }
        fold_new_events(engine, session, &mut chronicle, Seq(u64::MAX)).await?;
        Ok(read(&chronicle))
    }

    fn get_or_create(&self, session: &SessionId) -> Arc<AsyncMutex<SessionHistory>> {
        let mut kept = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= HISTORIES_CACHED_MAX && !kept.contains_key(session) {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.last_used).map(|(session, _)| session.clone());
            oldest.into_iter().for_each(|oldest| drop(kept.remove(&oldest)));
        }
        let entry = kept
            .entry(session.clone())
            .or_insert_with(|| CachedHistory { history: Arc::default(), last_used: Instant::now() });
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
        events.iter().for_each(|event| history.apply(event));
        if events.len() < READ_EVENTS_MAX {
            break;
        }
    }
    Ok(())
}
