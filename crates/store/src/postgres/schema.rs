//! The tables and their migrations.

use deadpool_postgres::{GenericClient, Pool};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStoreInner;
use super::postgres_error::PostgresError;
use crate::Error;

/// The migrations from one format to the next. The list only grows: migration n creates format n.
///
/// `segue_sessions` has one row per session. `uid` is its identity, to which all other tables refer. `updated_at` and
/// `due_at` repeat the summary; `updated_at` is missing if the session is not listed. `change` is the number of the last
/// change of the summary; it is missing until a reader of the changes asks, because numbers given by commits of several
/// nodes would not become visible in their order. `segue_deletions` continues these numbers.
///
/// `segue_journal` has one row per commit, or several for a long one. `segue_bodies` has each text once. A text belongs to
/// the session that stored it first (`owner`); other sessions that use it have a row in `segue_shares`. The foreign key
/// of that table decides when one node erases a text that another is about to use. The columns `first_used`,
/// `visible_from` and `position` of both tables tell where in its journal a session uses the text.
///
/// What is stored as `EXTERNAL` was compressed by the store, so PostgreSQL need not try to compress it.
///
/// Format 2 adds what the servers share besides sessions.
const MIGRATIONS: &[&str] = &[
    "
    CREATE SEQUENCE segue_epochs;
    CREATE TABLE segue_counters (
        id INT PRIMARY KEY, last_change BIGINT NOT NULL, forgotten_deletion BIGINT NOT NULL
    );
    INSERT INTO segue_counters VALUES (1, 0, 0);
    CREATE TABLE segue_nodes (
        node BIGINT PRIMARY KEY, name TEXT NOT NULL, address TEXT, expires_at BIGINT NOT NULL
    );
    CREATE TABLE segue_sessions (
        uid BIGINT PRIMARY KEY, name TEXT COLLATE \"C\" NOT NULL UNIQUE, namespace TEXT COLLATE \"C\",
        epoch BIGINT NOT NULL, head BIGINT NOT NULL, holder BIGINT, parent BIGINT, takeovers INT NOT NULL DEFAULT 0,
        is_being_deleted BOOLEAN NOT NULL DEFAULT false, summary BYTEA, updated_at BIGINT, due_at BIGINT,
        change BIGINT, changed_at BIGINT NOT NULL DEFAULT 0
    ) WITH (fillfactor = 70);
    CREATE INDEX segue_sessions_by_parent ON segue_sessions (parent, uid) WHERE parent IS NOT NULL;
    CREATE INDEX segue_sessions_to_delete ON segue_sessions (uid) WHERE is_being_deleted;
    CREATE INDEX segue_sessions_due ON segue_sessions (due_at, uid) WHERE due_at IS NOT NULL;
    CREATE INDEX segue_sessions_unnumbered ON segue_sessions (changed_at)
        WHERE change IS NULL AND updated_at IS NOT NULL;
    CREATE INDEX segue_sessions_by_change ON segue_sessions (change)
        WHERE change IS NOT NULL AND updated_at IS NOT NULL;
    CREATE INDEX segue_sessions_listed ON segue_sessions (updated_at, name) WHERE updated_at IS NOT NULL;
    CREATE INDEX segue_sessions_listed_by_namespace ON segue_sessions (namespace, updated_at, name)
        WHERE namespace IS NOT NULL AND updated_at IS NOT NULL;
    CREATE TABLE segue_deletions (uid BIGINT PRIMARY KEY, change BIGINT, changed_at BIGINT NOT NULL);
    CREATE INDEX segue_deletions_by_change ON segue_deletions (change);
    CREATE TABLE segue_journal (
        session BIGINT NOT NULL, first BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (session, first)
    );
    ALTER TABLE segue_journal ALTER data SET STORAGE EXTERNAL;
    CREATE TABLE segue_bodies (
        hash BYTEA PRIMARY KEY, owner BIGINT NOT NULL, first_used BIGINT NOT NULL, visible_from BIGINT,
        position INT NOT NULL, text BYTEA NOT NULL
    );
    ALTER TABLE segue_bodies ALTER text SET STORAGE EXTERNAL;
    CREATE INDEX segue_bodies_by_owner ON segue_bodies (owner);
    CREATE TABLE segue_shares (
        session BIGINT NOT NULL, hash BYTEA NOT NULL REFERENCES segue_bodies (hash), first_used BIGINT NOT NULL,
        visible_from BIGINT, position INT NOT NULL, PRIMARY KEY (session, hash)
    );
    CREATE INDEX segue_shares_by_hash ON segue_shares (hash);
    CREATE TABLE segue_snapshots (
        session BIGINT PRIMARY KEY, seq BIGINT NOT NULL, format BIGINT NOT NULL, data BYTEA NOT NULL
    );
    ALTER TABLE segue_snapshots ALTER data SET STORAGE EXTERNAL;
    CREATE SEQUENCE segue_inbox_ids;
    CREATE TABLE segue_inbox (
        id BIGINT PRIMARY KEY DEFAULT nextval('segue_inbox_ids'),
        session BIGINT NOT NULL REFERENCES segue_sessions (uid), submission BIGINT NOT NULL, at BIGINT NOT NULL,
        sender TEXT COLLATE \"C\", sender_uid BIGINT, bytes BIGINT NOT NULL, digest BYTEA NOT NULL, data BYTEA NOT NULL,
        UNIQUE (session, submission)
    ) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
    CREATE INDEX segue_inbox_order ON segue_inbox (session, id);
    CREATE TABLE segue_outcomes (
        session BIGINT NOT NULL, submission BIGINT NOT NULL, at BIGINT NOT NULL, digest BYTEA NOT NULL,
        data BYTEA NOT NULL, PRIMARY KEY (session, submission)
    );
    CREATE INDEX segue_outcomes_by_time ON segue_outcomes (at);
",
    "
    CREATE TABLE segue_records (
        name TEXT COLLATE \"C\" PRIMARY KEY, version BIGINT NOT NULL, data BYTEA NOT NULL, expires_at BIGINT
    ) WITH (fillfactor = 70);
    CREATE INDEX segue_records_by_expiry ON segue_records (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE segue_slots (
        slot_group TEXT COLLATE \"C\" NOT NULL, slot BIGINT NOT NULL, holder TEXT COLLATE \"C\" NOT NULL,
        expires_at BIGINT NOT NULL, PRIMARY KEY (slot_group, slot), UNIQUE (slot_group, holder)
    ) WITH (fillfactor = 70);
    CREATE TABLE segue_token_buckets (
        name TEXT COLLATE \"C\" PRIMARY KEY, tokens FLOAT8 NOT NULL, granted FLOAT8 NOT NULL, filled_at BIGINT NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE segue_usage (
        account TEXT COLLATE \"C\" PRIMARY KEY, cost_microusd BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL, unpriced_answers BIGINT NOT NULL, expires_at BIGINT NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE segue_usage_sources (
        source TEXT COLLATE \"C\" PRIMARY KEY, cost_microusd BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL, unpriced_answers BIGINT NOT NULL, expires_at BIGINT NOT NULL
    ) WITH (fillfactor = 70);
    CREATE INDEX segue_usage_sources_by_expiry ON segue_usage_sources (expires_at);
",
];

/// The database's clock in milliseconds. `{offset}` is a parameter of the statement.
pub(super) fn now_ms(offset_parameter: &str) -> String {
    format!("(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {offset_parameter}::bigint)")
}

/// The database's clock in microseconds, by which changes are put into an order.
pub(super) const NOW_MICROS: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The state of a database, for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresDatabaseReport {
    /// Where the database is, without the password.
    pub location: String,
    pub server_version: String,
    pub format: u32,
    /// The isolation level of transactions that do not name one.
    pub default_isolation: String,
    pub encoding: String,
    /// Whether a commit survives a crash of the database.
    pub synchronous_commit: String,
    /// Whether the database is a standby, which cannot be written.
    pub is_standby: bool,
    pub live_nodes: u64,
    pub session_count: u64,
    pub inbox_entries: u64,
    /// Sessions that a live node holds.
    pub held_sessions: u64,
    /// Sessions whose holder is dead.
    pub orphaned_sessions: u64,
}

/// Queries with a prepared statement of the connection.
pub(super) async fn query(
    client: &impl GenericClient,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, PostgresError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, values).await?)
}

