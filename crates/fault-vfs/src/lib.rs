//! A file system for SQLite, for tests: it records every write, and can refuse writes and syncs. From a recording, the files
//! can be rebuilt as a power cut could have left them: what was synced is there, and of the rest any part may be lost, torn
//! or written in another order.
//!
//! SQLite's interface for file systems is a set of C functions, so this crate needs unsafe code; nothing else does.

#![allow(unsafe_code, reason = "SQLite's interface for file systems is C")]

mod disk_image;
mod vfs;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use disk_image::{PowerCutDiskImage, PowerCutWriteLoss};
pub use vfs::install;

/// A change that SQLite made to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqliteFileChange {
    Write {
        path: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        path: String,
        size: u64,
    },
    /// Everything before it is durable.
    Sync {
        path: String,
    },
    Delete {
        path: String,
    },
    /// Set by the test, for example when a commit was acknowledged.
    Mark(u64),
}

/// Which operations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InjectedSqliteFileFaults {
    /// Syncs of the write-ahead log fail, as on a broken disk.
    pub wal_sync_fails: bool,
    /// Syncs of the database fail, as on a broken disk.
    pub database_sync_fails: bool,
    /// Writes to the database fail, as on a full disk. The write-ahead log still has space.
    pub database_is_full: bool,
}

#[derive(Debug, Default)]
struct SqliteFileChangeRecorder {
    changes: Vec<SqliteFileChange>,
    faults: InjectedSqliteFileFaults,
    faults_hit: usize,
}

static RECORDER: Mutex<Option<SqliteFileChangeRecorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<SqliteFileChangeRecorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a new recording, without faults.
pub fn start_recording() {
    *recorder() = Some(SqliteFileChangeRecorder::default());
}

/// Ends the recording, and returns it.
#[must_use]
pub fn stop_recording() -> Vec<SqliteFileChange> {
    recorder().take().map(|recorder| recorder.changes).unwrap_or_default()
}

/// Returns the recording so far; it continues.
#[must_use]
pub fn recorded_changes() -> Vec<SqliteFileChange> {
    recorder().as_ref().map(|recorder| recorder.changes.clone()).unwrap_or_default()
}

/// Adds a mark to the recording.
pub fn mark(number: u64) {
    record(SqliteFileChange::Mark(number));
}

/// Sets which operations fail from now on.
pub fn inject_faults(faults: InjectedSqliteFileFaults) {
    if let Some(recorder) = recorder().as_mut() {
        recorder.faults = faults;
    }
}

/// Returns how many operations failed because of injected faults.
#[must_use]
pub fn faults_hit() -> usize {
    recorder().as_ref().map_or(0, |recorder| recorder.faults_hit)
}

fn record(change: SqliteFileChange) {
    if let Some(recorder) = recorder().as_mut() {
        recorder.changes.push(change);
    }
}

/// Returns whether an operation fails, and counts it.
fn has_fault(is_hit: impl FnOnce(&InjectedSqliteFileFaults) -> bool) -> bool {
    let mut recorder = recorder();
    let Some(recorder) = recorder.as_mut() else { return false };
    let hit = is_hit(&recorder.faults);
    recorder.faults_hit += usize::from(hit);
    hit
}
