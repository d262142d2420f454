//! Checks whether the store can be written. The result is shared by all requests for a moment, because the check needs no
//! key and must stay cheap.

use std::time::Duration;

use segue_engine::Engine;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::limits::READINESS_CACHE_MS;

/// The result of the last check.
#[derive(Debug, Default)]
pub(crate) struct ReadinessProbe(Mutex<Option<(Instant, bool)>>);

impl ReadinessProbe {
    /// Returns whether the store can be written. Concurrent requests wait for the same check.
    pub(crate) async fn is_ready(&self, engine: &Engine) -> bool {
        let mut last_check = self.0.lock().await;
        if let Some((checked_at, is_ready)) = *last_check
            && checked_at.elapsed() < Duration::from_millis(READINESS_CACHE_MS)
        {
            return is_ready;
        }
        let probed = engine.probe_store().await;
        if let Err(error) = &probed {
            tracing::error!(%error, "the store cannot be written");
        }
        let is_ready = probed.is_ok();
        *last_check = Some((Instant::now(), is_ready));
        is_ready
    }
}
