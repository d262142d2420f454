//! Read transactions: records, bodies, snapshots, and the integrity check.

use crate::limits::INTEGRITY_PROBLEMS_MAX;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId};

use super::body_index::SqliteStoreConnection;
use super::inbox::read_inbox;
use super::session_row::{SqliteSessionRow, load_session_row};
use super::sqlite_error::SqliteTransactionError;
use super::write::body_address_prefix;
use crate::encoding::{self, JournalRowBodyRef};
use crate::inbox::InboxSize;
use crate::{Error, IntegrityReport, JournalRecord, Snapshot};

pub(super) fn read_records(
    db: &Connection,
    session: &SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<JournalRecord>, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    let mut found = Vec::new();
    if after >= session_row.head || limit == 0 {
        return Ok(found);
    }
    let corrupted =
        |detail: String| SqliteTransactionError::Failed(Error::SessionCorrupted { session: session.clone(), detail });
    let mut commits = db.prepare_cached(
        "SELECT first, data FROM journal WHERE session = ?1 AND first >=
         (SELECT max(first) FROM journal WHERE session = ?1 AND first <= ?2) ORDER BY first",
    )?;
    let mut rows = commits.query(params![session_row.key, after.next().0])?;
    let mut expected = None;
    while let Some(row) = rows.next()? {
        let first = Seq(row.get(0)?);
        if expected.is_some_and(|expected| expected != first) {
            break;
        }
        let sealed = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let commit = encoding::unseal_records(session, first, sealed)
            .map_err(|detail| corrupted(format!("records from {first} on: {detail}")))?;
        expected = Some(Seq(first.0 + commit.len() as u64));
        found.extend(commit.into_iter().filter(|record| record.seq > after));
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
    match expected {
        Some(expected)
            if expected == session_row.head.next()
                && found.first().is_some_and(|record| record.seq == after.next()) =>
        {
            Ok(found)
        }
        expected => Err(corrupted(format!("record {} is missing", expected.unwrap_or(after.next())))),
    }
}

pub(super) fn read_heads(db: &Connection, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, SqliteTransactionError> {
    let head = |session: &SessionId| match load_session_row(db, session) {
        Ok(session_row) => Ok(Some(session_row.head)),
        Err(SqliteTransactionError::Rejected(Error::NoSuchSession { .. })) => Ok(None),
        Err(error) => Err(error),
    };
    sessions.iter().map(head).collect()
}

pub(super) fn read_bodies(
    db: &SqliteStoreConnection,
    session: &SessionId,
    ids: &[BodyId],
) -> Result<Vec<Arc<str>>, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    // If the list of new addresses cannot be read, bodies are found without it.
    let _ = db.read_new_body_addresses();
    ids.iter().map(|id| read_body(db, session, &session_row, *id)).collect()
}

fn read_body(
    db: &SqliteStoreConnection,
    session: &SessionId,
    session_row: &SqliteSessionRow,
    id: BodyId,
) -> Result<Arc<str>, SqliteTransactionError> {
    let mut corruption = None;
    let mut find_in_rows = |body_rows: Vec<i64>| {
        for body_row in body_rows {
            match read_text_row(db, session_row, body_row, id)? {
                Some(Ok(text)) => return Ok(Some(text)),
                Some(Err(detail)) => corruption = Some(detail),
                None => {}
            }
        }
        Ok::<_, rusqlite::Error>(None)
    };
    // An index that cannot be read is like one without this body: the journal is searched next.
    if let Some(text) = find_in_rows(db.find_body_rows(body_address_prefix(id)).unwrap_or_default())? {
        return Ok(text);
    }
    // If the index is corrupted, the journal still tells which bodies the session refers to.
    if let Ok(body_refs) = read_session_body_refs(db, session_row.key)?
        && let Some(text) = find_in_rows(body_refs.into_iter().map(|body_ref| body_ref.body).collect())?
    {
        return Ok(text);
    }
    let session = session.clone();
    Err(match corruption {
        Some(detail) => {
            SqliteTransactionError::Failed(Error::SessionCorrupted { session, detail: format!("body {id}: {detail}") })
        }
        None => SqliteTransactionError::Rejected(Error::NoSuchBody { session, body: id }),
    })
}

/// Reads the text of a row, if the session uses it and `id` may be its id.
fn read_text_row(
    db: &Connection,
    session_row: &SqliteSessionRow,
    body_row: i64,
    id: BodyId,
) -> Result<Option<Result<Arc<str>, String>>, rusqlite::Error> {
    let mut candidate = db.prepare_cached("SELECT owner, text FROM bodies WHERE id = ?1 AND address = ?2")?;
    let mut rows = candidate.query([body_row, body_address_prefix(id)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if row.get::<_, i64>(0)? != session_row.key && !is_body_shared_with(db, session_row.key, body_row)? {
        return Ok(None);
    }
    Ok(Some(decode_body_text(row.get_ref(1)?.as_blob()?, id)))
}

pub(super) fn load_snapshot(db: &Connection, session: &SessionId) -> Result<Option<Snapshot>, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    let read = |row: &rusqlite::Row<'_>| Ok((Seq(row.get(0)?), row.get::<_, u32>(1)?, row.get::<_, Vec<u8>>(2)?));
    let stored = db
        .prepare_cached("SELECT seq, format, data FROM snapshots WHERE session = ?1")?
        .query_row([session_row.key], read)
        .optional();
    // A snapshot that cannot be read counts as missing.
    let Ok(Some((seq, format, sealed))) = stored else { return Ok(None) };
    let bytes = encoding::unseal_snapshot(session, seq, format, &sealed).ok().filter(|_| seq <= session_row.head);
    Ok(bytes.map(|bytes| Snapshot { seq, format, bytes }))
}

/// Checks each session with separate small reads, so that damage to one does not hide damage to another.
pub(super) fn check_integrity(db: &SqliteStoreConnection) -> Result<IntegrityReport, SqliteTransactionError> {
    let mut report = IntegrityReport::default();
    match run_quick_check(db) {
        Ok(problems) => report.store_problems = problems,
        Err(error) => report.store_problems.push(error.to_string()),
    }
    report
        .store_problems
        .extend(db.read_new_body_addresses().err().map(|error| format!("the list of new addresses: {error}")));
    let mut query = db.prepare("SELECT key, name, summary FROM sessions ORDER BY name")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (key, name, summary): (i64, String, Option<Vec<u8>>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let session = SessionId::from(name);
        report.session_count += 1;
        let found = check_session_integrity(db, key, &session).map_err(|error| error.to_session_error(&session));
        let detail = match found {
            Err(Error::SessionCorrupted { detail, .. }) => Some(detail),
            Err(error) => Some(error.to_string()),
            Ok(()) => summary.and_then(|sealed| encoding::unseal_summary(&session, &sealed).err()),
        };
        report.damaged_sessions.extend(detail.map(|detail| (session, detail)));
    }
    Ok(report)
}

fn check_session_integrity(
    db: &SqliteStoreConnection,
    key: i64,
    session: &SessionId,
) -> Result<(), SqliteTransactionError> {
    read_records(db, session, Seq(0), usize::MAX)?;
    let corrupted =
        |detail: String| SqliteTransactionError::Failed(Error::SessionCorrupted { session: session.clone(), detail });
    let (counted, found) = (load_session_row(db, session)?.inbox, read_inbox(db, session, usize::MAX)?);
    let found = InboxSize { entries: found.len(), bytes: found.iter().map(|entry| entry.bytes.len()).sum() };
    if counted != found {
        return Err(corrupted(format!("its inbox has {} entries, but {} are counted", found.entries, counted.entries)));
    }
    for JournalRowBodyRef { body: body_row, .. } in read_session_body_refs(db, key)?.map_err(corrupted)? {
        let found = db
            .prepare_cached("SELECT owner, address, text FROM bodies WHERE id = ?1")?
            .query_row([body_row], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?)))
            .optional()?;
        let (owner, address, packed): (i64, i64, _) =
            found.ok_or_else(|| corrupted(format!("body {body_row} is missing")))?;
        let text = encoding::decompress(&packed).map_err(|detail| corrupted(format!("body {body_row}: {detail}")))?;
        if body_address_prefix(BodyId::hash_bytes(&text)) != address {
            return Err(corrupted(format!("body {body_row} does not match its address")));
        }
        if !db.find_body_rows(address)?.contains(&body_row) {
            return Err(corrupted(format!("body {body_row} is not found by its address")));
        }
        if owner != key && !is_body_shared_with(db, key, body_row)? {
            return Err(corrupted(format!("body {body_row} is not marked as its own")));
        }
    }
    Ok(())
}

