//! Copies what keys used, and which keys pay for sessions, from the files of a data folder into a database. The same copy again
//! adds nothing.

use segue_core::ids::UnixMillis;
use segue_engine::{
    SharedMeters, SharedRecordWrite, SharedRecordWriteCondition, SharedRecords, UsageAccountUpdate, UsageAmounts,
};

use super::file_store::{ApiKeyUsageFileContents, FileApiKeyUsageStore};
use super::shared_store::{SessionPayerRecord, payer_record_name, usage_account_name};
use super::{MS_PER_DAY, UtcDay};
use crate::limits::USAGE_DAYS_KEPT;
use crate::shared_state::{CrossServerSharedState, SharedStateCopyError};

/// Copies the usage of the days that still count. Returns for how many days of a key there is usage.
///
/// # Errors
/// The files cannot be read, or the database cannot be read or written.
pub(crate) async fn copy_usage(
    files: &FileApiKeyUsageStore,
    target: &CrossServerSharedState,
    now: UnixMillis,
) -> Result<usize, SharedStateCopyError> {
    let Some(meters) = target.meters.as_deref() else { return Ok(0) };
    let ApiKeyUsageFileContents { accounts, payers, totals } =
        files.read_everything(now).map_err(SharedStateCopyError::KeyUsageFiles)?;
    for (day, key, used) in &accounts {
        copy_account(meters, *day, key, *used).await?;
    }
    for (day, session_hash, key, total) in totals {
        // The days are copied above, and later reports of the session start with this total. It goes to an account that nobody
        // reads, because a second copy finds a smaller total and would add the difference to the day once more.
        let account = format!("copied-sessions/{}", usage_account_name(&key, day));
        meters.report_usage(usage_report(account, session_hash, total, total)).await?;
    }
    for (day, session_hash, key) in payers {
        copy_payer(target.records.as_ref(), day, &session_hash, key).await?;
    }
    Ok(accounts.len())
}

/// Adds what a key used on a day. The source of the report is the copy itself, so the same amount is added once.
async fn copy_account(
    meters: &dyn SharedMeters,
    day: UtcDay,
    key: &str,
    used: UsageAmounts,
) -> Result<(), SharedStateCopyError> {
    let account = usage_account_name(key, day);
    let source = format!("copied/{account}");
    meters.report_usage(usage_report(account.clone(), source, UsageAmounts::default(), used)).await?;
    let stored = meters.read_usage(&account).await?;
    // Other nodes may have added more.
    if used.amounts_since(&stored) != UsageAmounts::default() {
        return Err(SharedStateCopyError::ChangedMeanwhile { kind: "usage of a day and key", id: account });
    }
    Ok(())
}

/// Makes the key pay for a session, unless the database knows who pays.
async fn copy_payer(
    records: &dyn SharedRecords,
    day: UtcDay,
    session_hash: &str,
    key: String,
) -> Result<(), SharedStateCopyError> {
    let payer = SessionPayerRecord { key, day: day.0 };
    let write = SharedRecordWrite {
        name: payer_record_name(session_hash),
        // Our own types can always be serialized.
        bytes: serde_json::to_vec(&payer).unwrap_or_default(),
        condition: SharedRecordWriteCondition::Missing,
        expires_in_ms: Some(USAGE_DAYS_KEPT * MS_PER_DAY),
    };
    // After a conflict the database knows it.
    let _ = records.write_record(write).await?;
    Ok(())
}

fn usage_report(account: String, source: String, before: UsageAmounts, total: UsageAmounts) -> UsageAccountUpdate {
    UsageAccountUpdate { account, source, before, total, expires_in_ms: USAGE_DAYS_KEPT * MS_PER_DAY }
}
