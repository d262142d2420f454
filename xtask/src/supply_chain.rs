//! Checks dependencies with cargo-deny: their licences, sources and versions, and known vulnerabilities.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::checkout;
use crate::stages::StageOutcome;

/// The file of the repository of advisories by which a copy of it is recognized.
const ADVISORIES_MARKER: &str = "crates";

/// Runs cargo-deny. Advisories are fetched; without a network, a copy in the folder that `SEGUE_ADVISORIES` names is used.
pub(crate) fn check_dependencies() -> Result<StageOutcome> {
    let is_installed = checkout::cargo_command()
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cargo could not be started")?;
    if !is_installed.success() {
        let reason = "cargo-deny is not installed; `cargo install cargo-deny --locked` installs it";
        return Ok(StageOutcome::Skipped(reason.to_owned()));
    }
    if !run_check(checkout::cargo_command().args(["deny", "check", "licenses", "bans", "sources"]))? {
        return Ok(StageOutcome::Failed);
    }
    match std::env::var_os("SEGUE_ADVISORIES") {
        None => Ok(outcome(run_check(checkout::cargo_command().args(["deny", "check", "advisories"]))?)),
        Some(folder) if std::path::Path::new(&folder).join(ADVISORIES_MARKER).is_dir() => {
            let config = checkout::checkout_root().join("target/deny-offline.toml");
            write_offline_config(&config, &folder.to_string_lossy())?;
            let mut command = checkout::cargo_command();
            command.args(["deny", "check", "--disable-fetch", "--config"]).arg(config).arg("advisories");
            Ok(outcome(run_check(&mut command)?))
        }
        Some(folder) => {
            let folder = folder.to_string_lossy();
            Ok(StageOutcome::Skipped(format!("SEGUE_ADVISORIES={folder} is not a copy of the advisory database")))
        }
    }
}

/// Writes the configuration with the folder of a copy of the advisories.
fn write_offline_config(path: &std::path::Path, folder: &str) -> Result<()> {
    let config = checkout::checkout_root().join("deny.toml");
    let text = std::fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    let text = text.replace("[advisories]\n", &format!("[advisories]\ndb-path = {folder:?}\n"));
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn outcome(passed: bool) -> StageOutcome {
    if passed { StageOutcome::Passed } else { StageOutcome::Failed }
}

fn run_check(command: &mut Command) -> Result<bool> {
    Ok(command.status().with_context(|| format!("{command:?} could not be started"))?.success())
}
