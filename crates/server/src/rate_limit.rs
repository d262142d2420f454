//! How much each key may ask: requests a minute, and streams at once. Those who need no key share one account.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::limits::KEYS_MAX;
use crate::options::ServerLimits;
use crate::problem::HttpProblem;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// How much each has asked.
#[derive(Debug)]
pub struct CallerRateLimiter {
    limits: ServerLimits,
    budgets: Mutex<HashMap<Option<String>, CallerBudget>>,
}

#[derive(Debug)]
struct CallerBudget {
    /// Requests that may be made at once, refilled as time passes.
    requests_left: f64,
    refilled_at: Instant,
    stream_permits: Arc<Semaphore>,
}

impl CallerRateLimiter {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(bounds: ServerLimits) -> Self {
        Self { limits: bounds, budgets: Mutex::default() }
    }

    /// # Errors
    /// They ask too often.
    pub fn check_request(&self, caller: &Caller) -> Result<(), HttpProblem> {
        let most = f64::from(self.limits.requests_per_minute_max);
        let per_second = most / SECONDS_PER_MINUTE;
        self.with_budget(caller, |account| {
            let now = Instant::now();
            account.requests_left =
                most.min(account.requests_left + now.duration_since(account.refilled_at).as_secs_f64() * per_second);
            account.refilled_at = now;
            if account.requests_left < 1.0 {
                let detail =
                    format!("more than {} requests a minute; wait a little", self.limits.requests_per_minute_max);
                return Err(HttpProblem::new("too-many-requests", detail).with_retry_after(1));
            }
            account.requests_left -= 1.0;
            Ok(())
        })
    }

    /// Room for a stream, which is free again once it is dropped.
    ///
    /// # Errors
    /// They have too many open.
    pub fn acquire_stream_permit(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, HttpProblem> {
        let streams = self.with_budget(caller, |account| account.stream_permits.clone());
        streams.try_acquire_owned().map_err(|_| {
            let detail = format!("{} streams are open, the most there may be; close some", self.limits.streams_max);
            HttpProblem::new("too-many-streams", detail).with_retry_after(1)
        })
    }

    fn with_budget<T>(&self, caller: &Caller, work: impl FnOnce(&mut CallerBudget) -> T) -> T {
        let mut accounts = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        // Only keys that exist get here; those of old ones go when there are too many.
        if accounts.len() > 2 * KEYS_MAX {
            let all = self.limits.streams_max;
            accounts.retain(|_, account| account.stream_permits.available_permits() < all);
        }
        let account = accounts.entry(caller.key_id.clone()).or_insert_with(|| CallerBudget {
            requests_left: f64::from(self.limits.requests_per_minute_max),
            refilled_at: Instant::now(),
            stream_permits: Arc::new(Semaphore::new(self.limits.streams_max)),
        });
        work(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_an_account_of_its_own() {
        let pace = CallerRateLimiter::new(ServerLimits {
            requests_per_minute_max: 2,
            streams_max: 1,
            ..ServerLimits::default()
        });
        let (one, other) = (Caller::default(), Caller { key_id: Some("k".into()), ..Caller::default() });
        assert!(pace.check_request(&one).is_ok() && pace.check_request(&one).is_ok());
        assert_eq!(pace.check_request(&one).expect_err("too many").code, "too-many-requests");
        assert!(pace.check_request(&other).is_ok());
        let stream = pace.acquire_stream_permit(&one).expect("room");
        assert_eq!(pace.acquire_stream_permit(&one).expect_err("too many").code, "too-many-streams");
        assert!(pace.acquire_stream_permit(&other).is_ok());
        drop(stream);
        assert!(pace.acquire_stream_permit(&one).is_ok());
    }
}
