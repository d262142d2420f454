//! A store with delays and faults from the plan, which can simulate a crash at a given commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId};
use segue_store::memory::InMemoryStore;
use segue_store::{
    Error, InboxEmptiness, InboxEntry, InboxStore, InboxSubmissionStatus, IntegrityReport, JournalCommit,
    JournalReader, JournalRecord, JournalWriter, Lease, LeaseRenewalResult, LeaseStore, LeaseTakeoverPolicy,
    NewInboxSubmission, PendingWorkPage, PendingWorkQuery, SessionCatalog, SessionForkSpec, SessionListChangeCursor,
    SessionListChangePage, SessionListPage, SessionNameAndUid, SessionQuery, Snapshot, StoreMaintenance,
};
use tokio::sync::{Notify, watch};

use crate::seeded_random::SeededRandom;
use crate::world::SimWorld;

/// How an append fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimAppendFault {
    /// It fails and writes nothing.
    Before,
    /// It writes the commit, but returns an error.
    After,
    /// The disk is full.
    Full,
    /// The process crashes before the write.
    DeathBefore,
    /// The process crashes after the write, before it is acknowledged.
    DeathAfter,
}

/// The faults of a store.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreFaults {
    /// By the number of the append, across all processes.
    pub appends: BTreeMap<u64, SimAppendFault>,
    /// Percentage of other operations that fail.
    pub other_failures_percent: u64,
    /// Longest delay of an operation.
    pub ms_max: u64,
}

impl StoreFaults {
    /// Returns whether operations are only delayed and never fail.
    pub(crate) fn has_only_delays(&self) -> bool {
        self.appends.is_empty() && self.other_failures_percent == 0
    }
}

/// The store of one process.
#[derive(Debug)]
pub(crate) struct SimStore {
    inner: Arc<InMemoryStore>,
    world: Arc<SimWorld>,
    faults: StoreFaults,
    random: Mutex<SeededRandom>,
    faults_stopped: AtomicBool,
    writes: Arc<AtomicU64>,
    crashed: Arc<Notify>,
    /// Whether operations wait, as if the process was stopped or the network cut.
    paused: watch::Sender<bool>,
}

impl SimStore {
    pub(crate) fn open(world: &Arc<SimWorld>, faults: StoreFaults, random: SeededRandom) -> Self {
        Self {
            inner: Arc::new(InMemoryStore::open(&world.disk)),
            world: world.clone(),
            faults,
            random: Mutex::new(random),
            faults_stopped: AtomicBool::new(false),
            writes: Arc::default(),
            crashed: Arc::default(),
            paused: watch::Sender::new(false),
        }
    }

    /// Disables all faults.
    pub(crate) fn stop_faults(&self) {
        self.faults_stopped.store(true, Ordering::Relaxed);
        self.paused.send_replace(false);
    }

    /// Makes all operations wait for `ms`. They are carried out afterwards, also writes that began before.
    pub(crate) async fn pause(&self, ms: u64) {
        if !self.are_faults_stopped() {
            self.paused.send_replace(true);
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        self.paused.send_replace(false);
    }

    async fn wait_while_paused(&self) {
        wait_while_set(self.paused.subscribe()).await;
    }

    /// Waits until the process crashes at a commit.
    pub(crate) async fn wait_for_death(&self) {
        self.crashed.notified().await;
    }

    pub(crate) fn kill(&self) {
        self.inner.kill();
    }

    fn are_faults_stopped(&self) -> bool {
        self.faults_stopped.load(Ordering::Relaxed)
    }

    fn with_random<T>(&self, draw: impl FnOnce(&mut SeededRandom) -> T) -> T {
        draw(&mut self.random.lock().expect("not poisoned"))
    }

    async fn delay(&self) {
        self.wait_while_paused().await;
        let ms =
            if self.are_faults_stopped() { 0 } else { self.with_random(|random| random.below(self.faults.ms_max + 1)) };
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    async fn delay_or_fail(&self, what: &str) -> Result<(), Error> {
        self.delay().await;
        if !self.are_faults_stopped()
            && self.with_random(|random| random.chance_percent(self.faults.other_failures_percent))
        {
            return Err(io_error(what));
        }
        Ok(())
    }
}

/// Returns the result of a future that is ready at once.
pub(crate) fn expect_ready<T>(future: impl Future<Output = Result<T, Error>>) -> Option<T> {
    future.now_or_never()?.ok()
}

fn io_error(what: &str) -> Error {
    Error::Io { what: what.to_owned(), detail: "injected fault".to_owned() }
}

async fn wait_while_set(mut flag: watch::Receiver<bool>) {
    // A closed channel is no reason to wait.
    let _ = flag.wait_for(|is_set| !is_set).await;
}

async fn wait_forever() -> ! {
    std::future::pending::<()>().await;
    unreachable!("a pending future never ends")
}

#[async_trait]
impl JournalReader for SimStore {
    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        self.delay_or_fail("reading").await?;
        self.inner.read_records(session, after, limit).await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        self.delay_or_fail("reading heads").await?;
        self.inner.read_heads(sessions).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.delay_or_fail("reading texts").await?;
        self.inner.read_bodies(session, ids).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        self.delay_or_fail("reading a snapshot").await?;
        self.inner.load_snapshot(session).await
    }
}

#[async_trait]
impl JournalWriter for SimStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        self.delay_or_fail("creating").await?;
        self.inner.create_session(session).await
    }

    /// A write that has started continues even if its caller is gone.
    async fn append_commit(&self, commit: JournalCommit) -> Result<Seq, Error> {
        let number = {
            let mut observations = self.world.observations();
            observations.appends += 1;
            observations.appends
        };
        let fault = self.faults.appends.get(&number).copied().filter(|_| !self.are_faults_stopped());
        if fault == Some(SimAppendFault::DeathBefore) {
            self.crashed.notify_one();
            wait_forever().await;
        }
        let (before_ms, after_ms) = match self.are_faults_stopped() {
            true => (0, 0),
            false => {
                self.with_random(|random| (random.below(self.faults.ms_max + 1), random.below(self.faults.ms_max + 1)))
            }
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        let (inner, crashed, paused) = (self.inner.clone(), self.crashed.clone(), self.paused.subscribe());
        let write = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(before_ms)).await;
            wait_while_set(paused).await;
            let result = match fault {
                Some(SimAppendFault::Before) => Err(io_error("appending")),
                Some(SimAppendFault::Full) => Err(Error::DiskFull { what: "a commit".to_owned() }),
                Some(SimAppendFault::After) => inner.append_commit(commit).await.and(Err(io_error("appending"))),
                Some(SimAppendFault::DeathAfter) => {
                    let _ = inner.append_commit(commit).await;
                    crashed.notify_one();
                    wait_forever().await
                }
                Some(SimAppendFault::DeathBefore) | None => inner.append_commit(commit).await,
            };
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            result
        });
        write.await.expect("a write does not panic")
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        self.delay_or_fail("saving a snapshot").await?;
        self.inner.save_snapshot(session, snapshot).await
    }

    async fn fork_session(&self, fork: SessionForkSpec) -> Result<SessionUid, Error> {
        self.delay_or_fail("forking").await?;
        self.inner.fork_session(fork).await
    }

    async fn begin_delete(&self, session: &SessionId) -> Result<Lease, Error> {
        self.delay_or_fail("deleting").await?;
        self.inner.begin_delete(session).await
    }

    async fn delete_session(
        &self,
        session: &SessionId,
        notice_to_parent: Option<NewInboxSubmission>,
    ) -> Result<(), Error> {
        self.delay_or_fail("deleting").await?;
        self.inner.delete_session(session, notice_to_parent).await
    }
}

