//! How much each key may ask: requests a minute, and streams at once. Those who need no key share one account.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::limits::KEYS_MAX;
use crate::options::Bounds;
use crate::problem::Problem;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// How much each has asked.
#[derive(Debug)]
pub struct Pace {
    bounds: Bounds,
    accounts: Mutex<HashMap<Option<String>, Account>>,
}

#[derive(Debug)]
struct Account {
    /// Requests that may be made at once, refilled as time passes.
    left: f64,
    at: Instant,
    streams: Arc<Semaphore>,
}

impl Pace {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, accounts: Mutex::default() }
    }

    /// # Errors
    /// They ask too often.
    pub fn request(&self, caller: &Caller) -> Result<(), Problem> {
        let most = f64::from(self.bounds.requests_per_minute_max);
        let per_second = most / SECONDS_PER_MINUTE;
        self.with(caller, |account| {
            let now = Instant::now();
            account.left = most.min(account.left + now.duration_since(account.at).as_secs_f64() * per_second);
            account.at = now;
            if account.left < 1.0 {
                let detail =
                    format!("more than {} requests a minute; wait a little", self.bounds.requests_per_minute_max);
                return Err(Problem::new("too-many-requests", detail).after_seconds(1));
            }
            account.left -= 1.0;
            Ok(())
        })
    }

    /// Room for a stream, which is free again once it is dropped.
    ///
    /// # Errors
    /// They have too many open.
    pub fn stream(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        let streams = self.with(caller, |account| account.streams.clone());
        streams.try_acquire_owned().map_err(|_| {
            let detail = format!("{} streams are open, the most there may be; close some", self.bounds.streams_max);
            Problem::new("too-many-streams", detail).after_seconds(1)
        })
    }

    fn with<T>(&self, caller: &Caller, work: impl FnOnce(&mut Account) -> T) -> T {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        // Only keys that exist get here; those of old ones go when there are too many.
        if accounts.len() > 2 * KEYS_MAX {
            let all = self.bounds.streams_max;
            accounts.retain(|_, account| account.streams.available_permits() < all);
        }
        let account = accounts.entry(caller.key.clone()).or_insert_with(|| Account {
            left: f64::from(self.bounds.requests_per_minute_max),
            at: Instant::now(),
            streams: Arc::new(Semaphore::new(self.bounds.streams_max)),
        });
        work(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_an_account_of_its_own() {
        let pace = Pace::new(Bounds { requests_per_minute_max: 2, streams_max: 1, ..Bounds::default() });
        let (one, other) = (Caller::default(), Caller { key: Some("k".into()), ..Caller::default() });
        assert!(pace.request(&one).is_ok() && pace.request(&one).is_ok());
        assert_eq!(pace.request(&one).expect_err("too many").code, "too-many-requests");
        assert!(pace.request(&other).is_ok());
        let stream = pace.stream(&one).expect("room");
        assert_eq!(pace.stream(&one).expect_err("too many").code, "too-many-streams");
        assert!(pace.stream(&other).is_ok());
        drop(stream);
        assert!(pace.stream(&one).is_ok());
    }
}
