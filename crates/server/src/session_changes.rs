//! Notifies clients of changes to the session list, whichever process made them. The store's change feed is polled while
//! a client is subscribed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::SessionUid;
use segue_engine::{
    Engine, Error, SessionListChangeCursor, SessionQuery, StoredSessionListChange, StoredSessionListEntry,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::limits::{CHANGES_BUFFERED_MAX, CHANGES_POLL_MS, CHANGES_SESSIONS_MAX};

/// A change of the session list.
#[derive(Debug, Clone)]
pub(crate) enum SessionListChange {
    /// A session was created or changed.
    Updated(Arc<StoredSessionListEntry>),
    /// A session was deleted; its last entry.
    Deleted(Arc<StoredSessionListEntry>),
}

/// Subscribers to changes of the session list.
#[derive(Debug, Default)]
pub(crate) struct SessionListChangeFeed {
    sender: Arc<Mutex<Option<broadcast::Sender<SessionListChange>>>>,
}

/// A subscription to changes of the session list.
#[derive(Debug)]
pub(crate) struct SessionListChangeReceiver(broadcast::Receiver<SessionListChange>);

impl SessionListChangeReceiver {
    /// Waits for the next change.
    ///
    /// # Errors
    /// Some changes were missed.
    pub(crate) async fn recv(&mut self) -> Result<SessionListChange, RecvError> {
        self.0.recv().await
    }
}

impl SessionListChangeFeed {
    /// Subscribes from now on. Polling starts with the first subscriber and ends with the last.
    #[must_use]
    pub(crate) fn subscribe(&self, engine: &Engine) -> SessionListChangeReceiver {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            return SessionListChangeReceiver(sender.subscribe());
        }
        let (new, receiver) = broadcast::channel(CHANGES_BUFFERED_MAX);
        *sender = Some(new);
        tokio::spawn(poll_session_changes(engine.clone(), self.sender.clone()));
        SessionListChangeReceiver(receiver)
    }
}

async fn poll_session_changes(engine: Engine, sender: Arc<Mutex<Option<broadcast::Sender<SessionListChange>>>>) {
    let mut follower = StoreSessionChangePoller::default();
    loop {
        {
            let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            if sender.as_ref().is_none_or(|sender| sender.receiver_count() == 0) {
                *sender = None;
                return;
            }
        }
        // A store that cannot be read now is tried again at the next poll.
        let changes = follower.read_changes(&engine).await;
        let changes = changes.inspect_err(|error| tracing::warn!(%error, "cannot read the sessions that changed"));
        if let Ok(changes) = changes {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                // There may be no subscriber left.
                let _ = sender.as_ref().map(|sender| sender.send(change));
            }
        }
        tokio::time::sleep(Duration::from_millis(CHANGES_POLL_MS)).await;
    }
}

/// Follows the changes of the store. It remembers the last entries of recent sessions, because the store reports only the
/// uid of a session that was deleted.
#[derive(Debug, Default)]
struct StoreSessionChangePoller {
    cursor: Option<SessionListChangeCursor>,
    recent: HashMap<SessionUid, Arc<StoredSessionListEntry>>,
}

impl StoreSessionChangePoller {
    async fn read_changes(&mut self, engine: &Engine) -> Result<Vec<SessionListChange>, Error> {
        let Some(mut cursor) = self.cursor else {
            // The cursor first, so that no change after the list is missed.
            let cursor = engine.session_changes_after(None, 1).await?.next_cursor;
            self.recent = list_recent_sessions(engine).await?.0;
            self.cursor = Some(cursor);
            return Ok(Vec::new());
        };
        let mut changes = Vec::new();
        loop {
            let page = engine.session_changes_after(Some(cursor), CHANGES_SESSIONS_MAX).await?;
            if page.misses_deletions {
                changes.extend(self.find_missed_deletions(engine).await?);
            }
            let is_last = page.next_cursor == cursor;
            cursor = page.next_cursor;
            changes.extend(page.changes.into_iter().filter_map(|change| self.apply_change(change)));
            if is_last {
                break;
            }
        }
        self.cursor = Some(cursor);
        self.forget_old_entries();
        Ok(changes)
    }

    /// Returns none if a session was deleted that is not among the recent ones.
    fn apply_change(&mut self, change: StoredSessionListChange) -> Option<SessionListChange> {
        match change {
            StoredSessionListChange::Updated(entry) => {
                let entry = Arc::new(entry);
                self.recent.insert(entry.uid, entry.clone());
                Some(SessionListChange::Updated(entry))
            }
            StoredSessionListChange::Deleted(uid) => self.recent.remove(&uid).map(SessionListChange::Deleted),
        }
    }

    /// Compares the recent sessions with the list. A session that is missing from a truncated list may only have moved out
    /// of it.
    async fn find_missed_deletions(&mut self, engine: &Engine) -> Result<Vec<SessionListChange>, Error> {
        let (listed, is_whole) = list_recent_sessions(engine).await?;
        let oldest = listed.values().map(|entry| entry.summary.updated_at).min();
        let is_deleted = |uid: &SessionUid, entry: &mut Arc<StoredSessionListEntry>| {
            !listed.contains_key(uid) && (is_whole || oldest.is_some_and(|oldest| entry.summary.updated_at > oldest))
        };
        Ok(self.recent.extract_if(is_deleted).map(|(_, entry)| SessionListChange::Deleted(entry)).collect())
    }

    fn forget_old_entries(&mut self) {
        if self.recent.len() <= 2 * CHANGES_SESSIONS_MAX {
            return;
        }
        let mut entries: Vec<Arc<StoredSessionListEntry>> = self.recent.drain().map(|(_, entry)| entry).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.summary.updated_at));
        entries.truncate(CHANGES_SESSIONS_MAX);
        self.recent = entries.into_iter().map(|entry| (entry.uid, entry)).collect();
    }
}

/// Returns the most recent sessions, and whether there are no others.
async fn list_recent_sessions(
    engine: &Engine,
) -> Result<(HashMap<SessionUid, Arc<StoredSessionListEntry>>, bool), Error> {
    let page = engine.list_sessions(&SessionQuery::newest(CHANGES_SESSIONS_MAX)).await?;
    let is_whole = page.next_cursor.is_none();
    Ok((page.entries.into_iter().map(|entry| (entry.uid, Arc::new(entry))).collect(), is_whole))
}
