//! An engine to be measured: on a store of a kind, with the model that answers at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use segue_core::body::BodyId;
use segue_core::event::{Event, Outcome};
use segue_core::ids::{Seq, SessionId};
use segue_engine::pace::ModelLimits;
use segue_engine::{Engine, Message, Opening, Setup};
use segue_models::{Model, Models};
use segue_store::Store;
use segue_store::memory::MemoryStore;
use segue_store::sqlite::SqliteStore;
use serde::{Deserialize, Serialize};

use crate::flows::{self, Shape};
use crate::model::{Gate, Instant};
use crate::text;

/// Where journals are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    /// In a file, durable when acknowledged.
    Sqlite,
    /// In memory.
    Memory,
}

impl Keeper {
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
pub struct Bed {
    pub engine: Engine,
    pub model: Arc<Instant>,
    shape: Shape,
}

/// Calls the model takes at once: more than any measurement makes.
const CALLS_AT_ONCE: usize = 100_000;
/// Events read at a time.
const EVENTS_READ: usize = 1_024;

impl Bed {
    /// Starts an engine.
    pub async fn start(keeper: Keeper, shape: Shape, file: &Path) -> Result<Self> {
        text::prepare();
        let store: Arc<dyn Store> = match keeper {
            Keeper::Sqlite => Arc::new(SqliteStore::open(file)?),
            Keeper::Memory => Arc::new(MemoryStore::alone()),
        };
        let model = Arc::new(Instant::new(Gate::Open));
        let models = Models::only(model.clone() as Arc<dyn Model>);
        let mut setup = Setup::new(store, flows::all(), models, "instant");
        let limits = ModelLimits { calls_max: CALLS_AT_ONCE, ..ModelLimits::default() };
        setup.model_limits = BTreeMap::from([("instant".into(), limits)]);
        Ok(Self { engine: Engine::start(setup).await?, model, shape })
    }

    /// One turn of a session; the first one begins it.
    pub async fn turn(&self, session: &SessionId, nth: Nth) -> Result<()> {
        if nth == Nth::First {
            let opening = Opening { session: Some(session.clone()), ..Opening::default() };
            self.engine.open(&self.shape.name().into(), opening).await?;
        }
        let report = self.engine.ask(session, Message::from(text::user().as_str())).await?;
        ensure!(report.outcome == Outcome::Done, "the turn ended as {:?}", report.outcome);
        Ok(())
    }

    /// `count` turns of a new session.
    pub async fn turns(&self, session: &SessionId, count: usize) -> Result<()> {
        for place in 0..count {
            self.turn(session, Nth::of(place)).await?;
        }
        Ok(())
    }

    /// The messages of a session, its texts fetched: all of them, or the newest. How many there were.
    pub async fn read(&self, session: &SessionId, newest: Option<usize>) -> Result<usize> {
        let after = match newest {
            None => Seq(0),
            Some(count) => {
                let (_, state) = self.engine.state(session).await?;
                // No message is further apart from the next than the events of a turn.
                Seq(state.session.seq.0.saturating_sub(count as u64 * EVENTS_PER_MESSAGE))
            }
        };
        let mut texts = Vec::new();
        let mut seen = after;
        loop {
            let events = self.engine.events(session, seen, EVENTS_READ).await?;
            let Some(last) = events.last() else { break };
            seen = last.seq;
            texts.extend(events.iter().filter_map(|event| said(&event.event)));
        }
        let skip = texts.len().saturating_sub(newest.unwrap_or(usize::MAX));
        let texts = self.engine.texts(session, &texts[skip..]).await?;
        Ok(texts.len())
    }

    /// Stops the engine and closes its store.
    pub async fn stop(self) {
        self.engine.shutdown().await;
    }
}

/// More than the events of the longest turn.
const EVENTS_PER_MESSAGE: u64 = 20;

fn said(event: &Event) -> Option<BodyId> {
    match event {
        Event::MessageReceived(received) => Some(received.text.body),
        Event::CallAnswered(answered) => Some(answered.text.body),
        _ => None,
    }
}

/// Whether a turn is the first of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nth {
    /// It is.
    First,
    /// It is not.
    Later,
}

impl Nth {
    /// Of the turn at this place, counted from zero.
    pub fn of(place: usize) -> Self {
        if place == 0 { Self::First } else { Self::Later }
    }
}

/// A folder for the database of one measurement, gone when this is dropped unless it is kept for another one.
#[derive(Debug)]
pub struct Ground {
    folder: PathBuf,
    keep: Keep,
}

/// Whether a database outlives its measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Ground {
    /// An empty folder; what an earlier run left there is removed.
    pub fn fresh(dir: &Path, name: &str, keep: Keep) -> Result<Self> {
        let ground = Self { folder: dir.join(format!("segue-{name}")), keep };
        ground.clear();
        std::fs::create_dir_all(&ground.folder).with_context(|| format!("cannot make {}", ground.folder.display()))?;
        Ok(ground)
    }

    /// What an earlier measurement has left.
    pub fn kept(dir: &Path, name: &str) -> Self {
        Self { folder: dir.join(format!("segue-{name}")), keep: Keep::Yes }
    }

    /// The database's file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("store.db")
    }

    /// The database's bytes once its log is folded in.
    pub fn settled_bytes(&self) -> Result<u64> {
        let db = self.look()?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        drop(db);
        let bytes = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |metadata| metadata.len());
        Ok(bytes("store.db") + bytes("store.db-wal"))
    }

    /// Commits of all sessions so far: the store keeps one row for each.
    pub fn commits(&self) -> Result<u64> {
        Ok(self.look()?.query_row("SELECT count(*) FROM journal", [], |row| row.get(0))?)
    }

    /// Transactions so far, counted since somebody first opened the file: the third word of the index that SQLite keeps
    /// of its log.
    pub fn transactions(&self) -> Result<u64> {
        let mut head = [0u8; 12];
        let index = self.folder.join("store.db-shm");
        let mut index = std::fs::File::open(&index).with_context(|| format!("cannot read {}", index.display()))?;
        std::io::Read::read_exact(&mut index, &mut head)?;
        Ok(u32::from_ne_bytes([head[8], head[9], head[10], head[11]]).into())
    }

    fn look(&self) -> Result<rusqlite::Connection> {
        let db = rusqlite::Connection::open(self.file())?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(db)
    }

    fn clear(&self) {
        // What is not there need not go.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.keep == Keep::No {
            self.clear();
        }
    }
}
