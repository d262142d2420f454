//! The limit of the machine: plain SQLite that writes as many rows of as many bytes into one table, with the one index
//! that finds a session's rows in order.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::bench_engine::{BenchDatabaseFolder, BenchFolderRetention};

const INSERT_ROW_SQL: &str = "INSERT INTO rows (session, seq, body) VALUES (?1, ?2, ?3)";
/// Sessions that the rows of a bare loop belong to.
const BASELINE_SESSIONS: usize = 64;

/// Plain SQLite with the durability settings of the store.
#[derive(Debug)]
pub(crate) struct SqliteBaseline {
    db: Connection,
    bytes: Arc<[u8]>,
    folder: BenchDatabaseFolder,
}

/// The load of a bare loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SqliteBaselineLoad {
    pub rows_per_transaction: usize,
    pub row_bytes: usize,
}

impl SqliteBaseline {
    /// Creates a table in a new file.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let database_folder = BenchDatabaseFolder::create_empty(dir, "raw", BenchFolderRetention::Delete)?;
        let db = Connection::open(database_folder.database_file())?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE rows (
                 id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL
             );
             CREATE INDEX rows_by_session ON rows (session, seq)",
        )?;
        // Bytes that do not repeat, although SQLite does not compress.
        let bytes = (0..1u32 << 18).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        Ok(Self { db, bytes, folder: database_folder })
    }

    /// Measures rows per second of a bare insert loop, over at least `time`.
    pub(crate) fn rows_per_s(&self, load: SqliteBaselineLoad, time: Duration) -> Result<f64> {
        let mut insert = self.db.prepare(INSERT_ROW_SQL)?;
        let mut begin = self.db.prepare("BEGIN IMMEDIATE")?;
        let mut commit = self.db.prepare("COMMIT")?;
        let length = load.row_bytes.min(self.bytes.len() / 2);
        let (mut rows, start) = (0usize, Instant::now());
        while start.elapsed() < time {
            begin.execute([])?;
            for _ in 0..load.rows_per_transaction {
                let at = rows * 1_013 % (self.bytes.len() - length);
                insert.execute(params![rows % BASELINE_SESSIONS, rows, &self.bytes[at..at + length]])?;
                rows += 1;
            }
            commit.execute([])?;
        }
        Ok(rows as f64 / start.elapsed().as_secs_f64())
    }

    /// Measures rows per second of group commit: each writer waits until its row is durable before it sends the next.
    pub(crate) async fn group_commits_per_s(&self, writers: usize, row_bytes: usize, time: Duration) -> Result<f64> {
        let db = Connection::open(self.folder.database_file())?;
        db.execute_batch("PRAGMA synchronous = FULL")?;
        let length = row_bytes.min(self.bytes.len() / 2);
        let (bytes, (queue, pending)) = (self.bytes.clone(), mpsc::channel());
        let writer = std::thread::spawn(move || run_group_commit_writer(&db, &bytes, length, &pending));
        let (start, offsets) = (Instant::now(), self.bytes.len() - length);
        let mut tasks = JoinSet::new();
        for task in 0..writers {
            let queue: mpsc::Sender<PendingSqliteBaselineRow> = queue.clone();
            tasks.spawn(async move {
                let mut rows = 0usize;
                while start.elapsed() < time {
                    let (durable, durable_receiver) = oneshot::channel();
                    queue.send(PendingSqliteBaselineRow {
                        session: task,
                        seq: rows,
                        offset: (rows * 1_013 + task) % offsets,
                        durable,
                    })?;
                    durable_receiver.await?;
                    rows += 1;
                }
                anyhow::Ok(rows)
            });
        }
        drop(queue);
        let mut rows = 0;
        while let Some(written) = tasks.join_next().await {
            rows += written?.context("the writer has stopped")?;
        }
        let seconds = start.elapsed().as_secs_f64();
        writer.join().map_err(|_| anyhow!("the writer panicked"))??;
        Ok(rows as f64 / seconds)
    }
}

/// A row that a writer waits for.
struct PendingSqliteBaselineRow {
    session: usize,
    seq: usize,
    offset: usize,
    durable: oneshot::Sender<()>,
}

/// Writes all pending rows in one transaction, repeatedly.
fn run_group_commit_writer(
    db: &Connection,
    bytes: &[u8],
    length: usize,
    pending: &mpsc::Receiver<PendingSqliteBaselineRow>,
) -> Result<()> {
    let mut insert = db.prepare(INSERT_ROW_SQL)?;
    let mut begin = db.prepare("BEGIN IMMEDIATE")?;
    let mut commit = db.prepare("COMMIT")?;
    while let Ok(first) = pending.recv() {
        let group: Vec<PendingSqliteBaselineRow> = std::iter::once(first).chain(pending.try_iter()).collect();
        begin.execute([])?;
        for row in &group {
            insert.execute(params![row.session, row.seq, &bytes[row.offset..row.offset + length]])?;
        }
        commit.execute([])?;
        for row in group {
            // The writer may be gone.
            let _ = row.durable.send(());
        }
    }
    Ok(())
}
