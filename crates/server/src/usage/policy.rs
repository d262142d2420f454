//! Applies the limits of keys to every call of a model, and records what calls used.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_engine::clock::Clock;
use segue_engine::{CallPolicy, SessionUsageChange};

use super::{ApiKeyUsageStore, UtcDay, format_time, is_database_unavailable};
use crate::keys::ApiKeyStore;
use crate::limits::{USAGE_READ_ATTEMPTS_MAX, USAGE_READ_MS_MAX, USAGE_READ_RETRY_MS};
use crate::shared_state::CrossServerSharedState;

/// The call policy of an engine whose sessions are paid for by keys.
pub struct ApiKeyLimitCallPolicy {
    keys: ApiKeyStore,
    usage: Arc<dyn ApiKeyUsageStore>,
    clock: Arc<dyn Clock>,
    /// How long to wait before the usage is read again, while the database cannot be reached.
    retry_delay: Duration,
}

/// Why a call is not made.
enum ApiKeyLimitCheckError {
    /// A limit of the key forbids it.
    Forbidden(String),
    /// Nobody knows whether a limit forbids it.
    UsageUnreadable(io::Error),
}

impl From<io::Error> for ApiKeyLimitCheckError {
    fn from(error: io::Error) -> Self {
        Self::UsageUnreadable(error)
    }
}

impl std::fmt::Debug for ApiKeyLimitCallPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKeyLimitCallPolicy").field("usage", &self.usage).finish_non_exhaustive()
    }
}

impl ApiKeyLimitCallPolicy {
    /// Creates the policy for the keys of a data folder. Their usage is stored in files of the same folder.
    #[must_use]
    pub fn from_folder(folder: &Path, clock: Arc<dyn Clock>) -> Self {
        Self::new(&CrossServerSharedState::from_folder(folder), clock)
    }

    /// Creates the policy for keys and usage that servers share.
    #[must_use]
    pub fn new(shared: &CrossServerSharedState, clock: Arc<dyn Clock>) -> Self {
        let retry_delay = Duration::from_millis(USAGE_READ_RETRY_MS);
        Self { keys: shared.keys(), usage: shared.key_usage(), clock, retry_delay }
    }

    /// Checks the limits, again while the database cannot be reached: the call was accepted, and must not fail because of that.
    /// If the call is cancelled, the wait ends.
    async fn check_limits_when_readable(&self, session: &SessionId, model: &ModelName) -> Result<(), String> {
        let started = tokio::time::Instant::now();
        for attempt in 1.. {
            let error = match self.check_limits(session, model, self.clock.now()).await {
                Ok(()) => return Ok(()),
                Err(ApiKeyLimitCheckError::Forbidden(reason)) => return Err(reason),
                Err(ApiKeyLimitCheckError::UsageUnreadable(error)) => error,
            };
            // An attempt can take seconds if the database does not even refuse the connection.
            let has_waited_enough =
                attempt >= USAGE_READ_ATTEMPTS_MAX || started.elapsed() >= Duration::from_millis(USAGE_READ_MS_MAX);
            if !is_database_unavailable(&error) || has_waited_enough {
                tracing::error!(%session, %error, "a call is not made, because the usage of its key cannot be read");
                break;
            }
            tracing::warn!(%session, %error, attempt, "a call waits until the usage of its key can be read");
            tokio::time::sleep(self.retry_delay).await;
        }
        Err("the usage of the key cannot be read, so its limits cannot be checked".to_owned())
    }

