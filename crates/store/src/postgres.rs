//! A store in a PostgreSQL database, shared by any number of nodes.
//!
//! Commits of a node are grouped: one statement writes all commits that wait, and a commit whose lease is lost drops out
//! of it alone. Everything else is a short transaction of its own. The store has a runtime of its own, so an operation
//! that has begun is finished even if its caller is gone: giving up on a commit would not undo it.
//!
//! Only plain SQL is used: no advisory locks, no notifications, no session state. A connection pooler in transaction
//! mode may stand between the store and the database. The isolation level is READ COMMITTED.
//!
//! A node has one row, with the time at which its leases expire by the database's clock. A session's row names the node
//! that holds it and the epoch of its lease.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime as PoolRuntime};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Config, NoTls};

use crate::limits::{
    CONFLICT_ATTEMPTS_MAX, CONNECT_MS_MAX, LEASE_MS_DEFAULT, LEASE_MS_MIN, OPERATION_CONNECTIONS_MAX, SHUTDOWN_MS_MAX,
    WRITE_QUEUE_JOBS_MAX,
};
use crate::{Error, StoreClock};

mod adoption;
mod append;
mod batch;
mod capabilities;
mod catalog;
mod changes;
mod deliveries;
mod fork_delete;
mod inbox;
mod leases;
mod metrics;
mod nodes;
mod postgres_error;
mod read;
mod schema;
mod session_row;
mod shared_tables;

use batch::PostgresAppendJob;
use metrics::PostgresCounters;
use postgres_error::PostgresError;
pub use schema::PostgresDatabaseReport;

/// Options for opening a store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// How long the leases of a node last after its last heartbeat.
    pub lease_ms: u64,
    /// The name of this node in messages; made of the host name and the process id if absent.
    pub node_name: Option<String>,
    /// The password, if it is not part of the URL.
    pub password: Option<String>,
    /// Where other nodes reach this one.
    pub node_address: Option<String>,
    /// Adds to the database's clock what this clock was advanced by; for tests.
    pub clock: Option<StoreClock>,
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions").field("lease_ms", &self.lease_ms).finish_non_exhaustive()
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { lease_ms: LEASE_MS_DEFAULT, node_name: None, password: None, node_address: None, clock: None }
    }
}

/// A store in a PostgreSQL database. Dropping it finishes queued writes and removes the node, so that others can take
/// its sessions at once.
#[derive(Debug)]
pub struct PostgresStore {
    backend: Arc<PostgresStoreInner>,
    handle: Handle,
    running: Mutex<Option<PostgresWriterRuntime>>,
}

#[derive(Debug)]
struct PostgresWriterRuntime {
    runtime: Runtime,
    queue: mpsc::Sender<PostgresAppendJob>,
    /// Receives when the writer has ended and the node is removed.
    ended: std::sync::mpsc::Receiver<()>,
}

/// What all operations share.
#[derive(Debug)]
struct PostgresStoreInner {
    /// For everything but grouped commits.
    pool: Pool,
    /// For grouped commits alone, so that they never wait for a connection.
    writer_pool: Pool,
    /// Where the database is, without the password.
    location: String,
    node: i64,
    node_name: String,
    node_address: Option<String>,
    lease_ms: u64,
    clock: Option<StoreClock>,
    /// When the leases of this node expire, by the database's clock.
    expires_at: AtomicI64,
    /// The last heartbeat, and how far the test clock was then.
    last_heartbeat: Mutex<Option<(Instant, i64)>>,
    heartbeats: AtomicU64,
    is_closed: AtomicBool,
    counters: PostgresCounters,
}

