//! Builds the benchmarks for release and runs them. What they measure is their own affair: arguments go through as they
//! are, and standard output carries only what they print.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::checkout;

const BENCH_PACKAGE: &str = "segue-bench";
const BENCH_MANIFEST: &str = "crates/bench/Cargo.toml";

/// Runs the benchmarks in the directory the developer stands in, so that paths among the arguments mean what they say.
pub fn run_benchmarks(arguments: &[String]) -> Result<ExitCode> {
    let root = checkout::checkout_root();
    ensure!(
        root.join(BENCH_MANIFEST).is_file(),
        "there are no benchmarks in this checkout: {BENCH_MANIFEST} is missing"
    );
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
