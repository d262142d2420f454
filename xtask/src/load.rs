//! `cargo xtask load`: the load test against the release program: 2,000 streams, silent sockets, slow readers and 100,000 sessions for
//! 30 minutes. It fails if the program exceeds a bound, or if an acknowledged message is missing.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::limits::LOAD_MINUTES_MAX;

const MINUTES_DEFAULT: &str = "30";
const TEST_NAME: &str = "load::resources_stay_bounded_under_load_and_every_acknowledged_message_is_kept";

/// Runs the load test for as many minutes as the argument says.
pub(crate) fn run_load_test(arguments: &[String]) -> Result<ExitCode> {
    let minutes = match arguments {
        [] => MINUTES_DEFAULT,
        [minutes] if minutes.parse::<u32>().is_ok_and(|minutes| (1..=LOAD_MINUTES_MAX).contains(&minutes)) => minutes,
        _ => bail!(
            "`load` takes a number of MINUTES from 1 to {LOAD_MINUTES_MAX}, but was given `{}`",
            arguments.join(" ")
        ),
    };
    if !cfg!(target_os = "linux") {
        bail!("`load` measures the program with /proc, which only Linux has");
    }
    let mut command = checkout::cargo_command();
    command.args(["build", "--release", "--locked", "--package", "segue", "--bin", "segue"]);
    if !command.status().context("cargo could not be started")?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let mut command = checkout::cargo_command();
    command.args(["test", "--workspace", "--test", "serve", "--locked", "--", "--exact", TEST_NAME, "--nocapture"]);
    command.env("SEGUE_LOAD_MINUTES", minutes).env("SEGUE_LOAD_PROGRAM", release_program()?);
    let status = command.status().context("cargo could not be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the path of the release program. This program is in another folder of the same target directory.
fn release_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    let target = own.ancestors().nth(2).context("this program is not in a target directory")?;
    Ok(target.join("release").join(format!("segue{}", std::env::consts::EXE_SUFFIX)))
}
