//! Tells whether the process that holds a session is alive.
//!
//! Each open store has a name and keeps a file of that name locked. The system releases the lock when the process ends,
//! however it ends. So a holder whose file can be locked is dead; no clock and no heartbeat is needed.

use super::private_files;
use crate::limits::LOCK_NAME_ATTEMPTS_MAX;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The lock of one open store.
#[derive(Debug)]
pub(super) struct ProcessLivenessLock {
    name: String,
    folder: PathBuf,
    _lock: File,
}

impl ProcessLivenessLock {
    /// Creates the lock of a store on `database`, and removes the files of dead processes.
    pub(super) fn acquire(database: &Path) -> io::Result<Self> {
        let folder = lock_folder(database);
        private_files::create_private_folder(&folder)?;
        remove_stale_locks(&folder)?;
        for _ in 0..LOCK_NAME_ATTEMPTS_MAX {
            let name = format!("{}-{:016x}", std::process::id(), RandomState::new().build_hasher().finish());
            let path = lock_path(&folder, &name);
            let lock = private_files::create_new_private_file(&path)?;
            // Another process may remove the file before it is locked; then another name is tried.
            if lock.try_lock().is_ok() && path.exists() {
                return Ok(Self { name, folder, _lock: lock });
            }
        }
        Err(io::Error::other("all lock files were removed by other processes"))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether `holder` is another store that is still open.
    pub(super) fn is_held_by_live_other(&self, holder: &str) -> io::Result<bool> {
        if holder == self.name {
            return Ok(false);
        }
        is_lock_file_held(&lock_path(&self.folder, holder))
    }

    /// Returns how many other stores are open on the same database.
    pub(super) fn other_live_count(&self) -> io::Result<usize> {
        let own = lock_path(&self.folder, &self.name);
        let mut count = 0;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_other_lock = path.extension().is_some_and(|kind| kind == "lock") && path != own;
            count += usize::from(is_other_lock && is_lock_file_held(&path)?);
        }
        Ok(count)
    }
}

impl Drop for ProcessLivenessLock {
    fn drop(&mut self) {
        // If this fails, the next store that opens removes the file.
        let _ = fs::remove_file(lock_path(&self.folder, &self.name));
    }
}

/// Keeps other processes from opening the same store, until the result is dropped.
pub(super) fn lock_store_for_opening(database: &Path) -> io::Result<File> {
    let folder = lock_folder(database);
    private_files::create_private_folder(&folder)?;
    let file = private_files::open_private_file(&folder.join("opening"))?;
    file.lock()?;
    Ok(file)
}

fn lock_folder(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".nodes");
    name.into()
}

fn lock_path(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.lock"))
}

/// Tries a shared lock, so that two processes that check at the same time do not mistake each other for the holder.
fn is_lock_file_held(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn remove_stale_locks(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "lock") && !is_lock_file_held(&path)? {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = folder.path().join("x.db");
        let (a, b) =
            (ProcessLivenessLock::acquire(&database).expect("a"), ProcessLivenessLock::acquire(&database).expect("b"));
        assert!(a.is_held_by_live_other(b.name()).expect("checked"));
        assert!(!a.is_held_by_live_other(a.name()).expect("checked"), "its own lock does not count");
        let name = b.name().to_owned();
        drop(b);
        assert!(!a.is_held_by_live_other(&name).expect("checked"));
    }

    #[test]
    fn files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database = folder.path().join("x.db");
        let live = ProcessLivenessLock::acquire(&database).expect("locked");
        let stale = lock_path(&lock_folder(&database), "1-dead");
        File::create(&stale).expect("created");
        let _second = ProcessLivenessLock::acquire(&database).expect("locked");
        assert!(!stale.exists());
        assert!(lock_path(&lock_folder(&database), live.name()).exists());
    }
}
