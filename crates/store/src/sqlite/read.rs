//! Read transactions: records, bodies, snapshots, lists, and the integrity check.

use crate::limits::INTEGRITY_PROBLEMS_MAX;
use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId};

use super::body_index::StoreConnection;
use super::encoding;
use super::sqlite_error::TransactionError;
use super::write::{SqliteSessionRow, body_address_prefix, load_session_row};
use crate::search::SearchTerm;
use crate::{
    Error, IntegrityReport, JournalRecord, PendingWorkStatus, SessionListCursor, SessionListPage, SessionQuery,
    SessionSummary, Snapshot, StoredSessionEntry,
};

pub(super) fn read_records(
    db: &Connection,
    session: &SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<JournalRecord>, TransactionError> {
    let session_row = load_session_row(db, session)?;
    let mut found = Vec::new();
    if after >= session_row.head || limit == 0 {
        return Ok(found);
    }
    let corrupted =
        |detail: String| TransactionError::Failed(Error::SessionCorrupted { session: session.clone(), detail });
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

pub(super) fn read_heads(db: &Connection, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, TransactionError> {
    let head = |session: &SessionId| match load_session_row(db, session) {
        Ok(session_row) => Ok(Some(session_row.head)),
        Err(TransactionError::Rejected(Error::NoSuchSession { .. })) => Ok(None),
        Err(error) => Err(error),
    };
    sessions.iter().map(head).collect()
}

pub(super) fn read_bodies(
    db: &StoreConnection,
    session: &SessionId,
    ids: &[BodyId],
) -> Result<Vec<Arc<str>>, TransactionError> {
    let session_row = load_session_row(db, session)?;
    // If the list of new addresses cannot be read, bodies are found without it.
    let _ = db.read_new_addresses();
    ids.iter().map(|id| read_body(db, session, &session_row, *id)).collect()
}

fn read_body(
    db: &StoreConnection,
    session: &SessionId,
    session_row: &SqliteSessionRow,
    id: BodyId,
) -> Result<Arc<str>, TransactionError> {
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
        && let Some(text) = find_in_rows(body_refs.into_iter().map(|(body_row, _)| body_row).collect())?
    {
        return Ok(text);
    }
    let session = session.clone();
    Err(match corruption {
        Some(detail) => {
            TransactionError::Failed(Error::SessionCorrupted { session, detail: format!("body {id}: {detail}") })
        }
        None => TransactionError::Rejected(Error::NoSuchBody { session, body: id }),
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

pub(super) fn load_snapshot(db: &Connection, session: &SessionId) -> Result<Option<Snapshot>, TransactionError> {
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

pub(super) fn list_sessions(db: &Connection, query: &SessionQuery) -> Result<SessionListPage, TransactionError> {
    let term = query.text.as_deref().map(SearchTerm::new);
    let mut found = Vec::new();
    for (key, session, head, summary) in read_summaries(db)? {
        // Unreadable summaries are reported by the integrity check, not here.
        let Ok(summary) = summary else { continue };
        let cursor = SessionListCursor { updated_at: summary.updated_at, session };
        let is_selected = query.matches(&cursor.session, &summary.flow)
            && query.after_cursor.as_ref().is_none_or(|before| cursor < *before);
        if is_selected {
            found.push((cursor, key, head, summary));
        }
    }
    found.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let mut rows = Vec::new();
    for (cursor, key, head, summary) in found {
        let excerpt = match &term {
            Some(term) => match find_session_excerpt(db, key, &summary.title, term)? {
                None => continue,
                excerpt => excerpt,
            },
            None => None,
        };
        if rows.len() == query.limit {
            return Ok(SessionListPage::with_next_cursor(rows));
        }
        rows.push(StoredSessionEntry { session: cursor.session, summary, head, excerpt });
    }
    Ok(SessionListPage { entries: rows, next_cursor: None })
}

pub(super) fn sessions_with_pending_work(
    db: &Connection,
) -> Result<Vec<(SessionId, PendingWorkStatus)>, TransactionError> {
    let mut sessions = Vec::new();
    for (_, session, _, summary) in read_summaries(db)? {
        // An unreadable session may have pending work; opening it will tell.
        match summary.map_or(PendingWorkStatus::Now, |summary| summary.pending_work) {
            PendingWorkStatus::None => {}
            pending_work => sessions.push((session, pending_work)),
        }
    }
    sessions.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(sessions)
}

/// Checks each session with separate small reads, so that damage to one does not hide damage to another.
pub(super) fn check_integrity(db: &StoreConnection) -> Result<IntegrityReport, TransactionError> {
    let mut report = IntegrityReport::default();
    match run_quick_check(db) {
        Ok(problems) => report.store_problems = problems,
        Err(error) => report.store_problems.push(error.to_string()),
    }
    report
        .store_problems
        .extend(db.read_new_addresses().err().map(|error| format!("the list of new addresses: {error}")));
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

fn check_session_integrity(db: &StoreConnection, key: i64, session: &SessionId) -> Result<(), TransactionError> {
    read_records(db, session, Seq(0), usize::MAX)?;
    let corrupted =
        |detail: String| TransactionError::Failed(Error::SessionCorrupted { session: session.clone(), detail });
    for (body_row, _) in read_session_body_refs(db, key)?.map_err(corrupted)? {
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

type SessionSummaryRow = (i64, SessionId, Seq, Result<SessionSummary, String>);

fn read_summaries(db: &Connection) -> Result<Vec<SessionSummaryRow>, rusqlite::Error> {
    let mut query = db.prepare_cached("SELECT key, name, head, summary FROM sessions WHERE summary IS NOT NULL")?;
    let mut rows = query.query([])?;
    let mut summaries = Vec::new();
    while let Some(row) = rows.next()? {
        // A row with an invalid name or head belongs to no session that could be asked for.
        let (Ok(name), Ok(head)) = (row.get::<_, String>(1), row.get::<_, u64>(2)) else { continue };
        let session = SessionId::from(name);
        let summary = encoding::unseal_summary(&session, row.get_ref(3)?.as_blob().unwrap_or_default());
        summaries.push((row.get(0)?, session, Seq(head), summary));
    }
    Ok(summaries)
}

/// Returns the text around the first match in a session's title or visible texts. Corrupted texts are skipped.
fn find_session_excerpt(
    db: &Connection,
    key: i64,
    title: &str,
    term: &SearchTerm,
) -> Result<Option<String>, rusqlite::Error> {
    if let Some(excerpt_found) = term.find_excerpt(title) {
        return Ok(Some(excerpt_found));
    }
    let Ok(Ok(body_refs)) = read_session_body_refs(db, key) else { return Ok(None) };
    let mut texts = db.prepare_cached("SELECT text FROM bodies WHERE id = ?1")?;
    let mut seen = HashSet::new();
    for (body_row, is_visible) in body_refs {
        if !is_visible || !seen.insert(body_row) {
            continue;
        }
        let packed = texts.query_row([body_row], |row| row.get::<_, Vec<u8>>(0)).unwrap_or_default();
        let text = encoding::decompress(&packed).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(excerpt_found) = text.and_then(|text| term.find_excerpt(&text)) {
            return Ok(Some(excerpt_found));
        }
    }
    Ok(None)
}

/// Reads the references to all bodies that a session stored or was forked with, oldest first.
fn read_session_body_refs(db: &Connection, key: i64) -> Result<Result<Vec<(i64, bool)>, String>, rusqlite::Error> {
    let mut query =
        db.prepare_cached("SELECT bodies FROM journal WHERE session = ?1 AND bodies IS NOT NULL ORDER BY first")?;
    let lists = query.query_map([key], |row| row.get::<_, Vec<u8>>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(encoding::decode_body_refs(&lists.concat()))
}
