//! One measurement of one kind, in a process of its own. Each gives rows: objects with the fields that
//! `docs/benchmarks.md` names.

mod concurrent_sessions;
mod growth;
mod http;
mod memory;
mod prompt_sizes;
mod reads;
mod sequential_turns;
mod sqlite_baseline;
mod startup;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bench_engine::StoreKind;
use crate::bench_flows::TurnShape;

/// A result: named figures.
pub type MetricRow = Map<String, Value>;

/// A measurement to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Of what kind.
    pub kind: MeasurementKind,
    /// Where journals are kept.
    pub store_kind: StoreKind,
    /// What a turn consists of.
    pub shape: TurnShape,
    /// Turns of a session.
    pub turns: usize,
    /// How often it is repeated.
    pub repetitions: usize,
    /// How many sessions.
    pub sessions: usize,
    /// Where databases go.
    pub dir: PathBuf,
}

/// Kinds of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementKind {
    /// One session after the other.
    Turns,
    /// Many sessions at once.
    Concurrent,
    /// One session that grows long. Leaves its database for [`What::Opening`], [`What::Resume`] and [`What::Reading`].
    Growth,
    /// Many sessions that have had a turn and rest.
    Idle,
    /// Many sessions whose calls are under way.
    InFlight,
    /// From the start of a process to the end of its first turn.
    ColdStart,
    /// From the start of a process to the end of a long session's next turn.
    Resume,
    /// A long session opened by an engine that does not know it.
    Open,
    /// Reads of a long session.
    Read,
    /// Turns through HTTP, beside the same in process.
    Http,
    /// Open streams with events arriving in all of them.
    Streams,
    /// What an assistant's nodes are shown, turn by turn.
    Prompts,
}

impl Measurement {
    /// Its name, for choosing and for progress.
    pub fn name(&self) -> String {
        let what = match self.kind {
            MeasurementKind::Turns => "turns",
            MeasurementKind::Concurrent => "conc",
            MeasurementKind::Growth => "grow",
            MeasurementKind::Idle => "idle",
            MeasurementKind::InFlight => "inflight",
            MeasurementKind::ColdStart => "cold",
            MeasurementKind::Resume => "resume",
            MeasurementKind::Open => "open",
            MeasurementKind::Read => "read",
            MeasurementKind::Http => "http",
            MeasurementKind::Streams => "streams",
            MeasurementKind::Prompts => "prompts",
        };
        format!("{what}.{}.{}", self.store_kind.name(), self.shape.flow_name())
    }

    /// What a grown session's database is called.
    pub fn long_session_name(&self) -> String {
        format!("long-{}", self.shape.flow_name())
    }

    /// A row about one figure of this job.
    fn metric_row(&self, metric: &str, fields: Value) -> MetricRow {
        let mut row = MetricRow::new();
        row.insert("peer".to_owned(), json!("segue"));
        row.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        row.insert("store".to_owned(), json!(self.store_kind.name()));
        row.insert("opt".to_owned(), json!(""));
        row.insert("shape".to_owned(), json!(self.shape.flow_name()));
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
pub async fn run_measurement(job: &Measurement) -> Result<Vec<MetricRow>> {
    match job.kind {
        MeasurementKind::Turns => sequential_turns::measure_sequential_turns(job).await,
        MeasurementKind::Concurrent => concurrent_sessions::measure_concurrent_sessions(job).await,
        MeasurementKind::Growth => growth::measure_growth(job).await,
        MeasurementKind::Idle => memory::measure_idle_sessions(job).await,
        MeasurementKind::InFlight => memory::measure_in_flight_calls(job).await,
        MeasurementKind::ColdStart => startup::measure_cold_start(job).await,
        MeasurementKind::Resume => startup::measure_resume(job).await,
        MeasurementKind::Open => startup::measure_open(job).await,
        MeasurementKind::Read => reads::measure_reads(job).await,
        MeasurementKind::Http => http::measure_http_turns(job).await,
        MeasurementKind::Streams => http::measure_event_streams(job).await,
        MeasurementKind::Prompts => prompt_sizes::measure_prompt_sizes(job).await,
    }
}

/// Milliseconds since `start`.
fn elapsed_ms(start: std::time::Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
