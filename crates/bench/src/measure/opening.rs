//! How long the first things take: a process' first turn, and a long session taken up by an engine that does not know it.

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG;
use super::{Job, Row, What, ms_since};
use crate::bed::{Bed, Ground, Keep, Nth};
use crate::machine::rss_mb;
use crate::stats::{brief, median, range};

/// Tells a child when it was started, in milliseconds since 1970.
const STARTED: &str = "SEGUE_BENCH_STARTED_MS";

/// From the start of a process to the end of its first turn.
pub async fn cold(job: &Job) -> Result<Vec<Row>> {
    let Some(started) = started() else { return repeat(job, "cold", &["open_ms", "first_ms", "second_ms", "rss_mb"]) };
    let ground = Ground::fresh(&job.dir, "cold", Keep::No)?;
    let start = Instant::now();
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    let open = ms_since(start);
    let session = SessionId::from("cold");
    let (first, second) = (turn(&bed, &session, Nth::First), turn(&bed, &session, Nth::Later));
    let first = first.await?;
    let total = now_ms() - started;
    let second = second.await?;
    let row = json!({
        "total_ms": total, "open_ms": open, "first_ms": first, "second_ms": second, "rss_mb": rss_mb(),
    });
    bed.stop().await;
    Ok(vec![job.row("cold", row)])
}

/// From the start of a process to the end of a long session's next turn, with all of it read before.
pub async fn resume(job: &Job) -> Result<Vec<Row>> {
    let Some(started) = started() else {
        return repeat(job, "resume", &["open_ms", "read_ms", "turn_ms", "rss_mb", "messages"]);
    };
    let ground = Ground::kept(&job.dir, &job.long_name());
    let start = Instant::now();
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    let open = ms_since(start);
    let session = SessionId::from(LONG);
    let start = Instant::now();
    let messages = bed.read(&session, None).await?;
    let read = ms_since(start);
    let turn = turn(&bed, &session, Nth::Later).await?;
    let total = now_ms() - started;
    let row = json!({
        "total_ms": total, "open_ms": open, "read_ms": read, "turn_ms": turn, "rss_mb": rss_mb(), "messages": messages,
    });
    bed.stop().await;
    Ok(vec![job.row("resume", row)])
}

/// A long session opened by an engine that does not know it: until its state stands, and until its first new answer.
pub async fn open(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::kept(&job.dir, &job.long_name());
    let session = SessionId::from(LONG);
    let (mut opens, mut states, mut answers, mut seqs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for rep in 0..=job.reps {
        let start = Instant::now();
        let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
        let open = ms_since(start);
        let (_, state) = bed.engine.state(&session).await?;
        let ready = ms_since(start);
        let answered = turn(&bed, &session, Nth::Later).await?;
        bed.stop().await;
        // The first brings the file to mind.
        if rep > 0 {
            opens.push(open);
            states.push(ready);
            answers.push(answered);
            seqs.push(state.session.last.turn.0);
        }
    }
    Ok(vec![job.row("open", json!({
        "turns": seqs.first(), "reps": job.reps, "open_ms": brief(median(&opens)), "ready_ms": brief(median(&states)),
        "ready_range": range(&states), "answer_ms": brief(median(&answers)), "answer_range": range(&answers),
    }))])
}

async fn turn(bed: &Bed, session: &SessionId, nth: Nth) -> Result<f64> {
    let start = Instant::now();
    bed.turn(session, nth).await?;
    Ok(ms_since(start))
}

/// Runs this very job in processes of their own, and takes the median of each figure.
fn repeat(job: &Job, metric: &str, figures: &[&str]) -> Result<Vec<Row>> {
    let program = std::env::current_exe()?;
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..=job.reps {
        let mut child = Command::new(&program);
        child.arg("--child").arg(serde_json::to_string(job)?).env(STARTED, now_ms().to_string());
        let output = child.output().context("the program could not be started again")?;
        ensure!(output.status.success(), "a process failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        rows.push(serde_json::from_slice(&output.stdout).context("a process printed something else than a row")?);
    }
    // The first brings program and file to mind.
    let figure = |name: &str| -> Vec<f64> { rows[1..].iter().filter_map(|row| row.get(name)?.as_f64()).collect() };
    let totals = figure("total_ms");
    let mut fields = json!({ "reps": job.reps, "total_ms": brief(median(&totals)), "total_range": range(&totals) });
    if let Value::Object(fields) = &mut fields {
        fields.extend(figures.iter().map(|name| ((*name).to_owned(), json!(brief(median(&figure(name)))))));
    }
    debug_assert!(matches!(job.what, What::Cold | What::Resume));
    Ok(vec![job.row(metric, fields)])
}

/// When this process was started, if it is one of several that are timed from their start.
fn started() -> Option<f64> {
    std::env::var(STARTED).ok()?.parse().ok()
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}
