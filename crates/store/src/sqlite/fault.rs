//! Says in our words what SQLite complains about.

use std::path::Path;

use rusqlite::ErrorCode;
use segue_core::ids::SessionId;

use crate::Error;

/// The shared-memory file could not grow: to a user, a full disk.
const IOERR_SHMSIZE: i32 = 10 | 19 << 8;

/// Why an operation inside a transaction did not succeed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It was refused before it wrote anything: others in the same transaction are not affected.
    Refused(Error),
    /// It failed and may have written: the transaction must not be committed.
    Failed(Error),
    /// SQLite failed.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Trouble {
    /// The error to hand to whoever asked something of `session`.
    pub(super) fn about(&self, session: &SessionId) -> Error {
        match self {
            Self::Refused(error) | Self::Failed(error) => error.clone(),
            Self::Sql(error) => about_session(error, session),
        }
    }
}

/// What `error` means for one session.
pub(super) fn about_session(error: &rusqlite::Error, session: &SessionId) -> Error {
    if is_damage(error) {
        return Error::Damaged { session: session.clone(), detail: error.to_string() };
    }
    about(error, &format!("session `{session}`"))
}

/// What `error` means for the store at `path` as a whole.
pub(super) fn about_store(error: &rusqlite::Error, path: &Path) -> Error {
    let place = path.display().to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::NotAStore { path: place, detail: "no SQLite database".into() },
        _ if is_damage(error) => Error::Broken { path: place, detail: error.to_string() },
        _ => about(error, &format!("the store {place}")),
    }
}

/// A failure of the file system.
pub(super) fn about_file(error: &std::io::Error, path: &Path) -> Error {
    let what = format!("opening {}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::Full { what },
        _ => Error::Io { what, detail: error.to_string() },
    }
}

fn about(error: &rusqlite::Error, what: &str) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { what: what.into() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { what: format!("using {what}") },
        Some(ErrorCode::SystemIoFailure) if extended(error) == Some(IOERR_SHMSIZE) => Error::Full { what: what.into() },
        _ => Error::Io { what: format!("using {what}"), detail: error.to_string() },
    }
}

/// Whether the file, and not the machine, is at fault. A value of a wrong type or a read past the end is damage too:
/// nothing we write looks like that.
fn is_damage(error: &rusqlite::Error) -> bool {
    const IOERR_SHORT_READ: i32 = 10 | 2 << 8;
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation) => true,
            Some(ErrorCode::SystemIoFailure) => extended(error) == Some(IOERR_SHORT_READ),
            _ => false,
        },
    }
}

fn extended(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
