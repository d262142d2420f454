//! Which sessions changed, whoever changed them: the store's list is looked through from time to time, as long as somebody wants to
//! know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::SessionId;
use segue_engine::{Engine, SessionListEntry, SessionQuery};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::limits::{CHANGES_BUFFERED_MAX, CHANGES_POLL_MS, CHANGES_SESSIONS_MAX};

/// A change in the list of sessions.
#[derive(Debug, Clone)]
pub enum SessionChange {
    /// A session is new, or went on.
    Updated(Arc<SessionListEntry>),
    /// A session is there no more; how it was last.
    Deleted(Arc<SessionListEntry>),
}

/// Who wants to know.
#[derive(Debug, Default)]
pub struct SessionChangeFeed {
    sender: Arc<Mutex<Option<broadcast::Sender<SessionChange>>>>,
}

/// Somebody who wants to know.
#[derive(Debug)]
pub struct SessionChangeReceiver(broadcast::Receiver<SessionChange>);

impl SessionChangeReceiver {
    /// The next change.
    ///
    /// # Errors
    /// Some were missed.
    pub async fn recv(&mut self) -> Result<SessionChange, RecvError> {
        self.0.recv().await
    }
}

impl SessionChangeFeed {
    /// Listens from now on. The first listener has the list looked through, the last one ends that.
    #[must_use]
    pub fn subscribe(&self, engine: &Engine) -> SessionChangeReceiver {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            return SessionChangeReceiver(sender.subscribe());
        }
        let (new, receiver) = broadcast::channel(CHANGES_BUFFERED_MAX);
        *sender = Some(new);
        tokio::spawn(poll_session_changes(engine.clone(), self.sender.clone()));
        SessionChangeReceiver(receiver)
    }
}

async fn poll_session_changes(engine: Engine, sender: Arc<Mutex<Option<broadcast::Sender<SessionChange>>>>) {
    let mut known: Option<HashMap<SessionId, Arc<SessionListEntry>>> = None;
    loop {
        {
            let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            if sender.as_ref().is_none_or(|sender| sender.receiver_count() == 0) {
                *sender = None;
                return;
            }
        }
        // A store that cannot be read now is asked again next time.
        if let Ok(page) = engine.list_sessions(&SessionQuery::newest(CHANGES_SESSIONS_MAX)).await {
            let is_whole = page.next_cursor.is_none();
            let rows: HashMap<SessionId, Arc<SessionListEntry>> =
                page.entries.into_iter().map(|row| (row.session.clone(), Arc::new(row))).collect();
            let changes = known.as_ref().map(|known| diff_session_lists(known, &rows, is_whole)).unwrap_or_default();
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                // Nobody listening any more is no failure.
                let _ = sender.as_ref().map(|sender| sender.send(change));
            }
            known = Some(rows);
        }
        tokio::time::sleep(Duration::from_millis(CHANGES_POLL_MS)).await;
    }
}

/// What differs. A session that left a list that is cut off may only have been pushed out of it.
fn diff_session_lists(
    before: &HashMap<SessionId, Arc<SessionListEntry>>,
    now: &HashMap<SessionId, Arc<SessionListEntry>>,
    is_whole: bool,
) -> Vec<SessionChange> {
    let mut changed: Vec<Arc<SessionListEntry>> = now
        .iter()
        .filter(|(session, row)| before.get(*session).is_none_or(|known| known != *row))
        .map(|(_, row)| row.clone())
        .collect();
    changed.sort_by_key(|row| row.summary.updated_at);
    let oldest = now.values().map(|row| row.summary.updated_at).min();
    let gone = before.iter().filter(|(session, row)| {
        !now.contains_key(*session) && (is_whole || oldest.is_some_and(|oldest| row.summary.updated_at > oldest))
    });
    let gone = gone.map(|(_, row)| SessionChange::Deleted(row.clone()));
    changed.into_iter().map(SessionChange::Updated).chain(gone).collect()
}
