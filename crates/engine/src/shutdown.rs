//! Deleting sessions and shutting the engine down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use segue_core::ids::{SessionId, UnixMillis};

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::{DRAIN_MS_MAX, SHUTDOWN_MS_MAX};
use crate::registry::SessionSlot;

impl Engine {
    /// Deletes a session and all its texts that no other session uses.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn delete_session(&self, session: &SessionId) -> Result<(), Error> {
        let _deletion = self.shared().deletions.read().await;
        // No work of the session may be running while it is deleted.
        self.shared().abandoned_calls.abort_session_calls(session);
        if let Some(SessionSlot::Active(mailbox)) = self.shared().registry.with_slots(|slots| slots.remove(session)) {
            mailbox.stop_and_wait().await;
            // Its last turn may have abandoned more calls meanwhile.
            self.shared().abandoned_calls.abort_session_calls(session);
        }
        let deleted = self.shared().store.delete_session(session, None).await;
        match &deleted {
            Ok(()) => tracing::info!(%session, "session deleted"),
            Err(error) => tracing::warn!(%session, %error, "session not deleted"),
        }
        deleted.map_err(|error| {
            let error = Error::from_store_error(session, error);
            if error.is_transient() {
                // It was not deleted, so the work that was stopped for it is resumed.
                self.shared().registry.set_alarm(self.shared().clock.now(), session);
            }
            error
        })
    }

    /// Shuts the engine down: refuses new input, gives running turns a few seconds, and leaves unfinished work to
    /// recovery.
    pub async fn shutdown(&self) {
        self.shared().is_shutting_down.store(true, Ordering::Release);
        tracing::debug!(active_sessions = self.active_session_count(), "engine shutting down");
        // No turn waits for these calls, and their results cannot be recorded any more.
        self.shared().abandoned_calls.abort_all();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(SHUTDOWN_MS_MAX);
        while !self.shared().registry.active_mailboxes().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let active = self.shared().registry.active_mailboxes();
        for (session, mailbox) in &active {
            tracing::info!(%session, "session is not finished; it is resumed at the next start");
            self.shared().registry.remove_actor(session, mailbox);
        }
        join_all(active.values().map(|mailbox| mailbox.drain_and_wait(DRAIN_MS_MAX))).await;
        // Turns that ended meanwhile may have abandoned more calls.
        self.shared().abandoned_calls.abort_all();
        self.shared().release_parked_leases(UnixMillis(u64::MAX), 0).await;
        // Queued writes are finished; leases that are still held are free once the process ends.
        if let Err(error) = self.shared().store.close().await {
            tracing::warn!(%error, "cannot close the store");
        }
    }
}
