//! Limits the requests per minute and the open streams of each key, and the searches of each owner. Callers without a key share
//! one budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::limits::{KEYS_MAX, SEARCHES_PER_OWNER_MAX};
use crate::options::ServerLimits;
use crate::problem::HttpProblem;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// The budgets of all callers.
#[derive(Debug)]
pub(crate) struct CallerRateLimiter {
    limits: ServerLimits,
    budgets: Mutex<HashMap<Option<String>, CallerRequestBudget>>,
    /// The searches that each owner may start.
    searches: Mutex<HashMap<Option<String>, Arc<Semaphore>>>,
}

#[derive(Debug)]
struct CallerRequestBudget {
    /// Requests that may be sent now; refilled over time.
    requests_left: f64,
    refilled_at: Instant,
    stream_permits: Arc<Semaphore>,
}

impl CallerRateLimiter {
    /// Creates a limiter with full budgets.
    #[must_use]
    pub(crate) fn new(limits: ServerLimits) -> Self {
        Self { limits, budgets: Mutex::default(), searches: Mutex::default() }
    }

    /// Takes one request from the caller's budget.
    ///
    /// # Errors
    /// The budget is empty.
    pub(crate) fn check_request(&self, caller: &Caller) -> Result<(), HttpProblem> {
        let server_max = self.limits.requests_per_minute_max;
        let max = caller.limits.requests_per_minute.map_or(server_max, |max| max.min(server_max));
        let per_second = f64::from(max) / SECONDS_PER_MINUTE;
        self.with_budget(caller, |budget| {
            let now = Instant::now();
            budget.requests_left = f64::from(max)
                .min(budget.requests_left + now.duration_since(budget.refilled_at).as_secs_f64() * per_second);
            budget.refilled_at = now;
            if budget.requests_left < 1.0 {
                let seconds = seconds_until_next_request(budget.requests_left, per_second);
                let detail =
                    format!("this caller may send {max} requests per minute; the next is allowed in {seconds} s");
                return Err(HttpProblem::new("too-many-requests", detail).with_retry_after(seconds));
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
        });
        work(budget)
    }
}

/// Returns how long a caller with an empty budget has to wait, in whole seconds.
fn seconds_until_next_request(requests_left: f64, per_second: f64) -> u64 {
    let seconds = ((1.0 - requests_left) / per_second).ceil().clamp(1.0, SECONDS_PER_MINUTE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 60")]
    let seconds = seconds as u64;
    seconds
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn searches_of_one_owner_do_not_delay_another() {
        let limiter = CallerRateLimiter::new(ServerLimits::default());
        let owner = |name: &str| Caller { owner: Some(name.into()), ..Caller::default() };
        let search = |name: &str| limiter.acquire_search_permit(&owner(name)).now_or_never().flatten();
        let mut running: Vec<_> = (0..SEARCHES_PER_OWNER_MAX).map(|_| search("acme").expect("a permit")).collect();
        assert!(search("acme").is_none(), "the next one waits");
        assert!(search("bolt").is_some());
        running.pop();
        assert!(search("acme").is_some());
    }

    #[test]
    fn key_with_a_lower_limit_is_told_when_to_come_back() {
        let limiter = CallerRateLimiter::new(ServerLimits::default());
        let limits = crate::usage::KeyLimits { requests_per_minute: Some(2), ..Default::default() };
        let caller = Caller { key_id: Some("k".into()), limits: Arc::new(limits), ..Caller::default() };
        assert!(limiter.check_request(&caller).is_ok() && limiter.check_request(&caller).is_ok());
        let refused = limiter.check_request(&caller).expect_err("too many");
        assert_eq!((refused.code, refused.retry_after_seconds), ("too-many-requests", Some(30)));
        assert!(refused.detail.contains("2 requests per minute"), "{}", refused.detail);
    }

    #[test]
    fn each_key_has_its_own_budget() {
        let limiter = CallerRateLimiter::new(ServerLimits {
            requests_per_minute_max: 2,
            streams_max: 1,
            ..ServerLimits::default()
        });
        let (one, other) = (Caller::default(), Caller { key_id: Some("k".into()), ..Caller::default() });
        assert!(limiter.check_request(&one).is_ok() && limiter.check_request(&one).is_ok());
        assert_eq!(limiter.check_request(&one).expect_err("too many").code, "too-many-requests");
        assert!(limiter.check_request(&other).is_ok());
        let stream = limiter.acquire_stream_permit(&one).expect("a permit");
        assert_eq!(limiter.acquire_stream_permit(&one).expect_err("too many").code, "too-many-streams");
        assert!(limiter.acquire_stream_permit(&other).is_ok());
        drop(stream);
        assert!(limiter.acquire_stream_permit(&one).is_ok());
    }
}
