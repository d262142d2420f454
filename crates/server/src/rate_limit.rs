//! Limits the requests per minute and the open streams of each key, and the searches of each owner. Callers without a key share
//! one budget.
//!
//! If several nodes share the budgets of requests, a node takes requests from them in batches, so that it asks about once a
//! second and not for every request. Streams and searches are counted by each node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use segue_engine::{RateLimitTokenRequest, SharedMeters, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::limits::{
    EMPTY_BUDGET_MS_MAX, KEYS_MAX, REQUEST_BATCH_MS_MAX, REQUEST_BATCHES_PER_MINUTE, SEARCHES_PER_OWNER_MAX,
};
use crate::options::ServerLimits;
use crate::problem::HttpProblem;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// The budgets of all callers.
#[derive(Debug)]
pub(crate) struct CallerRateLimiter {
    limits: ServerLimits,
    budgets: Mutex<HashMap<Option<String>, CallerRequestBudget>>,
    /// The budgets of all nodes, if there are several.
    meters: Option<Arc<dyn SharedMeters>>,
    /// The searches that each owner may start.
    searches: Mutex<HashMap<Option<String>, Arc<Semaphore>>>,
}

#[derive(Debug)]
struct CallerRequestBudget {
    /// Requests that may be sent now; refilled over time.
    requests_left: f64,
    refilled_at: Instant,
    stream_permits: Arc<Semaphore>,
    batch: Arc<tokio::sync::Mutex<RequestBatchFromSharedBudget>>,
}

/// Requests that this node took from a budget that it shares with others.
#[derive(Debug, Default)]
struct RequestBatchFromSharedBudget {
    left: u32,
    taken_at: Option<Instant>,
    /// The budget is empty until then.
    empty_until: Option<Instant>,
}

impl CallerRateLimiter {
    /// Creates a limiter with full budgets.
    #[must_use]
    pub(crate) fn new(limits: ServerLimits, meters: Option<Arc<dyn SharedMeters>>) -> Self {
        Self { limits, budgets: Mutex::default(), meters, searches: Mutex::default() }
    }

    /// Takes one request from the caller's budget.
    ///
    /// # Errors
    /// The budget is empty.
    pub(crate) async fn take_request(&self, caller: &Caller) -> Result<(), HttpProblem> {
        let server_max = self.limits.requests_per_minute_max;
        let max = caller.limits.requests_per_minute.map_or(server_max, |max| max.min(server_max));
        let Some(meters) = &self.meters else { return self.take_local_request(caller, max) };
        match self.take_shared_request(meters.as_ref(), caller, max).await {
            Ok(None) => Ok(()),
            Ok(Some(wait)) => Err(too_many_requests(max, wait.as_secs_f64())),
            Err(error) => {
                // Nothing can be stored now either. What can be answered without the store is limited by this node.
                tracing::warn!(%error, "the shared budgets cannot be reached; this node counts requests itself");
                self.take_local_request(caller, max)
            }
        }
    }

    /// Takes a request from this node's batch, and a new batch if that is used up. Returns how long to wait if the budget is
    /// empty.
    async fn take_shared_request(
        &self,
        meters: &dyn SharedMeters,
        caller: &Caller,
        max: u32,
    ) -> Result<Option<Duration>, StoreError> {
        let batch = self.with_budget(caller, |budget| budget.batch.clone());
        let mut batch = batch.lock().await;
        let now = Instant::now();
        let is_outdated = |at: Instant| now.duration_since(at) > Duration::from_millis(REQUEST_BATCH_MS_MAX);
        if batch.taken_at.is_some_and(is_outdated) {
            *batch = RequestBatchFromSharedBudget::default();
        }
        if batch.left == 0 {
            if let Some(wait) = batch.empty_until.and_then(|until| until.checked_duration_since(now)) {
                return Ok(Some(wait));
            }
            let bucket = format!("requests/{}", caller.key_id.as_deref().unwrap_or("-"));
            let wanted = max.div_ceil(REQUEST_BATCHES_PER_MINUTE);
            let grant = meters.take_tokens(RateLimitTokenRequest { bucket, tokens_per_minute: max, wanted }).await?;
            if grant.granted == 0 {
                let wait = Duration::from_millis(grant.next_in_ms.max(1));
                // Someone may raise the limit meanwhile.
                batch.empty_until = Some(now + wait.min(Duration::from_millis(EMPTY_BUDGET_MS_MAX)));
                return Ok(Some(wait));
            }
            *batch = RequestBatchFromSharedBudget { left: grant.granted, taken_at: Some(now), empty_until: None };
        }
        batch.left -= 1;
        Ok(None)
    }

