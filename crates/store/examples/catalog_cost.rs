//! Measures what queries of the catalog cost with few and with many sessions: lists, a search by title, pending work,
//! changes, and the write probe.
//!
//! `cargo run --release -p segue-store --example catalog_cost`

use std::error::Error;
use std::future::Future;
use std::io::Write as _;
use std::time::{Duration, Instant};

use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_store::sqlite::SqliteStore;
use segue_store::{
    JournalCommit, JournalRecord, JournalWriter, PendingWorkQuery, PendingWorkStatus, SessionCatalog,
    SessionListChangeCursor, SessionQuery, SessionSummary, SpawnedSession, StoreMaintenance,
};

const SESSION_COUNTS: [u64; 2] = [1_000, 100_000];
const SESSIONS_PER_COMMIT: u64 = 1_000;
const ROUNDS: usize = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for count in SESSION_COUNTS {
        let folder = std::env::temp_dir().join(format!("segue-catalog-cost-{}-{count}", std::process::id()));
        let store = SqliteStore::open(folder.join("segue.db"))?;
        fill_store(&store, count).await?;
        measure_queries(&store, count).await?;
        store.close().await?;
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

async fn fill_store(store: &SqliteStore, count: u64) -> Result<(), segue_store::Error> {
    let parent = SessionId::from("acme.parent");
    let mut lease = store.create_session(&parent).await?;
    for first in (0..count).step_by(usize::try_from(SESSIONS_PER_COMMIT).unwrap_or(1)) {
        let records = vec![sample_record(lease.head.next())];
        let spawned = (first..first + SESSIONS_PER_COMMIT).map(sample_session).collect();
        let commit = JournalCommit::of_records(parent.clone(), lease.epoch, lease.head, records);
        lease.head = store.append_commit(JournalCommit { spawned, ..commit }).await?;
    }
    Ok(())
}

async fn measure_queries(store: &SqliteStore, count: u64) -> Result<(), segue_store::Error> {
    let newest = SessionQuery::newest(50);
    let owned = SessionQuery { name_prefix: Some("rare.".into()), ..newest.clone() };
    let titled = SessionQuery { text: Some("number 7".into()), ..newest.clone() };
    let pending = PendingWorkQuery { due_until: UnixMillis(count), after_cursor: None, limit: 50 };
    let last = store.changes_after(None, 1).await?.next_cursor;
    let recent = SessionListChangeCursor(last.0.saturating_sub(50));
    report(count, "list", || store.list_sessions(&newest)).await?;
    report(count, "list of an owner", || store.list_sessions(&owned)).await?;
    report(count, "search by title", || store.list_sessions(&titled)).await?;
    report(count, "pending work", || store.sessions_with_pending_work(&pending)).await?;
    report(count, "changes", || store.changes_after(Some(recent), 50)).await?;
    report(count, "write probe", || store.probe_write()).await
}

/// Prints the median time of a query.
async fn report<T, F>(count: u64, what: &str, mut query: impl FnMut() -> F) -> Result<(), segue_store::Error>
where
    F: Future<Output = Result<T, segue_store::Error>>,
{
    let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        query().await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let median = times[ROUNDS / 2].as_micros();
    // The error may be dropped: nobody reads the numbers any more.
    let _ = writeln!(std::io::stdout(), "{count:>7} sessions  {what:<18} {median:>8} µs");
    Ok(())
}

fn sample_record(seq: Seq) -> JournalRecord {
    JournalRecord { seq, at: UnixMillis(1), bytes: b"an event".to_vec() }
}

/// Returns a session; a few of them have another owner, and a few have work to do.
fn sample_session(number: u64) -> SpawnedSession {
    let owner = if number.is_multiple_of(100) && number < 1_000 { "rare" } else { "acme" };
    let pending_work = if number < 50 { PendingWorkStatus::At(UnixMillis(number)) } else { PendingWorkStatus::None };
    let summary = SessionSummary {
        flow: "chat".into(),
        title: format!("a conversation with number {number}"),
        phase: "open".into(),
        turns: 1,
        calls: 1,
        cost_microusd: None,
        created_at: UnixMillis(1),
        updated_at: UnixMillis(number),
        pending_work,
    };
    SpawnedSession {
        session: format!("{owner}.session-{number}").into(),
        records: vec![sample_record(Seq(1))],
        bodies: Vec::new(),
        summary,
        entries: Vec::new(),
    }
}
