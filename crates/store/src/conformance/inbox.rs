//! Tests of inboxes, and of what commits deliver.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::{Seq, SessionId, SubmissionId, UnixMillis};

use super::{
    StoreFixture, TestJournalWriter, first_record_bodies, internal_body, pending_session_names, read_all_records,
    sample_commit, sample_record, sample_summary, session_id, visible_body,
};
use crate::limits::{INBOX_BYTES_MAX, INBOX_ENTRIES_MAX, INBOX_EXEMPT_ENTRIES_MAX, OUTCOME_RETENTION_MS};
use crate::{
    Error, HandledInboxEntry, InboxEmptiness, InboxSubmissionStatus, JournalCommit, LeaseTakeoverPolicy,
    NewInboxSubmission, OutgoingInboxSubmission, SessionNameAndUid, SpawnedSession, Store,
};

pub async fn entries_are_read_oldest_first(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let a = open_session(&store, "a").await;
    for id in [9, 2, 7] {
        assert_eq!(other.submit(&a.session, None, sample_submission(id)).await, Ok(a.lease.uid), "needs no lease");
    }
    let entries = store.read_inbox(&a.session, 9).await.expect("readable");
    assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [9, 2, 7]);
    assert_eq!(entries[1].bytes, sample_submission(2).bytes);
    assert_eq!((entries[1].at, &entries[1].sender), (UnixMillis(1_002), &None));
    assert_eq!(store.read_inbox(&a.session, 2).await, Ok(entries[..2].to_vec()));
    assert_eq!(other.read_outcome(&a.session, SubmissionId(7)).await, Ok(InboxSubmissionStatus::Waiting));
    assert_eq!(other.read_outcome(&a.session, SubmissionId(1)).await, Ok(InboxSubmissionStatus::Unknown));
    let missing = Err(Error::NoSuchSession { session: session_id("never") });
    assert_eq!(other.submit(&session_id("never"), None, sample_submission(1)).await, missing);
}

pub async fn r1_draining_deletes_exactly_the_entries_it_names(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    for id in 1..=4 {
        store.submit(&a.session, None, sample_submission(id)).await.expect("room");
    }
    drain(&store, &mut a, &[4, 2]).await.expect("they are there");
    assert_eq!(waiting_ids(&store, "a").await, [1, 3]);
    assert_eq!(read_all_records(&store, &a.session).await.len(), 2);
    // An entry that becomes visible late is not skipped, whatever its id.
    store.submit(&a.session, None, sample_submission(0)).await.expect("room");
    assert_eq!(waiting_ids(&store, "a").await, [1, 3, 0]);
    drain(&store, &mut a, &[1, 3, 0]).await.expect("they are there");
    assert_eq!(waiting_ids(&store, "a").await, [0; 0]);
}

pub async fn r1_a_commit_that_drains_a_missing_entry_writes_nothing(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    let mut b = open_session(&store, "b").await;
    store.submit(&a.session, None, sample_submission(1)).await.expect("room");
    store.submit(&b.session, None, sample_submission(2)).await.expect("room");
    for missing in [2, 3] {
        let gone = Error::EntryGone { session: a.session.clone(), submission: SubmissionId(missing) };
        assert_eq!(drain(&store, &mut a, &[1, missing]).await, Err(gone));
    }
    let twice = drain(&store, &mut a, &[1, 1]).await.expect_err("twice");
    assert!(matches!(twice, Error::Malformed { .. }), "{twice}");
    assert_eq!(waiting_ids(&store, "a").await, [1]);
    assert_eq!(read_all_records(&store, &a.session).await.len(), 1);
    drain(&store, &mut a, &[1]).await.expect("it is there");
    let gone = Error::EntryGone { session: a.session.clone(), submission: SubmissionId(1) };
    assert_eq!(drain(&store, &mut a, &[1]).await, Err(gone), "an entry is drained once");
    drain(&store, &mut b, &[2]).await.expect("it is there");
}

