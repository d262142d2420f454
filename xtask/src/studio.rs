//! The web studio in `web/`: installs its tools, checks and tests its sources, and compares the committed build with a
//! fresh one. Only changes to the studio need this; the program embeds the committed build.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::stages::TestStageOutcome;

/// The committed build, which the server embeds.
const STUDIO_ASSETS: &str = "crates/server/assets/studio";
/// The oldest supported version of each Node release line.
const OLDEST_NODE_VERSIONS: [(u32, u32); 2] = [(20, 19), (22, 12)];
const NODE_MISSING: &str = "Node 20.19, 22.12 or newer is not installed, which the studio needs";

/// Runs `cargo xtask studio`: builds the studio into the folder that the server embeds.
pub(crate) fn build_studio() -> Result<ExitCode> {
    if !is_node_supported()? {
        bail!("{NODE_MISSING}");
    }
    install_studio_tools()?;
    if !run_npm(["run", "--silent", "build"])? {
        return Ok(ExitCode::FAILURE);
    }
    println!("built the studio into {STUDIO_ASSETS}");
    Ok(ExitCode::SUCCESS)
}

/// Checks types, runs the tests, builds the studio, and compares it with the committed build.
pub(crate) fn check_studio() -> Result<TestStageOutcome> {
    if !is_node_supported()? {
        return Ok(TestStageOutcome::Skipped(NODE_MISSING.to_owned()));
    }
    install_studio_tools()?;
    if !run_npm(["run", "--silent", "check"])? || !run_npm(["run", "--silent", "test"])? {
        return Ok(TestStageOutcome::Failed);
    }
    let fresh = checkout::checkout_root().join("target/studio");
    let out_dir = fresh.to_str().context("the checkout's path is not UTF-8")?;
    if !run_npm(["run", "--silent", "build", "--", "--logLevel", "warn", "--outDir", out_dir])? {
        return Ok(TestStageOutcome::Failed);
    }
    let differences = describe_differences(
        &read_folder_files(&checkout::checkout_root().join(STUDIO_ASSETS))?,
        &read_folder_files(&fresh)?,
    );
    for difference in &differences {
        println!("{STUDIO_ASSETS}/{difference}");
    }
    if differences.is_empty() {
        return Ok(TestStageOutcome::Passed);
    }
    println!("the committed build is out of date; `cargo xtask studio` rebuilds it");
    Ok(TestStageOutcome::Failed)
}

/// Whether a supported version of Node is installed.
pub(crate) fn is_node_supported() -> Result<bool> {
    let Ok(output) = Command::new("node").arg("--version").stdin(Stdio::null()).output() else { return Ok(false) };
    Ok(output.status.success() && is_node_version_supported(&String::from_utf8_lossy(&output.stdout)))
}

fn is_node_version_supported(version: &str) -> bool {
    let mut numbers = version.trim().trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return false };
    let newest_line = OLDEST_NODE_VERSIONS.iter().map(|(line, _)| *line).max().unwrap_or_default();
    major > newest_line || OLDEST_NODE_VERSIONS.iter().any(|(line, oldest)| major == *line && minor >= *oldest)
}

/// Installs the versions of the studio's tools from the lock file, unless they are installed already.
pub(crate) fn install_studio_tools() -> Result<()> {
    let web = web_folder();
    let lock = std::fs::read_to_string(web.join("package-lock.json")).context("web/package-lock.json is missing")?;
    let marker = web.join("node_modules/.installed-lock.json");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    println!("installing the studio's tools (npm ci)");
    if !run_npm(["ci", "--no-audit", "--no-fund"])? {
        bail!("`npm ci` in web/ failed; is the package registry reachable?");
    }
    std::fs::write(&marker, lock).context("web/node_modules cannot be written")
}

/// Runs npm in `web/` and returns whether it succeeded.
pub(crate) fn run_npm<I, S>(arguments: I) -> Result<bool>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new("npm");
    let status = command.current_dir(web_folder()).args(arguments).stdin(Stdio::null()).status();
    Ok(status.context("npm could not be started")?.success())
}

fn web_folder() -> PathBuf {
    checkout::checkout_root().join("web")
}

/// Returns all files under a folder by their relative path; empty if the folder does not exist.
fn read_folder_files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.with_context(|| format!("{} cannot be read", next.display()))?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).context("a file is in its folder")?.to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            found.insert(name, bytes);
        }
    }
    Ok(found)
}

/// Returns one line for each file of `committed` that differs from `fresh`.
fn describe_differences(committed: &BTreeMap<String, Vec<u8>>, fresh: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let missing = fresh.keys().filter(|name| !committed.contains_key(*name)).map(|name| format!("{name}: missing"));
    let others = committed.iter().filter_map(|(name, bytes)| match fresh.get(name) {
        None => Some(format!("{name}: left over")),
        Some(built) if built != bytes => Some(format!("{name}: differs")),
        Some(_) => None,
    });
    missing.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_node_versions_are_not_supported() {
        for version in ["v20.19.0\n", "v20.20.2", "v22.12.0", "v23.0.0", "v26.1.0"] {
            assert!(is_node_version_supported(version), "{version}");
        }
        for version in ["v18.20.4", "v20.18.9", "v21.9.0", "v22.11.0", "", "node"] {
            assert!(!is_node_version_supported(version), "{version}");
        }
    }

    #[test]
    fn every_difference_is_listed() {
        let tree = |files: &[(&str, &str)]| {
            files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect::<BTreeMap<_, _>>()
        };
        let committed = tree(&[("a.js", "1"), ("b.js", "1"), ("c.js", "1")]);
        let fresh = tree(&[("a.js", "1"), ("b.js", "2"), ("d.js", "1")]);
        assert_eq!(describe_differences(&committed, &fresh), ["d.js: missing", "b.js: differs", "c.js: left over"]);
        assert_eq!(describe_differences(&committed, &committed), [""; 0]);
    }

    #[test]
    fn the_lock_file_contains_no_registry_addresses() {
        let lock = std::fs::read_to_string(web_folder().join("package-lock.json")).expect("the studio has a lock file");
        assert!(!lock.contains("\"resolved\""), "`omit-lockfile-registry-resolved` keeps addresses out of it");
    }
}
