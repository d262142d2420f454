//! The only clock. Sleeping is tokio's, so that a paused runtime can make time pass at will; what time it is comes from here.

use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::ids::Millis;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Millis;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that runs with tokio's time: in a paused runtime it stands still until something sleeps.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    start: tokio::time::Instant,
    from: Millis,
}

impl RuntimeClock {
    /// A clock that shows `from` now. Must be made within a runtime.
    #[must_use]
    pub fn starting(from: Millis) -> Self {
        Self { start: tokio::time::Instant::now(), from }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Millis {
        self.from.after(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