pub async fn r1_a_rejected_commit_in_a_group_leaves_no_trace(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = open_session(&store, "a").await;
    let b = open_session(&store, "b").await;
    let taken = open_session(&store, "taken").await;
    store.submit(&a.session, None, sample_submission(1)).await.expect("room");
    let full = |drained: u64, child: &str| JournalCommit {
        bodies: first_record_bodies(a.lease, vec![visible_body("a text of a rejected commit")]),
        summary: Some(sample_summary("rejected", 9)),
        drained: vec![sample_handled_entry(1), sample_handled_entry(drained)],
        spawned: vec![sample_spawn("a~1", 5), sample_spawn(child, 6)],
        outgoing: vec![sample_outgoing("b", 7, None)],
        ..sample_commit(&a.session, a.lease, 1)
    };
    let mut neighbours = Vec::new();
    for number in 0..8 {
        neighbours.push(open_session(&store, &format!("neighbour-{number}")).await);
    }
    let mut rejected = tokio::task::JoinSet::new();
    for commit in [full(2, "a~2"), JournalCommit { drained: vec![sample_handled_entry(1)], ..full(1, "taken") }] {
        let store = store.clone();
        rejected.spawn(async move { store.append_commit(commit).await });
    }
    let mut accepted = tokio::task::JoinSet::new();
    for neighbour in neighbours {
        let store = store.clone();
        accepted.spawn(async move { store.append_commit(sample_commit(&neighbour.session, neighbour.lease, 1)).await });
    }
    for result in rejected.join_all().await {
        let error = result.expect_err("rejected");
        assert!(matches!(error, Error::EntryGone { .. } | Error::SessionExists { .. }), "{error}");
    }
    assert_eq!(accepted.join_all().await, vec![Ok(Seq(2)); 8]);
    assert_eq!(waiting_ids(&store, "a").await, [1]);
    assert_eq!(waiting_ids(&store, "b").await, [0; 0]);
    assert_eq!(waiting_ids(&store, "taken").await, [0; 0]);
    assert_eq!(store.read_heads(&[session_id("a~1"), session_id("a~2")]).await, Ok(vec![None, None]));
    assert_eq!(store.read_heads(&[a.session.clone(), taken.session]).await, Ok(vec![Some(Seq(1)), Some(Seq(1))]));
    assert_eq!(fixture.body_count(), 0);
    let (a_uid, b_uid) = (a.lease.uid, b.lease.uid);
    assert!(store.children_of(a_uid, 9).await.expect("listed").is_empty());
    assert_eq!(store.submit(&b.session, Some(b_uid), sample_submission(7)).await, Ok(b_uid), "its id is unused");
    store
        .append_commit(JournalCommit { drained: vec![sample_handled_entry(1)], ..full(1, "a~2") })
        .await
        .expect("now it is good");
    assert_eq!(store.children_of(a_uid, 9).await.expect("listed").len(), 2);
}

pub async fn r3_the_outcome_of_a_drained_entry_is_kept_for_a_day(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    store.submit(&a.session, None, sample_submission(1)).await.expect("room");
    drain(&store, &mut a, &[1]).await.expect("it is there");
    let reader = fixture.open_store();
    let handled = InboxSubmissionStatus::Handled { outcome: b"handled 1".to_vec() };
    assert_eq!(reader.read_outcome(&a.session, SubmissionId(1)).await, Ok(handled.clone()));
    fixture.clock().advance_ms(OUTCOME_RETENTION_MS - 60_000);
    assert_eq!(reader.read_outcome(&a.session, SubmissionId(1)).await, Ok(handled));
    fixture.clock().advance_ms(120_000);
    assert_eq!(reader.read_outcome(&a.session, SubmissionId(1)).await, Ok(InboxSubmissionStatus::Unknown));
    store.submit(&a.session, None, sample_submission(1)).await.expect("the id is forgotten");
    drain(&store, &mut a, &[1]).await.expect("it is there");
    assert!(matches!(
        reader.read_outcome(&a.session, SubmissionId(1)).await,
        Ok(InboxSubmissionStatus::Handled { .. })
    ));
}

