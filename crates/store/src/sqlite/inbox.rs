//! Inboxes: submissions, the entries that commits drain, and their outcomes.

use rusqlite::{Connection, OptionalExtension, params};
use segue_core::ids::{SessionId, SessionUid, SubmissionId, UnixMillis};

use super::session_row::{SqliteSessionRow, find_session_row, load_session_row};
use super::sqlite_error::SqliteTransactionError;
use crate::inbox::{InboxSubmitterKind, submission_digest};
use crate::limits::{OUTCOME_RETENTION_MS, OUTCOMES_PRUNED_PER_COMMIT_MAX};
use crate::{
    Error, HandledInboxEntry, InboxEntry, InboxSubmissionStatus, NewInboxSubmission, SessionNameAndUid, encoding,
};

/// A submission, encoded in the caller's thread.
pub(super) struct SqliteEncodedInboxSubmission {
    submission: NewInboxSubmission,
    digest: [u8; 16],
    sealed: Vec<u8>,
}

impl SqliteEncodedInboxSubmission {
    pub(super) fn new(receiver: &SessionId, submission: &NewInboxSubmission) -> Self {
        let sealed = encoding::seal_inbox_entry(receiver, submission.id, &submission.bytes);
        Self { submission: submission.clone(), digest: submission_digest(&submission.bytes), sealed }
    }

    /// Encodes a submission that is never refused because of the limit.
    pub(super) fn new_exempt_from_limit(receiver: &SessionId, submission: &NewInboxSubmission) -> Self {
        Self::new(receiver, &NewInboxSubmission { exempt_from_limit: true, ..submission.clone() })
    }

    pub(super) fn byte_len(&self) -> usize {
        self.sealed.len()
    }
}

/// The outcome of an entry, encoded in the caller's thread.
pub(super) struct SqliteEncodedSubmissionOutcome {
    submission: SubmissionId,
    sealed: Vec<u8>,
}

impl SqliteEncodedSubmissionOutcome {
    pub(super) fn new(session: &SessionId, drained: &HandledInboxEntry) -> Self {
        let sealed = encoding::seal_outcome(session, drained.id, &drained.outcome);
        Self { submission: drained.id, sealed }
    }

    pub(super) fn byte_len(&self) -> usize {
        self.sealed.len()
    }
}

/// A row of `inbox` that a commit drains.
pub(super) struct SqliteDrainedInboxRow {
    id: i64,
    bytes: i64,
    digest: Vec<u8>,
}

/// Puts a client's submission into an inbox. Refuses before anything is written.
pub(super) fn submit(
    db: &Connection,
    session: &SessionId,
    expected: Option<SessionUid>,
    submission: &SqliteEncodedInboxSubmission,
    now: UnixMillis,
) -> Result<SessionUid, SqliteTransactionError> {
    let uid = deliver(db, session, expected, submission, None, now)?.map_err(SqliteTransactionError::Rejected)?;
    prune_outcomes(db, now)?;
    Ok(uid)
}

