//! Whatever is asked of them, the SQLite store and the memory store give the same answers.

use std::sync::Arc;

use proptest::prelude::*;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId};
use segue_store::conformance::{StoreFixture, internal_body, sample_commit, sample_summary, session_id, visible_body};
use segue_store::limits::JOURNAL_ROW_BYTES_MAX;
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_store::{Commit, Error, ForkSpec, Lease, SessionQuery, Snapshot, Store, TakeoverPolicy};

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
    let mut twins = [(memory(), place.open_store()), (memory(), place.open_store())];
    let mut noise = Noise(seed);
    for step in 0..OPERATIONS {
        let who = noise.below(2);
        if noise.below(20) == 0 {
            twins[who] = (memory(), place.open_store());
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
    assert!(twins[0].1.check_integrity().await.expect("checked").is_clean());
}

/// One operation, mostly sensible; what was asked and what came of it.
async fn ask(store: &dyn Store, noise: &mut Noise) -> String {
    let session = pick(noise);
    let claim = Lease { epoch: LeaseEpoch(noise.below(40) as u64), head: Seq(noise.below(12) as u64) };
    match noise.below(12) {
        0 | 1 => show("create", store.create_session(&session).await),
        2 => {
            let takeover = if noise.below(2) == 0 { TakeoverPolicy::Force } else { TakeoverPolicy::IfHolderDead };
            show("claim", store.acquire_lease(&session, takeover).await)
        }
        3 => show("release", store.release_lease(&session, claim.epoch).await),
        4 => show("wild append", store.append_commit(due(&session, claim, noise)).await),
        5 => {
            let fork = ForkSpec {
                from: session,
                at_seq: claim.head,
                to: pick(noise),
                summary: sample_summary("forked", 3),
                extract_body_ids: |_| Vec::new(),
            };
            show("fork", store.fork_session(fork).await)
        }
        6 if noise.below(3) == 0 => show("delete", store.delete_session(&session).await),
        7 => {
            let snapshot = Snapshot { seq: claim.head, format: 1, bytes: noise.prose(90).into_bytes() };
            show("keep", store.save_snapshot(&session, snapshot).await)
        }
        8 => {
            let query = SessionQuery { text: Some(pick_text(noise)), ..SessionQuery::newest(1 + noise.below(3)) };
            show("list", store.list_sessions(&query).await)
        }
        _ => match store.acquire_lease(&session, TakeoverPolicy::IfHolderDead).await {
            Ok(claim) => show("append", store.append_commit(due(&session, claim, noise)).await),
            refused => show("claim", refused),
        },
    }
}

fn due(session: &SessionId, claim: Lease, noise: &mut Noise) -> Commit {
    let bodies = (0..noise.below(3)).map(|_| {
        let text = pick_text(noise);
        if noise.below(2) == 0 { visible_body(&text) } else { internal_body(&text) }
    });
    let bodies = bodies.collect();
    let summary = (noise.below(2) == 0).then(|| sample_summary(&pick_text(noise), noise.below(9) as u64));
    let mut due = Commit { bodies, summary, ..sample_commit(session, claim, 1 + noise.below(4) as u64) };
    // Now and then its records do not lie together.
    if noise.below(6) == 0 {
        due.records.iter_mut().for_each(|record| record.bytes.resize(JOURNAL_ROW_BYTES_MAX / 2 + 1, b'.'));
    }
    due
}

fn pick(noise: &mut Noise) -> SessionId {
    session_id(["a", "b", "c"][noise.below(3)])
}

fn pick_text(noise: &mut Noise) -> String {
    format!("Text {}", noise.below(12)).repeat(1 + noise.below(2) * 20)
}

async fn everything(store: &dyn Store, session: &str) -> String {
    let session = session_id(session);
    let mut all = show("read", store.read_records(&session, Seq(0), usize::MAX).await);
    all += &show("snapshot", store.load_snapshot(&session).await);
    all += &show("owing", store.sessions_with_pending_work().await);
    for number in 0..12 {
        for times in [1, 21] {
            let id = BodyId::hash_text(&format!("Text {number}").repeat(times));
            all += &show("body", store.read_bodies(&session, &[id]).await);
        }
    }
    all
}

/// Processes have other names in other stores; all else must be equal.
fn show<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> String {
    let result = result.map_err(|error| match error {
        Error::HeldByOtherProcess { session, .. } => Error::HeldByOtherProcess { session, by: String::new() },
        error => error,
    });
    format!("{what}: {result:?}\n")
}
