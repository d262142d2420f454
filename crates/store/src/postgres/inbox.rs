//! Inboxes: submissions, entries, and outcomes. The row of a receiver is never locked: a submission must not wait for a
//! commit of the receiver.

use deadpool_postgres::GenericClient;
use segue_core::ids::{SessionId, SessionUid, SubmissionId, UnixMillis};

use super::PostgresStoreInner;
use super::leases::begin;
use super::postgres_error::{PostgresError, corrupted};
use super::schema::{execute, from_bigint, now_ms, query, query_opt, to_bigint};
use super::session_row::{RowLock, load_session_row};
use crate::inbox::{InboxSize, InboxSubmitterKind, submission_digest};
use crate::limits::OUTCOME_RETENTION_MS;
use crate::{Error, InboxEntry, InboxSubmissionStatus, NewInboxSubmission, SessionNameAndUid, encoding};

/// Puts a client's submission into an inbox.
pub(super) async fn submit(
    db: &PostgresStoreInner,
    session: &SessionId,
    expected: Option<SessionUid>,
    submission: &NewInboxSubmission,
) -> Result<SessionUid, PostgresError> {
    let mut client = db.client().await?;
    let transaction = begin(&mut client).await?;
    let uid = deliver(db, &transaction, session, expected, submission, None).await??;
    transaction.commit().await?;
    Ok(uid)
}

/// Puts a submission into an inbox, unless it is known already. The inner error tells why it cannot be delivered; then
/// nothing was written.
pub(super) async fn deliver(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
    session: &SessionId,
    expected: Option<SessionUid>,
    submission: &NewInboxSubmission,
    sender: Option<&SessionNameAndUid>,
) -> Result<Result<SessionUid, Error>, PostgresError> {
    let (id, digest) = (submission.id.0.cast_signed(), submission_digest(&submission.bytes));
    let receiver = query_opt(
        client,
        &format!(
            "SELECT s.uid, s.is_being_deleted, s.takeovers, coalesce(
                 (SELECT digest FROM segue_inbox WHERE session = s.uid AND submission = $2),
                 (SELECT digest FROM segue_outcomes WHERE session = s.uid AND submission = $2 AND at >= {} - $4)),
             (SELECT count(*) FROM segue_inbox WHERE session = s.uid),
             (SELECT coalesce(sum(bytes), 0)::bigint FROM segue_inbox WHERE session = s.uid)
             FROM segue_sessions s WHERE s.name = $1 AND s.head > 0",
            now_ms("$3")
        ),
        &[&session.as_str(), &id, &db.clock_offset_ms(), &to_bigint(OUTCOME_RETENTION_MS)],
    )
    .await?;
    let Some(receiver) = receiver else { return Ok(Err(Error::NoSuchSession { session: session.clone() })) };
    let uid: i64 = receiver.get(0);
    let current = SessionUid(from_bigint(uid));
    if receiver.get(1) {
        return Ok(Err(Error::BeingDeleted { session: session.clone() }));
    }
    if let Some(expected) = expected.filter(|expected| *expected != current) {
        return Ok(Err(Error::SessionReplaced { session: session.clone(), expected, current }));
    }
    match receiver.get::<_, Option<Vec<u8>>>(3) {
        Some(known) if known == digest => return Ok(Ok(current)),
        Some(_) => {
            return Ok(Err(Error::SubmissionIdReused { session: session.clone(), submission: submission.id }));
        }
        None => {}
    }
    let size = InboxSize { entries: to_size(receiver.get(4)), bytes: to_size(receiver.get(5)) };
    let submitter = if sender.is_some() { InboxSubmitterKind::Session } else { InboxSubmitterKind::Client };
    if let Err(full) = size.ensure_room_for(session, submission, submitter) {
        return Ok(Err(full));
    }
    insert_entries(client, &[NewPostgresInboxRow { receiver: session, uid, submission, sender }]).await?;
    // The same submission may have been handled between the two statements; then it must not be handled again.
    execute(
        client,
        &format!(
            "DELETE FROM segue_inbox WHERE session = $1 AND submission = $2 AND EXISTS
             (SELECT 1 FROM segue_outcomes o WHERE o.session = $1 AND o.submission = $2 AND o.at >= {} - $4)",
            now_ms("$3")
        ),
        &[&uid, &id, &db.clock_offset_ms(), &to_bigint(OUTCOME_RETENTION_MS)],
    )
    .await?;
    if submitter == InboxSubmitterKind::Client && receiver.get::<_, i32>(2) > 0 {
        execute(client, "UPDATE segue_sessions SET takeovers = 0 WHERE uid = $1", &[&uid]).await?;
    }
    Ok(Ok(current))
}

/// An entry that was accepted.
pub(super) struct NewPostgresInboxRow<'a> {
    pub(super) receiver: &'a SessionId,
    pub(super) uid: i64,
    pub(super) submission: &'a NewInboxSubmission,
    pub(super) sender: Option<&'a SessionNameAndUid>,
}

