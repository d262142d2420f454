//! Checks dependencies with cargo-deny: their licences, sources and versions, and known vulnerabilities.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::checkout;

/// The file of the repository of advisories by which a copy of it is recognized.
const ADVISORIES_MARKER: &str = "crates";

/// Runs cargo-deny. Advisories are fetched; without a network, a copy in the folder that `SEGUE_ADVISORIES` names is used.
/// It is not a stage of the tests, because a machine without that network could never pass them.
pub(crate) fn run_cargo_deny_task() -> Result<()> {
    let version =
        checkout::cargo_command().args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.context("cargo could not be started")?.success() {
        bail!("cargo-deny is not installed; `cargo install cargo-deny --locked` installs it");
    }
    ensure_cargo_deny_passes(checkout::cargo_command().args(["deny", "check", "licenses", "bans", "sources"]))?;
    let Some(folder) = std::env::var_os("SEGUE_ADVISORIES") else {
        return ensure_cargo_deny_passes(checkout::cargo_command().args(["deny", "check", "advisories"]));
    };
    if !std::path::Path::new(&folder).join(ADVISORIES_MARKER).is_dir() {
        bail!("SEGUE_ADVISORIES={} is not a copy of the advisory database", folder.to_string_lossy());
    }
    let config = checkout::checkout_root().join("target/deny-offline.toml");
    write_offline_deny_config(&config, &folder.to_string_lossy())?;
    ensure_cargo_deny_passes(
        checkout::cargo_command().args(["deny", "check", "--disable-fetch", "--config"]).arg(config).arg("advisories"),
    )
}

/// Writes the configuration with the folder of a copy of the advisories.
fn write_offline_deny_config(path: &std::path::Path, folder: &str) -> Result<()> {
    let config = checkout::checkout_root().join("deny.toml");
    let text = std::fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    let text = text.replace("[advisories]\n", &format!("[advisories]\ndb-path = {folder:?}\n"));
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn ensure_cargo_deny_passes(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    if !status.success() {
        bail!("cargo-deny found problems; they are listed above");
    }
    Ok(())
}
