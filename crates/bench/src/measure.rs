//! One measurement of one kind, in a process of its own. Each gives rows: objects with the fields that
//! `docs/benchmarks.md` names.

mod growth;
mod http;
mod memory;
mod opening;
mod prompts;
mod raw;
mod reading;
mod together;
mod turns;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bed::Keeper;
use crate::flows::Shape;

/// A result: named figures.
pub type Row = Map<String, Value>;

/// A measurement to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Of what kind.
    pub what: What,
    /// Where journals are kept.
    pub keeper: Keeper,
    /// What a turn consists of.
    pub shape: Shape,
    /// Turns of a session.
    pub turns: usize,
    /// How often it is repeated.
    pub reps: usize,
    /// How many sessions.
    pub sessions: usize,
    /// Where databases go.
    pub dir: PathBuf,
}

/// Kinds of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// One session after the other.
    Turns,
    /// Many sessions at once.
    Together,
    /// One session that grows long. Leaves its database for [`What::Opening`], [`What::Resume`] and [`What::Reading`].
    Growth,
    /// Many sessions that have had a turn and rest.
    Idle,
    /// Many sessions whose calls are under way.
    Inflight,
    /// From the start of a process to the end of its first turn.
    Cold,
    /// From the start of a process to the end of a long session's next turn.
    Resume,
    /// A long session opened by an engine that does not know it.
    Opening,
    /// Reads of a long session.
    Reading,
    /// What an assistant's nodes are shown, turn by turn.
    Prompts,
    /// Turns through HTTP, beside the same in process.
    Http,
    /// Open streams with events arriving in all of them.
    Streams,
}

impl Job {
    /// Its name, for choosing and for progress.
    pub fn name(&self) -> String {
        let what = match self.what {
            What::Turns => "turns",
            What::Together => "conc",
            What::Growth => "grow",
            What::Idle => "idle",
            What::Inflight => "inflight",
            What::Cold => "cold",
            What::Resume => "resume",
            What::Opening => "open",
            What::Reading => "read",
            What::Prompts => "prompts",
            What::Http => "http",
            What::Streams => "streams",
        };
        format!("{what}.{}.{}", self.keeper.name(), self.shape.name())
    }

    /// What a grown session's database is called.
    pub fn long_name(&self) -> String {
        format!("long-{}", self.shape.name())
    }

    /// A row about one figure of this job.
    fn row(&self, metric: &str, fields: Value) -> Row {
        let mut row = Row::new();
        row.insert("peer".to_owned(), json!("segue"));
        row.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        row.insert("store".to_owned(), json!(self.keeper.name()));
        row.insert("opt".to_owned(), json!(""));
        row.insert("shape".to_owned(), json!(self.shape.name()));
        row.insert("metric".to_owned(), json!(metric));
        if let Value::Object(fields) = fields {
            row.extend(fields);
        }
        row
    }
}

/// Measures.
///
/// # Errors
/// The engine, the store or the disk failed.
pub async fn run(job: &Job) -> Result<Vec<Row>> {
    match job.what {
        What::Turns => turns::measure(job).await,
        What::Together => together::measure(job).await,
        What::Growth => growth::measure(job).await,
        What::Idle => memory::idle(job).await,
        What::Inflight => memory::inflight(job).await,
        What::Cold => opening::cold(job).await,
        What::Resume => opening::resume(job).await,
        What::Opening => opening::open(job).await,
        What::Reading => reading::measure(job).await,
        What::Prompts => prompts::measure(job).await,
        What::Http => http::turns(job).await,
        What::Streams => http::streams(job).await,
    }
}

/// Milliseconds since `start`.
fn ms_since(start: std::time::Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
