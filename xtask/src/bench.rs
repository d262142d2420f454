//! Builds the benchmarks in release mode and runs them. All arguments are passed on, and standard output contains only
//! the output of the benchmarks.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::checkout;

const BENCH_PACKAGE: &str = "segue-bench";
const BENCH_MANIFEST: &str = "crates/bench/Cargo.toml";

/// Runs the benchmarks in the current directory, so that relative paths in the arguments are valid.
pub(crate) fn run_benchmarks(arguments: &[String]) -> Result<ExitCode> {
    let root = checkout::checkout_root();
    ensure!(root.join(BENCH_MANIFEST).is_file(), "this checkout has no benchmarks: {BENCH_MANIFEST} is missing");
    let here = std::env::current_dir().context("the current directory cannot be used")?;
    let status = checkout::cargo_command()
        .current_dir(here)
        .stdin(Stdio::inherit())
        .args(["run", "--release", "--locked", "--package", BENCH_PACKAGE, "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .arg("--")
        .args(arguments)
        .status()
        .context("cargo could not be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
