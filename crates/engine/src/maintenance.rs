//! Looking after sessions that are not at work: those a dead process left undone are taken up, those whose time has come
//! are woken, those that rest for long are given back.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use segue_core::decide::SessionInput;
use segue_core::ids::UnixMillis;
use segue_store::PendingWork;

use crate::engine::{Engine, EngineShared, RecoveryPolicy};
use crate::limits::{EVICTION_DELAY_MS, PARKED_LEASE_MS_MAX, PARKED_SESSIONS_MAX, RECOVERY_POLL_MS};
use crate::registry::{ActorMessage, SessionSlot};

/// Keeps house as long as the engine lives.
pub(crate) async fn run_maintenance(shared: Weak<EngineShared>) {
    let mut looked = tokio::time::Instant::now();
    let Some(crowded) = shared.upgrade().map(|shared| shared.eviction_needed.clone()) else { return };
    loop {
        let pause = Duration::from_millis(PARKED_LEASE_MS_MAX / 2);
        if tokio::time::timeout(pause, crowded.notified()).await.is_ok() {
            // More will come; a round for each would be too much.
            tokio::time::sleep(Duration::from_millis(EVICTION_DELAY_MS)).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_shutting_down.load(Ordering::Acquire) {
            return;
        }
        let engine = Engine::from_shared(shared);
        engine.wake_due_sessions().await;
        let since = UnixMillis(engine.shared().clock.now().0.saturating_sub(PARKED_LEASE_MS_MAX));
        engine.shared().release_parked_leases(since, PARKED_SESSIONS_MAX).await;
        engine.shared().registry.evict_oldest_parked(PARKED_SESSIONS_MAX);
        let adopts = engine.shared().recovery == RecoveryPolicy::Immediate;
        if adopts && looked.elapsed() >= Duration::from_millis(RECOVERY_POLL_MS) {
            looked = tokio::time::Instant::now();
            // A store that cannot be read now is asked again next time.
            let _ = engine.resume_pending_sessions().await;
        }
    }
}

impl Engine {
    /// Takes up what an earlier process, or another that died, left undone. What another process holds is left alone.
    pub(crate) async fn resume_pending_sessions(&self) -> Result<(), segue_store::Error> {
        for (session, owes) in self.shared().store.sessions_with_pending_work().await? {
            if self.shared().registry.holds_lease(&session) {
                continue;
            }
            match owes {
                PendingWork::None => {}
                PendingWork::At(at) => self.shared().registry.set_alarm(at, &session),
                PendingWork::Now => {
                    self.deliver_message(&session, ActorMessage::without_reply(SessionInput::Tick)).await
                }
            }
        }
        Ok(())
    }

    async fn wake_due_sessions(&self) {
        for session in self.shared().registry.take_due_sessions(self.shared().clock.now()) {
            // A session that is gone needs no waking.
            self.deliver_message(&session, ActorMessage::without_reply(SessionInput::Tick)).await;
        }
    }
}

impl EngineShared {
    /// Gives back the claims of sessions that have rested since before `since`, and lets go of all but the `most` newest.
    pub async fn release_parked_leases(&self, parked_before: UnixMillis, kept_max: usize) {
        // All at once, so that the store can write them together.
        let leaving = self.registry.take_evictable(parked_before, kept_max).into_iter().map(
            |(session, mut resident, at)| async move {
                if let Some(epoch) = resident.lease_epoch.take() {
                    // If it cannot be given back it is free once this process ends.
                    let _ = self.store.release_lease(&session, epoch).await;
                }
                if kept_max > 0 {
                    // Its state may still be good when it is wanted next.
                    self.registry.with_slots(|places| {
                        places.entry(session).or_insert(SessionSlot::Parked(resident, at));
                    });
                }
            },
        );
        join_all(leaving).await;
    }
}
