//! What the servers of a store share besides sessions: small versioned records, slots of which a limited number can be
//! held at a time, token buckets, and sums of usage. Everything that expires does so by the store's clock.
//!
//! The store does not interpret any of it. Names must not contain the names of sessions, which would outlive them.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::Error;
use crate::limits::BUCKET_FILL_MS;

/// The version of a record. Every write gives it a new one that it never had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedRecordVersion(pub u64);

/// What a read of a record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedRecordReadOutcome {
    Missing,
    /// It has the version that the reader knows.
    Unchanged,
    Found {
        version: SharedRecordVersion,
        bytes: Vec<u8>,
    },
}

/// When a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedRecordWriteCondition {
    Always,
    /// If there is no such record.
    Missing,
    /// If it has this version.
    Version(SharedRecordVersion),
}

/// A record to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedRecordWrite {
    pub name: String,
    pub bytes: Vec<u8>,
    pub condition: SharedRecordWriteCondition,
    /// After this time the record counts as missing; never if absent.
    pub expires_in_ms: Option<u64>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedRecordWriteOutcome {
    Written(SharedRecordVersion),
    /// The condition was not met; nothing was written.
    Conflict,
}

/// A request to hold one of the slots of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConcurrencySlotRequest {
    pub group: String,
    /// A holder has at most one slot of a group. Asking again extends it.
    pub holder: String,
    /// How many holders the group may have.
    pub slots_max: u32,
    pub hold_ms: u64,
}

/// A slot that is held. It ends when it expires, or is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencySlotLease {
    /// By the store's clock. Identifies the lease, too: extending a slot changes it.
    pub expires_at: u64,
}

/// A request for tokens of a bucket. A bucket is full at first, and is filled again within a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitTokenRequest {
    pub bucket: String,
    pub tokens_per_minute: u32,
    /// At most this many tokens are granted.
    pub wanted: u32,
}

/// The answer to a [`RateLimitTokenRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitTokenGrant {
    pub granted: u32,
    /// When the next token is available.
    pub next_in_ms: u64,
}

impl RateLimitTokenGrant {
    /// Creates the grant of `granted` tokens after which the bucket has `left`, and gains `per_ms` in a millisecond.
    pub(crate) fn new(granted: f64, left: f64, per_ms: f64) -> Self {
        let next_in_ms = if left >= 1.0 { 0.0 } else { ((1.0 - left) / per_ms).ceil() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are small and not negative")]
        let (granted, next_in_ms) = (granted as u32, next_in_ms.min(BUCKET_FILL_MS) as u64);
        Self { granted, next_in_ms }
    }
}

/// Amounts that are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageAmounts {
    pub cost_microusd: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub unpriced_answers: u64,
}

impl UsageAmounts {
    /// Returns what this is more than `start`.
    #[must_use]
    pub fn amounts_since(&self, start: &Self) -> Self {
        Self {
            cost_microusd: self.cost_microusd.saturating_sub(start.cost_microusd),
            input_tokens: self.input_tokens.saturating_sub(start.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(start.output_tokens),
            unpriced_answers: self.unpriced_answers.saturating_sub(start.unpriced_answers),
        }
    }

    /// Adds other amounts.
    pub fn add_amounts(&mut self, added: &Self) {
        self.cost_microusd = self.cost_microusd.saturating_add(added.cost_microusd);
        self.input_tokens = self.input_tokens.saturating_add(added.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(added.output_tokens);
        self.unpriced_answers = self.unpriced_answers.saturating_add(added.unpriced_answers);
    }
}

/// What a source, such as a session, has used in total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageAccountUpdate {
    /// The account to which the new part is added.
    pub account: String,
    pub source: String,
    /// The total before the last change. Counts as recorded if the source is unknown.
    pub before: UsageAmounts,
    pub total: UsageAmounts,
    /// How long the account and the source are remembered.
    pub expires_in_ms: u64,
}

/// Small records and slots.
#[async_trait]
pub trait SharedRecords: Send + Sync + Debug {
    /// Reads a record; without its bytes if it has the version `known`.
    async fn read_record(
        &self,
        name: &str,
        known: Option<SharedRecordVersion>,
    ) -> Result<SharedRecordReadOutcome, Error>;

    /// Writes a record if its condition is met. Durable when it returns.
    async fn write_record(&self, write: SharedRecordWrite) -> Result<SharedRecordWriteOutcome, Error>;

    /// Deletes a record, if it exists.
    async fn delete_record(&self, name: &str) -> Result<(), Error>;

    /// Holds a slot, or extends the one that the holder has. None if all slots are held by others.
    async fn hold_slot(&self, request: ConcurrencySlotRequest) -> Result<Option<ConcurrencySlotLease>, Error>;

    /// Releases a slot, unless it was extended after `lease`.
    async fn release_slot(&self, group: &str, holder: &str, lease: ConcurrencySlotLease) -> Result<(), Error>;
}

/// Token buckets and sums of usage.
#[async_trait]
pub trait SharedMeters: Send + Sync + Debug {
    /// Takes tokens from a bucket. Several processes never get more than the bucket has.
    async fn take_tokens(&self, request: RateLimitTokenRequest) -> Result<RateLimitTokenGrant, Error>;

    /// Adds to an account what a source used since its last report. The same report again adds nothing.
    async fn report_usage(&self, report: UsageAccountUpdate) -> Result<(), Error>;

    /// Returns the sum of an account.
    async fn read_usage(&self, account: &str) -> Result<UsageAmounts, Error>;
}

/// Everything that servers share besides sessions.
pub trait SharedState: SharedRecords + SharedMeters {}

impl<T> SharedState for T where T: SharedRecords + SharedMeters {}
