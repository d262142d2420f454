//! Bodies are stored once and found again, whether their addresses are in the list of new ones or in the index.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_store::conformance::{StoreFixture, TestJournalWriter, session_id, visible_body};
use segue_store::limits::UNINDEXED_ADDRESSES_MIN;
use segue_store::{Error, Store};

use crate::migration::restore_format_2;
use crate::sqlite_file::SqliteFile;

const BODIES_PER_COMMIT: usize = 100;

fn text(number: usize) -> String {
    format!("text {number}")
}

/// Enough bodies for most addresses to have been moved into the index.
const MANY_BODIES: usize = UNINDEXED_ADDRESSES_MIN * 12;

async fn append_texts(writer: &mut TestJournalWriter, numbers: std::ops::Range<usize>) {
    for from in numbers.clone().step_by(BODIES_PER_COMMIT) {
        let texts = (from..numbers.end.min(from + BODIES_PER_COMMIT)).map(|number| visible_body(&text(number)));
        writer.append_records_with(1, texts.collect(), None).await;
    }
}

async fn assert_has_texts(store: &Arc<dyn Store>, session: &str, numbers: std::ops::Range<usize>) {
    let ids: Vec<BodyId> = numbers.clone().map(|number| BodyId::hash_text(&text(number))).collect();
    let texts = store.read_bodies(&session_id(session), &ids).await.expect("all there");
    assert!(texts.iter().map(|text| text.to_string()).eq(numbers.map(text)));
}

fn count(file: &SqliteFile, query: &str) -> usize {
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    db.query_row(query, [], |row| row.get(0)).expect("counts")
}

fn listed_addresses(file: &SqliteFile) -> usize {
    count(file, "SELECT ifnull(sum(length(data)), 0) / 16 FROM unindexed_addresses")
}

fn indexed_addresses(file: &SqliteFile) -> usize {
    count(file, "SELECT count(*) FROM addresses")
}

/// Counts addresses without a body.
fn orphaned_addresses(file: &SqliteFile) -> usize {
    count(file, "SELECT count(*) FROM addresses WHERE hash NOT IN (SELECT address FROM bodies)")
}

