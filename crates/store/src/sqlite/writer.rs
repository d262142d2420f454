//! The one thread that writes: takes what is queued, puts it into one transaction, answers after the commit.
//!
//! Decides what shares a transaction and when the log is checkpointed. What a job does is the job's.

use crate::limits::{
    CALLER_YIELD_JOBS_MIN, GROUP_COMMIT_BYTES_MAX, GROUP_COMMIT_JOBS_MAX, UNSPLIT_QUEUE_JOBS_MAX, WAL_BYTES_MAX,
    WRITER_YIELD_JOBS_MIN,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use segue_core::ids::SessionId;
use tokio::sync::oneshot;

use super::body_index::StoreConnection;
use super::schema::{BUSY_TIMEOUT_MS, open_reader_connection};
use super::sqlite_error::{TransactionError, map_file_error};
use crate::Error;

/// A background checkpoint is asked for after this much was written.
const CHECKPOINT_AFTER_BYTES: usize = 2 << 20;
/// Past this the writer itself begins the log anew, in the same place: under steady load a checkpoint beside it never
/// catches up, and a log that grows costs more to make durable than one that is overwritten.
const WAL_RESTART_BYTES: u64 = 8 << 20;
/// How long the writer may wait for readers then.
const TRUNCATE_WAIT_MS: u64 = 250;
/// How long it may wait after a delete, where the bytes must be gone.
const ERASE_WAIT_MS: u64 = 1_000;

/// What a job leaves on disk once it is through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalErasure {
    /// The log may keep old bytes until it wraps.
    NotRequired,
    /// Nothing of what it removed may be left in the log when it is answered.
    Required,
}

/// Something to do inside a transaction. May be run again after a rollback.
pub(super) trait WriteJob: Send {
    /// Does it. A refusal has written nothing.
    fn run(&mut self, db: &StoreConnection) -> Result<(), TransactionError>;
    /// Tells whoever waits: what it gave, or why not.
    fn send_result(self: Box<Self>, trouble: Option<&TransactionError>);
    fn byte_len(&self) -> usize;
    fn wal_erasure(&self) -> WalErasure;
}

/// Where jobs wait for their transaction.
#[derive(Debug, Clone)]
pub(super) struct WriteQueue {
    jobs: mpsc::Sender<Box<dyn WriteJob>>,
    length: Arc<AtomicUsize>,
}

impl WriteQueue {
    /// Adds a job; how many wait with it.
    pub(super) fn push(&self, job: Box<dyn WriteJob>) -> Result<usize, Error> {
        let before = self.length.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(job).map_err(|_| Error::Closed)?;
        Ok(before + 1)
    }
}

/// Where many wait, lets the writer run first if it lacks a core: a thread that has one may keep it for milliseconds, and
/// all of them wait for the writer.
pub(super) fn yield_to_writer(waiting: usize) {
    if waiting >= CALLER_YIELD_JOBS_MIN {
        std::thread::yield_now();
    }
}

/// The writer's end of the queue.
struct WriteQueueReceiver {
    jobs: mpsc::Receiver<Box<dyn WriteJob>>,
    length: Arc<AtomicUsize>,
    /// Taken out of the channel, and next.
    next: VecDeque<Box<dyn WriteJob>>,
}

impl WriteQueueReceiver {
    /// The next job, if it is there.
    fn try_next_job(&mut self) -> Option<Box<dyn WriteJob>> {
        let job = self.next.pop_front().or_else(|| self.jobs.try_recv().ok());
        self.decrement_length(job)
    }

    /// The next job, waited for. Nothing if none will come any more.
    fn wait_next_job(&mut self) -> Option<Box<dyn WriteJob>> {
        let job = self.next.pop_front().or_else(|| self.jobs.recv().ok());
        self.decrement_length(job)
    }

    fn decrement_length(&self, job: Option<Box<dyn WriteJob>>) -> Option<Box<dyn WriteJob>> {
        if job.is_some() {
            self.length.fetch_sub(1, Ordering::Relaxed);
        }
        job
    }

    /// How many of those that wait share the next transaction. Not all of a crowd: if all wait for the same transaction,
    /// nobody works while it is written, and nothing is there to write while they work.
    fn next_batch_size(&mut self) -> usize {
        self.next.extend(self.jobs.try_iter());
        (self.next.len() / 2).max(UNSPLIT_QUEUE_JOBS_MAX)
    }
}

