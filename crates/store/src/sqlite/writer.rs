//! The thread that writes: takes queued jobs, runs them in one transaction, and replies after the commit.
//!
//! It decides which jobs share a transaction and when the write-ahead log is checkpointed. What a job does is up to the
//! job.

use crate::limits::{
    CALLER_YIELD_JOBS_MIN, GROUP_COMMIT_BYTES_MAX, GROUP_COMMIT_JOBS_MAX, UNSPLIT_QUEUE_JOBS_MAX, WAL_BYTES_MAX,
    WRITER_YIELD_JOBS_MIN,
};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use segue_core::ids::SessionId;
use tokio::sync::oneshot;

use super::body_index::SqliteStoreConnection;
use super::schema::{BUSY_TIMEOUT_MS, open_reader_connection};
use super::sqlite_error::{SqliteTransactionError, map_file_error};
use crate::Error;

/// Bytes written between two background checkpoints.
const CHECKPOINT_AFTER_BYTES: usize = 2 << 20;
/// Above this size, the writer itself restarts the log from its beginning. Under steady load a background checkpoint
/// never catches up, and making a growing log durable costs more than overwriting it.
const WAL_RESTART_BYTES: u64 = 8 << 20;
/// How long the writer may wait for readers when it truncates a log that is too large.
const TRUNCATE_WAIT_MS: u64 = 250;
/// How long the writer may wait for readers after a delete, when the data must be erased.
const ERASE_WAIT_MS: u64 = 1_000;

/// Whether data that a job deletes must also be erased from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalErasureRequirement {
    /// The log may contain deleted data until it is overwritten.
    NotRequired,
    /// The log must not contain deleted data when the job is acknowledged.
    Required,
}

/// A unit of work within a transaction. It may run again after a rollback.
pub(super) trait SqliteWriteJob: Send {
    /// Runs the job. A job that is refused must not have written anything.
    fn run(&mut self, db: &SqliteStoreConnection) -> Result<(), SqliteTransactionError>;
    /// Sends the result, or the error, to the waiting caller.
    fn send_result(self: Box<Self>, error: Option<&SqliteTransactionError>);
    fn byte_len(&self) -> usize;
    fn wal_erasure(&self) -> WalErasureRequirement;
}

/// The sending side of the queue of jobs.
#[derive(Debug, Clone)]
pub(super) struct SqliteWriteQueueSender {
    jobs: mpsc::Sender<Box<dyn SqliteWriteJob>>,
    length: Arc<AtomicUsize>,
}

impl SqliteWriteQueueSender {
    /// Adds a job. Returns the length of the queue.
    pub(super) fn push(&self, job: Box<dyn SqliteWriteJob>) -> Result<usize, Error> {
        let before = self.length.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(job).map_err(|_| {
            tracing::error!("the writer thread of the store has ended; restart the process");
            // The handle of the writer owns this queue, so the other end is gone only if the thread has died.
            Error::WriterStopped
        })?;
        Ok(before + 1)
    }
}

/// If many jobs wait, yields to the writer in case it has no core: a running thread may keep its core for milliseconds,
/// while all callers wait for the writer.
pub(super) fn yield_to_writer(queue_length: usize) {
    if queue_length >= CALLER_YIELD_JOBS_MIN {
        std::thread::yield_now();
    }
}

/// The writer's side of the queue.
struct SqliteWriteQueueReceiver {
    jobs: mpsc::Receiver<Box<dyn SqliteWriteJob>>,
    length: Arc<AtomicUsize>,
    /// Jobs taken out of the channel; they come first.
    next: VecDeque<Box<dyn SqliteWriteJob>>,
}

impl SqliteWriteQueueReceiver {
    /// Returns the next job, if there is one.
    fn try_next_job(&mut self) -> Option<Box<dyn SqliteWriteJob>> {
        let job = self.next.pop_front().or_else(|| self.jobs.try_recv().ok());
        self.decrement_length(job)
    }

