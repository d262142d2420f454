//! Forking and deleting sessions, and the ownership of shared bodies.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::ids::{Seq, SessionId, SessionUid, UnixMillis};

use super::body_index::SqliteStoreConnection;
use super::catalog::has_children;
use super::inbox::{SqliteEncodedInboxSubmission, deliver};
use super::leases::set_holder;
use super::process_lock::ProcessLivenessLock;
use super::session_row::{
    NewSqliteSessionRow, SqliteEncodedSessionSummary, ensure_name_is_free, find_session_name, insert_session,
    load_session_row, newest_change,
};
use super::sqlite_error::SqliteTransactionError;
use super::write::insert_journal_row;
use crate::limits::REMEMBERED_DELETIONS_MAX;
use crate::{Error, Lease, NewInboxSubmission, SessionForkSpec, encoding};

/// Copies the rows of the journal up to `fork.at_seq`; the last row is cut if necessary.
pub(super) fn fork_session(
    db: &Connection,
    fork: &SessionForkSpec,
    node: &ProcessLivenessLock,
) -> Result<SessionUid, SqliteTransactionError> {
    let origin = load_session_row(db, &fork.from)?;
    origin.ensure_not_being_deleted(&fork.from)?;
    if fork.at_seq > origin.head || fork.at_seq == Seq(0) {
        return Err(SqliteTransactionError::Rejected(Error::ForkOutOfRange {
            session: fork.from.clone(),
            at: fork.at_seq,
            head: origin.head,
        }));
    }
    ensure_name_is_free(db, &fork.to, node)?;
    let summary = SqliteEncodedSessionSummary::new(&fork.to, &fork.summary);
    let new = NewSqliteSessionRow {
        session: &fork.to,
        head: fork.at_seq,
        holder: None,
        parent: None,
        summary: Some(&summary),
    };
    let copy = insert_session(db, &new)?;
    let corrupted =
        |detail: String| SqliteTransactionError::Failed(Error::SessionCorrupted { session: fork.from.clone(), detail });
    let mut last = Seq(0);
    // Read one by one by sequence number, because the same table is being written.
    while last < fork.at_seq {
        let first = last.next();
        let (bodies, data) =
            read_journal_row(db, origin.key, first)?.ok_or_else(|| corrupted(format!("record {first} is missing")))?;
        let mut records = encoding::unseal_records(&fork.from, first, &data).map_err(corrupted)?;
        last = records
            .last()
            .map(|record| record.seq)
            .ok_or_else(|| corrupted(format!("the row of record {first} is empty")))?;
        let mut body_refs = encoding::decode_body_refs(bodies.as_deref().unwrap_or_default()).map_err(corrupted)?;
        let data = if last > fork.at_seq {
            records.retain(|record| record.seq <= fork.at_seq);
            body_refs.retain(|body_ref| first.0.saturating_add(body_ref.record_offset) <= fork.at_seq.0);
            encoding::seal_records(&fork.to, first, &records)
        } else {
            encoding::reseal_records(&fork.from, &fork.to, first, &data).map_err(corrupted)?
        };
        insert_journal_row(db, copy.key, first, &body_refs, &data)?;
        for body_ref in body_refs {
            db.prepare_cached("INSERT OR IGNORE INTO shares (session, body) VALUES (?1, ?2)")?
                .execute([copy.key, body_ref.body])?;
        }
    }
    Ok(copy.uid)
}

/// Marks a session for deletion. It disappears from all lists.
pub(super) fn begin_delete(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<Lease, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    session_row.ensure_not_held(session, node)?;
    if !session_row.is_being_deleted {
        remember_deletion(db, session_row.uid)?;
        db.prepare_cached(
            "UPDATE sessions SET is_being_deleted = 1, updated_at = NULL, wake_at = NULL WHERE key = ?1",
        )?
        .execute([session_row.key])?;
    }
    Ok(session_row.lease(set_holder(db, &session_row, node)?))
}

/// Deletes all rows of a session. A body that other sessions use gets one of them as its new owner.
pub(super) fn delete_session(
    db: &SqliteStoreConnection,
    session: &SessionId,
    notice_to_parent: Option<&NewInboxSubmission>,
    node: &ProcessLivenessLock,
    now: UnixMillis,
) -> Result<(), SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    session_row.ensure_not_held(session, node)?;
    if has_children(db, session_row.uid)? {
        return Err(SqliteTransactionError::Rejected(Error::HasChildren { session: session.clone() }));
    }
    db.flush_body_addresses_to_index()?;
    for body in collect_session_bodies(db, session_row.key, session_row.head, session)? {
        release_body(db, session_row.key, body)?;
    }
    if !session_row.is_being_deleted {
        remember_deletion(db, session_row.uid)?;
    }
    for statement in [
        "DELETE FROM shares WHERE session = ?1",
        "DELETE FROM journal WHERE session = ?1",
        "DELETE FROM snapshots WHERE session = ?1",
        "DELETE FROM sessions WHERE key = ?1",
    ] {
        db.prepare_cached(statement)?.execute([session_row.key])?;
    }
    for statement in ["DELETE FROM inbox WHERE session = ?1", "DELETE FROM outcomes WHERE session = ?1"] {
        db.prepare_cached(statement)?.execute([session_row.uid.0])?;
    }
    let parent = match session_row.parent {
        Some(parent) => find_session_name(db, parent)?,
        None => None,
    };
    if let Some((parent, notice)) = parent.zip(notice_to_parent) {
        let (encoded, sender) =
            (SqliteEncodedInboxSubmission::new_exempt_from_limit(&parent, notice), session_row.name_and_uid(session));
        // A parent that is being deleted needs no notice.
        let _ = deliver(db, &parent, session_row.parent, &encoded, Some(&sender), now)?;
    }
    Ok(())
}

