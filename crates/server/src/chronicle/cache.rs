//! Accounts at hand, so that looking at a long session again costs only what is new. An account is a cache: it is brought up to
//! date from the journal before every use, and thrown away when the session is another of the same name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, Error};
use tokio::sync::Mutex as AsyncMutex;

use super::Chronicle;
use crate::limits::{CHRONICLES_MAX, READ_EVENTS_MAX};

/// Accounts by session.
#[derive(Debug, Default)]
pub struct Chronicles {
    kept: Mutex<HashMap<SessionId, Kept>>,
}

#[derive(Debug, Clone)]
struct Kept {
    chronicle: Arc<AsyncMutex<Chronicle>>,
    used: Instant,
}

impl Chronicles {
    /// Does something with a session's account as it stands now, or as it stood after the event `at`.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn look<T>(
        &self,
        engine: &Engine,
        session: &SessionId,
        at: Option<Seq>,
        look: impl FnOnce(&Chronicle) -> T,
    ) -> Result<T, Error> {
        if let Some(at) = at {
            let mut chronicle = Chronicle::default();
            read_on(engine, session, &mut chronicle, at).await?;
            return Ok(look(&chronicle));
        }
        let kept = self.kept(session);
        let mut chronicle = kept.lock().await;
        if chronicle.first.is_some() {
            let first = engine.events(session, Seq(0), 1).await?;
            if first.first() != chronicle.first.as_deref() {
                *chronicle = Chronicle::default();
            }
        }
        read_on(engine, session, &mut chronicle, Seq(u64::MAX)).await?;
        Ok(look(&chronicle))
    }

    fn kept(&self, session: &SessionId) -> Arc<AsyncMutex<Chronicle>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= CHRONICLES_MAX && !kept.contains_key(session) {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used).map(|(session, _)| session.clone());
            oldest.into_iter().for_each(|oldest| drop(kept.remove(&oldest)));
        }
        let entry =
            kept.entry(session.clone()).or_insert_with(|| Kept { chronicle: Arc::default(), used: Instant::now() });
        entry.used = Instant::now();
        entry.chronicle.clone()
    }
}

async fn read_on(engine: &Engine, session: &SessionId, chronicle: &mut Chronicle, to: Seq) -> Result<(), Error> {
    while chronicle.seq < to {
        let left = usize::try_from(to.0 - chronicle.seq.0).unwrap_or(usize::MAX);
        let events = engine.events(session, chronicle.seq, left.min(READ_EVENTS_MAX)).await?;
        events.iter().for_each(|event| chronicle.tell(event));
        if events.len() < READ_EVENTS_MAX {
            break;
        }
    }
    Ok(())
}
