//! Torn and corrupted files: whole data or a clear error, never a panic, never wrong data, and others still open.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use segue_core::body::BodyId;
use segue_core::ids::Seq;
use segue_store::conformance::{
    StoreFixture, TestWriter, read_all_records, sample_commit, sample_long_commit, sample_records, sample_summary,
    session_id, visible_body,
};
use segue_store::limits::JOURNAL_ROW_BYTES_MAX;
use segue_store::sqlite::SqliteStore;
use segue_store::{Error, SessionQuery, Snapshot, Store};

use crate::noise::Noise;
use crate::place::File;

const SESSIONS: usize = 5;
const COMMITS: u64 = 30;
const HEAD: u64 = COMMITS * 2;

#[tokio::test]
async fn damage_to_one_session_is_named_and_the_others_still_open() {
    let image = Image::closed();
    let marker = marker_of(2);
    let place = image.put(|db, _| {
        let at = db.windows(marker.len()).position(|window| window == marker.as_bytes()).expect("stored as it is");
        db[at + 3] ^= 0x20;
    });
    let store = place.open_store();
    let error = store.read_bodies(&session_id("s2"), &[BodyId::hash_text(&marker)]).await.expect_err("damaged");
    assert!(matches!(&error, Error::SessionCorrupted { session, .. } if *session == session_id("s2")), "{error}");
    let report = store.check_integrity().await.expect("checked");
    assert_eq!(report.damaged_sessions.iter().map(|(session, _)| session.as_str()).collect::<Vec<_>>(), ["s2"]);
    assert_eq!(report.session_count, SESSIONS);
    for number in [0, 1, 3, 4] {
        let session = session_id(&format!("s{number}"));
        assert_eq!(read_all_records(&store, &session).await, sample_records(&session, HEAD));
        let claim = store.acquire_lease(&session, segue_store::TakeoverPolicy::IfHolderDead).await.expect("free");
        assert_eq!(store.append_commit(sample_commit(&session, claim, 1)).await, Ok(Seq(HEAD + 1)));
    }
    store.delete_session(&session_id("s2")).await.expect("a damaged session can be deleted");
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn a_damaged_record_is_named_and_a_damaged_snapshot_is_only_lost() {
    let image = Image::closed();
    let place = image.put(|_, _| {});
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    let spoil = "UPDATE journal SET data = CAST(substr(data, 1, 12) || x'00' || substr(data, 14) AS BLOB)
                 WHERE session = (SELECT key FROM sessions WHERE name = 's1') AND first = 21";
    assert_eq!(db.execute(spoil, []), Ok(1));
    assert_eq!(db.execute("UPDATE snapshots SET data = CAST(data || x'00' AS BLOB)", []), Ok(SESSIONS));
    drop(db);
    let store = place.open_store();
    let read = store.read_records(&session_id("s1"), Seq(0), 20).await.expect("what comes before the damage");
    assert_eq!(read, sample_records(&session_id("s1"), 20));
    let error = store.read_records(&session_id("s1"), Seq(0), 21).await.expect_err("damaged");
    assert!(matches!(&error, Error::SessionCorrupted { session, .. } if *session == session_id("s1")), "{error}");
    assert!(error.to_string().contains("`s1` is damaged (records from 21 on"), "{error}");
    assert_eq!(store.load_snapshot(&session_id("s0")).await, Ok(None));
}

#[tokio::test]
async fn a_stretch_of_a_long_commit_is_read_without_the_rest_of_it() {
    let place = File::new();
    let store = place.open_store();
    let a = TestWriter::create_session(&store, "a").await;
    let long = sample_long_commit(&a.session, a.lease, 2_000);
    store.append_commit(long.clone()).await.expect("in time");
    store.close().await.expect("closes");
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    let mut query = db.prepare("SELECT first FROM journal ORDER BY first").expect("a query");
    let firsts: Vec<u64> =
        query.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("numbers");
    let longest = long.records.iter().map(|record| record.bytes.len()).max().expect("some");
    for pair in firsts.windows(2) {
        let bytes = usize::try_from(pair[1] - pair[0]).expect("few") * longest;
        assert!(bytes <= JOURNAL_ROW_BYTES_MAX + longest, "{bytes} bytes lie together");
    }
    let middle = firsts[firsts.len() / 2];
    assert_eq!(db.execute("UPDATE journal SET data = x'00' WHERE first <> ?1", [middle]), Ok(firsts.len() - 1));
    drop(query);
    drop(db);
    let store = place.open_store();
    let at = usize::try_from(middle).expect("small") - 1;
    let read = store.read_records(&a.session, Seq(middle - 1), 20).await.expect("nothing else is needed for it");
    assert_eq!(read, long.records[at..at + 20]);
    assert!(store.read_records(&a.session, Seq(0), 20).await.is_err(), "that one is damaged");
}

#[tokio::test]
async fn a_missing_commit_is_found_out_wherever_it_was() {
    for first in [1, 31, HEAD - 1] {
        let place = Image::closed().put(|_, _| {});
        let db = rusqlite::Connection::open(place.path()).expect("opens");
        let removal = "DELETE FROM journal WHERE session = (SELECT key FROM sessions WHERE name = 's1') AND first = ?1";
        assert_eq!(db.execute(removal, [first]), Ok(1));
        drop(db);
        let store = place.open_store();
        let error = store.read_records(&session_id("s1"), Seq(0), usize::MAX).await.expect_err("damaged");
        assert!(error.to_string().contains(&format!("record {first} is missing")), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_store_of_ours_is_refused_and_left_alone() {
    let place = File::new();
    std::fs::create_dir_all(place.path().parent().expect("a parent")).expect("made");
    let text = b"Dear diary, this is no database at all, but long enough to be read as one.".repeat(20);
    std::fs::write(place.path(), &text).expect("written");
    let error = SqliteStore::open(place.path()).expect_err("no database");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read(place.path()).expect("read"), text);

    let other = File::new();
    std::fs::create_dir_all(other.path().parent().expect("a parent")).expect("made");
    let db = rusqlite::Connection::open(other.path()).expect("opens");
    db.execute_batch("CREATE TABLE bookmarks (url TEXT)").expect("made");
    drop(db);
    let error = SqliteStore::open(other.path()).expect_err("another program's");
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused() {
    let place = Image::closed().put(|_, _| {});
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    db.pragma_update(None, "user_version", 99).expect("set");
    drop(db);
    let error = SqliteStore::open(place.path()).expect_err("newer");
    assert!(matches!(error, Error::NewerFormat { found: 99, known: 2, .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spoiled_file_gives_whole_data_or_an_error(seed in any::<u64>()) {
        let place = Image::closed().put(|db, _| spoil(db, seed));
        run(read_everything(&place, |found| found == HEAD));
    }

    #[test]
    fn a_spoiled_log_gives_whole_commits_or_an_error(seed in any::<u64>()) {
        let place = Image::open().put(|_, wal| spoil(wal, seed));
        run(read_everything(&place, |found| found % 2 == 0));
    }
}

/// Truncates, or overwrites a few bytes or a whole stretch.
fn spoil(bytes: &mut Vec<u8>, seed: u64) {
    let mut noise = Noise(seed);
    let at = noise.below(bytes.len());
    match noise.below(4) {
        0 => bytes.truncate(at),
        1 => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
        _ => {
            for _ in 0..1 + noise.below(24) {
                let near = (at + noise.below(600)).min(bytes.len() - 1);
                bytes[near] ^= 1 << noise.below(8);
            }
        }
    }
}

/// Whatever can be read must be what was written; `whole` says which heads a session may have.
async fn read_everything(place: &File, whole: impl Fn(u64) -> bool) {
    let Ok(store) = SqliteStore::open(place.path()) else { return };
    let store: Arc<dyn Store> = Arc::new(store);
    for number in 0..SESSIONS {
        let session = session_id(&format!("s{number}"));
        match store.read_records(&session, Seq(0), usize::MAX).await {
            Ok(found) => {
                assert_eq!(found, sample_records(&session, found.len() as u64));
                assert!(whole(found.len() as u64), "{session} has {} records", found.len());
            }
            Err(error) => assert!(error.to_string().contains(session.as_str()), "{error}"),
        }
        if let Ok(texts) = store.read_bodies(&session, &[BodyId::hash_text(&marker_of(number))]).await {
            assert_eq!(*texts[0], *marker_of(number));
        }
        if let Ok(Some(snapshot)) = store.load_snapshot(&session).await {
            assert_eq!(snapshot.bytes, state_of(number));
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
    let _ = store.sessions_with_pending_work().await;
    let _ = store.check_integrity().await;
    if let Ok(claim) = store.create_session(&session_id("new")).await {
        let _ = store.append_commit(sample_commit(&session_id("new"), claim, 3)).await;
    }
    let _ = store.delete_session(&session_id("s3")).await;
}

/// A store's files as they lie on disk.
struct Image {
    db: Vec<u8>,
    wal: Vec<u8>,
}

impl Image {
    /// After a clean end: all is in the database.
    fn closed() -> &'static Self {
        static IMAGE: std::sync::OnceLock<Image> = std::sync::OnceLock::new();
        IMAGE.get_or_init(|| Self::take(End::Clean))
    }

    /// As a crash leaves it: all is in the log.
    fn open() -> &'static Self {
        static IMAGE: std::sync::OnceLock<Image> = std::sync::OnceLock::new();
        IMAGE.get_or_init(|| Self::take(End::Crash))
    }

    fn take(end: End) -> Self {
        let place = File::new();
        let store = std::thread::scope(|scope| scope.spawn(|| run(fill(&place))).join().expect("filled"));
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        match end {
            End::Crash => Self { db: read(&place.path()), wal: read(&place.wal()) },
            End::Clean => {
                drop(store);
                Self { db: read(&place.path()), wal: Vec::new() }
            }
        }
    }

    /// Lays the files somewhere new, spoiled.
    fn put(&self, spoil: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>)) -> File {
        let place = File::new();
        let (mut db, mut wal) = (self.db.clone(), self.wal.clone());
        spoil(&mut db, &mut wal);
        std::fs::create_dir_all(place.path().parent().expect("a parent")).expect("made");
        std::fs::write(place.path(), db).expect("written");
        if !self.wal.is_empty() {
            std::fs::write(place.wal(), wal).expect("written");
        }
        place
    }
}

enum End {
    Clean,
    Crash,
}

async fn fill(place: &File) -> Arc<dyn Store> {
    let store = place.open_store();
    let mut noise = Noise(3);
    let mut writers = Vec::new();
    for number in 0..SESSIONS {
        let mut one = TestWriter::create_session(&store, &format!("s{number}")).await;
        one.append_records_with(2, vec![visible_body(&marker_of(number))], None).await;
        writers.push(one);
    }
    for round in 1..COMMITS {
        for one in &mut writers {
            let title = one.session.to_string();
            one.append_records_with(2, vec![visible_body(&noise.prose(700))], Some(sample_summary(&title, round)))
                .await;
        }
    }
    for (number, one) in writers.iter().enumerate() {
        let snapshot = Snapshot { seq: Seq(9), format: 1, bytes: state_of(number) };
        store.save_snapshot(&one.session, snapshot).await.expect("kept");
    }
    store
}

/// A text of one session that is stored as it is, because it cannot be compressed.
fn marker_of(session: usize) -> String {
    BodyId::hash_text(&format!("marker of {session}")).to_string()
}

fn state_of(session: usize) -> Vec<u8> {
    marker_of(session).bytes().rev().collect()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
