//! Reads the catalog of sessions. Each query follows an index, and is bounded.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::ids::{Seq, SessionId, SessionUid, UnixMillis};

use super::inbox::read_name_and_uid;
use super::read::read_session_body_refs;
use super::session_row::{find_session_name, load_session_row, newest_change, sortable_time};
use super::sqlite_error::SqliteTransactionError;
use crate::catalog::{SessionPageBuilder, SessionScanControl, name_namespace};
use crate::limits::TAKEOVERS_WITHOUT_PROGRESS_MAX;
use crate::search::PreparedSearchTerm;
use crate::{
    PendingWorkCursor, PendingWorkPage, PendingWorkQuery, PendingWorkStatus, SessionListChangeCursor,
    SessionListChangePage, SessionListCursor, SessionListPage, SessionNameAndUid, SessionQuery, SessionWithPendingWork,
    StoredSessionListChange, StoredSessionListEntry, encoding,
};

/// The columns that [`read_list_row`] reads.
const LIST_COLUMNS: &str = "key, name, uid, parent, head, takeovers, summary, updated_at, change";

/// A listed session. Its entry is missing if its summary cannot be read.
struct SqliteSessionListRow {
    key: i64,
    at: SessionListCursor,
    change: u64,
    entry: Option<StoredSessionListEntry>,
}

pub(super) fn list_sessions(db: &Connection, query: &SessionQuery) -> Result<SessionListPage, SqliteTransactionError> {
    let term = query.text.as_deref().map(PreparedSearchTerm::new);
    let namespace = query.name_prefix.as_deref().and_then(name_namespace);
    let (index, namespace_filter) = match namespace {
        Some(_) => ("sessions_listed_by_namespace", "namespace = ?3"),
        None => ("sessions_listed", "?3 IS NULL"),
    };
    let cursor_filter = match &query.after_cursor {
        Some(_) => "(updated_at, name) < (?1, ?2)",
        None => "?1 IS NULL AND ?2 IS NULL",
    };
    let mut rows = db.prepare_cached(&format!(
        "SELECT {LIST_COLUMNS} FROM sessions INDEXED BY {index}
         WHERE updated_at IS NOT NULL AND {namespace_filter} AND {cursor_filter} ORDER BY updated_at DESC, name DESC"
    ))?;
    let after = query.after_cursor.as_ref();
    let mut rows = rows.query(params![
        after.map(|after| sortable_time(after.updated_at.0)),
        after.map(|after| after.session.as_str()),
        namespace
    ])?;
    let mut page = SessionPageBuilder::new(query.limit);
    while let Some(row) = rows.next()? {
        // A row with an invalid name or head belongs to no session that could be asked for.
        let Ok(row) = read_list_row(row) else { continue };
        let matching = row.entry.filter(|entry| query.matches(&entry.session, &entry.summary.flow));
        let found = match (&term, matching) {
            (Some(term), Some(entry)) => find_session_excerpt(db, row.key, &entry.summary.title, term)?
                .map(|excerpt| StoredSessionListEntry { excerpt: Some(excerpt), ..entry }),
            (_, entry) => entry,
        };
        if page.scan_next(&row.at, found) == SessionScanControl::PageComplete {
            break;
        }
    }
    Ok(page.into_page())
}

/// Reads the columns of [`LIST_COLUMNS`].
fn read_list_row(row: &rusqlite::Row<'_>) -> Result<SqliteSessionListRow, rusqlite::Error> {
    let session = SessionId::from(row.get::<_, String>(1)?);
    let sealed = row.get_ref(6)?.as_blob_or_null()?.unwrap_or_default();
    // Unreadable summaries are reported by the integrity check, not here.
    let summary = encoding::unseal_summary(&session, sealed).ok();
    let (uid, parent) = (SessionUid(row.get(2)?), row.get::<_, Option<u64>>(3)?.map(SessionUid));
    let (head, takeovers): (_, u32) = (Seq(row.get(4)?), row.get(5)?);
    let at = SessionListCursor { updated_at: UnixMillis(row.get(7)?), session: session.clone() };
    let entry = summary.map(|summary| StoredSessionListEntry {
        session,
        uid,
        parent,
        summary,
        head,
        is_quarantined: takeovers >= TAKEOVERS_WITHOUT_PROGRESS_MAX,
        excerpt: None,
    });
    Ok(SqliteSessionListRow { key: row.get(0)?, at, change: row.get(8)?, entry })
}

/// Returns the text around the first match in a session's title or visible texts. Corrupted texts are skipped.
fn find_session_excerpt(
    db: &Connection,
    key: i64,
    title: &str,
    term: &PreparedSearchTerm,
) -> Result<Option<String>, rusqlite::Error> {
    if let Some(excerpt_found) = term.find_excerpt(title) {
        return Ok(Some(excerpt_found));
    }
    let Ok(Ok(body_refs)) = read_session_body_refs(db, key) else { return Ok(None) };
    let mut texts = db.prepare_cached("SELECT text FROM bodies WHERE id = ?1")?;
    let mut seen = HashSet::new();
    for body_ref in body_refs {
        if !body_ref.is_visible || !seen.insert(body_ref.body) {
            continue;
        }
        let packed = texts.query_row([body_ref.body], |row| row.get::<_, Vec<u8>>(0)).unwrap_or_default();
        let text = encoding::decompress(&packed).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(excerpt_found) = text.and_then(|text| term.find_excerpt(&text)) {
            return Ok(Some(excerpt_found));
        }
    }
    Ok(None)
}

