//! The only clock. Sleeping is tokio's, so that a paused runtime can make time pass at will; what time it is comes from here.

use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::ids::UnixMillis;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> UnixMillis;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that runs with tokio's time: in a paused runtime it stands still until something sleeps.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: tokio::time::Instant,
    from: UnixMillis,
}

impl TokioClock {
    /// A clock that shows `from` now. Must be made within a runtime.
    #[must_use]
    pub fn starting_at(from: UnixMillis) -> Self {
        Self { start: tokio::time::Instant::now(), from }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> UnixMillis {
        self.from.plus_ms(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
