//! How long the first things take: a process' first turn, and a long session taken up by an engine that does not know it.

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG_SESSION;
use super::{Measurement, MeasurementKind, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, TurnPosition};
use crate::machine::rss_mb;
use crate::stats::{median, min_and_max, round_significant};

/// Tells a child when it was started, in milliseconds since 1970.
const STARTED_ENV: &str = "SEGUE_BENCH_STARTED_MS";

/// From the start of a process to the end of its first turn.
pub async fn measure_cold_start(job: &Measurement) -> Result<Vec<MetricRow>> {
    let Some(started) = process_start_ms() else {
        return repeat_in_child_processes(job, "cold", &["open_ms", "first_ms", "second_ms", "rss_mb"]);
    };
    let ground = DatabaseFolder::create_empty(&job.dir, "cold", FolderRetention::Delete)?;
    let start = Instant::now();
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    let open = elapsed_ms(start);
    let session = SessionId::from("cold");
    let (first, second) =
        (time_turn(&bed, &session, TurnPosition::First), time_turn(&bed, &session, TurnPosition::Later));
    let first = first.await?;
    let total = now_ms() - started;
    let second = second.await?;
    let row = json!({
        "total_ms": total, "open_ms": open, "first_ms": first, "second_ms": second, "rss_mb": rss_mb(),
    });
    bed.stop().await;
    Ok(vec![job.metric_row("cold", row)])
}

/// From the start of a process to the end of a long session's next turn, with all of it read before.
pub async fn measure_resume(job: &Measurement) -> Result<Vec<MetricRow>> {
    let Some(started) = process_start_ms() else {
        return repeat_in_child_processes(job, "resume", &["open_ms", "read_ms", "turn_ms", "rss_mb", "messages"]);
    };
    let ground = DatabaseFolder::open_existing(&job.dir, &job.long_session_name());
    let start = Instant::now();
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    let open = elapsed_ms(start);
    let session = SessionId::from(LONG_SESSION);
    let start = Instant::now();
    let messages = bed.read_messages(&session, None).await?;
    let read = elapsed_ms(start);
    let turn = time_turn(&bed, &session, TurnPosition::Later).await?;
    let total = now_ms() - started;
    let row = json!({
        "total_ms": total, "open_ms": open, "read_ms": read, "turn_ms": turn, "rss_mb": rss_mb(), "messages": messages,
    });
    bed.stop().await;
    Ok(vec![job.metric_row("resume", row)])
}

/// A long session opened by an engine that does not know it: until its state stands, and until its first new answer.
pub async fn measure_open(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::open_existing(&job.dir, &job.long_session_name());
    let session = SessionId::from(LONG_SESSION);
    let (mut opens, mut states, mut answers, mut seqs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for rep in 0..=job.repetitions {
        let start = Instant::now();
        let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
        let open = elapsed_ms(start);
        let (_, state) = bed.engine.load_session(&session).await?;
        let ready = elapsed_ms(start);
        let answered = time_turn(&bed, &session, TurnPosition::Later).await?;
        bed.stop().await;
        // The first brings the file to mind.
        if rep > 0 {
            opens.push(open);
            states.push(ready);
            answers.push(answered);
            seqs.push(state.session.last_ids.turn.0);
        }
    }
    Ok(vec![job.metric_row("open", json!({
        "turns": seqs.first(), "reps": job.repetitions, "open_ms": round_significant(median(&opens)), "ready_ms": round_significant(median(&states)),
        "ready_range": min_and_max(&states), "answer_ms": round_significant(median(&answers)), "answer_range": min_and_max(&answers),
    }))])
}

async fn time_turn(engine: &BenchEngine, session: &SessionId, position: TurnPosition) -> Result<f64> {
    let start = Instant::now();
    engine.run_turn(session, position).await?;
    Ok(elapsed_ms(start))
}

/// Runs this very job in processes of their own, and takes the median of each figure.
fn repeat_in_child_processes(job: &Measurement, metric: &str, figures: &[&str]) -> Result<Vec<MetricRow>> {
    let program = std::env::current_exe()?;
    let mut rows: Vec<MetricRow> = Vec::new();
    for _ in 0..=job.repetitions {
        let mut child = Command::new(&program);
        child.arg("--child").arg(serde_json::to_string(job)?).env(STARTED_ENV, now_ms().to_string());
        let output = child.output().context("the program could not be started again")?;
        ensure!(output.status.success(), "a process failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        rows.push(serde_json::from_slice(&output.stdout).context("a process printed something else than a row")?);
    }
    // The first brings program and file to mind.
    let figure = |name: &str| -> Vec<f64> { rows[1..].iter().filter_map(|row| row.get(name)?.as_f64()).collect() };
    let totals = figure("total_ms");
    let mut fields = json!({ "reps": job.repetitions, "total_ms": round_significant(median(&totals)), "total_range": min_and_max(&totals) });
    if let Value::Object(fields) = &mut fields {
        fields.extend(figures.iter().map(|name| ((*name).to_owned(), json!(round_significant(median(&figure(name)))))));
    }
    debug_assert!(matches!(job.kind, MeasurementKind::ColdStart | MeasurementKind::Resume));
    Ok(vec![job.metric_row(metric, fields)])
}

/// When this process was started, if it is one of several that are timed from their start.
fn process_start_ms() -> Option<f64> {
    std::env::var(STARTED_ENV).ok()?.parse().ok()
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}
