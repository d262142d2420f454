//! The PostgreSQL store passes the conformance suite, and its own tests of several nodes.

mod migration;
mod nodes;
mod temporary_database;

mod conformance {
    use segue_store::conformance::lease_expiry::ExpiringLeaseFixture;

    use crate::temporary_database::TemporaryDatabase;

    impl ExpiringLeaseFixture for TemporaryDatabase {
        const LEASE_MS: u64 = 10_000;
    }

    segue_store::suite!(TemporaryDatabase::new());
    segue_store::lease_expiry_suite!(TemporaryDatabase::new());
    segue_store::shared_state_suite!(TemporaryDatabase::new());
}
