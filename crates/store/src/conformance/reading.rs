//! Tests of reading records, texts and snapshots.

use segue_core::body::BodyId;
use segue_core::ids::Seq;

use super::{
    StoreFixture, TestJournalWriter, first_record_bodies, internal_body, read_all_records, sample_commit,
    sample_record, session_id, visible_body,
};
use crate::{Error, JournalCommit, JournalRecord, Snapshot};

pub async fn any_range_can_be_read(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    for count in [3, 1, 5, 2] {
        a.append_records(count).await;
    }
    for after in 0..13u64 {
        for limit in [0, 1, 2, 4, 100] {
            let read = store.read_records(&a.session, Seq(after), limit).await.expect("readable");
            let wanted: Vec<JournalRecord> =
                (after + 1..=11).take(limit).map(|seq| sample_record(&a.session, seq)).collect();
            assert_eq!(read, wanted, "after {after}, {limit} at most");
        }
    }
    assert_eq!(store.read_records(&a.session, Seq(u64::MAX), 5).await, Ok(Vec::new()));
}

pub async fn missing_sessions_and_bodies_are_named(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let never = session_id("never");
    let missing = Error::NoSuchSession { session: never.clone() };
    assert_eq!(store.read_records(&never, Seq(0), 1).await, Err(missing.clone()));
    assert_eq!(store.read_bodies(&never, &[]).await, Err(missing.clone()));
    assert_eq!(store.load_snapshot(&never).await, Err(missing.clone()));
    assert_eq!(store.delete_session(&never, None).await, Err(missing.clone()));
    assert_eq!(store.acquire_lease(&never, crate::LeaseTakeoverPolicy::Force).await, Err(missing));
    let a = TestJournalWriter::create_session(&store, "a").await;
    let body = BodyId::hash_text("unheard of");
    assert_eq!(store.read_bodies(&a.session, &[body]).await, Err(Error::NoSuchBody { session: session_id("a"), body }));
}

pub async fn many_heads_are_read_at_once(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    a.append_records(3).await;
    b.append_records(1).await;
    let requested = [session_id("b"), session_id("never"), session_id("a"), session_id("b")];
    let heads = |others| [Some(Seq(1)), None, Some(Seq(others)), Some(Seq(1))].to_vec();
    assert_eq!(store.read_heads(&requested).await, Ok(heads(3)));
    a.append_records(2).await;
    assert_eq!(store.read_heads(&requested).await, Ok(heads(5)), "also right after it was written");
    assert_eq!(store.read_heads(&[]).await, Ok(Vec::new()));
}

pub async fn a_body_is_stored_once(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    let shared = "a system prompt that every session has ".repeat(20);
    for _ in 0..3 {
        a.append_records_with(1, vec![internal_body(&shared), internal_body(&shared), visible_body("mine")], None)
            .await;
        b.append_records_with(1, vec![internal_body(&shared)], None).await;
    }
    assert_eq!(fixture.body_count(), 2);
    for session in [&a.session, &b.session] {
        let texts = store.read_bodies(session, &[BodyId::hash_text(&shared)]).await.expect("both use it");
        assert_eq!(*texts[0], *shared);
    }
}

pub async fn bodies_are_returned_in_the_requested_order(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let texts = ["one", "two", "three"];
    a.append_records_with(1, texts.iter().map(|text| visible_body(text)).collect(), None).await;
    let requested = ["three", "one", "two", "one"];
    let ids: Vec<BodyId> = requested.iter().map(|text| BodyId::hash_text(text)).collect();
    let read = store.read_bodies(&a.session, &ids).await.expect("readable");
    assert_eq!(read.iter().map(|text| &**text).collect::<Vec<_>>(), requested);
}

pub async fn a_body_of_another_session_cannot_be_read(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    a.append_records_with(1, vec![visible_body("a secret of a")], None).await;
    b.append_records(1).await;
    let body = BodyId::hash_text("a secret of a");
    assert_eq!(store.read_bodies(&b.session, &[body]).await, Err(Error::NoSuchBody { session: session_id("b"), body }));
    b.append_records_with(1, vec![visible_body("a secret of a")], None).await;
    assert!(store.read_bodies(&b.session, &[body]).await.is_ok(), "now the session has the text itself");
}

pub async fn the_newest_snapshot_is_kept(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(9).await;
    assert_eq!(store.load_snapshot(&a.session).await, Ok(None));
    let at = |seq: u64, bytes: &[u8]| Snapshot { seq: Seq(seq), format: 1, bytes: bytes.to_vec() };
    store.save_snapshot(&a.session, at(4, b"four")).await.expect("kept");
    store.save_snapshot(&a.session, at(7, &b"seven".repeat(1000))).await.expect("kept");
    store.save_snapshot(&a.session, at(5, b"five")).await.expect("ignored");
    assert_eq!(store.load_snapshot(&a.session).await, Ok(Some(at(7, &b"seven".repeat(1000)))));
    let reformed = Snapshot { format: 2, ..at(7, b"") };
    store.save_snapshot(&a.session, reformed.clone()).await.expect("kept");
    assert_eq!(store.load_snapshot(&a.session).await, Ok(Some(reformed)));
}

pub async fn a_snapshot_beyond_the_head_is_ignored(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records(2).await;
    let future = Snapshot { seq: Seq(3), format: 1, bytes: b"beyond the head".to_vec() };
    store.save_snapshot(&a.session, future).await.expect("ignored");
    assert_eq!(store.load_snapshot(&a.session).await, Ok(None));
}

pub async fn a_journal_can_be_copied(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(3, vec![visible_body("one")], None).await;
    a.append_records_with(2, vec![internal_body("two")], None).await;
    let journal = read_all_records(&store, &a.session).await;
    let ids = [BodyId::hash_text("one"), BodyId::hash_text("two")];
    let texts = store.read_bodies(&a.session, &ids).await.expect("readable");
    let copy = TestJournalWriter::create_session(&store, "copy").await;
    let bodies = first_record_bodies(copy.lease, texts.iter().map(|text| visible_body(text)).collect());
    let commit = JournalCommit { records: journal.clone(), bodies, ..sample_commit(&copy.session, copy.lease, 0) };
    assert_eq!(store.append_commit(commit).await, Ok(Seq(5)));
    assert_eq!(read_all_records(&store, &copy.session).await, journal);
    assert_eq!(store.read_bodies(&copy.session, &ids).await, Ok(texts));
}
