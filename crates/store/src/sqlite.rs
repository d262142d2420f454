//! A store in one SQLite file, durable when acknowledged, shared by any number of processes.
//!
//! One thread writes and groups concurrent commits into one transaction; readers have connections of their own. Values
//! are encoded in the caller's thread, so that the writer only writes. File locks tell whether the process that holds a
//! session is alive; a dead process cannot keep one.

use crate::limits::READER_CONNECTIONS_MAX;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use segue_core::ids::{LeaseEpoch, SessionId};
use tokio::sync::{Semaphore, oneshot};

use crate::{Error, StoreClock};

mod backup;
mod body_index;
mod capabilities;
mod catalog;
mod deliveries;
mod fork_delete;
mod inbox;
mod leases;
mod private_files;
mod process_lock;
mod read;
mod schema;
mod session_row;
mod sqlite_error;
mod write;
mod writer;

pub use backup::{BackupError, backup_store};
use body_index::SqliteStoreConnection;
use process_lock::ProcessLivenessLock;
use sqlite_error::{SqliteTransactionError, map_file_error, map_store_error};
use writer::{SqliteClosureWriteJob, SqliteWriteQueueSender, WalErasureRequirement, yield_to_writer};

/// Options for opening a store.
#[derive(Debug, Clone, Default)]
pub struct SqliteOptions {
    /// Most pages of 4096 bytes that the file may have.
    pub pages_max: Option<u32>,
    /// The clock by which outcomes are forgotten; the system's clock if none is given.
    pub clock: Option<StoreClock>,
}

/// A store in a SQLite file. Dropping it finishes queued writes; closing it with
/// [`StoreMaintenance::close`](crate::StoreMaintenance::close) does so without blocking the thread.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Mutex<Option<SqliteWriterHandle>>,
    readers: Arc<SqliteReaderPool>,
    clock: StoreClock,
}

#[derive(Debug)]
struct SqliteWriterHandle {
    queue: SqliteWriteQueueSender,
    thread: JoinHandle<()>,
    node: Arc<ProcessLivenessLock>,
}

#[derive(Debug)]
struct SqliteReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<SqliteStoreConnection>>,
    permits: Semaphore,
}

impl SqliteStore {
    /// Opens the store at `path`, or creates it. Blocks on disk I/O.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with_options(path, &SqliteOptions::default())
    }

    /// Opens the store at `path` with options, or creates it.
    pub fn open_with_options(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, Error> {
        // Absolute, so that the store stays valid if the process changes its working directory.
        let path = std::path::absolute(&path).map_err(|error| map_file_error(&error, path.as_ref()))?;
        let _opening = process_lock::lock_store_for_opening(&path).map_err(|error| map_file_error(&error, &path))?;
        let db = schema::open_writer_connection(&path)?;
        if let Some(pages) = options.pages_max {
            db.pragma_update(None, "max_page_count", pages).map_err(|error| map_store_error(&error, &path))?;
        }
        let node = Arc::new(ProcessLivenessLock::acquire(&path).map_err(|error| map_file_error(&error, &path))?);
        let (queue, thread) = writer::spawn_writer_thread(db, &path)?;
        tracing::info!(path = %path.display(), node = node.name(), "store opened");
        let readers =
            SqliteReaderPool { path, idle: Mutex::default(), permits: Semaphore::new(READER_CONNECTIONS_MAX) };
        let clock = options.clock.clone().unwrap_or_else(StoreClock::system);
        Ok(Self {
            writer: Mutex::new(Some(SqliteWriterHandle { queue, thread, node })),
            readers: Arc::new(readers),
            clock,
        })
    }

    /// Returns how many other processes have the store open.
    pub fn other_process_count(&self) -> Result<usize, Error> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let node = &writer.as_ref().ok_or(Error::Closed)?.node;
        node.other_live_count().map_err(|error| map_file_error(&error, &self.readers.path))
    }

    /// Returns the newest lease epoch that a session of this store was given.
    pub async fn newest_epoch(&self) -> Result<LeaseEpoch, Error> {
        self.run_store_read(|db| Ok(session_row::newest_epoch(db)?)).await
    }

    /// Runs `work` in the next write transaction and waits until it is durable.
    async fn run_write<T, F>(
        &self,
        session: &SessionId,
        bytes: usize,
        wal_erasure: WalErasureRequirement,
        mut work: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&SqliteStoreConnection, &ProcessLivenessLock) -> Result<T, SqliteTransactionError> + Send + 'static,
    {
        let (reply, reply_receiver) = oneshot::channel();
        let queue_length = {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = writer.as_ref().ok_or(Error::Closed)?;
            let node = writer.node.clone();
            let work = move |db: &SqliteStoreConnection| work(db, &node);
            let job = SqliteClosureWriteJob { session: session.clone(), bytes, wal_erasure, work, result: None, reply };
            writer.queue.push(Box::new(job))?
        };
        yield_to_writer(queue_length);
        reply_receiver.await.unwrap_or_else(|_| {
            tracing::error!(%session, "the writer thread of the store ended during a write; restart the process");
            // Closing the store runs all queued jobs first, so a job without a reply means that the writer has died.
            Err(Error::WriterStopped)
        })
    }

    /// Runs `work` on a reader connection, on one consistent view of the store.
    async fn run_read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&SqliteStoreConnection, &Path) -> Result<T, Error> + Send + 'static,
    {
        let readers = self.readers.clone();
        let _permit = readers.permits.acquire().await.map_err(|_| Error::Closed)?;
        let pool = self.readers.clone();
        tokio::task::spawn_blocking(move || pool.run_on_reader(work)).await.unwrap_or_else(|_| {
            tracing::error!("a read of the store panicked; this is a bug");
            Err(Error::Closed)
        })
    }

    async fn run_session_read<T, F>(&self, session: &SessionId, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&SqliteStoreConnection, &SessionId) -> Result<T, SqliteTransactionError> + Send + 'static,
    {
        let session = session.clone();
        self.run_read(move |db, _| work(db, &session).map_err(|error| error.to_session_error(&session))).await
    }

    async fn run_store_read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&SqliteStoreConnection) -> Result<T, SqliteTransactionError> + Send + 'static,
    {
        let to_error = |error, path: &Path| match error {
            SqliteTransactionError::Sql(sql_error) => map_store_error(&sql_error, path),
            SqliteTransactionError::Rejected(error) | SqliteTransactionError::Failed(error) => error,
        };
        self.run_read(move |db, path| work(db).map_err(|error| to_error(error, path))).await
    }

    /// Refuses further calls. Returns the writer, if it was still running.
    fn stop_accepting(&self) -> Option<SqliteWriterHandle> {
        self.readers.permits.close();
        self.readers.lock().clear();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(writer) = self.stop_accepting() {
            writer.drain_and_join();
        }
    }
}

