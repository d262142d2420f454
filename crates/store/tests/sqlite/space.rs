//! A full disk: a clear error, nothing half written, and work goes on when there is room.

use std::sync::Arc;

use segue_core::ids::Seq;
use segue_store::conformance::{Writing, all, commit, name, records, said, summary};
use segue_store::sqlite::{Options, SqliteStore};
use segue_store::{Commit, Error, Store};

use crate::noise::Noise;
use crate::place::File;

const PAGES: u32 = 64;

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing_half_written() {
    let place = File::new();
    let store = open(&place, PAGES);
    let mut noise = Noise(5);
    let mut spare = Writing::begin(&store, "spare").await;
    for _ in 0..20 {
        spare.bring(1, vec![said(&noise.prose(2000))], Some(summary("spare", 1))).await;
    }
    let mut a = Writing::begin(&store, "a").await;
    let error = loop {
        let bodies = vec![said(&noise.prose(3000))];
        let commit = Commit { bodies, ..commit(&a.session, a.claim, 2) };
        match store.append(commit).await {
            Ok(head) => a.claim.head = head,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Full { what } if what.contains("`a`")), "{error}");
    assert_eq!(all(&store, &a.session).await, records(&a.session, a.claim.head.0));
    assert!(store.check().await.expect("checked").is_clean());

    store.delete(&spare.session).await.expect("deleting needs no room");
    a.bring(2, vec![said(&noise.prose(3000))], None).await;
    drop((a, spare, store));

    let store = open(&place, PAGES * 10);
    let claim = store.claim(&name("a"), segue_store::Takeover::IfDead).await.expect("free");
    assert_eq!(store.append(commit(&name("a"), claim, 9)).await, Ok(Seq(claim.head.0 + 9)));
    assert!(store.check().await.expect("checked").is_clean());
}

#[tokio::test]
async fn on_a_full_disk_every_writer_gets_its_own_true_answer() {
    let place = File::new();
    let store = open(&place, PAGES);
    let mut noise = Noise(6);
    let mut writers = tokio::task::JoinSet::new();
    let mut begun = Vec::new();
    for number in 0..24 {
        begun.push(Writing::begin(&store, &format!("s{number}")).await);
    }
    // While another process writes, all of them queue up and become one group.
    let other = rusqlite::Connection::open(place.path()).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    for (number, one) in begun.into_iter().enumerate() {
        let fits = number % 3 != 0;
        // Compressed it still is larger than the whole disk.
        let bodies = vec![said(&noise.prose(if fits { 600 } else { 900_000 }))];
        let store = store.clone();
        writers.spawn(async move {
            let commit = Commit { bodies, ..commit(&one.session, one.claim, 3) };
            (one.session, fits, store.append(commit).await)
        });
    }
    for _ in 0..24 {
        tokio::task::yield_now().await;
    }
    other.execute_batch("COMMIT").expect("unlocks");
    for (session, fits, result) in writers.join_all().await {
        let there = all(&store, &session).await;
        if fits {
            assert_eq!(result, Ok(Seq(3)), "{session} pays for another's failure");
            assert_eq!(there, records(&session, 3));
        } else {
            assert!(matches!(result, Err(Error::Full { .. })), "{session}: {result:?}");
            assert_eq!(there, []);
        }
    }
}

fn open(place: &File, pages: u32) -> Arc<dyn Store> {
    let options = Options { pages_max: Some(pages) };
    Arc::new(SqliteStore::open_with(place.path(), &options).expect("opens"))
}
