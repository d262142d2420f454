//! Runs jobs one by one, each in a process of its own, when the rest of the machine is quiet, and says how quiet it was.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::machine::{busy_s, own_busy_s};
use crate::measure::{Job, Row};
use crate::stats::brief;

/// How the others are put up with.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Cores that others may use before a job is waited with, and made again.
    pub noise: f64,
    /// How long a quiet moment is waited for.
    pub wait: Duration,
    /// How often a job is made again because others were at work.
    pub retries: usize,
}

/// Runs a job. Its rows say in `others` how many cores the others used meanwhile; of several tries the quietest counts.
///
/// # Errors
/// The job's process failed.
pub fn run(job: &Job, patience: Patience) -> Result<Vec<Row>> {
    let mut best: Option<(f64, Vec<Row>)> = None;
    for _ in 0..=patience.retries {
        wait_for_quiet(patience);
        let (busy, own, start) = (busy_s(), own_busy_s(), Instant::now());
        let rows = child(job)?;
        let seconds = start.elapsed().as_secs_f64().max(0.01);
        let others = (((busy_s() - busy) - (own_busy_s() - own)) / seconds).max(0.0);
        progress(&format!("{:<24} {seconds:>7.1} s, others used {others:.2} cores", job.name()));
        if best.as_ref().is_none_or(|(least, _)| others < *least) {
            best = Some((others, rows));
        }
        if others <= patience.noise {
            break;
        }
    }
    let (others, mut rows) = best.unwrap_or_default();
    for row in &mut rows {
        row.insert("others".to_owned(), json!(brief(others)));
    }
    Ok(rows)
}

/// Tells a person who waits what is going on.
pub fn progress(line: &str) {
    // Nobody watching is no failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn child(job: &Job) -> Result<Vec<Row>> {
    let program = std::env::current_exe().context("the program does not know where it lies")?;
    let mut child = Command::new(program);
    child.arg("--child").arg(serde_json::to_string(job)?).stderr(Stdio::inherit());
    let output = child.output().context("the program could not be started again")?;
    ensure!(output.status.success(), "`{}` failed", job.name());
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).context("a row that is none")).collect()
}

fn wait_for_quiet(patience: Patience) {
    let start = Instant::now();
    loop {
        let (busy, look) = (busy_s(), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        let others = (busy_s() - busy) / look.elapsed().as_secs_f64();
        if others <= patience.noise || start.elapsed() > patience.wait {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
