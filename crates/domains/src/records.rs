//! Records in SQLite tables of a person's own: one table a type, ordinary columns, open to any other program.

mod labels;
mod links;
mod query;
mod record_store;
mod run_log;
mod schema;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use segue_core::ids::UnixMillis;
use segue_engine::tools::{Tool, ToolRequest};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::facts::StepKind;
use segue_flows::assistant::settings::DomainCatalog;
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult, ToolRunPurpose};

use crate::limits::{DATABASE_BUSY_MS_MAX, RESULT_BYTES_MAX};
use run_log::RunKey;

/// Why a request was not followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    /// It cannot be done; whoever asked is told why.
    #[error("{0}")]
    Refused(String),
    /// The database failed.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

impl RecordsError {
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

/// Why the file that records are kept in cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the records {} cannot be opened: {source}", path.display())]
pub struct OpenRecordsError {
    path: PathBuf,
    source: rusqlite::Error,
}

/// The host of records in tables.
#[derive(Clone)]
pub struct SqliteRecordsTool {
    inner: Arc<SqliteRecordsInner>,
}

struct SqliteRecordsInner {
    domains: DomainCatalog,
    location: DatabaseLocation,
    database: Mutex<Option<OpenDatabase>>,
}

enum DatabaseLocation {
    File(PathBuf),
    Memory,
}

/// A file that is open, and the domains whose tables are known to stand in it.
struct OpenDatabase {
    connection: Connection,
    prepared_domains: BTreeSet<String>,
}

impl std::fmt::Debug for SqliteRecordsTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl SqliteRecordsTool {
    /// A host over a file, which is made at first use.
    #[must_use]
    pub fn in_file(path: &Path, domains: DomainCatalog) -> Self {
        Self::with_location(DatabaseLocation::File(path.to_owned()), domains)
    }

    /// A host whose records are gone with it.
    #[must_use]
    pub fn in_memory(domains: DomainCatalog) -> Self {
        Self::with_location(DatabaseLocation::Memory, domains)
    }

    fn with_location(location: DatabaseLocation, domains: DomainCatalog) -> Self {
        Self { inner: Arc::new(SqliteRecordsInner { domains, location, database: Mutex::new(None) }) }
    }

    /// Opens the file now, to find out whether it can be used.
    ///
    /// # Errors
    /// It cannot.
    pub fn check_database(&self) -> Result<(), OpenRecordsError> {
        self.inner.with_database(|_| Ok(())).map_err(|refusal| match (refusal, &self.inner.location) {
            (RecordsError::Sql(source), DatabaseLocation::File(path)) => {
                OpenRecordsError { path: path.clone(), source }
            }
            _ => OpenRecordsError { path: PathBuf::new(), source: rusqlite::Error::InvalidQuery },
        })
    }

    /// Looks at the tables as any other program would.
    ///
    /// # Errors
    /// The file cannot be opened, or the question is no SQL.
    pub fn with_connection<T>(&self, inspect: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let looked = self.inner.with_database(|opened| Ok(inspect(&opened.connection)?));
        looked.map_err(|refusal| match refusal {
            RecordsError::Sql(error) => error,
            RecordsError::Refused(_) => rusqlite::Error::InvalidQuery,
        })
    }
}

#[async_trait]
impl Tool for SqliteRecordsTool {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let inner = self.inner.clone();
        // A request whose caller is gone is still carried out, or not at all: `settle` says which.
        let served = tokio::task::spawn_blocking(move || inner.handle_request(&request)).await;
        served.map_err(|_| "the host of the records broke down".to_owned())?
    }
}

