//! Start-up times: the first turn of a process, and a long session resumed by a new engine.

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG_SESSION;
use super::{BenchMeasurementFigures, BenchMeasurementSpec, BenchWorkloadKind, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn};
use crate::machine::rss_mb;
use crate::stats::{median, min_and_max, round_significant};

/// Environment variable that tells a child process when it was started, in milliseconds since 1970.
const STARTED_ENV: &str = "SEGUE_BENCH_STARTED_MS";

/// Measures from the start of a process to the end of its first turn.
pub(crate) async fn measure_cold_start(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let Some(started) = process_start_ms() else {
        return repeat_in_child_processes(measurement, "cold", &["open_ms", "first_ms", "second_ms", "rss_mb"]);
    };
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "cold", BenchFolderRetention::Delete)?;
    let start = Instant::now();
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    let open = elapsed_ms(start);
    let session = SessionId::from("cold");
    let (first, second) = (
        time_turn(&bench_engine, &session, FirstOrLaterTurn::First),
        time_turn(&bench_engine, &session, FirstOrLaterTurn::Later),
    );
    let first = first.await?;
    let total = now_ms() - started;
    let second = second.await?;
    let row = json!({
        "total_ms": total, "open_ms": open, "first_ms": first, "second_ms": second, "rss_mb": rss_mb(),
    });
    bench_engine.stop().await;
    Ok(vec![measurement.metric_row("cold", row)])
}

/// Measures from the start of a process to the end of a long session's next turn, after reading all of it.
pub(crate) async fn measure_resume(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let Some(started) = process_start_ms() else {
        return repeat_in_child_processes(
            measurement,
            "resume",
            &["open_ms", "read_ms", "turn_ms", "rss_mb", "messages"],
        );
    };
    let database_folder = BenchDatabaseFolder::open_existing(&measurement.dir, &measurement.long_session_name());
    let start = Instant::now();
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    let open = elapsed_ms(start);
    let session = SessionId::from(LONG_SESSION);
    let start = Instant::now();
    let messages = bench_engine.read_messages(&session, None).await?;
    let read = elapsed_ms(start);
    let turn = time_turn(&bench_engine, &session, FirstOrLaterTurn::Later).await?;
    let total = now_ms() - started;
    let row = json!({
        "total_ms": total, "open_ms": open, "read_ms": read, "turn_ms": turn, "rss_mb": rss_mb(), "messages": messages,
    });
    bench_engine.stop().await;
    Ok(vec![measurement.metric_row("resume", row)])
}

/// Measures how long a new engine takes to load a long session, and to answer its next message.
pub(crate) async fn measure_session_load(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::open_existing(&measurement.dir, &measurement.long_session_name());
    let session = SessionId::from(LONG_SESSION);
    let (mut opens, mut states, mut answers, mut seqs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..=measurement.repetitions {
        let start = Instant::now();
        let bench_engine =
            BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
        let open = elapsed_ms(start);
        let (_, state) = bench_engine.engine.load_session(&session).await?;
        let ready = elapsed_ms(start);
        let answered = time_turn(&bench_engine, &session, FirstOrLaterTurn::Later).await?;
        bench_engine.stop().await;
        // The first repetition fills the file cache.
        if repetition > 0 {
            opens.push(open);
            states.push(ready);
            answers.push(answered);
            seqs.push(state.session.last_ids.turn.0);
        }
    }
    Ok(vec![measurement.metric_row("open", json!({
        "turns": seqs.first(), "reps": measurement.repetitions, "open_ms": round_significant(median(&opens)), "ready_ms": round_significant(median(&states)),
        "ready_range": min_and_max(&states), "answer_ms": round_significant(median(&answers)), "answer_range": min_and_max(&answers),
    }))])
}

async fn time_turn(engine: &BenchEngine, session: &SessionId, position: FirstOrLaterTurn) -> Result<f64> {
    let start = Instant::now();
    engine.run_turn(session, position).await?;
    Ok(elapsed_ms(start))
}

/// Runs the measurement in several child processes, and returns the median of each figure.
fn repeat_in_child_processes(
    measurement: &BenchMeasurementSpec,
    metric: &str,
    figures: &[&str],
) -> Result<Vec<BenchMeasurementFigures>> {
    let program = std::env::current_exe()?;
    let mut rows: Vec<BenchMeasurementFigures> = Vec::new();
    for _ in 0..=measurement.repetitions {
        let mut child = Command::new(&program);
        child.arg("--child").arg(serde_json::to_string(measurement)?).env(STARTED_ENV, now_ms().to_string());
        let output = child.output().context("the child process could not be started")?;
        ensure!(output.status.success(), "a child process failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        rows.push(serde_json::from_slice(&output.stdout).context("a child process printed an invalid row")?);
    }
    // The first repetition fills the file cache.
    let figure = |name: &str| -> Vec<f64> { rows[1..].iter().filter_map(|row| row.get(name)?.as_f64()).collect() };
    let totals = figure("total_ms");
    let mut fields = json!({ "reps": measurement.repetitions, "total_ms": round_significant(median(&totals)), "total_range": min_and_max(&totals) });
    if let Value::Object(fields) = &mut fields {
        fields.extend(figures.iter().map(|name| ((*name).to_owned(), json!(round_significant(median(&figure(name)))))));
    }
    debug_assert!(matches!(measurement.kind, BenchWorkloadKind::ColdStart | BenchWorkloadKind::Resume));
    Ok(vec![measurement.metric_row(metric, fields)])
}

/// Returns when this process was started, if it is such a child process.
fn process_start_ms() -> Option<f64> {
    std::env::var(STARTED_ENV).ok()?.parse().ok()
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}
