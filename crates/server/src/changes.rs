//! Which sessions changed, whoever changed them: the store's list is looked through from time to time, as long as somebody wants to
//! know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::SessionId;
use segue_engine::{Engine, Query, Row};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::limits::{CHANGES_BUFFERED_MAX, CHANGES_POLL_MS, CHANGES_SESSIONS_MAX};

/// A change in the list of sessions.
#[derive(Debug, Clone)]
pub enum Change {
    /// A session is new, or went on.
    Row(Arc<Row>),
    /// A session is there no more; how it was last.
    Gone(Arc<Row>),
}

/// Who wants to know.
#[derive(Debug, Default)]
pub struct Changes {
    sender: Arc<Mutex<Option<broadcast::Sender<Change>>>>,
}

/// Somebody who wants to know.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Change>);

impl Listener {
    /// The next change.
    ///
    /// # Errors
    /// Some were missed.
    pub async fn next(&mut self) -> Result<Change, RecvError> {
        self.0.recv().await
    }
}

impl Changes {
    /// Listens from now on. The first listener has the list looked through, the last one ends that.
    #[must_use]
    pub fn listen(&self, engine: &Engine) -> Listener {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            return Listener(sender.subscribe());
        }
        let (new, receiver) = broadcast::channel(CHANGES_BUFFERED_MAX);
        *sender = Some(new);
        tokio::spawn(watch(engine.clone(), self.sender.clone()));
        Listener(receiver)
    }
}

async fn watch(engine: Engine, sender: Arc<Mutex<Option<broadcast::Sender<Change>>>>) {
    let mut known: Option<HashMap<SessionId, Arc<Row>>> = None;
    loop {
        {
            let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            if sender.as_ref().is_none_or(|sender| sender.receiver_count() == 0) {
                *sender = None;
                return;
            }
        }
        // A store that cannot be read now is asked again next time.
        if let Ok(page) = engine.list(&Query::newest(CHANGES_SESSIONS_MAX)).await {
            let is_whole = page.next.is_none();
            let rows: HashMap<SessionId, Arc<Row>> =
                page.rows.into_iter().map(|row| (row.session.clone(), Arc::new(row))).collect();
            let changes = known.as_ref().map(|known| compare(known, &rows, is_whole)).unwrap_or_default();
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
fn compare(before: &HashMap<SessionId, Arc<Row>>, now: &HashMap<SessionId, Arc<Row>>, is_whole: bool) -> Vec<Change> {
    let mut changed: Vec<Arc<Row>> = now
        .iter()
        .filter(|(session, row)| before.get(*session).is_none_or(|known| known != *row))
        .map(|(_, row)| row.clone())
        .collect();
    changed.sort_by_key(|row| row.summary.updated);
    let oldest = now.values().map(|row| row.summary.updated).min();
    let gone = before.iter().filter(|(session, row)| {
        !now.contains_key(*session) && (is_whole || oldest.is_some_and(|oldest| row.summary.updated > oldest))
    });
    let gone = gone.map(|(_, row)| Change::Gone(row.clone()));
    changed.into_iter().map(Change::Row).chain(gone).collect()
}