/// Runs an operation of the store, again if it collided with another transaction. The captured values are cloned for
/// each attempt.
macro_rules! run_operation {
    ($store:expr, $what:expr, ($($captured:ident),*), |$db:ident| $work:expr) => {{
        let what = $what;
        $(#[allow(clippy::clone_on_copy)] let $captured = $captured.clone();)*
        $store.run(what, move |backend: std::sync::Arc<$crate::postgres::PostgresStoreInner>| {
            $(#[allow(clippy::clone_on_copy)] let $captured = $captured.clone();)*
            async move {
                let $db = &*backend;
                $work.await
            }
        })
    }};
}
use run_operation;

impl PostgresStore {
    /// Opens the store at a URL such as `postgres://user@host/database`, and creates its tables if there are none.
    /// Blocks.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::open_with_options(url, &PostgresOptions::default())
    }

    /// Opens the store at a URL with options. Blocks.
    pub fn open_with_options(url: &str, options: &PostgresOptions) -> Result<Self, Error> {
        let (mut config, location) = parse_url(url)?;
        if let Some(password) = options.password.as_ref().filter(|_| config.get_password().is_none()) {
            config.password(password);
        }
        let node_name = options.node_name.clone().unwrap_or_else(nodes::default_node_name);
        if config.get_application_name().is_none() {
            // So that an operator sees in the database which node a connection belongs to.
            config.application_name(format!("segue {node_name}"));
        }
        let what = format!("opening the database {location}");
        let to_io = |error: &dyn std::fmt::Display| Error::Io { what: what.clone(), detail: error.to_string() };
        if options.lease_ms < LEASE_MS_MIN {
            return Err(to_io(&format!(
                "a lease of {} ms is too short; {LEASE_MS_MIN} is the least",
                options.lease_ms
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("segue-postgres")
            .enable_all()
            .build()
            .map_err(|error| to_io(&error))?;
        let (opened_sender, opened) = std::sync::mpsc::channel();
        let (queue, jobs) = mpsc::channel(WRITE_QUEUE_JOBS_MAX);
        let (ended_sender, ended) = std::sync::mpsc::channel();
        let options = PostgresOptions { node_name: Some(node_name), ..options.clone() };
        runtime.spawn(async move {
            let backend = match open_backend(&config, location, &options).await {
                Ok(backend) => Arc::new(backend),
                Err(error) => {
                    // The caller waits for the result.
                    let _ = opened_sender.send(Err(error));
                    return;
                }
            };
            let _ = opened_sender.send(Ok(backend.clone()));
            batch::run_writer(backend.clone(), jobs).await;
            nodes::remove_node(&backend).await;
            // The store may have been dropped without waiting.
            let _ = ended_sender.send(());
        });
        let handle = runtime.handle().clone();
        let backend = match opened.recv() {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => {
                runtime.shutdown_background();
                return Err(error);
            }
            Err(_) => {
                runtime.shutdown_background();
                return Err(to_io(&"the task that opens it ended"));
            }
        };
        tracing::info!(database = %backend.location, node = backend.node_name, "store opened");
        Ok(Self { backend, handle, running: Mutex::new(Some(PostgresWriterRuntime { runtime, queue, ended })) })
    }

    /// Runs `work` on the store's own runtime, again if it collided with another transaction.
    async fn run<T, F, W>(&self, what: String, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(Arc<PostgresStoreInner>) -> W + Send + 'static,
        W: Future<Output = Result<T, PostgresError>> + Send,
    {
        if self.backend.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let backend = self.backend.clone();
        let operation = async move {
            let mut attempt = 1;
            loop {
                match work(backend.clone()).await {
                    Err(error) if error.is_transaction_conflict() && attempt < CONFLICT_ATTEMPTS_MAX => attempt += 1,
                    result => return result.map_err(|error| error.into_store_error(&what)),
                }
            }
        };
        self.handle.spawn(operation).await.unwrap_or_else(|error| {
            // The runtime is gone only if the store was closed meanwhile.
            Err(if error.is_panic() { Error::WritePanicked } else { Error::Closed })
        })
    }

    /// Puts a commit into the queue of the writer and waits until it is durable.
    async fn run_append(&self, commit: append::PostgresEncodedCommit) -> Result<segue_core::ids::Seq, Error> {
        let queue = {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_ref().ok_or(Error::Closed)?.queue.clone()
        };
        let (reply, result) = oneshot::channel();
        queue.send(PostgresAppendJob { commit, reply }).await.map_err(|_| Error::Closed)?;
        drop(queue);
        result.await.unwrap_or(Err(Error::WriterStopped))
    }

    /// Refuses further calls. Returns the writer, if it was still running.
    fn stop_accepting(&self) -> Option<PostgresWriterRuntime> {
        self.backend.is_closed.store(true, Ordering::Release);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reports on the database, for an operator.
    pub async fn report_database(&self) -> Result<PostgresDatabaseReport, Error> {
        run_operation!(self, "reading the state of the database".to_owned(), (), |db| schema::report_database(db)).await
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        if let Some(running) = self.stop_accepting() {
            running.drain_and_end();
        }
    }
}

impl PostgresWriterRuntime {
    /// Waits for queued writes and for the removal of the node, but not for ever: the database may be gone.
    fn drain_and_end(self) {
        let Self { runtime, queue, ended } = self;
        drop(queue);
        if ended.recv_timeout(Duration::from_millis(SHUTDOWN_MS_MAX)).is_err() {
            tracing::warn!("the database did not answer in time; the leases of this node end when they expire");
        }
        runtime.shutdown_background();
    }
}

impl PostgresStoreInner {
    async fn client(&self) -> Result<Client, PostgresError> {
        Ok(self.pool.get().await?)
    }

    /// Returns by how much the test clock was advanced.
    fn clock_offset_ms(&self) -> i64 {
        let advanced = self.clock.as_ref().map_or(0, StoreClock::advanced_ms);
        i64::try_from(advanced).unwrap_or(i64::MAX)
    }
}

async fn open_backend(
    config: &Config,
    location: String,
    options: &PostgresOptions,
) -> Result<PostgresStoreInner, Error> {
    let what = format!("opening the database {location}");
    let to_error = |error: PostgresError| error.into_store_error(&what);
    let pool = build_pool(config, OPERATION_CONNECTIONS_MAX, &what)?;
    let writer_pool = build_pool(config, 1, &what)?;
    schema::migrate(&pool, &location).await?;
    let mut backend = PostgresStoreInner {
        pool,
        writer_pool,
        location,
        node: 0,
        node_name: options.node_name.clone().unwrap_or_else(nodes::default_node_name),
        node_address: options.node_address.clone(),
        lease_ms: options.lease_ms,
        clock: options.clock.clone(),
        expires_at: AtomicI64::new(0),
        last_heartbeat: Mutex::default(),
        heartbeats: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
        counters: PostgresCounters::default(),
    };
    backend.node = nodes::next_node_number(&backend).await.map_err(to_error)?;
    nodes::send_heartbeat(&backend).await.map_err(to_error)?;
    Ok(backend)
}

fn build_pool(config: &Config, connections_max: usize, what: &str) -> Result<Pool, Error> {
    let manager =
        Manager::from_config(config.clone(), NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeout = Some(Duration::from_millis(CONNECT_MS_MAX));
    Pool::builder(manager)
        .max_size(connections_max)
        .runtime(PoolRuntime::Tokio1)
        .create_timeout(timeout)
        .wait_timeout(timeout)
        .build()
        .map_err(|error| Error::Io { what: what.to_owned(), detail: error.to_string() })
}

/// Returns where the database of a URL is, without the user and the password.
#[must_use]
pub fn database_location(url: &str) -> String {
    parse_url(url).map_or_else(|_| "postgres://…".to_owned(), |(_, location)| location)
}

/// Parses a URL. Also returns where the database is, without the user's password.
fn parse_url(url: &str) -> Result<(Config, String), Error> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| Error::NotAStore {
        // The URL may contain a password.
        path: "the database URL".to_owned(),
        detail: format!("{error}; it looks like postgres://user:password@host:5432/database"),
    })?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_millis(CONNECT_MS_MAX));
    }
    let hosts = config.get_hosts().iter().map(|host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let location = format!("postgres://{hosts}/{}", config.get_dbname().unwrap_or_default());
    Ok((config, location))
}