pub async fn a_repeated_submission_changes_nothing(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    let other_body = NewInboxSubmission { bytes: b"another".to_vec(), ..sample_submission(1) };
    let reused = Err(Error::SubmissionIdReused { session: a.session.clone(), submission: SubmissionId(1) });
    for _ in 0..2 {
        assert_eq!(store.submit(&a.session, None, sample_submission(1)).await, Ok(a.lease.uid));
    }
    assert_eq!(store.submit(&a.session, None, other_body.clone()).await, reused);
    assert_eq!(waiting_ids(&store, "a").await, [1]);
    drain(&store, &mut a, &[1]).await.expect("it is there");
    assert_eq!(store.submit(&a.session, None, sample_submission(1)).await, Ok(a.lease.uid), "handled already");
    assert_eq!(store.submit(&a.session, None, other_body).await, reused);
    assert_eq!(waiting_ids(&store, "a").await, [0; 0]);
    let b = open_session(&store, "b").await;
    store.submit(&b.session, None, sample_submission(1)).await.expect("ids of another session do not matter");
}

pub async fn r5_a_session_with_a_reused_name_inherits_nothing(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut old = open_session(&store, "a").await;
    for id in [1, 2] {
        store.submit(&old.session, None, sample_submission(id)).await.expect("room");
    }
    drain(&store, &mut old, &[1]).await.expect("it is there");
    store.delete_session(&old.session, None).await.expect("deleted");
    let new = open_session(&store, "a").await;
    assert!(new.lease.uid > old.lease.uid);
    assert_eq!(new.lease.inbox, InboxEmptiness::Empty);
    assert_eq!(waiting_ids(&store, "a").await, [0; 0]);
    assert_eq!(store.read_outcome(&new.session, SubmissionId(1)).await, Ok(InboxSubmissionStatus::Unknown));
    let (expected, current) = (old.lease.uid, new.lease.uid);
    let replaced = Err(Error::SessionReplaced { session: new.session.clone(), expected, current });
    assert_eq!(store.submit(&new.session, Some(expected), sample_submission(3)).await, replaced);
    assert_eq!(store.submit(&new.session, Some(current), sample_submission(3)).await, Ok(current));
}

pub async fn r11_a_full_inbox_accepts_only_exempt_submissions(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = open_session(&store, "a").await;
    for id in 0..INBOX_ENTRIES_MAX as u64 {
        store.submit(&a.session, None, sample_submission(id)).await.expect("room");
    }
    let error = store.submit(&a.session, None, sample_submission(9_999)).await.expect_err("full");
    assert!(error.to_string().contains(&format!("`a` is full ({INBOX_ENTRIES_MAX} entries)")), "{error}");
    let exempt = |id| NewInboxSubmission { exempt_from_limit: true, ..sample_submission(id) };
    store.submit(&a.session, None, exempt(9_999)).await.expect("exempt");
    let b = open_session(&store, "b").await;
    let large = NewInboxSubmission { bytes: vec![7; INBOX_BYTES_MAX - 1], ..sample_submission(1) };
    store.submit(&b.session, None, large).await.expect("room");
    let error = store.submit(&b.session, None, sample_submission(2)).await.expect_err("full");
    assert!(error.to_string().contains(&format!("{INBOX_BYTES_MAX} bytes")), "{error}");
    for id in INBOX_ENTRIES_MAX as u64 + 1..INBOX_EXEMPT_ENTRIES_MAX as u64 {
        store.submit(&a.session, None, exempt(id)).await.expect("exempt");
    }
    let error = store.submit(&a.session, None, exempt(77_777)).await.expect_err("a client cannot fill the disk");
    assert!(matches!(error, Error::InboxFull { .. }), "{error}");
}

pub async fn outgoing_submissions_are_part_of_the_commit(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = open_session(&store, "a").await;
    let b = open_session(&other, "b").await;
    let outgoing = vec![sample_outgoing("b", 1, None), sample_outgoing("b", 2, None), sample_outgoing("a", 3, None)];
    let commit = JournalCommit { outgoing, ..sample_commit(&a.session, a.lease, 1) };
    a.lease.head = store.append_commit(commit).await.expect("the receiver's lease is not needed");
    let entries = other.read_inbox(&b.session, 9).await.expect("readable");
    let sender = Some(SessionNameAndUid { session: a.session.clone(), uid: a.lease.uid });
    assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [1, 2]);
    assert!(entries.iter().all(|entry| entry.sender == sender));
    assert_eq!(waiting_ids(&store, "a").await, [3], "a session may write to itself");
    assert_eq!(other.append_commit(sample_commit(&b.session, b.lease, 1)).await, Ok(Seq(2)), "b is still held");
}

