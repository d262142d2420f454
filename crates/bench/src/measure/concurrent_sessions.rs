//! Many sessions at once on one store, and beside them plain SQLite: group commit of as many bytes for as many writers, and
//! a bare loop that nobody waits for, with transactions and rows as large as theirs became.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::{Seq, SessionId};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::sqlite_baseline::{BaselineLoad, SqliteBaseline};
use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, StoreKind, TurnPosition};
use crate::machine::{cpu_ms, rss_mb};
use crate::stats::{median, min_and_max, round_significant, summarize_samples};

/// Turns of one session before the next takes its place.
const TURNS_PER_SESSION: usize = 20;
/// More than a session of a wave has.
const RECORDS_PAGE: usize = 10_000;
const BASELINE_DURATION: Duration = Duration::from_millis(1_000);

pub async fn measure_concurrent_sessions(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "conc", FolderRetention::Delete)?;
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    let raw = match job.store_kind {
        StoreKind::Sqlite => Some(SqliteBaseline::create(&job.dir)?),
        StoreKind::Memory => None,
    };
    let mut crowd = ConcurrentSessions { job, engine: bed, run_number: 0 };
    let mut tally = ConcurrentStats::default();
    let size = if raw.is_some() { Some(crowd.measure_commit_size(&ground).await?) } else { None };
    for _ in 0..job.repetitions {
        let before = match (&raw, size) {
            (Some(raw), Some(size)) => {
                let limit = raw.group_commits_per_s(job.sessions, size.submitted_bytes, BASELINE_DURATION).await?;
                Some((raw, size, limit, ground.count_transactions()?, ground.count_commits()?))
            }
            _ => None,
        };
        let (cpu, start) = (cpu_ms(), Instant::now());
        let ConcurrentRun { turn_times_ms: times, saturated_rate: full_rate } = crowd.run_turns(job.turns).await?;
        let seconds = start.elapsed().as_secs_f64();
        tally.cpu_ms += cpu_ms() - cpu;
        tally.rates.push(times.len() as f64 / seconds);
        tally.saturated_rates.push(full_rate);
        if let Some((raw, size, limit_before, transactions, commits)) = before {
            let commits = (ground.count_commits()? - commits) as f64;
            let group = commits / (ground.count_transactions()? - transactions).max(1) as f64;
            let load =
                BaselineLoad { rows_per_transaction: (group.round() as usize).max(1), row_bytes: size.stored_bytes };
            let commits_per_turn = commits / times.len() as f64;
            // Before and after, since the machine may have become faster or slower meanwhile.
            let limit_after = raw.group_commits_per_s(job.sessions, size.submitted_bytes, BASELINE_DURATION).await?;
            let limit = f64::midpoint(limit_before, limit_after) / commits_per_turn;
            tally.group_sizes.push(group);
            tally.baseline_rates.push(limit);
            tally.baseline_shares.push(full_rate / limit);
            tally.bulk_insert_shares.push(full_rate * commits_per_turn / raw.rows_per_s(load, BASELINE_DURATION)?);
            tally.commits_per_turn = commits_per_turn;
        }
        tally.times.extend(times);
    }
    let rss = rss_mb();
    crowd.engine.stop().await;
    let mut fields = tally.to_fields(job);
    fields.insert("rss_mb".to_owned(), json!(round_significant(rss)));
    if let Some(size) = size {
        fields.insert("row_bytes".to_owned(), json!(size.submitted_bytes));
        fields.insert("kept_bytes".to_owned(), json!(size.stored_bytes));
    }
    Ok(vec![job.metric_row("conc", Value::Object(fields))])
}

/// How many bytes a commit has.
#[derive(Debug, Clone, Copy)]
struct CommitSize {
    /// As the engine brings it to the store.
    submitted_bytes: usize,
    /// In the file.
    stored_bytes: usize,
}

struct ConcurrentSessions<'j> {
    job: &'j Measurement,
    engine: BenchEngine,
    run_number: usize,
}

/// What all places did together.
struct ConcurrentRun {
    /// How long each turn took.
    turn_times_ms: Vec<f64>,
    /// Turns a second while all of them were at work: at the end some wait for others, which a limit that is measured over a
    /// span of time knows nothing of.
    saturated_rate: f64,
}

