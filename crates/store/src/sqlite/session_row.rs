//! The rows of sessions: lookups, checks, and new rows.

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid};

use super::process_lock::ProcessLivenessLock;
use super::sqlite_error::SqliteTransactionError;
use crate::catalog::name_namespace;
use crate::inbox::InboxSize;
use crate::{Error, InboxEmptiness, Lease, SessionNameAndUid, SessionSummary, encoding};

/// A session's row.
pub(super) struct SqliteSessionRow {
    pub(super) key: i64,
    pub(super) epoch: LeaseEpoch,
    pub(super) head: Seq,
    pub(super) holder: Option<String>,
    pub(super) uid: SessionUid,
    pub(super) parent: Option<SessionUid>,
    pub(super) takeovers: u32,
    pub(super) inbox: InboxSize,
    pub(super) is_being_deleted: bool,
    /// When its summary says that there is work to do.
    pub(super) due_at: Option<u64>,
}

impl SqliteSessionRow {
    pub(super) fn name_and_uid(&self, session: &SessionId) -> SessionNameAndUid {
        SessionNameAndUid { session: session.clone(), uid: self.uid }
    }

    /// Returns the lease that the row describes, with a new epoch.
    pub(super) fn lease(&self, epoch: LeaseEpoch) -> Lease {
        Lease {
            epoch,
            head: self.head,
            uid: self.uid,
            parent: self.parent,
            // A lease ends with its process.
            expires_at: None,
            inbox: InboxEmptiness::from_entry_count(self.inbox.entries),
        }
    }

    /// Refuses if a live process other than this one holds the session.
    pub(super) fn ensure_not_held(
        &self,
        session: &SessionId,
        node: &ProcessLivenessLock,
    ) -> Result<(), SqliteTransactionError> {
        let Some(holder) = &self.holder else { return Ok(()) };
        let what = || format!("checking whether the holder of session `{session}` is alive");
        let held = || Error::HeldByOtherProcess { session: session.clone(), by: holder.clone() };
        match node.is_held_by_live_other(holder) {
            Ok(false) => Ok(()),
            Ok(true) => Err(SqliteTransactionError::Rejected(held())),
            Err(error) => Err(SqliteTransactionError::Rejected(Error::Io { what: what(), detail: error.to_string() })),
        }
    }

    pub(super) fn ensure_not_fenced(
        &self,
        session: &SessionId,
        epoch: LeaseEpoch,
    ) -> Result<(), SqliteTransactionError> {
        if self.epoch == epoch {
            return Ok(());
        }
        tracing::warn!(%session, epoch = epoch.0, current_epoch = self.epoch.0, "write fenced: the lease is lost");
        Err(SqliteTransactionError::Rejected(Error::Fenced { session: session.clone(), epoch, current: self.epoch }))
    }

    pub(super) fn ensure_not_being_deleted(&self, session: &SessionId) -> Result<(), SqliteTransactionError> {
        if self.is_being_deleted {
            return Err(SqliteTransactionError::Rejected(Error::BeingDeleted { session: session.clone() }));
        }
        Ok(())
    }
}

/// Returns the row of a session that must exist.
pub(super) fn load_session_row(
    db: &Connection,
    session: &SessionId,
) -> Result<SqliteSessionRow, SqliteTransactionError> {
    find_session_row(db, session)?
        .ok_or_else(|| SqliteTransactionError::Rejected(Error::NoSuchSession { session: session.clone() }))
}

pub(super) fn find_session_row(
    db: &Connection,
    session: &SessionId,
) -> Result<Option<SqliteSessionRow>, rusqlite::Error> {
    let mut query = db.prepare_cached(
        "SELECT key, epoch, head, lease_holder, uid, parent, takeovers, inbox_entries, inbox_bytes, is_being_deleted,
         due_at FROM sessions WHERE name = ?1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(SqliteSessionRow {
            key: row.get(0)?,
            epoch: LeaseEpoch(row.get(1)?),
            head: Seq(row.get(2)?),
            holder: row.get(3)?,
            uid: SessionUid(row.get(4)?),
            parent: row.get::<_, Option<u64>>(5)?.map(SessionUid),
            takeovers: row.get(6)?,
            inbox: InboxSize { entries: row.get(7)?, bytes: row.get(8)? },
            is_being_deleted: row.get(9)?,
            due_at: row.get(10)?,
        })
    };
    query.query_row([session.as_str()], read).optional()
}

/// Returns the name of the session with this uid.
pub(super) fn find_session_name(db: &Connection, uid: SessionUid) -> Result<Option<SessionId>, rusqlite::Error> {
    db.prepare_cached("SELECT name FROM sessions WHERE uid = ?1")?
        .query_row([uid.0], |row| row.get::<_, String>(0).map(SessionId::from))
        .optional()
}