fn run_quick_check(db: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut query = db.prepare(&format!("PRAGMA quick_check({INTEGRITY_PROBLEMS_MAX})"))?;
    let lines = query.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

fn is_body_shared_with(db: &Connection, session: i64, body: i64) -> Result<bool, rusqlite::Error> {
    db.prepare_cached("SELECT 1 FROM shares WHERE session = ?1 AND body = ?2")?.exists([session, body])
}

fn decode_body_text(packed: &[u8], id: BodyId) -> Result<Arc<str>, String> {
    let bytes = encoding::decompress(packed)?;
    if BodyId::hash_bytes(&bytes) != id {
        return Err("the text does not match its address".into());
    }
    String::from_utf8(bytes).map(Arc::from).map_err(|_| "the text is not UTF-8".into())
}

/// Reads the references to all bodies that a session stored or was forked with, oldest first.
pub(super) fn read_session_body_refs(
    db: &Connection,
    key: i64,
) -> Result<Result<Vec<JournalRowBodyRef>, String>, rusqlite::Error> {
    let mut query =
        db.prepare_cached("SELECT bodies FROM journal WHERE session = ?1 AND bodies IS NOT NULL ORDER BY first")?;
    let lists = query.query_map([key], |row| row.get::<_, Vec<u8>>(0))?.collect::<Result<Vec<_>, _>>()?;
    let lists = lists.iter().map(|list| encoding::decode_body_refs(list));
    Ok(lists.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat()))
}
