//! Texts are stored once and found again, wherever their addresses are by then: in the list of new ones or in the index.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_store::conformance::{StoreFixture, TestWriter, session_id, visible_body};
use segue_store::limits::UNINDEXED_ADDRESSES_MIN;
use segue_store::{Error, Store};

use crate::place::File;

const A_COMMIT: usize = 100;

fn text(number: usize) -> String {
    format!("text {number}")
}

/// As many texts as it takes for most addresses to have been moved into the index.
const MANY: usize = UNINDEXED_ADDRESSES_MIN * 12;

async fn bring(one: &mut TestWriter, numbers: std::ops::Range<usize>) {
    for from in numbers.clone().step_by(A_COMMIT) {
        let texts = (from..numbers.end.min(from + A_COMMIT)).map(|number| visible_body(&text(number)));
        one.append_records_with(1, texts.collect(), None).await;
    }
}

async fn has_all(store: &Arc<dyn Store>, session: &str, numbers: std::ops::Range<usize>) {
    let ids: Vec<BodyId> = numbers.clone().map(|number| BodyId::hash_text(&text(number))).collect();
    let texts = store.read_bodies(&session_id(session), &ids).await.expect("all there");
    assert!(texts.iter().map(|text| text.to_string()).eq(numbers.map(text)));
}

fn count(place: &File, query: &str) -> usize {
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    db.query_row(query, [], |row| row.get(0)).expect("counts")
}

fn listed(place: &File) -> usize {
    count(place, "SELECT ifnull(sum(length(data)), 0) / 16 FROM news")
}

fn indexed(place: &File) -> usize {
    count(place, "SELECT count(*) FROM addresses")
}

/// Addresses that lead to no text.
fn orphans(place: &File) -> usize {
    count(place, "SELECT count(*) FROM addresses WHERE hash NOT IN (SELECT address FROM bodies)")
}

#[tokio::test]
async fn a_text_is_stored_once_however_many_came_since() {
    let place = File::new();
    let store = place.open_store();
    let mut one = TestWriter::create_session(&store, "one").await;
    bring(&mut one, 0..MANY).await;
    assert!(indexed(&place) > MANY / 2, "{} in the index", indexed(&place));
    assert!(listed(&place) <= UNINDEXED_ADDRESSES_MIN, "{} in the list", listed(&place));
    let mut other = TestWriter::create_session(&store, "other").await;
    bring(&mut other, 0..MANY).await;
    assert_eq!(place.body_count(), MANY);
    for store in [store, place.open_store()] {
        has_all(&store, "one", 0..MANY).await;
        has_all(&store, "other", 0..MANY).await;
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
}

#[tokio::test]
async fn processes_know_of_each_others_texts() {
    let place = File::new();
    let (here, there) = (place.open_store(), place.open_store());
    let (mut one, mut other) =
        (TestWriter::create_session(&here, "one").await, TestWriter::create_session(&there, "other").await);
    for round in 0..MANY / A_COMMIT {
        let numbers = round * A_COMMIT..(round + 1) * A_COMMIT;
        bring(&mut one, numbers.clone()).await;
        has_all(&there, "one", numbers.clone()).await;
        bring(&mut other, numbers.start..numbers.end + A_COMMIT).await;
    }
    assert_eq!(place.body_count(), MANY / A_COMMIT * A_COMMIT + A_COMMIT);
    assert!(there.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn a_deleted_text_leaves_no_address_and_none_comes_back() {
    let place = File::new();
    let (here, there) = (place.open_store(), place.open_store());
    let (mut one, mut other) =
        (TestWriter::create_session(&here, "one").await, TestWriter::create_session(&there, "other").await);
    bring(&mut one, 0..A_COMMIT).await;
    // The other process has read the list before the texts are gone.
    bring(&mut other, A_COMMIT..A_COMMIT * 2).await;
    here.delete_session(&one.session).await.expect("deleted");
    assert_eq!((listed(&place), indexed(&place)), (0, A_COMMIT));
    bring(&mut other, A_COMMIT * 2..MANY).await;
    assert!(indexed(&place) > A_COMMIT, "some were moved since");
    assert_eq!(orphans(&place), 0);
    has_all(&here, "other", A_COMMIT..MANY).await;
    let mut again = TestWriter::create_session(&here, "again").await;
    bring(&mut again, 0..A_COMMIT).await;
    has_all(&there, "again", 0..A_COMMIT).await;
    assert!(there.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn what_was_deleted_while_another_process_rested_does_not_come_back_through_it() {
    let place = File::new();
    let (here, there) = (place.open_store(), place.open_store());
    let (mut gone, mut stays) =
        (TestWriter::create_session(&here, "gone").await, TestWriter::create_session(&here, "stays").await);
    bring(&mut gone, 0..A_COMMIT).await;
    let mut other = TestWriter::create_session(&there, "other").await;
    here.delete_session(&gone.session).await.expect("deleted");
    bring(&mut stays, A_COMMIT..MANY).await;
    bring(&mut other, MANY..MANY * 2).await;
    assert_eq!(orphans(&place), 0);
    has_all(&there, "stays", A_COMMIT..MANY).await;
}

#[tokio::test]
async fn sessions_deleted_together_leave_no_address() {
    let place = File::new();
    let store = place.open_store();
    let mut sessions = Vec::new();
    for number in 0..20 {
        let mut one = TestWriter::create_session(&store, &format!("s{number}")).await;
        bring(&mut one, number * 10..number * 10 + 10).await;
        sessions.push(one.session);
    }
    let mut deletes = tokio::task::JoinSet::new();
    for session in sessions {
        let store = store.clone();
        deletes.spawn(async move { store.delete_session(&session).await });
    }
    deletes.join_all().await.into_iter().for_each(|deleted| deleted.expect("deleted"));
    assert_eq!((listed(&place), indexed(&place)), (0, 0));
}

#[tokio::test]
async fn a_store_of_the_first_format_is_brought_up_to_date() {
    let place = File::new();
    let mut one = TestWriter::create_session(&place.open_store(), "one").await;
    bring(&mut one, 0..A_COMMIT).await;
    drop(one);
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    db.execute_batch(
        "DROP TABLE addresses; DROP TABLE news; ALTER TABLE bodies RENAME COLUMN address TO hash;
         CREATE INDEX bodies_hash ON bodies (hash); PRAGMA user_version = 1",
    )
    .expect("as it was");
    drop(db);
    let store = place.open_store();
    has_all(&store, "one", 0..A_COMMIT).await;
    let mut other = TestWriter::create_session(&store, "other").await;
    bring(&mut other, 0..A_COMMIT).await;
    assert_eq!(place.body_count(), A_COMMIT);
    assert!(store.check_integrity().await.expect("checked").is_clean());
}

#[tokio::test]
async fn lost_addresses_hide_no_text_and_are_told_by_the_check() {
    let place = File::new();
    let mut one = TestWriter::create_session(&place.open_store(), "one").await;
    bring(&mut one, 0..A_COMMIT).await;
    drop(one);
    let db = rusqlite::Connection::open(place.path()).expect("opens");
    db.execute_batch("UPDATE news SET data = CAST(substr(data, 9) AS BLOB)").expect("spoilt");
    drop(db);
    let store = place.open_store();
    has_all(&store, "one", 0..A_COMMIT).await;
    let missing = store.read_bodies(&session_id("one"), &[BodyId::hash_text("never said")]).await;
    assert!(matches!(missing, Err(Error::NoSuchBody { .. })), "{missing:?}");
    let report = store.check_integrity().await.expect("checked");
    assert!(report.damaged_sessions[0].1.contains("is not found by its address"), "{report:?}");
}
