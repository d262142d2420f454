//! How sessions are erased and engines stop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use segue_core::ids::{SessionId, UnixMillis};

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::{DRAIN_MS_MAX, SHUTDOWN_MS_MAX};
use crate::registry::SessionSlot;

impl Engine {
    /// Erases a session and all its texts that no other uses.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn delete_session(&self, session: &SessionId) -> Result<(), Error> {
        // Nothing of it may be under way while it goes.
        self.shared().abandoned_calls.abort_session_calls(session);
        if let Some(SessionSlot::Active(desk)) = self.shared().registry.with_slots(|places| places.remove(session)) {
            desk.stop_and_wait().await;
            // Its last turn may have ended meanwhile.
            self.shared().abandoned_calls.abort_session_calls(session);
        }
        let deleted = self.shared().store.delete_session(session).await;
        deleted.map_err(|error| {
            let error = Error::from_store_error(session, error);
            if error.is_transient() {
                // It was not deleted, so the work that was stopped for it is resumed.
                self.shared().registry.set_alarm(self.shared().clock.now(), session);
            }
            error
        })
    }

    /// Stops: no new input is taken, running turns get a little time, and what is not finished then is left to recovery.
    pub async fn shutdown(&self) {
        self.shared().is_shutting_down.store(true, Ordering::Release);
        // Nobody waits for these, and what they cost is not known.
        self.shared().abandoned_calls.abort_all();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(SHUTDOWN_MS_MAX);
        while !self.shared().registry.active_mailboxes().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let active = self.shared().registry.active_mailboxes();
        for (session, mailbox) in &active {
            self.shared().registry.remove_actor(session, mailbox);
        }
        join_all(active.values().map(|mailbox| mailbox.drain_and_wait(DRAIN_MS_MAX))).await;
        // Turns that ended in that time may have left some more.
        self.shared().abandoned_calls.abort_all();
        self.shared().release_parked_leases(UnixMillis(u64::MAX), 0).await;
        // What is still queued there is written; what is still claimed is free once the process ends.
        let _ = self.shared().store.close().await;
    }
}
