//! Reads the catalog of sessions. Each query follows an index, and is bounded.

use deadpool_postgres::GenericClient;
use segue_core::ids::{Seq, SessionId, SessionUid, UnixMillis};
use tokio_postgres::Row;

use super::PostgresStoreInner;
use super::inbox::read_name_and_uid;
use super::postgres_error::PostgresError;
use super::schema::{from_bigint, now_ms, query, to_bigint};
use super::session_row::{RowLock, find_session_name, load_session_row};
use crate::catalog::{SessionPageBuilder, SessionScanControl, name_namespace};
use crate::limits::{LIST_SCAN_ROWS_MAX, TAKEOVERS_WITHOUT_PROGRESS_MAX};
use crate::search::PreparedSearchTerm;
use crate::{
    PendingWorkCursor, PendingWorkPage, PendingWorkQuery, PendingWorkStatus, SessionListCursor, SessionListPage,
    SessionNameAndUid, SessionQuery, SessionWithPendingWork, StoredSessionListEntry, encoding,
};

/// The columns that [`read_list_row`] reads.
pub(super) const LIST_COLUMNS: &str = "uid, name, parent, head, takeovers, summary, updated_at";

/// A listed session. Its entry is missing if its summary cannot be read.
pub(super) struct PostgresSessionListRow {
    uid: i64,
    at: SessionListCursor,
    pub(super) entry: Option<StoredSessionListEntry>,
}

pub(super) async fn list_sessions(
    db: &PostgresStoreInner,
    session_query: &SessionQuery,
) -> Result<SessionListPage, PostgresError> {
    let client = db.client().await?;
    let term = session_query.text.as_deref().map(PreparedSearchTerm::new);
    let mut page = SessionPageBuilder::new(session_query.limit);
    let mut after = session_query.after_cursor.clone();
    loop {
        let rows = read_list_rows(&client, session_query, after.as_ref()).await?;
        let is_last = rows.len() < LIST_SCAN_ROWS_MAX;
        for row in rows {
            let matching = row.entry.filter(|entry| session_query.matches(&entry.session, &entry.summary.flow));
            let found = match (&term, matching) {
                (Some(term), Some(entry)) => find_session_excerpt(&client, row.uid, &entry.summary.title, term)
                    .await?
                    .map(|excerpt| StoredSessionListEntry { excerpt: Some(excerpt), ..entry }),
                (_, entry) => entry,
            };
            if page.scan_next(&row.at, found) == SessionScanControl::PageComplete {
                return Ok(page.into_page());
            }
            after = Some(row.at);
        }
        if is_last {
            return Ok(page.into_page());
        }
    }
}

async fn read_list_rows(
    client: &impl GenericClient,
    session_query: &SessionQuery,
    after: Option<&SessionListCursor>,
) -> Result<Vec<PostgresSessionListRow>, PostgresError> {
    let namespace = session_query.name_prefix.as_deref().and_then(name_namespace);
    let namespace_filter = if namespace.is_some() { "namespace = $3" } else { "$3::text IS NULL" };
    let cursor_filter =
        if after.is_some() { "(updated_at, name) < ($1, $2)" } else { "$1::bigint IS NULL AND $2::text IS NULL" };
    let rows = query(
        client,
        &format!(
            "SELECT {LIST_COLUMNS} FROM segue_sessions
             WHERE updated_at IS NOT NULL AND {namespace_filter} AND {cursor_filter}
             ORDER BY updated_at DESC, name DESC LIMIT $4"
        ),
        &[
            &after.map(|after| to_bigint(after.updated_at.0)),
            &after.map(|after| after.session.as_str()),
            &namespace,
            &to_bigint(LIST_SCAN_ROWS_MAX as u64),
        ],
    )
    .await?;
    Ok(rows.iter().map(read_list_row).collect())
}

/// Reads the columns of [`LIST_COLUMNS`].
pub(super) fn read_list_row(row: &Row) -> PostgresSessionListRow {
    let session = SessionId::from(row.get::<_, String>(1));
    let sealed = row.get::<_, Option<&[u8]>>(5).unwrap_or_default();
    // Unreadable summaries are reported by the integrity check, not here.
    let summary = encoding::unseal_summary(&session, sealed).ok();
    let updated_at = UnixMillis(from_bigint(row.get::<_, Option<i64>>(6).unwrap_or_default()));
    let at = SessionListCursor { updated_at, session: session.clone() };
    let entry = summary.map(|summary| StoredSessionListEntry {
        session,
        uid: SessionUid(from_bigint(row.get(0))),
        parent: row.get::<_, Option<i64>>(2).map(|parent| SessionUid(from_bigint(parent))),
        summary,
        head: Seq(from_bigint(row.get(3))),
        is_quarantined: from_bigint(i64::from(row.get::<_, i32>(4))) >= u64::from(TAKEOVERS_WITHOUT_PROGRESS_MAX),
        excerpt: None,
    });
    PostgresSessionListRow { uid: row.get(0), at, entry }
}

