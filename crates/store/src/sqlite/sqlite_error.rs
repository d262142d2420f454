//! Says in our words what SQLite complains about.

use std::path::Path;

use rusqlite::ErrorCode;
use segue_core::ids::SessionId;

use crate::Error;

/// The shared-memory file could not grow: to a user, a full disk.
const SQLITE_IOERR_SHMSIZE: i32 = 10 | 19 << 8;

/// Why an operation inside a transaction did not succeed.
#[derive(Debug)]
pub(super) enum TransactionError {
    /// It was refused before it wrote anything: others in the same transaction are not affected.
    Rejected(Error),
    /// It failed and may have written: the transaction must not be committed.
    Failed(Error),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl TransactionError {
    /// The error to hand to whoever asked something of `session`.
    pub(super) fn to_session_error(&self, session: &SessionId) -> Error {
        match self {
            Self::Rejected(error) | Self::Failed(error) => error.clone(),
            Self::Sql(error) => map_session_error(error, session),
        }
    }
}

/// What `error` means for one session.
pub(super) fn map_session_error(error: &rusqlite::Error, session: &SessionId) -> Error {
    if is_corruption(error) {
        return Error::SessionCorrupted { session: session.clone(), detail: error.to_string() };
    }
    map_sqlite_error(error, &format!("session `{session}`"))
}

/// What `error` means for the store at `path` as a whole.
pub(super) fn map_store_error(error: &rusqlite::Error, path: &Path) -> Error {
    let place = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::NotAStore { path: place, detail: "no SQLite database".into() },
        _ if is_corruption(error) => Error::StoreCorrupted { path: place, detail: error.to_string() },
        _ => map_sqlite_error(error, &format!("the store {place}")),
    }
}

/// A failure of the file system.
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

/// Whether the file, and not the machine, is at fault. A value of a wrong type or a read past the end is damage too:
/// nothing we write looks like that.
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
