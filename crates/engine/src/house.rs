//! Looking after sessions that are not at work: those a dead process left undone are taken up, those whose time has come
//! are woken, those that rest for long are given back.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use segue_core::decide::Input;
use segue_core::ids::Millis;
use segue_store::Owes;

use crate::engine::{Engine, Recovery, Shared};
use crate::limits::{ADOPT_MS, CROWD_MS, PARKED_CLAIM_MS_MAX, PARKED_SESSIONS_MAX};
use crate::registry::{Job, Place};

/// Keeps house as long as the engine lives.
pub(crate) async fn keep_house(shared: Weak<Shared>) {
    let mut looked = tokio::time::Instant::now();
    let Some(crowded) = shared.upgrade().map(|shared| shared.crowded.clone()) else { return };
    loop {
        let pause = Duration::from_millis(PARKED_CLAIM_MS_MAX / 2);
        if tokio::time::timeout(pause, crowded.notified()).await.is_ok() {
            // More will come; a round for each would be too much.
            tokio::time::sleep(Duration::from_millis(CROWD_MS)).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        if shared.closing.load(Ordering::Acquire) {
            return;
        }
        let engine = Engine::of(shared);
        engine.wake_due().await;
        let since = Millis(engine.shared().clock.now().0.saturating_sub(PARKED_CLAIM_MS_MAX));
        engine.shared().give_back(since, PARKED_SESSIONS_MAX).await;
        engine.shared().registry.forget_oldest(PARKED_SESSIONS_MAX);
        let adopts = engine.shared().recovery == Recovery::Now;
        if adopts && looked.elapsed() >= Duration::from_millis(ADOPT_MS) {
            looked = tokio::time::Instant::now();
            // A store that cannot be read now is asked again next time.
            let _ = engine.take_up_owing().await;
        }
    }
}

impl Engine {
    /// Takes up what an earlier process, or another that died, left undone. What another process holds is left alone.
    pub(crate) async fn take_up_owing(&self) -> Result<(), segue_store::Error> {
        for (session, owes) in self.shared().store.owing().await? {
            if self.shared().registry.holds(&session) {
                continue;
            }
            match owes {
                Owes::Nothing => {}
                Owes::At(at) => self.shared().registry.set_alarm(at, &session),
                Owes::Now => self.post(&session, Job::quiet(Input::Tick)).await,
            }
        }
        Ok(())
    }

    async fn wake_due(&self) {
        for session in self.shared().registry.due(self.shared().clock.now()) {
            // A session that is gone needs no waking.
            self.post(&session, Job::quiet(Input::Tick)).await;
        }
    }
}

impl Shared {
    /// Gives back the claims of sessions that have rested since before `since`, and lets go of all but the `most` newest.
    pub async fn give_back(&self, since: Millis, most: usize) {
        // All at once, so that the store can write them together.
        let leaving = self.registry.leaving(since, most).into_iter().map(|(session, mut resident, at)| async move {
            if let Some(epoch) = resident.claim.take() {
                // If it cannot be given back it is free once this process ends.
                let _ = self.store.release(&session, epoch).await;
            }
            if most > 0 {
                // Its state may still be good when it is wanted next.
                self.registry.with(|places| {
                    places.entry(session).or_insert(Place::AtRest(resident, at));
                });
            }
        });
        join_all(leaving).await;
    }
}