/// A job from a closure, with someone waiting for what it returns.
pub(super) struct ClosureJob<T, F> {
    pub(super) session: SessionId,
    pub(super) bytes: usize,
    pub(super) wal_erasure: WalErasure,
    pub(super) work: F,
    pub(super) result: Option<Result<T, Error>>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> WriteJob for ClosureJob<T, F>
where
    T: Send,
    F: FnMut(&StoreConnection) -> Result<T, TransactionError> + Send,
{
    fn run(&mut self, db: &StoreConnection) -> Result<(), TransactionError> {
        match (self.work)(db) {
            Ok(value) => self.result = Some(Ok(value)),
            Err(TransactionError::Rejected(error)) => self.result = Some(Err(error)),
            Err(trouble) => return Err(trouble),
        }
        Ok(())
    }

    fn send_result(self: Box<Self>, trouble: Option<&TransactionError>) {
        let result = match trouble {
            Some(trouble) => Err(trouble.to_session_error(&self.session)),
            None => self.result.unwrap_or(Err(Error::Closed)),
        };
        // Whoever asked may have gone away; what was done stays done.
        let _ = self.reply.send(result);
    }

    fn byte_len(&self) -> usize {
        self.bytes
    }

    fn wal_erasure(&self) -> WalErasure {
        self.wal_erasure
    }
}

/// Starts the writer. It ends, after all that is queued, when the last sender is dropped.
pub(super) fn spawn_writer_thread(db: Connection, path: &Path) -> Result<(WriteQueue, JoinHandle<()>), Error> {
    let (sender, jobs) = mpsc::channel();
    let queue = WriteQueue { jobs: sender, length: Arc::default() };
    let mut waiting = WriteQueueReceiver { jobs, length: queue.length.clone(), next: VecDeque::new() };
    let checkpointer = WalCheckpointer::spawn(path)?;
    let mut writer = WriterThread { db: db.into(), checkpointer, bytes_since_checkpoint: 0, erase_pending: false };
    let thread = std::thread::Builder::new()
        .name("segue-store-writer".into())
        .spawn(move || writer.run_loop(&mut waiting))
        .map_err(|error| map_file_error(&error, path))?;
    Ok((queue, thread))
}

struct WriterThread {
    db: StoreConnection,
    checkpointer: WalCheckpointer,
    bytes_since_checkpoint: usize,
    /// A delete's bytes are still in the log, because a reader would not let go of it.
    erase_pending: bool,
}

impl WriterThread {
    fn run_loop(&mut self, waiting: &mut WriteQueueReceiver) {
        while let Some(first) = waiting.wait_next_job() {
            let most = waiting.next_batch_size();
            let mut group = vec![first];
            let done = self.run_transaction(&mut group, |done| {
                if done >= most {
                    return None;
                }
                let here = waiting.try_next_job();
                if here.is_some() || done < WRITER_YIELD_JOBS_MIN {
                    return here;
                }
                // Where some come together more are on their way: let them run first, if they can. Nobody is waited for.
                std::thread::yield_now();
                waiting.try_next_job()
            });
            let bytes = group.iter().map(|job| job.byte_len()).sum();
            match done {
                Ok(()) => self.send_results(group),
                // One transaction each, so that none pays for another's failure.
                Err(_) if group.len() > 1 => group.into_iter().for_each(|job| self.run_job_alone(job)),
                Err(trouble) => group.into_iter().for_each(|job| job.send_result(Some(&trouble))),
            }
            self.checkpoint_if_needed(bytes);
        }
        if self.erase_pending {
            self.truncate_wal(ERASE_WAIT_MS);
        }
    }

    fn run_job_alone(&mut self, job: Box<dyn WriteJob>) {
        let mut group = vec![job];
        match self.run_transaction(&mut group, |_| None) {
            Ok(()) => self.send_results(group),
            Err(trouble) => group.into_iter().for_each(|job| job.send_result(Some(&trouble))),
        }
    }

