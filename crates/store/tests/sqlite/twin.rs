//! Whatever is asked of them, the SQLite store and the memory store give the same answers.

use std::sync::Arc;

use proptest::prelude::*;
use segue_core::body::BodyId;
use segue_core::ids::{Epoch, Seq, SessionId};
use segue_store::conformance::{Place, commit, inner, name, said, summary};
use segue_store::limits::ROW_BYTES_MAX;
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_store::{Claim, Commit, Error, Fork, Query, Snapshot, Store, Takeover};

use crate::noise::Noise;
use crate::place::File;

const OPERATIONS: usize = 100;

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_stores_that_are_asked_the_same_answer_the_same(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(compare(seed));
    }
}

async fn compare(seed: u64) {
    let (place, disk) = (File::new(), MemoryDisk::new());
    let memory = || -> Arc<dyn Store> { Arc::new(MemoryStore::open(&disk)) };
    // Two processes on each side.
    let mut twins = [(memory(), place.open()), (memory(), place.open())];
    let mut noise = Noise(seed);
    for step in 0..OPERATIONS {
        let who = noise.below(2);
        if noise.below(20) == 0 {
            twins[who] = (memory(), place.open());
        }
        let same = noise.clone();
        let ours = ask(&*twins[who].0, &mut noise).await;
        let theirs = ask(&*twins[who].1, &mut same.clone()).await;
        assert_eq!(ours, theirs, "step {step} of seed {seed}");
    }
    assert_eq!(disk.body_count(), place.body_count());
    for session in ["a", "b", "c"] {
        assert_eq!(everything(&*twins[0].0, session).await, everything(&*twins[0].1, session).await);
    }
    assert!(twins[0].1.check().await.expect("checked").is_clean());
}

/// One operation, mostly sensible; what was asked and what came of it.
async fn ask(store: &dyn Store, noise: &mut Noise) -> String {
    let session = pick(noise);
    let claim = Claim { epoch: Epoch(noise.below(40) as u64), head: Seq(noise.below(12) as u64) };
    match noise.below(12) {
        0 | 1 => show("create", store.create(&session).await),
        2 => {
            let takeover = if noise.below(2) == 0 { Takeover::Force } else { Takeover::IfDead };
            show("claim", store.claim(&session, takeover).await)
        }
        3 => show("release", store.release(&session, claim.epoch).await),
        4 => show("wild append", store.append(due(&session, claim, noise)).await),
        5 => {
            let fork = Fork {
                from: session,
                at: claim.head,
                to: pick(noise),
                summary: summary("forked", 3),
                names: |_| Vec::new(),
            };
            show("fork", store.fork(fork).await)
        }
        6 if noise.below(3) == 0 => show("delete", store.delete(&session).await),
        7 => {
            let snapshot = Snapshot { seq: claim.head, format: 1, bytes: noise.prose(90).into_bytes() };
            show("keep", store.keep_snapshot(&session, snapshot).await)
        }
        8 => {
            let query = Query { text: Some(pick_text(noise)), ..Query::newest(1 + noise.below(3)) };
            show("list", store.list(&query).await)
        }
        _ => match store.claim(&session, Takeover::IfDead).await {
            Ok(claim) => show("append", store.append(due(&session, claim, noise)).await),
            refused => show("claim", refused),
        },
    }
}

fn due(session: &SessionId, claim: Claim, noise: &mut Noise) -> Commit {
    let bodies = (0..noise.below(3)).map(|_| {
        let text = pick_text(noise);
        if noise.below(2) == 0 { said(&text) } else { inner(&text) }
    });
    let bodies = bodies.collect();
    let summary = (noise.below(2) == 0).then(|| summary(&pick_text(noise), noise.below(9) as u64));
    let mut due = Commit { bodies, summary, ..commit(session, claim, 1 + noise.below(4) as u64) };
    // Now and then its records do not lie together.
    if noise.below(6) == 0 {
        due.records.iter_mut().for_each(|record| record.bytes.resize(ROW_BYTES_MAX / 2 + 1, b'.'));
    }
    due
}

fn pick(noise: &mut Noise) -> SessionId {
    name(["a", "b", "c"][noise.below(3)])
}

fn pick_text(noise: &mut Noise) -> String {
    format!("Text {}", noise.below(12)).repeat(1 + noise.below(2) * 20)
}

async fn everything(store: &dyn Store, session: &str) -> String {
    let session = name(session);
    let mut all = show("read", store.read(&session, Seq(0), usize::MAX).await);
    all += &show("snapshot", store.snapshot(&session).await);
    all += &show("owing", store.owing().await);
    for number in 0..12 {
        for times in [1, 21] {
            let id = BodyId::of(&format!("Text {number}").repeat(times));
            all += &show("body", store.bodies(&session, &[id]).await);
        }
    }
    all
}

/// Processes have other names in other stores; all else must be equal.
fn show<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> String {
    let result = result.map_err(|error| match error {
        Error::Held { session, .. } => Error::Held { session, by: String::new() },
        error => error,
    });
    format!("{what}: {result:?}\n")
}
