//! The location of the checkout, and cargo commands in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Returns the root of the checkout. The path from `cargo run` comes first, because the path at compile time may belong
/// to another checkout with the same target directory.
pub(crate) fn checkout_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let mut root = PathBuf::from(package);
    root.pop();
    root
}

/// Returns a cargo command that runs in the root of the checkout, without standard input.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(checkout_root()).stdin(Stdio::null());
    command
}

/// Builds the program and returns its path, or `None` if the build fails; cargo prints the errors.
///
/// The program is built together with the tests. A separate build would select other features of its dependencies and
/// compile them again.
pub(crate) fn build_program() -> Result<Option<PathBuf>> {
    let built = cargo_command().args(["test", "--workspace", "--locked", "--no-run", "--quiet"]).status();
    if !built.context("cargo could not be started")?.success() {
        return Ok(None);
    }
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    Ok(Some(own.with_file_name(format!("segue{}", std::env::consts::EXE_SUFFIX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(checkout_root().join("Cargo.toml")).expect("the root has a manifest");
        assert!(manifest.contains("[workspace]"));
    }
}
