//! The engine that is measured, with a given kind of store and a model that answers at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use segue_core::body::BodyId;
use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::{Seq, SessionId};
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_models::{LanguageModel, ModelRegistry};
use segue_store::Store;
use segue_store::memory::InMemoryStore;
use segue_store::postgres::PostgresStore;
use segue_store::sqlite::SqliteStore;
use segue_testkit::TemporaryPostgres;
use serde::{Deserialize, Serialize};

use crate::bench_flows::{self, BenchTurnShape};
use crate::instant_model::{InstantModel, InstantModelGate};
use crate::sample_text;

/// Where journals are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// In a file, durable when acknowledged.
    Sqlite,
    /// In memory.
    Memory,
    /// In a temporary PostgreSQL, durable when acknowledged.
    Postgres,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
            Self::Postgres => "postgres",
        }
    }
}

/// The engine that is measured.
#[derive(Debug, Clone)]
pub(crate) struct BenchEngine {
    pub engine: Engine,
    pub model: Arc<InstantModel>,
    /// The server that the store uses, if it is PostgreSQL.
    pub postgres: Option<BenchPostgresDatabase>,
    shape: BenchTurnShape,
}

/// A database of a temporary PostgreSQL, which ends with the last engine that uses it.
#[derive(Debug, Clone)]
pub(crate) struct BenchPostgresDatabase {
    server: Arc<TemporaryPostgres>,
    database: String,
}

impl BenchPostgresDatabase {
    /// Starts a server with an empty database.
    pub(crate) fn start() -> Self {
        let server = TemporaryPostgres::start_with_settings(POSTGRES_SETTINGS);
        let url = server.create_database();
        let database = url.rsplit('/').next().unwrap_or_default().to_owned();
        Self { server: Arc::new(server), database }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.database)
    }

    /// Runs a query that returns one number.
    pub(crate) fn query_number(&self, sql: &str) -> Result<f64> {
        let text = self.server.run_sql(&self.database, sql);
        text.parse().with_context(|| format!("`{text}` is not a number"))
    }
}

/// The settings that `docs/postgres.md` recommends, so that no checkpoint falls into a measurement.
const POSTGRES_SETTINGS: &[&str] = &["shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=30min"];
/// Concurrent calls that the model allows: more than any measurement makes.
const CONCURRENT_CALLS: usize = 100_000;
/// Events read at a time.
const EVENTS_PAGE: usize = 1_024;

impl BenchEngine {
    /// Starts an engine.
    pub(crate) async fn start(store_kind: StoreKind, shape: BenchTurnShape, file: &Path) -> Result<Self> {
        match store_kind {
            StoreKind::Sqlite => Self::start_on(Arc::new(SqliteStore::open(file)?), None, shape).await,
            StoreKind::Memory => Self::start_on(Arc::new(InMemoryStore::with_own_disk()), None, shape).await,
            StoreKind::Postgres => {
                let postgres = tokio::task::spawn_blocking(BenchPostgresDatabase::start).await?;
                Self::start_node(&postgres, shape).await
            }
        }
    }

    /// Starts an engine as one more node of a database.
    pub(crate) async fn start_node(postgres: &BenchPostgresDatabase, shape: BenchTurnShape) -> Result<Self> {
        let url = postgres.url();
        let store = tokio::task::spawn_blocking(move || PostgresStore::open(&url)).await??;
        Self::start_on(Arc::new(store), Some(postgres.clone()), shape).await
    }

    async fn start_on(
        store: Arc<dyn Store>,
        postgres: Option<BenchPostgresDatabase>,
        shape: BenchTurnShape,
    ) -> Result<Self> {
        sample_text::prepare_prose();
        let model = Arc::new(InstantModel::new(InstantModelGate::Open));
        let models = ModelRegistry::from_single_model(model.clone() as Arc<dyn LanguageModel>);
        let mut config = EngineConfig::new(store, bench_flows::all_bench_flows(), models, "instant");
        let limits = ModelCallLimits { concurrent_calls_max: CONCURRENT_CALLS, ..ModelCallLimits::default() };
        config.model_limits = BTreeMap::from([("instant".into(), limits)]);
        Ok(Self { engine: Engine::start(config).await?, model, postgres, shape })
    }

    /// Runs one turn of a session. The first turn opens the session.
    pub(crate) async fn run_turn(&self, session: &SessionId, position: FirstOrLaterTurn) -> Result<()> {
        if position == FirstOrLaterTurn::First {
            let options = SessionOptions { session: Some(session.clone()), ..SessionOptions::default() };
            self.engine.open_session(&self.shape.flow_name().into(), options).await?;
        }
        let report =
            self.engine.send_and_wait(session, UserMessage::from(sample_text::next_user_message().as_str())).await?;
        ensure!(report.outcome == TurnOutcome::Done, "the turn ended as {:?}", report.outcome);
        Ok(())
    }

