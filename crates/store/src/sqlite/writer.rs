//! The one thread that writes: takes what is queued, puts it into one transaction, answers after the commit.
//!
//! Decides what shares a transaction and when the log is checkpointed. What a job does is the job's.

use crate::limits::{COMPANY_JOBS_MIN, GROUP_BYTES_MAX, GROUP_JOBS_MAX, WAL_BYTES_MAX, WHOLE_JOBS_MAX, YIELD_JOBS_MIN};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use segue_core::ids::SessionId;
use tokio::sync::oneshot;

use super::addresses::Db;
use super::fault::{Trouble, about_file};
use super::schema::{BUSY_MS, open_reader};
use crate::Error;

/// A background checkpoint is asked for after this much was written.
const CHECKPOINT_BYTES: usize = 2 << 20;
/// Past this the writer itself begins the log anew, in the same place: under steady load a checkpoint beside it never
/// catches up, and a log that grows costs more to make durable than one that is overwritten.
const WAL_BYTES_WANTED: u64 = 8 << 20;
/// How long the writer may wait for readers then.
const TRUNCATE_WAIT_MS: u64 = 250;
/// How long it may wait after a delete, where the bytes must be gone.
const ERASE_WAIT_MS: u64 = 1_000;

/// What a job leaves on disk once it is through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traces {
    /// The log may keep old bytes until it wraps.
    MayStay,
    /// Nothing of what it removed may be left in the log when it is answered.
    MustGo,
}

/// Something to do inside a transaction. May be run again after a rollback.
pub(super) trait Job: Send {
    /// Does it. A refusal has written nothing.
    fn run(&mut self, db: &Db) -> Result<(), Trouble>;
    /// Tells whoever waits: what it gave, or why not.
    fn answer(self: Box<Self>, trouble: Option<&Trouble>);
    fn bytes(&self) -> usize;
    fn traces(&self) -> Traces;
}

/// Where jobs wait for their transaction.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    jobs: mpsc::Sender<Box<dyn Job>>,
    length: Arc<AtomicUsize>,
}

impl Queue {
    /// Adds a job; how many wait with it.
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<usize, Error> {
        let before = self.length.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(job).map_err(|_| Error::Closed)?;
        Ok(before + 1)
    }
}

/// Where many wait, lets the writer run first if it lacks a core: a thread that has one may keep it for milliseconds, and
/// all of them wait for the writer.
pub(super) fn give_way(waiting: usize) {
    if waiting >= YIELD_JOBS_MIN {
        std::thread::yield_now();
    }
}

/// The writer's end of the queue.
struct Waiting {
    jobs: mpsc::Receiver<Box<dyn Job>>,
    length: Arc<AtomicUsize>,
    /// Taken out of the channel, and next.
    next: VecDeque<Box<dyn Job>>,
}

impl Waiting {
    /// The next job, if it is there.
    fn take(&mut self) -> Option<Box<dyn Job>> {
        let job = self.next.pop_front().or_else(|| self.jobs.try_recv().ok());
        self.count(job)
    }

    /// The next job, waited for. Nothing if none will come any more.
    fn wait(&mut self) -> Option<Box<dyn Job>> {
        let job = self.next.pop_front().or_else(|| self.jobs.recv().ok());
        self.count(job)
    }

    fn count(&self, job: Option<Box<dyn Job>>) -> Option<Box<dyn Job>> {
        if job.is_some() {
            self.length.fetch_sub(1, Ordering::Relaxed);
        }
        job
    }

    /// How many of those that wait share the next transaction. Not all of a crowd: if all wait for the same transaction,
    /// nobody works while it is written, and nothing is there to write while they work.
    fn share(&mut self) -> usize {
        self.next.extend(self.jobs.try_iter());
        (self.next.len() / 2).max(WHOLE_JOBS_MAX)
    }
}

