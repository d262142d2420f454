//! Keeps records in SQLite files: one table for each type, with ordinary columns that any other program can use. Each owner of
//! sessions has a file of its own, so that no request can reach the records of another owner.

mod backup;
mod labels;
mod links;
mod query;
mod record_store;
mod run_log;
mod schema;
mod snapshot;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use segue_core::ids::UnixMillis;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::facts::AssistantPlanStepKind;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult, DomainToolRunPurpose};

use crate::limits::{DATABASE_BUSY_MS_MAX, OPEN_DATABASES_MAX, RESULT_BYTES_MAX};
pub use backup::BackupRecordsError;
use run_log::ToolRunKey;

/// Why a request was not executed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    /// The request is invalid; the model that made it is told why.
    #[error("{0}")]
    Refused(String),
    /// The database failed.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

impl RecordsError {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

/// The records file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the records file {} cannot be opened: {source}", path.display())]
pub struct OpenRecordsError {
    path: PathBuf,
    source: rusqlite::Error,
}

/// The tool that reads and writes records in SQLite tables.
#[derive(Clone)]
pub struct SqliteRecordsTool {
    inner: Arc<SqliteRecordsInner>,
}

struct SqliteRecordsInner {
    domains: ConfiguredDomains,
    location: RecordsDatabaseLocation,
    databases: Mutex<BTreeMap<RecordsOwner, OwnerRecordsDatabase>>,
}

/// The owner of records; `None` is the operator.
type RecordsOwner = Option<String>;

/// The database of one owner, opened at first use.
type OwnerRecordsDatabase = Arc<Mutex<Option<OpenRecordsDatabase>>>;

enum RecordsDatabaseLocation {
    File(PathBuf),
    Memory,
}

/// An open file, and the domains whose tables were created in it.
struct OpenRecordsDatabase {
    connection: Connection,
    prepared_domains: BTreeSet<String>,
}

impl std::fmt::Debug for SqliteRecordsTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteRecordsTool").finish_non_exhaustive()
    }
}

impl SqliteRecordsTool {
    /// Creates a tool over a file, which is created at first use. Each owner has a file next to it, with the owner's name in its
    /// name.
    #[must_use]
    pub fn in_file(path: &Path, domains: ConfiguredDomains) -> Self {
        Self::with_location(RecordsDatabaseLocation::File(path.to_owned()), domains)
    }

    /// Creates a tool whose records are kept in memory only.
    #[must_use]
    pub fn in_memory(domains: ConfiguredDomains) -> Self {
        Self::with_location(RecordsDatabaseLocation::Memory, domains)
    }

    fn with_location(location: RecordsDatabaseLocation, domains: ConfiguredDomains) -> Self {
        Self { inner: Arc::new(SqliteRecordsInner { domains, location, databases: Mutex::default() }) }
    }

    /// Opens the file to check whether it can be used.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn check_database(&self) -> Result<(), OpenRecordsError> {
        self.inner.with_database(None, |_| Ok(())).map_err(|error| match (error, &self.inner.location) {
            (RecordsError::Sql(source), RecordsDatabaseLocation::File(path)) => {
                OpenRecordsError { path: path.clone(), source }
            }
            _ => OpenRecordsError { path: PathBuf::new(), source: rusqlite::Error::InvalidQuery },
        })
    }

    /// Gives direct access to the operator's tables.
    ///
    /// # Errors
    /// The file cannot be opened, or `inspect` failed.
    pub fn with_connection<T>(&self, inspect: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.with_owner_connection(None, inspect)
    }

    fn with_owner_connection<T>(
        &self,
        owner: Option<&str>,
        inspect: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let result = self.inner.with_database(owner, |database| Ok(inspect(&database.connection)?));
        result.map_err(|error| match error {
            RecordsError::Sql(error) => error,
            RecordsError::Refused(_) => rusqlite::Error::InvalidQuery,
        })
    }
}