/// Queries at most one row.
pub(super) async fn query_opt(
    client: &impl GenericClient,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, PostgresError> {
    Ok(query(client, sql, values).await?.into_iter().next())
}

/// Executes a statement. Returns the number of affected rows.
pub(super) async fn execute(
    client: &impl GenericClient,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<u64, PostgresError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, values).await?)
}

/// Returns the number as one that the database can store. Larger numbers than it supports do not occur.
pub(super) fn to_bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The reverse of [`to_bigint`].
pub(super) fn from_bigint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Creates the tables, or migrates them to the current format. Several nodes may do so at once.
pub(super) async fn migrate(pool: &Pool, location: &str) -> Result<(), Error> {
    let what = format!("preparing the database {location}");
    migrate_tables(pool, location).await.map_err(|error| error.into_store_error(&what))
}

async fn migrate_tables(pool: &Pool, location: &str) -> Result<(), PostgresError> {
    let mut client = pool.get().await?;
    let encoding: String = client.query_one("SHOW server_encoding", &[]).await?.get(0);
    if encoding != "UTF8" {
        let detail = format!("its encoding is {encoding}; create the database with encoding UTF8");
        return Err(Error::NotAStore { path: location.to_owned(), detail }.into());
    }
    create_migrations_table(&client).await?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    if read_format(&client).await? < known {
        let transaction = client.transaction().await?;
        // Of several nodes, one migrates. The others wait here, and then find nothing left to do.
        transaction.batch_execute("LOCK TABLE segue_migrations IN EXCLUSIVE MODE").await?;
        let found = read_format(&transaction).await?;
        for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
            let format = i32::try_from(index + 1).unwrap_or(i32::MAX);
            transaction.batch_execute(migration).await?;
            transaction.execute("INSERT INTO segue_migrations (format) VALUES ($1)", &[&format]).await?;
            tracing::info!(database = location, format, "migrating the database");
        }
        transaction.commit().await?;
    }
    match read_format(&client).await? {
        found if found > known => Err(Error::NewerFormat { path: location.to_owned(), found, known }.into()),
        _ => Ok(()),
    }
}

