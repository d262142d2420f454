//! How many calls a model gets at once, and how many a minute. Waiting here costs no call its time-out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::ModelName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::MODEL_CONCURRENT_CALLS_MAX;

/// What a model may be asked to bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCallLimits {
    /// Calls at once.
    pub concurrent_calls_max: usize,
    /// Calls a minute; no limit if absent.
    pub calls_per_minute_max: Option<u32>,
    /// Longest silence of an answer under way; as long as its role waits if absent.
    pub silence_ms_max: Option<u64>,
}

impl Default for ModelCallLimits {
    fn default() -> Self {
        Self { concurrent_calls_max: MODEL_CONCURRENT_CALLS_MAX, calls_per_minute_max: None, silence_ms_max: None }
    }
}

/// The limits of all models.
#[derive(Debug, Default)]
pub(crate) struct ModelRateLimiter {
    limits: BTreeMap<ModelName, ModelCallLimits>,
    limiters: Mutex<BTreeMap<ModelName, Arc<ModelLimiter>>>,
}

#[derive(Debug)]
struct ModelLimiter {
    permits: Arc<Semaphore>,
    /// Calls that wait for a permit.
    waiting: AtomicUsize,
    call_interval: Option<Duration>,
    next_call_at: Mutex<Option<Instant>>,
}

impl ModelRateLimiter {
    pub fn new(limits: BTreeMap<ModelName, ModelCallLimits>) -> Self {
        Self { limits, limiters: Mutex::default() }
    }

    /// How long the model may be silent while it answers, if somebody said so.
    pub fn silence_ms_max(&self, model: &ModelName) -> Option<u64> {
        self.limits.get(model)?.silence_ms_max
    }

    /// Waits until the model may be called, having said that it `must_wait` if it must. The call is over when the permit is
    /// dropped.
    pub async fn acquire(&self, model: &ModelName, must_wait: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        let lane = self.model_limiter(model);
        // None is free as long as somebody waits, so nobody is overtaken.
        let permit = match lane.permits.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                let _waiting = lane.count_waiting();
                must_wait();
                lane.permits.clone().acquire_owned().await.ok()
            }
        };
        if let Some(gap) = lane.call_interval {
            let turn = {
                let mut free_at = lane.next_call_at.lock().unwrap_or_else(PoisonError::into_inner);
                let turn = free_at.map_or_else(Instant::now, |free_at| free_at.max(Instant::now()));
                *free_at = Some(turn + gap);
                turn
            };
            tokio::time::sleep_until(turn).await;
        }
        permit
    }

    /// Whether a call waits for its model to be free.
    pub fn has_waiting_calls(&self, model: &ModelName) -> bool {
        self.model_limiter(model).waiting.load(Ordering::Acquire) > 0
    }

    fn model_limiter(&self, model: &ModelName) -> Arc<ModelLimiter> {
        let mut lanes = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(model) {
            return lane.clone();
        }
        let limits = self.limits.get(model).copied().unwrap_or_default();
        let gap = limits.calls_per_minute_max.map(|calls| Duration::from_secs(60) / calls.max(1));
        let permits = Arc::new(Semaphore::new(limits.concurrent_calls_max.max(1)));
        let lane = Arc::new(ModelLimiter {
            permits,
            waiting: AtomicUsize::new(0),
            call_interval: gap,
            next_call_at: Mutex::default(),
        });
        lanes.insert(model.clone(), lane.clone());
        lane
    }
}

impl ModelLimiter {
    fn count_waiting(&self) -> WaitingCallGuard<'_> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        WaitingCallGuard(self)
    }
}

/// Somebody waits, until this is dropped.
struct WaitingCallGuard<'l>(&'l ModelLimiter);

impl Drop for WaitingCallGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(calls_max: usize, per_minute: Option<u32>) -> ModelRateLimiter {
        let limits =
            ModelCallLimits { concurrent_calls_max: calls_max, calls_per_minute_max: per_minute, silence_ms_max: None };
        ModelRateLimiter::new(BTreeMap::from([("m".into(), limits)]))
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_run_at_once_than_the_model_bears() {
        let pace = pace(1, None);
        let mut told = 0;
        let first = pace.acquire(&"m".into(), || unreachable!("it is free")).await;
        let second = tokio::time::timeout(Duration::from_secs(1), pace.acquire(&"m".into(), || told += 1)).await;
        assert!(second.is_err(), "the second waits");
        assert_eq!((told, pace.has_waiting_calls(&"m".into())), (1, false), "it said so, and waits no longer");
        drop(first);
        assert!(pace.acquire(&"m".into(), || unreachable!("it is free again")).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_spread_over_the_minute() {
        let pace = pace(10, Some(60));
        let start = Instant::now();
        for _ in 0..3 {
            pace.acquire(&"m".into(), || ()).await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }
}
