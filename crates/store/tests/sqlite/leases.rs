//! Leases of the SQLite store end with their process, and never before.

use segue_store::conformance::{StoreFixture, TestJournalWriter};
use segue_store::{Error, LeaseRenewalResult, LeaseTakeoverPolicy, LostLease};

use crate::sqlite_file::SqliteFile;

#[tokio::test]
async fn r19_a_lease_does_not_expire_while_its_process_lives() {
    let file = SqliteFile::new();
    let (store, other) = (file.open_store(), file.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    assert_eq!(a.lease.expires_at, None);
    file.clock().advance_ms(u64::MAX / 4);
    let held = [(a.session.clone(), a.lease.epoch)];
    assert_eq!(store.lease_ms(), None);
    assert_eq!(store.renew_leases(&held).await, Ok(LeaseRenewalResult { expires_at: None, lost: Vec::new() }));
    let error = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect_err("held");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    a.append_records(1).await;
    let current = other.acquire_lease(&a.session, LeaseTakeoverPolicy::Force).await.expect("forced").epoch;
    let (session, epoch, current) = (a.session.clone(), a.lease.epoch, Some(current));
    let lost = vec![LostLease { session, epoch, current }];
    assert_eq!(store.renew_leases(&held).await, Ok(LeaseRenewalResult { expires_at: None, lost }));
}
