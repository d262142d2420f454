//! Claims about records, texts and snapshots read back.

use segue_core::body::{Body, BodyId};
use segue_core::ids::Seq;

use super::{Place, Writing, all, commit, inner, name, record, said};
use crate::{Commit, Error, Record, Snapshot};

pub async fn any_stretch_can_be_read(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    for count in [3, 1, 5, 2] {
        a.append(count).await;
    }
    for after in 0..13u64 {
        for limit in [0, 1, 2, 4, 100] {
            let read = store.read(&a.session, Seq(after), limit).await.expect("readable");
            let wanted: Vec<Record> = (after + 1..=11).take(limit).map(|seq| record(&a.session, seq)).collect();
            assert_eq!(read, wanted, "after {after}, {limit} at most");
        }
    }
    assert_eq!(store.read(&a.session, Seq(u64::MAX), 5).await, Ok(Vec::new()));
}

pub async fn what_is_not_there_is_named(place: &impl Place) {
    let store = place.open();
    let never = name("never");
    let missing = Error::NoSuchSession { session: never.clone() };
    assert_eq!(store.read(&never, Seq(0), 1).await, Err(missing.clone()));
    assert_eq!(store.bodies(&never, &[]).await, Err(missing.clone()));
    assert_eq!(store.snapshot(&never).await, Err(missing.clone()));
    assert_eq!(store.delete(&never).await, Err(missing.clone()));
    assert_eq!(store.claim(&never, crate::Takeover::Force).await, Err(missing));
    let a = Writing::begin(&store, "a").await;
    let body = BodyId::of("unheard of");
    assert_eq!(store.bodies(&a.session, &[body]).await, Err(Error::NoSuchBody { session: name("a"), body }));
}

pub async fn many_heads_are_told_at_one_look(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let mut b = Writing::begin(&store, "b").await;
    a.append(3).await;
    b.append(1).await;
    let asked = [name("b"), name("never"), name("a"), name("b")];
    let heads = |others| [Some(Seq(1)), None, Some(Seq(others)), Some(Seq(1))].to_vec();
    assert_eq!(store.heads(&asked).await, Ok(heads(3)));
    a.append(2).await;
    assert_eq!(store.heads(&asked).await, Ok(heads(5)), "also right after it was written");
    assert_eq!(store.heads(&[]).await, Ok(Vec::new()));
}

pub async fn a_body_is_stored_once(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let mut b = Writing::begin(&store, "b").await;
    let shared = "a system prompt that every session has ".repeat(20);
    for _ in 0..3 {
        a.bring(1, vec![inner(&shared), inner(&shared), said("mine")], None).await;
        b.bring(1, vec![inner(&shared)], None).await;
    }
    assert_eq!(place.body_count(), 2);
    for session in [&a.session, &b.session] {
        let texts = store.bodies(session, &[BodyId::of(&shared)]).await.expect("both use it");
        assert_eq!(*texts[0], *shared);
    }
}

pub async fn bodies_come_in_the_order_asked(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let texts = ["one", "two", "three"];
    a.bring(1, texts.iter().map(|text| said(text)).collect(), None).await;
    let asked = ["three", "one", "two", "one"];
    let ids: Vec<BodyId> = asked.iter().map(|text| BodyId::of(text)).collect();
    let read = store.bodies(&a.session, &ids).await.expect("readable");
    assert_eq!(read.iter().map(|text| &**text).collect::<Vec<_>>(), asked);
}

pub async fn a_foreign_body_cannot_be_read(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let mut b = Writing::begin(&store, "b").await;
    a.bring(1, vec![said("a secret of a")], None).await;
    b.append(1).await;
    let body = BodyId::of("a secret of a");
    assert_eq!(store.bodies(&b.session, &[body]).await, Err(Error::NoSuchBody { session: name("b"), body }));
    b.bring(1, vec![said("a secret of a")], None).await;
    assert!(store.bodies(&b.session, &[body]).await.is_ok(), "now it knows the text itself");
}

pub async fn the_newest_snapshot_is_kept(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(9).await;
    assert_eq!(store.snapshot(&a.session).await, Ok(None));
    let at = |seq: u64, bytes: &[u8]| Snapshot { seq: Seq(seq), format: 1, bytes: bytes.to_vec() };
    store.keep_snapshot(&a.session, at(4, b"four")).await.expect("kept");
    store.keep_snapshot(&a.session, at(7, &b"seven".repeat(1000))).await.expect("kept");
    store.keep_snapshot(&a.session, at(5, b"five")).await.expect("let go");
    assert_eq!(store.snapshot(&a.session).await, Ok(Some(at(7, &b"seven".repeat(1000)))));
    let reformed = Snapshot { format: 2, ..at(7, b"") };
    store.keep_snapshot(&a.session, reformed.clone()).await.expect("kept");
    assert_eq!(store.snapshot(&a.session).await, Ok(Some(reformed)));
}

pub async fn a_snapshot_of_the_future_is_not_kept(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(2).await;
    let future = Snapshot { seq: Seq(3), format: 1, bytes: b"what never was".to_vec() };
    store.keep_snapshot(&a.session, future).await.expect("let go");
    assert_eq!(store.snapshot(&a.session).await, Ok(None));
}

pub async fn a_journal_can_be_carried_to_another_store(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(3, vec![said("one")], None).await;
    a.bring(2, vec![inner("two")], None).await;
    let journal = all(&store, &a.session).await;
    let ids = [BodyId::of("one"), BodyId::of("two")];
    let texts = store.bodies(&a.session, &ids).await.expect("readable");
    let copy = Writing::begin(&store, "copy").await;
    let bodies: Vec<Body> = texts.iter().map(|text| said(text)).collect();
    let commit = Commit { records: journal.clone(), bodies, ..commit(&copy.session, copy.claim, 0) };
    assert_eq!(store.append(commit).await, Ok(Seq(5)));
    assert_eq!(all(&store, &copy.session).await, journal);
    assert_eq!(store.bodies(&copy.session, &ids).await, Ok(texts));
}