#[async_trait]
impl LeaseStore for SimStore {
    async fn acquire_lease(&self, session: &SessionId, takeover: LeaseTakeoverPolicy) -> Result<Lease, Error> {
        self.delay_or_fail("acquiring a lease").await?;
        self.inner.acquire_lease(session, takeover).await
    }

    fn lease_ms(&self) -> Option<u64> {
        self.inner.lease_ms()
    }

    async fn renew_leases(&self, held: &[(SessionId, LeaseEpoch)]) -> Result<LeaseRenewalResult, Error> {
        self.delay_or_fail("renewing").await?;
        self.inner.renew_leases(held).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<InboxEmptiness, Error> {
        self.delay_or_fail("releasing").await?;
        self.inner.release_lease(session, epoch).await
    }
}

#[async_trait]
impl InboxStore for SimStore {
    async fn submit(
        &self,
        session: &SessionId,
        expected: Option<SessionUid>,
        submission: NewInboxSubmission,
    ) -> Result<SessionUid, Error> {
        self.delay_or_fail("submitting").await?;
        self.inner.submit(session, expected, submission).await
    }

    async fn read_inbox(&self, session: &SessionId, limit: usize) -> Result<Vec<InboxEntry>, Error> {
        self.delay_or_fail("reading an inbox").await?;
        self.inner.read_inbox(session, limit).await
    }

    async fn read_outcome(
        &self,
        session: &SessionId,
        submission: SubmissionId,
    ) -> Result<InboxSubmissionStatus, Error> {
        self.delay_or_fail("reading an inbox").await?;
        self.inner.read_outcome(session, submission).await
    }

    async fn held_sessions_with_entries(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        self.wait_while_paused().await;
        self.inner.held_sessions_with_entries(limit).await
    }
}

#[async_trait]
impl SessionCatalog for SimStore {
    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        self.inner.list_sessions(query).await
    }

    async fn parent_of(&self, session: &SessionId) -> Result<Option<SessionNameAndUid>, Error> {
        self.inner.parent_of(session).await
    }

    async fn children_of(&self, parent: SessionUid, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        self.inner.children_of(parent, limit).await
    }

    async fn sessions_with_pending_work(&self, query: &PendingWorkQuery) -> Result<PendingWorkPage, Error> {
        self.wait_while_paused().await;
        self.inner.sessions_with_pending_work(query).await
    }

    async fn sessions_to_delete(&self, limit: usize) -> Result<Vec<SessionNameAndUid>, Error> {
        self.inner.sessions_to_delete(limit).await
    }

    async fn changes_after(
        &self,
        after: Option<SessionListChangeCursor>,
        limit: usize,
    ) -> Result<SessionListChangePage, Error> {
        self.inner.changes_after(after, limit).await
    }
}

#[async_trait]
impl StoreMaintenance for SimStore {
    async fn probe_write(&self) -> Result<(), Error> {
        self.delay_or_fail("probing").await?;
        self.inner.probe_write().await
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        self.inner.check_integrity().await
    }

    async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }
}
