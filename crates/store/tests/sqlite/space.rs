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
    for number in 0..24 {
        let one = Writing::begin(&store, &format!("s{number}")).await;
        let size = if number % 3 == 0 { 90_000 } else { 600 };
        let bodies = vec![said(&noise.prose(size))];
        let store = store.clone();
        writers.spawn(async move {
            let commit = Commit { bodies, ..commit(&one.session, one.claim, 3) };
            (one.session, store.append(commit).await)
        });
    }
    let mut refused = 0;
    for (session, result) in writers.join_all().await {
        let there = all(&store, &session).await;
        match result {
            Ok(head) => assert_eq!(there, records(&session, head.0)),
            Err(error) => {
                refused += 1;
                assert!(matches!(error, Error::Full { .. }), "{error}");
                assert_eq!(there, []);
            }
        }
    }
    assert!((1..24).contains(&refused), "{refused} refused: the disk is too large or too small for this test");
}

fn open(place: &File, pages: u32) -> Arc<dyn Store> {
    let options = Options { pages_max: Some(pages) };
    Arc::new(SqliteStore::open_with(place.path(), &options).expect("opens"))
}
