//! Tests of deletions in two steps, and of parents and children.

use segue_core::ids::Seq;

use super::inbox::{open_session, sample_spawn, sample_submission, waiting_ids, writer_name_and_uid};
use super::{StoreFixture, pending_session_names, sample_commit, sample_summary, session_id};
use crate::{
    Error, JournalCommit, LeaseTakeoverPolicy, NewInboxSubmission, PendingWorkStatus, SessionForkSpec,
    SessionNameAndUid, SessionQuery, SessionSummary,
};

pub async fn r8_a_session_with_children_is_not_deleted(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let a = open_session(&store, "a").await;
    let spawned = vec![sample_spawn("a~1", 1), sample_spawn("a~2", 2)];
    store
        .append_commit(JournalCommit { spawned, ..sample_commit(&a.session, a.lease, 1) })
        .await
        .expect("the names are free");
    let has_children = Err(Error::HasChildren { session: a.session.clone() });
    assert_eq!(store.delete_session(&a.session, None).await, has_children);
    for (child, notice) in [("a~2", 11), ("a~1", 12)] {
        let uid = store.children_of(a.lease.uid, 9).await.expect("listed").last().expect("one").uid;
        store.delete_session(&session_id(child), Some(sample_submission(notice))).await.expect("a leaf");
        let notices = store.read_inbox(&a.session, 9).await.expect("readable");
        let last = notices.last().expect("a notice");
        assert_eq!((last.id.0, &last.sender), (notice, &Some(SessionNameAndUid { session: session_id(child), uid })));
    }
    assert_eq!(waiting_ids(&store, "a").await, [11, 12]);
    assert_eq!(pending_session_names(&*store).await, ["a"], "the parent has something to handle");
    store.delete_session(&a.session, Some(sample_submission(13))).await.expect("no child is left");
    assert_eq!(store.read_heads(&[a.session]).await, Ok(vec![None]));
}

pub async fn r8_a_session_being_deleted_accepts_nothing(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = open_session(&store, "a").await;
    let summary = SessionSummary { pending_work: PendingWorkStatus::Now, ..sample_summary("", 1) };
    a.append_records_with(1, Vec::new(), Some(summary.clone())).await;
    let error = other.begin_delete(&a.session).await.expect_err("held");
    assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
    let old = a.lease;
    a.lease = store.begin_delete(&a.session).await.expect("its own holder may");
    let error = store.append_commit(sample_commit(&a.session, old, 1)).await.expect_err("older");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    let refused = Error::BeingDeleted { session: a.session.clone() };
    assert_eq!(other.submit(&a.session, None, sample_submission(1)).await, Err(refused.clone()));
    assert_eq!(store.acquire_lease(&a.session, LeaseTakeoverPolicy::Force).await, Err(refused.clone()));
    let fork =
        SessionForkSpec { from: a.session.clone(), at_seq: Seq(1), to: session_id("b"), summary: summary.clone() };
    assert_eq!(store.fork_session(fork).await, Err(refused.clone()));
    let spawned = vec![sample_spawn("a~1", 1)];
    let spawning = JournalCommit { spawned, ..sample_commit(&a.session, a.lease, 1) };
    assert_eq!(store.append_commit(spawning).await, Err(refused), "an orphan would be left");
    a.append_records_with(1, Vec::new(), Some(summary)).await;
    assert_eq!(store.list_sessions(&SessionQuery::newest(9)).await.expect("listed").entries, [], "it can be closed");
    assert_eq!(pending_session_names(&*store).await, [""; 0]);
    assert_eq!(
        store.create_session(&a.session).await,
        Err(Error::SessionExists { session: a.session.clone() }),
        "its name is not free yet"
    );
}

pub async fn r8_an_interrupted_deletion_can_be_continued(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    a.append_records_with(1, Vec::new(), Some(sample_summary("", 1))).await;
    store.submit(&a.session, None, sample_submission(1)).await.expect("room");
    store.begin_delete(&a.session).await.expect("ours");
    let (session, deleted) = (a.session.clone(), writer_name_and_uid(&a));
    drop((a, store));
    let store = fixture.open_store();
    assert_eq!(store.sessions_to_delete(9).await, Ok(vec![deleted]));
    let lease = store.begin_delete(&session).await.expect("its holder is dead");
    assert_eq!(store.append_commit(sample_commit(&session, lease, 1)).await, Ok(Seq(3)));
    store.delete_session(&session, None).await.expect("deleted");
    assert_eq!(store.sessions_to_delete(9).await, Ok(Vec::new()));
    assert_eq!(store.begin_delete(&session).await, Err(Error::NoSuchSession { session }));
}

pub async fn r8_inbox_and_outcomes_are_erased_with_their_session(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = open_session(&store, "a").await;
    let marker = |number: u64| segue_core::body::BodyId::hash_text(&format!("inbox marker {number}")).to_string();
    for id in [1, 2] {
        let submission = NewInboxSubmission { bytes: marker(id).into_bytes(), ..sample_submission(id) };
        store.submit(&a.session, None, submission).await.expect("room");
    }
    let outcome = crate::HandledInboxEntry { id: segue_core::ids::SubmissionId(1), outcome: marker(3).into_bytes() };
    let commit = JournalCommit { drained: vec![outcome], ..sample_commit(&a.session, a.lease, 1) };
    a.lease.head = store.append_commit(commit).await.expect("in time");
    assert!([2, 3].map(marker).iter().all(|marker| fixture.contains_text(marker)), "the test can see stored data");
    store.delete_session(&a.session, None).await.expect("deleted");
    for number in 1..=3 {
        assert!(!fixture.contains_text(&marker(number)), "marker {number} is still on disk");
    }
}
