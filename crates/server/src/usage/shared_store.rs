//! Stores usage in what several nodes share. Sessions are named only by hashes.
//!
//! A key with a limit of turns at once has that many slots. A node holds the slot of a session from the request that was
//! admitted until the session is idle. If another node runs the session, that node holds the slot from its first call on.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue_core::ids::{SessionId, UnixMillis};
use segue_core::session::UsageTotals;
use segue_engine::{
    ConcurrencySlotLease, ConcurrencySlotRequest, SessionUsageChange, SharedMeters, SharedRecordWrite,
    SharedRecordWriteCondition, SharedRecords, UsageAccountUpdate, UsageAmounts, root_session_name,
};
use serde::{Deserialize, Serialize};

use super::{ApiKeyDailyUsage, ApiKeyUsageStore, MS_PER_DAY, UtcDay, hash_root_session, hash_session};
use crate::limits::{TURN_SLOT_GRACE_MS, TURN_SLOT_MS, TURN_SLOT_RENEWAL_MS, USAGE_DAYS_KEPT};
use crate::shared_state::read_whole_record;

/// Stores the usage of keys for all nodes.
#[derive(Debug)]
pub(crate) struct SharedApiKeyUsageStore {
    records: Arc<dyn SharedRecords>,
    meters: Arc<dyn SharedMeters>,
    /// The turns whose slots this node holds, by key and root session.
    turns: Mutex<HashMap<(String, SessionId), TurnWithSlotLease>>,
}

#[derive(Debug, Clone, Copy)]
struct TurnWithSlotLease {
    lease: ConcurrencySlotLease,
    held_at: Instant,
    /// Whether this node has made a call for it since the last request.
    is_run_here: bool,
}

/// The key that pays for a session. It is written again once a day, so that it does not expire.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionPayerRecord {
    pub(super) key: String,
    pub(super) day: u64,
}

impl SharedApiKeyUsageStore {
    pub(crate) fn new(records: Arc<dyn SharedRecords>, meters: Arc<dyn SharedMeters>) -> Self {
        Self { records, meters, turns: Mutex::default() }
    }

    async fn read_payer(&self, session: &SessionId) -> io::Result<Option<SessionPayerRecord>> {
        let record = read_whole_record(self.records.as_ref(), &payer_record_name(&hash_root_session(session)))
            .await
            .map_err(io::Error::other)?;
        Ok(record.map(|(_, bytes)| serde_json::from_slice(&bytes)).transpose()?)
    }

    /// Holds or extends the slot of a turn. Returns whether there is one.
    async fn hold_turn_slot(&self, key: &str, root: SessionId, turns_max: u32, is_run_here: bool) -> io::Result<bool> {
        let request = ConcurrencySlotRequest {
            group: turn_slot_group(key),
            holder: hash_root_session(&root),
            slots_max: turns_max,
            hold_ms: TURN_SLOT_MS,
        };
        let lease = self.records.hold_slot(request).await.map_err(io::Error::other)?;
        let Some(lease) = lease else { return Ok(false) };
        self.lock_turns()
            .insert((key.to_owned(), root), TurnWithSlotLease { lease, held_at: Instant::now(), is_run_here });
        Ok(true)
    }

    fn lock_turns(&self) -> std::sync::MutexGuard<'_, HashMap<(String, SessionId), TurnWithSlotLease>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ApiKeyUsageStore for SharedApiKeyUsageStore {
    async fn set_payer(&self, session: &SessionId, key: Option<&str>, now: UnixMillis) -> io::Result<()> {
        let current = self.read_payer(session).await?;
        let name = payer_record_name(&hash_root_session(session));
        let Some(key) = key else {
            return match current {
                // Without a payer, nothing has to be stored.
                None => Ok(()),
                Some(_) => self.records.delete_record(&name).await.map_err(io::Error::other),
            };
        };
        let payer = SessionPayerRecord { key: key.to_owned(), day: UtcDay::from_time(now).0 };
        if current.as_ref() == Some(&payer) {
            return Ok(());
        }
        let write = SharedRecordWrite {
            name,
            bytes: serde_json::to_vec(&payer)?,
            condition: SharedRecordWriteCondition::Always,
            expires_in_ms: Some(USAGE_DAYS_KEPT * MS_PER_DAY),
        };
        self.records.write_record(write).await.map(drop).map_err(io::Error::other)
    }

