//! Runs git, without hooks, prompts, pagers and optional locks.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

thread_local! {
    /// The lock of the repository that this thread writes to.
    static HELD_LOCK: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Runs work during which nothing else writes to a repository. The lock is a file that no git command changes.
///
/// Each git command of the work holds the lock, too, as its standard input. So if this process is killed, the next one
/// waits until a command that is still running has ended.
pub(super) fn with_lock_file<T>(lock_file: &Path, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", lock_file.display());
    if let Some(parent) = lock_file.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let lock = File::options().read(true).append(true).create(true).open(lock_file).map_err(failed)?;
    lock.lock().map_err(failed)?;
    HELD_LOCK.set(Some(lock));
    let _release = GitLockReleaseGuard;
    work()
}

/// Releases the lock of this thread when it is dropped, also during a panic.
struct GitLockReleaseGuard;

impl Drop for GitLockReleaseGuard {
    fn drop(&mut self) {
        HELD_LOCK.set(None);
    }
}

/// Returns the lock that a git command of this thread holds, too.
pub(super) fn clone_held_lock() -> Option<File> {
    HELD_LOCK.with_borrow(|lock| lock.as_ref().and_then(|lock| lock.try_clone().ok()))
}

fn git_command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false"])
        .args(["-c", "advice.detachedHead=false", "-c", "gc.auto=0", "-c", "rerere.enabled=false"])
        // A file that moved with its folder is a conflict for a coder, and not a guess of git.
        .args(["-c", "merge.directoryRenames=conflict"])
        .args(["-c", "user.name=Segue", "-c", "user.email=segue@localhost", "-c", "core.fsmonitor=false"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_EDITOR", "true")
        .env("LC_ALL", "C")
        .stdin(clone_held_lock().map_or_else(Stdio::null, Stdio::from));
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
