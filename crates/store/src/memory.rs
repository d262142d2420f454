//! A store in memory, for tests and for the simulator. It is also the simplest implementation of what every store does.
//!
//! Everything happens inside the call, in order and without tasks or threads, so a run is reproducible. A
//! [`InMemoryStoreDisk`] outlives the [`InMemoryStore`]s opened on it; dropping a store simulates the death of its process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId, UnixMillis};

use crate::{
    Error, InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit,
    JournalReader, JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy,
    NewInboxSubmission, PendingWorkPage, PendingWorkQuery, SessionCatalog, SessionForkSpec, SessionListChangeCursor,
    SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, Snapshot, StoreClock, StoreMaintenance,
    validate_session_id,
};

mod disk_state;
mod shared_tables;

use disk_state::{InMemorySession, InMemoryStoreDiskState};

/// The data that survives the stores opened on it. Clones share it.
#[derive(Debug, Clone)]
pub struct InMemoryStoreDisk(Arc<Mutex<InMemoryStoreDiskState>>);

/// How the next append fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedAppendFault {
    /// It fails and writes nothing.
    BeforeCommit,
    /// It writes the commit, but returns an error.
    AfterCommit,
    DiskFull,
}

/// One process's view of a [`InMemoryStoreDisk`].
#[derive(Debug)]
pub struct InMemoryStore {
    disk: InMemoryStoreDisk,
    node: u64,
}

impl Default for InMemoryStoreDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemoryStoreDisk {
    /// Creates an empty disk. Leases last as long as their process.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(InMemoryStoreDiskState::new(StoreClock::starting_at(UnixMillis(0))))))
    }

    /// Creates an empty disk on which a lease expires `lease_ms` after it was acquired or renewed.
    #[must_use]
    pub fn with_expiring_leases(lease_ms: u64) -> Self {
        let disk = Self::new();
        disk.lock().lease_ms = Some(lease_ms);
        disk
    }

    /// Returns the clock by which leases expire and outcomes are forgotten. It starts at zero.
    #[must_use]
    pub fn clock(&self) -> StoreClock {
        self.lock().clock.clone()
    }

    /// Makes the next append fail, of any store on this disk. Several faults apply to consecutive appends.
    pub fn inject_fault(&self, fault: InjectedAppendFault) {
        self.lock().faults.push_back(fault);
    }

    /// Returns the number of bodies on the disk.
    #[must_use]
    pub fn body_count(&self) -> usize {
        self.lock().bodies.len()
    }

    /// Returns whether `text` is part of any body, record, snapshot, summary, inbox entry or outcome.
    #[must_use]
    pub fn contains_text(&self, text: &str) -> bool {
        let disk = self.lock();
        let has = |bytes: &[u8]| text.is_empty() || bytes.windows(text.len()).any(|window| window == text.as_bytes());
        disk.bodies.values().any(|body| has(body.as_bytes()))
            || disk.sessions.values().any(|session| {
                session.records.iter().any(|record| has(&record.bytes))
                    || session.snapshot.as_ref().is_some_and(|snapshot| has(&snapshot.bytes))
                    || session.summary.as_ref().is_some_and(|summary| has(summary.title.as_bytes()))
                    || session.inbox.iter().any(|entry| has(&entry.bytes))
                    || session.outcomes.values().any(|outcome| has(&outcome.outcome))
            })
    }

    fn lock(&self) -> MutexGuard<'_, InMemoryStoreDiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InMemoryStore {
    /// Opens a store on `disk`, as a new process.
    #[must_use]
    pub fn open(disk: &InMemoryStoreDisk) -> Self {
        let mut disk_state = disk.lock();
        disk_state.last_node += 1;
        let node = disk_state.last_node;
        disk_state.live_nodes.insert(node);
        drop(disk_state);
        Self { disk: disk.clone(), node }
    }

    /// Opens a store on a new disk.
    #[must_use]
    pub fn with_own_disk() -> Self {
        Self::open(&InMemoryStoreDisk::new())
    }

    /// Ends the process although handles to it remain: its leases are free, and every later call fails.
    pub fn kill(&self) {
        self.disk.lock().live_nodes.remove(&self.node);
    }

    fn lock(&self) -> Result<MutexGuard<'_, InMemoryStoreDiskState>, Error> {
        let disk = self.disk.lock();
        if disk.live_nodes.contains(&self.node) { Ok(disk) } else { Err(Error::Closed) }
    }
}

impl Drop for InMemoryStore {
    fn drop(&mut self) {
        self.kill();
    }
}

