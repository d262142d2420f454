//! A store that takes its time, fails as it is told, and dies at a given commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use segue_core::body::BodyId;
use segue_core::ids::{Epoch, Seq, SessionId};
use segue_store::memory::MemoryStore;
use segue_store::{Claim, Commit, Error, Fork, Owes, Page, Query, Record, Report, Snapshot, Store, Takeover};
use tokio::sync::Notify;

use crate::dice::Dice;
use crate::world::World;

/// How an append goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
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
pub struct Trouble {
    /// By the number of the append, over all lives.
    pub appends: BTreeMap<u64, Mishap>,
    /// How many of a hundred other operations fail.
    pub others_percent: u64,
    /// Longest time an operation takes.
    pub ms_max: u64,
}

impl Trouble {
    /// Whether nothing fails, however long it takes.
    pub fn is_slow_at_most(&self) -> bool {
        self.appends.is_empty() && self.others_percent == 0
    }
}

/// One process' store.
#[derive(Debug)]
pub struct SimStore {
    inner: Arc<MemoryStore>,
    world: Arc<World>,
    trouble: Trouble,
    dice: Mutex<Dice>,
    calm: AtomicBool,
    writes: Arc<AtomicU64>,
    died: Arc<Notify>,
}

impl SimStore {
    pub fn open(world: &Arc<World>, trouble: Trouble, dice: Dice) -> Self {
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
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Returns when the process dies of a commit.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    pub fn kill(&self) {
        self.inner.kill();
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn dice<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
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
        if !self.is_calm() && self.dice(|dice| dice.percent(self.trouble.others_percent)) {
            return Err(io(what));
        }
        Ok(())
    }
}

/// What comes of something that does not have to wait.
pub fn now<T>(soon: impl Future<Output = Result<T, Error>>) -> Option<T> {
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
    async fn create(&self, session: &SessionId) -> Result<Claim, Error> {
        self.hesitate("creating").await?;
        self.inner.create(session).await
    }

    async fn claim(&self, session: &SessionId, takeover: Takeover) -> Result<Claim, Error> {
        self.hesitate("claiming").await?;
        self.inner.claim(session, takeover).await
    }

    async fn release(&self, session: &SessionId, epoch: Epoch) -> Result<(), Error> {
        self.hesitate("releasing").await?;
        self.inner.release(session, epoch).await
    }

    /// A write that was begun goes on, whether anybody waits for it or not.
    async fn append(&self, commit: Commit) -> Result<Seq, Error> {
        let number = {
            let mut notes = self.world.notes();
            notes.appends += 1;
            notes.appends
        };
        let mishap = self.trouble.appends.get(&number).copied().filter(|_| !self.is_calm());
        if mishap == Some(Mishap::DeathBefore) {
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
                Some(Mishap::Before) => Err(io("appending")),
                Some(Mishap::Full) => Err(Error::Full { what: "a commit".to_owned() }),
                Some(Mishap::After) => inner.append(commit).await.and(Err(io("appending"))),
                Some(Mishap::DeathAfter) => {
                    let _ = inner.append(commit).await;
                    died.notify_one();
                    for_ever().await
                }
                Some(Mishap::DeathBefore) | None => inner.append(commit).await,
            };
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            result
        });
        writing.await.expect("a write does not panic")
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        self.hesitate("reading").await?;
        self.inner.read(session, after, limit).await
    }

    async fn heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        self.hesitate("looking").await?;
        self.inner.heads(sessions).await
    }

    async fn bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        self.hesitate("reading texts").await?;
        self.inner.bodies(session, ids).await
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        self.hesitate("reading a snapshot").await?;
        self.inner.snapshot(session).await
    }

    async fn keep_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        self.hesitate("keeping a snapshot").await?;
        self.inner.keep_snapshot(session, snapshot).await
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        self.inner.list(query).await
    }

    async fn owing(&self) -> Result<Vec<(SessionId, Owes)>, Error> {
        self.inner.owing().await
    }

    async fn fork(&self, fork: Fork) -> Result<(), Error> {
        self.hesitate("forking").await?;
        self.inner.fork(fork).await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        self.hesitate("deleting").await?;
        self.inner.delete(session).await
    }

    async fn check(&self) -> Result<Report, Error> {
        self.inner.check().await
    }

    async fn close(&self) -> Result<(), Error> {
        self.inner.close().await
    }
}
