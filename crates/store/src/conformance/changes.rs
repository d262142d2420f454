//! Tests of pages and of the change feed.

use segue_core::ids::UnixMillis;

use super::inbox::open_session;
use super::{StoreFixture, TestJournalWriter, sample_summary, session_id};
use crate::limits::LIST_SKIPPED_SESSIONS_MAX;
use crate::{
    JournalCommit, PendingWorkQuery, PendingWorkStatus, SessionForkSpec, SessionListChangeCursor, SessionQuery,
    SessionSummary, Store, StoredSessionListChange,
};

pub async fn pending_work_is_returned_in_pages_by_urgency(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for number in [3, 1, 0, 2, 0] {
        let pending_work = if number == 0 { PendingWorkStatus::Now } else { PendingWorkStatus::At(UnixMillis(number)) };
        let name = format!("s{number}-{}", store.changes_after(None, 1).await.expect("read").next_cursor.0);
        let summary = SessionSummary { pending_work, ..sample_summary("", 1) };
        open_session(&store, &name).await.append_records_with(1, Vec::new(), Some(summary)).await;
    }
    let mut query = PendingWorkQuery { due_until: UnixMillis(2), after_cursor: None, limit: 2 };
    let mut found = Vec::new();
    loop {
        let page = store.sessions_with_pending_work(&query).await.expect("listed");
        assert!(page.sessions.len() <= 2);
        found.extend(page.sessions.into_iter().map(|pending| pending.session.to_string()));
        query.after_cursor = page.next_cursor;
        if query.after_cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, ["s0-2", "s0-4", "s1-1", "s2-3"]);
}

pub async fn a_query_skips_a_limited_number_of_sessions(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut parent = open_session(&store, "parent").await;
    // Children are created many at a time.
    let others = LIST_SKIPPED_SESSIONS_MAX as u64 + 10;
    let spawned = (0..others).map(|number| {
        let name = format!("parent~{number}");
        crate::SpawnedSession { entries: Vec::new(), ..super::inbox::sample_spawn(&name, 0) }
    });
    let spawned = spawned.collect();
    let commit = JournalCommit { spawned, ..super::sample_commit(&parent.session, parent.lease, 1) };
    parent.lease.head = store.append_commit(commit).await.expect("the names are free");
    let wanted = SessionSummary { flow: "rare".into(), ..sample_summary("", 0) };
    open_session(&store, "wanted").await.append_records_with(1, Vec::new(), Some(wanted)).await;
    let mut query = SessionQuery { flows: vec!["rare".into()], ..SessionQuery::newest(5) };
    let first = store.list_sessions(&query).await.expect("listed");
    assert!(first.entries.is_empty() && first.next_cursor.is_some(), "the scan is bounded");
    query.after_cursor = first.next_cursor;
    let second = store.list_sessions(&query).await.expect("listed");
    assert_eq!(second.entries.len(), 1, "nothing is skipped for ever");
    assert_eq!(second.next_cursor, None);
}

pub async fn changes_are_reported_in_the_order_of_their_commits(fixture: &impl StoreFixture) {
    let (store, other) = (fixture.open_store(), fixture.open_store());
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let mut b = TestJournalWriter::create_session(&other, "b").await;
    a.append_records_with(1, Vec::new(), Some(sample_summary("a1", 9))).await;
    let start = store.changes_after(None, 9).await.expect("read");
    assert_eq!(start.changes, []);
    // The times of the summaries do not matter.
    b.append_records_with(1, Vec::new(), Some(sample_summary("b1", 1))).await;
    a.append_records_with(1, Vec::new(), Some(sample_summary("a2", 5))).await;
    a.append_records(1).await;
    let (changes, cursor) = describe_changes(&*store, start.next_cursor, 9).await;
    assert_eq!(changes, ["b1", "a2"]);
    assert_eq!(describe_changes(&*other, start.next_cursor, 9).await.0, ["b1", "a2"], "in every process");
    assert_eq!(describe_changes(&*store, cursor, 9).await, (Vec::new(), cursor));
    let (first, middle) = describe_changes(&*store, start.next_cursor, 1).await;
    assert_eq!((first, describe_changes(&*store, middle, 1).await.0), (vec!["b1".to_owned()], vec!["a2".to_owned()]));
    b.append_records_with(1, Vec::new(), Some(sample_summary("b2", 2))).await;
    let fork = SessionForkSpec {
        from: session_id("a"),
        at_seq: segue_core::ids::Seq(1),
        to: session_id("c"),
        summary: sample_summary("c1", 3),
    };
    store.fork_session(fork).await.expect("forked");
    let (changes, cursor) = describe_changes(&*store, cursor, 9).await;
    assert_eq!(changes, ["b2", "c1"]);
    // The newest change belongs to a session that is deleted, and its number is not used again.
    store.delete_session(&session_id("c"), None).await.expect("deleted");
    store.begin_delete(&session_id("a")).await.expect("ours");
    b.append_records_with(1, Vec::new(), Some(sample_summary("b3", 2))).await;
    let (changes, cursor) = describe_changes(&*store, cursor, 9).await;
    assert_eq!(changes.len(), 3);
    assert_eq!(changes[1..], [format!("deleted {}", a.lease.uid), "b3".to_owned()]);
    store.delete_session(&session_id("a"), None).await.expect("deleted");
    assert_eq!(describe_changes(&*store, cursor, 9).await.0, [""; 0], "a deletion is reported once");
}

async fn describe_changes(
    store: &dyn Store,
    after: SessionListChangeCursor,
    limit: usize,
) -> (Vec<String>, SessionListChangeCursor) {
    let page = store.changes_after(Some(after), limit).await.expect("read");
    assert!(!page.misses_deletions);
    let describe = |change: StoredSessionListChange| match change {
        StoredSessionListChange::Updated(entry) => entry.summary.title,
        StoredSessionListChange::Deleted(uid) => format!("deleted {uid}"),
    };
    (page.changes.into_iter().map(describe).collect(), page.next_cursor)
}