#[async_trait]
impl Tool for SqliteRecordsTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        let inner = self.inner.clone();
        // A request whose caller has gone is executed completely or not at all; `resolve_run` tells which.
        let result = tokio::task::spawn_blocking(move || inner.handle_records_request(&request)).await;
        result.unwrap_or_else(|_| Err("the records tool crashed".to_owned())).into()
    }
}

impl SqliteRecordsInner {
    fn handle_records_request(&self, request: &ToolInvocation) -> Result<String, String> {
        let arguments = &request.opened.arguments;
        let domain_request =
            DomainToolRequest::parse(arguments).ok_or_else(|| "the request is not a domain tool request".to_owned())?;
        let domain = self.domains.resolve_session_domain(&request.settings)?;
        if domain.name != domain_request.domain {
            return Err(format!(
                "the request is for the domain `{}`, but the session uses `{}`",
                domain_request.domain, domain.name
            ));
        }
        let done = self.with_database(request.owner(), |database| {
            database.ensure_domain_tables(&domain)?;
            RecordsRequest {
                domain: &domain,
                run: ToolRunKey::from_request(request, arguments),
                request: &domain_request,
            }
            .execute_records_request(&mut database.connection)
        });
        match done {
            Ok(result) => Ok(result),
            Err(RecordsError::Refused(why)) => {
                Ok(result_to_json(&DomainToolResult { refusal: Some(why), ..DomainToolResult::default() }))
            }
            Err(RecordsError::Sql(error)) => Err(format!("the records database failed: {error}")),
        }
    }

    fn with_database<T>(
        &self,
        owner: Option<&str>,
        work: impl FnOnce(&mut OpenRecordsDatabase) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
        let slot = self.owner_database(owner);
        let mut database: MutexGuard<'_, Option<OpenRecordsDatabase>> =
            slot.lock().unwrap_or_else(PoisonError::into_inner);
        if database.is_none() {
            *database = Some(OpenRecordsDatabase::open(&self.location.location_for_owner(owner))?);
        }
        let Some(database) = database.as_mut() else { return Err(RecordsError::refused("the records are not open")) };
        work(database)
    }
}

/// Creates an empty database file that only its owner can read, unless the file exists. SQLite gives the write-ahead log the
/// same mode.
fn create_private_database(path: &Path) -> io::Result<()> {
    match create_new_private_file(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn create_new_private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the error of SQLite for a file that cannot be opened.
fn cannot_open(path: &Path, error: &io::Error) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(format!("{}: {error}", path.display())))
}

impl SqliteRecordsInner {
    fn owner_database(&self, owner: Option<&str>) -> OwnerRecordsDatabase {
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = owner.map(str::to_owned);
        if databases.len() >= OPEN_DATABASES_MAX && matches!(self.location, RecordsDatabaseLocation::File(_)) {
            // Only a database that no request uses may be closed.
            databases.retain(|known, database| *known == owner || Arc::strong_count(database) > 1);
        }
        databases.entry(owner).or_default().clone()
    }
}

impl RecordsDatabaseLocation {
    /// Returns where the records of an owner are. The engine allows only lowercase letters, digits and `-` in an owner's name.
    fn location_for_owner(&self, owner: Option<&str>) -> Self {
        match (self, owner) {
            (Self::Memory, _) => Self::Memory,
            (Self::File(path), None) => Self::File(path.clone()),
            (Self::File(path), Some(owner)) => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
                Self::File(path.with_file_name(format!("{stem}.{owner}{}", extension.unwrap_or_default())))
            }
        }
    }
}

