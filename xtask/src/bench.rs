//! Builds the benchmarks for release and runs them. What they measure is their own affair: arguments go through as they
//! are, and standard output carries only what they print.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::checkout;

const PACKAGE: &str = "segue-bench";
const MANIFEST: &str = "crates/bench/Cargo.toml";

/// Runs the benchmarks in the directory the developer stands in, so that paths among the arguments mean what they say.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    let root = checkout::root();
    ensure!(root.join(MANIFEST).is_file(), "there are no benchmarks in this checkout: {MANIFEST} is missing");
    let here = std::env::current_dir().context("the current directory cannot be used")?;
    let status = checkout::cargo()
        .current_dir(here)
        .stdin(Stdio::inherit())
        .args(["run", "--release", "--locked", "--package", PACKAGE, "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .arg("--")
        .args(arguments)
        .status()
        .context("cargo could not be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
