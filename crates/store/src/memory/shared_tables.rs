//! What servers share besides sessions, in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::InMemoryStore;
use crate::limits::BUCKET_FILL_MS;
use crate::{
    ConcurrencySlotLease, ConcurrencySlotRequest, Error, RateLimitTokenGrant, RateLimitTokenRequest, SharedMeters,
    SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecordWriteOutcome, SharedRecords, UsageAccountUpdate, UsageAmounts,
};

#[derive(Debug, Default)]
pub(super) struct InMemorySharedState {
    last_version: u64,
    records: BTreeMap<String, InMemorySharedRecord>,
    /// The holders of each group, and until when they hold their slots.
    slots: BTreeMap<String, BTreeMap<String, u64>>,
    buckets: BTreeMap<String, InMemoryTokenBucket>,
    accounts: BTreeMap<String, UsageAmounts>,
    sources: BTreeMap<String, UsageAmounts>,
}

#[derive(Debug)]
struct InMemorySharedRecord {
    version: u64,
    bytes: Vec<u8>,
    expires_at: Option<u64>,
}

#[derive(Debug)]
struct InMemoryTokenBucket {
    tokens: f64,
    filled_at: u64,
}

impl InMemorySharedState {
    fn read_record(&self, name: &str, now: u64) -> Option<&InMemorySharedRecord> {
        self.records.get(name).filter(|record| record.expires_at.is_none_or(|at| at > now))
    }

    fn write_record(&mut self, write: SharedRecordWrite, now: u64) -> SharedRecordWriteOutcome {
        let current = self.read_record(&write.name, now).map(|record| SharedRecordVersion(record.version));
        let is_allowed = match write.condition {
            SharedRecordWriteCondition::Always => true,
            SharedRecordWriteCondition::Missing => current.is_none(),
            SharedRecordWriteCondition::Version(expected) => current == Some(expected),
        };
        if !is_allowed {
            return SharedRecordWriteOutcome::Conflict;
        }
        self.last_version += 1;
        let expires_at = write.expires_in_ms.map(|ms| now.saturating_add(ms));
        let record = InMemorySharedRecord { version: self.last_version, bytes: write.bytes, expires_at };
        self.records.insert(write.name, record);
        SharedRecordWriteOutcome::Written(SharedRecordVersion(self.last_version))
    }

    fn hold_slot(&mut self, request: ConcurrencySlotRequest, now: u64) -> Option<ConcurrencySlotLease> {
        let holders = self.slots.entry(request.group).or_default();
        holders.retain(|_, expires_at| *expires_at > now);
        if !holders.contains_key(&request.holder) && holders.len() >= request.slots_max as usize {
            return None;
        }
        let expires_at = now.saturating_add(request.hold_ms);
        holders.insert(request.holder, expires_at);
        Some(ConcurrencySlotLease { expires_at })
    }

    fn take_tokens(&mut self, request: RateLimitTokenRequest, now: u64) -> RateLimitTokenGrant {
        let capacity = f64::from(request.tokens_per_minute);
        let per_ms = capacity / BUCKET_FILL_MS;
        let bucket =
            self.buckets.entry(request.bucket).or_insert(InMemoryTokenBucket { tokens: capacity, filled_at: now });
        #[expect(clippy::cast_precision_loss, reason = "a minute in milliseconds is far below the limit")]
        let elapsed_ms = now.saturating_sub(bucket.filled_at).min(BUCKET_FILL_MS as u64) as f64;
        bucket.tokens = capacity.min(bucket.tokens + elapsed_ms * per_ms);
        bucket.filled_at = now;
        let granted = bucket.tokens.floor().min(f64::from(request.wanted));
        bucket.tokens -= granted;
        RateLimitTokenGrant::new(granted, bucket.tokens, per_ms)
    }

    fn report_usage(&mut self, report: UsageAccountUpdate) {
        let start = self.sources.insert(report.source, report.total).unwrap_or(report.before);
        self.accounts.entry(report.account).or_default().add_amounts(&report.total.amounts_since(&start));
    }
}

#[async_trait]
impl SharedRecords for InMemoryStore {
    async fn read_record(
        &self,
        name: &str,
        known: Option<SharedRecordVersion>,
    ) -> Result<SharedRecordReadOutcome, Error> {
        let disk = self.lock()?;
        Ok(match disk.shared.read_record(name, disk.clock.now().0) {
            None => SharedRecordReadOutcome::Missing,
            Some(record) if known == Some(SharedRecordVersion(record.version)) => SharedRecordReadOutcome::Unchanged,
            Some(record) => SharedRecordReadOutcome::Found {
                version: SharedRecordVersion(record.version),
                bytes: record.bytes.clone(),
            },
        })
    }

    async fn write_record(&self, write: SharedRecordWrite) -> Result<SharedRecordWriteOutcome, Error> {
        let mut disk = self.lock()?;
        let now = disk.clock.now().0;
        Ok(disk.shared.write_record(write, now))
    }

    async fn delete_record(&self, name: &str) -> Result<(), Error> {
        self.lock()?.shared.records.remove(name);
        Ok(())
    }

    async fn hold_slot(&self, request: ConcurrencySlotRequest) -> Result<Option<ConcurrencySlotLease>, Error> {
        let mut disk = self.lock()?;
        let now = disk.clock.now().0;
        Ok(disk.shared.hold_slot(request, now))
    }

    async fn release_slot(&self, group: &str, holder: &str, lease: ConcurrencySlotLease) -> Result<(), Error> {
        let mut disk = self.lock()?;
        if let Some(holders) = disk.shared.slots.get_mut(group) {
            holders.retain(|name, expires_at| name != holder || *expires_at != lease.expires_at);
        }
        Ok(())
    }
}

#[async_trait]
impl SharedMeters for InMemoryStore {
    async fn take_tokens(&self, request: RateLimitTokenRequest) -> Result<RateLimitTokenGrant, Error> {
        let mut disk = self.lock()?;
        let now = disk.clock.now().0;
        Ok(disk.shared.take_tokens(request, now))
    }

    async fn report_usage(&self, report: UsageAccountUpdate) -> Result<(), Error> {
        self.lock()?.shared.report_usage(report);
        Ok(())
    }

    async fn read_usage(&self, account: &str) -> Result<UsageAmounts, Error> {
        Ok(self.lock()?.shared.accounts.get(account).copied().unwrap_or_default())
    }
}