    /// Waits for the next job. Returns none if all senders are gone.
    fn wait_next_job(&mut self) -> Option<Box<dyn SqliteWriteJob>> {
        let job = self.next.pop_front().or_else(|| self.jobs.recv().ok());
        self.decrement_length(job)
    }

    fn decrement_length(&self, job: Option<Box<dyn SqliteWriteJob>>) -> Option<Box<dyn SqliteWriteJob>> {
        if job.is_some() {
            self.length.fetch_sub(1, Ordering::Relaxed);
        }
        job
    }

    /// Returns how many waiting jobs share the next transaction. Of a long queue only half: if all callers waited for
    /// the same transaction, none would work while it is written, and nothing could be written while they work.
    fn next_batch_size(&mut self) -> usize {
        self.next.extend(self.jobs.try_iter());
        (self.next.len() / 2).max(UNSPLIT_QUEUE_JOBS_MAX)
    }
}

/// A job that runs a closure and sends its result to a caller.
pub(super) struct SqliteClosureWriteJob<T, F> {
    pub(super) session: SessionId,
    pub(super) bytes: usize,
    pub(super) wal_erasure: WalErasureRequirement,
    pub(super) work: F,
    pub(super) result: Option<Result<T, Error>>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> SqliteWriteJob for SqliteClosureWriteJob<T, F>
where
    T: Send,
    F: FnMut(&SqliteStoreConnection) -> Result<T, SqliteTransactionError> + Send,
{
    fn run(&mut self, db: &SqliteStoreConnection) -> Result<(), SqliteTransactionError> {
        match (self.work)(db) {
            Ok(value) => self.result = Some(Ok(value)),
            Err(SqliteTransactionError::Rejected(error)) => self.result = Some(Err(error)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn send_result(self: Box<Self>, error: Option<&SqliteTransactionError>) {
        let result = match error {
            Some(error) => Err(error.to_session_error(&self.session)),
            None => self.result.unwrap_or(Err(Error::Closed)),
        };
        // The caller may be gone; the job is done all the same.
        let _ = self.reply.send(result);
    }

    fn byte_len(&self) -> usize {
        self.bytes
    }

    fn wal_erasure(&self) -> WalErasureRequirement {
        self.wal_erasure
    }
}

/// Starts the writer thread. It ends when the last sender is dropped, after all queued jobs.
pub(super) fn spawn_writer_thread(
    db: Connection,
    path: &Path,
) -> Result<(SqliteWriteQueueSender, JoinHandle<()>), Error> {
    let (sender, jobs) = mpsc::channel();
    let sender = SqliteWriteQueueSender { jobs: sender, length: Arc::default() };
    let mut queue = SqliteWriteQueueReceiver { jobs, length: sender.length.clone(), next: VecDeque::new() };
    let checkpointer = WalCheckpointer::spawn(path)?;
    let path_shown = path.display().to_string();
    let mut writer = SqliteWriterThread {
        db: db.into(),
        path: path_shown,
        checkpointer,
        bytes_since_checkpoint: 0,
        erase_pending: false,
        damage: None,
    };
    let thread = std::thread::Builder::new()
        .name("segue-store-writer".into())
        .spawn(move || writer.run_loop(&mut queue))
        .map_err(|error| map_file_error(&error, path))?;
    Ok((sender, thread))
}

struct SqliteWriterThread {
    db: SqliteStoreConnection,
    /// The file, for error messages.
    path: String,
    checkpointer: WalCheckpointer,
    bytes_since_checkpoint: usize,
    /// Whether the log still contains deleted data, because a reader was using it.
    erase_pending: bool,
    /// Set when a page of the file turned out to be damaged. Nothing is written after that: a write to a damaged tree can
    /// spread the damage to data that is still intact.
    damage: Option<SqliteTransactionError>,
}

impl SqliteWriterThread {
    fn run_loop(&mut self, queue: &mut SqliteWriteQueueReceiver) {
        while let Some(first) = queue.wait_next_job() {
            if let Some(damage) = &self.damage {
                first.send_result(Some(damage));
                continue;
            }
            let batch_size = queue.next_batch_size();
            let mut group = vec![first];
            let outcome = self.run_transaction(&mut group, |jobs_run| {
                if jobs_run >= batch_size {
                    return None;
                }
                let next_job = queue.try_next_job();
                if next_job.is_some() || jobs_run < WRITER_YIELD_JOBS_MIN {
                    return next_job;
                }
                // Several jobs came together, so more are likely to follow: yield once, without waiting.
                std::thread::yield_now();
                queue.try_next_job()
            });
            let bytes = group.iter().map(|job| job.byte_len()).sum();
            match outcome {
                Ok(()) => self.send_results(group),
                Err(error) if error.is_damaged_page() => {
                    let damage = self.stop_writing(&error);
                    group.into_iter().for_each(|job| job.send_result(Some(damage)));
                    continue;
                }
                // One transaction each, so that no job fails because of another.
                Err(error) if group.len() > 1 => {
                    tracing::warn!(?error, jobs = group.len(), "transaction failed; each write is tried alone");
                    group.into_iter().for_each(|job| self.run_job_alone(job));
                }
                Err(error) => {
                    tracing::warn!(?error, "transaction failed");
                    group.into_iter().for_each(|job| job.send_result(Some(&error)));
                }
            }
            self.checkpoint_if_needed(bytes);
        }
        if self.erase_pending && self.damage.is_none() {
            self.truncate_wal(ERASE_WAIT_MS);
        }
    }

    /// Refuses all further writes. Returns the error to report.
    fn stop_writing(&mut self, error: &SqliteTransactionError) -> &SqliteTransactionError {
        tracing::error!(?error, path = self.path, "the store is damaged; nothing more is written to it");
        let detail = match error {
            SqliteTransactionError::Sql(error) => error.to_string(),
            SqliteTransactionError::Rejected(error) | SqliteTransactionError::Failed(error) => error.to_string(),
        };
        self.damage.insert(SqliteTransactionError::Failed(Error::StoreCorrupted { path: self.path.clone(), detail }))
    }

    fn run_job_alone(&mut self, job: Box<dyn SqliteWriteJob>) {
        if let Some(damage) = &self.damage {
            return job.send_result(Some(damage));
        }
        let mut group = vec![job];
        match self.run_transaction(&mut group, |_| None) {
            Ok(()) => self.send_results(group),
            Err(error) if error.is_damaged_page() => {
                let damage = self.stop_writing(&error);
                group.into_iter().for_each(|job| job.send_result(Some(damage)));
            }
            Err(error) => {
                tracing::warn!(?error, "transaction failed");
                group.into_iter().for_each(|job| job.send_result(Some(&error)));
            }
        }
    }

    /// Runs the group, and jobs that arrive meanwhile, in one transaction.
    fn run_transaction(
        &mut self,
        group: &mut Vec<Box<dyn SqliteWriteJob>>,
        mut next: impl FnMut(usize) -> Option<Box<dyn SqliteWriteJob>>,
    ) -> Result<(), SqliteTransactionError> {
        let mut run_all = || {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.db.read_new_body_addresses()?;
            let (mut jobs_run, mut bytes) = (0, 0);
            loop {
                while let Some(job) = group.get_mut(jobs_run) {
                    job.run(&self.db)?;
                    bytes += job.byte_len();
                    jobs_run += 1;
                }
                if jobs_run >= GROUP_COMMIT_JOBS_MAX || bytes >= GROUP_COMMIT_BYTES_MAX {
                    break;
                }
                let Some(job) = next(jobs_run) else { break };
                group.push(job);
            }
            self.db.write_new_body_addresses()?;
            Ok(self.db.execute_batch("COMMIT")?)
        };
        // A panic is a bug in one job. The others must still be written, so the thread survives: everything that the job
        // touched is rolled back or dropped.
        let outcome = catch_unwind(AssertUnwindSafe(&mut run_all))
            .unwrap_or_else(|_| Err(SqliteTransactionError::Failed(Error::WritePanicked)));
        match outcome {
            Ok(()) => {
                tracing::trace!(jobs = group.len(), "transaction committed");
                self.db.on_commit();
            }
            Err(_) => self.db.on_rollback(),
        }
        if outcome.is_err() && !self.db.is_autocommit() {
            // If the rollback fails too, the next BEGIN returns the error.
            if let Err(error) = self.db.execute_batch("ROLLBACK") {
                tracing::warn!(?error, "rollback failed");
            }
        }
        outcome
    }

    fn send_results(&mut self, group: Vec<Box<dyn SqliteWriteJob>>) {
        let (erasing, others): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|job| job.wal_erasure() == WalErasureRequirement::Required);
        others.into_iter().for_each(|job| job.send_result(None));
        if !erasing.is_empty() {
            self.erase_pending = !self.truncate_wal(ERASE_WAIT_MS);
            if self.erase_pending {
                tracing::warn!("deleted data stays in the write-ahead log until its readers have finished");
            }
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

    /// Moves the whole log into the database and truncates it. Returns whether that succeeded.
    fn truncate_wal(&self, wait_ms: u64) -> bool {
        self.checkpoint_wal("TRUNCATE", wait_ms)
    }

    /// Runs a checkpoint. Returns whether the whole log was moved and no reader uses it any more.
    fn checkpoint_wal(&self, mode: &str, wait_ms: u64) -> bool {
        // Setting the timeout of an open connection cannot fail.
        let _ = self.db.busy_timeout(Duration::from_millis(wait_ms));
        let busy = self.db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get::<_, i64>(0));
        let _ = self.db.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS));
        let is_complete = busy == Ok(0);
        tracing::debug!(mode, is_complete, "checkpoint of the write-ahead log");
        is_complete
    }
}

/// Makes checkpoints in a separate thread, without blocking the writer.
struct WalCheckpointer {
    wake_sender: Option<mpsc::SyncSender<()>>,
    wal_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl WalCheckpointer {
    fn spawn(path: &Path) -> Result<Self, Error> {
        let (wake_sender, wake_receiver) = mpsc::sync_channel(1);
        let wal_bytes = Arc::new(AtomicU64::new(0));
        let (wal_bytes_written, database) = (wal_bytes.clone(), path.to_owned());
        let thread = std::thread::Builder::new()
            .name("segue-store-checkpoint".into())
            .spawn(move || run_checkpointer(&database, &wake_receiver, &wal_bytes_written))
            .map_err(|error| map_file_error(&error, path))?;
        Ok(Self { wake_sender: Some(wake_sender), wal_bytes, thread: Some(thread) })
    }

    fn request_checkpoint(&self) {
        if let Some(wake_sender) = &self.wake_sender {
            // If the channel is full, a checkpoint is already requested.
            let _ = wake_sender.try_send(());
        }
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        self.wake_sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread of the store had panicked; this is a bug");
        }
    }
}

fn run_checkpointer(path: &Path, wake_receiver: &mpsc::Receiver<()>, wal_bytes: &AtomicU64) {
    let mut db = None;
    while wake_receiver.recv().is_ok() {
        if db.is_none() {
            let opened = open_reader_connection(path);
            db = opened.inspect_err(|error| tracing::warn!(?error, "cannot open the store for a checkpoint")).ok();
        }
        let Some(db) = &db else { continue };
        let pages = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
        let page_bytes = db.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0));
        if let (Ok(pages), Ok(page_bytes)) = (pages, page_bytes) {
            wal_bytes.store(pages.saturating_mul(page_bytes).max(0).cast_unsigned(), Ordering::Relaxed);
        } else {
            tracing::warn!("checkpoint of the write-ahead log failed; it is tried again after more writes");
        }
    }
}
