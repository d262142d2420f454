//! The traits of a store, one for each capability. [`Store`] is all of them.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId};

use crate::{
    Error, InboxEmptiness, InboxEntry, InboxSubmissionStatus, IntegrityReport, JournalCommit, JournalRecord, Lease,
    LeaseRenewalResult, LeaseTakeoverPolicy, NewInboxSubmission, PendingWorkPage, PendingWorkQuery, SessionForkSpec,
    SessionListChangeCursor, SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, Snapshot,
    StoreMetrics,
};

/// Reads journals. Needs no lease.
#[async_trait]
pub trait JournalReader: Send + Sync + Debug {
    /// Reads at most `limit` records after `after`, in order and without gaps.
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error>;

    /// Returns the last sequence number of each session, in the order of `sessions`; none for a session that does not
    /// exist. One query, however many sessions there are.
    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error>;

    /// Reads the texts of `ids`, in their order. Only bodies that the session stored or was forked with.
    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error>;

    /// Returns the newest snapshot, if there is an intact one.
    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error>;
}

/// Creates, extends, copies and deletes journals.
///
/// If [`append_commit`](Self::append_commit) fails with an error whose [outcome is unknown](Error::is_outcome_unknown), the
/// commit may or may not have been written: the caller acquires the lease again and reads.
#[async_trait]
pub trait JournalWriter: Send + Sync + Debug {
    /// Creates an empty session and acquires its lease. A session without records that no live process holds counts as
    /// not existing.
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error>;

    /// Writes everything that a commit contains, or nothing. Durable when it returns. Returns the new head.
    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error>;

    /// Saves a snapshot. One that is older than the saved one, or newer than the head, is ignored.
    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error>;

    /// Creates a session, without a holder, from the first records of another. Bodies are shared, not copied; each
    /// session can be deleted without affecting the other. The new session has no parent and an empty inbox.
    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error>;

    /// Marks a session for deletion and acquires its lease, so that the caller can close it and delete its children
    /// before it calls [`delete_session`](Self::delete_session). From now on the session is not listed, has no pending
    /// work, accepts no submissions, and cannot be forked, spawn children or be acquired by
    /// [`LeaseStore::acquire_lease`]. Calling it again continues a deletion that was interrupted. Refused while another
    /// live process holds the session.
    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error>;

    /// Deletes a session: its records, its snapshot, its inbox and outcomes, and the bodies that no other session uses.
    /// The data is erased from the disk, at the latest when the last reader of an older state has finished. If the
    /// session has a parent, `notice_to_parent` is put into the parent's inbox in the same transaction. Refused while
    /// another live process holds the session, and while the session has children ([`Error::HasChildren`]).
    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> Result<(), Error>;
}

/// Decides which process may write to a session.
#[async_trait]
pub trait LeaseStore: Send + Sync + Debug {
    /// Makes the caller the only writer of `session`: the epoch rises, and writers with older epochs are rejected. An
    /// earlier lease of the same process is no obstacle.
    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> Result<Lease, Error>;

    /// Returns how long a lease lasts after it was acquired or renewed; none if leases last as long as their process.
    fn lease_ms(&self) -> Option<u64>;

    /// Extends the leases of this process, and tells which of `held` are lost. After an error they may all be valid.
    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error>;

    /// Releases the lease of an idle session. Its epoch cannot be used afterwards. Returns whether there are entries
    /// that the session should handle first.
    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error>;

    /// Returns for each session where to reach the live process, other than this one, that holds it. None if there is no
    /// such process, or it told nobody.
    async fn find_holder_addresses(&self, sessions: &[SessionId]) -> Result<Vec<Option<String>>, Error> {
        Ok(vec![None; sessions.len()])
    }
}

/// The durable inboxes of sessions. Any process may submit; the session's writer drains its inbox with its commits.
#[async_trait]
pub trait InboxStore: Send + Sync + Debug {
    /// Puts a submission into a session's inbox. Durable when it returns. Needs no lease. A submission whose id is
    /// already in the inbox, or was handled in the last 24 hours, changes nothing. Refused if `expected` is given and the
    /// session has another uid. Returns the session's uid.
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> Result<SessionUid, Error>;

    /// Reads at most `limit` entries, oldest first.
    async fn read_inbox(&self, session: &SessionId, limit: usize) -> Result<Vec<InboxEntry>, Error>;

    /// Returns what became of a submission.
    async fn read_outcome(&self, session: &SessionId, submission: SubmissionId)
    -> Result<InboxSubmissionStatus, Error>;

    /// Returns at most `limit` of the sessions that this process holds and that have entries. Cheap enough to be called
    /// twice a second.
    async fn held_sessions_with_entries(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error>;
}

/// Finds sessions. No query costs more because there are many other sessions.
#[async_trait]
pub trait SessionCatalog: Send + Sync + Debug {
    /// Lists sessions that have a summary, newest first. A page may be short although more sessions follow: see
    /// [`SessionListPage::next_cursor`].
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error>;

    /// Returns the parent of a session that was spawned.
    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error>;

    /// Returns at most `limit` children of a session, those being deleted too, in the order of their creation.
    async fn children_of(&self, parent: SessionUid, limit: usize) -> Result<Vec<SessionNameAndUid>, Error>;

    /// Returns sessions with pending work, the most urgent first. A session with inbox entries has pending work by
    /// itself. Quarantined sessions are left out; sessions that another live process holds may be.
    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> Result<PendingWorkPage, Error>;

    /// Returns at most `limit` sessions whose deletion has begun.
    async fn sessions_to_delete(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error>;

    /// Returns at most `limit` changes of the session list after `after`, in the order of their commits. Without a cursor
    /// it returns no changes, only the newest cursor.
    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error>;
}

/// Care of the store as a whole.
#[async_trait]
pub trait StoreMaintenance: Send + Sync + Debug {
    /// Checks that the store can be written, with a write that changes nothing. Durable when it returns.
    async fn probe_write(&self) -> Result<(), Error>;

    /// Reads everything and reports what is corrupted.
    async fn check_integrity(&self) -> Result<IntegrityReport, Error>;

    /// Returns what this process has done with the store, and how much waits in it.
    async fn read_metrics(&self) -> Result<StoreMetrics, Error> {
        Ok(StoreMetrics::default())
    }

    /// Finishes queued writes and releases all leases of this process. Later calls return [`Error::Closed`].
    async fn close(&self) -> Result<(), Error>;
}

/// A complete storage backend. Every backend passes the conformance suite.
pub trait Store: JournalReader + JournalWriter + LeaseStore + InboxStore + SessionCatalog + StoreMaintenance {}

impl<T> Store for T where T: JournalReader + JournalWriter + LeaseStore + InboxStore + SessionCatalog + StoreMaintenance {}
