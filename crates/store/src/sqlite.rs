//! Journals in one SQLite file, durable when acknowledged, shared by any number of processes.
//!
//! One thread writes and groups concurrent commits into one transaction; readers have connections of their own. Encoding
//! happens where the caller is, so that the writer only writes. Who holds a session is known by file locks, which no
//! dead process can keep.

use crate::limits::READERS_MAX;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{Epoch, Seq, SessionId};
use tokio::sync::{Semaphore, oneshot};

use crate::{Claim, Commit, Error, Fork, Owes, Page, Query, Record, Report, Snapshot, Store, Takeover, validate_name};

mod addresses;
mod fault;
mod lineage;
mod node;
mod pack;
mod read;
mod schema;
mod write;
mod writer;

use addresses::Db;
use fault::{Trouble, about_file, about_store};
use node::Node;
use writer::{Queue, Task, Traces, give_way};

/// How a store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The file grows to this many pages of 4096 bytes, no further.
    pub pages_max: Option<u32>,
}

/// A store in a SQLite file. Dropping it finishes what is queued; [`Store::close`] does so without blocking the thread.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Mutex<Option<Writer>>,
    readers: Arc<Readers>,
}

#[derive(Debug)]
struct Writer {
    queue: Queue,
    thread: JoinHandle<()>,
    node: Arc<Node>,
}

#[derive(Debug)]
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Db>>,
    permits: Semaphore,
}

impl SqliteStore {
    /// Opens the store at `path`, or makes one there. Blocks on the disk.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &Options::default())
    }

    /// Opens the store at `path`, or makes one there.
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        // Absolute, so that a process that changes its folder keeps its store.
        let path = std::path::absolute(&path).map_err(|error| about_file(&error, path.as_ref()))?;
        let _opening = node::opening(&path).map_err(|error| about_file(&error, &path))?;
        let db = schema::open_writer(&path)?;
        if let Some(pages) = options.pages_max {
            db.pragma_update(None, "max_page_count", pages).map_err(|error| about_store(&error, &path))?;
        }
        let node = Arc::new(Node::join(&path).map_err(|error| about_file(&error, &path))?);
        let (queue, thread) = writer::start(db, &path)?;
        let readers = Readers { path, idle: Mutex::default(), permits: Semaphore::new(READERS_MAX) };
        Ok(Self { writer: Mutex::new(Some(Writer { queue, thread, node })), readers: Arc::new(readers) })
    }

    /// Runs `work` in the next transaction and waits until it is durable.
    async fn write<T, F>(&self, session: &SessionId, bytes: usize, traces: Traces, mut work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&Db, &Node) -> Result<T, Trouble> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let waiting = {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = writer.as_ref().ok_or(Error::Closed)?;
            let node = writer.node.clone();
            let work = move |db: &Db| work(db, &node);
            let job = Task { session: session.clone(), bytes, traces, work, result: None, reply };
            writer.queue.push(Box::new(job))?
        };
        give_way(waiting);
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Runs `work` beside the writer, on one view of the store.
    async fn read_with<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Db, &Path) -> Result<T, Error> + Send + 'static,
    {
        let readers = self.readers.clone();
        let _permit = readers.permits.acquire().await.map_err(|_| Error::Closed)?;
        let pool = self.readers.clone();
        tokio::task::spawn_blocking(move || pool.run(work)).await.unwrap_or(Err(Error::Closed))
    }

    async fn read_session<T, F>(&self, session: &SessionId, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Db, &SessionId) -> Result<T, Trouble> + Send + 'static,
    {
        let session = session.clone();
        self.read_with(move |db, _| work(db, &session).map_err(|trouble| trouble.about(&session))).await
    }

    async fn read_store<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Db) -> Result<T, Trouble> + Send + 'static,
    {
        let about = |trouble, path: &Path| match trouble {
            Trouble::Sql(error) => about_store(&error, path),
            Trouble::Refused(error) | Trouble::Failed(error) => error,
        };
        self.read_with(move |db, path| work(db).map_err(|trouble| about(trouble, path))).await
    }

    /// No call is taken any more.
    fn shut(&self) -> Option<Writer> {
        self.readers.permits.close();
        self.readers.lock().clear();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(writer) = self.shut() {
            writer.finish();
        }
    }
}