/// Puts a submission into an inbox, unless it is known already. The inner error tells why it cannot be delivered; then
/// nothing was written.
pub(super) fn deliver(
    db: &Connection,
    session: &SessionId,
    expected: Option<SessionUid>,
    encoded: &SqliteEncodedInboxSubmission,
    sender: Option<&SessionNameAndUid>,
    now: UnixMillis,
) -> Result<Result<SessionUid, Error>, rusqlite::Error> {
    let SqliteEncodedInboxSubmission { submission, digest, sealed } = encoded;
    let receiver = find_session_row(db, session)?.filter(|receiver| receiver.head.0 > 0);
    let Some(receiver) = receiver else { return Ok(Err(Error::NoSuchSession { session: session.clone() })) };
    let current = receiver.uid;
    if receiver.is_being_deleted {
        return Ok(Err(Error::BeingDeleted { session: session.clone() }));
    }
    if let Some(expected) = expected.filter(|expected| *expected != current) {
        return Ok(Err(Error::SessionReplaced { session: session.clone(), expected, current }));
    }
    match find_submission_digest(db, current, submission.id, now)? {
        Some(known) if known == digest => return Ok(Ok(current)),
        Some(_) => {
            return Ok(Err(Error::SubmissionIdReused { session: session.clone(), submission: submission.id }));
        }
        None => {}
    }
    let submitter = if sender.is_some() { InboxSubmitterKind::Session } else { InboxSubmitterKind::Client };
    if let Err(full) = receiver.inbox.ensure_room_for(session, submission, submitter) {
        return Ok(Err(full));
    }
    db.prepare_cached(
        "INSERT INTO inbox (session, submission, at, sender, sender_uid, bytes, digest, data)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        current.0,
        submission.id.0.cast_signed(),
        submission.at.0.cast_signed(),
        sender.map(|sender| sender.session.as_str()),
        sender.map(|sender| sender.uid.0),
        submission.bytes.len(),
        digest,
        sealed
    ])?;
    let takeovers = if submitter == InboxSubmitterKind::Client { 0 } else { receiver.takeovers };
    db.prepare_cached(
        "UPDATE sessions SET inbox_entries = inbox_entries + 1, inbox_bytes = inbox_bytes + ?2, wake_at = 0,
         takeovers = ?3 WHERE key = ?1",
    )?
    .execute(params![receiver.key, submission.bytes.len(), takeovers])?;
    Ok(Ok(current))
}

/// Finds the entries that a commit drains. Rejects the commit if one of them is gone.
pub(super) fn find_drained_rows(
    db: &Connection,
    session: &SessionId,
    session_row: &SqliteSessionRow,
    drained: &[SqliteEncodedSubmissionOutcome],
) -> Result<Vec<SqliteDrainedInboxRow>, SqliteTransactionError> {
    let mut query = db.prepare_cached("SELECT id, bytes, digest FROM inbox WHERE session = ?1 AND submission = ?2")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(SqliteDrainedInboxRow { id: row.get(0)?, bytes: row.get(1)?, digest: row.get(2)? })
    };
    let mut rows = Vec::with_capacity(drained.len());
    for SqliteEncodedSubmissionOutcome { submission, .. } in drained {
        let found = query.query_row(params![session_row.uid.0, submission.0.cast_signed()], read).optional()?;
        let gone = || Error::EntryGone { session: session.clone(), submission: *submission };
        rows.push(found.ok_or_else(|| SqliteTransactionError::Rejected(gone()))?);
    }
    Ok(rows)
}

/// Deletes the entries that a commit drains, and keeps their outcomes.
pub(super) fn drain_entries(
    db: &Connection,
    session_row: &SqliteSessionRow,
    drained: &[SqliteEncodedSubmissionOutcome],
    rows: &[SqliteDrainedInboxRow],
    now: UnixMillis,
) -> Result<(), rusqlite::Error> {
    for (outcome, row) in drained.iter().zip(rows) {
        db.prepare_cached("DELETE FROM inbox WHERE id = ?1")?.execute([row.id])?;
        db.prepare_cached(
            "INSERT OR REPLACE INTO outcomes (session, submission, at, digest, data) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            session_row.uid.0,
            outcome.submission.0.cast_signed(),
            now.0,
            row.digest,
            outcome.sealed
        ])?;
    }
    let bytes: i64 = rows.iter().map(|row| row.bytes).sum();
    db.prepare_cached(
        "UPDATE sessions SET inbox_entries = inbox_entries - ?2, inbox_bytes = inbox_bytes - ?3,
         wake_at = CASE WHEN is_being_deleted THEN NULL WHEN inbox_entries > ?2 THEN 0 ELSE due_at END WHERE key = ?1",
    )?
    .execute(params![session_row.key, rows.len(), bytes])?;
    prune_outcomes(db, now)
}

/// Deletes some of the outcomes that are too old to be read.
fn prune_outcomes(db: &Connection, now: UnixMillis) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "DELETE FROM outcomes WHERE (session, submission) IN
         (SELECT session, submission FROM outcomes WHERE at < ?1 ORDER BY at LIMIT ?2)",
    )?
    .execute(params![oldest_kept_outcome_at(now), OUTCOMES_PRUNED_PER_COMMIT_MAX])?;
    Ok(())
}

