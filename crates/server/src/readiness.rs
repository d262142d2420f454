//! Checks whether the store can be written. The result is shared by all requests for a moment, because the check needs no
//! key and must stay cheap.

use std::time::Duration;

use segue_engine::Engine;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::limits::{READINESS_CACHE_MS, READINESS_MS_MAX};

/// The result of the last check.
#[derive(Debug, Default)]
pub(crate) struct ReadinessCheckCache(Mutex<Option<(Instant, bool)>>);

impl ReadinessCheckCache {
    /// Returns whether the store can be written. Concurrent requests wait for the same check.
    pub(crate) async fn is_ready(&self, engine: &Engine) -> bool {
        let mut last_check = self.0.lock().await;
        if let Some((checked_at, is_ready)) = *last_check
            && checked_at.elapsed() < Duration::from_millis(READINESS_CACHE_MS)
        {
            return is_ready;
        }
        let probe = tokio::time::timeout(Duration::from_millis(READINESS_MS_MAX), engine.probe_store());
        let is_ready = match probe.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the store cannot be written");
                false
            }
            Err(_) => {
                tracing::error!(ms = READINESS_MS_MAX, "the store did not answer");
                false
            }
        };
        *last_check = Some((Instant::now(), is_ready));
        is_ready
    }
}
