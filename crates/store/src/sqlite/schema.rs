//! The tables, their migrations, and the set-up of connections.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};
use segue_core::ids::SessionId;

use super::private_files;
use super::session_row::SqliteEncodedSessionSummary;
use super::sqlite_error::{map_file_error, map_store_error};
use crate::catalog::name_namespace;
use crate::limits::CACHED_STATEMENTS_MAX;
use crate::{Error, encoding};

/// "SEGU", which tells our databases from those of other programs.
const APPLICATION_ID: i32 = 0x5345_4755;
/// How long to wait for a lock of another process.
pub(super) const BUSY_TIMEOUT_MS: u64 = 10_000;

/// The migrations from one format to the next. The list only grows: migration n creates format n.
///
/// `sessions` has one row per session. `journal` has one row per commit, or several for a long commit, and is
/// append-only; its column `bodies` lists the bodies that came with the row. A body belongs to the session that stored
/// it first (`owner`); other sessions that use it have a row in `shares`. Column `address` holds the first eight bytes
/// of a body id; the rest follows from the text. `addresses` and `unindexed_addresses` find a body by its address. (The
/// column had another name in format 1, so that a program that knows only that format cannot add bodies without an
/// address.)
///
/// Of the columns of `sessions`, `uid` is the identity of a session, to which `parent`, `inbox` and `outcomes` refer.
/// `updated_at` and `due_at` repeat the summary; `updated_at` is missing if the session is not listed. `wake_at` is zero
/// if there are inbox entries, otherwise `due_at`. `change` is the number of the last change of the summary; `deletions`
/// continues these numbers. `namespace` is the part of the name before the first dot. (`lease_holder` was `holder` in
/// format 2, so that a program that knows only that format cannot write without these columns.)
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
    CREATE TABLE unindexed_addresses (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
", "
    ALTER TABLE store ADD COLUMN forgotten_deletion INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions RENAME COLUMN holder TO lease_holder;
    ALTER TABLE sessions ADD COLUMN uid INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN parent INTEGER;
    ALTER TABLE sessions ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN inbox_entries INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN inbox_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN is_being_deleted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN namespace TEXT;
    ALTER TABLE sessions ADD COLUMN updated_at INTEGER;
    ALTER TABLE sessions ADD COLUMN due_at INTEGER;
    ALTER TABLE sessions ADD COLUMN wake_at INTEGER;
    ALTER TABLE sessions ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET uid = key + (SELECT epoch FROM store);
    UPDATE store SET epoch = epoch + coalesce((SELECT max(key) FROM sessions), 0);
    CREATE UNIQUE INDEX sessions_by_uid ON sessions (uid);
    CREATE INDEX sessions_by_parent ON sessions (parent, uid) WHERE parent IS NOT NULL;
    CREATE INDEX sessions_with_entries ON sessions (lease_holder, uid) WHERE inbox_entries > 0;
    CREATE INDEX sessions_to_delete ON sessions (uid) WHERE is_being_deleted = 1;
    CREATE INDEX sessions_by_wake_time ON sessions (wake_at, uid) WHERE wake_at IS NOT NULL;
    CREATE INDEX sessions_by_change ON sessions (change) WHERE updated_at IS NOT NULL;
    CREATE INDEX sessions_listed ON sessions (updated_at, name) WHERE updated_at IS NOT NULL;
    CREATE INDEX sessions_listed_by_namespace ON sessions (namespace, updated_at, name)
        WHERE namespace IS NOT NULL AND updated_at IS NOT NULL;
    CREATE TABLE deletions (change INTEGER PRIMARY KEY, uid INTEGER NOT NULL);
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, submission INTEGER NOT NULL, at INTEGER NOT NULL,
        sender TEXT, sender_uid INTEGER, bytes INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL
    );
    CREATE UNIQUE INDEX inbox_submissions ON inbox (session, submission);
    CREATE INDEX inbox_order ON inbox (session, id);
    CREATE TABLE outcomes (
        session INTEGER NOT NULL, submission INTEGER NOT NULL, at INTEGER NOT NULL, digest BLOB NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY (session, submission)
    ) WITHOUT ROWID;
    CREATE INDEX outcomes_by_time ON outcomes (at);
"];

/// The format that has the columns of the catalog.
const CATALOG_FORMAT: usize = 3;

