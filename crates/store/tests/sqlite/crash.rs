//! Processes that are killed at any point, and processes that run at the same time. A test starts itself again as the
//! other process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_store::conformance::{
    StoreFixture, first_record_bodies, read_all_records, sample_commit, sample_record, sample_records, session_id,
    visible_body,
};
use segue_store::sqlite::SqliteStore;
use segue_store::{Error, JournalCommit, JournalRecord, Lease, LeaseTakeoverPolicy, Store, StoreMaintenance};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

/// Environment variable that tells the other process which file to write.
const FILE_VARIABLE: &str = "SEGUE_STORE_TEST_FILE";
const ROUNDS: usize = 20;
const SESSIONS: u64 = 4;
const TURNS_EACH: u64 = 60;

#[tokio::test]
async fn acknowledged_commits_survive_kill_9() {
    if let Ok(path) = std::env::var(FILE_VARIABLE) {
        append_until_killed(Path::new(&path)).await;
    }
    let file = SqliteFile::new();
    let mut random = SeededRandom(11);
    let mut acknowledged = vec![0; SESSIONS as usize];
    for round in 0..ROUNDS {
        let mut child = start_process("crash::acknowledged_commits_survive_kill_9", &file);
        let mut acknowledgements = acknowledgements(&mut child);
        for _ in 0..1 + random.below(60) {
            record_acknowledgement(
                &acknowledgements.next().expect("the other process keeps writing"),
                &mut acknowledged,
            );
        }
        if round % 5 == 0 {
            let error = file
                .open_store()
                .acquire_lease(&session_id("s0"), LeaseTakeoverPolicy::IfHolderDead)
                .await
                .expect_err("its holder is alive");
            assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
        }
        child.kill().expect("killed");
        child.wait().expect("dead");
        acknowledgements.for_each(|line| record_acknowledgement(&line, &mut acknowledged));
        let store = file.open_store();
        for (number, acknowledged) in acknowledged.iter_mut().enumerate() {
            let session = session_id(&format!("s{number}"));
            let lease = match store.acquire_lease(&session, LeaseTakeoverPolicy::IfHolderDead).await {
                Err(Error::NoSuchSession { .. }) if *acknowledged == 0 => continue,
                lease => lease.expect("its holder is dead"),
            };
            assert_intact(&store, &session, lease.head, *acknowledged).await;
            *acknowledged = lease.head.0;
        }
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
    assert!(acknowledged.iter().all(|head| *head > 0));
}

#[tokio::test]
async fn two_processes_on_one_session_never_interleave() {
    if let Ok(path) = std::env::var(FILE_VARIABLE) {
        let store = SqliteStore::open(path).expect("opens");
        write_turns(&store, "child").await;
        store.close().await.expect("closes");
        std::process::exit(0);
    }
    let file = SqliteFile::new();
    let store = file.open_store();
    let lease = store.create_session(&session_id("a")).await.expect("a new name");
    store.append_commit(sample_commit(&session_id("a"), lease, 1)).await.expect("in time");
    let mut child = start_process("crash::two_processes_on_one_session_never_interleave", &file);
    write_turns(&*store, "parent").await;
    assert!(child.wait().expect("ends").success());
    let journal = read_all_records(&store, &session_id("a")).await;
    let seqs: Vec<u64> = journal.iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, (1..=1 + 4 * TURNS_EACH).collect::<Vec<_>>());
    for process in ["parent", "child"] {
        let own_records: Vec<&[u8]> =
            journal.iter().map(|record| &*record.bytes).filter(|bytes| bytes.starts_with(process.as_bytes())).collect();
        let expected: Vec<String> =
            (0..TURNS_EACH).flat_map(|turn| [0, 1].map(|half| format!("{process} {turn} {half}"))).collect();
        assert!(
            own_records.iter().zip(&expected).all(|(own_records, expected)| *own_records == expected.as_bytes())
                && own_records.len() == expected.len()
        );
    }
}