pub(super) fn parent_of(
    db: &Connection,
    session: &SessionId,
) -> Result<Option<SessionNameAndUid>, SqliteTransactionError> {
    let Some(uid) = load_session_row(db, session)?.parent else { return Ok(None) };
    Ok(find_session_name(db, uid)?.map(|session| SessionNameAndUid { session, uid }))
}

pub(super) fn children_of(
    db: &Connection,
    parent: SessionUid,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, SqliteTransactionError> {
    let mut query = db.prepare_cached(
        "SELECT name, uid FROM sessions INDEXED BY sessions_by_parent WHERE parent = ?1 ORDER BY uid LIMIT ?2",
    )?;
    let rows = query.query_map(params![parent.0, row_limit(limit)], read_name_and_uid)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn has_children(db: &Connection, parent: SessionUid) -> Result<bool, rusqlite::Error> {
    db.prepare_cached("SELECT 1 FROM sessions INDEXED BY sessions_by_parent WHERE parent = ?1")?.exists([parent.0])
}

pub(super) fn sessions_to_delete(
    db: &Connection,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, SqliteTransactionError> {
    let mut query = db.prepare_cached(
        "SELECT name, uid FROM sessions INDEXED BY sessions_to_delete WHERE is_being_deleted = 1 ORDER BY uid LIMIT ?1",
    )?;
    let rows = query.query_map([row_limit(limit)], read_name_and_uid)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn sessions_with_pending_work(
    db: &Connection,
    query: &PendingWorkQuery,
) -> Result<PendingWorkPage, SqliteTransactionError> {
    let mut rows = db.prepare_cached(
        "SELECT wake_at, uid, name FROM sessions INDEXED BY sessions_by_wake_time
         WHERE wake_at <= ?1 AND (wake_at, uid) > (?2, ?3) AND takeovers < ?4 ORDER BY wake_at, uid LIMIT ?5",
    )?;
    let after = query.after_cursor;
    let mut rows = rows.query(params![
        sortable_time(query.due_until.0),
        after.map_or(-1, |after| sortable_time(after.due_at)),
        after.map_or(0, |after| after.uid.0),
        TAKEOVERS_WITHOUT_PROGRESS_MAX,
        row_limit(query.limit)
    ])?;
    let mut page = PendingWorkPage { sessions: Vec::new(), next_cursor: None };
    while let Some(row) = rows.next()? {
        let (due_at, uid) = (row.get(0)?, SessionUid(row.get(1)?));
        let pending_work = PendingWorkStatus::from_due_at(Some(due_at));
        page.sessions.push(SessionWithPendingWork { session: row.get::<_, String>(2)?.into(), uid, pending_work });
        page.next_cursor = (page.sessions.len() == query.limit).then_some(PendingWorkCursor { due_at, uid });
    }
    Ok(page)
}

pub(super) fn changes_after(
    db: &Connection,
    after: Option<SessionListChangeCursor>,
    limit: usize,
) -> Result<SessionListChangePage, SqliteTransactionError> {
    let Some(after) = after else {
        let next_cursor = SessionListChangeCursor(newest_change(db)?.cast_unsigned());
        return Ok(SessionListChangePage { changes: Vec::new(), next_cursor, misses_deletions: false });
    };
    let bounds = [sortable_time(after.0), row_limit(limit)];
    let mut updated = db.prepare_cached(&format!(
        "SELECT {LIST_COLUMNS} FROM sessions INDEXED BY sessions_by_change
         WHERE updated_at IS NOT NULL AND change > ?1 ORDER BY change LIMIT ?2"
    ))?;
    let updated = updated.query_map(bounds, read_list_row)?.collect::<Result<Vec<_>, _>>()?;
    let mut deleted =
        db.prepare_cached("SELECT change, uid FROM deletions WHERE change > ?1 ORDER BY change LIMIT ?2")?;
    let deleted = deleted.query_map(bounds, |row| Ok((row.get(0)?, SessionUid(row.get(1)?))))?;
    let deleted: Vec<(u64, SessionUid)> = deleted.collect::<Result<_, _>>()?;
    let updated = updated.into_iter().map(|row| (row.change, row.entry.map(StoredSessionListChange::Updated)));
    let deleted = deleted.into_iter().map(|(change, uid)| (change, Some(StoredSessionListChange::Deleted(uid))));
    let mut changes: Vec<(u64, Option<StoredSessionListChange>)> = updated.chain(deleted).collect();
    changes.sort_by_key(|(change, _)| *change);
    changes.truncate(limit);
    let forgotten: Option<u64> =
        db.prepare_cached("SELECT forgotten_deletion FROM store")?.query_row([], |row| row.get(0)).optional()?;
    Ok(SessionListChangePage {
        next_cursor: changes.last().map_or(after, |(change, _)| SessionListChangeCursor(*change)),
        changes: changes.into_iter().filter_map(|(_, change)| change).collect(),
        misses_deletions: after.0 < forgotten.unwrap_or_default(),
    })
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
