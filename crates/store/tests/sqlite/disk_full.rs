//! A full disk: a clear error, nothing half written, and work continues when there is space.

use std::sync::Arc;

use segue_core::ids::Seq;
use segue_store::conformance::{
    TestJournalWriter, first_record_bodies, read_all_records, sample_commit, sample_records, sample_summary,
    session_id, visible_body,
};
use segue_store::sqlite::{SqliteOptions, SqliteStore};
use segue_store::{Error, JournalCommit, Store};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

const PAGES_MAX: u32 = 64;

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_nothing_half_written() {
    let file = SqliteFile::new();
    let store = open_with_pages(&file, PAGES_MAX);
    let mut random = SeededRandom(5);
    let mut spare = TestJournalWriter::create_session(&store, "spare").await;
    for _ in 0..20 {
        spare.append_records_with(1, vec![visible_body(&random.prose(2000))], Some(sample_summary("spare", 1))).await;
    }
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    let error = loop {
        let bodies = first_record_bodies(a.lease, vec![visible_body(&random.prose(3000))]);
        let commit = JournalCommit { bodies, ..sample_commit(&a.session, a.lease, 2) };
        match store.append_commit(commit).await {
            Ok(head) => a.lease.head = head,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::DiskFull { what } if what.contains("`a`")), "{error}");
    assert_eq!(read_all_records(&store, &a.session).await, sample_records(&a.session, a.lease.head.0));
    assert!(store.check_integrity().await.expect("checked").is_clean());

    store.delete_session(&spare.session, None).await.expect("deleting needs no space");
    a.append_records_with(2, vec![visible_body(&random.prose(3000))], None).await;
    drop((a, spare, store));

    let store = open_with_pages(&file, PAGES_MAX * 10);
    let lease =
        store.acquire_lease(&session_id("a"), segue_store::LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
    assert_eq!(store.append_commit(sample_commit(&session_id("a"), lease, 9)).await, Ok(Seq(lease.head.0 + 9)));
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn on_a_full_disk_each_writer_gets_its_own_result() {
    let file = SqliteFile::new();
    let store = open_with_pages(&file, PAGES_MAX);
    let mut random = SeededRandom(6);
    let mut writers = tokio::task::JoinSet::new();
    let mut sessions = Vec::new();
    for number in 0..24 {
        sessions.push(TestJournalWriter::create_session(&store, &format!("s{number}")).await);
    }
    // While another process writes, all commits queue up and become one group.
    let other = rusqlite::Connection::open(file.path()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    for (number, writer) in sessions.into_iter().enumerate() {
        let fits = number % 3 != 0;
        // Even compressed it is larger than the whole disk.
        let bodies = vec![visible_body(&random.prose(if fits { 600 } else { 900_000 }))];
        let bodies = first_record_bodies(writer.lease, bodies);
        let store = store.clone();
        writers.spawn(async move {
            let commit = JournalCommit { bodies, ..sample_commit(&writer.session, writer.lease, 3) };
            (writer.session, fits, store.append_commit(commit).await)
        });
    }
    for _ in 0..24 {
        tokio::task::yield_now().await;
    }
    other.execute_batch("COMMIT").expect("unlocks");
    for (session, fits, result) in writers.join_all().await {
        let records = read_all_records(&store, &session).await;
        if fits {
            assert_eq!(result, Ok(Seq(3)), "{session} fails because of another");
            assert_eq!(records, sample_records(&session, 3));
        } else {
            assert!(matches!(result, Err(Error::DiskFull { .. })), "{session}: {result:?}");
            assert_eq!(records, []);
        }
    }
}

fn open_with_pages(file: &SqliteFile, pages: u32) -> Arc<dyn Store> {
    let options = SqliteOptions { pages_max: Some(pages), ..SqliteOptions::default() };
    Arc::new(SqliteStore::open_with_options(file.path(), &options).expect("opens"))
}
