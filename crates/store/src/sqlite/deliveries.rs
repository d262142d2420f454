//! The parts of a commit that concern inboxes and other sessions: drained entries, spawned children, and outgoing
//! submissions.

use segue_core::ids::{Seq, SessionId, SessionUid, UnixMillis};

use super::body_index::SqliteStoreConnection;
use super::inbox::{
    SqliteDrainedInboxRow, SqliteEncodedInboxSubmission, SqliteEncodedSubmissionOutcome, deliver, drain_entries,
    find_drained_rows,
};
use super::process_lock::ProcessLivenessLock;
use super::session_row::{
    NewSqliteSessionRow, SqliteEncodedSessionSummary, SqliteSessionRow, ensure_name_is_free, insert_session,
};
use super::sqlite_error::SqliteTransactionError;
use super::write::SqliteEncodedJournalAndBodies;
use crate::{JournalCommit, OutgoingInboxSubmission, SpawnedSession};

/// Deliveries, encoded in the caller's thread.
pub(super) struct EncodedInboxAndChildWrites {
    drained: Vec<SqliteEncodedSubmissionOutcome>,
    spawned: Vec<SqliteEncodedChildSession>,
    outgoing: Vec<SqliteEncodedOutgoingSubmission>,
}

struct SqliteEncodedChildSession {
    session: SessionId,
    head: Seq,
    journal: SqliteEncodedJournalAndBodies,
    summary: SqliteEncodedSessionSummary,
    entries: Vec<SqliteEncodedInboxSubmission>,
}

struct SqliteEncodedOutgoingSubmission {
    to: SessionId,
    expected: Option<SessionUid>,
    submission: SqliteEncodedInboxSubmission,
    bounce: Option<SqliteEncodedInboxSubmission>,
}

/// Deliveries that the store accepts, and what the check found.
pub(super) struct CheckedInboxAndChildWrites<'a> {
    deliveries: &'a EncodedInboxAndChildWrites,
    drained_rows: Vec<SqliteDrainedInboxRow>,
}

impl EncodedInboxAndChildWrites {
    /// Returns none if the commit has no deliveries.
    pub(super) fn from_commit(commit: &JournalCommit) -> Option<Self> {
        if commit.drained.is_empty() && commit.spawned.is_empty() && commit.outgoing.is_empty() {
            return None;
        }
        let encode_outgoing = |outgoing: &OutgoingInboxSubmission| SqliteEncodedOutgoingSubmission {
            to: outgoing.to.clone(),
            expected: outgoing.expected,
            submission: SqliteEncodedInboxSubmission::new(&outgoing.to, &outgoing.submission),
            bounce: outgoing
                .bounce
                .as_ref()
                .map(|bounce| SqliteEncodedInboxSubmission::new_exempt_from_limit(&commit.session, bounce)),
        };
        Some(Self {
            drained: commit
                .drained
                .iter()
                .map(|entry| SqliteEncodedSubmissionOutcome::new(&commit.session, entry))
                .collect(),
            spawned: commit.spawned.iter().map(SqliteEncodedChildSession::new).collect(),
            outgoing: commit.outgoing.iter().map(encode_outgoing).collect(),
        })
    }

    pub(super) fn byte_len(&self) -> usize {
        let entries = |entries: &[SqliteEncodedInboxSubmission]| {
            entries.iter().map(SqliteEncodedInboxSubmission::byte_len).sum::<usize>()
        };
        let spawned = self.spawned.iter().map(|spawned| spawned.journal.byte_len() + entries(&spawned.entries));
        let outgoing = self.outgoing.iter().map(|outgoing| outgoing.submission.byte_len());
        self.drained.iter().map(SqliteEncodedSubmissionOutcome::byte_len).chain(spawned).chain(outgoing).sum()
    }

    /// Rejects the commit if an entry is gone, a name is taken, or the session may not spawn any more. Writes nothing.
    pub(super) fn check(
        &self,
        db: &SqliteStoreConnection,
        session: &SessionId,
        session_row: &SqliteSessionRow,
        node: &ProcessLivenessLock,
    ) -> Result<CheckedInboxAndChildWrites<'_>, SqliteTransactionError> {
        let drained_rows = find_drained_rows(db, session, session_row, &self.drained)?;
        if !self.spawned.is_empty() {
            session_row.ensure_not_being_deleted(session)?;
        }
        for spawned in &self.spawned {
            ensure_name_is_free(db, &spawned.session, node)?;
        }
        Ok(CheckedInboxAndChildWrites { deliveries: self, drained_rows })
    }
}

impl SqliteEncodedChildSession {
    fn new(spawned: &SpawnedSession) -> Self {
        let session = &spawned.session;
        Self {
            session: session.clone(),
            head: Seq(spawned.records.len() as u64),
            journal: SqliteEncodedJournalAndBodies::new(session, &spawned.records, &spawned.bodies),
            summary: SqliteEncodedSessionSummary::new(session, &spawned.summary),
            entries: spawned
                .entries
                .iter()
                .map(|entry| SqliteEncodedInboxSubmission::new_exempt_from_limit(session, entry))
                .collect(),
        }
    }
}

impl CheckedInboxAndChildWrites<'_> {
    /// Writes the deliveries of `session`. A submission that cannot be delivered is bounced.
    pub(super) fn write(
        &self,
        db: &SqliteStoreConnection,
        session: &SessionId,
        session_row: &SqliteSessionRow,
        now: UnixMillis,
    ) -> Result<(), rusqlite::Error> {
        let Self { deliveries, drained_rows } = self;
        let sender = session_row.name_and_uid(session);
        if !drained_rows.is_empty() {
            drain_entries(db, session_row, &deliveries.drained, drained_rows, now)?;
        }
        for spawned in &deliveries.spawned {
            let SqliteEncodedChildSession { session, head, journal, summary, entries } = spawned;
            let parent = Some(sender.uid);
            let new = NewSqliteSessionRow { session, head: *head, holder: None, parent, summary: Some(summary) };
            let child = insert_session(db, &new)?;
            journal.insert(db, child.key)?;
            for entry in entries {
                // Exempt from the limit, so it cannot be refused.
                let _ = deliver(db, session, Some(child.uid), entry, Some(&sender), now)?;
            }
        }
        for outgoing in &deliveries.outgoing {
            let SqliteEncodedOutgoingSubmission { to, expected, submission, bounce } = outgoing;
            let delivered = deliver(db, to, *expected, submission, Some(&sender), now)?;
            if let (Err(_), Some(bounce)) = (delivered, bounce) {
                // An exempt submission of a session is never refused, and a session that is being deleted needs none.
                let _ = deliver(db, session, Some(sender.uid), bounce, Some(&sender), now)?;
            }
        }
        Ok(())
    }
}
