//! Load with a ceiling: many sessions, event streams, silent sockets and slow readers at once, with messages, forks, exports,
//! imports, searches and deletes. What the server needs stays under stated bounds, and every acknowledged message is there
//! afterwards, once.
//!
//! The ordinary tests run a small load, which ends after a number of operations. `cargo xtask load` sets `SEGUE_LOAD_MINUTES`,
//! and `SEGUE_LOAD_PROGRAM` to the program that users run.

#![allow(clippy::print_stdout, reason = "the figures of a run are read by people")]

mod bystanders;
mod load_client;
mod operations;
mod resources;
mod verify;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use bystanders::{FollowerReport, run_follower, run_silent_socket, run_slow_reader};
use load_client::LoadClient;
use operations::{LoadWorker, OperationCounts};
use resources::{ResourceBounds, ResourceFigures, ResourceWatch};
use verify::{KeptCounts, verify_workers};

const MINUTES_VARIABLE: &str = "SEGUE_LOAD_MINUTES";
const PROGRAM_VARIABLE: &str = "SEGUE_LOAD_PROGRAM";
/// The session that slow readers read. No other client changes it.
const BIG_SESSION: &str = "big";
/// Messages of the big session, and their bytes. The replies are as long.
const BIG_MESSAGES: usize = 16;
const BIG_MESSAGE_BYTES: usize = 200_000;
/// How long followers may take to get the last events after the last operation.
const FOLLOWERS_WAIT: Duration = Duration::from_secs(120);
const STORE_FILE: &str = "segue.db";

/// How much load there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadSize {
    pub sessions: usize,
    pub streams: usize,
    /// The sessions that the streams follow.
    pub followed_sessions: usize,
    pub silent_sockets: usize,
    pub slow_readers: usize,
    pub workers: usize,
    /// Operations of each worker after the sessions were created.
    pub operations_max: usize,
    /// When workers end even if they have done fewer operations.
    pub time_max: Option<Duration>,
}

impl LoadSize {
    const SMALL: Self = Self {
        sessions: 60,
        streams: 24,
        followed_sessions: 6,
        silent_sockets: 24,
        slow_readers: 6,
        workers: 3,
        operations_max: 40,
        time_max: None,
    };

    /// The load of so many minutes. In less than 15, fewer sessions are created.
    fn for_minutes(minutes: usize) -> Self {
        Self {
            sessions: (100_000 * minutes / 15).clamp(1_000, 100_000),
            streams: 2_000,
            followed_sessions: 500,
            silent_sockets: 1_000,
            slow_readers: 200,
            workers: 16,
            operations_max: 1_000_000,
            time_max: Some(Duration::from_secs(60 * minutes as u64)),
        }
    }

    fn connections(&self) -> usize {
        self.streams + self.silent_sockets + self.slow_readers + self.workers
    }
}

/// What all clients share.
#[derive(Debug)]
pub(crate) struct LoadState {
    pub size: LoadSize,
    pub port: u16,
    pub started: Instant,
    /// Set when bystanders should end.
    pub is_over: AtomicBool,
    /// The number of the last message. A message contains its number, so each is recognised.
    pub last_message: AtomicU32,
    pub sessions_created: AtomicUsize,
    pub silent_sockets_opened: AtomicUsize,
    pub slow_reads_begun: AtomicUsize,
}

impl LoadState {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns whether workers should end although they could do more.
    fn is_time_up(&self) -> bool {
        self.size.time_max.is_some_and(|time| self.started.elapsed() >= time)
    }
}

/// The server under load, in its own home. It is killed when it is dropped.
struct LoadedServer {
    home: TempDir,
    child: Child,
    port: u16,
}

impl LoadedServer {
    fn start() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let config = "[models]\ndefault = \"scripted\"\n[models.scripted]\nkind = \"scripted\"\nfile = \"scenario.toml\"\n\
                      [server]\nstreams_max = 4000\nrequests_per_minute_max = 10000000\n";
        let scenario = "[default]\ntext = \"You said: {{last}}\"\nusage = { input = 40, output = 5 }\n";
        for (name, text) in [("load.toml", config), ("scenario.toml", scenario)] {
            std::fs::write(home.path().join(name), text).expect("written");
        }
        let program = std::env::var_os(PROGRAM_VARIABLE);
        let program = program.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_segue")), PathBuf::from);
        let log = std::fs::File::create(home.path().join("log")).expect("a log");
        let mut child = Command::new(program)
            .args(["serve", "--port", "0", "--config", "load.toml", "--store", STORE_FILE])
            .env_clear()
            .envs([("HOME", home.path().as_os_str()), ("SEGUE_LOG", "error".as_ref()), ("NO_COLOR", "1".as_ref())])
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let log = || std::fs::read_to_string(home.path().join("log")).unwrap_or_default();
        let port = line.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no address in {line:?}: {}", log()));
        Self { home, child, port }
    }
}