#[tokio::test]
async fn a_text_is_stored_once_however_many_follow() {
    let file = SqliteFile::new();
    let store = file.open_store();
    let mut writer = TestJournalWriter::create_session(&store, "one").await;
    append_texts(&mut writer, 0..MANY_BODIES).await;
    assert!(indexed_addresses(&file) > MANY_BODIES / 2, "{} in the index", indexed_addresses(&file));
    assert!(listed_addresses(&file) <= UNINDEXED_ADDRESSES_MIN, "{} in the list", listed_addresses(&file));
    let mut other_writer = TestJournalWriter::create_session(&store, "other").await;
    append_texts(&mut other_writer, 0..MANY_BODIES).await;
    assert_eq!(file.body_count(), MANY_BODIES);
    for store in [store, file.open_store()] {
        assert_has_texts(&store, "one", 0..MANY_BODIES).await;
        assert_has_texts(&store, "other", 0..MANY_BODIES).await;
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
}

#[tokio::test]
async fn processes_share_each_others_texts() {
    let file = SqliteFile::new();
    let (first_process, second_process) = (file.open_store(), file.open_store());
    let (mut writer, mut other_writer) = (
        TestJournalWriter::create_session(&first_process, "one").await,
        TestJournalWriter::create_session(&second_process, "other").await,
    );
    for round in 0..MANY_BODIES / BODIES_PER_COMMIT {
        let numbers = round * BODIES_PER_COMMIT..(round + 1) * BODIES_PER_COMMIT;
        append_texts(&mut writer, numbers.clone()).await;
        assert_has_texts(&second_process, "one", numbers.clone()).await;
        append_texts(&mut other_writer, numbers.start..numbers.end + BODIES_PER_COMMIT).await;
    }
    assert_eq!(file.body_count(), MANY_BODIES / BODIES_PER_COMMIT * BODIES_PER_COMMIT + BODIES_PER_COMMIT);
    assert!(second_process.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn a_deleted_text_leaves_no_address() {
    let file = SqliteFile::new();
    let (first_process, second_process) = (file.open_store(), file.open_store());
    let (mut writer, mut other_writer) = (
        TestJournalWriter::create_session(&first_process, "one").await,
        TestJournalWriter::create_session(&second_process, "other").await,
    );
    append_texts(&mut writer, 0..BODIES_PER_COMMIT).await;
    // The other process has read the list before the bodies are deleted.
    append_texts(&mut other_writer, BODIES_PER_COMMIT..BODIES_PER_COMMIT * 2).await;
    first_process.delete_session(&writer.session, None).await.expect("deleted");
    assert_eq!((listed_addresses(&file), indexed_addresses(&file)), (0, BODIES_PER_COMMIT));
    append_texts(&mut other_writer, BODIES_PER_COMMIT * 2..MANY_BODIES).await;
    assert!(indexed_addresses(&file) > BODIES_PER_COMMIT, "some were moved to the index meanwhile");
    assert_eq!(orphaned_addresses(&file), 0);
    assert_has_texts(&first_process, "other", BODIES_PER_COMMIT..MANY_BODIES).await;
    let mut third_writer = TestJournalWriter::create_session(&first_process, "again").await;
    append_texts(&mut third_writer, 0..BODIES_PER_COMMIT).await;
    assert_has_texts(&second_process, "again", 0..BODIES_PER_COMMIT).await;
    assert!(second_process.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn an_idle_process_does_not_restore_deleted_addresses() {
    let file = SqliteFile::new();
    let (first_process, second_process) = (file.open_store(), file.open_store());
    let (mut deleted, mut kept) = (
        TestJournalWriter::create_session(&first_process, "gone").await,
        TestJournalWriter::create_session(&first_process, "stays").await,
    );
    append_texts(&mut deleted, 0..BODIES_PER_COMMIT).await;
    let mut other_writer = TestJournalWriter::create_session(&second_process, "other").await;
    first_process.delete_session(&deleted.session, None).await.expect("deleted");
    append_texts(&mut kept, BODIES_PER_COMMIT..MANY_BODIES).await;
    append_texts(&mut other_writer, MANY_BODIES..MANY_BODIES * 2).await;
    assert_eq!(orphaned_addresses(&file), 0);
    assert_has_texts(&second_process, "stays", BODIES_PER_COMMIT..MANY_BODIES).await;
}

#[tokio::test]
async fn sessions_deleted_together_leave_no_address() {
    let file = SqliteFile::new();
    let store = file.open_store();
    let mut sessions = Vec::new();
    for number in 0..20 {
        let mut writer = TestJournalWriter::create_session(&store, &format!("s{number}")).await;
        append_texts(&mut writer, number * 10..number * 10 + 10).await;
        sessions.push(writer.session);
    }
    let mut deletes = tokio::task::JoinSet::new();
    for session in sessions {
        let store = store.clone();
        deletes.spawn(async move { store.delete_session(&session, None).await });
    }
    deletes.join_all().await.into_iter().for_each(|deleted| deleted.expect("deleted"));
    assert_eq!((listed_addresses(&file), indexed_addresses(&file)), (0, 0));
}

#[tokio::test]
async fn a_store_of_format_1_is_migrated() {
    let file = SqliteFile::new();
    let mut writer = TestJournalWriter::create_session(&file.open_store(), "one").await;
    append_texts(&mut writer, 0..BODIES_PER_COMMIT).await;
    drop(writer);
    restore_format_2(&file.path());
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    db.execute_batch(
        "DROP TABLE addresses; DROP TABLE unindexed_addresses; ALTER TABLE bodies RENAME COLUMN address TO hash;
         CREATE INDEX bodies_hash ON bodies (hash); PRAGMA user_version = 1",
    )
    .expect("format 1 restored");
    drop(db);
    let store = file.open_store();
    assert_has_texts(&store, "one", 0..BODIES_PER_COMMIT).await;
    let mut other_writer = TestJournalWriter::create_session(&store, "other").await;
    append_texts(&mut other_writer, 0..BODIES_PER_COMMIT).await;
    assert_eq!(file.body_count(), BODIES_PER_COMMIT);
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn lost_addresses_hide_no_text_and_are_reported_by_the_check() {
    let file = SqliteFile::new();
    let mut writer = TestJournalWriter::create_session(&file.open_store(), "one").await;
    append_texts(&mut writer, 0..BODIES_PER_COMMIT).await;
    drop(writer);
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    db.execute_batch("UPDATE unindexed_addresses SET data = CAST(substr(data, 9) AS BLOB)").expect("corrupted");
    drop(db);
    let store = file.open_store();
    assert_has_texts(&store, "one", 0..BODIES_PER_COMMIT).await;
    let missing = store.read_bodies(&session_id("one"), &[BodyId::hash_text("never stored")]).await;
    assert!(matches!(missing, Err(Error::NoSuchBody { .. })), "{missing:?}");
    let report = store.check_integrity().await.expect("checked");
    assert!(report.damaged_sessions[0].1.contains("is not found by its address"), "{report:?}");
}
