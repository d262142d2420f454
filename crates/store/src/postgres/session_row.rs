//! The rows of sessions: lookups, checks, and new rows.

use deadpool_postgres::GenericClient;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid};

use super::PostgresStoreInner;
use super::nodes::find_other_holder;
use super::postgres_error::PostgresError;
use super::schema::{NOW_MICROS, execute, from_bigint, query_opt, to_bigint};
use crate::catalog::name_namespace;
use crate::{Error, LeaseTakeoverPolicy, SessionNameAndUid, SessionSummary, encoding};

/// A session's row.
pub(super) struct PostgresSessionRow {
    pub(super) uid: i64,
    pub(super) epoch: LeaseEpoch,
    pub(super) head: Seq,
    pub(super) holder: Option<i64>,
    pub(super) parent: Option<i64>,
    pub(super) is_being_deleted: bool,
}

/// How a row is locked until the end of the transaction.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowLock {
    None,
    /// Keeps the row from being deleted.
    Share,
    /// Keeps others from changing the row.
    Update,
    /// For deleting the row.
    Delete,
}

impl PostgresSessionRow {
    pub(super) fn session_uid(&self) -> SessionUid {
        SessionUid(from_bigint(self.uid))
    }

    pub(super) fn name_and_uid(&self, session: &SessionId) -> SessionNameAndUid {
        SessionNameAndUid { session: session.clone(), uid: self.session_uid() }
    }

    pub(super) fn parent_uid(&self) -> Option<SessionUid> {
        self.parent.map(|parent| SessionUid(from_bigint(parent)))
    }

    pub(super) fn ensure_not_being_deleted(&self, session: &SessionId) -> Result<(), Error> {
        if self.is_being_deleted { Err(Error::BeingDeleted { session: session.clone() }) } else { Ok(()) }
    }

    /// Refuses if another node holds the session and `takeover` does not allow taking it.
    pub(super) async fn ensure_not_held(
        &self,
        db: &PostgresStoreInner,
        client: &impl GenericClient,
        session: &SessionId,
        takeover: LeaseTakeoverPolicy,
    ) -> Result<(), PostgresError> {
        let Some(holder) = find_other_holder(db, client, self.holder).await? else { return Ok(()) };
        let is_free = match takeover {
            LeaseTakeoverPolicy::IfHolderEnded => false,
            LeaseTakeoverPolicy::IfHolderDead => holder.is_expired,
            LeaseTakeoverPolicy::Force => true,
        };
        if is_free {
            tracing::info!(%session, holder = holder.name, ?takeover, "taking over the lease of another node");
            return Ok(());
        }
        Err(Error::HeldByOtherProcess { session: session.clone(), by: holder.name }.into())
    }
}

/// Returns the row of a session that must exist.
pub(super) async fn load_session_row(
    client: &impl GenericClient,
    session: &SessionId,
    lock: RowLock,
) -> Result<PostgresSessionRow, PostgresError> {
    let found = find_session_row(client, session, lock).await?;
    found.ok_or_else(|| Error::NoSuchSession { session: session.clone() }.into())
}

pub(super) async fn find_session_row(
    client: &impl GenericClient,
    session: &SessionId,
    lock: RowLock,
) -> Result<Option<PostgresSessionRow>, PostgresError> {
    let lock = match lock {
        RowLock::None => "",
        RowLock::Share => "FOR KEY SHARE",
        RowLock::Update => "FOR NO KEY UPDATE",
        RowLock::Delete => "FOR UPDATE",
    };
    let sql =
        format!("SELECT uid, epoch, head, holder, parent, is_being_deleted FROM segue_sessions WHERE name = $1 {lock}");
    let row = query_opt(client, &sql, &[&session.as_str()]).await?;
    Ok(row.map(|row| PostgresSessionRow {
        uid: row.get(0),
        epoch: LeaseEpoch(from_bigint(row.get(1))),
        head: Seq(from_bigint(row.get(2))),
        holder: row.get(3),
        parent: row.get(4),
        is_being_deleted: row.get(5),
    }))
}

/// Returns the name of the session with this uid.
pub(super) async fn find_session_name(
    client: &impl GenericClient,
    uid: i64,
) -> Result<Option<SessionId>, PostgresError> {
    let row = query_opt(client, "SELECT name FROM segue_sessions WHERE uid = $1", &[&uid]).await?;
    Ok(row.map(|row| row.get::<_, String>(0).into()))
}

/// Refuses if a session has this name. What remains of a session without records that no live node holds, or whose
/// creation was abandoned, is deleted.
pub(super) async fn reclaim_unused_name(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    session: &SessionId,
) -> Result<(), PostgresError> {
    let Some(old_row) = find_session_row(client, session, RowLock::Delete).await? else { return Ok(()) };
    let exists = || PostgresError::Refused(Error::SessionExists { session: session.clone() });
    if old_row.head > Seq(0) {
        return Err(exists());
    }
    // A node that inserted the row a lease ago and has not written the first record will not do so any more.
    let sql = format!("SELECT changed_at < {NOW_MICROS} - $2::bigint * 1000 FROM segue_sessions WHERE uid = $1");
    let row = query_opt(client, &sql, &[&old_row.uid, &to_bigint(db.lease_ms)]).await?;
    let is_abandoned = row.is_some_and(|row| row.get(0));
    match old_row.ensure_not_held(db, client, session, LeaseTakeoverPolicy::IfHolderDead).await {
        Err(PostgresError::Refused(_)) if !is_abandoned => return Err(exists()),
        Err(PostgresError::Refused(_)) => {}
        held => held?,
    }
    execute(client, "DELETE FROM segue_snapshots WHERE session = $1", &[&old_row.uid]).await?;
    execute(client, "DELETE FROM segue_sessions WHERE uid = $1", &[&old_row.uid]).await?;
    Ok(())
}

/// A session's summary in the form of its columns.
#[derive(Debug)]
pub(super) struct PostgresEncodedSessionSummary {
    pub(super) sealed: Vec<u8>,
    pub(super) updated_at: i64,
    pub(super) due_at: Option<i64>,
}

impl PostgresEncodedSessionSummary {
    pub(super) fn new(session: &SessionId, summary: &SessionSummary) -> Self {
        Self {
            sealed: encoding::seal_summary(session, summary),
            updated_at: to_bigint(summary.updated_at.0),
            due_at: summary.pending_work.due_at().map(to_bigint),
        }
    }
}

/// Returns the part of a name by which sessions of one owner are found.
pub(super) fn namespace_of(session: &SessionId) -> Option<&str> {
    name_namespace(session.as_str())
}
