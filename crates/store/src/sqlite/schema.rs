//! The tables, how they came to be what they are, and how a connection is set up.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::sqlite_error::{map_file_error, map_store_error};
use crate::Error;

/// "SEGU", so that a foreign database is told from ours.
const APPLICATION_ID: i32 = 0x5345_4755;
/// How long a lock of another process is waited for.
pub(super) const BUSY_TIMEOUT_MS: u64 = 10_000;
const CACHED_STATEMENTS_MAX: usize = 48;

/// What brings a store from one format to the next. A list that only grows: the n-th makes format n.
///
/// `sessions` has one row a session. `journal` has one row a commit, or several for a long one, and is only ever added to at
/// its end; `bodies` of a row says which texts came with it. A text belongs to the session that brought it first (`owner`);
/// others that use it have a row in `shares`. `address` holds the first eight bytes of a body's address; the rest follows
/// from the text. `addresses` and `news` find a body by them. (The column had another name in the first format, so that a
/// program that knows only that one cannot bring texts unlisted.)
const MIGRATIONS: &[&str] = &["
    CREATE TABLE store (epoch INTEGER NOT NULL);
    INSERT INTO store VALUES (0);
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL, head INTEGER NOT NULL,
        holder TEXT, summary BLOB
    );
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, first INTEGER NOT NULL, bodies BLOB, data BLOB NOT NULL
    );
    CREATE UNIQUE INDEX journal_place ON journal (session, first);
    CREATE TABLE bodies (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, hash INTEGER NOT NULL, text BLOB NOT NULL);
    CREATE INDEX bodies_hash ON bodies (hash);
    CREATE TABLE shares (session INTEGER NOT NULL, body INTEGER NOT NULL, PRIMARY KEY (session, body)) WITHOUT ROWID;
    CREATE INDEX shares_body ON shares (body);
    CREATE TABLE snapshots (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, format INTEGER NOT NULL, data BLOB NOT NULL);
", "
    CREATE TABLE addresses (hash INTEGER NOT NULL, body INTEGER NOT NULL, PRIMARY KEY (hash, body)) WITHOUT ROWID;
    INSERT INTO addresses SELECT hash, id FROM bodies ORDER BY hash, id;
    DROP INDEX bodies_hash;
    ALTER TABLE bodies RENAME COLUMN hash TO address;
    CREATE TABLE news (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"];

/// The connection that writes; makes the file and brings its format up to date.
pub(super) fn open_writer_connection(path: &Path) -> Result<Connection, Error> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| map_file_error(&error, folder))?;
    }
    let trouble = |error: rusqlite::Error| map_store_error(&error, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(trouble)?;
    configure_connection(&db).map_err(trouble)?;
    ensure_compatible_database(&db, path)?;
    // Truncation after a delete is the writer's, and checkpoints have a thread of their own.
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA secure_delete = ON; PRAGMA cache_size = -4096")
        .map_err(trouble)?;
    migrate_schema(&mut db).map_err(trouble)?;
    Ok(db)
}

/// A connection that reads, or runs checkpoints.
pub(super) fn open_reader_connection(path: &Path) -> Result<Connection, rusqlite::Error> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    configure_connection(&db)?;
    // What is read is read once, and there are several of these.
    db.execute_batch("PRAGMA cache_size = -512")?;
    Ok(db)
}

fn configure_connection(db: &Connection) -> Result<(), rusqlite::Error> {
    db.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
    db.set_prepared_statement_cache_capacity(CACHED_STATEMENTS_MAX);
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF")
}

fn ensure_compatible_database(db: &Connection, path: &Path) -> Result<(), Error> {
    let trouble = |error: rusqlite::Error| map_store_error(&error, path);
    let known = u32::try_from(MIGRATIONS.len()).expect("few migrations");
    let (application, found) = read_schema_versions(db).map_err(trouble)?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(trouble)?;
    let place = || path.display().to_string();
    if application != APPLICATION_ID && (tables > 0 || application != 0) {
        return Err(Error::NotAStore { path: place(), detail: "a database of another program".into() });
    }
    if found > known {
        return Err(Error::NewerFormat { path: place(), found, known });
    }
    Ok(())
}

fn migrate_schema(db: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let (_, found) = read_schema_versions(&transaction)?;
    for (place, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", place + 1)?;
    }
    if found as usize != MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.commit()
}

fn read_schema_versions(db: &Connection) -> Result<(i32, u32), rusqlite::Error> {
    let application = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let format: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    // Stored with a sign; a negative one is a number we never reached.
    Ok((application, format.cast_unsigned()))
}
