//! Prints how many commits a second the SQLite store takes from concurrent writers, beside a plain loop that inserts as
//! many bytes in groups as large. Run it with `--release`; arguments: seconds, writers, folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use segue_core::body::{BodyId, BodyKind, TextBody};
use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_store::sqlite::SqliteStore;
use segue_store::{Commit, JournalRecord, PendingWork, SessionSummary, Store};

const TEXT_CHARS: usize = 900;
const EVENT_CHARS: usize = 200;
const EVENTS: usize = 3;

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let writers = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(64);
    let folder = arguments.next().unwrap_or_else(|| ".".into());
    let folder = tempfile::tempdir_in(folder).expect("a folder to write in");
    let span = Duration::from_secs(seconds);
    for round in 1..=3 {
        let raw = raw_loop(&folder.path().join(format!("raw{round}.db")), span, writers);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let ours = runtime.block_on(appenders(&folder.path().join(format!("ours{round}.db")), span, writers));
        println!("{writers} writers: {ours:.0} commits/s; raw loop {raw:.0} commits/s; ratio {:.2}", ours / raw);
    }
}

/// Inserts blobs of the size of a commit into one table, a group of `group` in each transaction.
fn raw_loop(path: &std::path::Path, span: Duration, group: usize) -> f64 {
    let db = rusqlite::Connection::open(path).expect("opens");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)",
    )
    .expect("sets up");
    let mut prose = Prose(1);
    let blob = prose.text(TEXT_CHARS + EVENTS * EVENT_CHARS);
    let (start, mut done) = (Instant::now(), 0u32);
    while start.elapsed() < span {
        db.execute_batch("BEGIN IMMEDIATE").expect("begins");
        for _ in 0..group {
            db.prepare_cached("INSERT INTO t (b) VALUES (?1)")
                .expect("prepares")
                .execute([blob.as_bytes()])
                .expect("inserts");
            done += 1;
        }
        db.execute_batch("COMMIT").expect("commits");
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

async fn appenders(path: &std::path::Path, span: Duration, writers: usize) -> f64 {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).expect("opens"));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..writers {
        let (store, done) = (store.clone(), done.clone());
        tasks.spawn(async move {
            let session = SessionId::from(format!("session-{number}"));
            let mut claim = store.create_session(&session).await.expect("a new name");
            let mut prose = Prose(number as u64 + 7);
            // Made beforehand: what is measured is the store.
            let notes: Vec<String> = (0..64).map(|_| prose.text(EVENT_CHARS)).collect();
            let texts: Vec<String> = (0..64).map(|_| prose.text(TEXT_CHARS)).collect();
            for round in 0.. {
                if start.elapsed() >= span {
                    break;
                }
                let text = format!("{number}.{round} {}", texts[round % 64]);
                let commit = commit(&session, claim, text, &notes[round % 64]);
                claim.head = store.append_commit(commit).await.expect("in time");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    store.close().await.expect("closes");
    rate
}

/// Words that do not repeat within the reach of a compressor.
struct Prose(u64);

impl Prose {
    fn text(&mut self, chars: usize) -> String {
        const SYLLABLES: [&str; 16] =
            ["ka", "re", "ton", "mi", "sal", "lu", "ne", "dor", "vi", "pas", "ro", "ti", "mer", "su", "lan", "ni"];
        let mut text = String::with_capacity(chars + 16);
        while text.len() < chars {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = self.0 >> 33;
            for shift in 0..2 + word % 3 {
                text.push_str(SYLLABLES[(word >> (4 * shift + 2) & 15) as usize]);
            }
            text.push(' ');
        }
        text.truncate(chars);
        text
    }
}

fn commit(session: &SessionId, claim: segue_store::Lease, text: String, note: &str) -> Commit {
    let id = BodyId::hash_text(&text);
    let records = (1..=EVENTS as u64).map(|step| {
        let seq = claim.head.0 + step;
        let mut event = format!(r#"{{"at":{seq},"type":"message_recorded","body":"{id}","tokens":212,"note":""#);
        event.push_str(&note[step as usize..EVENT_CHARS - event.len()]);
        event.push_str("\"}");
        JournalRecord { seq: Seq(seq), at: UnixMillis(1_700_000_000_000 + seq), bytes: event.into_bytes() }
    });
    let records = records.collect();
    let summary = SessionSummary {
        flow: "chat".into(),
        title: "a title of middling length".into(),
        phase: "open".into(),
        turns: 1,
        calls: 1,
        cost_microusd: None,
        created_at: UnixMillis(1),
        updated_at: UnixMillis(claim.head.0),
        pending_work: PendingWork::Now,
    };
    let bodies = vec![TextBody { id, text: text.into(), kind: BodyKind::Conversation }];
    let (epoch, expected) = (claim.epoch, claim.head);
    let names = |_: &JournalRecord| Vec::new();
    Commit {
        session: session.clone(),
        epoch,
        expected_head: expected,
        records,
        bodies,
        extract_body_ids: names,
        summary: Some(summary),
    }
}