/// Creates the table that all others depend on. `IF NOT EXISTS` does not protect against another node that creates it
/// at the same moment.
async fn create_migrations_table(client: &impl GenericClient) -> Result<(), PostgresError> {
    let is_known = "SELECT to_regclass('segue_migrations') IS NOT NULL";
    if client.query_one(is_known, &[]).await?.get(0) {
        return Ok(());
    }
    let created = client.batch_execute("CREATE TABLE IF NOT EXISTS segue_migrations (format INT PRIMARY KEY)").await;
    let Err(error) = created else { return Ok(()) };
    // The other's table is visible as soon as this one is refused.
    if client.query_one(is_known, &[]).await?.get(0) { Ok(()) } else { Err(error.into()) }
}

async fn read_format(client: &impl GenericClient) -> Result<u32, PostgresError> {
    let row = client.query_one("SELECT coalesce(max(format), 0)::int FROM segue_migrations", &[]).await?;
    Ok(u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX))
}

pub(super) async fn report_database(db: &PostgresStoreInner) -> Result<PostgresDatabaseReport, PostgresError> {
    let client = db.client().await?;
    let setting = async |name: &str| -> Result<String, PostgresError> {
        Ok(client.query_one(&format!("SHOW {name}"), &[]).await?.get(0))
    };
    let now = now_ms("$1");
    let counts = query_opt(
        &client,
        &format!(
            "SELECT (SELECT count(*) FROM segue_nodes WHERE expires_at > {now}),
             (SELECT count(*) FROM segue_sessions), (SELECT count(*) FROM segue_inbox),
             (SELECT count(*) FROM segue_sessions s JOIN segue_nodes n ON n.node = s.holder WHERE n.expires_at > {now}),
             (SELECT count(*) FROM segue_sessions s LEFT JOIN segue_nodes n ON n.node = s.holder AND n.expires_at > {now}
              WHERE s.holder IS NOT NULL AND n.node IS NULL), pg_is_in_recovery()"
        ),
        &[&db.clock_offset_ms()],
    )
    .await?;
    let count = |column: usize| counts.as_ref().map_or(0, |row| from_bigint(row.get(column)));
    Ok(PostgresDatabaseReport {
        location: db.location.clone(),
        server_version: setting("server_version").await?,
        format: read_format(&client).await?,
        default_isolation: setting("default_transaction_isolation").await?,
        encoding: setting("server_encoding").await?,
        synchronous_commit: setting("synchronous_commit").await?,
        is_standby: counts.as_ref().is_some_and(|row| row.get(5)),
        live_nodes: count(0),
        session_count: count(1),
        inbox_entries: count(2),
        held_sessions: count(3),
        orphaned_sessions: count(4),
    })
}
