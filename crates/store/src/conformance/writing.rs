//! Tests of creating sessions and appending to them.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, UnixMillis};

use super::{
    StoreFixture, TestJournalWriter, first_record_bodies, internal_body, read_all_records, sample_commit,
    sample_long_commit, sample_record, sample_records, sample_summary, session_id, visible_body,
};
use crate::{Error, JournalCommit, JournalRecord, Lease, LeaseTakeoverPolicy};

pub async fn a_new_session_is_empty_and_leased(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let lease = store.create_session(&session_id("a")).await.expect("a new name");
    assert_eq!(lease.head, Seq(0));
    assert_eq!(read_all_records(&store, &session_id("a")).await, []);
    assert_eq!(store.append_commit(sample_commit(&session_id("a"), lease, 1)).await, Ok(Seq(1)));
}

pub async fn a_write_probe_changes_nothing(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    assert_eq!(store.probe_write().await, Ok(()));
    assert_eq!(read_all_records(&store, &session_id("a")).await.len(), 1);
    a.append_records(1).await;
    store.close().await.expect("it closes");
    assert_eq!(store.probe_write().await, Err(Error::Closed));
    assert_eq!(read_all_records(&fixture.open_store(), &session_id("a")).await.len(), 2);
}

pub async fn a_name_can_be_used_once(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(1).await;
    assert_eq!(store.create_session(&session_id("a")).await, Err(Error::SessionExists { session: session_id("a") }));
    assert_eq!(read_all_records(&store, &session_id("a")).await.len(), 1, "the existing records stay");
    let other = fixture.open_store();
    let _empty = TestJournalWriter::create_session(&store, "b").await;
    assert_eq!(
        other.create_session(&session_id("b")).await,
        Err(Error::SessionExists { session: session_id("b") }),
        "empty, but held by a live process"
    );
}

pub async fn an_empty_session_of_a_dead_process_can_be_replaced(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let old = TestJournalWriter::create_session(&store, "a").await.lease;
    let empty = crate::Snapshot { seq: Seq(0), format: 1, bytes: b"of a dead process".to_vec() };
    store.save_snapshot(&session_id("a"), empty).await.expect("kept");
    drop(store);
    let store = fixture.open_store();
    let lease = store.create_session(&session_id("a")).await.expect("the name is free");
    assert_eq!(store.load_snapshot(&session_id("a")).await, Ok(None), "nothing of the old session remains");
    assert!(lease.epoch > old.epoch);
    assert_eq!(store.append_commit(sample_commit(&session_id("a"), lease, 2)).await, Ok(Seq(2)));
}

pub async fn appended_records_are_read_back_in_order(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    for count in [1, 3, 2, 7] {
        a.append_records(count).await;
    }
    assert_eq!(read_all_records(&store, &a.session).await, sample_records(&a.session, 13));
}

pub async fn the_head_rises_with_each_commit(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(3).await;
    assert_eq!(a.lease.head, Seq(3));
    a.append_records(1).await;
    let again = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("ours");
    assert_eq!(again.head, Seq(4));
}

pub async fn an_append_that_does_not_follow_the_head_is_refused(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let early = a.lease;
    a.append_records(2).await;
    for head in [0, 1, 3] {
        let wrong = Lease { head: Seq(head), ..early };
        let refused = Error::Conflict { session: session_id("a"), expected: Seq(head), head: Seq(2) };
        assert_eq!(store.append_commit(sample_commit(&a.session, wrong, 1)).await, Err(refused));
    }
    let lease = Lease { head: Seq(0), ..early };
    let refused = Error::NoSuchSession { session: session_id("never") };
    assert_eq!(store.append_commit(sample_commit(&session_id("never"), lease, 1)).await, Err(refused));
}

pub async fn of_concurrent_appends_only_one_succeeds(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut neighbours = Vec::new();
    for number in 0..8 {
        neighbours.push(TestJournalWriter::create_session(&store, &format!("neighbour-{number}")).await);
    }
    a.append_records(1).await;
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, commit) = (store.clone(), sample_commit(&a.session, a.lease, 2));
        racing.spawn(async move { store.append_commit(commit).await });
    }
    let mut steady = tokio::task::JoinSet::new();
    for neighbour in neighbours {
        let store = store.clone();
        steady.spawn(async move { store.append_commit(sample_commit(&neighbour.session, neighbour.lease, 1)).await });
    }
    let results = racing.join_all().await;
    let conflict = Err(Error::Conflict { session: session_id("a"), expected: Seq(1), head: Seq(3) });
    assert_eq!(results.iter().filter(|result| **result == Ok(Seq(3))).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == conflict).count(), 15);
    assert_eq!(steady.join_all().await, vec![Ok(Seq(1)); 8], "a conflict does not affect other sessions");
    assert_eq!(read_all_records(&store, &a.session).await, sample_records(&a.session, 3));
}

pub async fn a_refused_append_writes_nothing(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let late = a.lease;
    a.append_records_with(1, Vec::new(), Some(sample_summary("first", 5))).await;
    let text = "a text of a refused commit";
    let commit = JournalCommit {
        bodies: first_record_bodies(late, vec![visible_body(text)]),
        summary: Some(sample_summary("second", 6)),
        ..sample_commit(&a.session, late, 1)
    };
    store.append_commit(commit).await.expect_err("too late");
    assert_eq!(fixture.body_count(), 0);
    let page = store.list_sessions(&crate::SessionQuery::newest(9)).await.expect("listed");
    assert_eq!(page.entries[0].summary.title, "first");
    let missing = Error::NoSuchBody { session: session_id("a"), body: BodyId::hash_text(text) };
    assert_eq!(store.read_bodies(&a.session, &[BodyId::hash_text(text)]).await, Err(missing));
}