    async fn find_payer(&self, session: &SessionId, _now: UnixMillis) -> io::Result<Option<String>> {
        Ok(self.read_payer(session).await?.map(|payer| payer.key))
    }

    async fn record_usage(&self, key: &str, change: &SessionUsageChange, now: UnixMillis) -> io::Result<()> {
        let report = UsageAccountUpdate {
            account: usage_account_name(key, UtcDay::from_time(now)),
            source: hash_session(change),
            before: usage_amounts(&change.before),
            total: usage_amounts(&change.after),
            expires_in_ms: USAGE_DAYS_KEPT * MS_PER_DAY,
        };
        self.meters.report_usage(report).await.map_err(io::Error::other)
    }

    async fn read_usage(&self, key: &str, now: UnixMillis) -> io::Result<ApiKeyDailyUsage> {
        let sum =
            self.meters.read_usage(&usage_account_name(key, UtcDay::from_time(now))).await.map_err(io::Error::other)?;
        let UsageAmounts { cost_microusd, input_tokens, output_tokens, unpriced_answers } = sum;
        Ok(ApiKeyDailyUsage { cost_microusd, input_tokens, output_tokens, unpriced_answers })
    }

    async fn reserve_turn(&self, key: &str, session: &SessionId, turns_max: u32) -> io::Result<bool> {
        let root = SessionId::from(root_session_name(session.as_str()));
        self.hold_turn_slot(key, root, turns_max, false).await
    }

    async fn hold_turn_for_call(&self, key: &str, session: &SessionId, turns_max: u32) -> io::Result<()> {
        let root = SessionId::from(root_session_name(session.as_str()));
        let entry = (key.to_owned(), root);
        let is_held = self.lock_turns().get(&entry).is_some_and(|turn| {
            turn.is_run_here && turn.held_at.elapsed() < Duration::from_millis(TURN_SLOT_RENEWAL_MS)
        });
        if is_held {
            return Ok(());
        }
        // The turn was admitted before. It runs to its end even if the limit was lowered meanwhile.
        self.hold_turn_slot(key, entry.1, turns_max, true).await.map(drop)
    }

    async fn refresh_turns(&self, active_roots: &BTreeSet<SessionId>) -> io::Result<()> {
        let held: Vec<_> = self.lock_turns().iter().map(|(entry, turn)| (entry.clone(), *turn)).collect();
        for ((key, root), turn) in held {
            let age_ms = turn.held_at.elapsed().as_millis();
            if active_roots.contains(&root) {
                if age_ms >= u128::from(TURN_SLOT_RENEWAL_MS) {
                    self.hold_turn_slot(&key, root, u32::MAX, turn.is_run_here).await?;
                }
            } else if turn.is_run_here || age_ms >= u128::from(TURN_SLOT_GRACE_MS) {
                let (group, holder) = (turn_slot_group(&key), hash_root_session(&root));
                self.records.release_slot(&group, &holder, turn.lease).await.map_err(io::Error::other)?;
                let mut turns = self.lock_turns();
                let entry = (key, root);
                if turns.get(&entry).is_some_and(|current| current.lease == turn.lease) {
                    turns.remove(&entry);
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of the record with the payer of a session.
pub(super) fn payer_record_name(session_hash: &str) -> String {
    format!("payer/{session_hash}")
}

fn turn_slot_group(key: &str) -> String {
    format!("turns/{key}")
}

/// Returns the name of the account of a key's day.
pub(super) fn usage_account_name(key: &str, day: UtcDay) -> String {
    format!("{day}/{key}")
}

fn usage_amounts(totals: &UsageTotals) -> UsageAmounts {
    UsageAmounts {
        cost_microusd: totals.cost_microusd,
        input_tokens: totals.input_tokens,
        output_tokens: totals.output_tokens,
        unpriced_answers: u64::from(totals.unpriced_answers),
    }
}