#[async_trait]
impl JournalReader for InMemoryStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        let disk = self.lock()?;
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(disk.session(session)?.records.iter().skip(skip).take(limit).cloned().collect())
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let disk = self.lock()?;
        Ok(sessions.iter().map(|session| disk.sessions.get(session).map(InMemorySession::head)).collect())
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let disk = self.lock()?;
        let readable = &disk.session(session)?.body_first_used;
        ids.iter()
            .map(|id| {
                let text = readable.contains_key(id).then(|| disk.bodies.get(id)).flatten();
                text.cloned().ok_or_else(|| Error::NoSuchBody { session: session.clone(), body: *id })
            })
            .collect()
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        Ok(self.lock()?.session(session)?.snapshot.clone())
    }
}

#[async_trait]
impl JournalWriter for InMemoryStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        validate_session_id(session)?;
        self.lock()?.create_session(session, self.node)
    }

    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        commit.validate()?;
        let mut disk = self.lock()?;
        let what = format!("appending to session `{}`", commit.session);
        match disk.faults.pop_front() {
            None => disk.append_commit(commit, self.node),
            Some(InjectedAppendFault::DiskFull) => {
                Err(Error::DiskFull { what: format!("session `{}`", commit.session) })
            }
            Some(InjectedAppendFault::BeforeCommit) => {
                Err(Error::Io { what, detail: "a fault before the commit".into() })
            }
            Some(InjectedAppendFault::AfterCommit) => {
                disk.append_commit(commit, self.node)?;
                Err(Error::Io { what, detail: "a fault after the commit".into() })
            }
        }
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let mut disk = self.lock()?;
        let stored = disk.session_mut(session)?;
        if snapshot.seq <= stored.head() && stored.snapshot.as_ref().is_none_or(|old| old.seq <= snapshot.seq) {
            stored.snapshot = Some(snapshot);
        }
        Ok(())
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error> {
        validate_session_id(&fork.to)?;
        self.lock()?.fork_session(fork, self.node)
    }

    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error> {
        self.lock()?.begin_delete(session, self.node)
    }

    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> Result<(), Error> {
        self.lock()?.delete_session(session, notice_to_parent, self.node)
    }
}

#[async_trait]
impl LeaseStore for InMemoryStore {
    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> Result<Lease, Error> {
        self.lock()?.acquire_lease(session, takeover, self.node)
    }

    fn lease_ms(&self) -> Option<u64> {
        self.disk.lock().lease_ms
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error> {
        Ok(self.lock()?.renew_leases(held))
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        self.lock()?.release_lease(session, epoch)
    }
}

#[async_trait]
impl InboxStore for InMemoryStore {
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> Result<SessionUid, Error> {
        self.lock()?.deliver(session, expected, submission, None)
    }

    async fn read_inbox(&self, session: &SessionId, limit: usize) -> Result<Vec<InboxEntry>, Error> {
        Ok(self.lock()?.session(session)?.inbox.iter().take(limit).cloned().collect())
    }

    async fn read_outcome(
        &self,
        session: &SessionId,
        submission: SubmissionId,
    ) -> Result<InboxSubmissionStatus, Error> {
        self.lock()?.submission_status(session, submission)
    }

    async fn held_sessions_with_entries(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        Ok(self.lock()?.held_sessions_with_entries(self.node, limit))
    }
}

#[async_trait]
impl SessionCatalog for InMemoryStore {
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        Ok(self.lock()?.list_sessions(query))
    }

    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        self.lock()?.parent_of(session)
    }

    async fn children_of(&self, parent: SessionUid, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        Ok(self.lock()?.children_of(parent, limit))
    }

    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> Result<PendingWorkPage, Error> {
        Ok(self.lock()?.sessions_with_pending_work(query))
    }

    async fn sessions_to_delete(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        Ok(self.lock()?.sessions_to_delete(limit))
    }

    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error> {
        Ok(self.lock()?.changes_after(after, limit))
    }
}

#[async_trait]
impl StoreMaintenance for InMemoryStore {
    async fn probe_write(&self) -> Result<(), Error> {
        let what = "writing".to_owned();
        match self.lock()?.faults.pop_front() {
            None => Ok(()),
            Some(InjectedAppendFault::DiskFull) => Err(Error::DiskFull { what: "the store".to_owned() }),
            Some(InjectedAppendFault::BeforeCommit | InjectedAppendFault::AfterCommit) => {
                Err(Error::Io { what, detail: "an injected fault".into() })
            }
        }
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        Ok(IntegrityReport { session_count: self.lock()?.sessions.len(), ..IntegrityReport::default() })
    }

    async fn close(&self) -> Result<(), Error> {
        self.kill();
        Ok(())
    }
}
