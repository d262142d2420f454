//! `cargo xtask crash`: kills the program during all kinds of operations, or during a run of the team flow, more often than
//! the ordinary tests do.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::checkout;

/// A test that kills the program a given number of times.
struct KillTest {
    name: &'static str,
    /// The environment variable with the number of kills.
    count_variable: &'static str,
    count_default: &'static str,
}

const ALL_OPERATIONS: KillTest = KillTest {
    name: "kill_rounds::nothing_acknowledged_is_lost_when_the_program_is_killed",
    count_variable: "SEGUE_CRASH_ROUNDS",
    count_default: "1000",
};
const TEAM_RUN: KillTest = KillTest {
    name: "team::killed_runs_continue_and_merge_everything_once",
    count_variable: "SEGUE_TEAM_KILLS",
    count_default: "50",
};

/// Kills the program as often as the arguments say. `SEGUE_CRASH_SEED` selects other operations and times.
pub(crate) fn run_crash_rounds(arguments: &[String]) -> Result<ExitCode> {
    let (test, count) = match arguments {
        [team, count @ ..] if team == "team" => (TEAM_RUN, count),
        count => (ALL_OPERATIONS, count),
    };
    let count = match count {
        [] => test.count_default,
        [count] if count.parse::<u32>().is_ok_and(|count| count > 0) => count,
        _ => bail!("`crash` takes `team` or nothing, then how often to kill, but was given `{}`", arguments.join(" ")),
    };
    let mut command = checkout::cargo_command();
    command.args(["test", "--workspace", "--test", "all", "--locked"]);
    command.args(["--", "--exact", test.name, "--nocapture"]);
    let status = command.env(test.count_variable, count).status().context("cargo could not be started")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
