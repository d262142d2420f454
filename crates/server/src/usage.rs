//! What each key may use, and what it has used. The limits are stored with the keys; the usage is stored behind a trait, so
//! that several machines can share it.
//!
//! A session's calls are paid for by the key that last sent the session something that may cause calls. This includes the
//! calls of its child sessions. What a key used is taken from the ledgers of the sessions, so it is what vendors reported.

mod admission;
mod file_store;
mod policy;
mod shared_store;
mod usage_copy;

use std::collections::BTreeSet;
use std::io;

use async_trait::async_trait;
use segue_core::ids::{ModelName, SessionId, UnixMillis};
use segue_engine::{SessionUsageChange, StoreError, root_session_name};
use serde::{Deserialize, Serialize};

pub(crate) use admission::{AdmittedTurns, admit_turn, check_allowed_models, run_turn_refresh};
pub(crate) use file_store::FileApiKeyUsageStore;
pub use policy::ApiKeyLimitCallPolicy;
pub(crate) use shared_store::SharedApiKeyUsageStore;
pub(crate) use usage_copy::copy_usage;

const MS_PER_DAY: u64 = 86_400_000;
const SESSION_HASH_CHARS: usize = 32;
const MICROUSD_PER_USD: f64 = 1_000_000.0;

/// The limits of a key. A limit that is `None` does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeyLimits {
    /// The cost per day, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_microusd_per_day: Option<u64>,
    /// Input and output tokens per day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// The models that may be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<BTreeSet<ModelName>>,
    /// Sessions with a running turn at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_at_once: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

impl ApiKeyLimits {
    /// Returns whether no limit applies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn has_spending_limit(&self) -> bool {
        self.cost_microusd_per_day.is_some() || self.tokens_per_day.is_some()
    }

    pub(crate) fn allows_model(&self, model: &ModelName) -> bool {
        self.models.as_ref().is_none_or(|models| models.contains(model))
    }

    /// Returns the daily limit that is used up, in words; `None` if there is none.
    pub(crate) fn find_spent_limit(&self, usage: &ApiKeyDailyUsage) -> Option<String> {
        let cost = self.cost_microusd_per_day.filter(|max| usage.cost_microusd >= *max);
        let tokens = self.tokens_per_day.filter(|max| usage.total_tokens() >= *max);
        match (cost, tokens) {
            (Some(max), _) => Some(format!("its budget of ${} per day", format_usd(max))),
            (None, Some(max)) => Some(format!("its {max} tokens per day")),
            (None, None) => None,
        }
    }
}

/// What a key used on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApiKeyDailyUsage {
    pub cost_microusd: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Answers whose price is unknown. They are not part of the cost.
    pub unpriced_answers: u64,
}

impl ApiKeyDailyUsage {
    /// Returns the sum of input and output tokens.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// A day in UTC, as the number of days since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(pub u64);

impl UtcDay {
    /// Returns the day of a point in time.
    #[must_use]
    pub fn from_time(at: UnixMillis) -> Self {
        Self(at.0 / MS_PER_DAY)
    }

    /// Returns when the day ends and daily limits are reset.
    #[must_use]
    pub fn end_time(self) -> UnixMillis {
        UnixMillis(self.0.saturating_add(1).saturating_mul(MS_PER_DAY))
    }
}

impl std::fmt::Display for UtcDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(format_time(UnixMillis(self.0.saturating_mul(MS_PER_DAY))).get(..10).unwrap_or("unknown"))
    }
}

/// Stores which key pays for a session, and what each key used.
///
/// An implementation may be shared by several processes. Names of sessions must not be stored in readable form, because they
/// would outlive the sessions.
#[async_trait]
pub trait ApiKeyUsageStore: Send + Sync + std::fmt::Debug {
    /// Makes a key pay for the calls of a session and of its children; `None` makes nobody pay. Returns when this is durable.
    ///
    /// # Errors
    /// The payer cannot be stored.
    async fn set_payer(&self, session: &SessionId, key: Option<&str>, now: UnixMillis) -> io::Result<()>;