/// Refuses if a session has this name. One without records that no process holds does not count.
pub(super) fn ensure_name_is_free(
    db: &Connection,
    session: &SessionId,
    node: &ProcessLivenessLock,
) -> Result<(), SqliteTransactionError> {
    let Some(old_row) = find_session_row(db, session)? else { return Ok(()) };
    if old_row.head > Seq(0) || old_row.ensure_not_held(session, node).is_err() {
        return Err(SqliteTransactionError::Rejected(Error::SessionExists { session: session.clone() }));
    }
    Ok(())
}

/// A session's summary in the form of its columns.
pub(super) struct SqliteEncodedSessionSummary {
    pub(super) sealed: Vec<u8>,
    pub(super) updated_at: i64,
    pub(super) due_at: Option<u64>,
}

impl SqliteEncodedSessionSummary {
    pub(super) fn new(session: &SessionId, summary: &SessionSummary) -> Self {
        Self {
            sealed: encoding::seal_summary(session, summary),
            updated_at: sortable_time(summary.updated_at.0),
            due_at: summary.pending_work.due_at(),
        }
    }
}

/// Returns a time as a number that SQLite can store and sort.
pub(super) fn sortable_time(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// A new row of `sessions`.
pub(super) struct NewSqliteSessionRow<'a> {
    pub(super) session: &'a SessionId,
    pub(super) head: Seq,
    pub(super) holder: Option<&'a str>,
    pub(super) parent: Option<SessionUid>,
    pub(super) summary: Option<&'a SqliteEncodedSessionSummary>,
}

/// Inserts a session under a name that is free. Its first epoch is its uid.
pub(super) fn insert_session(
    db: &Connection,
    new: &NewSqliteSessionRow<'_>,
) -> Result<SqliteSessionRow, rusqlite::Error> {
    // What remains of a session without records that no process holds. The key may be reused, and nothing of the old
    // session may remain.
    if let Some(old_row) = find_session_row(db, new.session)? {
        db.execute("DELETE FROM snapshots WHERE session = ?1", [old_row.key])?;
        db.execute("DELETE FROM sessions WHERE key = ?1", [old_row.key])?;
    }
    let epoch = next_epoch(db)?;
    let change = if new.summary.is_some() { newest_change(db)? + 1 } else { 0 };
    let due_at = new.summary.and_then(|summary| summary.due_at);
    db.prepare_cached(
        "INSERT INTO sessions (name, namespace, epoch, uid, head, lease_holder, parent, summary, updated_at, due_at,
         wake_at, change) VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)",
    )?
    .execute(params![
        new.session.as_str(),
        name_namespace(new.session.as_str()),
        epoch.0,
        new.head.0,
        new.holder,
        new.parent.map(|parent| parent.0),
        new.summary.map(|summary| &summary.sealed),
        new.summary.map(|summary| summary.updated_at),
        due_at,
        change
    ])?;
    Ok(SqliteSessionRow {
        key: db.last_insert_rowid(),
        epoch,
        head: new.head,
        holder: new.holder.map(str::to_owned),
        uid: SessionUid(epoch.0),
        parent: new.parent,
        takeovers: 0,
        inbox: InboxSize::default(),
        is_being_deleted: false,
        due_at,
    })
}

/// Returns an epoch that no lease ever had.
pub(super) fn next_epoch(db: &Connection) -> Result<LeaseEpoch, rusqlite::Error> {
    let next = db.prepare_cached("SELECT epoch + 1 FROM store")?.query_row([], |row| row.get(0))?;
    db.prepare_cached("UPDATE store SET epoch = ?1")?.execute([next])?;
    Ok(LeaseEpoch(next))
}

/// Returns the newest epoch that a lease had.
pub(super) fn newest_epoch(db: &Connection) -> Result<LeaseEpoch, rusqlite::Error> {
    db.prepare_cached("SELECT epoch FROM store")?.query_row([], |row| row.get(0)).map(LeaseEpoch)
}

/// Returns the number of the last change of the session list.
pub(super) fn newest_change(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.prepare_cached(&format!("SELECT {NEWEST_CHANGE}"))?.query_row([], |row| row.get(0))
}

/// Finds the number of the last change at the ends of two indexes. A deleted session had a smaller number than its
/// deletion, so no number is used twice.
pub(super) const NEWEST_CHANGE: &str = "max(
    coalesce((SELECT max(change) FROM sessions WHERE updated_at IS NOT NULL), 0),
    coalesce((SELECT max(change) FROM deletions), 0))";
