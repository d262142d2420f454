//! Leaves a provider alone that cannot be reached: after some failures in a row nobody calls it for a while, then one call finds out whether
//! it is back. Whoever is turned away is told when to come again, and that goes into the journal like any failure. Knows providers by
//! name and place only: two servers of one kind are two.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::prompt::{CallFailure, FailureKind};
use tokio::time::Instant;

use crate::limits::{BREAKER_FAILURES_MAX, BREAKER_OPEN_MS_MAX, BREAKER_OPEN_MS_MIN};

/// How every provider fares.
#[derive(Debug, Clone, Default)]
pub(crate) struct CircuitBreaker {
    providers: Arc<Mutex<BTreeMap<String, BreakerState>>>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Failures in a row.
    failures: u32,
    last_error: String,
    /// Until when it is left alone, if it is.
    open_until: Option<Instant>,
    open_ms: u64,
    /// Whether a call is finding out if it is back.
    is_probing: bool,
}

/// Leave to call a provider. Given back unused, it counts for nothing.
#[derive(Debug)]
pub(crate) struct BreakerPermit {
    breaker: CircuitBreaker,
    provider: String,
    is_probe: bool,
}

impl CircuitBreaker {
    /// Leave to call a provider, unless it is left alone.
    pub fn try_acquire(&self, provider: &str) -> Result<BreakerPermit, CallFailure> {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let fare = providers.entry(provider.to_owned()).or_default();
        let leave =
            |is_trial| BreakerPermit { breaker: self.clone(), provider: provider.to_owned(), is_probe: is_trial };
        let Some(until) = fare.open_until else { return Ok(leave(false)) };
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() && !fare.is_probing {
            fare.is_probing = true;
            return Ok(leave(true));
        }
        // While somebody finds out, others come back when that is likely to be known. Each time costs them a try, so it is not soon.
        let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX).max(BREAKER_OPEN_MS_MIN);
        let seconds = rest_ms.div_ceil(1_000);
        let message = format!(
            "{provider} failed {} times in a row and is left alone for {seconds} s; the last time: {}",
            fare.failures, fare.last_error
        );
        Err(CallFailure { retry_after_ms: Some(rest_ms), ..CallFailure::new(FailureKind::Overload, message) })
    }
}

impl BreakerPermit {
    /// The provider has begun to answer, so it is there, however long the rest takes.
    pub fn mark_reachable(&mut self) {
        if std::mem::take(&mut self.is_probe) {
            let mut providers = self.breaker.providers.lock().unwrap_or_else(PoisonError::into_inner);
            providers.insert(self.provider.clone(), BreakerState::default());
        }
    }

    /// The call is over.
    pub fn record_outcome<T>(mut self, outcome: &Result<T, CallFailure>) {
        let trouble = match outcome {
            Err(failure) => match failure.kind {
                FailureKind::Overload | FailureKind::Network | FailureKind::Timeout => Some(failure),
                // Whoever says no is there.
                FailureKind::InvalidApiKey
                | FailureKind::ModelNotFound
                | FailureKind::ContextTooLong
                | FailureKind::RateLimit
                | FailureKind::MalformedReply
                | FailureKind::UnusableReply
                | FailureKind::Refused
                | FailureKind::BadRequest => None,
            },
            Ok(_) => None,
        };
        let breaker = self.breaker.clone();
        let mut providers = breaker.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let fare = providers.entry(self.provider.clone()).or_default();
        match trouble {
            None => *fare = BreakerState::default(),
            Some(failure) => {
                fare.failures = fare.failures.saturating_add(1);
                fare.last_error.clone_from(&failure.message);
                // Those that were under way when it was found out add nothing.
                if self.is_probe || (fare.open_until.is_none() && fare.failures >= BREAKER_FAILURES_MAX) {
                    fare.open_ms = (fare.open_ms * 2).clamp(BREAKER_OPEN_MS_MIN, BREAKER_OPEN_MS_MAX);
                    fare.open_until = Some(Instant::now() + Duration::from_millis(fare.open_ms));
                    fare.is_probing = false;
                }
            }
        }
        self.is_probe = false;
    }
}