    /// Runs `count` turns of a new session.
    pub(crate) async fn run_turns(&self, session: &SessionId, count: usize) -> Result<()> {
        for index in 0..count {
            self.run_turn(session, FirstOrLaterTurn::from_index(index)).await?;
        }
        Ok(())
    }

    /// Reads all messages of a session, or the newest, with their texts. Returns how many there were.
    pub(crate) async fn read_messages(&self, session: &SessionId, newest: Option<usize>) -> Result<usize> {
        let after = match newest {
            None => Seq(0),
            Some(count) => {
                let (_, state) = self.engine.load_session(session).await?;
                // Two messages are at most as many events apart as a turn has.
                Seq(state.session.last_seq.0.saturating_sub(count as u64 * EVENTS_PER_MESSAGE))
            }
        };
        let mut texts = Vec::new();
        let mut seen = after;
        loop {
            let events = self.engine.read_events(session, seen, EVENTS_PAGE).await?;
            let Some(last) = events.last() else { break };
            seen = last.seq;
            texts.extend(events.iter().filter_map(|event| message_body(&event.event)));
        }
        let skip = texts.len().saturating_sub(newest.unwrap_or(usize::MAX));
        let texts = self.engine.read_texts(session, &texts[skip..]).await?;
        Ok(texts.len())
    }

    /// Stops the engine and closes its store.
    pub(crate) async fn stop(self) {
        self.engine.shutdown().await;
    }
}

/// More events than the longest turn has.
const EVENTS_PER_MESSAGE: u64 = 20;

fn message_body(event: &Event) -> Option<BodyId> {
    match event {
        Event::UserMessageReceived(received) => Some(received.text.body),
        Event::CallAnswered(answered) => Some(answered.text.body),
        _ => None,
    }
}

/// Whether a turn is the first of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstOrLaterTurn {
    First,
    Later,
}

impl FirstOrLaterTurn {
    /// Returns the position of the turn with this index, counted from zero.
    pub(crate) fn from_index(index: usize) -> Self {
        if index == 0 { Self::First } else { Self::Later }
    }
}

/// A folder for the database of one measurement. Deleted on drop, unless another measurement needs it.
#[derive(Debug)]
pub(crate) struct BenchDatabaseFolder {
    folder: PathBuf,
    retention: BenchFolderRetention,
}

/// Whether a database outlives its measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchFolderRetention {
    Keep,
    Delete,
}

impl BenchDatabaseFolder {
    /// Creates an empty folder; data of an earlier run is deleted.
    pub(crate) fn create_empty(dir: &Path, name: &str, retention: BenchFolderRetention) -> Result<Self> {
        let created = Self { folder: dir.join(format!("segue-{name}")), retention };
        created.remove();
        std::fs::create_dir_all(&created.folder)
            .with_context(|| format!("cannot create {}", created.folder.display()))?;
        Ok(created)
    }

    /// Opens the folder of an earlier measurement.
    pub(crate) fn open_existing(dir: &Path, name: &str) -> Self {
        Self { folder: dir.join(format!("segue-{name}")), retention: BenchFolderRetention::Keep }
    }

    pub(crate) fn database_file(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// Returns the size of the database after a checkpoint of its log.
    pub(crate) fn checkpointed_bytes(&self) -> Result<u64> {
        let db = self.open_database()?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        drop(db);
        let bytes = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |metadata| metadata.len());
        Ok(bytes("store.db") + bytes("store.db-wal"))
    }

    /// Counts the commits of all sessions so far: the store has one row for each.
    pub(crate) fn count_commits(&self) -> Result<u64> {
        Ok(self.open_database()?.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?)
    }

    /// Counts the transactions since the file was first opened: the third word of the index of SQLite's log.
    pub(crate) fn count_transactions(&self) -> Result<u64> {
        let mut header = [0u8; 12];
        let index = self.folder.join("store.db-shm");
        let mut index = std::fs::File::open(&index).with_context(|| format!("cannot read {}", index.display()))?;
        std::io::Read::read_exact(&mut index, &mut header)?;
        Ok(u32::from_ne_bytes([header[8], header[9], header[10], header[11]]).into())
    }

    fn open_database(&self) -> Result<rusqlite::Connection> {
        let db = rusqlite::Connection::open(self.database_file())?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(db)
    }

    fn remove(&self) {
        // The folder may not exist.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for BenchDatabaseFolder {
    fn drop(&mut self) {
        if self.retention == BenchFolderRetention::Delete {
            self.remove();
        }
    }
}
