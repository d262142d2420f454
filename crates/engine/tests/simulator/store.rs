//! A store that takes its time, fails as it is told, and dies at a given commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};
use segue_store::memory::MemoryStore;
use segue_store::{
    Commit, Error, ForkSpec, IntegrityReport, JournalRecord, Lease, PendingWork, SessionListPage, SessionQuery,
    Snapshot, Store, TakeoverPolicy,
};
use tokio::sync::Notify;

use crate::seeded_random::SeededRandom;
use crate::world::SimWorld;

/// How an append goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimAppendFault {
    /// It fails and has no effect.
    Before,
    /// It takes effect and fails nevertheless.
    After,
    /// There is no room.
    Full,
    /// The process dies before it.
    DeathBefore,
    /// The process dies after it, before anybody is told.
    DeathAfter,
}

/// What goes wrong with a store.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults {
    /// By the number of the append, over all lives.
    pub appends: BTreeMap<u64, SimAppendFault>,
    /// How many of a hundred other operations fail.
    pub other_failures_percent: u64,
    /// Longest time an operation takes.
    pub ms_max: u64,
}

impl StoreFaults {
    /// Whether nothing fails, however long it takes.
    pub fn has_only_delays(&self) -> bool {
        self.appends.is_empty() && self.other_failures_percent == 0
    }
}

/// One process' store.
#[derive(Debug)]
pub struct SimStore {
    inner: Arc<MemoryStore>,
    world: Arc<SimWorld>,
    trouble: StoreFaults,
    dice: Mutex<SeededRandom>,
    calm: AtomicBool,
    writes: Arc<AtomicU64>,
    died: Arc<Notify>,
}

impl SimStore {
    pub fn open(world: &Arc<SimWorld>, trouble: StoreFaults, dice: SeededRandom) -> Self {
        Self {
            inner: Arc::new(MemoryStore::open(&world.disk)),
            world: world.clone(),
            trouble,
            dice: Mutex::new(dice),
            calm: AtomicBool::new(false),
            writes: Arc::default(),
            died: Arc::default(),
        }
    }

    /// From now on nothing goes wrong.
    pub fn stop_faults(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Returns when the process dies of a commit.
    pub async fn wait_for_death(&self) {
        self.died.notified().await;
    }

    pub fn kill(&self) {
        self.inner.kill();
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn dice<T>(&self, roll: impl FnOnce(&mut SeededRandom) -> T) -> T {
        roll(&mut self.dice.lock().expect("nobody panics here"))
    }

    async fn pause(&self) {
        let ms = if self.is_calm() { 0 } else { self.dice(|dice| dice.below(self.trouble.ms_max + 1)) };
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    async fn hesitate(&self, what: &str) -> Result<(), Error> {
        self.pause().await;
        if !self.is_calm() && self.dice(|dice| dice.chance_percent(self.trouble.other_failures_percent)) {
            return Err(io(what));
        }
        Ok(())
    }
}

/// What comes of something that does not have to wait.
pub fn expect_ready<T>(soon: impl Future<Output = Result<T, Error>>) -> Option<T> {
    soon.now_or_never()?.ok()
}

fn io(what: &str) -> Error {
    Error::Io { what: what.to_owned(), detail: "the disk hiccups".to_owned() }
}

async fn for_ever() -> ! {
    std::future::pending::<()>().await;
    unreachable!("nothing comes after for ever")
}

#[async_trait]
impl Store for SimStore {
    async fn create_session(&self, session: &SessionId) -> Result<Lease, Error> {
        self.hesitate("creating").await?;
        self.inner.create_session(session).await
    }

    async fn acquire_lease(&self, session: &SessionId, takeover: TakeoverPolicy) -> Result<Lease, Error> {
        self.hesitate("claiming").await?;
        self.inner.acquire_lease(session, takeover).await
    }

    async fn release_lease(&self, session: &SessionId, epoch: LeaseEpoch) -> Result<(), Error> {
        self.hesitate("releasing").await?;
        self.inner.release_lease(session, epoch).await
    }

    /// A write that was begun goes on, whether anybody waits for it or not.
    async fn append_commit(&self, commit: Commit) -> Result<Seq, Error> {
        let number = {
            let mut notes = self.world.observations();
            notes.appends += 1;
            notes.appends
        };
        let mishap = self.trouble.appends.get(&number).copied().filter(|_| !self.is_calm());
        if mishap == Some(SimAppendFault::DeathBefore) {
            self.died.notify_one();
            for_ever().await;
        }
        let (before_ms, after_ms) = match self.is_calm() {
            true => (0, 0),
            false => self.dice(|dice| (dice.below(self.trouble.ms_max + 1), dice.below(self.trouble.ms_max + 1))),
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        let (inner, died) = (self.inner.clone(), self.died.clone());
        let writing = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(before_ms)).await;
            let result = match mishap {
                Some(SimAppendFault::Before) => Err(io("appending")),
                Some(SimAppendFault::Full) => Err(Error::DiskFull { what: "a commit".to_owned() }),
                Some(SimAppendFault::After) => inner.append_commit(commit).await.and(Err(io("appending"))),
                Some(SimAppendFault::DeathAfter) => {
                    let _ = inner.append_commit(commit).await;
                    died.notify_one();
                    for_ever().await
                }
                Some(SimAppendFault::DeathBefore) | None => inner.append_commit(commit).await,
            };
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            result
        });
        writing.await.expect("a write does not panic")
    }

    async fn read_records(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        self.hesitate("reading").await?;
        self.inner.read_records(session, after, limit).await
    }

    async fn read_heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        self.hesitate("looking").await?;
        self.inner.read_heads(sessions).await
    }

    async fn read_bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.hesitate("reading texts").await?;
        self.inner.read_bodies(session, ids).await
    }

    async fn load_snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        self.hesitate("reading a snapshot").await?;
        self.inner.load_snapshot(session).await
    }

    async fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        self.hesitate("keeping a snapshot").await?;
        self.inner.save_snapshot(session, snapshot).await
    }

    async fn list_sessions(&self, query: &SessionQuery) -> Result<SessionListPage, Error> {
        self.inner.list_sessions(query).await
    }

    async fn sessions_with_pending_work(&self) -> Result<Vec<(SessionId, PendingWork)>, Error> {
        self.inner.sessions_with_pending_work().await
    }

    async fn fork_session(&self, fork: ForkSpec) -> Result<(), Error> {
        self.hesitate("forking").await?;
        self.inner.fork_session(fork).await
    }

    async fn delete_session(&self, session: &SessionId) -> Result<(), Error> {
        self.hesitate("deleting").await?;
        self.inner.delete_session(session).await
    }

    async fn check_integrity(&self) -> Result<IntegrityReport, Error> {
        self.inner.check_integrity().await
    }

    async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }
}
