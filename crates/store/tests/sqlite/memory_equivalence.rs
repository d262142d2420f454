//! The SQLite store and the memory store give the same results for the same operations.

use std::sync::Arc;

use proptest::prelude::*;
use segue_core::body::BodyId;
use segue_core::ids::{LeaseEpoch, Seq, SessionId, SessionUid, SubmissionId, UnixMillis};
use segue_store::conformance::{
    StoreFixture, first_record_bodies, internal_body, sample_commit, sample_record, sample_summary, session_id,
    visible_body,
};
use segue_store::limits::JOURNAL_ROW_BYTES_MAX;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_store::{
    Error, HandledInboxEntry, InboxEmptiness, JournalCommit, Lease, LeaseTakeoverPolicy, NewInboxSubmission,
    OutgoingInboxSubmission, PendingWorkQuery, SessionForkSpec, SessionListChangeCursor, SessionQuery, Snapshot,
    SpawnedSession, Store,
};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

const OPERATIONS_PER_RUN: usize = 150;
const SESSIONS: [&str; 4] = ["a", "b", "c", "ns.d"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_give_the_same_results(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(compare(seed));
    }
}

async fn compare(seed: u64) {
    let (file, disk) = (SqliteFile::new(), InMemoryStoreDisk::new());
    let memory = || -> Arc<dyn Store> { Arc::new(InMemoryStore::open(&disk)) };
    // Two processes on each store.
    let mut stores = [(memory(), file.open_store()), (memory(), file.open_store())];
    let mut random = SeededRandom(seed);
    for step in 0..OPERATIONS_PER_RUN {
        let process = random.below(2);
        if random.below(20) == 0 {
            stores[process] = (memory(), file.open_store());
        }
        let copy = random.clone();
        let memory_result = run_operation(&*stores[process].0, &mut random).await;
        let sqlite_result = run_operation(&*stores[process].1, &mut copy.clone()).await;
        assert_eq!(memory_result, sqlite_result, "step {step} of seed {seed}");
    }
    assert_eq!(disk.body_count(), file.body_count());
    for session in SESSIONS {
        assert_eq!(read_everything(&*stores[0].0, session).await, read_everything(&*stores[0].1, session).await);
    }
    assert!(stores[0].1.check_integrity().await.expect("checked").is_clean());
}

/// Performs one operation, usually a sensible one. Returns what was done and its result.
async fn run_operation(store: &dyn Store, random: &mut SeededRandom) -> String {
    let session = pick_session(random);
    let lease = Lease {
        epoch: LeaseEpoch(random.below(40) as u64),
        head: Seq(random.below(12) as u64),
        uid: SessionUid(0),
        parent: None,
        expires_at: None,
        inbox: InboxEmptiness::Empty,
    };
    match random.below(16) {
        0 | 1 => format_result("create", store.create_session(&session).await),
        2 => {
            let takeover =
                if random.below(2) == 0 { LeaseTakeoverPolicy::Force } else { LeaseTakeoverPolicy::IfHolderDead };
            format_result("acquire", store.acquire_lease(&session, takeover).await)
        }
        3 => format_result("release", store.release_lease(&session, lease.epoch).await),
        4 => format_result("invalid append", store.append_commit(random_commit(&session, lease, random)).await),
        5 => {
            let fork = SessionForkSpec {
                from: session,
                at_seq: lease.head,
                to: pick_session(random),
                summary: sample_summary("forked", 3),
            };
            format_result("fork", store.fork_session(fork).await)
        }
        6 if random.below(3) == 0 => {
            let notice = (random.below(2) == 0).then(|| random_submission(random));
            format_result("delete", store.delete_session(&session, notice).await)
        }
        7 => {
            let snapshot = Snapshot { seq: lease.head, format: 1, bytes: random.prose(90).into_bytes() };
            format_result("keep", store.save_snapshot(&session, snapshot).await)
        }
        8 => {
            let query = SessionQuery { text: Some(pick_text(random)), ..SessionQuery::newest(1 + random.below(3)) };
            format_result("list", store.list_sessions(&query).await)
        }
        9 => {
            let expected = (random.below(4) == 0).then(|| SessionUid(random.below(40) as u64));
            format_result("submit", store.submit(&session, expected, random_submission(random)).await)
        }
        10 if random.below(6) == 0 => format_result("begin delete", store.begin_delete(&session).await),
        11 => format_result("held", store.held_sessions_with_entries(2).await),
        12 => {
            let after = SessionListChangeCursor(random.below(30) as u64);
            format_result("changes", store.changes_after(Some(after), 1 + random.below(5)).await)
        }
        _ => match store.acquire_lease(&session, LeaseTakeoverPolicy::IfHolderDead).await {
            Ok(lease) => format_result("append", store.append_commit(random_commit(&session, lease, random)).await),
            refused => format_result("acquire", refused),
        },
    }
}

