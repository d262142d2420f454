//! Copies the records of all owners while other programs use them, and checks the copies.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{RecordsDatabaseLocation, RecordsOwner, SqliteRecordsTool, cannot_open, create_new_private_file};

/// Records could not be copied. No file is left.
#[derive(Debug, thiserror::Error)]
#[error("the records cannot be copied to {}: {source}", path.display())]
pub struct BackupRecordsError {
    path: PathBuf,
    source: rusqlite::Error,
}

impl SqliteRecordsTool {
    /// Copies the records of all owners, and checks the copies. The operator's records become the file `to`; those of an owner
    /// become a file next to it, with the same name that a tool over `to` uses. Returns the new files. Blocks on disk I/O.
    ///
    /// # Errors
    /// One of the files exists, records cannot be read, or a copy cannot be written or is damaged. No new file is left.
    pub fn backup_databases(&self, to: &Path) -> Result<Vec<PathBuf>, BackupRecordsError> {
        let failed = |path: &Path, source| BackupRecordsError { path: path.to_owned(), source };
        let owners = self.stored_owners().map_err(|error| failed(to, cannot_open(to, &error)))?;
        let target = RecordsDatabaseLocation::File(to.to_owned());
        let mut copies = Vec::new();
        for owner in owners {
            let RecordsDatabaseLocation::File(copy) = target.location_for_owner(owner.as_deref()) else { continue };
            if let Err(source) = self.backup_owner(owner.as_deref(), &copy) {
                // A part of a backup would look like a whole one. If it cannot be removed, the error still says what is missing.
                copies.iter().for_each(|copy: &PathBuf| drop(std::fs::remove_file(copy)));
                return Err(failed(&copy, source));
            }
            copies.push(copy);
        }
        Ok(copies)
    }

    /// Returns the owners that have a file.
    fn stored_owners(&self) -> std::io::Result<Vec<RecordsOwner>> {
        let RecordsDatabaseLocation::File(path) = &self.inner.location else { return Ok(Vec::new()) };
        let mut owners = Vec::new();
        if path.exists() {
            owners.push(None);
        }
        let Some(folder) = path.parent().filter(|folder| folder.is_dir()) else { return Ok(owners) };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for entry in std::fs::read_dir(folder)? {
            let found = entry?.path();
            let name = found.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let owner = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('.'));
            let Some(owner) = owner.filter(|_| found.extension() == path.extension()) else { continue };
            // The file of an owner has exactly this name; other files, such as copies, do not.
            let is_owners = matches!(self.inner.location.location_for_owner(Some(owner)), RecordsDatabaseLocation::File(path) if path == found);
            if is_owners && !owner.contains('.') {
                owners.push(Some(owner.to_owned()));
            }
        }
        Ok(owners)
    }

    fn backup_owner(&self, owner: Option<&str>, to: &Path) -> rusqlite::Result<()> {
        // An incomplete copy must not look like a backup, so it has another name until it was checked.
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        let copied = self.with_owner_connection(owner, |source| copy_and_check(source, &part)).and_then(|()| {
            if to.symlink_metadata().is_ok() {
                return Err(cannot_open(to, &std::io::ErrorKind::AlreadyExists.into()));
            }
            std::fs::rename(&part, to).map_err(|error| cannot_open(to, &error))
        });
        if copied.is_err() {
            // The error may be dropped: the name of the file says that it is incomplete.
            let _ = std::fs::remove_file(&part);
        }
        copied
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
