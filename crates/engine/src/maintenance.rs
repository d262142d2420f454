//! Background work for sessions that are not active: resumes sessions that a dead process left unfinished, wakes
//! sessions whose timer is due, and releases sessions that have been parked for long.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use segue_core::ids::{SessionId, UnixMillis};
use segue_store::{InboxEmptiness, PendingWorkQuery, PendingWorkStatus, SessionWithPendingWork};

use crate::config::SessionResumePolicy;
use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::limits::{
    CONCURRENT_RESUMES_MAX, EVICTION_DELAY_MS, PARKED_LEASE_MS_MAX, PARKED_SESSIONS_MAX, PENDING_SESSIONS_PAGE_MAX,
    RECOVERIES_PER_LEASE, RECOVERY_POLL_MS,
};
use crate::registry::ActiveOrParkedSession;

/// Runs maintenance rounds as long as the engine exists.
pub(crate) async fn run_maintenance(shared: Weak<EngineShared>) {
    let mut last_recovery = tokio::time::Instant::now();
    let Some((eviction_needed, lease_ms)) =
        shared.upgrade().map(|shared| (shared.eviction_needed.clone(), shared.leases.lease_ms()))
    else {
        return;
    };
    let recovery_ms = lease_ms.map_or(RECOVERY_POLL_MS, |lease_ms| lease_ms / RECOVERIES_PER_LEASE);
    loop {
        let pause = Duration::from_millis(PARKED_LEASE_MS_MAX / 2);
        if tokio::time::timeout(pause, eviction_needed.notified()).await.is_ok() {
            // More sessions are likely to follow: collect them, and handle them in one round.
            tokio::time::sleep(Duration::from_millis(EVICTION_DELAY_MS)).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_shutting_down.load(Ordering::Acquire) {
            return;
        }
        let engine = Engine::from_shared(shared);
        engine.wake_due_sessions();
        engine.wake_held_sessions_with_entries().await;
        let parked_before = UnixMillis(engine.shared().clock.now().0.saturating_sub(PARKED_LEASE_MS_MAX));
        engine.shared().release_parked_leases(parked_before, PARKED_SESSIONS_MAX).await;
        engine.shared().registry.evict_oldest_parked(PARKED_SESSIONS_MAX);
        let recovers = engine.shared().recovery == SessionResumePolicy::Immediate;
        if recovers && last_recovery.elapsed() >= Duration::from_millis(recovery_ms) {
            last_recovery = tokio::time::Instant::now();
            // A store that cannot be read now is asked again in the next round.
            if let Err(error) = engine.resume_pending_sessions().await {
                tracing::warn!(%error, "cannot look for sessions with pending work");
            }
            engine.resume_deletions().await;
        }
    }
}

impl Engine {
    /// Resumes sessions with work left unfinished by a process that ended. Sessions held by a live process stay
    /// untouched. Returns when the sessions are known; they are resumed in the background.
    pub(crate) async fn resume_pending_sessions(&self) -> Result<(), segue_store::Error> {
        let mut query = PendingWorkQuery {
            // The next round looks for what is due later.
            due_until: self.shared().clock.now().plus_ms(2 * RECOVERY_POLL_MS),
            after_cursor: None,
            limit: PENDING_SESSIONS_PAGE_MAX,
        };
        loop {
            let page = self.shared().store.sessions_with_pending_work(&query).await?;
            let mut due = Vec::new();
            for SessionWithPendingWork { session, pending_work, .. } in page.sessions {
                if self.shared().registry.holds_lease(&session) {
                    continue;
                }
                match pending_work {
                    PendingWorkStatus::None => {}
                    PendingWorkStatus::At(at) => self.shared().registry.set_alarm(at, &session),
                    PendingWorkStatus::Now => due.push(session),
                }
            }
            if !due.is_empty() {
                tracing::info!(sessions = due.len(), "resuming sessions with pending work");
            }
            self.wake_in_background(due);
            query.after_cursor = page.next_cursor;
            if query.after_cursor.is_none() {
                return Ok(());
            }
        }
    }

    fn wake_due_sessions(&self) {
        self.wake_in_background(self.shared().registry.take_due_sessions(self.shared().clock.now()));
    }

    /// Wakes sessions, a bounded number at a time. A session counts until it has been loaded and its work started; it
    /// does not count while it waits for a model or a person, so no session keeps the others from being resumed.
    fn wake_in_background(&self, sessions: Vec<SessionId>) {
        if sessions.is_empty() {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            let engine = &engine;
            futures_util::stream::iter(sessions)
                .for_each_concurrent(CONCURRENT_RESUMES_MAX, |session| async move {
                    // Closed never; the permits are shared by all rounds.
                    let _permit = engine.shared().resume_permits.acquire().await;
                    // A session that was deleted needs no wake-up, and one that cannot be resumed now gets an alarm.
                    if let Err(error) = engine.wake_session(&session).await {
                        log_failed_wake_up(&session, &error);
                    }
                })
                .await;
        });
    }
}

/// Logs that a session was not resumed. Another process that holds it resumes it.
fn log_failed_wake_up(session: &SessionId, error: &Error) {
    match error {
        Error::InUse { .. } | Error::NoSuchSession(_) | Error::SessionDeleted(_) | Error::ShuttingDown => {
            tracing::debug!(%session, code = error.code(), "session not resumed");
        }
        _ => tracing::warn!(%session, code = error.code(), "session not resumed"),
    }
}

impl EngineShared {
    /// Releases the leases of sessions parked before `parked_before`, and evicts all but the newest `kept_max` parked
    /// sessions.
    pub(crate) async fn release_parked_leases(&self, parked_before: UnixMillis, kept_max: usize) {
        // Concurrently, so that the store can write them in one transaction.
        let releases = self.registry.take_evictable(parked_before, kept_max).into_iter().map(
            |(session, mut cached, at)| async move {
                if let Some(epoch) = cached.lease_epoch.take() {
                    // A lease that cannot be released now is free once this process ends. Entries that arrived meanwhile
                    // are pending work, which the next recovery round finds; this process looks at once.
                    match self.store.release_lease(&session, epoch).await {
                        Ok(InboxEmptiness::Empty) => tracing::debug!(%session, epoch = epoch.0, "lease released"),
                        Ok(InboxEmptiness::HasEntries) => self.registry.set_alarm(self.clock.now(), &session),
                        Err(error) => tracing::warn!(%session, epoch = epoch.0, %error, "lease not released"),
                    }
                }
                if kept_max > 0 {
                    // Its state may still be current when the session is used next.
                    self.registry.with_slots(|slots| {
                        slots.entry(session).or_insert(ActiveOrParkedSession::Parked(cached, at));
                    });
                }
            },
        );
        join_all(releases).await;
    }
}