/// Appends each turn exactly once, taking the session from the other process whenever necessary.
async fn write_turns(store: &dyn Store, process: &str) {
    let session = session_id("a");
    let mut lease = store.acquire_lease(&session, LeaseTakeoverPolicy::Force).await.expect("forced");
    for turn in 0..TURNS_EACH {
        loop {
            let records = [0, 1].map(|half| {
                let bytes = format!("{process} {turn} {half}").into_bytes();
                JournalRecord { seq: Seq(lease.head.0 + 1 + half), at: UnixMillis(turn), bytes }
            });
            let commit = JournalCommit { records: records.into(), ..sample_commit(&session, lease, 0) };
            match store.append_commit(commit).await {
                Ok(head) => {
                    lease.head = head;
                    break;
                }
                Err(Error::Fenced { .. }) => {
                    lease = store.acquire_lease(&session, LeaseTakeoverPolicy::Force).await.expect("forced");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Writes several sessions at once; prints each acknowledged head to standard output.
async fn append_until_killed(path: &Path) -> ! {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).expect("opens"));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let store = store.clone();
        writers.spawn(async move {
            let session = session_id(&format!("s{number}"));
            let mut lease = match store.acquire_lease(&session, LeaseTakeoverPolicy::IfHolderDead).await {
                Ok(lease) => lease,
                Err(_) => store.create_session(&session).await.expect("a new name"),
            };
            loop {
                lease.head = store.append_commit(next_commit(&session, lease)).await.expect("in time");
                writeln!(std::io::stdout(), "ack {number} {}", lease.head).expect("written");
            }
        });
    }
    writers.join_all().await;
    std::process::exit(1)
}

/// Returns how many records a commit has: a few, and now and then too many for one row.
fn count_after(head: u64) -> u64 {
    if head % 97 == 42 { 1_500 } else { 1 + head % 3 }
}

/// Returns the commit that follows a head; the head also determines how many records it has.
fn next_commit(session: &SessionId, lease: Lease) -> JournalCommit {
    let count = count_after(lease.head.0);
    let bodies = first_record_bodies(lease, vec![visible_body(&text_at(session, lease.head.next()))]);
    JournalCommit { bodies, ..sample_commit(session, lease, count) }
}

fn text_at(session: &SessionId, first: Seq) -> String {
    format!("{session} wrote at {first} ").repeat(1 + (first.0 % 50) as usize)
}

async fn assert_intact(store: &Arc<dyn Store>, session: &SessionId, head: Seq, acknowledged: u64) {
    assert!(head.0 >= acknowledged, "{session} is at {head}, but {acknowledged} was acknowledged");
    assert_eq!(read_all_records(store, session).await, sample_records(session, head.0));
    let mut last = 0;
    let mut texts = Vec::new();
    while last < head.0 {
        texts.push(text_at(session, Seq(last + 1)));
        last += count_after(last);
    }
    assert_eq!(last, head.0, "{session} has an incomplete commit, ending with {:?}", sample_record(session, head.0));
    let ids: Vec<_> = texts.iter().map(|body| visible_body(body).id).collect();
    let read = store.read_bodies(session, &ids).await.expect("every text is there");
    assert!(read.iter().zip(&texts).all(|(read, expected)| **read == **expected));
}

fn record_acknowledgement(line: &str, acknowledged: &mut [u64]) {
    let mut numbers = line.split(' ').skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (session, head) = (numbers.next().expect("a session"), numbers.next().expect("a head"));
    acknowledged[session as usize] = head.max(acknowledged[session as usize]);
}

fn start_process(test: &str, file: &SqliteFile) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE_VARIABLE, file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

/// Returns complete lines of acknowledgement. A line that the kill cut off is ignored.
fn acknowledgements(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let next = move || {
        let mut line = String::new();
        output.read_line(&mut line).ok().filter(|_| line.ends_with('\n'))?;
        Some(line.trim_end().to_owned())
    };
    std::iter::from_fn(next).filter(|line| line.starts_with("ack "))
}
