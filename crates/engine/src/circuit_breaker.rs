//! Stops calling a provider that cannot be reached. After several consecutive failures the breaker opens for a while;
//! then one probe call checks whether the provider is back. Calls refused meanwhile fail with a time to retry, and that
//! failure is recorded like any other. Providers are distinguished by name and address, so two servers of one kind have
//! two breakers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use segue_core::prompt::{CallFailure, CallFailureKind};
use tokio::time::Instant;

use crate::limits::{BREAKER_FAILURES_MAX, BREAKER_OPEN_MS_MAX, BREAKER_OPEN_MS_MIN};

/// The circuit breakers of all providers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderCircuitBreakers {
    providers: Arc<Mutex<BTreeMap<String, BreakerState>>>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Number of consecutive failures.
    failures: u32,
    last_error: String,
    /// When the next probe may be made, if the breaker is open.
    open_until: Option<Instant>,
    open_ms: u64,
    /// Whether a probe call is running.
    is_probing: bool,
}

/// Permission to call a provider. Dropping it unused has no effect on the breaker.
#[derive(Debug)]
pub(crate) struct BreakerPermit {
    breaker: ProviderCircuitBreakers,
    provider: String,
    is_probe: bool,
}

impl ProviderCircuitBreakers {
    /// Returns permission to call a provider, unless its breaker is open.
    pub(crate) fn try_acquire(&self, provider: &str) -> Result<BreakerPermit, CallFailure> {
        let mut providers = self.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let state = providers.entry(provider.to_owned()).or_default();
        let permit = |is_probe| BreakerPermit { breaker: self.clone(), provider: provider.to_owned(), is_probe };
        let Some(open_until) = state.open_until else { return Ok(permit(false)) };
        let wait = open_until.saturating_duration_since(Instant::now());
        if wait.is_zero() && !state.is_probing {
            state.is_probing = true;
            tracing::info!(provider, "circuit breaker half-open; one call probes the provider");
            return Ok(permit(true));
        }
        // During a probe, other calls wait until its result is likely to be known. Each retry uses up an attempt, so
        // not too soon.
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(BREAKER_OPEN_MS_MIN);
        let seconds = wait_ms.div_ceil(1_000);
        let message = format!(
            "{provider} failed {} times in a row and is not called for {seconds} s; last error: {}",
            state.failures, state.last_error
        );
        Err(CallFailure { retry_after_ms: Some(wait_ms), ..CallFailure::new(CallFailureKind::Overload, message) })
    }
}

impl BreakerPermit {
    /// Closes the breaker: the provider has begun to answer, so it is reachable.
    pub(crate) fn mark_reachable(&mut self) {
        if std::mem::take(&mut self.is_probe) {
            tracing::info!(provider = self.provider, "circuit breaker closed");
            let mut providers = self.breaker.providers.lock().unwrap_or_else(PoisonError::into_inner);
            providers.insert(self.provider.clone(), BreakerState::default());
        }
    }

