//! Concurrent sessions on one store, compared with plain SQLite: group commit of as many bytes for as many writers, and
//! a bare insert loop with transactions and rows of the same size.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::{Seq, SessionId};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::sqlite_baseline::{SqliteBaseline, SqliteBaselineLoad};
use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms, postgres_nodes};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn, StoreKind};
use crate::machine::{cpu_ms, rss_mb};
use crate::stats::{median, min_and_max, round_significant, summarize_samples};

/// Turns of one session before a new one replaces it.
const TURNS_PER_SESSION: usize = 20;
/// More records than a session has.
const RECORDS_PAGE: usize = 10_000;
pub(super) const BASELINE_DURATION: Duration = Duration::from_millis(1_000);

pub(crate) async fn measure_concurrent_sessions(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    if measurement.store_kind == StoreKind::Postgres {
        return postgres_nodes::measure_postgres_sessions(measurement).await;
    }
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "conc", BenchFolderRetention::Delete)?;
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    let baseline = match measurement.store_kind {
        StoreKind::Sqlite => Some(SqliteBaseline::create(&measurement.dir)?),
        StoreKind::Memory | StoreKind::Postgres => None,
    };
    let mut concurrent = ConcurrentSessionsBench::new(measurement, bench_engine);
    let mut stats = ConcurrentSessionsStats::default();
    let size = if baseline.is_some() { Some(concurrent.measure_commit_size(&database_folder).await?) } else { None };
    for _ in 0..measurement.repetitions {
        let before = match (&baseline, size) {
            (Some(baseline), Some(size)) => {
                let baseline_rate =
                    baseline.group_commits_per_s(measurement.sessions, size.submitted_bytes, BASELINE_DURATION).await?;
                Some((
                    baseline,
                    size,
                    baseline_rate,
                    database_folder.count_transactions()?,
                    database_folder.count_commits()?,
                ))
            }
            _ => None,
        };
        let (cpu, start) = (cpu_ms(), Instant::now());
        let ConcurrentSessionsRunResult { turn_times_ms, saturated_rate } =
            concurrent.run_turns(measurement.turns).await?;
        let seconds = start.elapsed().as_secs_f64();
        stats.cpu_ms += cpu_ms() - cpu;
        stats.rates.push(turn_times_ms.len() as f64 / seconds);
        stats.saturated_rates.push(saturated_rate);
        if let Some((baseline, size, limit_before, transactions, commits)) = before {
            let commits = (database_folder.count_commits()? - commits) as f64;
            let group = commits / (database_folder.count_transactions()? - transactions).max(1) as f64;
            let load = SqliteBaselineLoad {
                rows_per_transaction: (group.round() as usize).max(1),
                row_bytes: size.stored_bytes,
            };
            let commits_per_turn = commits / turn_times_ms.len() as f64;
            // Measured before and after, because the machine may have become faster or slower meanwhile.
            let limit_after =
                baseline.group_commits_per_s(measurement.sessions, size.submitted_bytes, BASELINE_DURATION).await?;
            let baseline_rate = f64::midpoint(limit_before, limit_after) / commits_per_turn;
            stats.group_sizes.push(group);
            stats.baseline_rates.push(baseline_rate);
            stats.baseline_shares.push(saturated_rate / baseline_rate);
            stats
                .bulk_insert_shares
                .push(saturated_rate * commits_per_turn / baseline.rows_per_s(load, BASELINE_DURATION)?);
            stats.commits_per_turn = commits_per_turn;
        }
        stats.turn_times.extend(turn_times_ms);
    }
    let rss = rss_mb();
    concurrent.engine.stop().await;
    let mut fields = stats.to_fields(measurement);
    fields.insert("rss_mb".to_owned(), json!(round_significant(rss)));
    if let Some(size) = size {
        fields.insert("row_bytes".to_owned(), json!(size.submitted_bytes));
        fields.insert("kept_bytes".to_owned(), json!(size.stored_bytes));
    }
    Ok(vec![measurement.metric_row("conc", Value::Object(fields))])
}

/// The size of an average commit.
#[derive(Debug, Clone, Copy)]
struct AverageCommitSize {
    /// As submitted to the store.
    submitted_bytes: usize,
    /// As stored in the file.
    stored_bytes: usize,
}

pub(super) struct ConcurrentSessionsBench<'a> {
    measurement: &'a BenchMeasurementSpec,
    pub(super) engine: BenchEngine,
    run_number: usize,
}

/// The result of one run of all sessions.
pub(super) struct ConcurrentSessionsRunResult {
    pub(super) turn_times_ms: Vec<f64>,
    /// Turns per second while all sessions were working. Towards the end some have finished, while the baseline is
    /// measured at full load only.
    pub(super) saturated_rate: f64,
}

impl<'a> ConcurrentSessionsBench<'a> {
    pub(super) fn new(measurement: &'a BenchMeasurementSpec, engine: BenchEngine) -> Self {
        Self { measurement, engine, run_number: 0 }
    }