/// A job from a closure, with someone waiting for what it returns.
pub(super) struct Task<T, F> {
    pub(super) session: SessionId,
    pub(super) bytes: usize,
    pub(super) traces: Traces,
    pub(super) work: F,
    pub(super) result: Option<Result<T, Error>>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnMut(&Db) -> Result<T, Trouble> + Send,
{
    fn run(&mut self, db: &Db) -> Result<(), Trouble> {
        match (self.work)(db) {
            Ok(value) => self.result = Some(Ok(value)),
            Err(Trouble::Refused(error)) => self.result = Some(Err(error)),
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    fn answer(self: Box<Self>, trouble: Option<&Trouble>) {
        let result = match trouble {
            Some(trouble) => Err(trouble.about(&self.session)),
            None => self.result.unwrap_or(Err(Error::Closed)),
        };
        // Whoever asked may have gone away; what was done stays done.
        let _ = self.reply.send(result);
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn traces(&self) -> Traces {
        self.traces
    }
}

/// Starts the writer. It ends, after all that is queued, when the last sender is dropped.
pub(super) fn start(db: Connection, path: &Path) -> Result<(Queue, JoinHandle<()>), Error> {
    let (sender, jobs) = mpsc::channel();
    let queue = Queue { jobs: sender, length: Arc::default() };
    let mut waiting = Waiting { jobs, length: queue.length.clone(), next: VecDeque::new() };
    let checkpointer = Checkpointer::start(path)?;
    let mut writer = Writer { db: db.into(), checkpointer, unsettled_bytes: 0, erase_owed: false };
    let thread = std::thread::Builder::new()
        .name("segue-store-writer".into())
        .spawn(move || writer.serve(&mut waiting))
        .map_err(|error| about_file(&error, path))?;
    Ok((queue, thread))
}

struct Writer {
    db: Db,
    checkpointer: Checkpointer,
    unsettled_bytes: usize,
    /// A delete's bytes are still in the log, because a reader would not let go of it.
    erase_owed: bool,
}

impl Writer {
    fn serve(&mut self, waiting: &mut Waiting) {
        while let Some(first) = waiting.wait() {
            let most = waiting.share();
            let mut group = vec![first];
            let done = self.attempt(&mut group, |done| {
                if done >= most {
                    return None;
                }
                let here = waiting.take();
                if here.is_some() || done < COMPANY_JOBS_MIN {
                    return here;
                }
                // Where some come together more are on their way: let them run first, if they can. Nobody is waited for.
                std::thread::yield_now();
                waiting.take()
            });
            let bytes = group.iter().map(|job| job.bytes()).sum();
            match done {
                Ok(()) => self.answer(group),
                // One transaction each, so that none pays for another's failure.
                Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.alone(job)),
                Err(trouble) => group.into_iter().for_each(|job| job.answer(Some(&trouble))),
            }
            self.settle(bytes);
        }
        if self.erase_owed {
            self.truncate(ERASE_WAIT_MS);
        }
    }

    fn alone(&mut self, job: Box<dyn Job>) {
        let mut group = vec![job];
        match self.attempt(&mut group, |_| None) {
            Ok(()) => self.answer(group),
            Err(trouble) => group.into_iter().for_each(|job| job.answer(Some(&trouble))),
        }
    }

    /// One transaction for the group and for what else comes while it is at work.
    fn attempt(
        &mut self,
        group: &mut Vec<Box<dyn Job>>,
        mut next: impl FnMut(usize) -> Option<Box<dyn Job>>,
    ) -> Result<(), Trouble> {
        let mut run_all = || {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.db.catch_up()?;
            let (mut done, mut bytes) = (0, 0);
            loop {
                while let Some(job) = group.get_mut(done) {
                    job.run(&self.db)?;
                    bytes += job.bytes();
                    done += 1;
                }
                if done >= GROUP_JOBS_MAX || bytes >= GROUP_BYTES_MAX {
                    break;
                }
                let Some(job) = next(done) else { break };
                group.push(job);
            }
            self.db.write_news()?;
            Ok(self.db.execute_batch("COMMIT")?)
        };
        let done = run_all();
        match done {
            Ok(()) => self.db.committed(),
            Err(_) => self.db.undone(),
        }
        if done.is_err() && !self.db.is_autocommit() {
            // If even this fails, the next BEGIN says so.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        done
    }

    fn answer(&mut self, group: Vec<Box<dyn Job>>) {
        let (erasing, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.traces() == Traces::MustGo);
        others.into_iter().for_each(|job| job.answer(None));
        if !erasing.is_empty() {
            self.erase_owed = !self.truncate(ERASE_WAIT_MS);
            erasing.into_iter().for_each(|job| job.answer(None));
        }
    }

    /// Keeps the log short.
    fn settle(&mut self, bytes: usize) {
        self.unsettled_bytes += bytes;
        if self.erase_owed {
            self.erase_owed = !self.truncate(0);
        }
        match self.checkpointer.wal_bytes.load(Ordering::Relaxed) {
            0..WAL_BYTES_WANTED if self.unsettled_bytes < CHECKPOINT_BYTES => return,
            0..WAL_BYTES_WANTED => self.checkpointer.ask(),
            WAL_BYTES_WANTED..WAL_BYTES_MAX => {
                self.checkpoint("RESTART", 0);
                self.checkpointer.wal_bytes.store(0, Ordering::Relaxed);
            }
            WAL_BYTES_MAX.. => {
                self.truncate(TRUNCATE_WAIT_MS);
                self.checkpointer.wal_bytes.store(0, Ordering::Relaxed);
            }
        }
        self.unsettled_bytes = 0;
    }

    /// Moves the whole log into the database and cuts it to nothing. Whether it could.
    fn truncate(&self, wait_ms: u64) -> bool {
        self.checkpoint("TRUNCATE", wait_ms)
    }

    /// Whether all of the log could be moved and no reader needs it any more.
    fn checkpoint(&self, how: &str, wait_ms: u64) -> bool {
        let _ = self.db.busy_timeout(Duration::from_millis(wait_ms));
        let busy = self.db.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get::<_, i64>(0));
        let _ = self.db.busy_timeout(Duration::from_millis(BUSY_MS));
        busy == Ok(0)
    }
}

/// Moves the log into the database beside the writer, without keeping it waiting.
struct Checkpointer {
    bell: Option<mpsc::SyncSender<()>>,
    wal_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    fn start(path: &Path) -> Result<Self, Error> {
        let (bell, rung) = mpsc::sync_channel(1);
        let wal_bytes = Arc::new(AtomicU64::new(0));
        let (seen, place) = (wal_bytes.clone(), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("segue-store-checkpoint".into())
            .spawn(move || checkpoint_when_rung(&place, &rung, &seen))
            .map_err(|error| about_file(&error, path))?;
        Ok(Self { bell: Some(bell), wal_bytes, thread: Some(thread) })
    }

    fn ask(&self) {
        if let Some(bell) = &self.bell {
            // Full means it is asked already.
            let _ = bell.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn checkpoint_when_rung(path: &Path, rung: &mpsc::Receiver<()>, wal_bytes: &AtomicU64) {
    let mut db = None;
    while rung.recv().is_ok() {
        if db.is_none() {
            db = open_reader(path).ok();
        }
        let Some(db) = &db else { continue };
        let pages = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
        let page_bytes = db.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0));
        if let (Ok(pages), Ok(page_bytes)) = (pages, page_bytes) {
            wal_bytes.store(pages.saturating_mul(page_bytes).max(0).cast_unsigned(), Ordering::Relaxed);
        }
    }
}
