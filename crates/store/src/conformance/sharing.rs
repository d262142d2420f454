//! Tests of leases, and of several processes on one store.

use segue_core::ids::{LeaseEpoch, Seq};

use super::{StoreFixture, TestJournalWriter, read_all_records, sample_commit, sample_records, session_id};
use crate::{Error, Lease, LeaseTakeoverPolicy, SessionQuery};

pub async fn an_older_writer_is_fenced(fixture: &impl StoreFixture) {
    let (old_store, new_store) = (fixture.open_store(), fixture.open_store());
    let mut old = TestJournalWriter::create_session(&old_store, "a").await;
    old.append_records(1).await;
    let new = new_store.acquire_lease(&old.session, LeaseTakeoverPolicy::Force).await.expect("forced");
    assert!(new.epoch > old.lease.epoch);
    assert_eq!(new.head, Seq(1));
    let fenced = Error::Fenced { session: session_id("a"), epoch: old.lease.epoch, current: new.epoch };
    assert_eq!(old_store.append_commit(sample_commit(&old.session, old.lease, 1)).await, Err(fenced.clone()));
    assert_eq!(new_store.append_commit(sample_commit(&old.session, new, 2)).await, Ok(Seq(3)));
    assert_eq!(
        old_store.append_commit(sample_commit(&old.session, Lease { head: Seq(3), ..old.lease }, 1)).await,
        Err(fenced)
    );
    assert_eq!(read_all_records(&old_store, &old.session).await, sample_records(&old.session, 3));
}

pub async fn a_session_is_held_while_its_holder_is_alive(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    let error = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect_err("held");
    assert!(matches!(&error, Error::HeldByOtherProcess { session, .. } if *session == a.session), "{error}");
    a.append_records(1).await;
}

pub async fn the_lease_of_a_dead_process_can_be_acquired(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(2).await;
    let (session, old) = (a.session.clone(), a.lease);
    drop((a, store));
    let lease = other.acquire_lease(&session, LeaseTakeoverPolicy::IfHolderDead).await.expect("its holder is dead");
    assert!(lease.epoch > old.epoch);
    assert_eq!(lease.head, Seq(2));
    assert_eq!(other.append_commit(sample_commit(&session, lease, 1)).await, Ok(Seq(3)));
}

pub async fn a_lease_can_be_taken_by_force(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let a = TestJournalWriter::create_session(&store, "a").await;
    other.acquire_lease(&a.session, LeaseTakeoverPolicy::Force).await.expect("forced");
    let error =
        store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect_err("now the other holds it");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
}

pub async fn a_released_lease_is_free_and_its_epoch_is_rejected(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    store.release_lease(&a.session, a.lease.epoch).await.expect("held by this store");
    let error = store.append_commit(sample_commit(&a.session, a.lease, 1)).await.expect_err("released");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    let lease = other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert_eq!(other.append_commit(sample_commit(&a.session, lease, 1)).await, Ok(Seq(2)));
}

pub async fn only_the_holder_can_release(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let wrong = LeaseEpoch(a.lease.epoch.0 + 1);
    let error = store.release_lease(&a.session, wrong).await.expect_err("not that epoch");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Ok(Seq(1)), "still ours");
}

pub async fn a_lease_of_the_same_process_can_be_renewed(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let again = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("our own");
    assert!(again.epoch > a.lease.epoch);
    let error =
        store.append_commit(sample_commit(&a.session, a.lease, 1)).await.expect_err("the older lease has ended");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

pub async fn epochs_are_never_reused(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut last = LeaseEpoch(0);
    for round in 0..6 {
        let lease = match round % 3 {
            0 => store.create_session(&session_id("a")).await,
            _ => store.acquire_lease(&session_id("a"), LeaseTakeoverPolicy::IfHolderDead).await,
        };
        let lease = lease.expect("ours");
        assert!(lease.epoch > last);
        last = lease.epoch;
        if round % 3 == 2 {
            store.delete_session(&session_id("a"), None).await.expect("ours");
        }
    }
}

pub async fn reading_needs_no_lease(fixture: &impl StoreFixture) {
    let (store, reader) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut seen = Vec::new();
    for count in [2, 1, 4] {
        a.append_records(count).await;
        let after = Seq(seen.len() as u64);
        seen.extend(reader.read_records(&a.session, after, 100).await.expect("readable without a lease"));
    }
    assert_eq!(seen, sample_records(&a.session, 7));
}

pub async fn data_survives_reopening(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(3, vec![super::visible_body("a text")], Some(super::sample_summary("a title", 9))).await;
    let snapshot = crate::Snapshot { seq: Seq(2), format: 7, bytes: b"state".to_vec() };
    store.save_snapshot(&a.session, snapshot.clone()).await.expect("kept");
    let (session, epoch) = (a.session.clone(), a.lease.epoch);
    drop((a, store));
    let store = fixture.open_store();
    assert_eq!(read_all_records(&store, &session).await, sample_records(&session, 3));
    let texts = store.read_bodies(&session, &[super::visible_body("a text").id]).await.expect("readable");
    assert_eq!(&*texts[0], "a text");
    assert_eq!(store.load_snapshot(&session).await, Ok(Some(snapshot)));
    let page = store.list_sessions(&SessionQuery::newest(5)).await.expect("listed");
    assert_eq!(page.entries[0].summary, super::sample_summary("a title", 9));
    let lease = store.acquire_lease(&session, LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert!(lease.epoch > epoch);
}

pub async fn a_closed_store_refuses_calls(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    store.close().await.expect("closes");
    store.close().await.expect("closing twice is allowed");
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Err(Error::Closed));
    assert_eq!(store.read_records(&a.session, Seq(0), 1).await, Err(Error::Closed));
    let other = fixture.open_store();
    other.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("a closed store holds nothing");
}
