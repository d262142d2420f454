//! Claims about who may write, and about processes that come and go.

use segue_core::ids::{LeaseEpoch, Seq};

use super::{StoreFixture, TestWriter, read_all_records, sample_commit, sample_records, session_id};
use crate::{Error, Lease, SessionQuery, TakeoverPolicy};

pub async fn an_older_writer_is_fenced(place: &impl StoreFixture) {
    let (old_store, new_store) = (place.open_store(), place.open_store());
    let mut old = TestWriter::create_session(&old_store, "a").await;
    old.append_records(1).await;
    let new = new_store.acquire_lease(&old.session, TakeoverPolicy::Force).await.expect("forced");
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

pub async fn a_session_is_held_while_its_holder_lives(place: &impl StoreFixture) {
    let (store, other) = (place.open_store(), place.open_store());
    let mut a = TestWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    let error = other.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect_err("held");
    assert!(matches!(&error, Error::HeldByOtherProcess { session, .. } if *session == a.session), "{error}");
    a.append_records(1).await;
}

pub async fn a_dead_holder_is_no_obstacle(place: &impl StoreFixture) {
    let (store, other) = (place.open_store(), place.open_store());
    let mut a = TestWriter::create_session(&store, "a").await;
    a.append_records(2).await;
    let (session, old) = (a.session.clone(), a.lease);
    drop((a, store));
    let claim = other.acquire_lease(&session, TakeoverPolicy::IfHolderDead).await.expect("its holder is dead");
    assert!(claim.epoch > old.epoch);
    assert_eq!(claim.head, Seq(2));
    assert_eq!(other.append_commit(sample_commit(&session, claim, 1)).await, Ok(Seq(3)));
}

pub async fn force_takes_a_session_from_the_living(place: &impl StoreFixture) {
    let (store, other) = (place.open_store(), place.open_store());
    let a = TestWriter::create_session(&store, "a").await;
    other.acquire_lease(&a.session, TakeoverPolicy::Force).await.expect("forced");
    let error =
        store.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect_err("now the other holds it");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
}

pub async fn a_released_session_is_free_and_its_epoch_is_over(place: &impl StoreFixture) {
    let (store, other) = (place.open_store(), place.open_store());
    let mut a = TestWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    store.release_lease(&a.session, a.lease.epoch).await.expect("ours to give back");
    let error = store.append_commit(sample_commit(&a.session, a.lease, 1)).await.expect_err("given back");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    let claim = other.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect("free");
    assert_eq!(other.append_commit(sample_commit(&a.session, claim, 1)).await, Ok(Seq(2)));
}

pub async fn only_the_holder_can_release(place: &impl StoreFixture) {
    let store = place.open_store();
    let a = TestWriter::create_session(&store, "a").await;
    let wrong = LeaseEpoch(a.lease.epoch.0 + 1);
    let error = store.release_lease(&a.session, wrong).await.expect_err("not that epoch");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Ok(Seq(1)), "still ours");
}

pub async fn a_claim_of_our_own_is_no_obstacle(place: &impl StoreFixture) {
    let store = place.open_store();
    let a = TestWriter::create_session(&store, "a").await;
    let again = store.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect("our own");
    assert!(again.epoch > a.lease.epoch);
    let error = store.append_commit(sample_commit(&a.session, a.lease, 1)).await.expect_err("the older claim is over");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

pub async fn an_epoch_never_comes_again(place: &impl StoreFixture) {
    let store = place.open_store();
    let mut last = LeaseEpoch(0);
    for round in 0..6 {
        let claim = match round % 3 {
            0 => store.create_session(&session_id("a")).await,
            _ => store.acquire_lease(&session_id("a"), TakeoverPolicy::IfHolderDead).await,
        };
        let claim = claim.expect("ours");
        assert!(claim.epoch > last);
        last = claim.epoch;
        if round % 3 == 2 {
            store.delete_session(&session_id("a")).await.expect("ours");
        }
    }
}

pub async fn everyone_can_follow_a_session(place: &impl StoreFixture) {
    let (store, reader) = (place.open_store(), place.open_store());
    let mut a = TestWriter::create_session(&store, "a").await;
    let mut seen = Vec::new();
    for count in [2, 1, 4] {
        a.append_records(count).await;
        let after = Seq(seen.len() as u64);
        seen.extend(reader.read_records(&a.session, after, 100).await.expect("readable without a claim"));
    }
    assert_eq!(seen, sample_records(&a.session, 7));
}

pub async fn what_was_appended_is_there_after_reopening(place: &impl StoreFixture) {
    let store = place.open_store();
    let mut a = TestWriter::create_session(&store, "a").await;
    a.append_records_with(3, vec![super::visible_body("a text")], Some(super::sample_summary("a title", 9))).await;
    let snapshot = crate::Snapshot { seq: Seq(2), format: 7, bytes: b"state".to_vec() };
    store.save_snapshot(&a.session, snapshot.clone()).await.expect("kept");
    let (session, epoch) = (a.session.clone(), a.lease.epoch);
    drop((a, store));
    let store = place.open_store();
    assert_eq!(read_all_records(&store, &session).await, sample_records(&session, 3));
    let texts = store.read_bodies(&session, &[super::visible_body("a text").id]).await.expect("readable");
    assert_eq!(&*texts[0], "a text");
    assert_eq!(store.load_snapshot(&session).await, Ok(Some(snapshot)));
    let page = store.list_sessions(&SessionQuery::newest(5)).await.expect("listed");
    assert_eq!(page.entries[0].summary, super::sample_summary("a title", 9));
    let claim = store.acquire_lease(&session, TakeoverPolicy::IfHolderDead).await.expect("free");
    assert!(claim.epoch > epoch);
}

pub async fn a_closed_store_says_so(place: &impl StoreFixture) {
    let store = place.open_store();
    let mut a = TestWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    store.close().await.expect("closes");
    store.close().await.expect("closing twice is no harm");
    assert_eq!(store.append_commit(sample_commit(&a.session, a.lease, 1)).await, Err(Error::Closed));
    assert_eq!(store.read_records(&a.session, Seq(0), 1).await, Err(Error::Closed));
    let other = place.open_store();
    other.acquire_lease(&a.session, TakeoverPolicy::IfHolderDead).await.expect("a closed store holds nothing");
}
