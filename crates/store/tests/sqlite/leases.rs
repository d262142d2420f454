//! Leases of the SQLite store end with their process, and never before.

use segue_core::ids::LeaseEpoch;
use segue_store::conformance::{StoreFixture, TestJournalWriter};
use segue_store::{Error, TakeoverPolicy};

use crate::sqlite_file::SqliteFile;

#[tokio::test]
async fn r19_a_lease_does_not_expire_while_its_process_lives() {
    let file = SqliteFile::new();
    let (store, other) = (file.open_store(), file.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    assert_eq!(a.lease.expires_at, None);
    file.clock().advance_ms(u64::MAX / 4);
    assert_eq!(store.renew_lease(&a.session, a.lease.epoch).await, Ok(None));
    let error = other.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect_err("held");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    a.append_records(1).await;
    let current = other.acquire_lease(&a.session, TakeoverPolicy::Force).await.expect("forced").epoch;
    let (session, epoch): (_, LeaseEpoch) = (a.session.clone(), a.lease.epoch);
    assert_eq!(store.renew_lease(&session, epoch).await, Err(Error::Fenced { session, epoch, current }));
}