    fn take_local_request(&self, caller: &Caller, max: u32) -> Result<(), HttpProblem> {
        let per_second = f64::from(max) / SECONDS_PER_MINUTE;
        self.with_budget(caller, |budget| {
            let now = Instant::now();
            budget.requests_left = f64::from(max)
                .min(budget.requests_left + now.duration_since(budget.refilled_at).as_secs_f64() * per_second);
            budget.refilled_at = now;
            if budget.requests_left < 1.0 {
                return Err(too_many_requests(max, (1.0 - budget.requests_left) / per_second));
            }
            budget.requests_left -= 1.0;
            Ok(())
        })
    }

    /// Waits until the caller's owner may start another search. The searches of one owner never occupy all readers of the
    /// store.
    pub(crate) async fn acquire_search_permit(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        let permits = {
            let mut searches = self.searches.lock().unwrap_or_else(PoisonError::into_inner);
            // A semaphore that nobody uses is like a new one.
            searches.retain(|_, permits| Arc::strong_count(permits) > 1);
            let new = || Arc::new(Semaphore::new(SEARCHES_PER_OWNER_MAX));
            searches.entry(caller.owner.clone()).or_insert_with(new).clone()
        };
        // The semaphore is never closed.
        permits.acquire_owned().await.ok()
    }