impl Writer {
    /// Waits for what is queued, then gives up every claim.
    fn finish(self) {
        let Self { queue, thread, node } = self;
        drop(queue);
        // A writer that died has nothing more to finish.
        let _ = thread.join();
        drop(node);
    }
}

impl Readers {
    fn run<T>(&self, work: impl FnOnce(&Db, &Path) -> Result<T, Error>) -> Result<T, Error> {
        let idle = self.lock().pop();
        let db = match idle {
            Some(db) => db,
            None => schema::open_reader(&self.path).map_err(|error| about_store(&error, &self.path))?.into(),
        };
        let view = db.unchecked_transaction().map_err(|error| about_store(&error, &self.path))?;
        let result = work(&db, &self.path);
        drop(view);
        let mut idle = self.lock();
        if !self.permits.is_closed() {
            idle.push(db);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Db>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, session: &SessionId) -> Result<Claim, Error> {
        validate_name(session)?;
        let name = session.clone();
        self.write(session, 0, Traces::MayStay, move |db, node| write::create(db, &name, node)).await
    }

    async fn claim(&self, session: &SessionId, takeover: Takeover) -> Result<Claim, Error> {
        let name = session.clone();
        self.write(session, 0, Traces::MayStay, move |db, node| write::claim(db, &name, takeover, node)).await
    }

    async fn release(&self, session: &SessionId, epoch: Epoch) -> Result<(), Error> {
        let name = session.clone();
        self.write(session, 0, Traces::MayStay, move |db, _| write::release(db, &name, epoch)).await
    }

    async fn append(&self, commit: Commit) -> Result<Seq, Error> {
        commit.validate()?;
        let prepared = write::Prepared::new(&commit);
        let bytes = prepared.bytes();
        self.write(&commit.session, bytes, Traces::MayStay, move |db, _| write::append(db, &prepared)).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        self.read_session(session, move |db, session| read::records(db, session, after, limit)).await
    }

    async fn heads(&self, sessions: &[SessionId]) -> Result<Vec<Option<Seq>>, Error> {
        let sessions = sessions.to_vec();
        self.read_store(move |db| read::heads(db, &sessions)).await
    }

    async fn bodies(&self, session: &SessionId, ids: &[BodyId]) -> Result<Vec<Arc<str>>, Error> {
        let ids = ids.to_vec();
        self.read_session(session, move |db, session| read::bodies(db, session, &ids)).await
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>, Error> {
        self.read_session(session, |db, session| read::snapshot(db, session)).await
    }

    async fn keep_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<(), Error> {
        let sealed = pack::seal_snapshot(session, &snapshot);
        let (name, bytes) = (session.clone(), sealed.len());
        let work = move |db: &Db, _: &Node| write::keep_snapshot(db, &name, &snapshot, &sealed);
        self.write(session, bytes, Traces::MayStay, work).await
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let query = query.clone();
        self.read_store(move |db| read::list(db, &query)).await
    }

    async fn owing(&self) -> Result<Vec<(SessionId, Owes)>, Error> {
        self.read_store(|db| read::owing(db)).await
    }

    async fn fork(&self, fork: Fork) -> Result<(), Error> {
        validate_name(&fork.to)?;
        let about = fork.from.clone();
        self.write(&about, 0, Traces::MayStay, move |db, node| lineage::fork(db, &fork, node)).await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        let name = session.clone();
        self.write(session, 0, Traces::MustGo, move |db, node| lineage::delete(db, &name, node)).await
    }

    async fn check(&self) -> Result<Report, Error> {
        self.read_store(read::check).await
    }

    async fn close(&self) -> Result<(), Error> {
        if let Some(writer) = self.shut() {
            tokio::task::spawn_blocking(move || writer.finish()).await.map_err(|_| Error::Closed)?;
        }
        Ok(())
    }
}
