//! The store's own clock, by which leases expire and outcomes are forgotten. A process whose clock is wrong must not end
//! the leases of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::ids::UnixMillis;
use tokio::time::Instant;

/// A clock that runs with the runtime's time, also if that is paused. Clones share it.
#[derive(Debug, Clone)]
pub struct StoreClock {
    started_at: UnixMillis,
    started: Instant,
    advanced_ms: Arc<AtomicU64>,
}

impl StoreClock {
    /// Creates a clock with the system's time.
    #[must_use]
    pub fn system() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Creates a clock that shows `started_at` now.
    #[must_use]
    pub fn starting_at(started_at: UnixMillis) -> Self {
        Self { started_at, started: Instant::now(), advanced_ms: Arc::default() }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.started_at.plus_ms(elapsed_ms).plus_ms(self.advanced_ms.load(Ordering::Relaxed))
    }

    /// Returns by how much the clock was moved forward.
    #[cfg(feature = "postgres")]
    pub(crate) fn advanced_ms(&self) -> u64 {
        self.advanced_ms.load(Ordering::Relaxed)
    }

    /// Moves the clock forward, for tests.
    pub fn advance_ms(&self, ms: u64) {
        self.advanced_ms.fetch_add(ms, Ordering::Relaxed);
    }
}
