//! What sessions cost in memory: at rest, and with a call under way.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use segue_store::SessionQuery;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, TurnPosition};
use crate::instant_model::AnswerGate;
use crate::machine::{cpu_ms, open_descriptor_count, rss_mb, thread_count};
use crate::stats::{round_significant, summarize_samples};

/// Turns at once while sessions are made.
const CONCURRENT_TURNS: usize = 64;
/// A process that uses less CPU than this in a look has settled.
const QUIET_CPU_MS: f64 = 5.0;
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const QUIET_POLLS: usize = 4;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
const LIST_REPETITIONS: usize = 5;

/// Sessions that have had one turn each and rest.
pub async fn measure_idle_sessions(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "idle", FolderRetention::Delete)?;
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    bed.run_turns(&"warm".into(), 1).await?;
    let (rss, fds, start) = (rss_mb(), open_descriptor_count(), Instant::now());
    let mut peak: f64 = 0.0;
    let names: Vec<usize> = (0..job.sessions).collect();
    for some in names.chunks(CONCURRENT_TURNS) {
        let mut turns = JoinSet::new();
        for name in some {
            let (bed, session) = (bed.clone(), SessionId::from(format!("i{name}")));
            turns.spawn(async move { bed.run_turn(&session, TurnPosition::First).await });
        }
        while let Some(turn) = turns.join_next().await {
            turn??;
        }
        peak = peak.max(rss_mb());
    }
    let (done, seconds) = (rss_mb(), start.elapsed().as_secs_f64());
    wait_until_quiet().await;
    let settled = rss_mb();
    let idle = job.metric_row(
        "idle",
        json!({
            "sessions": job.sessions, "done": job.sessions, "rss_mb": round_significant(settled), "base_mb": round_significant(rss),
            "rss_mb_when_done": round_significant(done), "rss_mb_peak": round_significant(peak.max(done)),
            "kb_per_session": round_significant((settled - rss) * 1e3 / job.sessions as f64), "fds": open_descriptor_count() - fds,
            "threads": thread_count(), "turns_per_s": round_significant(job.sessions as f64 / seconds),
        }),
    );
    let mut lists = Vec::new();
    let mut listed = 0;
    for _ in 0..LIST_REPETITIONS {
        let start = Instant::now();
        listed = bed.engine.list_sessions(&SessionQuery::newest(job.sessions)).await?.entries.len();
        lists.push(elapsed_ms(start));
    }
    bed.stop().await;
    let mut fields = summarize_samples(&lists);
    fields.insert("sessions".to_owned(), json!(listed));
    Ok(vec![idle, job.metric_row("list", Value::Object(fields))])
}

/// Sessions whose first call is under way.
pub async fn measure_in_flight_calls(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "inflight", FolderRetention::Delete)?;
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    bed.run_turns(&"warm".into(), 1).await?;
    let (rss, fds) = (rss_mb(), open_descriptor_count());
    bed.model.set_gate(AnswerGate::Closed);
    let start = Instant::now();
    let mut turns = JoinSet::new();
    for name in 0..job.sessions {
        let (bed, session) = (bed.clone(), SessionId::from(format!("f{name}")));
        turns.spawn(async move { bed.run_turn(&session, TurnPosition::First).await });
    }
    let calls = job.sessions * job.shape.concurrent_calls();
    while bed.model.waiting_calls() < calls && start.elapsed() < SETTLE_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let parked = start.elapsed().as_secs_f64();
    wait_until_quiet().await;
    let (running, open_fds, running_threads) = (rss_mb(), open_descriptor_count(), thread_count());
    bed.model.set_gate(AnswerGate::Open);
    let drain = Instant::now();
    let mut errors = 0;
    while let Some(turn) = turns.join_next().await {
        errors += usize::from(turn?.is_err());
    }
    let drained = drain.elapsed().as_secs_f64();
    bed.stop().await;
    Ok(vec![job.metric_row(
        "inflight",
        json!({
            "sessions": job.sessions, "rss_mb": round_significant(running), "base_mb": round_significant(rss),
            "kb_per_session": round_significant((running - rss) * 1e3 / job.sessions as f64), "fds": open_fds - fds,
            "threads": running_threads, "park_s": round_significant(parked), "drain_s": round_significant(drained), "errors": errors,
        }),
    )])
}

/// Waits until the engine has done what it does afterwards.
async fn wait_until_quiet() {
    let (start, mut quiet) = (Instant::now(), 0);
    while quiet < QUIET_POLLS && start.elapsed() < SETTLE_TIMEOUT {
        let before = cpu_ms();
        tokio::time::sleep(POLL_INTERVAL).await;
        quiet = if cpu_ms() - before < QUIET_CPU_MS { quiet + 1 } else { 0 };
    }
}
