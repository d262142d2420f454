//! Converts SQLite's errors.

use std::path::Path;

use rusqlite::ErrorCode;
use segue_core::ids::SessionId;

use crate::Error;

/// The shared-memory file could not grow, which usually means a full disk.
const SQLITE_IOERR_SHMSIZE: i32 = 10 | 19 << 8;

/// Why an operation within a transaction failed.
#[derive(Debug)]
pub(super) enum SqliteTransactionError {
    /// Refused before it wrote anything; other operations in the same transaction are not affected.
    Rejected(Error),
    /// Failed after it may have written; the transaction must not be committed.
    Failed(Error),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for SqliteTransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl SqliteTransactionError {
    /// Returns whether SQLite found a page of the file damaged.
    pub(super) fn is_damaged_page(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    /// Converts the error for a caller that used `session`.
    pub(super) fn to_session_error(&self, session: &SessionId) -> Error {
        match self {
            Self::Rejected(error) | Self::Failed(error) => error.clone(),
            Self::Sql(error) => map_session_error(error, session),
        }
    }
}

/// Converts an error that concerns one session.
pub(super) fn map_session_error(error: &rusqlite::Error, session: &SessionId) -> Error {
    if is_corruption(error) {
        return Error::SessionCorrupted { session: session.clone(), detail: error.to_string() };
    }
    map_sqlite_error(error, &format!("session `{session}`"))
}

/// Converts an error that concerns the whole store at `path`.
pub(super) fn map_store_error(error: &rusqlite::Error, path: &Path) -> Error {
    let display_path = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            Error::NotAStore { path: display_path, detail: "not an SQLite database".into() }
        }
        _ if is_corruption(error) => Error::StoreCorrupted { path: display_path, detail: error.to_string() },
        _ => map_sqlite_error(error, &format!("the store {display_path}")),
    }
}

/// Converts an error of the file system.
pub(super) fn map_file_error(error: &std::io::Error, path: &Path) -> Error {
    let what = format!("opening {}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::DiskFull { what },
        _ => Error::Io { what, detail: error.to_string() },
    }
}

fn map_sqlite_error(error: &rusqlite::Error, what: &str) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull { what: what.into() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::StoreLocked { what: format!("using {what}") }
        }
        Some(ErrorCode::SystemIoFailure) if extended_error_code(error) == Some(SQLITE_IOERR_SHMSIZE) => {
            Error::DiskFull { what: what.into() }
        }
        _ => Error::Io { what: format!("using {what}"), detail: error.to_string() },
    }
}

/// Returns whether the file is corrupted. A value of a wrong type and a read past the end count as well, because the
/// store never writes such data.
fn is_corruption(error: &rusqlite::Error) -> bool {
    const IOERR_SHORT_READ: i32 = 10 | 2 << 8;
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation) => true,
            Some(ErrorCode::SystemIoFailure) => extended_error_code(error) == Some(IOERR_SHORT_READ),
            _ => false,
        },
    }
}

fn extended_error_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
