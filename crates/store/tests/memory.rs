//! The memory store keeps the promises of every store, and fails when told to.

use std::sync::Arc;

use segue_core::ids::Seq;
use segue_store::conformance::{Place, Writing, all, commit, name, records};
use segue_store::memory::{Fault, MemoryDisk, MemoryStore};
use segue_store::{Error, Store, Takeover};

struct Memory(MemoryDisk);

impl Place for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::open(&self.0))
    }

    fn body_count(&self) -> usize {
        self.0.body_count()
    }

    fn contains(&self, marker: &str) -> bool {
        self.0.contains(marker)
    }
}

segue_store::suite!(Memory(MemoryDisk::new()));

#[tokio::test]
async fn a_fault_before_the_commit_leaves_nothing_and_one_after_it_leaves_all() {
    let disk = MemoryDisk::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::open(&disk));
    let mut a = Writing::begin(&store, "a").await;
    for (fault, head) in [(Fault::BeforeCommit, 0), (Fault::Full, 0), (Fault::AfterCommit, 2)] {
        disk.inject(fault);
        let error = store.append(commit(&a.session, a.claim, 2)).await.expect_err("a fault");
        assert_eq!(matches!(error, Error::Full { .. }), fault == Fault::Full, "{error}");
        assert_eq!(all(&store, &a.session).await, records(&a.session, head));
    }
    a.claim = store.claim(&a.session, Takeover::IfDead).await.expect("ours");
    assert_eq!(a.claim.head, Seq(2), "a new claim tells what became of it");
    a.append(1).await;
}

#[tokio::test]
async fn a_killed_store_holds_nothing_although_handles_remain() {
    let disk = MemoryDisk::new();
    let (old, new) = (Arc::new(MemoryStore::open(&disk)), MemoryStore::open(&disk));
    let store: Arc<dyn Store> = old.clone();
    let a = Writing::begin(&store, "a").await;
    old.kill();
    assert_eq!(store.append(commit(&a.session, a.claim, 1)).await, Err(Error::Closed));
    new.claim(&name("a"), Takeover::IfDead).await.expect("its holder is dead");
}
