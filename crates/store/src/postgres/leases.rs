//! Transactions that create sessions and decide who may write to them.

use deadpool_postgres::{Client, Transaction};
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid};
use tokio_postgres::IsolationLevel;

use super::PostgresStoreInner;
use super::nodes::{lease_expiry, send_heartbeat_if_due};
use super::postgres_error::PostgresError;
use super::schema::{from_bigint, query, query_opt, to_bigint};
use super::session_row::{PostgresSessionRow, RowLock, load_session_row, namespace_of, reclaim_unused_name};
use crate::{Error, InboxEmptiness, Lease, LeaseTakeoverPolicy};

/// Begins a transaction at the isolation level that the statements were written for.
pub(super) async fn begin(client: &mut Client) -> Result<Transaction<'_>, PostgresError> {
    Ok(client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?)
}

/// Inserts an empty session. Its first epoch is its uid.
const INSERT_SESSION: &str = "INSERT INTO segue_sessions (uid, epoch, name, namespace, head, holder, changed_at)
     SELECT u.id, u.id, $1, $2, 0, $3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
     FROM (SELECT nextval('segue_epochs') AS id OFFSET 0) u ON CONFLICT (name) DO NOTHING RETURNING uid";

pub(super) async fn create_session(db: &PostgresStoreInner, session: &SessionId) -> Result<Lease, PostgresError> {
    send_heartbeat_if_due(db).await?;
    let mut client = db.client().await?;
    let (name, namespace) = (session.as_str(), namespace_of(session));
    let mut inserted = query_opt(&client, INSERT_SESSION, &[&name, &namespace, &db.node]).await?;
    if inserted.is_none() {
        let transaction = begin(&mut client).await?;
        reclaim_unused_name(db, &transaction, session).await?;
        inserted = query_opt(&transaction, INSERT_SESSION, &[&name, &namespace, &db.node]).await?;
        transaction.commit().await?;
    }
    let Some(row) = inserted else { return Err(Error::SessionExists { session: session.clone() }.into()) };
    let uid = from_bigint(row.get(0));
    Ok(Lease {
        epoch: LeaseEpoch(uid),
        head: Seq(0),
        uid: SessionUid(uid),
        parent: None,
        expires_at: Some(lease_expiry(db)),
        inbox: InboxEmptiness::Empty,
    })
}

pub(super) async fn acquire_lease(
    db: &PostgresStoreInner,
    session: &SessionId,
    takeover: LeaseTakeoverPolicy,
) -> Result<Lease, PostgresError> {
    send_heartbeat_if_due(db).await?;
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let session_row = load_session_row(&transaction, session, RowLock::Update).await?;
    session_row.ensure_not_being_deleted(session)?;
    session_row.ensure_not_held(db, &transaction, session, takeover).await?;
    let lease = set_holder(db, &transaction, &session_row).await?;
    transaction.commit().await?;
    if session_row.holder.is_some_and(|holder| holder != db.node) {
        db.counters.count_takeover();
    }
    Ok(lease)
}

/// Makes this node the holder of a locked session, with a new epoch. A lease that was not released counts as a takeover.
pub(super) async fn set_holder(
    db: &PostgresStoreInner,
    transaction: &Transaction<'_>,
    session_row: &PostgresSessionRow,
) -> Result<Lease, PostgresError> {
    let rows = query(
        transaction,
        "UPDATE segue_sessions SET epoch = nextval('segue_epochs'), holder = $2,
         takeovers = takeovers + CASE WHEN holder IS NULL THEN 0 ELSE 1 END WHERE uid = $1
         RETURNING epoch, EXISTS (SELECT 1 FROM segue_inbox WHERE session = uid)",
        &[&session_row.uid, &db.node],
    )
    .await?;
    let (epoch, has_entries) = rows.first().map_or((0, false), |row| (row.get(0), row.get(1)));
    Ok(Lease {
        epoch: LeaseEpoch(from_bigint(epoch)),
        head: session_row.head,
        uid: session_row.session_uid(),
        parent: session_row.parent_uid(),
        expires_at: Some(lease_expiry(db)),
        inbox: InboxEmptiness::from_entry_count(usize::from(has_entries)),
    })
}

pub(super) async fn release_lease(
    db: &PostgresStoreInner,
    session: &SessionId,
    epoch: LeaseEpoch,
) -> Result<InboxEmptiness, PostgresError> {
    let client = db.client().await?;
    let released = query_opt(
        &client,
        "UPDATE segue_sessions SET epoch = nextval('segue_epochs'), holder = NULL, takeovers = 0
         WHERE name = $1 AND epoch = $2 RETURNING EXISTS (SELECT 1 FROM segue_inbox WHERE session = uid)",
        &[&session.as_str(), &to_bigint(epoch.0)],
    )
    .await?;
    match released {
        Some(row) => Ok(InboxEmptiness::from_entry_count(usize::from(row.get::<_, bool>(0)))),
        None => {
            let current = load_session_row(&client, session, RowLock::None).await?.epoch;
            Err(Error::Fenced { session: session.clone(), epoch, current }.into())
        }
    }
}