fn oldest_kept_outcome_at(now: UnixMillis) -> u64 {
    now.0.saturating_sub(OUTCOME_RETENTION_MS)
}

/// Returns the digest of a submission that waits or was handled.
fn find_submission_digest(
    db: &Connection,
    session: SessionUid,
    submission: SubmissionId,
    now: UnixMillis,
) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT digest FROM inbox WHERE session = ?1 AND submission = ?2 UNION ALL
         SELECT digest FROM outcomes WHERE session = ?1 AND submission = ?2 AND at >= ?3",
    )?
    .query_row(params![session.0, submission.0.cast_signed(), oldest_kept_outcome_at(now)], |row| row.get(0))
    .optional()
}

pub(super) fn read_inbox(
    db: &Connection,
    session: &SessionId,
    limit: usize,
) -> Result<Vec<InboxEntry>, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    let mut query = db.prepare_cached(
        "SELECT submission, at, sender, sender_uid, data FROM inbox WHERE session = ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = query.query(params![session_row.uid.0, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let id = SubmissionId(row.get::<_, i64>(0)?.cast_unsigned());
        let sender = row.get::<_, Option<String>>(2)?.zip(row.get::<_, Option<u64>>(3)?);
        let sealed = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
        let bytes = encoding::unseal_inbox_entry(session, id, sealed)
            .map_err(|detail| corrupted(session, format!("submission {id}: {detail}")))?;
        entries.push(InboxEntry {
            id,
            at: UnixMillis(row.get::<_, i64>(1)?.cast_unsigned()),
            sender: sender.map(|(name, uid)| SessionNameAndUid { session: name.into(), uid: SessionUid(uid) }),
            bytes,
        });
    }
    Ok(entries)
}

pub(super) fn read_outcome(
    db: &Connection,
    session: &SessionId,
    submission: SubmissionId,
    now: UnixMillis,
) -> Result<InboxSubmissionStatus, SqliteTransactionError> {
    let session_row = load_session_row(db, session)?;
    let key = [session_row.uid.0.cast_signed(), submission.0.cast_signed()];
    if db.prepare_cached("SELECT 1 FROM inbox WHERE session = ?1 AND submission = ?2")?.exists(key)? {
        return Ok(InboxSubmissionStatus::Waiting);
    }
    let sealed: Option<Vec<u8>> = db
        .prepare_cached("SELECT data FROM outcomes WHERE session = ?1 AND submission = ?2 AND at >= ?3")?
        .query_row(params![key[0], key[1], oldest_kept_outcome_at(now)], |row| row.get(0))
        .optional()?;
    let Some(sealed) = sealed else { return Ok(InboxSubmissionStatus::Unknown) };
    let outcome = encoding::unseal_outcome(session, submission, &sealed)
        .map_err(|detail| corrupted(session, format!("the outcome of submission {submission}: {detail}")))?;
    Ok(InboxSubmissionStatus::Handled { outcome })
}

/// Returns the sessions that `holder` holds and that have entries.
pub(super) fn held_sessions_with_entries(
    db: &Connection,
    holder: &str,
    limit: usize,
) -> Result<Vec<SessionNameAndUid>, SqliteTransactionError> {
    let mut query = db.prepare_cached(
        "SELECT name, uid FROM sessions INDEXED BY sessions_with_entries
         WHERE lease_holder = ?1 AND inbox_entries > 0 ORDER BY uid LIMIT ?2",
    )?;
    let rows = query.query_map(params![holder, i64::try_from(limit).unwrap_or(i64::MAX)], read_name_and_uid)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Reads a name and a uid.
pub(super) fn read_name_and_uid(row: &rusqlite::Row<'_>) -> Result<SessionNameAndUid, rusqlite::Error> {
    Ok(SessionNameAndUid { session: row.get::<_, String>(0)?.into(), uid: SessionUid(row.get(1)?) })
}

fn corrupted(session: &SessionId, detail: String) -> SqliteTransactionError {
    SqliteTransactionError::Failed(Error::SessionCorrupted { session: session.clone(), detail })
}
