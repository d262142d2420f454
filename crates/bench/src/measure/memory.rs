//! Memory of sessions that are parked, and of sessions with calls in flight.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use segue_store::SessionQuery;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn};
use crate::instant_model::InstantModelGate;
use crate::machine::{cpu_ms, open_descriptor_count, rss_mb, thread_count};
use crate::stats::{round_significant, summarize_samples};

/// Concurrent turns while sessions are created.
const CONCURRENT_TURNS: usize = 64;
/// A process that uses less CPU than this between two polls is quiet.
const QUIET_CPU_MS: f64 = 5.0;
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const QUIET_POLLS: usize = 4;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
const LIST_REPETITIONS: usize = 5;

/// Measures parked sessions with one turn each.
pub(crate) async fn measure_idle_sessions(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "idle", BenchFolderRetention::Delete)?;
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    bench_engine.run_turns(&"warm".into(), 1).await?;
    let (rss_before, descriptors_before, start) = (rss_mb(), open_descriptor_count(), Instant::now());
    let peak = create_idle_sessions(&bench_engine, 0..measurement.sessions).await?;
    let (rss_when_done, seconds) = (rss_mb(), start.elapsed().as_secs_f64());
    wait_until_quiet().await;
    let rss_settled = rss_mb();
    let idle = measurement.metric_row(
        "idle",
        json!({
            "sessions": measurement.sessions, "done": measurement.sessions, "rss_mb": round_significant(rss_settled), "base_mb": round_significant(rss_before),
            "rss_mb_when_done": round_significant(rss_when_done), "rss_mb_peak": round_significant(peak.max(rss_when_done)),
            "kb_per_session": round_significant((rss_settled - rss_before) * 1e3 / measurement.sessions as f64), "fds": open_descriptor_count() - descriptors_before,
            "threads": thread_count(), "turns_per_s": round_significant(measurement.sessions as f64 / seconds),
        }),
    );
    let mut list_times = Vec::new();
    let mut listed = 0;
    for _ in 0..LIST_REPETITIONS {
        let start = Instant::now();
        listed = bench_engine.engine.list_sessions(&SessionQuery::newest(measurement.sessions)).await?.entries.len();
        list_times.push(elapsed_ms(start));
    }
    bench_engine.stop().await;
    let mut fields = summarize_samples(&list_times);
    fields.insert("sessions".to_owned(), json!(listed));
    Ok(vec![idle, measurement.metric_row("list", Value::Object(fields))])
}

/// Creates sessions with one turn each. Returns the highest memory meanwhile in MB.
pub(super) async fn create_idle_sessions(engine: &BenchEngine, numbers: std::ops::Range<usize>) -> Result<f64> {
    let mut peak: f64 = 0.0;
    let numbers: Vec<usize> = numbers.collect();
    for batch in numbers.chunks(CONCURRENT_TURNS) {
        let mut turns = JoinSet::new();
        for number in batch {
            let (engine, session) = (engine.clone(), SessionId::from(format!("i{number}")));
            turns.spawn(async move { engine.run_turn(&session, FirstOrLaterTurn::First).await });
        }
        while let Some(turn) = turns.join_next().await {
            turn??;
        }
        peak = peak.max(rss_mb());
    }
    Ok(peak)
}

/// Measures sessions whose first call is in flight.
pub(crate) async fn measure_in_flight_calls(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder =
        BenchDatabaseFolder::create_empty(&measurement.dir, "inflight", BenchFolderRetention::Delete)?;
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    bench_engine.run_turns(&"warm".into(), 1).await?;
    let (rss_before, descriptors_before) = (rss_mb(), open_descriptor_count());
    bench_engine.model.set_gate(InstantModelGate::Closed);
    let start = Instant::now();
    let mut turns = JoinSet::new();
    for number in 0..measurement.sessions {
        let (bench_engine, session) = (bench_engine.clone(), SessionId::from(format!("f{number}")));
        turns.spawn(async move { bench_engine.run_turn(&session, FirstOrLaterTurn::First).await });
    }
    let calls = measurement.sessions * measurement.shape.concurrent_calls();
    while bench_engine.model.waiting_calls() < calls && start.elapsed() < SETTLE_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let park_seconds = start.elapsed().as_secs_f64();
    wait_until_quiet().await;
    let (rss_in_flight, open_fds, running_threads) = (rss_mb(), open_descriptor_count(), thread_count());
    bench_engine.model.set_gate(InstantModelGate::Open);
    let drain_start = Instant::now();
    let mut errors = 0;
    while let Some(turn) = turns.join_next().await {
        errors += usize::from(turn?.is_err());
    }
    let drain_seconds = drain_start.elapsed().as_secs_f64();
    bench_engine.stop().await;
    Ok(vec![measurement.metric_row(
        "inflight",
        json!({
            "sessions": measurement.sessions, "rss_mb": round_significant(rss_in_flight), "base_mb": round_significant(rss_before),
            "kb_per_session": round_significant((rss_in_flight - rss_before) * 1e3 / measurement.sessions as f64), "fds": open_fds - descriptors_before,
            "threads": running_threads, "park_s": round_significant(park_seconds), "drain_s": round_significant(drain_seconds), "errors": errors,
        }),
    )])
}

/// Waits until the engine's background work has finished.
pub(super) async fn wait_until_quiet() {
    let (start, mut quiet_polls) = (Instant::now(), 0);
    while quiet_polls < QUIET_POLLS && start.elapsed() < SETTLE_TIMEOUT {
        let before = cpu_ms();
        tokio::time::sleep(POLL_INTERVAL).await;
        quiet_polls = if cpu_ms() - before < QUIET_CPU_MS { quiet_polls + 1 } else { 0 };
    }
}
