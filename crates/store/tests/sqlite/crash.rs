//! Processes killed at any point, and processes side by side. A test starts itself again as the other process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_store::conformance::{
    StoreFixture, read_all_records, sample_commit, sample_record, sample_records, session_id, visible_body,
};
use segue_store::sqlite::SqliteStore;
use segue_store::{Commit, Error, JournalRecord, Lease, Store, TakeoverPolicy};

use crate::noise::Noise;
use crate::place::File;

/// Set in the other process: which file it is to write.
const FILE: &str = "SEGUE_STORE_TEST_FILE";
const ROUNDS: usize = 20;
const SESSIONS: u64 = 4;
const TURNS_EACH: u64 = 60;

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    if let Ok(path) = std::env::var(FILE) {
        append_until_killed(Path::new(&path)).await;
    }
    let place = File::new();
    let mut noise = Noise(11);
    let mut acknowledged = vec![0; SESSIONS as usize];
    for round in 0..ROUNDS {
        let mut child = start("crash::what_was_acknowledged_survives_kill_9", &place);
        let mut lines = lines(&mut child);
        for _ in 0..1 + noise.below(60) {
            note(&lines.next().expect("the other process writes on"), &mut acknowledged);
        }
        if round % 5 == 0 {
            let error = place
                .open_store()
                .acquire_lease(&session_id("s0"), TakeoverPolicy::IfHolderDead)
                .await
                .expect_err("its holder lives");
            assert!(matches!(error, Error::HeldByOtherProcess { .. }), "{error}");
        }
        child.kill().expect("killed");
        child.wait().expect("dead");
        lines.for_each(|line| note(&line, &mut acknowledged));
        let store = place.open_store();
        for (number, acknowledged) in acknowledged.iter_mut().enumerate() {
            let session = session_id(&format!("s{number}"));
            let claim = match store.acquire_lease(&session, TakeoverPolicy::IfHolderDead).await {
                Err(Error::NoSuchSession { .. }) if *acknowledged == 0 => continue,
                claim => claim.expect("its holder is dead"),
            };
            check_whole(&store, &session, claim.head, *acknowledged).await;
            *acknowledged = claim.head.0;
        }
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
    assert!(acknowledged.iter().all(|head| *head > 0));
}

#[tokio::test]
async fn two_processes_on_one_session_never_interleave() {
    if let Ok(path) = std::env::var(FILE) {
        let store = SqliteStore::open(path).expect("opens");
        take_turns(&store, "child").await;
        store.close().await.expect("closes");
        std::process::exit(0);
    }
    let place = File::new();
    let store = place.open_store();
    let claim = store.create_session(&session_id("a")).await.expect("a new name");
    store.append_commit(sample_commit(&session_id("a"), claim, 1)).await.expect("in time");
    let mut child = start("crash::two_processes_on_one_session_never_interleave", &place);
    take_turns(&*store, "parent").await;
    assert!(child.wait().expect("ends").success());
    let journal = read_all_records(&store, &session_id("a")).await;
    let places: Vec<u64> = journal.iter().map(|record| record.seq.0).collect();
    assert_eq!(places, (1..=1 + 4 * TURNS_EACH).collect::<Vec<_>>());
    for who in ["parent", "child"] {
        let own: Vec<&[u8]> =
            journal.iter().map(|record| &*record.bytes).filter(|bytes| bytes.starts_with(who.as_bytes())).collect();
        let due: Vec<String> =
            (0..TURNS_EACH).flat_map(|turn| [0, 1].map(|half| format!("{who} {turn} {half}"))).collect();
        assert!(own.iter().zip(&due).all(|(own, due)| *own == due.as_bytes()) && own.len() == due.len());
    }
}

/// Appends each turn exactly once, taking the session from the other side whenever it has to.
async fn take_turns(store: &dyn Store, who: &str) {
    let session = session_id("a");
    let mut claim = store.acquire_lease(&session, TakeoverPolicy::Force).await.expect("forced");
    for turn in 0..TURNS_EACH {
        loop {
            let records = [0, 1].map(|half| {
                let bytes = format!("{who} {turn} {half}").into_bytes();
                JournalRecord { seq: Seq(claim.head.0 + 1 + half), at: UnixMillis(turn), bytes }
            });
            let commit = Commit { records: records.into(), ..sample_commit(&session, claim, 0) };
            match store.append_commit(commit).await {
                Ok(head) => {
                    claim.head = head;
                    break;
                }
                Err(Error::Fenced { .. }) => {
                    claim = store.acquire_lease(&session, TakeoverPolicy::Force).await.expect("forced");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Several sessions at once, each telling on standard output what it was told is durable.
async fn append_until_killed(path: &Path) -> ! {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).expect("opens"));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let store = store.clone();
        writers.spawn(async move {
            let session = session_id(&format!("s{number}"));
            let mut claim = match store.acquire_lease(&session, TakeoverPolicy::IfHolderDead).await {
                Ok(claim) => claim,
                Err(_) => store.create_session(&session).await.expect("a new name"),
            };
            loop {
                claim.head = store.append_commit(due(&session, claim)).await.expect("in time");
                writeln!(std::io::stdout(), "ack {number} {}", claim.head).expect("heard");
            }
        });
    }
    writers.join_all().await;
    std::process::exit(1)
}

/// How many records a commit has: a few, and now and then so many that they do not lie together.
fn count_after(head: u64) -> u64 {
    if head % 97 == 42 { 1_500 } else { 1 + head % 3 }
}

/// The commit that follows a head: how many records it has follows from the head too.
fn due(session: &SessionId, claim: Lease) -> Commit {
    let count = count_after(claim.head.0);
    let bodies = vec![visible_body(&text(session, claim.head.next()))];
    Commit { bodies, ..sample_commit(session, claim, count) }
}

fn text(session: &SessionId, first: Seq) -> String {
    format!("{session} spoke at {first} ").repeat(1 + (first.0 % 50) as usize)
}

async fn check_whole(store: &Arc<dyn Store>, session: &SessionId, head: Seq, acknowledged: u64) {
    assert!(head.0 >= acknowledged, "{session} stands at {head}, but {acknowledged} was acknowledged");
    assert_eq!(read_all_records(store, session).await, sample_records(session, head.0));
    let mut last = 0;
    let mut texts = Vec::new();
    while last < head.0 {
        texts.push(text(session, Seq(last + 1)));
        last += count_after(last);
    }
    assert_eq!(last, head.0, "{session} has half a commit, ending with {:?}", sample_record(session, head.0));
    let ids: Vec<_> = texts.iter().map(|text| visible_body(text).id).collect();
    let read = store.read_bodies(session, &ids).await.expect("every text is there");
    assert!(read.iter().zip(&texts).all(|(read, text)| **read == **text));
}

fn note(line: &str, acknowledged: &mut [u64]) {
    let mut words = line.split(' ').skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (session, head) = (words.next().expect("a session"), words.next().expect("a head"));
    acknowledged[session as usize] = head.max(acknowledged[session as usize]);
}

fn start(test: &str, place: &File) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

/// Whole lines of acknowledgement; a line cut by the kill says nothing.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let next = move || {
        let mut line = String::new();
        output.read_line(&mut line).ok().filter(|_| line.ends_with('\n'))?;
        Some(line.trim_end().to_owned())
    };
    std::iter::from_fn(next).filter(|line| line.starts_with("ack "))
}