    async fn check_limits(
        &self,
        session: &SessionId,
        model: &ModelName,
        now: UnixMillis,
    ) -> Result<(), ApiKeyLimitCheckError> {
        let forbidden = |reason: String| Err(ApiKeyLimitCheckError::Forbidden(reason));
        let Some(id) = self.usage.find_payer(session, now).await? else { return Ok(()) };
        let Some(key) = self.keys.find_key(&id).await else {
            return forbidden(format!("the key {id}, which pays for this session, was revoked"));
        };
        if !key.limits.allows_model(model) {
            return forbidden(format!("the key `{}` may not use the model `{model}`", key.name));
        }
        if let Some(max) = key.limits.turns_at_once {
            self.usage.hold_turn_for_call(&id, session, max).await?;
        }
        if !key.limits.has_spending_limit() {
            return Ok(());
        }
        let usage = self.usage.read_usage(&id, now).await?;
        match key.limits.find_spent_limit(&usage) {
            None => Ok(()),
            Some(limit) => {
                let resets_at = format_time(UtcDay::from_time(now).end_time());
                forbidden(format!("the key `{}` has used up {limit}; it resets at {resets_at}", key.name))
            }
        }
    }
}

#[async_trait]
impl CallPolicy for ApiKeyLimitCallPolicy {
    async fn check_call(&self, session: &SessionId, model: &ModelName) -> Result<(), CallFailure> {
        let checked = self.check_limits_when_readable(session, model).await;
        checked.map_err(|message| CallFailure::new(CallFailureKind::NotAllowed, message))
    }

    async fn record_usage(&self, change: SessionUsageChange) {
        let now = self.clock.now();
        let recorded = match self.usage.find_payer(&change.session, now).await {
            Ok(None) => return,
            Ok(Some(key)) => self.usage.record_usage(&key, &change, now).await,
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            // The next change of the session adds this one, too.
            tracing::error!(session = %change.session, %error, "the usage of a key cannot be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use segue_engine::StoreError;
    use segue_engine::clock::SystemClock;

    use super::*;
    use crate::usage::ApiKeyDailyUsage;

    /// Usage that cannot be read a few times.
    #[derive(Debug)]
    struct FailingUsage {
        failures: AtomicUsize,
        error: StoreError,
    }

    #[async_trait]
    impl ApiKeyUsageStore for FailingUsage {
        async fn set_payer(&self, _: &SessionId, _: Option<&str>, _: UnixMillis) -> io::Result<()> {
            Ok(())
        }

        async fn find_payer(&self, _: &SessionId, _: UnixMillis) -> io::Result<Option<String>> {
            let fails =
                self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if fails { Err(io::Error::other(self.error.clone())) } else { Ok(None) }
        }

        async fn record_usage(&self, _: &str, _: &SessionUsageChange, _: UnixMillis) -> io::Result<()> {
            Ok(())
        }

        async fn read_usage(&self, _: &str, _: UnixMillis) -> io::Result<ApiKeyDailyUsage> {
            Ok(ApiKeyDailyUsage::default())
        }
    }

    /// Checks a call whose usage cannot be read `failures` times. Also returns how many of them are left.
    async fn check(failures: usize, error: StoreError) -> (Result<(), CallFailure>, usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let usage = Arc::new(FailingUsage { failures: failures.into(), error });
        let policy = ApiKeyLimitCallPolicy {
            keys: ApiKeyStore::from_folder(folder.path()),
            usage: usage.clone(),
            clock: Arc::new(SystemClock),
            retry_delay: Duration::ZERO,
        };
        let checked = policy.check_call(&"fox".into(), &"model".into()).await;
        (checked, usage.failures.load(Ordering::SeqCst))
    }

    fn unavailable() -> StoreError {
        StoreError::DatabaseUnavailable { what: "reading".into(), detail: "it restarts".into() }
    }

    #[tokio::test]
    async fn call_waits_for_the_database_and_is_then_made() {
        assert_eq!(check(20, unavailable()).await, (Ok(()), 0));
    }

    #[tokio::test]
    async fn call_does_not_wait_for_ever_or_for_what_does_not_pass() {
        let kind = |checked: Result<(), CallFailure>| checked.expect_err("it is not made").kind;
        let (checked, left) = check(usize::MAX, unavailable()).await;
        assert_eq!((kind(checked), usize::MAX - left), (CallFailureKind::NotAllowed, USAGE_READ_ATTEMPTS_MAX));
        let full = StoreError::DiskFull { what: "reading".into() };
        let (checked, left) = check(20, full).await;
        assert_eq!((kind(checked), left), (CallFailureKind::NotAllowed, 19));
    }
}
