//! Runs measurements one by one, each in a child process, when other processes are quiet, and records how quiet they
//! were.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::machine::{own_cpu_s, system_cpu_s};
use crate::measure::{BenchMeasurementFigures, BenchMeasurementSpec};
use crate::stats::round_significant;

/// How to deal with other busy processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchNoisePolicy {
    /// Cores that other processes may use before a measurement is delayed and repeated.
    pub noise_cores_max: f64,
    /// How long to wait for a quiet moment.
    pub quiet_wait: Duration,
    /// How often to repeat a measurement because other processes were busy.
    pub retries: usize,
}

/// Runs a measurement. The field `others` of its rows is the number of cores that other processes used meanwhile; of
/// several repetitions the quietest counts.
///
/// # Errors
/// The child process failed.
pub(crate) fn run_when_quiet(
    measurement: &BenchMeasurementSpec,
    policy: BenchNoisePolicy,
) -> Result<Vec<BenchMeasurementFigures>> {
    let mut best: Option<(f64, Vec<BenchMeasurementFigures>)> = None;
    for _ in 0..=policy.retries {
        wait_for_quiet(policy);
        let (cpu_before, own_cpu_before, start) = (system_cpu_s(), own_cpu_s(), Instant::now());
        let rows = run_in_child_process(measurement)?;
        let seconds = start.elapsed().as_secs_f64().max(0.01);
        let other_cores = (((system_cpu_s() - cpu_before) - (own_cpu_s() - own_cpu_before)) / seconds).max(0.0);
        print_progress(&format!(
            "{:<24} {seconds:>7.1} s, other processes used {other_cores:.2} cores",
            measurement.name()
        ));
        if best.as_ref().is_none_or(|(quietest, _)| other_cores < *quietest) {
            best = Some((other_cores, rows));
        }
        if other_cores <= policy.noise_cores_max {
            break;
        }
    }
    let (other_cores, mut rows) = best.unwrap_or_default();
    for row in &mut rows {
        row.insert("others".to_owned(), json!(round_significant(other_cores)));
    }
    Ok(rows)
}

/// Prints a progress message to standard error.
pub(crate) fn print_progress(line: &str) {
    // A closed standard error is not a failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn run_in_child_process(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut child = Command::new(program);
    child.arg("--child").arg(serde_json::to_string(measurement)?).stderr(Stdio::inherit());
    let output = child.output().context("the child process could not be started")?;
    ensure!(output.status.success(), "`{}` failed", measurement.name());
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).context("an invalid row")).collect()
}

fn wait_for_quiet(policy: BenchNoisePolicy) {
    let start = Instant::now();
    loop {
        let (cpu_before, poll_start) = (system_cpu_s(), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        let other_cores = (system_cpu_s() - cpu_before) / poll_start.elapsed().as_secs_f64();
        if other_cores <= policy.noise_cores_max || start.elapsed() > policy.quiet_wait {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
