//! Records in SQLite tables of a person's own: one table a type, ordinary columns, open to any other program.

mod label;
mod links;
mod query;
mod runs;
mod schema;
mod stored;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use segue_core::ids::Millis;
use segue_engine::tools::{Tool, ToolRequest};
use segue_flows::assistant::domain::Domain;
use segue_flows::assistant::facts::StepKind;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::{Operation, Purpose, Reported, Told};

use crate::limits::{BUSY_MS_MAX, RESULT_BYTES_MAX};
use runs::Run;

/// Why a request was not followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It cannot be done; whoever asked is told why.
    #[error("{0}")]
    Refused(String),
    /// The database failed.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

impl Refusal {
    pub fn because(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

/// Why the file that records are kept in cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the records {} cannot be opened: {source}", path.display())]
pub struct Unusable {
    path: PathBuf,
    source: rusqlite::Error,
}

/// The host of records in tables.
#[derive(Clone)]
pub struct Records {
    inner: Arc<Inner>,
}

struct Inner {
    domains: Domains,
    place: Place,
    open: Mutex<Option<Opened>>,
}

enum Place {
    File(PathBuf),
    Memory,
}

/// A file that is open, and the domains whose tables are known to stand in it.
struct Opened {
    connection: Connection,
    made: BTreeSet<String>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    /// A host over a file, which is made at first use.
    #[must_use]
    pub fn in_file(path: &Path, domains: Domains) -> Self {
        Self::at(Place::File(path.to_owned()), domains)
    }

    /// A host whose records are gone with it.
    #[must_use]
    pub fn in_memory(domains: Domains) -> Self {
        Self::at(Place::Memory, domains)
    }

    fn at(place: Place, domains: Domains) -> Self {
        Self { inner: Arc::new(Inner { domains, place, open: Mutex::new(None) }) }
    }

    /// Opens the file now, to find out whether it can be used.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), Unusable> {
        self.inner.with(|_| Ok(())).map_err(|refusal| match (refusal, &self.inner.place) {
            (Refusal::Sql(source), Place::File(path)) => Unusable { path: path.clone(), source },
            _ => Unusable { path: PathBuf::new(), source: rusqlite::Error::InvalidQuery },
        })
    }

    /// Looks at the tables as any other program would.
    ///
    /// # Errors
    /// The file cannot be opened, or the question is no SQL.
    pub fn look<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let looked = self.inner.with(|opened| Ok(look(&opened.connection)?));
        looked.map_err(|refusal| match refusal {
            Refusal::Sql(error) => error,
            Refusal::Refused(_) => rusqlite::Error::InvalidQuery,
        })
    }
}

#[async_trait]
impl Tool for Records {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let inner = self.inner.clone();
        // A request whose caller is gone is still carried out, or not at all: `settle` says which.
        let served = tokio::task::spawn_blocking(move || inner.serve(&request)).await;
        served.map_err(|_| "the host of the records broke down".to_owned())?
    }
}

impl Inner {
    fn serve(&self, request: &ToolRequest) -> Result<String, String> {
        let arguments = &request.opened.arguments;
        let told = Told::of(arguments).ok_or_else(|| "the request is not understood".to_owned())?;
        let domain = self.domains.of(&request.settings)?;
        if domain.name != told.domain {
            return Err(format!("the request is for `{}`, and the session is about `{}`", told.domain, domain.name));
        }
        let done = self.with(|opened| {
            opened.make(&domain)?;
            Work { domain: &domain, run: Run::of(request, arguments), told: &told }.carry_out(&mut opened.connection)
        });
        match done {
            Ok(result) => Ok(result),
            Err(Refusal::Refused(why)) => Ok(written(&Reported { refused: Some(why), ..Reported::default() })),
            Err(Refusal::Sql(error)) => Err(format!("the records could not be used: {error}")),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Opened) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut open: MutexGuard<'_, Option<Opened>> = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(Opened::at(&self.place)?);
        }
        let Some(opened) = open.as_mut() else { return Err(Refusal::because("the records are not open")) };
        work(opened)
    }
}

/// Has the file written through a log. Of two programs that open a new file at once, SQLite turns one away without waiting.
fn keep_a_log(connection: &Connection) -> Result<(), rusqlite::Error> {
    let until = Instant::now() + Duration::from_millis(BUSY_MS_MAX);
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

impl Opened {
    fn at(place: &Place) -> Result<Self, Refusal> {
        let connection = match place {
            Place::File(path) => Connection::open(path)?,
            Place::Memory => Connection::open_in_memory()?,
        };
        connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
        keep_a_log(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        connection.create_scalar_function("segue_fold", 1, flags, |context| query::fold(context.get_raw(0)))?;
        connection.create_scalar_function("segue_list", 1, flags, |context| query::list(context.get_raw(0)))?;
        Ok(Self { connection, made: BTreeSet::new() })
    }

    /// Sees to it that the tables of a domain stand.
    fn make(&mut self, domain: &Domain) -> Result<(), Refusal> {
        if self.made.contains(&domain.name) {
            return Ok(());
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        runs::make(&transaction)?;
        schema::make(&transaction, domain, now())?;
        transaction.commit()?;
        self.made.insert(domain.name.clone());
        Ok(())
    }
}

/// One request.
struct Work<'w> {
    domain: &'w Domain,
    run: Run,
    told: &'w Told,
}

impl Work<'_> {
    fn carry_out(&self, connection: &mut Connection) -> Result<String, Refusal> {
        let told = self.told;
        match told.op {
            Operation::Read => query::read(connection, self.domain, told).map(|result| written(&result)),
            Operation::Get => query::get(connection, self.domain, told).map(|result| written(&result)),
            Operation::Settle => self.settle(connection),
            op if op.writes() => self.write(connection),
            op => Err(Refusal::because(format!("tables know nothing of `{}`", op.word()))),
        }
    }

    /// Writes, once: what was done for this run already is reported again and not done again.
    fn write(&self, connection: &mut Connection) -> Result<String, Refusal> {
        let told = self.told;
        let is_planned = told.purpose == Purpose::Undo || told.step_type == Some(StepKind::Write);
        if !is_planned {
            return Err(Refusal::because("records are changed only in a step that was planned as a write"));
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = self.run.recall(&transaction)? {
            return Ok(result);
        }
        let result = written(&write::carry_out(&transaction, self.domain, told, &self.run)?);
        if result.len() > RESULT_BYTES_MAX {
            return Err(Refusal::because("this is too much at once; change fewer records, or shorter ones"));
        }
        self.run.remember(&transaction, &result)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Says what became of a run. If nothing did, nothing will.
    fn settle(&self, connection: &mut Connection) -> Result<String, Refusal> {
        let Some((of, was)) = self.told.settles() else { return Err(Refusal::because("no run is named")) };
        let run = self.run.other(of, &was.arguments());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(result) = run.recall(&transaction)? {
            return Ok(result);
        }
        let never = written(&Reported { never: true, ..Reported::default() });
        run.remember(&transaction, &never)?;
        transaction.commit()?;
        Ok(never)
    }
}

fn written(result: &Reported) -> String {
    serde_json::to_string(result).unwrap_or_else(|_| "{}".to_owned())
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