impl SqliteWriterHandle {
    /// Waits for queued writes, then releases all leases.
    fn drain_and_join(self) {
        let Self { queue, thread, node } = self;
        drop(queue);
        if thread.join().is_err() {
            tracing::error!("the writer thread of the store had panicked; this is a bug");
        }
        drop(node);
    }
}

impl SqliteReaderPool {
    fn run_on_reader<T>(
        &self,
        work: impl FnOnce(&SqliteStoreConnection, &Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let idle = self.lock().pop();
        let db = match idle {
            Some(db) => db,
            None => {
                schema::open_reader_connection(&self.path).map_err(|error| map_store_error(&error, &self.path))?.into()
            }
        };
        let transaction = db.unchecked_transaction().map_err(|error| map_store_error(&error, &self.path))?;
        let result = work(&db, &self.path);
        drop(transaction);
        let mut idle = self.lock();
        if !self.permits.is_closed() {
            idle.push(db);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SqliteStoreConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use segue_core::ids::SessionId;

    use super::process_lock::ProcessLivenessLock;
    use super::sqlite_error::SqliteTransactionError;
    use super::writer::{SqliteWriteJob, WalErasureRequirement};
    use super::{SqliteStore, SqliteStoreConnection};
    use crate::{Error, JournalReader, JournalWriter, StoreMaintenance};

    /// Does not call the panic hook, so that the test prints nothing.
    fn panic_quietly() -> ! {
        std::panic::resume_unwind(Box::new("a bug"))
    }

    #[tokio::test]
    async fn a_write_that_panics_fails_alone_and_the_writer_continues() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path().join("store.db")).expect("it opens");
        let (session, other) = (SessionId::from("a"), SessionId::from("b"));
        store.create_session(&session).await.expect("created");
        let panics = |_: &SqliteStoreConnection, _: &ProcessLivenessLock| -> Result<(), SqliteTransactionError> {
            panic_quietly()
        };
        let (failed, neighbour) = tokio::join!(
            store.run_write(&session, 0, WalErasureRequirement::NotRequired, panics),
            store.create_session(&other)
        );
        assert_eq!(failed, Err(Error::WritePanicked));
        neighbour.expect("a job of the same group is written");
        assert_eq!(store.probe_write().await, Ok(()), "the writer still runs");
    }

    /// A job that panics outside its transaction.
    struct PanicsOnReply;

    impl SqliteWriteJob for PanicsOnReply {
        fn run(&mut self, _: &SqliteStoreConnection) -> Result<(), SqliteTransactionError> {
            Ok(())
        }

        fn send_result(self: Box<Self>, _: Option<&SqliteTransactionError>) {
            panic_quietly()
        }

        fn byte_len(&self) -> usize {
            0
        }

        fn wal_erasure(&self) -> WalErasureRequirement {
            WalErasureRequirement::NotRequired
        }
    }

    #[tokio::test]
    async fn a_store_whose_writer_has_died_cannot_be_probed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path().join("store.db")).expect("it opens");
        store.create_session(&"a".into()).await.expect("created");
        let queue = store.writer.lock().expect("not poisoned").as_ref().expect("it is open").queue.clone();
        queue.push(Box::new(PanicsOnReply)).expect("it is queued");
        assert_eq!(store.probe_write().await, Err(Error::WriterStopped));
        assert_eq!(store.create_session(&"b".into()).await, Err(Error::WriterStopped));
        assert!(store.read_heads(&["a".into()]).await.is_ok(), "it can still be read");
        drop(queue);
        store.close().await.expect("it closes");
        assert_eq!(store.probe_write().await, Err(Error::Closed));
    }
}
