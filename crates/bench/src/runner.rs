//! Runs jobs one by one, each in a process of its own, when the rest of the machine is quiet, and says how quiet it was.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::machine::{own_cpu_s, system_cpu_s};
use crate::measure::{Measurement, MetricRow};
use crate::stats::round_significant;

/// How the others are put up with.
#[derive(Debug, Clone, Copy)]
pub struct NoisePolicy {
    /// Cores that others may use before a job is waited with, and made again.
    pub noise_cores_max: f64,
    /// How long a quiet moment is waited for.
    pub quiet_wait: Duration,
    /// How often a job is made again because others were at work.
    pub retries: usize,
}

/// Runs a job. Its rows say in `others` how many cores the others used meanwhile; of several tries the quietest counts.
///
/// # Errors
/// The job's process failed.
pub fn run_when_quiet(job: &Measurement, policy: NoisePolicy) -> Result<Vec<MetricRow>> {
    let mut best: Option<(f64, Vec<MetricRow>)> = None;
    for _ in 0..=policy.retries {
        wait_for_quiet(policy);
        let (busy, own, start) = (system_cpu_s(), own_cpu_s(), Instant::now());
        let rows = run_in_child_process(job)?;
        let seconds = start.elapsed().as_secs_f64().max(0.01);
        let others = (((system_cpu_s() - busy) - (own_cpu_s() - own)) / seconds).max(0.0);
        print_progress(&format!("{:<24} {seconds:>7.1} s, others used {others:.2} cores", job.name()));
        if best.as_ref().is_none_or(|(least, _)| others < *least) {
            best = Some((others, rows));
        }
        if others <= policy.noise_cores_max {
            break;
        }
    }
    let (others, mut rows) = best.unwrap_or_default();
    for row in &mut rows {
        row.insert("others".to_owned(), json!(round_significant(others)));
    }
    Ok(rows)
}

/// Tells a person who waits what is going on.
pub fn print_progress(line: &str) {
    // Nobody watching is no failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn run_in_child_process(job: &Measurement) -> Result<Vec<MetricRow>> {
    let program = std::env::current_exe().context("the program does not know where it lies")?;
    let mut child = Command::new(program);
    child.arg("--child").arg(serde_json::to_string(job)?).stderr(Stdio::inherit());
    let output = child.output().context("the program could not be started again")?;
    ensure!(output.status.success(), "`{}` failed", job.name());
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).context("a row that is none")).collect()
}

fn wait_for_quiet(policy: NoisePolicy) {
    let start = Instant::now();
    loop {
        let (busy, look) = (system_cpu_s(), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        let others = (system_cpu_s() - busy) / look.elapsed().as_secs_f64();
        if others <= policy.noise_cores_max || start.elapsed() > policy.quiet_wait {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