impl ConcurrentSessions<'_> {
    /// Has every place make `turns` turns.
    async fn run_turns(&mut self, turns: usize) -> Result<ConcurrentRun> {
        self.run_number += 1;
        let begun = Instant::now();
        let mut places = JoinSet::new();
        for place in 0..self.job.sessions {
            let (bed, name) = (self.engine.clone(), format!("c{}-{place}", self.run_number));
            places.spawn(async move {
                let mut times = Vec::with_capacity(turns);
                let mut ends = Vec::with_capacity(turns);
                for turn in 0..turns {
                    let session = SessionId::from(format!("{name}-{}", turn / TURNS_PER_SESSION));
                    let start = Instant::now();
                    bed.run_turn(&session, TurnPosition::from_index(turn % TURNS_PER_SESSION)).await?;
                    times.push(elapsed_ms(start));
                    ends.push(elapsed_ms(begun));
                }
                anyhow::Ok((times, ends))
            });
        }
        let mut all = Vec::with_capacity(turns * self.job.sessions);
        let (mut all_ends, mut first_out) = (Vec::with_capacity(all.capacity()), f64::INFINITY);
        while let Some(done) = places.join_next().await {
            let (times, ends) = done??;
            first_out = first_out.min(ends.last().copied().unwrap_or(f64::INFINITY));
            all.extend(times);
            all_ends.extend(ends);
        }
        let ended = all_ends.iter().filter(|end| **end <= first_out).count();
        Ok(ConcurrentRun { turn_times_ms: all, saturated_rate: ended as f64 * 1_000.0 / first_out })
    }

    /// Warms up, and says how large a commit is.
    async fn measure_commit_size(&mut self, folder: &DatabaseFolder) -> Result<CommitSize> {
        let (commits, bytes) = (folder.count_commits()?, folder.checkpointed_bytes()?);
        self.run_turns(TURNS_PER_SESSION).await?;
        let (commits, bytes) = (folder.count_commits()? - commits, folder.checkpointed_bytes()? - bytes);
        let commits = usize::try_from(commits)?.max(1);
        let store = self.engine.engine.store();
        let records =
            store.read_records(&SessionId::from(format!("c{}-0-0", self.run_number)), Seq(0), RECORDS_PAGE).await?;
        let events: usize = records.iter().map(|record| record.bytes.len()).sum();
        let texts = self.job.shape.new_text_bytes() * TURNS_PER_SESSION;
        let given = (events + texts) * self.job.sessions / commits;
        Ok(CommitSize { submitted_bytes: given, stored_bytes: usize::try_from(bytes)? / commits })
    }
}

#[derive(Default)]
struct ConcurrentStats {
    times: Vec<f64>,
    rates: Vec<f64>,
    saturated_rates: Vec<f64>,
    baseline_rates: Vec<f64>,
    baseline_shares: Vec<f64>,
    bulk_insert_shares: Vec<f64>,
    group_sizes: Vec<f64>,
    commits_per_turn: f64,
    cpu_ms: f64,
}

impl ConcurrentStats {
    fn to_fields(&self, job: &Measurement) -> MetricRow {
        let fields = json!({
            "procs": 1, "sessions": job.sessions, "turns": job.turns, "reps": job.repetitions,
            "turns_per_s": round_significant(median(&self.rates)), "range": min_and_max(&self.rates), "lat_ms": summarize_samples(&self.times),
            "cpu_ms": round_significant(self.cpu_ms / self.times.len() as f64), "errors": 0,
        });
        let mut fields = fields.as_object().cloned().unwrap_or_default();
        if !self.baseline_shares.is_empty() {
            fields.insert("group".to_owned(), json!(round_significant(median(&self.group_sizes))));
            fields.insert("full_turns_per_s".to_owned(), json!(round_significant(median(&self.saturated_rates))));
            fields.insert("commits_per_turn".to_owned(), json!(round_significant(self.commits_per_turn)));
            fields.insert("raw_turns_per_s".to_owned(), json!(round_significant(median(&self.baseline_rates))));
            fields.insert("of_raw".to_owned(), json!(round_significant(median(&self.baseline_shares))));
            fields.insert("of_raw_range".to_owned(), min_and_max(&self.baseline_shares));
            fields.insert("of_bare".to_owned(), json!(round_significant(median(&self.bulk_insert_shares))));
        }
        fields
    }
}