impl Drop for BreakerPermit {
    fn drop(&mut self) {
        if self.is_probe {
            let mut providers = self.breaker.providers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(fare) = providers.get_mut(&self.provider) {
                fare.is_probing = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(breaker: &CircuitBreaker, kind: FailureKind) -> Result<(), CallFailure> {
        breaker.try_acquire("acme")?.record_outcome::<()>(&Err(CallFailure::new(kind, "no")));
        Ok(())
    }

    fn open() -> CircuitBreaker {
        let breaker = CircuitBreaker::default();
        (0..BREAKER_FAILURES_MAX).for_each(|_| fails(&breaker, FailureKind::Network).expect("still called"));
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_cannot_be_reached_is_left_alone_for_a_while() {
        let breaker = open();
        let failure = breaker.try_acquire("acme").expect_err("left alone");
        assert_eq!((failure.kind, failure.retry_after_ms), (FailureKind::Overload, Some(BREAKER_OPEN_MS_MIN)));
        assert_eq!(failure.message, "acme failed 5 times in a row and is left alone for 5 s; the last time: no");
        assert!(breaker.try_acquire("other").is_ok(), "others are not");
    }

    #[tokio::test(start_paused = true)]
    async fn another_place_of_the_same_provider_is_not_left_alone() {
        let breaker = CircuitBreaker::default();
        for _ in 0..BREAKER_FAILURES_MAX {
            let leave = breaker.try_acquire("acme at box:1").expect("still called");
            leave.record_outcome::<()>(&Err(CallFailure::new(FailureKind::Network, "no")));
        }
        assert!(
            breaker.try_acquire("acme at box:1").expect_err("left alone").message.starts_with("acme at box:1 failed")
        );
        assert!(breaker.try_acquire("acme at box:2").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_finds_out_whether_it_is_back() {
        let breaker = open();
        tokio::time::advance(Duration::from_millis(BREAKER_OPEN_MS_MIN)).await;
        let trial = breaker.try_acquire("acme").expect("the first to come");
        assert!(breaker.try_acquire("acme").is_err(), "nobody else meanwhile");
        drop(trial);
        let trial = breaker.try_acquire("acme").expect("a trial that was dropped is none");
        trial.record_outcome::<()>(&Ok(()));
        assert!(breaker.try_acquire("acme").is_ok());
        assert!(
            fails(&breaker, FailureKind::Overload).is_ok() && breaker.try_acquire("acme").is_ok(),
            "and all is forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_word_of_a_trial_lets_everybody_in() {
        let breaker = open();
        tokio::time::advance(Duration::from_millis(BREAKER_OPEN_MS_MIN)).await;
        let mut trial = breaker.try_acquire("acme").expect("the first to come");
        assert!(breaker.try_acquire("acme").is_err(), "it has not answered yet");
        trial.mark_reachable();
        assert!(breaker.try_acquire("acme").is_ok(), "it is there, though its answer is not whole");
        trial.record_outcome::<()>(&Err(CallFailure::new(FailureKind::Network, "broke off")));
        assert!(breaker.try_acquire("acme").is_ok(), "one failure is only one");
    }

    #[tokio::test(start_paused = true)]
    async fn each_trial_that_fails_doubles_the_rest_up_to_a_bound() {
        let breaker = open();
        let mut rests = Vec::new();
        for _ in 0..6 {
            let rest_ms = breaker.try_acquire("acme").expect_err("left alone").retry_after_ms.expect("told");
            rests.push(rest_ms);
            tokio::time::advance(Duration::from_millis(rest_ms)).await;
            fails(&breaker, FailureKind::Timeout).expect("a trial");
        }
        assert_eq!(rests, [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_says_no_is_there() {
        let breaker = CircuitBreaker::default();
        for _ in 0..BREAKER_FAILURES_MAX * 2 {
            fails(&breaker, FailureKind::RateLimit).expect("called");
            fails(&breaker, FailureKind::Overload).expect("called");
        }
        assert!(breaker.try_acquire("acme").is_ok());
    }
}
