//! Runs one measurement. Each gives rows: JSON objects with named figures.

mod catalog;
mod concurrent_sessions;
mod growth;
mod http;
mod memory;
mod postgres_baseline;
mod postgres_nodes;
mod prompt_sizes;
mod reads;
mod sequential_turns;
mod sqlite_baseline;
mod startup;
mod token_economy;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::bench_engine::StoreKind;
use crate::bench_flows::BenchTurnShape;

/// The result of a measurement: named figures.
pub(crate) type BenchMeasurementFigures = Map<String, Value>;

/// A measurement to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchMeasurementSpec {
    pub kind: BenchWorkloadKind,
    pub store_kind: StoreKind,
    pub shape: BenchTurnShape,
    /// Turns per session.
    pub turns: usize,
    pub repetitions: usize,
    pub sessions: usize,
    /// The folder for databases.
    pub dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchWorkloadKind {
    /// Sessions one after the other.
    Turns,
    /// Concurrent sessions.
    Concurrent,
    /// One session that grows long. Its database stays for [`Open`](Self::Open), [`Resume`](Self::Resume) and
    /// [`Read`](Self::Read).
    Growth,
    /// Many parked sessions with one turn each.
    Idle,
    /// Many sessions with calls in flight.
    InFlight,
    /// From the start of a process to the end of its first turn.
    ColdStart,
    /// From the start of a process to the end of a long session's next turn.
    Resume,
    /// A long session opened by a new engine.
    Open,
    /// Reads of a long session.
    Read,
    /// Turns over HTTP, compared with turns in process.
    Http,
    /// Open event streams with a turn in each session.
    Streams,
    /// Prompt sizes of the assistant's nodes, turn by turn.
    Prompts,
    /// Prompt tokens of a long conversation with the concierge, compared with the full history.
    Tokens,
    /// The session list, the search, readiness and the change feed with few and with many sessions.
    Catalog,
    /// One node and two nodes on one database.
    Nodes,
    /// The cost of idle sessions for a node and its database.
    IdleCost,
}

impl BenchMeasurementSpec {
    /// Returns the name of the measurement, for `--only` and for progress messages.
    pub(crate) fn name(&self) -> String {
        let kind_name = match self.kind {
            BenchWorkloadKind::Turns => "turns",
            BenchWorkloadKind::Concurrent => "conc",
            BenchWorkloadKind::Growth => "grow",
            BenchWorkloadKind::Idle => "idle",
            BenchWorkloadKind::InFlight => "inflight",
            BenchWorkloadKind::ColdStart => "cold",
            BenchWorkloadKind::Resume => "resume",
            BenchWorkloadKind::Open => "open",
            BenchWorkloadKind::Read => "read",
            BenchWorkloadKind::Http => "http",
            BenchWorkloadKind::Streams => "streams",
            BenchWorkloadKind::Prompts => "prompts",
            BenchWorkloadKind::Tokens => "tokens",
            BenchWorkloadKind::Catalog => "catalog",
            BenchWorkloadKind::Nodes => "nodes",
            BenchWorkloadKind::IdleCost => "idlecost",
        };
        format!("{kind_name}.{}.{}", self.store_kind.name(), self.shape.flow_name())
    }

    /// Returns the name of the long session's database.
    pub(crate) fn long_session_name(&self) -> String {
        format!("long-{}", self.shape.flow_name())
    }

    /// Creates a row of this measurement.
    fn metric_row(&self, metric: &str, fields: Value) -> BenchMeasurementFigures {
        let mut row = BenchMeasurementFigures::new();
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

/// Runs a measurement.
///
/// # Errors
/// The engine, the store or the disk failed.
pub(crate) async fn run_measurement(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    match measurement.kind {
        BenchWorkloadKind::Turns => sequential_turns::measure_sequential_turns(measurement).await,
        BenchWorkloadKind::Concurrent => concurrent_sessions::measure_concurrent_sessions(measurement).await,
        BenchWorkloadKind::Growth => growth::measure_session_growth(measurement).await,
        BenchWorkloadKind::Idle => memory::measure_idle_sessions(measurement).await,
        BenchWorkloadKind::InFlight => memory::measure_in_flight_calls(measurement).await,
        BenchWorkloadKind::ColdStart => startup::measure_cold_start(measurement).await,
        BenchWorkloadKind::Resume => startup::measure_resume(measurement).await,
        BenchWorkloadKind::Open => startup::measure_session_load(measurement).await,
        BenchWorkloadKind::Read => reads::measure_message_reads(measurement).await,
        BenchWorkloadKind::Http => http::measure_http_turns(measurement).await,
        BenchWorkloadKind::Streams => http::measure_event_streams(measurement).await,
        BenchWorkloadKind::Prompts => prompt_sizes::measure_prompt_sizes(measurement).await,
        BenchWorkloadKind::Tokens => token_economy::measure_token_economy(measurement).await,
        BenchWorkloadKind::Catalog => catalog::measure_session_catalog(measurement).await,
        BenchWorkloadKind::Nodes => postgres_nodes::measure_one_and_two_nodes(measurement).await,
        BenchWorkloadKind::IdleCost => postgres_nodes::measure_idle_cost(measurement).await,
    }
}

/// Returns the milliseconds since `start`.
fn elapsed_ms(start: std::time::Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