pub async fn an_invalid_commit_is_refused(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let good = sample_commit(&a.session, a.lease, 2);
    let mut gap = good.clone();
    gap.records[1].seq = Seq(3);
    let mut misnamed = good.clone();
    misnamed.bodies = first_record_bodies(a.lease, vec![internal_body("one")]);
    misnamed.bodies[0].text.text = "another".into();
    let mut misplaced = good.clone();
    misplaced.bodies = first_record_bodies(a.lease, vec![internal_body("one")]);
    misplaced.bodies[0].first_used_by = Seq(3);
    let empty = JournalCommit { records: Vec::new(), ..good.clone() };
    let endless = JournalCommit { expected_head: Seq(u64::MAX), ..good.clone() };
    for bad in [gap, misnamed, misplaced, empty, endless] {
        let error = store.append_commit(bad).await.expect_err("impossible");
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
    assert_eq!(store.append_commit(good).await, Ok(Seq(2)));
}

pub async fn invalid_names_are_refused(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for bad in ["", "a\0b", &"x".repeat(crate::SESSION_ID_BYTES_MAX + 1)] {
        let error = store.create_session(&session_id(bad)).await.expect_err("impossible");
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
    for odd in ["ż ó/../'\"; DROP TABLE sessions", "*", "a%b_c"] {
        TestJournalWriter::create_session(&store, odd).await.append_records(1).await;
        assert_eq!(read_all_records(&store, &session_id(odd)).await.len(), 1);
    }
}

pub async fn records_keep_their_times(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let times = [5, 3, u64::MAX, 0, 1_800_000_000_000];
    let stamp = |(record, at): (JournalRecord, u64)| JournalRecord { at: UnixMillis(at), ..record };
    let records: Vec<JournalRecord> = (1..=5).map(|seq| sample_record(&a.session, seq)).zip(times).map(stamp).collect();
    let commit = JournalCommit { records: records.clone(), ..sample_commit(&a.session, a.lease, 0) };
    store.append_commit(commit).await.expect("in time");
    assert_eq!(read_all_records(&store, &a.session).await, records);
}

pub async fn sessions_are_independent(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..12u64 {
        let store: Arc<dyn crate::Store> = store.clone();
        writers.spawn(async move {
            let mut writer = TestJournalWriter::create_session(&store, &format!("s{number}")).await;
            for round in 0..10 {
                writer
                    .append_records_with(1 + round % 3, vec![visible_body(&format!("{number} says {round}"))], None)
                    .await;
            }
        });
    }
    writers.join_all().await;
    for number in 0..12 {
        let session = session_id(&format!("s{number}"));
        assert_eq!(read_all_records(&store, &session).await, sample_records(&session, 19));
    }
}

pub async fn a_long_commit_is_atomic(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let long = sample_long_commit(&a.session, a.lease, 500);
    let late = JournalCommit { epoch: LeaseEpoch(a.lease.epoch.0 + 1), ..long.clone() };
    assert!(matches!(store.append_commit(late).await, Err(Error::Fenced { .. })));
    assert_eq!(
        (read_all_records(&store, &a.session).await, fixture.body_count()),
        (Vec::new(), 0),
        "nothing of it was written"
    );
    assert_eq!(store.append_commit(long.clone()).await, Ok(Seq(500)));
    for (after, limit) in [(0, 500), (0, 1), (137, 200), (499, 9), (250, usize::MAX)] {
        let read = store.read_records(&a.session, Seq(after), limit).await.expect("readable");
        let after = usize::try_from(after).expect("small");
        assert_eq!(read, long.records[after..after.saturating_add(limit).min(500)], "{limit} after {after}");
    }
    let ids: Vec<BodyId> = long.bodies.iter().map(|body| body.text.id).collect();
    let texts = store.read_bodies(&a.session, &ids).await.expect("all are there");
    assert!(texts.iter().zip(&long.bodies).all(|(read, body)| *read == body.text.text));
    let next = Lease { head: Seq(500), ..a.lease };
    assert_eq!(store.append_commit(sample_commit(&a.session, next, 1)).await, Ok(Seq(501)));
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

pub async fn large_and_unusual_texts_survive(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut noise = 1u64;
    let mut large = String::new();
    while large.len() < 3_000_000 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        large.push(char::from_u32(32 + (noise >> 40) as u32 % 0x3000).unwrap_or('?'));
    }
    let texts = ["", "\0\u{1}\u{7f}\u{202e}", "żółć 🎻\r\n", &"same ".repeat(400_000), large.as_str()];
    a.append_records_with(1, texts.iter().map(|text| visible_body(text)).collect(), None).await;
    let ids: Vec<BodyId> = texts.iter().map(|text| BodyId::hash_text(text)).collect();
    let read = store.read_bodies(&a.session, &ids).await.expect("readable");
    assert!(read.iter().zip(texts).all(|(read, text)| **read == *text));
}
