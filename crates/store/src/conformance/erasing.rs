//! Claims about forks, about what is left after a delete, and about the check.

use segue_core::body::BodyId;
use segue_core::ids::Seq;

use super::{Place, Writing, all, commit, inner, long_commit, name, record, records, said, summary};
use crate::{Error, Fork, Query, Record, Report, Snapshot, Store, Takeover};

pub async fn a_fork_has_the_prefix_and_its_bodies(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(2, vec![said("early")], Some(summary("a", 1))).await;
    a.bring(2, vec![said("late")], None).await;
    store.fork(fork("a", 2, "b")).await.expect("forked");
    assert_eq!(all(&store, &name("b")).await, records(&name("a"), 2));
    let early = store.bodies(&name("b"), &[BodyId::of("early")]).await.expect("came along");
    assert_eq!(&*early[0], "early");
    let late = Error::NoSuchBody { session: name("b"), body: BodyId::of("late") };
    assert_eq!(store.bodies(&name("b"), &[BodyId::of("late")]).await, Err(late));
    assert_eq!(place.body_count(), 2, "shared, not copied");
    let query = Query { text: Some("early".into()), ..Query::newest(9) };
    assert_eq!(store.list(&query).await.expect("listed").rows.len(), 2, "a fork is searched too");
    assert_eq!(store.snapshot(&name("b")).await, Ok(None));
}

pub async fn a_fork_can_be_cut_inside_a_commit(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(3).await;
    a.bring(4, vec![said("in the middle")], None).await;
    store.fork(fork("a", 5, "b")).await.expect("forked");
    assert_eq!(all(&store, &name("b")).await, records(&name("a"), 5));
    let claim = store.claim(&name("b"), Takeover::IfDead).await.expect("nobody holds a fork");
    assert_eq!(claim.head, Seq(5));
    assert_eq!(store.append(commit(&name("b"), claim, 2)).await, Ok(Seq(7)));
    assert!(store.bodies(&name("b"), &[BodyId::of("in the middle")]).await.is_ok());
}

pub async fn a_fork_of_a_long_commit_has_the_bodies_its_records_name(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let long = long_commit(&a.session, a.claim, 500);
    store.append(long.clone()).await.expect("in time");
    for (at, to) in [(1, "b"), (250, "c"), (499, "d"), (500, "e")] {
        let fork = Fork { names: long.names, ..fork("a", at, to) };
        store.fork(fork).await.expect("forked");
        let kept = usize::try_from(at).expect("small");
        assert_eq!(all(&store, &name(to)).await, long.records[..kept]);
        for (place, text) in long.bodies.iter().enumerate() {
            let read = store.bodies(&name(to), &[text.id]).await;
            assert_eq!(read.is_ok(), place < kept, "text {place} of a fork at {at}");
        }
    }
    store.delete(&name("a")).await.expect("deleted");
    assert_eq!(place.body_count(), 500, "the whole fork has all of them");
    store.delete(&name("e")).await.expect("deleted");
    assert_eq!(place.body_count(), 499, "and what only it named is gone with it");
    assert!(store.check().await.expect("checked").is_clean());
}

pub async fn a_fork_and_its_origin_go_their_own_ways(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(3).await;
    store.fork(fork("a", 3, "b")).await.expect("forked");
    a.append(2).await;
    let claim = store.claim(&name("b"), Takeover::IfDead).await.expect("free");
    assert_eq!(store.append(commit(&name("b"), claim, 1)).await, Ok(Seq(4)));
    assert_eq!(all(&store, &name("a")).await, records(&name("a"), 5));
    let mut own = records(&name("a"), 3);
    own.push(record(&name("b"), 4));
    assert_eq!(all(&store, &name("b")).await, own);
    store.fork(fork("b", 4, "c")).await.expect("a fork of a fork");
    assert_eq!(all(&store, &name("c")).await, own);
}

pub async fn a_fork_outside_the_journal_is_refused(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(3).await;
    for at in [0, 4, u64::MAX] {
        let refused = Error::PastHead { session: name("a"), at: Seq(at), head: Seq(3) };
        assert_eq!(store.fork(fork("a", at, "b")).await, Err(refused));
    }
    let mut taken = Writing::begin(&store, "taken").await;
    taken.append(1).await;
    assert_eq!(store.fork(fork("a", 1, "taken")).await, Err(Error::Exists { session: name("taken") }));
    assert_eq!(store.fork(fork("never", 1, "b")).await, Err(Error::NoSuchSession { session: name("never") }));
}

