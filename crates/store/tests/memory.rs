//! The memory store passes the conformance suite, and fails as requested.

use std::sync::Arc;

use segue_core::ids::Seq;
use segue_store::conformance::lease_expiry::ExpiringLeaseFixture;
use segue_store::conformance::shared_state::SharedStateFixture;
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, read_all_records, sample_commit, sample_records, session_id,
};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk, InjectedAppendFault};
use segue_store::{Error, LeaseStore, LeaseTakeoverPolicy, SharedState, Store, StoreClock};

struct MemoryFixture(InMemoryStoreDisk);

impl StoreFixture for MemoryFixture {
    fn open_store(&self) -> Arc<dyn Store> {
        Arc::new(InMemoryStore::open(&self.0))
    }

    fn body_count(&self) -> usize {
        self.0.body_count()
    }

    fn contains_text(&self, marker: &str) -> bool {
        self.0.contains_text(marker)
    }

    fn clock(&self) -> StoreClock {
        self.0.clock()
    }
}

impl ExpiringLeaseFixture for MemoryFixture {
    const LEASE_MS: u64 = 10_000;
}

impl SharedStateFixture for MemoryFixture {
    fn open_shared_state(&self) -> Arc<dyn SharedState> {
        Arc::new(InMemoryStore::open(&self.0))
    }
}

segue_store::suite!(MemoryFixture(InMemoryStoreDisk::new()));
segue_store::shared_state_suite!(MemoryFixture(InMemoryStoreDisk::new()));
segue_store::lease_expiry_suite!(MemoryFixture(InMemoryStoreDisk::with_expiring_leases(MemoryFixture::LEASE_MS)));

#[tokio::test]
async fn a_fault_before_the_commit_writes_nothing_and_one_after_it_writes_all() {
    let disk = InMemoryStoreDisk::new();
    let store: Arc<dyn Store> = Arc::new(InMemoryStore::open(&disk));
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    for (fault, head) in [
        (InjectedAppendFault::BeforeCommit, 0),
        (InjectedAppendFault::DiskFull, 0),
        (InjectedAppendFault::AfterCommit, 2),
    ] {
        disk.inject_fault(fault);
        let error = store.append_commit(sample_commit(&a.session, a.lease, 2)).await.expect_err("a fault");
        assert_eq!(matches!(error, Error::DiskFull { .. }), fault == InjectedAppendFault::DiskFull, "{error}");
        assert_eq!(read_all_records(&store, &a.session).await, sample_records(&a.session, head));
    }
    a.lease = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("ours");
    assert_eq!(a.lease.head, Seq(2), "a new lease tells whether it was written");
    a.append_records(1).await;
}

#[tokio::test]
async fn a_killed_store_holds_no_leases_although_handles_remain() {
    let disk = InMemoryStoreDisk::new();
    let (old, new) = (Arc::new(InMemoryStore::open(&disk)), InMemoryStore::open(&disk));
    let store: Arc<dyn Store> = old.clone();
    let a = TestJournalWriter::create_session(&store, "a").await;
    old.kill();
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Err(Error::Closed));
    new.acquire_lease(&session_id("a"), LeaseTakeoverPolicy::IfHolderDead).await.expect("its holder is dead");
}