/// Opens the connection that writes. Creates the file, and migrates it to the current format.
pub(super) fn open_writer_connection(path: &Path) -> Result<Connection, Error> {
    if let Some(folder) = path.parent() {
        private_files::create_private_folder(folder).map_err(|error| map_file_error(&error, folder))?;
    }
    private_files::create_private_database(path).map_err(|error| map_file_error(&error, path))?;
    let to_error = |error: rusqlite::Error| map_store_error(&error, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(to_error)?;
    configure_connection(&db).map_err(to_error)?;
    ensure_compatible_database(&db, path)?;
    // The writer truncates the log itself after a delete, and a separate thread makes checkpoints.
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA secure_delete = ON; PRAGMA cache_size = -4096")
        .map_err(to_error)?;
    migrate_schema(&mut db).map_err(to_error)?;
    Ok(db)
}

/// Opens a connection that reads, or makes checkpoints.
pub(super) fn open_reader_connection(path: &Path) -> Result<Connection, rusqlite::Error> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    configure_connection(&db)?;
    // Readers seldom read a page twice, and there are several of them.
    db.execute_batch("PRAGMA cache_size = -512")?;
    Ok(db)
}

/// Opens a store that exists, to read it. Its format may be an older one.
pub(super) fn open_existing_store(path: &Path) -> Result<Connection, Error> {
    let db = open_reader_connection(path).map_err(|error| map_store_error(&error, path))?;
    ensure_compatible_database(&db, path)?;
    Ok(db)
}

fn configure_connection(db: &Connection) -> Result<(), rusqlite::Error> {
    db.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
    db.set_prepared_statement_cache_capacity(CACHED_STATEMENTS_MAX);
    // On macOS, an ordinary sync does not reach the disk; `fullfsync` does. Elsewhere it changes nothing.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;
         PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF",
    )
}

fn ensure_compatible_database(db: &Connection, path: &Path) -> Result<(), Error> {
    let to_error = |error: rusqlite::Error| map_store_error(&error, path);
    let known = u32::try_from(MIGRATIONS.len()).expect("few migrations");
    let (application, found) = read_schema_versions(db).map_err(to_error)?;
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(to_error)?;
    let display_path = || path.display().to_string();
    if application != APPLICATION_ID && (tables > 0 || application != 0) {
        return Err(Error::NotAStore { path: display_path(), detail: "it is a database of another program".into() });
    }
    if found > known {
        return Err(Error::NewerFormat { path: display_path(), found, known });
    }
    Ok(())
}

fn migrate_schema(db: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let (_, found) = read_schema_versions(&transaction)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        transaction.execute_batch(migration)?;
        if index + 1 == CATALOG_FORMAT {
            fill_catalog_columns(&transaction)?;
        }
        transaction.pragma_update(None, "user_version", index + 1)?;
    }
    if found as usize != MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.commit()
}

/// Fills the columns that repeat the summaries of existing sessions. A session whose summary cannot be read may have
/// pending work; opening it will tell.
fn fill_catalog_columns(db: &Connection) -> Result<(), rusqlite::Error> {
    let mut sessions = db.prepare("SELECT key, name, summary FROM sessions ORDER BY key")?;
    let mut update = db.prepare(
        "UPDATE sessions SET namespace = ?2, updated_at = ?3, due_at = ?4, wake_at = ?4, change = ?1 WHERE key = ?1",
    )?;
    let mut rows = sessions.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(name) = row.get::<_, String>(1) else { continue };
        let (key, sealed): (i64, Option<Vec<u8>>) = (row.get(0)?, row.get(2)?);
        let Some(sealed) = sealed else { continue };
        let session = SessionId::from(name);
        let summary = encoding::unseal_summary(&session, &sealed).ok();
        let summary = summary.map(|summary| SqliteEncodedSessionSummary::new(&session, &summary));
        let due_at = summary.as_ref().map_or(Some(0), |summary| summary.due_at);
        let updated_at = summary.map(|summary| summary.updated_at);
        update.execute(params![key, name_namespace(session.as_str()), updated_at, due_at])?;
    }
    Ok(())
}

fn read_schema_versions(db: &Connection) -> Result<(i32, u32), rusqlite::Error> {
    let application = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let format: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    // Stored as a signed number; a negative one counts as a format that is too new.
    Ok((application, format.cast_unsigned()))
}