pub async fn r11_a_submission_that_cannot_be_delivered_bounces(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    let b = open_session(&store, "b").await;
    let full = open_session(&store, "full").await;
    let deleted = open_session(&store, "deleted").await;
    store.begin_delete(&deleted.session).await.expect("ours");
    for id in 0..INBOX_ENTRIES_MAX as u64 {
        store.submit(&full.session, None, sample_submission(id)).await.expect("room");
        store.submit(&a.session, None, sample_submission(id)).await.expect("room");
    }
    let to_other_uid =
        OutgoingInboxSubmission { expected: Some(a.lease.uid), ..sample_outgoing("b", 1_004, Some(2_004)) };
    let exempt = NewInboxSubmission { exempt_from_limit: true, ..sample_submission(1_006) };
    let outgoing = vec![
        sample_outgoing("never", 1_001, Some(2_001)),
        sample_outgoing("deleted", 1_002, Some(2_002)),
        sample_outgoing("full", 1_003, Some(2_003)),
        to_other_uid,
        sample_outgoing("never", 1_005, None),
        OutgoingInboxSubmission { submission: exempt, ..sample_outgoing("full", 1_006, Some(2_006)) },
    ];
    let commit = JournalCommit { outgoing, ..sample_commit(&a.session, a.lease, 1) };
    a.lease.head = store.append_commit(commit).await.expect("a commit does not fail because of a receiver");
    let own_entries = waiting_ids(&store, "a").await;
    assert_eq!(own_entries[INBOX_ENTRIES_MAX..], [2_001, 2_002, 2_003, 2_004], "although its own inbox is full");
    assert_eq!(waiting_ids(&store, "full").await.last(), Some(&1_006), "exempt");
    assert_eq!(waiting_ids(&store, "b").await, [0; 0]);
    assert_eq!(b.lease.inbox, InboxEmptiness::Empty);
}

pub async fn a_spawned_session_has_its_parent_and_its_entries(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = open_session(&store, "a").await;
    let child = session_id("a~1");
    let spawned = SpawnedSession {
        bodies: first_record_bodies(crate::Lease { head: Seq(0), ..a.lease }, vec![internal_body("of the child")]),
        ..sample_spawn("a~1", 5)
    };
    let commit = JournalCommit {
        spawned: vec![spawned],
        outgoing: vec![sample_outgoing("a~1", 6, None)],
        ..sample_commit(&a.session, a.lease, 1)
    };
    store.append_commit(commit).await.expect("the name is free");
    assert_eq!(read_all_records(&store, &child).await, [sample_record(&child, 1)]);
    let text = store.read_bodies(&child, &[BodyId::hash_text("of the child")]).await.expect("stored with it");
    assert_eq!(&*text[0], "of the child");
    let parent = SessionNameAndUid { session: a.session.clone(), uid: a.lease.uid };
    let entries = store.read_inbox(&child, 9).await.expect("readable");
    assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [5, 6]);
    assert!(entries.iter().all(|entry| entry.sender.as_ref() == Some(&parent)));
    let lease = fixture.open_store().acquire_lease(&child, LeaseTakeoverPolicy::IfHolderDead).await.expect("not held");
    assert_eq!((lease.parent, lease.inbox, lease.head), (Some(a.lease.uid), InboxEmptiness::HasEntries, Seq(1)));
    assert_eq!(store.parent_of(&child).await, Ok(Some(parent)));
    assert_eq!(store.parent_of(&a.session).await, Ok(None));
    let address = SessionNameAndUid { session: child.clone(), uid: lease.uid };
    assert_eq!(store.children_of(a.lease.uid, 9).await, Ok(vec![address]));
    let page = store.list_sessions(&crate::SessionQuery::newest(9)).await.expect("listed");
    let entry = page.entries.iter().find(|entry| entry.session == child).expect("listed");
    assert_eq!((entry.uid, entry.parent), (lease.uid, Some(a.lease.uid)));
    let fork =
        crate::SessionForkSpec { from: child, at_seq: Seq(1), to: session_id("copy"), summary: sample_summary("", 1) };
    store.fork_session(fork).await.expect("forked");
    assert_eq!(store.parent_of(&session_id("copy")).await, Ok(None), "a copy of a child has no parent");
    assert_eq!(waiting_ids(&store, "copy").await, [0; 0]);
}