    /// Returns the key that pays for a session.
    ///
    /// # Errors
    /// The payers cannot be read.
    async fn find_payer(&self, session: &SessionId, now: UnixMillis) -> io::Result<Option<String>>;

    /// Adds what a session used to a key's day. If the last change of the session was not recorded, it is added too.
    ///
    /// # Errors
    /// The usage cannot be stored.
    async fn record_usage(&self, key: &str, change: &SessionUsageChange, now: UnixMillis) -> io::Result<()>;

    /// Returns what a key used on the day of `now`.
    ///
    /// # Errors
    /// The usage cannot be read.
    async fn read_usage(&self, key: &str, now: UnixMillis) -> io::Result<ApiKeyDailyUsage>;

    /// Counts a session among those that a key keeps busy on all servers. Returns false if `turns_max` others are busy. Stores
    /// of one machine count nothing here.
    ///
    /// # Errors
    /// The turns cannot be counted.
    async fn reserve_turn(&self, _key: &str, _session: &SessionId, _turns_max: u32) -> io::Result<bool> {
        Ok(true)
    }

    /// Counts a session as busy because this server makes a call for it.
    ///
    /// # Errors
    /// The turns cannot be counted.
    async fn hold_turn_for_call(&self, _key: &str, _session: &SessionId, _turns_max: u32) -> io::Result<()> {
        Ok(())
    }

    /// Keeps counting the sessions that are active on this server, and no others of those that it counted.
    ///
    /// # Errors
    /// The turns cannot be counted.
    async fn refresh_turns(&self, _active_roots: &BTreeSet<SessionId>) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether usage cannot be read or written because the database cannot be reached.
fn is_database_unavailable(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(cause, Some(StoreError::DatabaseUnavailable { .. }))
}

/// Returns the hash of the session from which a session descends.
fn hash_root_session(session: &SessionId) -> String {
    hash_text(root_session_name(session.as_str()))
}

/// Returns the hash of one session, which differs from that of a later session with the same name.
fn hash_session(change: &SessionUsageChange) -> String {
    hash_text(&format!("{}@{}", change.session, change.session_opened_at.0))
}

fn hash_text(text: &str) -> String {
    let mut hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    hash.truncate(SESSION_HASH_CHARS);
    hash
}

/// Formats an amount of money in dollars, without a currency sign.
fn format_usd(microusd: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "an amount for people")]
    let usd = microusd as f64 / MICROUSD_PER_USD;
    if microusd.is_multiple_of(10_000) { format!("{usd:.2}") } else { format!("{usd}") }
}

/// Formats a point in time as in `2026-11-18T00:00:00Z`.
pub(crate) fn format_time(at: UnixMillis) -> String {
    let seconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "the end of time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_ends_at_midnight_utc() {
        let at = UnixMillis(1_795_000_000_123);
        let day = UtcDay::from_time(at);
        assert_eq!(day.to_string(), "2026-11-18");
        assert_eq!(format_time(day.end_time()), "2026-11-19T00:00:00Z");
        assert_eq!(UtcDay::from_time(day.end_time()), UtcDay(day.0 + 1));
    }

    #[test]
    fn spent_limit_is_named() {
        let limits = ApiKeyLimits {
            cost_microusd_per_day: Some(1_500_000),
            tokens_per_day: Some(100),
            ..ApiKeyLimits::default()
        };
        let usage = |cost_microusd, input_tokens| ApiKeyDailyUsage {
            cost_microusd,
            input_tokens,
            ..ApiKeyDailyUsage::default()
        };
        assert_eq!(limits.find_spent_limit(&usage(1_499_999, 99)), None);
        assert_eq!(limits.find_spent_limit(&usage(1_500_000, 0)).as_deref(), Some("its budget of $1.50 per day"));
        assert_eq!(limits.find_spent_limit(&usage(0, 100)).as_deref(), Some("its 100 tokens per day"));
    }
}
