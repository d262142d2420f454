//! Copies the records database while other programs use it, and checks the copy.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{SqliteRecordsTool, cannot_open, create_new_private_file};

/// The records could not be copied. No file is left.
#[derive(Debug, thiserror::Error)]
#[error("the records cannot be copied to {}: {source}", path.display())]
pub struct BackupRecordsError {
    path: PathBuf,
    source: rusqlite::Error,
}

impl SqliteRecordsTool {
    /// Copies the records to the new file `to`, and checks the copy. Blocks on disk I/O.
    ///
    /// # Errors
    /// `to` exists, the records cannot be read, or the copy cannot be written or is damaged.
    pub fn backup_database(&self, to: &Path) -> Result<(), BackupRecordsError> {
        let failed = |source| BackupRecordsError { path: to.to_owned(), source };
        // An incomplete copy must not look like a backup, so it has another name until it was checked.
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        let copied = self.with_connection(|source| copy_and_check(source, &part)).and_then(|()| {
            if to.symlink_metadata().is_ok() {
                return Err(cannot_open(to, &std::io::ErrorKind::AlreadyExists.into()));
            }
            std::fs::rename(&part, to).map_err(|error| cannot_open(to, &error))
        });
        if copied.is_err() {
            // The error may be dropped: the name of the file says that it is incomplete.
            let _ = std::fs::remove_file(&part);
        }
        copied.map_err(failed)
    }
}

fn copy_and_check(source: &Connection, part: &Path) -> rusqlite::Result<()> {
    let destination = part.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(part.to_owned()))?;
    // SQLite accepts an empty file as the destination, and keeps its mode.
    let file = create_new_private_file(part).map_err(|error| cannot_open(part, &error))?;
    source.execute("VACUUM INTO ?1", [destination])?;
    let copy = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let result: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if result != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(result)));
    }
    file.sync_all().map_err(|error| cannot_open(part, &error))
}
