//! Claims about who may write, and about processes that come and go.

use segue_core::ids::{Epoch, Seq};

use super::{Place, Writing, all, commit, name, records};
use crate::{Claim, Error, Query, Takeover};

pub async fn an_older_writer_is_fenced(place: &impl Place) {
    let (old_store, new_store) = (place.open(), place.open());
    let mut old = Writing::begin(&old_store, "a").await;
    old.append(1).await;
    let new = new_store.claim(&old.session, Takeover::Force).await.expect("forced");
    assert!(new.epoch > old.claim.epoch);
    assert_eq!(new.head, Seq(1));
    let fenced = Error::Fenced { session: name("a"), epoch: old.claim.epoch, current: new.epoch };
    assert_eq!(old_store.append(commit(&old.session, old.claim, 1)).await, Err(fenced.clone()));
    assert_eq!(new_store.append(commit(&old.session, new, 2)).await, Ok(Seq(3)));
    assert_eq!(old_store.append(commit(&old.session, Claim { head: Seq(3), ..old.claim }, 1)).await, Err(fenced));
    assert_eq!(all(&old_store, &old.session).await, records(&old.session, 3));
}

pub async fn a_session_is_held_while_its_holder_lives(place: &impl Place) {
    let (store, other) = (place.open(), place.open());
    let mut a = Writing::begin(&store, "a").await;
    a.append(1).await;
    let error = other.claim(&a.session, Takeover::IfDead).await.expect_err("held");
    assert!(matches!(&error, Error::Held { session, .. } if *session == a.session), "{error}");
    a.append(1).await;
}

pub async fn a_dead_holder_is_no_obstacle(place: &impl Place) {
    let (store, other) = (place.open(), place.open());
    let mut a = Writing::begin(&store, "a").await;
    a.append(2).await;
    let (session, old) = (a.session.clone(), a.claim);
    drop((a, store));
    let claim = other.claim(&session, Takeover::IfDead).await.expect("its holder is dead");
    assert!(claim.epoch > old.epoch);
    assert_eq!(claim.head, Seq(2));
    assert_eq!(other.append(commit(&session, claim, 1)).await, Ok(Seq(3)));
}

pub async fn force_takes_a_session_from_the_living(place: &impl Place) {
    let (store, other) = (place.open(), place.open());
    let a = Writing::begin(&store, "a").await;
    other.claim(&a.session, Takeover::Force).await.expect("forced");
    let error = store.claim(&a.session, Takeover::IfDead).await.expect_err("now the other holds it");
    assert!(matches!(error, Error::Held { .. }), "{error}");
}

pub async fn a_released_session_is_free_and_its_epoch_is_over(place: &impl Place) {
    let (store, other) = (place.open(), place.open());
    let mut a = Writing::begin(&store, "a").await;
    a.append(1).await;
    store.release(&a.session, a.claim.epoch).await.expect("ours to give back");
    let error = store.append(commit(&a.session, a.claim, 1)).await.expect_err("given back");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    let claim = other.claim(&a.session, Takeover::IfDead).await.expect("free");
    assert_eq!(other.append(commit(&a.session, claim, 1)).await, Ok(Seq(2)));
}

pub async fn only_the_holder_can_release(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let wrong = Epoch(a.claim.epoch.0 + 1);
    let error = store.release(&a.session, wrong).await.expect_err("not that epoch");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    assert_eq!(store.append(commit(&a.session, a.claim, 1)).await, Ok(Seq(1)), "still ours");
}

pub async fn a_claim_of_our_own_is_no_obstacle(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let again = store.claim(&a.session, Takeover::IfDead).await.expect("our own");
    assert!(again.epoch > a.claim.epoch);
    let error = store.append(commit(&a.session, a.claim, 1)).await.expect_err("the older claim is over");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

pub async fn an_epoch_never_comes_again(place: &impl Place) {
    let store = place.open();
    let mut last = Epoch(0);
    for round in 0..6 {
        let claim = match round % 3 {
            0 => store.create(&name("a")).await,
            _ => store.claim(&name("a"), Takeover::IfDead).await,
        };
        let claim = claim.expect("ours");
        assert!(claim.epoch > last);
        last = claim.epoch;
        if round % 3 == 2 {
            store.delete(&name("a")).await.expect("ours");
        }
    }
}

pub async fn everyone_can_follow_a_session(place: &impl Place) {
    let (store, reader) = (place.open(), place.open());
    let mut a = Writing::begin(&store, "a").await;
    let mut seen = Vec::new();
    for count in [2, 1, 4] {
        a.append(count).await;
        let after = Seq(seen.len() as u64);
        seen.extend(reader.read(&a.session, after, 100).await.expect("readable without a claim"));
    }
    assert_eq!(seen, records(&a.session, 7));
}

pub async fn what_was_appended_is_there_after_reopening(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(3, vec![super::said("a text")], Some(super::summary("a title", 9))).await;
    let snapshot = crate::Snapshot { seq: Seq(2), format: 7, bytes: b"state".to_vec() };
    store.keep_snapshot(&a.session, snapshot.clone()).await.expect("kept");
    let (session, epoch) = (a.session.clone(), a.claim.epoch);
    drop((a, store));
    let store = place.open();
    assert_eq!(all(&store, &session).await, records(&session, 3));
    let texts = store.bodies(&session, &[super::said("a text").id]).await.expect("readable");
    assert_eq!(&*texts[0], "a text");
    assert_eq!(store.snapshot(&session).await, Ok(Some(snapshot)));
    let page = store.list(&Query::newest(5)).await.expect("listed");
    assert_eq!(page.rows[0].summary, super::summary("a title", 9));
    let claim = store.claim(&session, Takeover::IfDead).await.expect("free");
    assert!(claim.epoch > epoch);
}

pub async fn a_closed_store_says_so(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(1).await;
    store.close().await.expect("closes");
    store.close().await.expect("closing twice is no harm");
    assert_eq!(store.append(commit(&a.session, a.claim, 1)).await, Err(Error::Closed));
    assert_eq!(store.read(&a.session, Seq(0), 1).await, Err(Error::Closed));
    let other = place.open();
    other.claim(&a.session, Takeover::IfDead).await.expect("a closed store holds nothing");
}