    /// Records the outcome of the call.
    pub(crate) fn record_outcome<T>(mut self, outcome: &Result<T, CallFailure>) {
        let unreachable = match outcome {
            Err(failure) => match failure.kind {
                CallFailureKind::Overload | CallFailureKind::Network | CallFailureKind::Timeout => Some(failure),
                // A provider that refuses a request is reachable.
                CallFailureKind::InvalidApiKey
                | CallFailureKind::ModelNotFound
                | CallFailureKind::ContextTooLong
                | CallFailureKind::RateLimit
                | CallFailureKind::MalformedReply
                | CallFailureKind::UnusableReply
                | CallFailureKind::Refused
                | CallFailureKind::BadRequest
                | CallFailureKind::NotAllowed => None,
            },
            Ok(_) => None,
        };
        let breaker = self.breaker.clone();
        let mut providers = breaker.providers.lock().unwrap_or_else(PoisonError::into_inner);
        let state = providers.entry(self.provider.clone()).or_default();
        match unreachable {
            None => {
                if state.open_until.is_some() {
                    tracing::info!(provider = self.provider, "circuit breaker closed");
                }
                *state = BreakerState::default();
            }
            Some(failure) => {
                state.failures = state.failures.saturating_add(1);
                state.last_error.clone_from(&failure.message);
                // Calls that were in flight when the breaker opened do not open it again.
                if self.is_probe || (state.open_until.is_none() && state.failures >= BREAKER_FAILURES_MAX) {
                    state.open_ms = (state.open_ms * 2).clamp(BREAKER_OPEN_MS_MIN, BREAKER_OPEN_MS_MAX);
                    state.open_until = Some(Instant::now() + Duration::from_millis(state.open_ms));
                    state.is_probing = false;
                    let (failures, open_ms) = (state.failures, state.open_ms);
                    tracing::warn!(provider = self.provider, failures, open_ms, failure = %failure.kind, "circuit breaker open");
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
            if let Some(state) = providers.get_mut(&self.provider) {
                state.is_probing = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_once(breaker: &ProviderCircuitBreakers, kind: CallFailureKind) -> Result<(), CallFailure> {
        breaker.try_acquire("acme")?.record_outcome::<()>(&Err(CallFailure::new(kind, "no")));
        Ok(())
    }

    fn open_breaker() -> ProviderCircuitBreakers {
        let breaker = ProviderCircuitBreakers::default();
        (0..BREAKER_FAILURES_MAX).for_each(|_| fail_once(&breaker, CallFailureKind::Network).expect("still called"));
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_provider_is_not_called_for_a_while() {
        let breaker = open_breaker();
        let failure = breaker.try_acquire("acme").expect_err("the breaker is open");
        assert_eq!((failure.kind, failure.retry_after_ms), (CallFailureKind::Overload, Some(BREAKER_OPEN_MS_MIN)));
        assert_eq!(failure.message, "acme failed 5 times in a row and is not called for 5 s; last error: no");
        assert!(breaker.try_acquire("other").is_ok(), "other providers are not affected");
    }

    #[tokio::test(start_paused = true)]
    async fn another_address_of_the_same_provider_has_its_own_breaker() {
        let breaker = ProviderCircuitBreakers::default();
        for _ in 0..BREAKER_FAILURES_MAX {
            let permit = breaker.try_acquire("acme at box:1").expect("still called");
            permit.record_outcome::<()>(&Err(CallFailure::new(CallFailureKind::Network, "no")));
        }
        assert!(
            breaker
                .try_acquire("acme at box:1")
                .expect_err("the breaker is open")
                .message
                .starts_with("acme at box:1 failed")
        );
        assert!(breaker.try_acquire("acme at box:2").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_finds_out_whether_the_provider_is_back() {
        let breaker = open_breaker();
        tokio::time::advance(Duration::from_millis(BREAKER_OPEN_MS_MIN)).await;
        let probe = breaker.try_acquire("acme").expect("a probe");
        assert!(breaker.try_acquire("acme").is_err(), "no other call during the probe");
        drop(probe);
        let probe = breaker.try_acquire("acme").expect("a dropped probe does not count");
        probe.record_outcome::<()>(&Ok(()));
        assert!(breaker.try_acquire("acme").is_ok());
        assert!(
            fail_once(&breaker, CallFailureKind::Overload).is_ok() && breaker.try_acquire("acme").is_ok(),
            "earlier failures are forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_chunk_of_a_probe_closes_the_breaker() {
        let breaker = open_breaker();
        tokio::time::advance(Duration::from_millis(BREAKER_OPEN_MS_MIN)).await;
        let mut probe = breaker.try_acquire("acme").expect("a probe");
        assert!(breaker.try_acquire("acme").is_err(), "it has not answered yet");
        probe.mark_reachable();
        assert!(breaker.try_acquire("acme").is_ok(), "reachable, though the answer is not complete");
        probe.record_outcome::<()>(&Err(CallFailure::new(CallFailureKind::Network, "broke off")));
        assert!(breaker.try_acquire("acme").is_ok(), "one failure is only one");
    }

    #[tokio::test(start_paused = true)]
    async fn each_failed_probe_doubles_the_wait_up_to_a_limit() {
        let breaker = open_breaker();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let wait_ms =
                breaker.try_acquire("acme").expect_err("the breaker is open").retry_after_ms.expect("a time to retry");
            waits.push(wait_ms);
            tokio::time::advance(Duration::from_millis(wait_ms)).await;
            fail_once(&breaker, CallFailureKind::Timeout).expect("a probe");
        }
        assert_eq!(waits, [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_refuses_requests_is_reachable() {
        let breaker = ProviderCircuitBreakers::default();
        for _ in 0..BREAKER_FAILURES_MAX * 2 {
            fail_once(&breaker, CallFailureKind::RateLimit).expect("called");
            fail_once(&breaker, CallFailureKind::Overload).expect("called");
        }
        assert!(breaker.try_acquire("acme").is_ok());
    }
}
