//! `cargo xtask cluster`: the consistency test of several nodes on PostgreSQL, with as many disturbances as wanted.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::checkout;

const ROUNDS_DEFAULT: &str = "100";

/// Runs the test. The first argument is the number of disturbances.
pub(crate) fn run_cluster_test(arguments: &[String]) -> Result<ExitCode> {
    ensure!(arguments.len() <= 1, "`cluster` takes one number of ROUNDS, but was given `{}`", arguments.join(" "));
    let rounds = arguments.first().map_or(ROUNDS_DEFAULT, String::as_str);
    ensure!(rounds.parse::<usize>().is_ok(), "`{rounds}` is not a number of ROUNDS, such as {ROUNDS_DEFAULT}");
    let status = checkout::cargo_command()
        .stdin(Stdio::null())
        .env("SEGUE_CLUSTER_ROUNDS", rounds)
        .args(["test", "--locked", "--package", "segue", "--test", "cluster", "--", "--nocapture"])
        .status()
        .context("cargo could not be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
