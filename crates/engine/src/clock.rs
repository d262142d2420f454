//! The engine's only source of the current time. Sleeping uses tokio's timers, so that a paused runtime can advance
//! time.

use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::ids::UnixMillis;

/// A source of the current time.
pub trait Clock: Send + Sync {
    fn now(&self) -> UnixMillis;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        // Before 1970 only if the clock was never set.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that follows tokio's time: in a paused runtime it advances only when something sleeps.
#[derive(Debug, Clone, Copy)]
pub struct PausableTokioClock {
    start: tokio::time::Instant,
    from: UnixMillis,
}

impl PausableTokioClock {
    /// Creates a clock that shows `from` now. Must be called within a tokio runtime.
    #[must_use]
    pub fn starting_at(from: UnixMillis) -> Self {
        Self { start: tokio::time::Instant::now(), from }
    }
}

impl Clock for PausableTokioClock {
    fn now(&self) -> UnixMillis {
        self.from.plus_ms(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
