//! Prints how many commits per second the SQLite store accepts from concurrent writers, and how many a plain loop
//! reaches that inserts as many bytes in groups of the same size. Run it with `--release`; arguments: seconds, writers,
//! folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_store::sqlite::SqliteStore;
use segue_store::{CommittedTextBody, JournalCommit, JournalRecord, PendingWorkStatus, SessionSummary, Store};

const TEXT_CHARS: usize = 900;
const EVENT_CHARS: usize = 200;
const EVENTS: usize = 3;

#[expect(clippy::print_stdout, reason = "the result is printed")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let writers = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(64);
    let folder = arguments.next().unwrap_or_else(|| ".".into());
    let folder = tempfile::tempdir_in(folder).expect("a folder to write in");
    let duration = Duration::from_secs(seconds);
    for round in 1..=3 {
        let raw_rate = run_raw_loop(&folder.path().join(format!("raw{round}.db")), duration, writers);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let store_rate = runtime.block_on(run_store(&folder.path().join(format!("ours{round}.db")), duration, writers));
        println!(
            "{writers} writers: {store_rate:.0} commits/s; raw loop {raw_rate:.0} commits/s; ratio {:.2}",
            store_rate / raw_rate
        );
    }
}

/// Inserts blobs of the size of a commit into one table, `group` blobs per transaction.
fn run_raw_loop(path: &std::path::Path, duration: Duration, group: usize) -> f64 {
    let db = rusqlite::Connection::open(path).expect("opens");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)",
    )
    .expect("sets up");
    let mut generator = ProseGenerator(1);
    let blob = generator.text(TEXT_CHARS + EVENTS * EVENT_CHARS);
    let (start, mut done) = (Instant::now(), 0u32);
    while start.elapsed() < duration {
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

async fn run_store(path: &std::path::Path, duration: Duration, writers: usize) -> f64 {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).expect("opens"));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..writers {
        let (store, done) = (store.clone(), done.clone());
        tasks.spawn(async move {
            let session = SessionId::from(format!("session-{number}"));
            let mut lease = store.create_session(&session).await.expect("a new name");
            let mut generator = ProseGenerator(number as u64 + 7);
            // Prepared in advance, so that only the store is measured.
            let fillers: Vec<String> = (0..64).map(|_| generator.text(EVENT_CHARS)).collect();
            let texts: Vec<String> = (0..64).map(|_| generator.text(TEXT_CHARS)).collect();
            for round in 0.. {
                if start.elapsed() >= duration {
                    break;
                }
                let text = format!("{number}.{round} {}", texts[round % 64]);
                let commit = make_commit(&session, lease, text, &fillers[round % 64]);
                lease.head = store.append_commit(commit).await.expect("in time");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    store.close().await.expect("closes");
    rate
}

/// Generates words that do not repeat within the window of a compressor.
struct ProseGenerator(u64);

impl ProseGenerator {
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

fn make_commit(session: &SessionId, lease: segue_store::Lease, text: String, filler: &str) -> JournalCommit {
    let id = BodyId::hash_text(&text);
    let records = (1..=EVENTS as u64).map(|step| {
        let seq = lease.head.0 + step;
        let mut event = format!(r#"{{"at":{seq},"type":"user_message_received","body":"{id}","tokens":212,"text":""#);
        event.push_str(&filler[step as usize..EVENT_CHARS - event.len()]);
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
        updated_at: UnixMillis(lease.head.0),
        pending_work: PendingWorkStatus::Now,
    };
    let text = TextToStore { id, text: text.into(), kind: BodyVisibility::Conversation };
    let bodies = vec![CommittedTextBody { text, first_used_by: lease.head.next() }];
    let summary = Some(summary);
    JournalCommit { bodies, summary, ..JournalCommit::of_records(session.clone(), lease.epoch, lease.head, records) }
}
