//! Stores of older formats are migrated, and processes that know only an older format cannot use a migrated store.

use std::path::Path;

use segue_core::ids::{Seq, UnixMillis};
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, read_all_records, sample_commit, sample_records, sample_summary, session_id,
};
use segue_store::{
    LeaseTakeoverPolicy, PendingWorkQuery, PendingWorkStatus, SessionListChangeCursor, SessionQuery, SessionSummary,
};

use crate::sqlite_file::SqliteFile;

/// Turns a closed store of the current format into one of format 2.
pub(crate) fn restore_format_2(path: &Path) {
    let db = rusqlite::Connection::open(path).expect("opens");
    let query = "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'sessions\\_%' ESCAPE '\\'";
    let mut indexes = db.prepare(query).expect("a query");
    let indexes: Vec<String> =
        indexes.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("names");
    for index in indexes {
        db.execute_batch(&format!("DROP INDEX {index}")).expect("dropped");
    }
    let columns = [
        "uid",
        "parent",
        "takeovers",
        "inbox_entries",
        "inbox_bytes",
        "is_being_deleted",
        "namespace",
        "updated_at",
        "due_at",
        "wake_at",
        "change",
    ];
    for column in columns {
        db.execute_batch(&format!("ALTER TABLE sessions DROP COLUMN {column}")).expect("dropped");
    }
    db.execute_batch(
        "ALTER TABLE sessions RENAME COLUMN lease_holder TO holder; ALTER TABLE store DROP COLUMN forgotten_deletion;
         DROP TABLE inbox; DROP TABLE outcomes; DROP TABLE deletions; PRAGMA user_version = 2",
    )
    .expect("format 2 restored");
}

#[tokio::test]
async fn r5_sessions_of_format_2_get_uids_and_are_listed() {
    let file = SqliteFile::new();
    let store = file.open_store();
    for (name, updated, pending_work) in [
        ("acme.a", 5, PendingWorkStatus::Now),
        ("b", 9, PendingWorkStatus::None),
        ("c", 7, PendingWorkStatus::At(UnixMillis(70))),
    ] {
        let summary = SessionSummary { pending_work, ..sample_summary(name, updated) };
        TestJournalWriter::create_session(&store, name).await.append_records_with(2, Vec::new(), Some(summary)).await;
    }
    let last_epoch = store.acquire_lease(&session_id("b"), LeaseTakeoverPolicy::Force).await.expect("forced").epoch;
    store.close().await.expect("closes");
    drop(store);
    restore_format_2(&file.path());
    let store = file.open_store();
    let page = store.list_sessions(&SessionQuery::newest(9)).await.expect("listed");
    assert_eq!(page.entries.iter().map(|entry| entry.session.as_str()).collect::<Vec<_>>(), ["b", "c", "acme.a"]);
    let mut uids: Vec<u64> = page.entries.iter().map(|entry| entry.uid.0).collect();
    uids.sort_unstable();
    uids.dedup();
    assert!(uids.len() == 3 && uids[0] > last_epoch.0, "{uids:?} after epoch {last_epoch:?}");
    let acme = SessionQuery { name_prefix: Some("acme.".into()), ..SessionQuery::newest(9) };
    assert_eq!(store.list_sessions(&acme).await.expect("listed").entries.len(), 1);
    let query = PendingWorkQuery { due_until: UnixMillis(100), after_cursor: None, limit: 9 };
    let pending = store.sessions_with_pending_work(&query).await.expect("listed").sessions;
    assert_eq!(pending.iter().map(|pending| pending.session.as_str()).collect::<Vec<_>>(), ["acme.a", "c"]);
    assert_eq!(store.changes_after(Some(SessionListChangeCursor(0)), 9).await.expect("read").changes.len(), 3);
    let b = session_id("b");
    assert_eq!(read_all_records(&store, &b).await, sample_records(&b, 2));
    let lease = store.acquire_lease(&b, LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert!(lease.epoch.0 > *uids.last().expect("three"), "uids and epochs share a counter");
    assert_eq!(store.append_commit(sample_commit(&b, lease, 1)).await, Ok(Seq(3)));
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn a_process_that_knows_only_format_2_fails_on_a_migrated_store() {
    let file = SqliteFile::new();
    let mut a = TestJournalWriter::create_session(&file.open_store(), "a").await;
    a.append_records(1).await;
    drop(a);
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    // What such a process does first in every operation on a session.
    let error = db.prepare("SELECT key, epoch, head, holder FROM sessions WHERE name = ?1").expect_err("renamed");
    assert!(error.to_string().contains("no such column: holder"), "{error}");
}