pub async fn r4_an_inbox_entry_is_pending_work_by_itself(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = open_session(&store, "a").await;
    let mut b = open_session(&store, "b").await;
    a.append_records_with(1, Vec::new(), Some(sample_summary("", 1))).await;
    assert_eq!(pending_session_names(&*store).await, [""; 0]);
    other.submit(&a.session, None, sample_submission(1)).await.expect("room");
    assert_eq!(pending_session_names(&*store).await, ["a"]);
    assert_eq!(store.held_sessions_with_entries(9).await.expect("listed"), [writer_name_and_uid(&a)]);
    assert_eq!(other.held_sessions_with_entries(9).await.expect("listed"), [], "another process holds it");
    assert_eq!(store.release_lease(&a.session, a.lease.epoch).await, Ok(InboxEmptiness::HasEntries));
    assert_eq!(store.held_sessions_with_entries(9).await.expect("listed"), []);
    assert_eq!(pending_session_names(&*store).await, ["a"], "an entry that nobody saw wakes the session");
    a.lease = store.acquire_lease(&a.session, LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert_eq!(a.lease.inbox, InboxEmptiness::HasEntries);
    a.append_records_with(1, Vec::new(), Some(sample_summary("", 2))).await;
    assert_eq!(pending_session_names(&*store).await, ["a"], "a summary without work does not hide an entry");
    drain(&store, &mut a, &[1]).await.expect("it is there");
    assert_eq!(pending_session_names(&*store).await, [""; 0]);
    assert_eq!(store.release_lease(&a.session, a.lease.epoch).await, Ok(InboxEmptiness::Empty));
    let own = JournalCommit { outgoing: vec![sample_outgoing("b", 3, None)], ..sample_commit(&b.session, b.lease, 1) };
    b.lease.head = store.append_commit(own).await.expect("in time");
    assert_eq!(pending_session_names(&*store).await, ["b"], "one that a session sends to itself too");
}

/// Creates a session with one record.
pub(super) async fn open_session(store: &Arc<dyn Store>, name: &str) -> TestJournalWriter {
    let mut writer = TestJournalWriter::create_session(store, name).await;
    writer.append_records(1).await;
    writer
}

/// Appends a record that accounts for these entries.
pub(super) async fn drain(store: &Arc<dyn Store>, writer: &mut TestJournalWriter, ids: &[u64]) -> Result<(), Error> {
    let drained = ids.iter().copied().map(sample_handled_entry).collect();
    let commit = JournalCommit { drained, ..sample_commit(&writer.session, writer.lease, 1) };
    writer.lease.head = store.append_commit(commit).await?;
    Ok(())
}

pub(super) fn writer_name_and_uid(writer: &TestJournalWriter) -> SessionNameAndUid {
    SessionNameAndUid { session: writer.session.clone(), uid: writer.lease.uid }
}

/// Returns a submission whose content follows from its id.
pub(super) fn sample_submission(id: u64) -> NewInboxSubmission {
    let bytes = format!("submission {id}").into_bytes();
    NewInboxSubmission { id: SubmissionId(id), at: UnixMillis(1_000 + id), bytes, exempt_from_limit: false }
}

fn sample_handled_entry(id: u64) -> HandledInboxEntry {
    HandledInboxEntry { id: SubmissionId(id), outcome: format!("handled {id}").into_bytes() }
}

fn sample_outgoing(to: &str, id: u64, bounce: Option<u64>) -> OutgoingInboxSubmission {
    let (submission, bounce) = (sample_submission(id), bounce.map(sample_submission));
    OutgoingInboxSubmission { to: session_id(to), expected: None, submission, bounce }
}

/// Returns a child with one record and one entry.
pub(super) fn sample_spawn(name: &str, entry: u64) -> SpawnedSession {
    let session: SessionId = session_id(name);
    SpawnedSession {
        records: vec![sample_record(&session, 1)],
        session,
        bodies: Vec::new(),
        summary: sample_summary(name, 1),
        entries: vec![sample_submission(entry)],
    }
}

pub(super) async fn waiting_ids(store: &Arc<dyn Store>, session: &str) -> Vec<u64> {
    let entries = store.read_inbox(&session_id(session), usize::MAX).await.expect("readable");
    entries.iter().map(|entry| entry.id.0).collect()
}
