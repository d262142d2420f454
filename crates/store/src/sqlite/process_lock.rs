//! Tells whether the process that holds a session still lives.
//!
//! Each open store has a name and keeps a file of that name locked. The system takes the lock away when the process
//! ends, however it ends, so a holder whose lock can be had is dead. No clock, no heartbeat.

use crate::limits::LOCK_NAME_ATTEMPTS_MAX;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// One open store among those on the same file.
#[derive(Debug)]
pub(super) struct ProcessLock {
    name: String,
    folder: PathBuf,
    _lock: File,
}

impl ProcessLock {
    /// Joins the stores open on `database` and clears away what dead ones left.
    pub(super) fn acquire(database: &Path) -> io::Result<Self> {
        let folder = lock_folder(database);
        fs::create_dir_all(&folder)?;
        remove_stale_locks(&folder)?;
        for _ in 0..LOCK_NAME_ATTEMPTS_MAX {
            let name = format!("{}-{:016x}", std::process::id(), RandomState::new().build_hasher().finish());
            let path = lock_path(&folder, &name);
            let lock = File::create_new(&path)?;
            // Another process may sweep the file away before it is locked: then its name is worth nothing.
            if lock.try_lock().is_ok() && path.exists() {
                return Ok(Self { name, folder, _lock: lock });
            }
        }
        Err(io::Error::other("no lock file of our own was left alone"))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether `holder` is another store that is still open.
    pub(super) fn is_held_by_live_other(&self, holder: &str) -> io::Result<bool> {
        if holder == self.name {
            return Ok(false);
        }
        is_lock_file_held(&lock_path(&self.folder, holder))
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // Left behind, it is swept up by the next store to open.
        let _ = fs::remove_file(lock_path(&self.folder, &self.name));
    }
}

/// Keeps others from opening the same store at the same time, until dropped.
pub(super) fn lock_store_for_opening(database: &Path) -> io::Result<File> {
    let folder = lock_folder(database);
    fs::create_dir_all(&folder)?;
    let file = File::options().create(true).truncate(false).write(true).open(folder.join("opening"))?;
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

/// A shared lock is tried, so that two who ask at once do not take each other for the holder.
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
    fn a_node_lives_until_it_is_dropped() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let database = place.path().join("x.db");
        let (a, b) = (ProcessLock::acquire(&database).expect("a"), ProcessLock::acquire(&database).expect("b"));
        assert!(a.is_held_by_live_other(b.name()).expect("asked"));
        assert!(!a.is_held_by_live_other(a.name()).expect("asked"), "itself is no other");
        let name = b.name().to_owned();
        drop(b);
        assert!(!a.is_held_by_live_other(&name).expect("asked"));
    }

    #[test]
    fn what_dead_nodes_left_is_swept_up() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let database = place.path().join("x.db");
        let live = ProcessLock::acquire(&database).expect("joins");
        let stale = lock_path(&lock_folder(&database), "1-dead");
        File::create(&stale).expect("created");
        let _second = ProcessLock::acquire(&database).expect("joins");
        assert!(!stale.exists());
        assert!(lock_path(&lock_folder(&database), live.name()).exists());
    }
}
