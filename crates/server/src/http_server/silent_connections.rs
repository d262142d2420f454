//! The connections on which no request has arrived yet. If all connections are taken, the oldest of these is closed for a
//! new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// All connections without a request, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionsAwaitingFirstRequest(Arc<Mutex<ConnectionsWithoutRequestInner>>);

#[derive(Debug, Default)]
struct ConnectionsWithoutRequestInner {
    last_id: u64,
    by_id: BTreeMap<u64, Arc<Notify>>,
}

/// The entry of one connection. Dropping it removes it from the list.
#[derive(Debug)]
pub(crate) struct AwaitingFirstRequestGuard {
    list: ConnectionsAwaitingFirstRequest,
    id: u64,
    close_signal: Arc<Notify>,
}

impl ConnectionsAwaitingFirstRequest {
    /// Adds a new connection.
    pub(crate) fn register(&self) -> AwaitingFirstRequestGuard {
        let close_signal = Arc::new(Notify::new());
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.last_id += 1;
        let id = list.last_id;
        list.by_id.insert(id, close_signal.clone());
        AwaitingFirstRequestGuard { list: self.clone(), id, close_signal }
    }

    /// Closes the connection that has been silent for the longest time, if there is one.
    pub(crate) fn close_oldest(&self) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, close_signal)) = list.by_id.pop_first() {
            close_signal.notify_one();
        }
    }
}

impl AwaitingFirstRequestGuard {
    /// Removes the connection from the list, because a request arrived on it.
    pub(crate) fn unregister(&self) {
        self.list.0.lock().unwrap_or_else(PoisonError::into_inner).by_id.remove(&self.id);
    }

    /// Waits until the connection has to make room for another.
    pub(crate) async fn wait_for_close(&self) {
        self.close_signal.notified().await;
    }
}

impl Drop for AwaitingFirstRequestGuard {
    fn drop(&mut self) {
        self.unregister();
    }
}