impl SqliteRecordsInner {
    fn handle_request(&self, request: &ToolRequest) -> Result<String, String> {
        let arguments = &request.opened.arguments;
        let told = DomainToolRequest::parse(arguments).ok_or_else(|| "the request is not understood".to_owned())?;
        let domain = self.domains.resolve_session_domain(&request.settings)?;
        if domain.name != told.domain {
            return Err(format!("the request is for `{}`, and the session is about `{}`", told.domain, domain.name));
        }
        let done = self.with_database(|opened| {
            opened.ensure_domain_tables(&domain)?;
            RecordsRequest { domain: &domain, run: RunKey::from_request(request, arguments), request: &told }
                .execute(&mut opened.connection)
        });
        match done {
            Ok(result) => Ok(result),
            Err(RecordsError::Refused(why)) => {
                Ok(result_to_json(&DomainToolResult { refusal: Some(why), ..DomainToolResult::default() }))
            }
            Err(RecordsError::Sql(error)) => Err(format!("the records could not be used: {error}")),
        }
    }

    fn with_database<T>(
        &self,
        work: impl FnOnce(&mut OpenDatabase) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
        let mut open: MutexGuard<'_, Option<OpenDatabase>> =
            self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(OpenDatabase::open(&self.location)?);
        }
        let Some(opened) = open.as_mut() else { return Err(RecordsError::refused("the records are not open")) };
        work(opened)
    }
}

/// Has the file written through a log. Of two programs that open a new file at once, SQLite turns one away without waiting.
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

impl OpenDatabase {
    fn open(location: &DatabaseLocation) -> Result<Self, RecordsError> {
        let connection = match location {
            DatabaseLocation::File(path) => Connection::open(path)?,
            DatabaseLocation::Memory => Connection::open_in_memory()?,
        };
        connection.busy_timeout(Duration::from_millis(DATABASE_BUSY_MS_MAX))?;
        enable_wal(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        connection
            .create_scalar_function("segue_fold", 1, flags, |context| query::sql_fold_case(context.get_raw(0)))?;
        connection
            .create_scalar_function("segue_list", 1, flags, |context| query::sql_list_json(context.get_raw(0)))?;
        Ok(Self { connection, prepared_domains: BTreeSet::new() })
    }

    /// Sees to it that the tables of a domain stand.
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

/// One request.
struct RecordsRequest<'w> {
    domain: &'w DomainSchema,
    run: RunKey,
    request: &'w DomainToolRequest,
}

impl RecordsRequest<'_> {
    fn execute(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let told = self.request;
        match told.operation {
            DomainOperation::Read => {
                query::find_records(connection, self.domain, told).map(|result| result_to_json(&result))
            }
            DomainOperation::Get => {
                query::fetch_records(connection, self.domain, told).map(|result| result_to_json(&result))
            }
            DomainOperation::ResolveRun => self.resolve_run(connection),
            op if op.is_write() => self.write_once(connection),
            op => Err(RecordsError::refused(format!("tables know nothing of `{}`", op.as_str()))),
        }
    }

    /// Writes, once: what was done for this run already is reported again and not done again.
    fn write_once(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let told = self.request;
        let is_planned = told.purpose == ToolRunPurpose::Undo || told.step_kind == Some(StepKind::Write);
        if !is_planned {
            return Err(RecordsError::refused("records are changed only in a step that was planned as a write"));
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = self.run.load_result(&transaction)? {
            return Ok(result);
        }
        let result = result_to_json(&write::execute_write(&transaction, self.domain, told, &self.run)?);
        if result.len() > RESULT_BYTES_MAX {
            return Err(RecordsError::refused("this is too much at once; change fewer records, or shorter ones"));
        }
        self.run.save_result(&transaction, &result)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Says what became of a run. If nothing did, nothing will.
    fn resolve_run(&self, connection: &mut Connection) -> Result<String, RecordsError> {
        let Some((of, was)) = self.request.run_to_resolve() else {
            return Err(RecordsError::refused("no run is named"));
        };
        let run = self.run.for_other_run(of, &was.to_arguments());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = run.load_result(&transaction)? {
            return Ok(result);
        }
        let never = result_to_json(&DomainToolResult { never_executed: true, ..DomainToolResult::default() });
        run.save_result(&transaction, &never)?;
        transaction.commit()?;
        Ok(never)
    }
}

fn result_to_json(result: &DomainToolResult) -> String {
    serde_json::to_string(result).unwrap_or_else(|_| "{}".to_owned())
}

fn now_millis() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
