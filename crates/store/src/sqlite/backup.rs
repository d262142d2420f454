//! Copies a store while other processes use it, and checks the copy.

use std::path::{Path, PathBuf};

use super::body_index::SqliteStoreConnection;
use super::sqlite_error::{SqliteTransactionError, map_file_error, map_store_error};
use super::{private_files, read, schema};
use crate::{Error, IntegrityReport};

/// A store could not be copied. No file is left.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{path} exists and is not overwritten; choose another name")]
    FileExists { path: String },
    /// The copy did not pass the check.
    #[error("the copy of the store is damaged ({detail}); `segue doctor` checks the store itself")]
    CopyDamaged {
        /// The first problem that was found.
        detail: String,
    },
    #[error(transparent)]
    Store(#[from] Error),
}

/// Copies the store at `from` to the new file `to`, and checks the copy. The copy contains everything that was committed
/// when copying began, and has the newest format. Blocks on disk I/O.
///
/// # Errors
/// `to` exists, the store cannot be read, or the copy cannot be written or is damaged.
pub fn backup_store(from: &Path, to: &Path) -> Result<IntegrityReport, BackupError> {
    refuse_existing(to)?;
    // An incomplete copy must not look like a backup, so it has another name until it was checked.
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let copied = copy_and_check(from, &part).and_then(|report| {
        refuse_existing(to)?;
        std::fs::rename(&part, to).map_err(|error| map_file_error(&error, to))?;
        Ok(report)
    });
    if copied.is_err() {
        // The error may be dropped: the name of the file says that it is incomplete.
        let _ = std::fs::remove_file(&part);
    }
    copied
}

fn refuse_existing(path: &Path) -> Result<(), BackupError> {
    match path.symlink_metadata() {
        Ok(_) => Err(BackupError::FileExists { path: path.display().to_string() }),
        Err(_) => Ok(()),
    }
}

fn copy_and_check(from: &Path, part: &Path) -> Result<IntegrityReport, BackupError> {
    let source = schema::open_existing_store(from)?;
    let destination = part.to_str().ok_or_else(|| Error::Io {
        what: format!("opening {}", part.display()),
        detail: "the name is not UTF-8".to_owned(),
    })?;
    // SQLite accepts an empty file as the destination, and keeps its mode.
    let file = private_files::create_new_private_file(part).map_err(|error| map_file_error(&error, part))?;
    source.execute("VACUUM INTO ?1", [destination]).map_err(|error| map_store_error(&error, from))?;
    drop(source);
    let copy: SqliteStoreConnection = schema::open_writer_connection(part)?.into();
    let report = read::check_integrity(&copy).map_err(|error| match error {
        SqliteTransactionError::Sql(error) => map_store_error(&error, part),
        SqliteTransactionError::Rejected(error) | SqliteTransactionError::Failed(error) => error,
    })?;
    drop(copy);
    file.sync_all().map_err(|error| map_file_error(&error, part))?;
    let sessions = report.damaged_sessions.iter().map(|(session, detail)| format!("session `{session}`: {detail}"));
    match report.store_problems.iter().cloned().chain(sessions).next() {
        Some(detail) => Err(BackupError::CopyDamaged { detail }),
        None => Ok(report),
    }
}
