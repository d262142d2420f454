//! What sessions cost in memory: at rest, and with a call under way.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use segue_store::Query;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground, Keep, Nth};
use crate::machine::{cpu_ms, descriptors, rss_mb, threads};
use crate::model::Gate;
use crate::stats::{brief, summary};

/// Turns at once while sessions are made.
const AT_ONCE: usize = 64;
/// A process that uses less CPU than this in a look has settled.
const QUIET_CPU_MS: f64 = 5.0;
const LOOK: Duration = Duration::from_millis(250);
const LOOKS_QUIET: usize = 4;
const SETTLE: Duration = Duration::from_secs(120);
const LISTS: usize = 5;

/// Sessions that have had one turn each and rest.
pub async fn idle(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "idle", Keep::No)?;
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    bed.turns(&"warm".into(), 1).await?;
    let (rss, fds, start) = (rss_mb(), descriptors(), Instant::now());
    let mut peak: f64 = 0.0;
    let names: Vec<usize> = (0..job.sessions).collect();
    for some in names.chunks(AT_ONCE) {
        let mut turns = JoinSet::new();
        for name in some {
            let (bed, session) = (bed.clone(), SessionId::from(format!("i{name}")));
            turns.spawn(async move { bed.turn(&session, Nth::First).await });
        }
        while let Some(turn) = turns.join_next().await {
            turn??;
        }
        peak = peak.max(rss_mb());
    }
    let (done, seconds) = (rss_mb(), start.elapsed().as_secs_f64());
    settle().await;
    let settled = rss_mb();
    let idle = job.row(
        "idle",
        json!({
            "sessions": job.sessions, "done": job.sessions, "rss_mb": brief(settled), "base_mb": brief(rss),
            "rss_mb_when_done": brief(done), "rss_mb_peak": brief(peak.max(done)),
            "kb_per_session": brief((settled - rss) * 1e3 / job.sessions as f64), "fds": descriptors() - fds,
            "threads": threads(), "turns_per_s": brief(job.sessions as f64 / seconds),
        }),
    );
    let mut lists = Vec::new();
    let mut listed = 0;
    for _ in 0..LISTS {
        let start = Instant::now();
        listed = bed.engine.list(&Query::newest(job.sessions)).await?.rows.len();
        lists.push(ms_since(start));
    }
    bed.stop().await;
    let mut fields = summary(&lists);
    fields.insert("sessions".to_owned(), json!(listed));
    Ok(vec![idle, job.row("list", Value::Object(fields))])
}

/// Sessions whose first call is under way.
pub async fn inflight(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "inflight", Keep::No)?;
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    bed.turns(&"warm".into(), 1).await?;
    let (rss, fds) = (rss_mb(), descriptors());
    bed.model.set(Gate::Closed);
    let start = Instant::now();
    let mut turns = JoinSet::new();
    for name in 0..job.sessions {
        let (bed, session) = (bed.clone(), SessionId::from(format!("f{name}")));
        turns.spawn(async move { bed.turn(&session, Nth::First).await });
    }
    let calls = job.sessions * job.shape.calls_at_once();
    while bed.model.waiting() < calls && start.elapsed() < SETTLE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let parked = start.elapsed().as_secs_f64();
    settle().await;
    let (running, open_fds, running_threads) = (rss_mb(), descriptors(), threads());
    bed.model.set(Gate::Open);
    let drain = Instant::now();
    let mut errors = 0;
    while let Some(turn) = turns.join_next().await {
        errors += usize::from(turn?.is_err());
    }
    let drained = drain.elapsed().as_secs_f64();
    bed.stop().await;
    Ok(vec![job.row(
        "inflight",
        json!({
            "sessions": job.sessions, "rss_mb": brief(running), "base_mb": brief(rss),
            "kb_per_session": brief((running - rss) * 1e3 / job.sessions as f64), "fds": open_fds - fds,
            "threads": running_threads, "park_s": brief(parked), "drain_s": brief(drained), "errors": errors,
        }),
    )])
}

/// Waits until the engine has done what it does afterwards.
async fn settle() {
    let (start, mut quiet) = (Instant::now(), 0);
    while quiet < LOOKS_QUIET && start.elapsed() < SETTLE {
        let before = cpu_ms();
        tokio::time::sleep(LOOK).await;
        quiet = if cpu_ms() - before < QUIET_CPU_MS { quiet + 1 } else { 0 };
    }
}
