//! What the machine could do at best: plain SQLite, one table, as many rows of as many bytes, as many rows a transaction.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params};

use crate::bed::{Ground, Keep};

/// A bare loop over SQLite with the engine's own settings for durability.
#[derive(Debug)]
pub struct Raw {
    db: Connection,
    bytes: Vec<u8>,
    _ground: Ground,
}

/// What a bare loop is to imitate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Rows a transaction.
    pub group: usize,
    /// Bytes a row.
    pub row_bytes: usize,
}

impl Raw {
    /// A new table in a file of its own.
    pub fn open(dir: &Path) -> Result<Self> {
        let ground = Ground::fresh(dir, "raw", Keep::No)?;
        let db = Connection::open(ground.file())?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        )?;
        // Bytes that do not repeat, though SQLite would not mind.
        let bytes = (0..1u32 << 18).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        Ok(Self { db, bytes, _ground: ground })
    }

    /// Rows a second, over at least `time`.
    pub fn rows_per_s(&self, load: Load, time: Duration) -> Result<f64> {
        let mut insert = self.db.prepare("INSERT INTO rows (body) VALUES (?1)")?;
        let mut begin = self.db.prepare("BEGIN IMMEDIATE")?;
        let mut commit = self.db.prepare("COMMIT")?;
        let length = load.row_bytes.min(self.bytes.len() / 2);
        let (mut rows, start) = (0usize, Instant::now());
        while start.elapsed() < time {
            begin.execute([])?;
            for _ in 0..load.group {
                let at = rows * 1_013 % (self.bytes.len() - length);
                insert.execute(params![&self.bytes[at..at + length]])?;
                rows += 1;
            }
            commit.execute([])?;
        }
        Ok(rows as f64 / start.elapsed().as_secs_f64())
    }
}