/// Inserts entries, in this order.
pub(super) async fn insert_entries(
    client: &impl GenericClient,
    entries: &[NewPostgresInboxRow<'_>],
) -> Result<(), PostgresError> {
    let uids: Vec<i64> = entries.iter().map(|entry| entry.uid).collect();
    let ids: Vec<i64> = entries.iter().map(|entry| entry.submission.id.0.cast_signed()).collect();
    let times: Vec<i64> = entries.iter().map(|entry| entry.submission.at.0.cast_signed()).collect();
    let senders: Vec<Option<&str>> =
        entries.iter().map(|entry| entry.sender.map(|sender| sender.session.as_str())).collect();
    let sender_uids: Vec<Option<i64>> =
        entries.iter().map(|entry| entry.sender.map(|sender| to_bigint(sender.uid.0))).collect();
    let sizes: Vec<i64> = entries.iter().map(|entry| to_bigint(entry.submission.bytes.len() as u64)).collect();
    let digests: Vec<Vec<u8>> =
        entries.iter().map(|entry| submission_digest(&entry.submission.bytes).to_vec()).collect();
    let seal = |entry: &NewPostgresInboxRow<'_>| {
        encoding::seal_inbox_entry(entry.receiver, entry.submission.id, &entry.submission.bytes)
    };
    let sealed: Vec<Vec<u8>> = entries.iter().map(seal).collect();
    execute(
        client,
        "INSERT INTO segue_inbox (session, submission, at, sender, sender_uid, bytes, digest, data)
         SELECT session, submission, at, sender, sender_uid, bytes, digest, data FROM
         unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[],
             $8::bytea[]) WITH ORDINALITY AS e (session, submission, at, sender, sender_uid, bytes, digest, data, n)
         ORDER BY n ON CONFLICT (session, submission) DO NOTHING",
        &[&uids, &ids, &times, &senders, &sender_uids, &sizes, &digests, &sealed],
    )
    .await?;
    Ok(())
}

pub(super) async fn read_inbox(
    db: &PostgresStoreInner,
    session: &SessionId,
    limit: usize,
) -> Result<Vec<InboxEntry>, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    let rows = query(
        &client,
        "SELECT submission, at, sender, sender_uid, data FROM segue_inbox WHERE session = $1 ORDER BY id LIMIT $2",
        &[&session_row.uid, &to_bigint(limit as u64)],
    )
    .await?;
    let read = |row: &tokio_postgres::Row| {
        let id = SubmissionId(row.get::<_, i64>(0).cast_unsigned());
        let sender = row.get::<_, Option<String>>(2).zip(row.get::<_, Option<i64>>(3));
        let bytes = encoding::unseal_inbox_entry(session, id, row.get(4))
            .map_err(|detail| corrupted(session, format!("submission {id}: {detail}")))?;
        Ok(InboxEntry {
            id,
            at: UnixMillis(row.get::<_, i64>(1).cast_unsigned()),
            sender: sender
                .map(|(name, uid)| SessionNameAndUid { session: name.into(), uid: SessionUid(from_bigint(uid)) }),
            bytes,
        })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn read_outcome(
    db: &PostgresStoreInner,
    session: &SessionId,
    submission: SubmissionId,
) -> Result<InboxSubmissionStatus, PostgresError> {
    let client = db.client().await?;
    let session_row = load_session_row(&client, session, RowLock::None).await?;
    let row = query_opt(
        &client,
        &format!(
            "SELECT EXISTS (SELECT 1 FROM segue_inbox WHERE session = $1 AND submission = $2),
             (SELECT data FROM segue_outcomes WHERE session = $1 AND submission = $2 AND at >= {} - $4)",
            now_ms("$3")
        ),
        &[&session_row.uid, &submission.0.cast_signed(), &db.clock_offset_ms(), &to_bigint(OUTCOME_RETENTION_MS)],
    )
    .await?;
    let Some(row) = row else { return Ok(InboxSubmissionStatus::Unknown) };
    if row.get(0) {
        return Ok(InboxSubmissionStatus::Waiting);
    }
    let Some(sealed) = row.get::<_, Option<&[u8]>>(1) else { return Ok(InboxSubmissionStatus::Unknown) };
    let outcome = encoding::unseal_outcome(session, submission, sealed)
        .map_err(|detail| corrupted(session, format!("the outcome of submission {submission}: {detail}")))?;
    Ok(InboxSubmissionStatus::Handled { outcome })
}

/// Returns the sessions that this node holds and that have entries.
pub(super) async fn held_sessions_with_entries(
    db: &PostgresStoreInner,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, PostgresError> {
    let rows = query(
        &db.client().await?,
        "SELECT s.name, s.uid FROM segue_sessions s WHERE s.uid IN (SELECT session FROM segue_inbox) AND s.holder = $1
         ORDER BY s.uid LIMIT $2",
        &[&db.node, &to_bigint(limit as u64)],
    )
    .await?;
    Ok(rows.iter().map(read_name_and_uid).collect())
}

/// Reads a name and a uid.
pub(super) fn read_name_and_uid(row: &tokio_postgres::Row) -> SessionNameAndUid {
    SessionNameAndUid { session: row.get::<_, String>(0).into(), uid: SessionUid(from_bigint(row.get(1))) }
}

fn to_size(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}
