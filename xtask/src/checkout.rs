//! Where the checkout is and how cargo is called in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The top of the checkout. `cargo run` says at run time where this package is; the path known when it was compiled may
/// be that of another checkout that shares our target directory.
pub fn checkout_root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let mut root = PathBuf::from(package);
    root.pop();
    root
}

/// The cargo that runs us, working at the top of the checkout, never waiting for somebody to type.
pub fn cargo_command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(checkout_root()).stdin(Stdio::null());
    command
}

/// Builds the program for whoever needs it running; it comes to lie beside this one. Nothing if it does not build, which cargo has told.
///
/// It is built as it is for the tests: by itself it would need other features of what it stands on, and all of that once more.
pub fn build_program() -> Result<Option<PathBuf>> {
    let built = cargo_command().args(["test", "--workspace", "--locked", "--no-run", "--quiet"]).status();
    if !built.context("cargo could not be started")?.success() {
        return Ok(None);
    }
    let own = std::env::current_exe().context("this program does not know where it is")?;
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
