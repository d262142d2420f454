//! Deleting sessions and shutting the engine down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use segue_core::decide::{InboxSubmission, OperatorCommand};
use segue_core::event::ChildSessionOutcome;
use segue_core::ids::{CHILD_SEPARATOR, ChildId, SessionId, UnixMillis};
use segue_core::session::ChildSessionUsage;

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::{CLOSE_MS_MAX, DELETIONS_PAGE_MAX, SHUTDOWN_MS_MAX};
use crate::registry::ActiveOrParkedSession;

impl Engine {
    /// Deletes a session and all its texts that no other session uses.
    ///
    /// # Errors
    /// The session does not exist or is in use elsewhere.
    pub async fn delete_session(&self, session: &SessionId) -> Result<(), Error> {
        let _deletion = self.shared().deletions.read().await;
        self.delete_with_descendants(session).await
    }

    /// Continues deletions that a process left unfinished.
    pub(crate) async fn resume_deletions(&self) {
        // A store that cannot be read now is asked again in the next round.
        let Ok(sessions) = self.shared().store.sessions_to_delete(DELETIONS_PAGE_MAX).await else { return };
        for address in sessions {
            // One that fails now was logged, and is tried again in the next round.
            let _ = self.delete_session(&address.session).await;
        }
    }

    /// Deletes a session after its children, leaves first.
    async fn delete_with_descendants(&self, session: &SessionId) -> Result<(), Error> {
        let usage = self.close_before_deletion(session).await;
        // No work of the session may be running while it is deleted.
        self.shared().abandoned_calls.abort_session_calls(session);
        if let Some(ActiveOrParkedSession::Active(mailbox)) =
            self.shared().registry.with_slots(|slots| slots.remove(session))
        {
            mailbox.stop_and_wait().await;
            // Its last turn may have abandoned more calls meanwhile.
            self.shared().abandoned_calls.abort_session_calls(session);
        }
        let deleted = self.delete_stopped_session(session, usage).await;
        match &deleted {
            Ok(()) => tracing::info!(%session, "session deleted"),
            Err(error) => tracing::warn!(%session, %error, "session not deleted"),
        }
        deleted.inspect_err(|error| {
            if error.is_transient() {
                // It was not deleted, so the work that was stopped for it is resumed.
                self.shared().registry.set_alarm(self.shared().clock.now(), session);
            }
        })
    }

    async fn delete_stopped_session(&self, session: &SessionId, usage: ChildSessionUsage) -> Result<(), Error> {
        let store = &self.shared().store;
        let to_error = |error| Error::from_store_error(session, error);
        let lease = store.begin_delete(session).await.map_err(to_error)?;
        loop {
            let children = store.children_of(lease.uid, DELETIONS_PAGE_MAX).await.map_err(to_error)?;
            if children.is_empty() {
                break;
            }
            for child in children {
                match Box::pin(self.delete_with_descendants(&child.session)).await {
                    Ok(()) | Err(Error::NoSuchSession(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let parent = session.as_str().rsplit_once(CHILD_SEPARATOR).filter(|_| lease.parent.is_some());
        let notice = parent.and_then(|(_, number)| {
            let child = ChildId(number.parse().ok()?);
            Some(self.shared().to_entry(&InboxSubmission::ChildEnded {
                child,
                outcome: ChildSessionOutcome::Deleted,
                usage,
            }))
        });
        store.delete_session(session, notice).await.map_err(to_error)?;
        if let Some((parent, _)) = parent {
            self.wake_submission_receivers([SessionId::from(parent)].into());
        }
        Ok(())
    }

    /// Closes a session that is about to be deleted, so that others do not wait for it, and returns what it used. A
    /// session that cannot be closed is deleted all the same.
    async fn close_before_deletion(&self, session: &SessionId) -> ChildSessionUsage {
        let Ok((_, state)) = self.load_session(session).await else { return ChildSessionUsage::default() };
        let state = state.session;
        let is_awaited = state.claim.is_some() || !state.open_children.is_empty() || !state.received_asks.is_empty();
        if is_awaited {
            let closing = self.apply_command(session, OperatorCommand::Close);
            // The children are deleted next, whether or not they were told.
            let _ = tokio::time::timeout(Duration::from_millis(CLOSE_MS_MAX), closing).await;
        }
        state.ledger.usage_with_descendants()
    }

    /// Shuts the engine down: refuses new input, gives running turns a few seconds, and leaves unfinished work to
    /// recovery.
    pub async fn shutdown(&self) {
        self.shared().is_shutting_down.store(true, Ordering::Release);
        tracing::debug!(active_sessions = self.active_session_count(), "engine shutting down");
        // No turn waits for these calls, and their results cannot be recorded any more.
        self.shared().abandoned_calls.abort_all_calls();
        let deadline = tokio::time::Instant::now() + Duration::from_millis(SHUTDOWN_MS_MAX);
        while !self.shared().registry.active_mailboxes().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let active = self.shared().registry.active_mailboxes();
        for session in active.keys() {
            tracing::info!(%session, "session is not finished; it is resumed at the next start");
        }
        // They stay registered meanwhile: only the leases of registered sessions are renewed.
        join_all(active.values().map(|mailbox| mailbox.drain_and_wait(self.shared().drain_ms_max))).await;
        for (session, mailbox) in &active {
            self.shared().registry.remove_actor(session, mailbox);
        }
        // Turns that ended meanwhile may have abandoned more calls.
        self.shared().abandoned_calls.abort_all_calls();
        self.shared().release_parked_leases(UnixMillis(u64::MAX), 0).await;
        // Queued writes are finished; leases that are still held are free once the process ends.
        if let Err(error) = self.shared().store.close().await {
            tracing::warn!(%error, "cannot close the store");
        }
    }
}
