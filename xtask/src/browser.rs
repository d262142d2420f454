//! Browser tests of the studio: builds the program, finds or installs Chromium, and runs the tests in `web/browser`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::stages::TestStageOutcome;
use crate::{checkout, studio};

/// The environment variable with the path of the browser.
const CHROMIUM_ENV: &str = "SEGUE_CHROMIUM";
const BROWSER_NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Runs the browser tests.
pub(crate) fn run_browser_tests() -> Result<TestStageOutcome> {
    if !studio::is_node_supported()? {
        return Ok(TestStageOutcome::Skipped("Node is not installed, which the browser tests need".to_owned()));
    }
    let Some(browser) = find_or_install_browser()? else {
        return Ok(TestStageOutcome::Skipped(format!(
            "Chromium is not installed (Debian: `apt-get install chromium`), and {CHROMIUM_ENV} is not set"
        )));
    };
    studio::install_studio_tools()?;
    let Some(program) = checkout::build_program()? else { return Ok(TestStageOutcome::Failed) };
    let status = Command::new("npm")
        .current_dir(checkout::checkout_root().join("web"))
        .args(["run", "--silent", "browser"])
        .env(CHROMIUM_ENV, &browser)
        .env("SEGUE_PROGRAM", &program)
        .stdin(Stdio::null())
        .status()
        .context("npm could not be started")?;
    Ok(if status.success() { TestStageOutcome::Passed } else { TestStageOutcome::Failed })
}

fn find_or_install_browser() -> Result<Option<PathBuf>> {
    if let Some(chosen) = std::env::var_os(CHROMIUM_ENV) {
        return Ok(Some(PathBuf::from(chosen)));
    }
    if let Some(found) = find_browser() {
        return Ok(Some(found));
    }
    if !can_install_packages() {
        return Ok(None);
    }
    println!("installing Chromium (apt-get install chromium), once");
    for arguments in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", "chromium"][..]] {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
        if !command.status().context("apt-get could not be started")?.success() {
            return Ok(None);
        }
    }
    Ok(find_browser())
}

fn find_browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSER_NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

/// Whether this is a Debian system and the user may install packages.
fn can_install_packages() -> bool {
    let root = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    let is_root = root.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    is_root && Path::new("/usr/bin/apt-get").is_file()
}
