//! Runs git, without hooks, prompts, pagers and optional locks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lock of each repository. Writes of several sessions to one repository wait for each other.
static REPOSITORY_LOCKS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// Runs work during which nothing else of this process writes to the repository.
pub(super) fn exclusively<T>(folder: &Path, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let key = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let lock = lock_ignoring_poison(&REPOSITORY_LOCKS).entry(key).or_default().clone();
    let _guard = lock_ignoring_poison(&lock);
    work()
}

fn lock_ignoring_poison<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false"])
        .args(["-c", "advice.detachedHead=false", "-c", "gc.auto=0", "-c", "rerere.enabled=false"])
        .args(["-c", "user.name=Segue", "-c", "user.email=segue@localhost", "-c", "core.fsmonitor=false"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_EDITOR", "true")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    // A hook of the user may have started this process; its repository is not ours.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    command
}

/// Runs git and returns its output as bytes.
pub(super) fn git_bytes<A: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, String> {
    let mut command = git_command(folder);
    command.args(arguments);
    let output = command.output().map_err(|error| format!("git could not be started: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let message = if message.is_empty() { String::from_utf8_lossy(&output.stdout).trim().to_owned() } else { message };
    Err(if message.is_empty() { format!("git ended with {}", output.status) } else { message })
}

/// Runs git and returns its output without the final line break.
pub(super) fn git<A: AsRef<OsStr>>(folder: &Path, arguments: impl IntoIterator<Item = A>) -> Result<String, String> {
    let output = git_bytes(folder, arguments)?;
    Ok(String::from_utf8_lossy(&output).trim_end_matches(['\n', '\r']).to_owned())
}

/// Runs git and returns whether it succeeded.
pub(super) fn git_succeeds<A: AsRef<OsStr>>(folder: &Path, arguments: impl IntoIterator<Item = A>) -> bool {
    git_bytes(folder, arguments).is_ok()
}

/// Returns the commit that a name stands for, if there is one.
pub(super) fn resolve_commit(folder: &Path, name: &str) -> Option<String> {
    git(folder, ["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")]).ok()
}

/// Returns the paths that git lists with `-z`.
pub(super) fn git_paths<A: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Vec<String>, String> {
    let output = git_bytes(folder, arguments)?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
}