impl Drop for LoadedServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            println!("--- the log of the server:\n{}", log.lines().take(50).collect::<Vec<_>>().join("\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_stay_bounded_under_load_and_every_acknowledged_message_is_kept() {
    let minutes = std::env::var(MINUTES_VARIABLE).ok().and_then(|minutes| minutes.parse().ok());
    let size = minutes.map_or(LoadSize::SMALL, LoadSize::for_minutes);
    raise_own_open_files_limit(size.connections() as u64 + 1_000);
    let server = LoadedServer::start();
    let state = Arc::new(LoadState::new(size, server.port));
    let client = LoadClient::new(server.port);
    create_big_session(&client).await;
    let mut workers: Vec<LoadWorker> =
        (0..size.workers).map(|number| LoadWorker::new(number, state.clone(), client.clone())).collect();
    for worker in &mut workers {
        worker.create_followed_sessions().await;
    }
    let bounds = ResourceBounds::new(&size);
    let watch = ResourceWatch::start(server.child.id(), server.home.path().join(STORE_FILE), bounds, state.clone());
    let (followers, mut bystanders) = start_bystanders(&state);

    let mut running = JoinSet::new();
    for mut worker in workers {
        running.spawn(async move {
            worker.run().await;
            worker
        });
    }
    let workers = running.join_all().await;
    println!("{} s: operations have ended; checking what is stored", state.started.elapsed().as_secs());
    let kept = verify_workers(&client, &workers).await;
    let followed = finish_followers(followers, &client, &workers).await;
    state.is_over.store(true, Ordering::Release);
    let figures = watch.finish().await;
    // Bystanders may wait for the server.
    bystanders.shutdown().await;
    client.get("/ready").await.expect(200);

    let mut counts = OperationCounts::default();
    workers.iter().for_each(|worker| counts.add(&worker.counts));
    print_summary(&state, &counts, &figures, kept, &followed);
    figures.assert_within_bounds();
}

impl LoadState {
    fn new(size: LoadSize, port: u16) -> Self {
        Self {
            size,
            port,
            started: Instant::now(),
            is_over: AtomicBool::default(),
            last_message: AtomicU32::default(),
            sessions_created: AtomicUsize::default(),
            silent_sockets_opened: AtomicUsize::default(),
            slow_reads_begun: AtomicUsize::default(),
        }
    }
}

async fn create_big_session(client: &LoadClient) {
    client.post("/v1/sessions", &json!({"session": BIG_SESSION, "flow": "chat"})).await.expect(201);
    for number in 0..BIG_MESSAGES {
        let text = format!("{number} ").repeat(BIG_MESSAGE_BYTES / 3);
        let path = format!("/v1/sessions/{BIG_SESSION}/messages");
        client.post(&path, &json!({ "text": text })).await.expect(200);
    }
}

/// Starts the clients that send nothing, read slowly or follow.
fn start_bystanders(state: &Arc<LoadState>) -> (Vec<FollowerTask>, JoinSet<()>) {
    let size = state.size;
    let follow = |number: usize| {
        let session = followed_session(number % size.followed_sessions);
        let (ask_for_end, end) = watch::channel(None);
        FollowerTask {
            session: session.clone(),
            ask_for_end,
            task: tokio::spawn(run_follower(state.port, session, end)),
        }
    };
    let followers = (0..size.streams).map(follow).collect();
    let mut bystanders = JoinSet::new();
    for number in 0..size.silent_sockets {
        bystanders.spawn(run_silent_socket(number, state.clone()));
    }
    for number in 0..size.slow_readers {
        bystanders.spawn(run_slow_reader(number, state.clone()));
    }
    (followers, bystanders)
}

/// A follower of a session, who is told the last event when there will be no more.
struct FollowerTask {
    session: String,
    ask_for_end: watch::Sender<Option<u64>>,
    task: JoinHandle<FollowerReport>,
}

/// Waits until every follower has every event of its session.
async fn finish_followers(followers: Vec<FollowerTask>, client: &LoadClient, workers: &[LoadWorker]) -> FollowerReport {
    let mut heads = BTreeMap::new();
    for session in workers.iter().flat_map(LoadWorker::followed_sessions) {
        let view = client.get(&format!("/v1/sessions/{session}")).await.expect(200);
        heads.insert(session.to_owned(), view["seq"].as_u64().expect("a sequence number"));
    }
    for follower in &followers {
        // A follower that has ended has panicked, which is reported below.
        let _ = follower.ask_for_end.send(heads.get(&follower.session).copied());
    }
    let mut total = FollowerReport::default();
    for FollowerTask { session, task, .. } in followers {
        let report = tokio::time::timeout(FOLLOWERS_WAIT, task).await;
        total.add(&report.unwrap_or_else(|_| panic!("a stream of {session} is incomplete")).expect("a follower"));
    }
    total
}

/// Raises the soft limit of open files of the clients.
fn raise_own_open_files_limit(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
        raised.unwrap_or_else(|error| panic!("{wanted} open files are needed: {error}; raise `ulimit -Hn`"));
    }
}

pub(crate) fn followed_session(number: usize) -> String {
    format!("followed-{number}")
}

fn print_summary(
    state: &LoadState,
    counts: &OperationCounts,
    figures: &ResourceFigures,
    kept: KeptCounts,
    followed: &FollowerReport,
) {
    let size = &state.size;
    println!(
        "\n{} s: {} sessions created, {} at the end, {} deleted; {} streams, {} silent sockets, {} slow readers\n{counts}\n{figures}",
        state.started.elapsed().as_secs(),
        state.sessions_created.load(Ordering::Acquire),
        kept.sessions,
        counts.deletes,
        size.streams,
        size.silent_sockets,
        size.slow_readers,
    );
    println!(
        "acknowledged messages found once: {}; events on the streams: {}, without a gap, over {} connections",
        kept.messages, followed.events, followed.connections
    );
    println!(
        "silent sockets opened: {}; slow reads begun: {}; /ready answers",
        state.silent_sockets_opened.load(Ordering::Acquire),
        state.slow_reads_begun.load(Ordering::Acquire)
    );
}