/// Enables write-ahead logging. If two programs do this to a new file at once, SQLite fails for one of them without waiting, so it
/// is tried again.
fn enable_wal(connection: &Connection) -> Result<(), rusqlite::Error> {
    let until = Instant::now() + Duration::from_millis(DATABASE_BUSY_MS_MAX);
    loop {
        let done = connection.pragma_update(None, "journal_mode", "WAL");
        let code = done.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
        let is_busy = matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
        if !is_busy || Instant::now() >= until {
            return done;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl OpenRecordsDatabase {
    fn open(location: &RecordsDatabaseLocation) -> Result<Self, RecordsError> {
        let connection = match location {
            RecordsDatabaseLocation::File(path) => {
                create_private_database(path).map_err(|error| cannot_open(path, &error))?;
                Connection::open(path)?
            }
            RecordsDatabaseLocation::Memory => Connection::open_in_memory()?,
        };
        connection.busy_timeout(Duration::from_millis(DATABASE_BUSY_MS_MAX))?;
        enable_wal(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // On macOS, an ordinary sync does not reach the disk.
        connection.pragma_update(None, "fullfsync", "ON")?;
        connection.pragma_update(None, "checkpoint_fullfsync", "ON")?;
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        connection
            .create_scalar_function("segue_fold", 1, flags, |context| query::sql_fold_case(context.get_raw(0)))?;
        connection
            .create_scalar_function("segue_list", 1, flags, |context| query::sql_list_json(context.get_raw(0)))?;
        Ok(Self { connection, prepared_domains: BTreeSet::new() })
    }

    /// Creates the tables of a domain if that was not done yet.
    fn ensure_domain_tables(&mut self, domain: &DomainSchema) -> Result<(), RecordsError> {
        if self.prepared_domains.contains(&domain.name) {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        run_log::create_run_table(&transaction)?;
        schema::create_domain_tables(&transaction, domain, now_millis())?;
        transaction.commit()?;
        self.prepared_domains.insert(domain.name.clone());
        Ok(())
    }
}

/// One request, with its domain and run.
struct RecordsRequest<'w> {
    domain: &'w DomainSchema,
    run: ToolRunKey,
    request: &'w DomainToolRequest,
}

impl RecordsRequest<'_> {
    fn execute_records_request(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let request = self.request;
        match request.operation {
            DomainOperation::Read => {
                query::find_records_by_query(connection, self.domain, request).map(|result| result_to_json(&result))
            }
            DomainOperation::Get => {
                query::fetch_records_by_id(connection, self.domain, request).map(|result| result_to_json(&result))
            }
            DomainOperation::Snapshot => {
                snapshot::take_snapshot(connection, self.domain, request).map(|result| result_to_json(&result))
            }
            DomainOperation::ResolveRun => self.resolve_run(connection),
            operation if operation.is_table_write() => self.write_once(connection),
            operation => Err(RecordsError::refused(format!("tables do not support `{}`", operation.as_str()))),
        }
    }

    /// Executes a write once. If this run was executed before, its stored result is returned.
    fn write_once(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let request = self.request;
        let is_planned =
            request.purpose == DomainToolRunPurpose::Undo || request.step_kind == Some(AssistantPlanStepKind::Write);
        if !is_planned {
            return Err(RecordsError::refused("records may only be changed in a step that was planned as a write"));
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = self.run.load_result(&transaction)? {
            return Ok(result);
        }
        let result = result_to_json(&write::execute_write(&transaction, self.domain, request, &self.run)?);
        if result.len() > RESULT_BYTES_MAX {
            return Err(RecordsError::refused("the request is too large; change fewer or shorter records at once"));
        }
        self.run.save_result(&transaction, &result)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Returns the result of another run. If it was not executed, it is recorded as never executed, and will not be.
    fn resolve_run(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let Some((run, original)) = self.request.run_to_resolve() else {
            return Err(RecordsError::refused("the request does not name a run"));
        };
        let run = self.run.for_other_run(run, &original.to_arguments());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = run.load_result(&transaction)? {
            return Ok(result);
        }
        let never_executed = result_to_json(&DomainToolResult { never_executed: true, ..DomainToolResult::default() });
        run.save_result(&transaction, &never_executed)?;
        transaction.commit()?;
        Ok(never_executed)
    }
}

fn result_to_json(result: &DomainToolResult) -> String {
    serde_json::to_string(result).unwrap_or_else(|_| "{}".to_owned())
}

fn now_millis() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