fn random_commit(session: &SessionId, lease: Lease, random: &mut SeededRandom) -> JournalCommit {
    let bodies = (0..random.below(3)).map(|_| {
        let text = pick_text(random);
        if random.below(2) == 0 { visible_body(&text) } else { internal_body(&text) }
    });
    let bodies = first_record_bodies(lease, bodies.collect());
    let summary = (random.below(2) == 0).then(|| sample_summary(&pick_text(random), random.below(9) as u64));
    let mut commit = JournalCommit { bodies, summary, ..sample_commit(session, lease, 1 + random.below(4) as u64) };
    commit.shows_progress = random.below(3) == 0;
    if random.below(3) == 0 {
        add_deliveries(&mut commit, random);
    }
    // Sometimes the records do not fit into one row.
    if random.below(6) == 0 {
        commit.records.iter_mut().for_each(|record| record.bytes.resize(JOURNAL_ROW_BYTES_MAX / 2 + 1, b'.'));
    }
    commit
}

/// Adds deliveries that may be refused or bounced.
fn add_deliveries(commit: &mut JournalCommit, random: &mut SeededRandom) {
    if random.below(2) == 0 {
        let drained =
            HandledInboxEntry { id: SubmissionId(random.below(4) as u64), outcome: random.prose(9).into_bytes() };
        commit.drained.push(drained);
    }
    if random.below(3) == 0 {
        let session = pick_session(random);
        let records = vec![sample_record(&session, 1)];
        let summary = sample_summary("spawned", random.below(9) as u64);
        let entries = vec![random_submission(random)];
        commit.spawned.push(SpawnedSession { session, records, bodies: Vec::new(), summary, entries });
    }
    for _ in 0..random.below(3) {
        commit.outgoing.push(OutgoingInboxSubmission {
            to: pick_session(random),
            expected: (random.below(4) == 0).then(|| SessionUid(random.below(40) as u64)),
            submission: random_submission(random),
            bounce: (random.below(2) == 0).then(|| random_submission(random)),
        });
    }
}

fn random_submission(random: &mut SeededRandom) -> NewInboxSubmission {
    let bytes = pick_text(random).into_bytes();
    // Few ids, so that they are often repeated.
    NewInboxSubmission { id: SubmissionId(random.below(4) as u64), at: UnixMillis(7), bytes, exempt_from_limit: false }
}

fn all_pending_work() -> PendingWorkQuery {
    PendingWorkQuery { due_until: UnixMillis(u64::MAX), after_cursor: None, limit: usize::MAX }
}

fn pick_session(random: &mut SeededRandom) -> SessionId {
    session_id(SESSIONS[random.below(SESSIONS.len())])
}

fn pick_text(random: &mut SeededRandom) -> String {
    format!("Text {}", random.below(12)).repeat(1 + random.below(2) * 20)
}

async fn read_everything(store: &dyn Store, session: &str) -> String {
    let session = session_id(session);
    let mut all = format_result("read", store.read_records(&session, Seq(0), usize::MAX).await);
    all += &format_result("snapshot", store.load_snapshot(&session).await);
    all += &format_result("pending work", store.sessions_with_pending_work(&all_pending_work()).await);
    all += &format_result("inbox", store.read_inbox(&session, usize::MAX).await);
    for id in 0..4 {
        all += &format_result("outcome", store.read_outcome(&session, SubmissionId(id)).await);
    }
    all += &format_result("parent", store.parent_of(&session).await);
    for uid in 0..40 {
        all += &format_result("children", store.children_of(SessionUid(uid), usize::MAX).await);
    }
    all += &format_result("to delete", store.sessions_to_delete(usize::MAX).await);
    all += &format_result("changes", store.changes_after(Some(SessionListChangeCursor(0)), usize::MAX).await);
    for number in 0..12 {
        for times in [1, 21] {
            let id = BodyId::hash_text(&format!("Text {number}").repeat(times));
            all += &format_result("body", store.read_bodies(&session, &[id]).await);
        }
    }
    all
}

/// Formats a result. Process names differ between stores; everything else must be equal.
fn format_result<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> String {
    let result = result.map_err(|error| match error {
        Error::HeldByOtherProcess { session, .. } => Error::HeldByOtherProcess { session, by: String::new() },
        error => error,
    });
    format!("{what}: {result:?}\n")
}