    /// Returns the first session of the last run.
    pub(super) fn first_session(&self) -> SessionId {
        SessionId::from(format!("c{}-0-0", self.run_number))
    }

    /// Runs `turns` turns in each of the concurrent sessions.
    pub(super) async fn run_turns(&mut self, turns: usize) -> Result<ConcurrentSessionsRunResult> {
        self.run_number += 1;
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for index in 0..self.measurement.sessions {
            let (bench_engine, name) = (self.engine.clone(), format!("c{}-{index}", self.run_number));
            tasks.spawn(async move {
                let mut turn_times_ms = Vec::with_capacity(turns);
                let mut ends = Vec::with_capacity(turns);
                for turn in 0..turns {
                    let session = SessionId::from(format!("{name}-{}", turn / TURNS_PER_SESSION));
                    let start = Instant::now();
                    bench_engine.run_turn(&session, FirstOrLaterTurn::from_index(turn % TURNS_PER_SESSION)).await?;
                    turn_times_ms.push(elapsed_ms(start));
                    ends.push(elapsed_ms(started));
                }
                anyhow::Ok((turn_times_ms, ends))
            });
        }
        let mut all_times = Vec::with_capacity(turns * self.measurement.sessions);
        let (mut all_ends, mut first_end) = (Vec::with_capacity(all_times.capacity()), f64::INFINITY);
        while let Some(done) = tasks.join_next().await {
            let (turn_times_ms, ends) = done??;
            first_end = first_end.min(ends.last().copied().unwrap_or(f64::INFINITY));
            all_times.extend(turn_times_ms);
            all_ends.extend(ends);
        }
        let turns_before_first_end = all_ends.iter().filter(|end| **end <= first_end).count();
        Ok(ConcurrentSessionsRunResult {
            turn_times_ms: all_times,
            saturated_rate: turns_before_first_end as f64 * 1_000.0 / first_end,
        })
    }

    /// Warms up, and returns the size of a commit.
    async fn measure_commit_size(&mut self, folder: &BenchDatabaseFolder) -> Result<AverageCommitSize> {
        let (commits, bytes) = (folder.count_commits()?, folder.checkpointed_bytes()?);
        self.run_turns(TURNS_PER_SESSION).await?;
        let (commits, bytes) = (folder.count_commits()? - commits, folder.checkpointed_bytes()? - bytes);
        let commits = usize::try_from(commits)?.max(1);
        let store = self.engine.engine.store();
        let records = store.read_records(&self.first_session(), Seq(0), RECORDS_PAGE).await?;
        let events: usize = records.iter().map(|record| record.bytes.len()).sum();
        let texts = self.measurement.shape.new_text_bytes() * TURNS_PER_SESSION;
        let submitted_bytes = (events + texts) * self.measurement.sessions / commits;
        Ok(AverageCommitSize { submitted_bytes, stored_bytes: usize::try_from(bytes)? / commits })
    }
}

#[derive(Default)]
pub(super) struct ConcurrentSessionsStats {
    pub(super) turn_times: Vec<f64>,
    pub(super) rates: Vec<f64>,
    pub(super) saturated_rates: Vec<f64>,
    pub(super) baseline_rates: Vec<f64>,
    pub(super) baseline_shares: Vec<f64>,
    pub(super) bulk_insert_shares: Vec<f64>,
    pub(super) group_sizes: Vec<f64>,
    pub(super) commits_per_turn: f64,
    pub(super) cpu_ms: f64,
}

impl ConcurrentSessionsStats {
    pub(super) fn to_fields(&self, measurement: &BenchMeasurementSpec) -> BenchMeasurementFigures {
        let fields = json!({
            "procs": 1, "sessions": measurement.sessions, "turns": measurement.turns, "reps": measurement.repetitions,
            "turns_per_s": round_significant(median(&self.rates)), "range": min_and_max(&self.rates), "lat_ms": summarize_samples(&self.turn_times),
            "cpu_ms": round_significant(self.cpu_ms / self.turn_times.len() as f64), "errors": 0,
        });
        let mut fields = fields.as_object().cloned().unwrap_or_default();
        if !self.baseline_shares.is_empty() {
            fields.insert("group".to_owned(), json!(round_significant(median(&self.group_sizes))));
            fields.insert("full_turns_per_s".to_owned(), json!(round_significant(median(&self.saturated_rates))));
            fields.insert("commits_per_turn".to_owned(), json!(round_significant(self.commits_per_turn)));
            fields.insert("raw_turns_per_s".to_owned(), json!(round_significant(median(&self.baseline_rates))));
            fields.insert("of_raw".to_owned(), json!(round_significant(median(&self.baseline_shares))));
            fields.insert("of_raw_range".to_owned(), min_and_max(&self.baseline_shares));
        }
        if !self.bulk_insert_shares.is_empty() {
            fields.insert("of_bare".to_owned(), json!(round_significant(median(&self.bulk_insert_shares))));
        }
        fields
    }
}
