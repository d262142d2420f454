//! Tests of leases that expire. Only for stores whose leases do.

use segue_core::ids::{Seq, UnixMillis};

use super::inbox::open_session;
use super::{StoreFixture, TestJournalWriter, sample_commit};
use crate::{Error, Lease, LeaseTakeoverPolicy, LostLease, Store};

/// A location at which leases expire [`LEASE_MS`](Self::LEASE_MS) after they were acquired or renewed, by the clock of
/// the fixture.
pub trait ExpiringLeaseFixture: StoreFixture {
    const LEASE_MS: u64;
}

pub async fn r19_a_lease_that_is_not_renewed_expires<F: ExpiringLeaseFixture>(fixture: &F) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let a = open_session(&store, "a").await;
    let expires_at = a.lease.expires_at.expect("leases expire here");
    assert!(expires_at <= fixture.clock().now().plus_ms(F::LEASE_MS));
    fixture.clock().advance_ms(F::LEASE_MS / 2);
    let error = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect_err("held");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    fixture.clock().advance_ms(F::LEASE_MS);
    let lease = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("expired");
    assert!(lease.expires_at > Some(expires_at));
    let late = Lease { head: Seq(1), ..a.lease };
    let fenced = Error::Fenced { session: a.session.clone(), epoch: a.lease.epoch, current: lease.epoch };
    assert_eq!(store.append_commit(sample_commit(&a.session, late, 1)).await, Err(fenced), "a late zombie");
    let renewal = store.renew_leases(&[(a.session.clone(), a.lease.epoch)]).await.expect("renewed");
    let lost = LostLease { session: a.session.clone(), epoch: a.lease.epoch, current: Some(lease.epoch) };
    assert_eq!(renewal.lost, [lost], "the signal that the lease is lost");
    assert_eq!(other.append_commit(sample_commit(&a.session, lease, 1)).await, Ok(Seq(2)));
}

pub async fn r19_a_renewed_lease_is_kept<F: ExpiringLeaseFixture>(fixture: &F) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let a = open_session(&store, "a").await;
    let mut last = a.lease.expires_at;
    for _ in 0..4 {
        fixture.clock().advance_ms(F::LEASE_MS * 3 / 4);
        let renewed = renew(&*store, &a).await;
        assert!(renewed > last);
        last = renewed;
        let error = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect_err("held");
        assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    }
    let lease = Lease { head: Seq(1), ..a.lease };
    assert_eq!(store.append_commit(sample_commit(&a.session, lease, 1)).await, Ok(Seq(2)), "the same epoch");
}

pub async fn r19_an_expired_lease_that_nobody_took_is_still_valid<F: ExpiringLeaseFixture>(fixture: &F) {
    let store = fixture.open_store();
    let a = open_session(&store, "a").await;
    fixture.clock().advance_ms(3 * F::LEASE_MS);
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Ok(Seq(2)));
    assert!(renew(&*store, &a).await > a.lease.expires_at);
}

pub async fn r13_an_expired_lease_is_left_alone_if_its_holder_may_be_alive<F: ExpiringLeaseFixture>(fixture: &F) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let a = open_session(&store, "a").await;
    fixture.clock().advance_ms(3 * F::LEASE_MS);
    let error =
        other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderEnded).await.expect_err("not known to be dead");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    store.close().await.expect("closes");
    other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderEnded).await.expect("its holder has ended");
}

/// Renews the lease of a session. Returns when it expires.
async fn renew(store: &dyn Store, writer: &TestJournalWriter) -> Option<UnixMillis> {
    let held = [(writer.session.clone(), writer.lease.epoch)];
    let renewal = store.renew_leases(&held).await.expect("renewed");
    assert_eq!(renewal.lost, [], "not lost");
    renewal.expires_at
}
