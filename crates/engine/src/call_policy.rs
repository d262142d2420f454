//! Lets the application decide whether a session may call a model, and tells it what sessions use. The engine knows nothing
//! of keys or budgets.

use async_trait::async_trait;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_core::prompt::CallFailure;
use segue_core::session::UsageTotals;

/// Decides about calls to models, and receives what they used.
#[async_trait]
pub trait CallPolicy: Send + Sync {
    /// Checks a call right before it is made.
    ///
    /// # Errors
    /// The call is not allowed. The failure is recorded as that of the call.
    async fn check_call(&self, session: &SessionId, model: &ModelName) -> Result<(), CallFailure>;

    /// Receives the usage of a session after a commit that changed it.
    async fn record_usage(&self, change: SessionUsageChange);
}

/// How a commit changed the usage of a session. Child sessions report their own usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionUsageChange {
    pub session: SessionId,
    /// When the session was opened; tells it from another session of the same name.
    pub session_opened_at: UnixMillis,
    /// The totals of the session's ledger before the commit.
    pub before: UsageTotals,
    /// The totals after it.
    pub after: UsageTotals,
}

/// Allows every call, and ignores what it used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AllowAllCallPolicy;

#[async_trait]
impl CallPolicy for AllowAllCallPolicy {
    async fn check_call(&self, _: &SessionId, _: &ModelName) -> Result<(), CallFailure> {
        Ok(())
    }

    async fn record_usage(&self, _: SessionUsageChange) {}
}