/// Adds a deletion to the changes of the session list, and forgets the oldest one if there are too many.
fn remember_deletion(db: &Connection, uid: SessionUid) -> Result<(), rusqlite::Error> {
    let change = newest_change(db)? + 1;
    db.prepare_cached("INSERT INTO deletions (change, uid) VALUES (?1, ?2)")?.execute(params![change, uid.0])?;
    let forgotten: Option<i64> = db
        .prepare_cached("SELECT change FROM deletions ORDER BY change DESC LIMIT 1 OFFSET ?1")?
        .query_row([REMEMBERED_DELETIONS_MAX], |row| row.get(0))
        .optional()?;
    if let Some(forgotten) = forgotten {
        db.prepare_cached("DELETE FROM deletions WHERE change <= ?1")?.execute([forgotten])?;
        db.prepare_cached("UPDATE store SET forgotten_deletion = ?1")?.execute([forgotten])?;
    }
    Ok(())
}

type SqliteJournalRow = (Option<Vec<u8>>, Vec<u8>);

fn read_journal_row(db: &Connection, session: i64, first: Seq) -> Result<Option<SqliteJournalRow>, rusqlite::Error> {
    db.prepare_cached("SELECT bodies, data FROM journal WHERE session = ?1 AND first = ?2")?
        .query_row(params![session, first.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Returns the bodies that a session stored or was forked with. If its journal is corrupted, all bodies are searched.
fn collect_session_bodies(
    db: &Connection,
    key: i64,
    head: Seq,
    session: &SessionId,
) -> Result<BTreeSet<i64>, rusqlite::Error> {
    let mut bodies = BTreeSet::new();
    let mut expected = Seq(1);
    let mut rows = db.prepare_cached("SELECT first, bodies, data FROM journal WHERE session = ?1 ORDER BY first")?;
    let mut rows = rows.query([key])?;
    while let Some(row) = rows.next()? {
        let (first, body_refs, data) = (Seq(row.get(0)?), row.get_ref(1)?, row.get_ref(2)?);
        let records = encoding::unseal_records(session, first, data.as_blob().unwrap_or_default()).unwrap_or_default();
        let body_refs = encoding::decode_body_refs(body_refs.as_blob_or_null()?.unwrap_or_default());
        match body_refs {
            Ok(body_refs) if first == expected && !records.is_empty() => {
                bodies.extend(body_refs.iter().map(|body_ref| body_ref.body))
            }
            _ => break,
        }
        expected = Seq(expected.0 + records.len() as u64);
    }
    if expected != head.next() {
        let mut all_bodies =
            db.prepare("SELECT id FROM bodies WHERE owner = ?1 UNION SELECT body FROM shares WHERE session = ?1")?;
        for body in all_bodies.query_map([key], |row| row.get(0))? {
            bodies.insert(body?);
        }
    }
    Ok(bodies)
}

/// Ends a session's use of a body. Deletes the body if no other session uses it.
fn release_body(db: &SqliteStoreConnection, session: i64, body: i64) -> Result<(), rusqlite::Error> {
    let owned_address: Option<i64> = db
        .prepare_cached("SELECT address FROM bodies WHERE id = ?1 AND owner = ?2")?
        .query_row([body, session], |row| row.get(0))
        .optional()?;
    let Some(address) = owned_address else { return Ok(()) };
    let new_owner: Option<i64> = db
        .prepare_cached("SELECT session FROM shares WHERE body = ?1 LIMIT 1")?
        .query_row([body], |row| row.get(0))
        .optional()?;
    match new_owner {
        Some(new_owner) => {
            db.prepare_cached("UPDATE bodies SET owner = ?2 WHERE id = ?1")?.execute([body, new_owner])?;
            db.prepare_cached("DELETE FROM shares WHERE session = ?2 AND body = ?1")?.execute([body, new_owner])?;
        }
        None => {
            db.prepare_cached("DELETE FROM bodies WHERE id = ?1")?.execute([body])?;
            db.remove_body_address(address, body)?;
        }
    }
    Ok(())
}
