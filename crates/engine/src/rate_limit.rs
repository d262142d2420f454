//! Limits on the calls to each model: how many at once, and how many per minute. Waiting here does not count towards a
//! call's timeout.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::ModelName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::MODEL_CONCURRENT_CALLS_MAX;

/// Limits on the calls to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCallLimits {
    pub concurrent_calls_max: usize,
    /// No limit if absent.
    pub calls_per_minute_max: Option<u32>,
    /// Longest pause within a streamed answer; the role's timeout if absent.
    pub silence_ms_max: Option<u64>,
}

impl Default for ModelCallLimits {
    fn default() -> Self {
        Self { concurrent_calls_max: MODEL_CONCURRENT_CALLS_MAX, calls_per_minute_max: None, silence_ms_max: None }
    }
}

/// Applies the limits of all models.
#[derive(Debug, Default)]
pub(crate) struct ModelRateLimiters {
    limits: BTreeMap<ModelName, ModelCallLimits>,
    limiters: Mutex<BTreeMap<ModelName, Arc<SingleModelRateLimiter>>>,
}

#[derive(Debug)]
struct SingleModelRateLimiter {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    call_interval: Option<Duration>,
    next_call_at: Mutex<Option<Instant>>,
}

impl ModelRateLimiters {
    pub(crate) fn new(limits: BTreeMap<ModelName, ModelCallLimits>) -> Self {
        Self { limits, limiters: Mutex::default() }
    }

    /// Returns how long the model may pause within an answer, if configured.
    pub(crate) fn silence_ms_max(&self, model: &ModelName) -> Option<u64> {
        self.limits.get(model)?.silence_ms_max
    }

    /// Waits until the model may be called. Calls `on_wait` first if it has to wait. The call is over when the permit
    /// is dropped.
    pub(crate) async fn acquire(&self, model: &ModelName, on_wait: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        let limiter = self.model_limiter(model);
        // While a call waits no permit is free, so no call overtakes another.
        let permit = match limiter.permits.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                let _waiting = limiter.count_waiting();
                on_wait();
                // The semaphore is never closed.
                limiter.permits.clone().acquire_owned().await.ok()
            }
        };
        if let Some(interval) = limiter.call_interval {
            let call_at = {
                let mut next_call_at = limiter.next_call_at.lock().unwrap_or_else(PoisonError::into_inner);
                let call_at = next_call_at.map_or_else(Instant::now, |next_call_at| next_call_at.max(Instant::now()));
                *next_call_at = Some(call_at + interval);
                call_at
            };
            tokio::time::sleep_until(call_at).await;
        }
        permit
    }

    /// Returns whether a call waits for a permit of the model.
    pub(crate) fn has_waiting_calls(&self, model: &ModelName) -> bool {
        self.model_limiter(model).waiting.load(Ordering::Acquire) > 0
    }

    fn model_limiter(&self, model: &ModelName) -> Arc<SingleModelRateLimiter> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = limiters.get(model) {
            return limiter.clone();
        }
        let limits = self.limits.get(model).copied().unwrap_or_default();
        let interval = limits.calls_per_minute_max.map(|calls| Duration::from_secs(60) / calls.max(1));
        let permits = Arc::new(Semaphore::new(limits.concurrent_calls_max.max(1)));
        let limiter = Arc::new(SingleModelRateLimiter {
            permits,
            waiting: AtomicUsize::new(0),
            call_interval: interval,
            next_call_at: Mutex::default(),
        });
        limiters.insert(model.clone(), limiter.clone());
        limiter
    }
}

impl SingleModelRateLimiter {
    fn count_waiting(&self) -> WaitingCallGuard<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        WaitingCallGuard(self)
    }
}

/// Counts one waiting call until it is dropped.
struct WaitingCallGuard<'a>(&'a SingleModelRateLimiter);

impl Drop for WaitingCallGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter_with(calls_max: usize, per_minute: Option<u32>) -> ModelRateLimiters {
        let limits =
            ModelCallLimits { concurrent_calls_max: calls_max, calls_per_minute_max: per_minute, silence_ms_max: None };
        ModelRateLimiters::new(BTreeMap::from([("m".into(), limits)]))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_are_limited() {
        let limiter = limiter_with(1, None);
        let mut waits = 0;
        let first = limiter.acquire(&"m".into(), || unreachable!("it is free")).await;
        let second = tokio::time::timeout(Duration::from_secs(1), limiter.acquire(&"m".into(), || waits += 1)).await;
        assert!(second.is_err(), "the second waits");
        assert_eq!(
            (waits, limiter.has_waiting_calls(&"m".into())),
            (1, false),
            "it reported the wait, and waits no longer"
        );
        drop(first);
        assert!(limiter.acquire(&"m".into(), || unreachable!("it is free again")).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_per_minute_are_evenly_spaced() {
        let limiter = limiter_with(10, Some(60));
        let start = Instant::now();
        for _ in 0..3 {
            limiter.acquire(&"m".into(), || ()).await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }
}
