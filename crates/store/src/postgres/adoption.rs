//! Takes sessions over from another store, with their uids, so that sessions that refer to each other still do.

use deadpool_postgres::GenericClient;
use segue_core::ids::{LeaseEpoch, SessionId, SessionUid};

use super::inbox::{NewPostgresInboxRow, insert_entries};
use super::leases::{begin, set_holder};
use super::nodes::send_heartbeat_if_due;
use super::postgres_error::PostgresError;
use super::schema::{NOW_MICROS, execute, query_opt, to_bigint};
use super::session_row::{RowLock, find_session_row, load_session_row, namespace_of};
use super::{PostgresStore, PostgresStoreInner, run_operation};
use crate::{Error, InboxEntry, Lease, LeaseTakeoverPolicy, NewInboxSubmission, validate_session_id};

impl PostgresStore {
    /// Creates a session of another store under its own uid, without records, and acquires its lease. If it was created
    /// in this way before, only its lease is acquired; the lease tells how many records there are. Nobody sees the
    /// session until a commit gives it a summary.
    ///
    /// # Errors
    /// Another session has the name or the uid, or a live node holds the session.
    pub async fn adopt_session(
        &self,
        session: &SessionId,
        uid: SessionUid,
        parent: Option<SessionUid>,
    ) -> Result<Lease, Error> {
        validate_session_id(session)?;
        let what = format!("adopting session `{session}`");
        run_operation!(self, what, (session, uid, parent), |db| adopt_session(db, &session, uid, parent)).await
    }

    /// Gives no session an epoch up to this one from now on. Who remembers the epochs of adopted sessions, such as the
    /// tools of a workspace, then sees that they grow.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn skip_epochs_until(&self, epoch: LeaseEpoch) -> Result<(), Error> {
        run_operation!(self, "skipping epochs".to_owned(), (epoch), |db| skip_epochs_until(db, epoch)).await
    }

    /// Puts the inbox entries of another store into the inbox of a session. Those that are there already stay.
    ///
    /// # Errors
    /// There is no such session, or the entries cannot be written.
    pub async fn adopt_inbox_entries(&self, session: &SessionId, entries: &[InboxEntry]) -> Result<(), Error> {
        let what = format!("adopting the inbox of session `{session}`");
        let entries = entries.to_vec();
        run_operation!(self, what, (session, entries), |db| adopt_inbox_entries(db, &session, &entries)).await
    }
}

async fn skip_epochs_until(db: &PostgresStoreInner, epoch: LeaseEpoch) -> Result<(), PostgresError> {
    raise_epochs(&db.client().await?, to_bigint(epoch.0)).await
}

/// Raises the sequence of epochs, from which uids are taken, too.
async fn raise_epochs(client: &impl GenericClient, number: i64) -> Result<(), PostgresError> {
    let sql = "SELECT setval('segue_epochs', $1) FROM segue_epochs WHERE last_value < $1";
    query_opt(client, sql, &[&number]).await?;
    Ok(())
}

async fn adopt_session(
    db: &PostgresStoreInner,
    session: &SessionId,
    uid: SessionUid,
    parent: Option<SessionUid>,
) -> Result<Lease, PostgresError> {
    send_heartbeat_if_due(db).await?;
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let exists = || PostgresError::Refused(Error::SessionExists { session: session.clone() });
    let number = to_bigint(uid.0);
    if find_session_row(&transaction, session, RowLock::Update).await?.is_none() {
        // New sessions must not get the uids of adopted ones.
        raise_epochs(&transaction, number).await?;
        let sql = format!(
            "INSERT INTO segue_sessions (uid, epoch, name, namespace, head, parent, changed_at)
             VALUES ($1, nextval('segue_epochs'), $2, $3, 0, $4, {NOW_MICROS}) ON CONFLICT (uid) DO NOTHING"
        );
        let parent = parent.map(|parent| to_bigint(parent.0));
        let inserted =
            execute(&transaction, &sql, &[&number, &session.as_str(), &namespace_of(session), &parent]).await?;
        if inserted == 0 {
            return Err(exists());
        }
    }
    let session_row = load_session_row(&transaction, session, RowLock::Update).await?;
    if session_row.uid != number {
        return Err(exists());
    }
    session_row.ensure_not_being_deleted(session)?;
    session_row.ensure_not_held(db, &transaction, session, LeaseTakeoverPolicy::IfHolderDead).await?;
    let lease = set_holder(db, &transaction, &session_row).await?;
    transaction.commit().await?;
    Ok(lease)
}

async fn adopt_inbox_entries(
    db: &PostgresStoreInner,
    session: &SessionId,
    entries: &[InboxEntry],
) -> Result<(), PostgresError> {
    let client = db.client().await?;
    let uid = load_session_row(&client, session, RowLock::None).await?.uid;
    let to_submission = |entry: &InboxEntry| NewInboxSubmission {
        id: entry.id,
        at: entry.at,
        bytes: entry.bytes.clone(),
        exempt_from_limit: true,
    };
    let submissions: Vec<NewInboxSubmission> = entries.iter().map(to_submission).collect();
    let new_entry = |(entry, submission)| {
        let entry: &InboxEntry = entry;
        NewPostgresInboxRow { receiver: session, uid, submission, sender: entry.sender.as_ref() }
    };
    let new_entries: Vec<NewPostgresInboxRow<'_>> = entries.iter().zip(&submissions).map(new_entry).collect();
    insert_entries(&client, &new_entries).await
}
