//! Truncated and corrupted files: intact data or a clear error, never a panic or wrong data, and other sessions still
//! open.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use segue_core::body::BodyId;
use segue_core::ids::{Seq, SubmissionId, UnixMillis};
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, read_all_records, sample_commit, sample_long_commit, sample_records,
    sample_summary, session_id, visible_body,
};
use segue_store::limits::JOURNAL_ROW_BYTES_MAX;
use segue_store::sqlite::SqliteStore;
use segue_store::{
    Error, NewInboxSubmission, PendingWorkQuery, SessionListChangeCursor, SessionQuery, Snapshot, Store,
};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

const SESSIONS: usize = 5;
const COMMITS: u64 = 30;
const HEAD: u64 = COMMITS * 2;

#[tokio::test]
async fn damage_to_one_session_is_reported_and_the_others_still_open() {
    let files = StoreFiles::after_shutdown();
    let marker = marker_text(2);
    let file = files.write_files(|db, _| {
        let at = db.windows(marker.len()).position(|window| window == marker.as_bytes()).expect("stored as it is");
        db[at + 3] ^= 0x20;
    });
    let store = file.open_store();
    let error = store.read_bodies(&session_id("s2"), &[BodyId::hash_text(&marker)]).await.expect_err("damaged");
    assert!(matches!(&error, Error::SessionCorrupted { session, .. } if *session == session_id("s2")), "{error}");
    let report = store.check_integrity().await.expect("checked");
    assert_eq!(report.damaged_sessions.iter().map(|(session, _)| session.as_str()).collect::<Vec<_>>(), ["s2"]);
    assert_eq!(report.session_count, SESSIONS);
    for number in [0, 1, 3, 4] {
        let session = session_id(&format!("s{number}"));
        assert_eq!(read_all_records(&store, &session).await, sample_records(&session, HEAD));
        let lease = store.acquire_lease(&session, segue_store::LeaseTakeoverPolicy::IfHolderDead).await.expect("free");
        assert_eq!(store.append_commit(sample_commit(&session, lease, 1)).await, Ok(Seq(HEAD + 1)));
    }
    store.delete_session(&session_id("s2"), None).await.expect("a damaged session can be deleted");
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn damaged_page_stops_all_writes_and_the_rest_stays_readable() {
    let files = StoreFiles::after_shutdown();
    let file = files.write_files(|_, _| {});
    let page =
        |db: &rusqlite::Connection, sql: &str| db.query_row(sql, [], |row| row.get::<_, usize>(0)).expect("a number");
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    let root = page(&db, "SELECT rootpage FROM sqlite_schema WHERE name = 'journal'");
    let page_bytes = page(&db, "PRAGMA page_size");
    drop(db);
    let mut bytes = std::fs::read(file.path()).expect("read");
    // No page of a tree begins with this.
    bytes[(root - 1) * page_bytes] = 0x77;
    std::fs::write(file.path(), &bytes).expect("written");
    let store = file.open_store();
    for session in [session_id("s1"), session_id("s3")] {
        let lease = store.acquire_lease(&session, segue_store::LeaseTakeoverPolicy::IfHolderDead).await;
        let refused = match lease {
            Ok(lease) => store.append_commit(sample_commit(&session, lease, 1)).await.expect_err("a page is damaged"),
            Err(error) => error,
        };
        assert!(matches!(refused, Error::StoreCorrupted { .. }), "{refused}");
    }
    let refused = store.create_session(&session_id("new")).await.expect_err("nothing is written any more");
    assert!(matches!(refused, Error::StoreCorrupted { .. }), "{refused}");
    assert!(store.probe_write().await.is_err(), "the readiness check fails");
    assert_eq!(store.list_sessions(&SessionQuery::newest(10)).await.expect("a list").entries.len(), SESSIONS);
}

#[tokio::test]
async fn a_damaged_record_is_reported_and_a_damaged_snapshot_is_ignored() {
    let files = StoreFiles::after_shutdown();
    let file = files.write_files(|_, _| {});
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    let corrupt = "UPDATE journal SET data = CAST(substr(data, 1, 12) || x'00' || substr(data, 14) AS BLOB)
                 WHERE session = (SELECT key FROM sessions WHERE name = 's1') AND first = 21";
    assert_eq!(db.execute(corrupt, []), Ok(1));
    assert_eq!(db.execute("UPDATE snapshots SET data = CAST(data || x'00' AS BLOB)", []), Ok(SESSIONS));
    drop(db);
    let store = file.open_store();
    let read = store.read_records(&session_id("s1"), Seq(0), 20).await.expect("what comes before the damage");
    assert_eq!(read, sample_records(&session_id("s1"), 20));
    let error = store.read_records(&session_id("s1"), Seq(0), 21).await.expect_err("damaged");
    assert!(matches!(&error, Error::SessionCorrupted { session, .. } if *session == session_id("s1")), "{error}");
    assert!(error.to_string().contains("`s1` is corrupted (records from 21 on"), "{error}");
    assert_eq!(store.load_snapshot(&session_id("s0")).await, Ok(None));
}

#[tokio::test]
async fn a_part_of_a_long_commit_is_read_without_the_rest() {
    let file = SqliteFile::new();
    let store = file.open_store();
    let a = TestJournalWriter::create_session(&store, "a").await;
    let long = sample_long_commit(&a.session, a.lease, 2_000);
    store.append_commit(long.clone()).await.expect("in time");
    store.close().await.expect("closes");
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    let mut query = db.prepare("SELECT first FROM journal ORDER BY first").expect("a query");
    let firsts: Vec<u64> =
        query.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("numbers");
    let longest = long.records.iter().map(|record| record.bytes.len()).max().expect("some");
    for pair in firsts.windows(2) {
        let bytes = usize::try_from(pair[1] - pair[0]).expect("few") * longest;
        assert!(bytes <= JOURNAL_ROW_BYTES_MAX + longest, "{bytes} bytes are in one row");
    }
    let middle = firsts[firsts.len() / 2];
    assert_eq!(db.execute("UPDATE journal SET data = x'00' WHERE first <> ?1", [middle]), Ok(firsts.len() - 1));
    drop(query);
    drop(db);
    let store = file.open_store();
    let at = usize::try_from(middle).expect("small") - 1;
    let read = store.read_records(&a.session, Seq(middle - 1), 20).await.expect("no other row is needed");
    assert_eq!(read, long.records[at..at + 20]);
    assert!(store.read_records(&a.session, Seq(0), 20).await.is_err(), "that row is corrupted");
}

#[tokio::test]
async fn a_missing_commit_is_detected() {
    for first in [1, 31, HEAD - 1] {
        let file = StoreFiles::after_shutdown().write_files(|_, _| {});
        let db = rusqlite::Connection::open(file.path()).expect("opens");
        let statement =
            "DELETE FROM journal WHERE session = (SELECT key FROM sessions WHERE name = 's1') AND first = ?1";
        assert_eq!(db.execute(statement, [first]), Ok(1));
        drop(db);
        let store = file.open_store();
        let error = store.read_records(&session_id("s1"), Seq(0), usize::MAX).await.expect_err("damaged");
        assert!(error.to_string().contains(&format!("record {first} is missing")), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused_and_not_changed() {
    let file = SqliteFile::new();
    std::fs::create_dir_all(file.path().parent().expect("a parent")).expect("made");
    let text = b"Dear diary, this is no database at all, but long enough to be read as one.".repeat(20);
    std::fs::write(file.path(), &text).expect("written");
    let error = SqliteStore::open(file.path()).expect_err("no database");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read(file.path()).expect("read"), text);

    let other = SqliteFile::new();
    std::fs::create_dir_all(other.path().parent().expect("a parent")).expect("made");
    let db = rusqlite::Connection::open(other.path()).expect("opens");
    db.execute_batch("CREATE TABLE bookmarks (url TEXT)").expect("made");
    drop(db);
    let error = SqliteStore::open(other.path()).expect_err("another program's");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_inbox_is_reported() {
    let file = SqliteFile::new();
    let store = file.open_store();
    for name in ["a", "b", "c"] {
        let mut writer = TestJournalWriter::create_session(&store, name).await;
        writer.append_records(1).await;
        let submission = NewInboxSubmission {
            id: SubmissionId(1),
            at: UnixMillis(1),
            bytes: b"hello".to_vec(),
            exempt_from_limit: false,
        };
        store.submit(&writer.session, None, submission).await.expect("room");
    }
    assert!(store.check_integrity().await.expect("checked").is_clean());
    store.close().await.expect("closes");
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    let uid = "(SELECT uid FROM sessions WHERE name = ?1)";
    let change = format!("UPDATE inbox SET data = CAST(data || x'00' AS BLOB) WHERE session = {uid}");
    assert_eq!(db.execute(&change, ["a"]), Ok(1));
    assert_eq!(db.execute(&format!("DELETE FROM inbox WHERE session = {uid}"), ["b"]), Ok(1));
    drop(db);
    let store = file.open_store();
    let error = store.read_inbox(&session_id("a"), 9).await.expect_err("damaged");
    assert!(matches!(&error, Error::SessionCorrupted { session, .. } if *session == session_id("a")), "{error}");
    let report = store.check_integrity().await.expect("checked");
    assert_eq!(report.damaged_sessions.iter().map(|(session, _)| session.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(report.damaged_sessions[1].1.contains("0 entries, but 1 are counted"), "{report:?}");
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused() {
    let file = StoreFiles::after_shutdown().write_files(|_, _| {});
    let db = rusqlite::Connection::open(file.path()).expect("opens");
    db.pragma_update(None, "user_version", 99).expect("set");
    drop(db);
    let error = SqliteStore::open(file.path()).expect_err("newer");
    assert!(matches!(error, Error::NewerFormat { found: 99, known: 3, .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_corrupted_file_gives_intact_data_or_an_error(seed in any::<u64>()) {
        let file = StoreFiles::after_shutdown().write_files(|db, _| corrupt(db, seed));
        block_on_new_runtime(read_everything(&file, |found| found == HEAD));
    }

    #[test]
    fn a_corrupted_log_gives_complete_commits_or_an_error(seed in any::<u64>()) {
        let file = StoreFiles::after_crash().write_files(|_, wal| corrupt(wal, seed));
        block_on_new_runtime(read_everything(&file, |found| found % 2 == 0));
    }
}

/// Truncates the bytes, or overwrites a few of them or a whole range.
fn corrupt(bytes: &mut Vec<u8>, seed: u64) {
    let mut random = SeededRandom(seed);
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
        _ => {
            for _ in 0..1 + random.below(24) {
                let index = (at + random.below(600)).min(bytes.len() - 1);
                bytes[index] ^= 1 << random.below(8);
            }
        }
    }
}

/// Asserts that everything that can be read is what was written. `is_valid_head` tells which heads a session may have.
async fn read_everything(file: &SqliteFile, is_valid_head: impl Fn(u64) -> bool) {
    let Ok(store) = SqliteStore::open(file.path()) else { return };
    let store: Arc<dyn Store> = Arc::new(store);
    for number in 0..SESSIONS {
        let session = session_id(&format!("s{number}"));
        match store.read_records(&session, Seq(0), usize::MAX).await {
            Ok(found) => {
                assert_eq!(found, sample_records(&session, found.len() as u64));
                assert!(is_valid_head(found.len() as u64), "{session} has {} records", found.len());
            }
            Err(error) => assert!(error.to_string().contains(session.as_str()), "{error}"),
        }
        if let Ok(texts) = store.read_bodies(&session, &[BodyId::hash_text(&marker_text(number))]).await {
            assert_eq!(*texts[0], *marker_text(number));
        }
        if let Ok(Some(snapshot)) = store.load_snapshot(&session).await {
            assert_eq!(snapshot.bytes, snapshot_bytes(number));
        }
    }
    if let Ok(page) = store.list_sessions(&SessionQuery::newest(100)).await {
        assert!(
            page.entries
                .iter()
                .all(|row| row.summary == sample_summary(row.session.as_str(), row.summary.updated_at.0))
        );
    }
    let _ = store.list_sessions(&SessionQuery { text: Some("re".into()), ..SessionQuery::newest(100) }).await;
    let pending = PendingWorkQuery { due_until: UnixMillis(u64::MAX), after_cursor: None, limit: 100 };
    let _ = store.sessions_with_pending_work(&pending).await;
    let _ = store.changes_after(Some(SessionListChangeCursor(0)), 100).await;
    let _ = store.check_integrity().await;
    if let Ok(lease) = store.create_session(&session_id("new")).await {
        let _ = store.append_commit(sample_commit(&session_id("new"), lease, 3)).await;
    }
    let _ = store.delete_session(&session_id("s3"), None).await;
}

/// The files of a store.
struct StoreFiles {
    db: Vec<u8>,
    wal: Vec<u8>,
}

impl StoreFiles {
    /// After a clean shutdown: all data is in the database.
    fn after_shutdown() -> &'static Self {
        static FILES: std::sync::OnceLock<StoreFiles> = std::sync::OnceLock::new();
        FILES.get_or_init(|| Self::take_files(ShutdownKind::Clean))
    }

    /// After a crash: all data is in the log.
    fn after_crash() -> &'static Self {
        static FILES: std::sync::OnceLock<StoreFiles> = std::sync::OnceLock::new();
        FILES.get_or_init(|| Self::take_files(ShutdownKind::Crash))
    }

    fn take_files(shutdown: ShutdownKind) -> Self {
        let file = SqliteFile::new();
        let store =
            std::thread::scope(|scope| scope.spawn(|| block_on_new_runtime(fill_store(&file))).join().expect("filled"));
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        match shutdown {
            ShutdownKind::Crash => Self { db: read(&file.path()), wal: read(&file.wal_path()) },
            ShutdownKind::Clean => {
                drop(store);
                Self { db: read(&file.path()), wal: Vec::new() }
            }
        }
    }

    /// Writes the files to a new folder, after `corrupt` has changed them.
    fn write_files(&self, corrupt: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>)) -> SqliteFile {
        let file = SqliteFile::new();
        let (mut db, mut wal) = (self.db.clone(), self.wal.clone());
        corrupt(&mut db, &mut wal);
        std::fs::create_dir_all(file.path().parent().expect("a parent")).expect("made");
        std::fs::write(file.path(), db).expect("written");
        if !self.wal.is_empty() {
            std::fs::write(file.wal_path(), wal).expect("written");
        }
        file
    }
}

enum ShutdownKind {
    Clean,
    Crash,
}

async fn fill_store(file: &SqliteFile) -> Arc<dyn Store> {
    let store = file.open_store();
    let mut random = SeededRandom(3);
    let mut writers = Vec::new();
    for number in 0..SESSIONS {
        let mut writer = TestJournalWriter::create_session(&store, &format!("s{number}")).await;
        writer.append_records_with(2, vec![visible_body(&marker_text(number))], None).await;
        writers.push(writer);
    }
    for round in 1..COMMITS {
        for writer in &mut writers {
            let title = writer.session.to_string();
            writer
                .append_records_with(2, vec![visible_body(&random.prose(700))], Some(sample_summary(&title, round)))
                .await;
        }
    }
    for (number, writer) in writers.iter().enumerate() {
        let snapshot = Snapshot { seq: Seq(9), format: 1, bytes: snapshot_bytes(number) };
        store.save_snapshot(&writer.session, snapshot).await.expect("kept");
    }
    store
}

/// Returns a text of one session that is stored as it is, because it cannot be compressed.
fn marker_text(session: usize) -> String {
    BodyId::hash_text(&format!("marker of {session}")).to_string()
}

fn snapshot_bytes(session: usize) -> Vec<u8> {
    marker_text(session).bytes().rev().collect()
}

fn block_on_new_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
