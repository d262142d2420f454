//! Notifies clients of changes to the session list, whichever process made them. The list is polled while a client is
//! subscribed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::SessionId;
use segue_engine::{Engine, SessionQuery, StoredSessionEntry};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::limits::{CHANGES_BUFFERED_MAX, CHANGES_POLL_MS, CHANGES_SESSIONS_MAX};

/// A change of the session list.
#[derive(Debug, Clone)]
pub(crate) enum SessionChange {
    /// A session was created or changed.
    Updated(Arc<StoredSessionEntry>),
    /// A session was deleted; its last entry.
    Deleted(Arc<StoredSessionEntry>),
}

/// Subscribers to changes of the session list.
#[derive(Debug, Default)]
pub(crate) struct SessionChangeFeed {
    sender: Arc<Mutex<Option<broadcast::Sender<SessionChange>>>>,
}

/// A subscription to changes of the session list.
#[derive(Debug)]
pub(crate) struct SessionChangeReceiver(broadcast::Receiver<SessionChange>);

impl SessionChangeReceiver {
    /// Waits for the next change.
    ///
    /// # Errors
    /// Some changes were missed.
    pub(crate) async fn recv(&mut self) -> Result<SessionChange, RecvError> {
        self.0.recv().await
    }
}

impl SessionChangeFeed {
    /// Subscribes from now on. Polling starts with the first subscriber and ends with the last.
    #[must_use]
    pub(crate) fn subscribe(&self, engine: &Engine) -> SessionChangeReceiver {
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
    let mut previous: Option<HashMap<SessionId, Arc<StoredSessionEntry>>> = None;
    loop {
        {
            let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            if sender.as_ref().is_none_or(|sender| sender.receiver_count() == 0) {
                *sender = None;
                return;
            }
        }
        // A store that cannot be read now is tried again at the next poll.
        let page = engine.list_sessions(&SessionQuery::newest(CHANGES_SESSIONS_MAX)).await;
        let page = page.inspect_err(|error| tracing::warn!(%error, "cannot list the sessions that changed"));
        if let Ok(page) = page {
            let is_whole = page.next_cursor.is_none();
            let entries: HashMap<SessionId, Arc<StoredSessionEntry>> =
                page.entries.into_iter().map(|entry| (entry.session.clone(), Arc::new(entry))).collect();
            let changes =
                previous.as_ref().map(|previous| diff_session_lists(previous, &entries, is_whole)).unwrap_or_default();
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                // There may be no subscriber left.
                let _ = sender.as_ref().map(|sender| sender.send(change));
            }
            previous = Some(entries);
        }
        tokio::time::sleep(Duration::from_millis(CHANGES_POLL_MS)).await;
    }
}

/// Returns the differences between two lists. A session that is missing from a truncated list may only have moved out of it.
fn diff_session_lists(
    before: &HashMap<SessionId, Arc<StoredSessionEntry>>,
    now: &HashMap<SessionId, Arc<StoredSessionEntry>>,
    is_whole: bool,
) -> Vec<SessionChange> {
    let mut changed: Vec<Arc<StoredSessionEntry>> = now
        .iter()
        .filter(|(session, entry)| before.get(*session).is_none_or(|previous| previous != *entry))
        .map(|(_, entry)| entry.clone())
        .collect();
    changed.sort_by_key(|entry| entry.summary.updated_at);
    let oldest = now.values().map(|entry| entry.summary.updated_at).min();
    let deleted = before.iter().filter(|(session, entry)| {
        !now.contains_key(*session) && (is_whole || oldest.is_some_and(|oldest| entry.summary.updated_at > oldest))
    });
    let deleted = deleted.map(|(_, entry)| SessionChange::Deleted(entry.clone()));
    changed.into_iter().map(SessionChange::Updated).chain(deleted).collect()
}