    /// One transaction for the group and for what else comes while it is at work.
    fn run_transaction(
        &mut self,
        group: &mut Vec<Box<dyn WriteJob>>,
        mut next: impl FnMut(usize) -> Option<Box<dyn WriteJob>>,
    ) -> Result<(), TransactionError> {
        let mut run_all = || {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.db.read_new_addresses()?;
            let (mut done, mut bytes) = (0, 0);
            loop {
                while let Some(job) = group.get_mut(done) {
                    job.run(&self.db)?;
                    bytes += job.byte_len();
                    done += 1;
                }
                if done >= GROUP_COMMIT_JOBS_MAX || bytes >= GROUP_COMMIT_BYTES_MAX {
                    break;
                }
                let Some(job) = next(done) else { break };
                group.push(job);
            }
            self.db.write_new_addresses()?;
            Ok(self.db.execute_batch("COMMIT")?)
        };
        let done = run_all();
        match done {
            Ok(()) => self.db.on_commit(),
            Err(_) => self.db.on_rollback(),
        }
        if done.is_err() && !self.db.is_autocommit() {
            // If even this fails, the next BEGIN says so.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        done
    }

    fn send_results(&mut self, group: Vec<Box<dyn WriteJob>>) {
        let (erasing, others): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|job| job.wal_erasure() == WalErasure::Required);
        others.into_iter().for_each(|job| job.send_result(None));
        if !erasing.is_empty() {
            self.erase_pending = !self.truncate_wal(ERASE_WAIT_MS);
            erasing.into_iter().for_each(|job| job.send_result(None));
        }
    }

    /// Keeps the log short.
    fn checkpoint_if_needed(&mut self, bytes: usize) {
        self.bytes_since_checkpoint += bytes;
        if self.erase_pending {
            self.erase_pending = !self.truncate_wal(0);
        }
        match self.checkpointer.wal_bytes.load(Ordering::Relaxed) {
            0..WAL_RESTART_BYTES if self.bytes_since_checkpoint < CHECKPOINT_AFTER_BYTES => return,
            0..WAL_RESTART_BYTES => self.checkpointer.request_checkpoint(),
            WAL_RESTART_BYTES..WAL_BYTES_MAX => {
                self.checkpoint_wal("RESTART", 0);
                self.checkpointer.wal_bytes.store(0, Ordering::Relaxed);
            }
            WAL_BYTES_MAX.. => {
                self.truncate_wal(TRUNCATE_WAIT_MS);
                self.checkpointer.wal_bytes.store(0, Ordering::Relaxed);
            }
        }
        self.bytes_since_checkpoint = 0;
    }

    /// Moves the whole log into the database and cuts it to nothing. Whether it could.
    fn truncate_wal(&self, wait_ms: u64) -> bool {
        self.checkpoint_wal("TRUNCATE", wait_ms)
    }

    /// Whether all of the log could be moved and no reader needs it any more.
    fn checkpoint_wal(&self, how: &str, wait_ms: u64) -> bool {
        let _ = self.db.busy_timeout(Duration::from_millis(wait_ms));
        let busy = self.db.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get::<_, i64>(0));
        let _ = self.db.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS));
        busy == Ok(0)
    }
}

/// Moves the log into the database beside the writer, without keeping it waiting.
struct WalCheckpointer {
    wake_sender: Option<mpsc::SyncSender<()>>,
    wal_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl WalCheckpointer {
    fn spawn(path: &Path) -> Result<Self, Error> {
        let (bell, rung) = mpsc::sync_channel(1);
        let wal_bytes = Arc::new(AtomicU64::new(0));
        let (seen, place) = (wal_bytes.clone(), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("segue-store-checkpoint".into())
            .spawn(move || run_checkpointer(&place, &rung, &seen))
            .map_err(|error| map_file_error(&error, path))?;
        Ok(Self { wake_sender: Some(bell), wal_bytes, thread: Some(thread) })
    }

    fn request_checkpoint(&self) {
        if let Some(bell) = &self.wake_sender {
            // Full means it is asked already.
            let _ = bell.try_send(());
        }
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        self.wake_sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run_checkpointer(path: &Path, wake_receiver: &mpsc::Receiver<()>, wal_bytes: &AtomicU64) {
    let mut db = None;
    while wake_receiver.recv().is_ok() {
        if db.is_none() {
            db = open_reader_connection(path).ok();
        }
        let Some(db) = &db else { continue };
        let pages = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
        let page_bytes = db.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0));
        if let (Ok(pages), Ok(page_bytes)) = (pages, page_bytes) {
            wal_bytes.store(pages.saturating_mul(page_bytes).max(0).cast_unsigned(), Ordering::Relaxed);
        }
    }
}
