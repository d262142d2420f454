//! `cargo xtask cluster`: the consistency test of several nodes on PostgreSQL, with as many disturbances as wanted.
//! `cargo xtask failover`: the same test on PostgreSQL with standbys, whose primary is killed.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::checkout;

const ROUNDS_DEFAULT: usize = 100;
const FAILOVER_ROUNDS_DEFAULT: usize = 5;
/// Starts, kills, repairs and stops the servers for the failover test.
const SERVERS_SCRIPT: &str = "deploy/postgres-ha.sh";

/// Runs the test. The first argument is the number of disturbances.
pub(crate) fn run_cluster_test(arguments: &[String]) -> Result<ExitCode> {
    let rounds = parse_rounds("cluster", arguments, ROUNDS_DEFAULT)?;
    run_cluster_test_with_env(&[("SEGUE_CLUSTER_ROUNDS", rounds.to_string())])
}

/// Starts PostgreSQL with standbys in a temporary folder, runs the test on it, and stops it. The first argument is the
/// number of primaries to kill.
pub(crate) fn run_postgres_failover_test(arguments: &[String]) -> Result<ExitCode> {
    let rounds = parse_rounds("failover", arguments, FAILOVER_ROUNDS_DEFAULT)?;
    let folder = std::env::temp_dir().join(format!("segue-failover-{}", std::process::id()));
    let result = start_servers_and_run_test(rounds, &folder);
    let stopped = run_servers_script("stop", &folder);
    let code = result?;
    stopped?;
    if code == ExitCode::SUCCESS {
        std::fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be deleted", folder.display()))?;
    } else {
        println!("The data and the logs of the servers are in {}", folder.display());
    }
    Ok(code)
}

fn start_servers_and_run_test(rounds: usize, folder: &Path) -> Result<ExitCode> {
    let url = run_servers_script("start", folder)?;
    let script = checkout::checkout_root().join(SERVERS_SCRIPT);
    let command = |name: &str| format!("{} {name} {}", script.display(), folder.display());
    run_cluster_test_with_env(&[
        ("SEGUE_CLUSTER_ROUNDS", rounds.to_string()),
        ("SEGUE_CLUSTER_URL", url),
        ("SEGUE_CLUSTER_KILL", command("kill-primary")),
        ("SEGUE_CLUSTER_REPAIR", command("repair")),
    ])
}

fn run_cluster_test_with_env(variables: &[(&str, String)]) -> Result<ExitCode> {
    let name = "every_acknowledged_message_is_answered_once_whatever_happens_to_nodes_and_database";
    let status = checkout::cargo_command()
        .stdin(Stdio::null())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .args(["test", "--locked", "--workspace", "--test", "cluster", "--", "--nocapture", "--exact", name])
        .status()
        .context("cargo could not be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Runs a command of the script. Returns what it printed.
fn run_servers_script(command: &str, folder: &Path) -> Result<String> {
    let output = Command::new(checkout::checkout_root().join(SERVERS_SCRIPT))
        .arg(command)
        .arg(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{SERVERS_SCRIPT} could not be started"))?;
    ensure!(output.status.success(), "{SERVERS_SCRIPT} {command} failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn parse_rounds(command: &str, arguments: &[String], default: usize) -> Result<usize> {
    ensure!(arguments.len() <= 1, "`{command}` takes one number of ROUNDS, but was given `{}`", arguments.join(" "));
    let Some(rounds) = arguments.first() else { return Ok(default) };
    rounds.parse().with_context(|| format!("`{rounds}` is not a number of ROUNDS, such as {default}"))
}
