//! Converts PostgreSQL's errors.

use deadpool_postgres::PoolError;
use segue_core::ids::SessionId;
use tokio_postgres::error::SqlState;

use crate::Error;

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum PostgresError {
    /// Refused; its transaction is rolled back.
    Refused(Error),
    Sql(tokio_postgres::Error),
    Pool(PoolError),
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Sql(error),
            error => Self::Pool(error),
        }
    }
}

impl PostgresError {
    /// Returns whether the operation was rolled back because of another transaction, so that it should be tried again:
    /// a deadlock, a text that was erased while it was about to be shared, or a row that both inserted.
    pub(super) fn is_transaction_conflict(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        error.code().is_some_and(|code| {
            [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::FOREIGN_KEY_VIOLATION,
                SqlState::UNIQUE_VIOLATION,
            ]
            .contains(code)
        })
    }

    /// Converts the error for the caller of `what`.
    pub(super) fn into_store_error(self, what: &str) -> Error {
        let what = what.to_owned();
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) if error.code() == Some(&SqlState::DISK_FULL) => Error::DiskFull { what },
            Self::Sql(error) if is_unavailable(&error) => {
                Error::DatabaseUnavailable { what, detail: describe_sql_error(&error) }
            }
            Self::Sql(error) => Error::Io { what, detail: describe_sql_error(&error) },
            Self::Pool(PoolError::Timeout(_)) => {
                Error::DatabaseUnavailable { what, detail: "the database accepted no connection in time".into() }
            }
            Self::Pool(error) => Error::Io { what, detail: error.to_string() },
        }
    }
}

/// Returns whether the database is down, starting, stopping, a standby or without free connections, or the connection to it
/// was lost.
fn is_unavailable(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => {
            let is_connection_exception = code.code().starts_with("08");
            is_connection_exception
                || [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::TOO_MANY_CONNECTIONS,
                    SqlState::READ_ONLY_SQL_TRANSACTION,
                ]
                .contains(code)
        }
        None => error.is_closed() || std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>()),
    }
}

/// Returns the server's own message, or the cause of a failed connection. Values of a statement are never included.
pub(super) fn describe_sql_error(error: &tokio_postgres::Error) -> String {
    if let Some(server_error) = error.as_db_error() {
        return format!("{} ({})", server_error.message(), server_error.code().code());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The stored data of a session is not what was written.
pub(super) fn corrupted(session: &SessionId, detail: String) -> PostgresError {
    PostgresError::Refused(Error::SessionCorrupted { session: session.clone(), detail })
}