/// Returns the text around the first match in a session's title or visible texts. Corrupted texts are skipped.
async fn find_session_excerpt(
    client: &impl GenericClient,
    uid: i64,
    title: &str,
    term: &PreparedSearchTerm,
) -> Result<Option<String>, PostgresError> {
    if let Some(excerpt) = term.find_excerpt(title) {
        return Ok(Some(excerpt));
    }
    let rows = query(
        client,
        "SELECT text FROM (
             SELECT text, visible_from, position FROM segue_bodies WHERE owner = $1
             UNION ALL SELECT b.text, s.visible_from, s.position FROM segue_shares s
             JOIN segue_bodies b ON b.hash = s.hash WHERE s.session = $1
         ) used WHERE visible_from IS NOT NULL ORDER BY visible_from, position",
        &[&uid],
    )
    .await?;
    Ok(rows.iter().find_map(|row| {
        let text = encoding::decompress(row.get(0)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        term.find_excerpt(&text?)
    }))
}

pub(super) async fn parent_of(
    db: &PostgresStoreInner,
    session: &SessionId,
) -> Result<Option<SessionNameAndUid>, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    let Some((parent, uid)) = session_row.parent.zip(session_row.parent_uid()) else { return Ok(None) };
    Ok(find_session_name(&client, parent).await?.map(|session| SessionNameAndUid { session, uid }))
}

pub(super) async fn children_of(
    db: &PostgresStoreInner,
    parent: SessionUid,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, PostgresError> {
    let sql = "SELECT name, uid FROM segue_sessions WHERE parent = $1 ORDER BY uid LIMIT $2";
    let rows = query(&db.client().await?, sql, &[&to_bigint(parent.0), &to_bigint(limit as u64)]).await?;
    Ok(rows.iter().map(read_name_and_uid).collect())
}

pub(super) async fn sessions_to_delete(
    db: &PostgresStoreInner,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, PostgresError> {
    let sql = "SELECT name, uid FROM segue_sessions WHERE is_being_deleted ORDER BY uid LIMIT $1";
    let rows = query(&db.client().await?, sql, &[&to_bigint(limit as u64)]).await?;
    Ok(rows.iter().map(read_name_and_uid).collect())
}

/// Leaves out sessions that another live node holds: it does their work.
pub(super) async fn sessions_with_pending_work(
    db: &PostgresStoreInner,
    work_query: &PendingWorkQuery,
) -> Result<PendingWorkPage, PostgresError> {
    let is_free = format!(
        "s.takeovers < $4 AND NOT s.is_being_deleted AND NOT EXISTS
         (SELECT 1 FROM segue_nodes n WHERE n.node = s.holder AND n.node <> $6 AND n.expires_at > {})",
        now_ms("$7")
    );
    let after = work_query.after_cursor;
    let rows = query(
        &db.client().await?,
        &format!(
            "SELECT wake_at, uid, name FROM (
                (SELECT 0::bigint AS wake_at, s.uid, s.name FROM segue_sessions s
                 WHERE s.uid IN (SELECT session FROM segue_inbox) AND (0::bigint, s.uid) > ($2::bigint, $3::bigint) AND {is_free}
                 ORDER BY s.uid LIMIT $5)
                UNION ALL
                (SELECT s.due_at, s.uid, s.name FROM segue_sessions s
                 WHERE s.due_at IS NOT NULL AND s.due_at <= $1::bigint AND (s.due_at, s.uid) > ($2::bigint, $3::bigint) AND {is_free}
                 AND NOT EXISTS (SELECT 1 FROM segue_inbox i WHERE i.session = s.uid)
                 ORDER BY s.due_at, s.uid LIMIT $5)
             ) pending ORDER BY wake_at, uid LIMIT $5"
        ),
        &[
            &to_bigint(work_query.due_until.0),
            &after.map_or(-1, |after| to_bigint(after.due_at)),
            &after.map_or(0, |after| to_bigint(after.uid.0)),
            &i32::try_from(TAKEOVERS_WITHOUT_PROGRESS_MAX).unwrap_or(i32::MAX),
            &to_bigint(work_query.limit as u64),
            &db.node,
            &db.clock_offset_ms(),
        ],
    )
    .await?;
    let mut page = PendingWorkPage { sessions: Vec::new(), next_cursor: None };
    for row in rows {
        let (due_at, uid) = (from_bigint(row.get(0)), SessionUid(from_bigint(row.get(1))));
        let pending_work = PendingWorkStatus::from_due_at(Some(due_at));
        page.sessions.push(SessionWithPendingWork { session: row.get::<_, String>(2).into(), uid, pending_work });
        page.next_cursor = (page.sessions.len() == work_query.limit).then_some(PendingWorkCursor { due_at, uid });
    }
    Ok(page)
}