    /// Reserves a stream until the permit is dropped.
    ///
    /// # Errors
    /// The caller has too many open streams.
    pub(crate) fn acquire_stream_permit(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, HttpProblem> {
        let streams = self.with_budget(caller, |budget| budget.stream_permits.clone());
        streams.try_acquire_owned().map_err(|_| {
            let detail = format!("{} streams are open, which is the maximum; close one first", self.limits.streams_max);
            HttpProblem::new("too-many-streams", detail).with_retry_after(1)
        })
    }

    fn with_budget<T>(&self, caller: &Caller, work: impl FnOnce(&mut CallerRequestBudget) -> T) -> T {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        // Only existing keys get here. Idle budgets are removed when there are too many.
        if budgets.len() > 2 * KEYS_MAX {
            let permits_max = self.limits.streams_max;
            budgets.retain(|_, budget| budget.stream_permits.available_permits() < permits_max);
        }
        let budget = budgets.entry(caller.key_id.clone()).or_insert_with(|| CallerRequestBudget {
            requests_left: f64::from(self.limits.requests_per_minute_max),
            refilled_at: Instant::now(),
            stream_permits: Arc::new(Semaphore::new(self.limits.streams_max)),
            batch: Arc::default(),
        });
        work(budget)
    }
}

/// The problem of a caller with an empty budget, who has to wait for whole seconds.
fn too_many_requests(max: u32, wait_seconds: f64) -> HttpProblem {
    let seconds = wait_seconds.ceil().clamp(1.0, SECONDS_PER_MINUTE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 60")]
    let seconds = seconds as u64;
    let detail = format!("this caller may send {max} requests per minute; the next is allowed in {seconds} s");
    HttpProblem::new("too-many-requests", detail).with_retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn searches_of_one_owner_do_not_delay_another() {
        let limiter = CallerRateLimiter::new(ServerLimits::default(), None);
        let owner = |name: &str| Caller { owner: Some(name.into()), ..Caller::default() };
        let search = |name: &str| limiter.acquire_search_permit(&owner(name)).now_or_never().flatten();
        let mut running: Vec<_> = (0..SEARCHES_PER_OWNER_MAX).map(|_| search("acme").expect("a permit")).collect();
        assert!(search("acme").is_none(), "the next one waits");
        assert!(search("bolt").is_some());
        running.pop();
        assert!(search("acme").is_some());
    }

    #[tokio::test]
    async fn key_with_a_lower_limit_is_told_when_to_come_back() {
        let limiter = CallerRateLimiter::new(ServerLimits::default(), None);
        let limits = crate::usage::ApiKeyLimits { requests_per_minute: Some(2), ..Default::default() };
        let caller = Caller { key_id: Some("k".into()), limits: Arc::new(limits), ..Caller::default() };
        assert!(limiter.take_request(&caller).await.is_ok() && limiter.take_request(&caller).await.is_ok());
        let refused = limiter.take_request(&caller).await.expect_err("too many");
        assert_eq!((refused.code, refused.retry_after_seconds), ("too-many-requests", Some(30)));
        assert!(refused.detail.contains("2 requests per minute"), "{}", refused.detail);
    }

    #[tokio::test]
    async fn each_key_has_its_own_budget() {
        let limiter = CallerRateLimiter::new(
            ServerLimits { requests_per_minute_max: 2, streams_max: 1, ..ServerLimits::default() },
            None,
        );
        let (one, other) = (Caller::default(), Caller { key_id: Some("k".into()), ..Caller::default() });
        assert!(limiter.take_request(&one).await.is_ok() && limiter.take_request(&one).await.is_ok());
        assert_eq!(limiter.take_request(&one).await.expect_err("too many").code, "too-many-requests");
        assert!(limiter.take_request(&other).await.is_ok());
        let stream = limiter.acquire_stream_permit(&one).expect("a permit");
        assert_eq!(limiter.acquire_stream_permit(&one).expect_err("too many").code, "too-many-streams");
        assert!(limiter.acquire_stream_permit(&other).is_ok());
        drop(stream);
        assert!(limiter.acquire_stream_permit(&one).is_ok());
    }

    /// A budget of several nodes that counts how often it is asked.
    #[derive(Debug, Default)]
    struct CountingMeters(std::sync::atomic::AtomicU32);

    #[async_trait::async_trait]
    impl SharedMeters for CountingMeters {
        async fn take_tokens(
            &self,
            request: RateLimitTokenRequest,
        ) -> Result<segue_engine::RateLimitTokenGrant, StoreError> {
            let asked = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let granted = if asked < 5 { request.wanted } else { 0 };
            Ok(segue_engine::RateLimitTokenGrant { granted, next_in_ms: 2_500 })
        }

        async fn report_usage(&self, _report: segue_engine::UsageAccountUpdate) -> Result<(), StoreError> {
            Err(StoreError::Closed)
        }

        async fn read_usage(&self, _account: &str) -> Result<segue_engine::UsageAmounts, StoreError> {
            Err(StoreError::Closed)
        }
    }

    #[tokio::test]
    async fn node_takes_requests_from_a_shared_budget_in_batches() {
        let meters = Arc::new(CountingMeters::default());
        let limits = ServerLimits { requests_per_minute_max: 600, ..ServerLimits::default() };
        let limiter = CallerRateLimiter::new(limits, Some(meters.clone()));
        let caller = Caller::default();
        for _ in 0..50 {
            limiter.take_request(&caller).await.expect("allowed");
        }
        for _ in 0..20 {
            let refused = limiter.take_request(&caller).await.expect_err("the budget is empty");
            assert_eq!(refused.code, "too-many-requests");
        }
        // Five batches of a second, and one question to which there was none. If a second passes, it asks again.
        let asked = meters.0.load(std::sync::atomic::Ordering::Relaxed);
        assert!((6..10).contains(&asked), "{asked}");
    }
}
