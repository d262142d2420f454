//! Applies the limits of keys to every call of a model, and records what calls used.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_core::prompt::{CallFailure, FailureKind};
use segue_engine::clock::Clock;
use segue_engine::{CallPolicy, SessionUsageChange};

use super::{KeyUsageStore, UtcDay, format_time};
use crate::keys::ApiKeyStore;
use crate::shared_state::CrossServerSharedState;

/// The call policy of an engine whose sessions are paid for by keys.
pub struct KeyCallPolicy {
    keys: ApiKeyStore,
    usage: Arc<dyn KeyUsageStore>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for KeyCallPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyCallPolicy").field("usage", &self.usage).finish_non_exhaustive()
    }
}

impl KeyCallPolicy {
    /// Creates the policy for the keys of a data folder. Their usage is stored in files of the same folder.
    #[must_use]
    pub fn from_folder(folder: &Path, clock: Arc<dyn Clock>) -> Self {
        Self::new(&CrossServerSharedState::from_folder(folder), clock)
    }

    /// Creates the policy for keys and usage that servers share.
    #[must_use]
    pub fn new(shared: &CrossServerSharedState, clock: Arc<dyn Clock>) -> Self {
        Self { keys: shared.keys(), usage: shared.key_usage(), clock }
    }

    async fn check_limits(&self, session: &SessionId, model: &ModelName, now: UnixMillis) -> Result<(), String> {
        let unreadable = |_| "the usage of the key cannot be read, so its limits cannot be checked".to_owned();
        let Some(id) = self.usage.find_payer(session, now).await.map_err(unreadable)? else { return Ok(()) };
        let Some(key) = self.keys.find_key(&id).await else {
            return Err(format!("the key {id}, which pays for this session, was revoked"));
        };
        if !key.limits.allows_model(model) {
            return Err(format!("the key `{}` may not use the model `{model}`", key.name));
        }
        if let Some(max) = key.limits.turns_at_once {
            self.usage.hold_turn_for_call(&id, session, max).await.map_err(unreadable)?;
        }
        if !key.limits.has_spending_limit() {
            return Ok(());
        }
        let usage = self.usage.read_usage(&id, now).await.map_err(unreadable)?;
        match key.limits.find_spent_limit(&usage) {
            None => Ok(()),
            Some(limit) => {
                let resets_at = format_time(UtcDay::from_time(now).end_time());
                Err(format!("the key `{}` has used up {limit}; it resets at {resets_at}", key.name))
            }
        }
    }
}

#[async_trait]
impl CallPolicy for KeyCallPolicy {
    async fn check_call(&self, session: &SessionId, model: &ModelName) -> Result<(), CallFailure> {
        let checked = self.check_limits(session, model, self.clock.now()).await;
        checked.map_err(|message| CallFailure::new(FailureKind::NotAllowed, message))
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
