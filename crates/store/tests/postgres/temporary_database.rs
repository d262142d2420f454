//! A database of its own for each test, as a fixture for the conformance suite.

use std::sync::Arc;

use segue_store::conformance::StoreFixture;
use segue_store::conformance::lease_expiry::ExpiringLeaseFixture;
use segue_store::conformance::shared_state::SharedStateFixture;
use segue_store::postgres::{PostgresOptions, PostgresStore};
use segue_store::{SharedState, Store, StoreClock};
use segue_testkit::TemporaryPostgres;

#[derive(Debug)]
pub(crate) struct TemporaryDatabase {
    pub(crate) url: String,
    clock: StoreClock,
}

impl TemporaryDatabase {
    pub(crate) fn new() -> Self {
        Self { url: TemporaryPostgres::shared().create_database(), clock: StoreClock::system() }
    }

    pub(crate) fn open(&self) -> PostgresStore {
        let options =
            PostgresOptions { lease_ms: Self::LEASE_MS, clock: Some(self.clock.clone()), ..PostgresOptions::default() };
        PostgresStore::open_with_options(&self.url, &options).expect("opens")
    }

    /// Executes SQL. Returns what it printed.
    pub(crate) fn run_sql(&self, sql: &str) -> String {
        let name = self.url.rsplit('/').next().expect("a database name");
        TemporaryPostgres::shared().run_sql(name, sql)
    }
}

impl StoreFixture for TemporaryDatabase {
    fn open_store(&self) -> Arc<dyn Store> {
        Arc::new(self.open())
    }

    fn body_count(&self) -> usize {
        self.run_sql("SELECT count(*) FROM segue_bodies").parse().expect("a number")
    }

    /// Looks at every column that holds text of a session. Rows that are deleted are invisible to everybody; when their
    /// bytes are overwritten is up to the database.
    fn contains_text(&self, marker: &str) -> bool {
        let columns = [
            ("segue_sessions", "summary"),
            ("segue_journal", "data"),
            ("segue_bodies", "text"),
            ("segue_snapshots", "data"),
            ("segue_inbox", "data"),
            ("segue_outcomes", "data"),
        ];
        columns.iter().any(|(table, column)| {
            let found = format!("SELECT count(*) FROM {table} WHERE position('{marker}'::bytea IN {column}) > 0");
            self.run_sql(&found) != "0"
        })
    }

    fn clock(&self) -> StoreClock {
        self.clock.clone()
    }
}

impl SharedStateFixture for TemporaryDatabase {
    fn open_shared_state(&self) -> Arc<dyn SharedState> {
        Arc::new(self.open())
    }
}
