//! Tests of forks, of what remains after a delete, and of the integrity check.

use segue_core::body::BodyId;
use segue_core::ids::Seq;

use super::{
    StoreFixture, TestJournalWriter, internal_body, read_all_records, sample_commit, sample_long_commit, sample_record,
    sample_records, sample_summary, session_id, visible_body,
};
use crate::{
    CommittedTextBody, Error, IntegrityReport, JournalRecord, LeaseTakeoverPolicy, SessionForkSpec, SessionQuery,
    Snapshot, Store,
};

pub async fn a_fork_has_the_prefix_and_its_bodies(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(2, vec![visible_body("early")], Some(sample_summary("a", 1))).await;
    a.append_records_with(2, vec![visible_body("late")], None).await;
    store.fork_session(sample_fork("a", 2, "b")).await.expect("forked");
    assert_eq!(read_all_records(&store, &session_id("b")).await, sample_records(&session_id("a"), 2));
    let early = store.read_bodies(&session_id("b"), &[BodyId::hash_text("early")]).await.expect("shared with the fork");
    assert_eq!(&*early[0], "early");
    let late = Error::NoSuchBody { session: session_id("b"), body: BodyId::hash_text("late") };
    assert_eq!(store.read_bodies(&session_id("b"), &[BodyId::hash_text("late")]).await, Err(late));
    assert_eq!(fixture.body_count(), 2, "shared, not copied");
    let query = SessionQuery { text: Some("early".into()), ..SessionQuery::newest(9) };
    assert_eq!(store.list_sessions(&query).await.expect("listed").entries.len(), 2, "a fork is searched too");
    assert_eq!(store.load_snapshot(&session_id("b")).await, Ok(None));
}

pub async fn a_fork_can_be_cut_inside_a_commit(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(3).await;
    a.append_records_with(4, vec![visible_body("in the middle")], None).await;
    store.fork_session(sample_fork("a", 5, "b")).await.expect("forked");
    assert_eq!(read_all_records(&store, &session_id("b")).await, sample_records(&session_id("a"), 5));
    let lease =
        store.acquire_lease(&session_id("b"), LeaseTakeoverPolicy::IfHolderDead).await.expect("a fork is not held");
    assert_eq!(lease.head, Seq(5));
    assert_eq!(store.append_commit(sample_commit(&session_id("b"), lease, 2)).await, Ok(Seq(7)));
    assert!(store.read_bodies(&session_id("b"), &[BodyId::hash_text("in the middle")]).await.is_ok());
}