pub async fn a_fork_outlives_its_origin(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(2, vec![said("from a"), inner("only in a, later")], None).await;
    store.fork(fork("a", 2, "b")).await.expect("forked");
    store.fork(fork("b", 1, "c")).await.expect("forked again");
    for gone in ["a", "b"] {
        store.delete(&name(gone)).await.expect("deleted");
        let texts = store.bodies(&name("c"), &[BodyId::of("from a")]).await.expect("the heir has it");
        assert_eq!(&*texts[0], "from a");
        assert_eq!(all(&store, &name("c")).await, [record(&name("a"), 1)]);
    }
    let later = Error::NoSuchBody { session: name("c"), body: BodyId::of("only in a, later") };
    assert_eq!(store.bodies(&name("c"), &[BodyId::of("only in a, later")]).await, Err(later));
    assert_eq!(place.body_count(), 1, "what only the records after the cut named went with the last that had them");
    store.delete(&name("c")).await.expect("deleted");
    assert_eq!(place.body_count(), 0, "the last one turns off the light");
}

pub async fn a_deleted_session_is_gone_from_the_disk(place: &impl Place) {
    let store = place.open();
    let markers = Markers::new(7);
    let mut a = Writing::begin(&store, "a").await;
    a.bring(1, vec![said(&markers.text)], Some(summary(&markers.title, 1))).await;
    let mut record = record(&a.session, 2);
    record.bytes = markers.record.clone().into_bytes();
    let with_marker = crate::Commit { records: vec![record], ..commit(&a.session, a.claim, 1) };
    store.append(with_marker).await.expect("in time");
    let snapshot = Snapshot { seq: Seq(2), format: 1, bytes: markers.snapshot.clone().into_bytes() };
    store.keep_snapshot(&a.session, snapshot).await.expect("kept");
    assert!(markers.all().iter().all(|marker| place.contains(marker)), "the test can see what is there");
    store.delete(&a.session).await.expect("deleted");
    assert_eq!(all_of(&*store, "a").await, Err(Error::NoSuchSession { session: name("a") }));
    for marker in markers.all() {
        assert!(!place.contains(marker), "{marker} is still on disk");
    }
    assert_eq!(store.list(&Query::newest(9)).await.expect("listed").rows, []);
}

pub async fn a_deleted_name_can_be_used_again_but_not_by_its_old_writer(place: &impl Place) {
    let store = place.open();
    let mut old = Writing::begin(&store, "a").await;
    old.append(1).await;
    store.delete(&old.session).await.expect("deleted");
    let mut new = Writing::begin(&store, "a").await;
    new.append(1).await;
    let error = store.append(commit(&old.session, old.claim, 1)).await.expect_err("another session of that name");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

pub async fn deleting_spares_what_others_use(place: &impl Place) {
    let store = place.open();
    let mut writers = Vec::new();
    for session in ["a", "b", "c"] {
        let mut one = Writing::begin(&store, session).await;
        one.bring(1, vec![said("in common"), said(session)], None).await;
        writers.push(one);
    }
    for (gone, rest) in [("a", 3), ("c", 2)] {
        store.delete(&name(gone)).await.expect("deleted");
        assert_eq!(place.body_count(), rest);
    }
    let ids = [BodyId::of("in common"), BodyId::of("b")];
    assert!(store.bodies(&name("b"), &ids).await.is_ok());
    let clean = Report { sessions: 1, ..Report::default() };
    assert_eq!(store.check().await, Ok(clean));
}

pub async fn a_session_held_by_another_is_not_deleted(place: &impl Place) {
    let (store, other) = (place.open(), place.open());
    let mut a = Writing::begin(&store, "a").await;
    a.append(1).await;
    let error = other.delete(&a.session).await.expect_err("held");
    assert!(matches!(error, Error::Held { .. }), "{error}");
    store.delete(&a.session).await.expect("its own holder may");
}

pub async fn a_sound_store_passes_its_check(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    for round in 0..5 {
        a.bring(2, vec![said(&format!("{round}")), inner("again")], Some(summary("", round))).await;
    }
    store.fork(fork("a", 7, "b")).await.expect("forked");
    let _empty = Writing::begin(&store, "c").await;
    let report = store.check().await.expect("checked");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.sessions, 3);
}

/// Texts that cannot be compressed and occur nowhere else.
struct Markers {
    text: String,
    title: String,
    record: String,
    snapshot: String,
}

impl Markers {
    fn new(seed: u64) -> Self {
        let marker = |salt: u64| BodyId::of(&format!("marker {seed} {salt}")).to_string();
        Self { text: marker(1), title: marker(2), record: marker(3), snapshot: marker(4) }
    }

    fn all(&self) -> [&str; 4] {
        [&self.text, &self.title, &self.record, &self.snapshot]
    }
}

async fn all_of(store: &dyn Store, session: &str) -> Result<Vec<Record>, Error> {
    store.read(&name(session), Seq(0), usize::MAX).await
}

fn fork(from: &str, at: u64, to: &str) -> Fork {
    Fork { from: name(from), at: Seq(at), to: name(to), summary: summary(to, 1), names: named }
}

/// What the records of these claims name: a first one an early text, whatever else its commit brought.
fn named(_: &Record) -> Vec<BodyId> {
    ["from a", "in the middle"].map(BodyId::of).to_vec()
}
