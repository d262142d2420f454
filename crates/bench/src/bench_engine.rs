//! An engine to be measured: on a store of a kind, with the model that answers at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use segue_core::body::BodyId;
use segue_core::event::{Event, TurnResult};
use segue_core::ids::{Seq, SessionId};
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_models::{LanguageModel, ModelRegistry};
use segue_store::Store;
use segue_store::memory::MemoryStore;
use segue_store::sqlite::SqliteStore;
use serde::{Deserialize, Serialize};

use crate::bench_flows::{self, TurnShape};
use crate::instant_model::{AnswerGate, InstantModel};
use crate::sample_text;

/// Where journals are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// In a file, durable when acknowledged.
    Sqlite,
    /// In memory.
    Memory,
}

impl StoreKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        }
    }
}

/// An engine to be measured.
#[derive(Debug, Clone)]
pub struct BenchEngine {
    pub engine: Engine,
    pub model: Arc<InstantModel>,
    shape: TurnShape,
}

/// Calls the model takes at once: more than any measurement makes.
const CONCURRENT_CALLS: usize = 100_000;
/// Events read at a time.
const EVENTS_PAGE: usize = 1_024;

impl BenchEngine {
    /// Starts an engine.
    pub async fn start(store_kind: StoreKind, shape: TurnShape, file: &Path) -> Result<Self> {
        sample_text::prepare_prose();
        let store: Arc<dyn Store> = match store_kind {
            StoreKind::Sqlite => Arc::new(SqliteStore::open(file)?),
            StoreKind::Memory => Arc::new(MemoryStore::with_own_disk()),
        };
        let model = Arc::new(InstantModel::new(AnswerGate::Open));
        let models = ModelRegistry::from_single_model(model.clone() as Arc<dyn LanguageModel>);
        let mut setup = EngineConfig::new(store, bench_flows::all_bench_flows(), models, "instant");
        let limits = ModelCallLimits { concurrent_calls_max: CONCURRENT_CALLS, ..ModelCallLimits::default() };
        setup.model_limits = BTreeMap::from([("instant".into(), limits)]);
        Ok(Self { engine: Engine::start(setup).await?, model, shape })
    }

    /// One turn of a session; the first one begins it.
    pub async fn run_turn(&self, session: &SessionId, position: TurnPosition) -> Result<()> {
        if position == TurnPosition::First {
            let opening = SessionOptions { session: Some(session.clone()), ..SessionOptions::default() };
            self.engine.open_session(&self.shape.flow_name().into(), opening).await?;
        }
        let report =
            self.engine.send_and_wait(session, UserMessage::from(sample_text::next_user_message().as_str())).await?;
        ensure!(report.outcome == TurnResult::Done, "the turn ended as {:?}", report.outcome);
        Ok(())
    }

    /// `count` turns of a new session.
    pub async fn run_turns(&self, session: &SessionId, count: usize) -> Result<()> {
        for place in 0..count {
            self.run_turn(session, TurnPosition::from_index(place)).await?;
        }
        Ok(())
    }

    /// The messages of a session, its texts fetched: all of them, or the newest. How many there were.
    pub async fn read_messages(&self, session: &SessionId, newest: Option<usize>) -> Result<usize> {
        let after = match newest {
            None => Seq(0),
            Some(count) => {
                let (_, state) = self.engine.load_session(session).await?;
                // No message is further apart from the next than the events of a turn.
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
    pub async fn stop(self) {
        self.engine.shutdown().await;
    }
}

/// More than the events of the longest turn.
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
pub enum TurnPosition {
    /// It is.
    First,
    /// It is not.
    Later,
}

impl TurnPosition {
    /// Of the turn at this place, counted from zero.
    pub fn from_index(index: usize) -> Self {
        if index == 0 { Self::First } else { Self::Later }
    }
}

/// A folder for the database of one measurement, gone when this is dropped unless it is kept for another one.
#[derive(Debug)]
pub struct DatabaseFolder {
    folder: PathBuf,
    retention: FolderRetention,
}

/// Whether a database outlives its measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderRetention {
    /// It does.
    Keep,
    /// It does not.
    Delete,
}

impl DatabaseFolder {
    /// An empty folder; what an earlier run left there is removed.
    pub fn create_empty(dir: &Path, name: &str, retention: FolderRetention) -> Result<Self> {
        let ground = Self { folder: dir.join(format!("segue-{name}")), retention };
        ground.remove();
        std::fs::create_dir_all(&ground.folder).with_context(|| format!("cannot make {}", ground.folder.display()))?;
        Ok(ground)
    }

    /// What an earlier measurement has left.
    pub fn open_existing(dir: &Path, name: &str) -> Self {
        Self { folder: dir.join(format!("segue-{name}")), retention: FolderRetention::Keep }
    }

    /// The database's file.
    pub fn database_file(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// The database's bytes once its log is folded in.
    pub fn checkpointed_bytes(&self) -> Result<u64> {
        let db = self.open_database()?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        drop(db);
        let bytes = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |metadata| metadata.len());
        Ok(bytes("store.db") + bytes("store.db-wal"))
    }

    /// Commits of all sessions so far: the store keeps one row for each.
    pub fn count_commits(&self) -> Result<u64> {
        Ok(self.open_database()?.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?)
    }

    /// Transactions so far, counted since somebody first opened the file: the third word of the index that SQLite keeps
    /// of its log.
    pub fn count_transactions(&self) -> Result<u64> {
        let mut head = [0u8; 12];
        let index = self.folder.join("store.db-shm");
        let mut index = std::fs::File::open(&index).with_context(|| format!("cannot read {}", index.display()))?;
        std::io::Read::read_exact(&mut index, &mut head)?;
        Ok(u32::from_ne_bytes([head[8], head[9], head[10], head[11]]).into())
    }

    fn open_database(&self) -> Result<rusqlite::Connection> {
        let db = rusqlite::Connection::open(self.database_file())?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(db)
    }

    fn remove(&self) {
        // What is not there need not go.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for DatabaseFolder {
    fn drop(&mut self) {
        if self.retention == FolderRetention::Delete {
            self.remove();
        }
    }
}
