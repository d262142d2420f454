//! `cargo xtask crash`: kills the program during all kinds of operations, more often than the ordinary tests do.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::checkout;

const ROUNDS_DEFAULT: &str = "1000";
const TEST: &str = "kill_rounds::nothing_acknowledged_is_lost_when_the_program_is_killed";

/// Runs N rounds, 1,000 by default. `SEGUE_CRASH_SEED` selects other operations and times.
pub(crate) fn run_crash_rounds(arguments: &[String]) -> Result<ExitCode> {
    let rounds = match arguments {
        [] => ROUNDS_DEFAULT,
        [rounds] if rounds.parse::<u64>().is_ok_and(|rounds| rounds > 0) => rounds,
        _ => bail!("`crash` takes the number of rounds, but was given `{}`", arguments.join(" ")),
    };
    let mut command = checkout::cargo_command();
    command.args(["test", "--package", "segue", "--test", "all", "--locked", "--", "--exact", TEST, "--nocapture"]);
    let status = command.env("SEGUE_CRASH_ROUNDS", rounds).status().context("cargo could not be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