pub async fn a_fork_of_a_long_commit_has_the_bodies_its_records_refer_to(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let long = sample_long_commit(&a.session, a.lease, 500);
    store.append_commit(long.clone()).await.expect("in time");
    for (at, to) in [(1, "b"), (250, "c"), (499, "d"), (500, "e")] {
        store.fork_session(sample_fork("a", at, to)).await.expect("forked");
        let kept = usize::try_from(at).expect("small");
        assert_eq!(read_all_records(&store, &session_id(to)).await, long.records[..kept]);
        for (index, text) in long.bodies.iter().enumerate() {
            let read = store.read_bodies(&session_id(to), &[text.text.id]).await;
            assert_eq!(read.is_ok(), index < kept, "text {index} of a fork at {at}");
        }
    }
    store.delete_session(&session_id("a"), None).await.expect("deleted");
    assert_eq!(fixture.body_count(), 500, "the whole fork has all of them");
    store.delete_session(&session_id("e"), None).await.expect("deleted");
    assert_eq!(fixture.body_count(), 499, "the body that only it referred to is deleted with it");
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

pub async fn a_fork_and_its_origin_are_independent(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(3).await;
    store.fork_session(sample_fork("a", 3, "b")).await.expect("forked");
    a.append_records(2).await;
    let lease = store.acquire_lease(&session_id("b"), LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert_eq!(store.append_commit(sample_commit(&session_id("b"), lease, 1)).await, Ok(Seq(4)));
    assert_eq!(read_all_records(&store, &session_id("a")).await, sample_records(&session_id("a"), 5));
    let mut own_records = sample_records(&session_id("a"), 3);
    own_records.push(sample_record(&session_id("b"), 4));
    assert_eq!(read_all_records(&store, &session_id("b")).await, own_records);
    store.fork_session(sample_fork("b", 4, "c")).await.expect("a fork of a fork");
    assert_eq!(read_all_records(&store, &session_id("c")).await, own_records);
}

pub async fn a_fork_outside_the_journal_is_refused(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(3).await;
    for at in [0, 4, u64::MAX] {
        let refused = Error::ForkOutOfRange { session: session_id("a"), at: Seq(at), head: Seq(3) };
        assert_eq!(store.fork_session(sample_fork("a", at, "b")).await, Err(refused));
    }
    let mut taken = TestJournalWriter::create_session(&store, "taken").await;
    taken.append_records(1).await;
    assert_eq!(
        store.fork_session(sample_fork("a", 1, "taken")).await,
        Err(Error::SessionExists { session: session_id("taken") })
    );
    assert_eq!(
        store.fork_session(sample_fork("never", 1, "b")).await,
        Err(Error::NoSuchSession { session: session_id("never") })
    );
}

pub async fn a_fork_outlives_its_origin(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let mut commit = sample_commit(&a.session, a.lease, 2);
    commit.bodies = vec![
        CommittedTextBody { text: visible_body("from a"), first_used_by: Seq(1) },
        CommittedTextBody { text: internal_body("only in a, later"), first_used_by: Seq(2) },
    ];
    store.append_commit(commit).await.expect("in time");
    store.fork_session(sample_fork("a", 2, "b")).await.expect("forked");
    store.fork_session(sample_fork("b", 1, "c")).await.expect("forked again");
    for deleted in ["a", "b"] {
        store.delete_session(&session_id(deleted), None).await.expect("deleted");
        let texts =
            store.read_bodies(&session_id("c"), &[BodyId::hash_text("from a")]).await.expect("the fork shares it");
        assert_eq!(&*texts[0], "from a");
        assert_eq!(read_all_records(&store, &session_id("c")).await, [sample_record(&session_id("a"), 1)]);
    }
    let later = Error::NoSuchBody { session: session_id("c"), body: BodyId::hash_text("only in a, later") };
    assert_eq!(store.read_bodies(&session_id("c"), &[BodyId::hash_text("only in a, later")]).await, Err(later));
    assert_eq!(
        fixture.body_count(),
        1,
        "bodies that only later records refer to were deleted with the last session that had them"
    );
    store.delete_session(&session_id("c"), None).await.expect("deleted");
    assert_eq!(fixture.body_count(), 0, "no session uses them any more");
}

pub async fn a_deleted_session_is_erased_from_the_disk(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let markers = ErasureTestTexts::new(7);
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(1, vec![visible_body(&markers.text)], Some(sample_summary(&markers.title, 1))).await;
    let mut record = sample_record(&a.session, 2);
    record.bytes = markers.record.clone().into_bytes();
    let with_marker = crate::JournalCommit { records: vec![record], ..sample_commit(&a.session, a.lease, 1) };
    store.append_commit(with_marker).await.expect("in time");
    let snapshot = Snapshot { seq: Seq(2), format: 1, bytes: markers.snapshot.clone().into_bytes() };
    store.save_snapshot(&a.session, snapshot).await.expect("kept");
    assert!(markers.all_markers().iter().all(|marker| fixture.contains_text(marker)), "the test can see stored data");
    store.delete_session(&a.session, None).await.expect("deleted");
    assert_eq!(read_all_by_name(&*store, "a").await, Err(Error::NoSuchSession { session: session_id("a") }));
    for marker in markers.all_markers() {
        assert!(!fixture.contains_text(marker), "{marker} is still on disk");
    }
    assert_eq!(store.list_sessions(&SessionQuery::newest(9)).await.expect("listed").entries, []);
}

pub async fn a_deleted_name_can_be_used_again_but_not_by_its_old_writer(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut old = TestJournalWriter::create_session(&store, "a").await;
    old.append_records(1).await;
    store.delete_session(&old.session, None).await.expect("deleted");
    let mut new = TestJournalWriter::create_session(&store, "a").await;
    new.append_records(1).await;
    let error =
        store.append_commit(sample_commit(&old.session, old.lease, 1)).await.expect_err("another session of that name");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
}

pub async fn deleting_keeps_bodies_that_others_use(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut writers = Vec::new();
    for session in ["a", "b", "c"] {
        let mut writer = TestJournalWriter::create_session(&store, session).await;
        writer.append_records_with(1, vec![visible_body("in common"), visible_body(session)], None).await;
        writers.push(writer);
    }
    for (deleted, rest) in [("a", 3), ("c", 2)] {
        store.delete_session(&session_id(deleted), None).await.expect("deleted");
        assert_eq!(fixture.body_count(), rest);
    }
    let ids = [BodyId::hash_text("in common"), BodyId::hash_text("b")];
    assert!(store.read_bodies(&session_id("b"), &ids).await.is_ok());
    let clean = IntegrityReport { session_count: 1, ..IntegrityReport::default() };
    assert_eq!(store.check_integrity().await, Ok(clean));
}

pub async fn a_session_held_by_another_is_not_deleted(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    let error = other.delete_session(&a.session, None).await.expect_err("held");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    store.delete_session(&a.session, None).await.expect("its own holder may");
}

pub async fn an_intact_store_passes_the_integrity_check(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    for round in 0..5 {
        a.append_records_with(
            2,
            vec![visible_body(&format!("{round}")), internal_body("again")],
            Some(sample_summary("", round)),
        )
        .await;
    }
    store.fork_session(sample_fork("a", 7, "b")).await.expect("forked");
    let _empty = TestJournalWriter::create_session(&store, "c").await;
    let report = store.check_integrity().await.expect("checked");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.session_count, 3);
}

/// Incompressible texts that occur nowhere else.
struct ErasureTestTexts {
    text: String,
    title: String,
    record: String,
    snapshot: String,
}

impl ErasureTestTexts {
    fn new(seed: u64) -> Self {
        let marker = |salt: u64| BodyId::hash_text(&format!("marker {seed} {salt}")).to_string();
        Self { text: marker(1), title: marker(2), record: marker(3), snapshot: marker(4) }
    }

    fn all_markers(&self) -> [&str; 4] {
        [&self.text, &self.title, &self.record, &self.snapshot]
    }
}

async fn read_all_by_name(store: &dyn Store, session: &str) -> Result<Vec<JournalRecord>, Error> {
    store.read_records(&session_id(session), Seq(0), usize::MAX).await
}

fn sample_fork(from: &str, at: u64, to: &str) -> SessionForkSpec {
    SessionForkSpec { from: session_id(from), at_seq: Seq(at), to: session_id(to), summary: sample_summary(to, 1) }
}
