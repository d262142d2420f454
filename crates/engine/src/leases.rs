//! Keeps the leases of this process, on stores whose leases expire.
//!
//! A renewal that fails is no loss: nobody may have taken a session, because nobody else may reach the store either. So
//! calls that are running continue; nothing new is started until a renewal succeeds. Tools that change something are
//! stopped before another process can take the session. After a failure, this process takes over sessions of others
//! only when it has renewed its own leases for the length of a lease: the others get the same time to come back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use segue_core::ids::SessionId;
use segue_store::{LeaseTakeoverPolicy, StoreMetrics};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::limits::RENEWALS_PER_LEASE;

/// How certain it is that this process holds its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LeaseCertainty {
    Certain,
    /// The last renewal failed.
    Doubtful,
    /// The leases are about to expire, or have expired.
    Expired,
}

/// What became of the leases of an engine since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseCounts {
    /// Leases that are held now.
    pub held: u64,
    pub renewals: u64,
    pub failed_renewals: u64,
    /// Leases that another process took.
    pub lost: u64,
}

#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    /// How long a lease lasts; none if leases last as long as the process.
    lease_ms: Option<u64>,
    certainty: watch::Sender<LeaseCertainty>,
    /// Since when every renewal succeeded.
    renewing_since: Mutex<Option<Instant>>,
    renewals: AtomicU64,
    failed_renewals: AtomicU64,
    lost: AtomicU64,
}

impl LeaseKeeper {
    pub(crate) fn new(lease_ms: Option<u64>) -> Self {
        Self {
            lease_ms,
            certainty: watch::Sender::new(LeaseCertainty::Certain),
            renewing_since: Mutex::default(),
            renewals: AtomicU64::new(0),
            failed_renewals: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(crate) fn lease_ms(&self) -> Option<u64> {
        self.lease_ms
    }

    /// Returns when a session may be taken from another process.
    pub(crate) fn takeover_policy(&self) -> LeaseTakeoverPolicy {
        let Some(lease_ms) = self.lease_ms else { return LeaseTakeoverPolicy::IfHolderDead };
        let renewing_since = *self.renewing_since.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = renewing_since.is_some_and(|since| since.elapsed() >= Duration::from_millis(lease_ms));
        if is_settled { LeaseTakeoverPolicy::IfHolderDead } else { LeaseTakeoverPolicy::IfHolderEnded }
    }

    /// Returns when new work may be started.
    pub(crate) async fn wait_until_leases_certain(&self) {
        // The sender is a field of this value, so it is not dropped meanwhile.
        let _ = self.certainty.subscribe().wait_for(|certainty| *certainty == LeaseCertainty::Certain).await;
    }

    /// Returns when another process may take the sessions of this one.
    pub(crate) async fn wait_until_leases_expired(&self) {
        let _ = self.certainty.subscribe().wait_for(|certainty| *certainty == LeaseCertainty::Expired).await;
    }

    fn record_renewal_success(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        let mut renewing_since = self.renewing_since.lock().unwrap_or_else(PoisonError::into_inner);
        renewing_since.get_or_insert_with(Instant::now);
        drop(renewing_since);
        if self.certainty.send_replace(LeaseCertainty::Certain) != LeaseCertainty::Certain {
            tracing::info!("leases renewed; work is started again");
        }
    }

    fn record_renewal_failure(&self, error: &dyn std::fmt::Display, certainty: LeaseCertainty) {
        self.failed_renewals.fetch_add(1, Ordering::Relaxed);
        *self.renewing_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.certainty.send_replace(certainty) != certainty {
            tracing::warn!(%error, ?certainty, "cannot renew leases; nothing new is started");
        }
    }
}

impl Engine {
    /// Checks that the store can be written.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn probe_store(&self) -> Result<(), Error> {
        self.shared().store.probe_write().await.map_err(|error| Error::Store(Arc::new(error)))
    }

    /// Returns the error that keeps a session from writing at the moment, usually a full disk. The write is retried
    /// until it succeeds, so nothing is lost.
    #[must_use]
    pub fn pending_write_error(&self, session: &SessionId) -> Option<Error> {
        self.shared().subscriptions.current_write_error(session)
    }

    /// Returns what this process has done with its store, and how much waits in it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read_store_metrics(&self) -> Result<StoreMetrics, Error> {
        self.shared().store.read_metrics().await.map_err(|error| Error::Store(Arc::new(error)))
    }

    /// Returns what became of the leases of this engine.
    #[must_use]
    pub fn lease_counts(&self) -> LeaseCounts {
        let leases = &self.shared().leases;
        LeaseCounts {
            held: self.shared().registry.held_leases().len() as u64,
            renewals: leases.renewals.load(Ordering::Relaxed),
            failed_renewals: leases.failed_renewals.load(Ordering::Relaxed),
            lost: leases.lost.load(Ordering::Relaxed),
        }
    }
}

/// Renews leases as long as the engine exists, also while it shuts down. Ends at once if leases do not expire.
pub(crate) async fn run_lease_renewal(shared: Weak<EngineShared>) {
    let Some(lease_ms) = shared.upgrade().and_then(|shared| shared.leases.lease_ms()) else { return };
    let pause = Duration::from_millis(lease_ms / RENEWALS_PER_LEASE);
    // Before the store's clock says so, because this clock starts earlier and messages take time.
    let safe_time = Duration::from_millis(lease_ms - lease_ms / RENEWALS_PER_LEASE / 2);
    let mut last_success = Instant::now();
    loop {
        {
            let Some(shared) = shared.upgrade() else { return };
            let sent_at = Instant::now();
            let held = shared.registry.held_leases();
            match tokio::time::timeout(pause, shared.store.renew_leases(&held)).await {
                Ok(Ok(renewal)) => {
                    last_success = sent_at;
                    shared.leases.record_renewal_success();
                    for lost in renewal.lost {
                        if shared.registry.mark_lease_lost(&lost.session, lost.epoch) {
                            shared.leases.lost.fetch_add(1, Ordering::Relaxed);
                            tracing::warn!(session = %lost.session, epoch = lost.epoch.0, "lease lost");
                        }
                    }
                }
                Ok(Err(segue_store::Error::Closed)) => return,
                failed => {
                    let is_expired = last_success.elapsed() >= safe_time;
                    let certainty = if is_expired { LeaseCertainty::Expired } else { LeaseCertainty::Doubtful };
                    match failed {
                        Ok(Err(error)) => shared.leases.record_renewal_failure(&error, certainty),
                        _ => shared.leases.record_renewal_failure(&"the store did not answer in time", certainty),
                    }
                }
            }
        }
        let next = Instant::now() + pause;
        let expiry = last_success + safe_time;
        tokio::time::sleep_until(if expiry > Instant::now() { next.min(expiry) } else { next }).await;
    }
}
