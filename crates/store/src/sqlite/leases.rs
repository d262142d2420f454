//! Write transactions that create sessions and decide who may write to them.

use rusqlite::{Connection, params};
use segue_core::ids::{LeaseEpoch, Seq, SessionId};

use super::process_lock::ProcessLivenessLock;
use super::session_row::{
    NewSqliteSessionRow, SqliteSessionRow, ensure_name_is_free, find_session_row, insert_session, load_session_row,
    next_epoch,
};
use super::sqlite_error::SqliteTransactionError;
use crate::{InboxEmptiness, Lease, LeaseRenewalResult, LeaseTakeoverPolicy, LostLease};

pub(super) fn create_session(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<Lease, SqliteTransactionError> {
    ensure_name_is_free(db, session, node)?;
    let new = NewSqliteSessionRow { session, head: Seq(0), holder: Some(node.name()), parent: None, summary: None };
    let session_row = insert_session(db, &new)?;
    Ok(session_row.lease(session_row.epoch))
}

pub(super) fn acquire_lease(
    db: &Connection,
    session: &SessionId,
    takeover: LeaseTakeoverPolicy,
    node: &ProcessLivenessLock,
) -> Result<Lease, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    session_row.ensure_not_being_deleted(session)?;
    match takeover {
        LeaseTakeoverPolicy::IfHolderEnded | LeaseTakeoverPolicy::IfHolderDead => {
            session_row.ensure_not_held(session, node)?
        }
        LeaseTakeoverPolicy::Force => {}
    }
    let epoch = set_holder(db, &session_row, node)?;
    if let Some(holder) = session_row.holder.as_deref().filter(|holder| *holder != node.name()) {
        // The transaction may still fail; then the caller gets its error.
        tracing::info!(%session, epoch = epoch.0, holder, ?takeover, "taking over the lease of another process");
    }
    Ok(session_row.lease(epoch))
}

/// Finds the leases that are lost. There is nothing to extend, because a lease ends with its process.
pub(super) fn find_lost_leases(
    db: &Connection,
    held: &[(SessionId, LeaseEpoch)],
) -> Result<LeaseRenewalResult, SqliteTransactionError> {
    let mut renewal = LeaseRenewalResult { expires_at: None, lost: Vec::new() };
    for (session, epoch) in held {
        let current = find_session_row(db, session)?.map(|session_row| session_row.epoch);
        if current != Some(*epoch) {
            renewal.lost.push(LostLease { session: session.clone(), epoch: *epoch, current });
        }
    }
    Ok(renewal)
}

pub(super) fn release_lease(
    db: &Connection,
    session: &SessionId,
    epoch: LeaseEpoch,
) -> Result<InboxEmptiness, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    session_row.ensure_not_fenced(session, epoch)?;
    let epoch = next_epoch(db)?;
    db.prepare_cached("UPDATE sessions SET epoch = ?2, lease_holder = NULL, takeovers = 0 WHERE key = ?1")?
        .execute(params![session_row.key, epoch.0])?;
    Ok(InboxEmptiness::from_entry_count(session_row.inbox.entries))
}

/// Makes this process the holder, with a new epoch. A lease that was not released counts as a takeover.
pub(super) fn set_holder(
    db: &Connection,
    session_row: &SqliteSessionRow,
    node: &ProcessLivenessLock,
) -> Result<LeaseEpoch, rusqlite::Error> {
    let epoch = next_epoch(db)?;
    let takeovers = session_row.takeovers.saturating_add(u32::from(session_row.holder.is_some()));
    db.prepare_cached("UPDATE sessions SET epoch = ?2, lease_holder = ?3, takeovers = ?4 WHERE key = ?1")?
        .execute(params![session_row.key, epoch.0, node.name(), takeovers])?;
    Ok(epoch)
}
