//! `cargo xtask fuzz`: runs every fuzz target for some time with new inputs. Findings are added to the corpus in `tests/fuzz` of
//! the crate, which the ordinary tests replay.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::checkout;

const SECONDS_DEFAULT: &str = "60";
/// The crates with fuzz targets. The names of the targets begin with `fuzz_`.
const PACKAGES: [&str; 7] =
    ["segue-core", "segue-store", "segue-models", "segue-flows", "segue-engine", "segue-server", "segue"];

/// Runs each target for N seconds, 60 by default; only those whose name contains TARGET if it is given.
pub(crate) fn run_fuzz_targets(arguments: &[String]) -> Result<ExitCode> {
    let (seconds, filter) = match arguments {
        [] => (SECONDS_DEFAULT, "fuzz_"),
        [seconds] => (seconds.as_str(), "fuzz_"),
        [seconds, target] => (seconds.as_str(), target.as_str()),
        _ => bail!("`fuzz` takes the seconds for each target and the name of a target"),
    };
    if !seconds.parse::<u64>().is_ok_and(|seconds| seconds > 0) {
        bail!("`{seconds}` is not a number of seconds");
    }
    let mut command = checkout::cargo_command();
    command.args(["test", "--locked", "--no-fail-fast"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    // One target at a time, so that each gets a whole core.
    command.args([filter, "--", "--nocapture", "--test-threads", "1"]);
    let status = command.env("SEGUE_FUZZ_SECONDS", seconds).status().context("cargo could not be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
