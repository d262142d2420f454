//! Forking and deleting sessions, and the ownership of shared bodies.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use segue_core::ids::{Seq, SessionId};

use super::body_index::StoreConnection;
use super::encoding;
use super::process_lock::ProcessLivenessLock;
use super::sqlite_error::TransactionError;
use super::write::{
    body_address_prefix, ensure_not_held, insert_journal_row, load_session_row, next_epoch, remove_empty_session,
};
use crate::{Error, ForkSpec};

/// Copies the rows of the journal up to `fork.at_seq`; the last row is cut if necessary.
pub(super) fn fork_session(
    db: &Connection,
    fork: &ForkSpec,
    node: &ProcessLivenessLock,
) -> Result<(), TransactionError> {
    let parent = load_session_row(db, &fork.from)?;
    if fork.at_seq > parent.head || fork.at_seq == Seq(0) {
        return Err(TransactionError::Rejected(Error::ForkOutOfRange {
            session: fork.from.clone(),
            at: fork.at_seq,
            head: parent.head,
        }));
    }
    remove_empty_session(db, &fork.to, node)?;
    db.execute(
        "INSERT INTO sessions (name, epoch, head, summary) VALUES (?1, ?2, ?3, ?4)",
        params![fork.to.as_str(), next_epoch(db)?.0, fork.at_seq.0, encoding::seal_summary(&fork.to, &fork.summary)],
    )?;
    let child = db.last_insert_rowid();
    let corrupted =
        |detail: String| TransactionError::Failed(Error::SessionCorrupted { session: fork.from.clone(), detail });
    let mut last = Seq(0);
    // Read one by one by sequence number, because the same table is being written.
    while last < fork.at_seq {
        let first = last.next();
        let (bodies, data) =
            read_journal_row(db, parent.key, first)?.ok_or_else(|| corrupted(format!("record {first} is missing")))?;
        let mut records = encoding::unseal_records(&fork.from, first, &data).map_err(corrupted)?;
        last = records
            .last()
            .map(|record| record.seq)
            .ok_or_else(|| corrupted(format!("the row of record {first} is empty")))?;
        let mut body_refs = encoding::decode_body_refs(bodies.as_deref().unwrap_or_default()).map_err(corrupted)?;
        let data = if last > fork.at_seq {
            records.retain(|record| record.seq <= fork.at_seq);
            let referenced: BTreeSet<i64> =
                records.iter().flat_map(fork.extract_body_ids).map(body_address_prefix).collect();
            body_refs = retain_referenced_bodies(db, body_refs, &referenced)?;
            encoding::seal_records(&fork.to, first, &records)
        } else {
            encoding::reseal_records(&fork.from, &fork.to, first, &data).map_err(corrupted)?
        };
        insert_journal_row(db, child, first, &body_refs, &data)?;
        for (body, _) in body_refs {
            db.prepare_cached("INSERT OR IGNORE INTO shares (session, body) VALUES (?1, ?2)")?
                .execute([child, body])?;
        }
    }
    Ok(())
}

/// Keeps only bodies whose address is in `referenced`, of those that a commit refers to.
fn retain_referenced_bodies(
    db: &Connection,
    body_refs: Vec<(i64, bool)>,
    referenced: &BTreeSet<i64>,
) -> Result<Vec<(i64, bool)>, TransactionError> {
    let mut query = db.prepare_cached("SELECT address FROM bodies WHERE id = ?1")?;
    let mut kept = Vec::new();
    for (body, is_visible) in body_refs {
        if referenced.contains(&query.query_row([body], |row| row.get(0))?) {
            kept.push((body, is_visible));
        }
    }
    Ok(kept)
}

/// Deletes all rows of a session. A body that other sessions use gets one of them as its new owner.
pub(super) fn delete_session(
    db: &StoreConnection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<(), TransactionError> {
    let session_row = load_session_row(db, session)?;
    ensure_not_held(&session_row, session, node)?;
    db.flush_addresses_to_index()?;
    for body in collect_session_bodies(db, session_row.key, session_row.head, session)? {
        release_body(db, session_row.key, body)?;
    }
    for statement in [
        "DELETE FROM shares WHERE session = ?1",
        "DELETE FROM journal WHERE session = ?1",
        "DELETE FROM snapshots WHERE session = ?1",
        "DELETE FROM sessions WHERE key = ?1",
    ] {
        db.prepare_cached(statement)?.execute([session_row.key])?;
    }
    Ok(())
}

type JournalRow = (Option<Vec<u8>>, Vec<u8>);

fn read_journal_row(db: &Connection, session: i64, first: Seq) -> Result<Option<JournalRow>, rusqlite::Error> {
    use rusqlite::OptionalExtension;
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
                bodies.extend(body_refs.iter().map(|(body, _)| body))
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
fn release_body(db: &StoreConnection, session: i64, body: i64) -> Result<(), rusqlite::Error> {
    use rusqlite::OptionalExtension;
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
            db.remove_address(address, body)?;
        }
    }
    Ok(())
}
