//! What the server needs, measured from outside, and the bounds that it must not exceed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{BIG_MESSAGE_BYTES, LoadSize, LoadState};

/// How often the server is measured.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// The memory of the program and its token vocabulary (50 MB), a megabyte of text for each of 64 parked sessions, 64 histories,
/// four imports, the page caches of five connections to the store, and what the allocator keeps free.
const BASE_MEMORY_BYTES_MAX: u64 = 192 << 20;
/// The memory of a connection: its buffers and tasks, and what is written to it next.
const CONNECTION_MEMORY_BYTES_MAX: u64 = 64 << 10;
/// The memory of a slow reader: the text that it reads, once as text, once as JSON, and in the buffers of its connection.
const SLOW_READER_MEMORY_BYTES_MAX: u64 = 5 * BIG_MESSAGE_BYTES as u64;
/// The limit at which the writer waits for readers (64 MB), and the transactions that are written until it can truncate the log.
const WAL_BYTES_MAX: u64 = 96 << 20;
/// The open files besides connections of clients: the store and its readers, locks, the log, what the runtime needs, and
/// connections that a client has closed and the server has not.
const FILES_BESIDES_CONNECTIONS_MAX: usize = 100;

/// The bounds of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceBounds {
    memory_bytes_max: u64,
    wal_bytes_max: u64,
    files_max: usize,
}

impl ResourceBounds {
    pub(crate) fn new(size: &LoadSize) -> Self {
        let connections = size.connections();
        let memory_of_connections = CONNECTION_MEMORY_BYTES_MAX * connections as u64;
        let memory_of_slow_readers = SLOW_READER_MEMORY_BYTES_MAX * size.slow_readers as u64;
        Self {
            memory_bytes_max: BASE_MEMORY_BYTES_MAX + memory_of_connections + memory_of_slow_readers,
            wal_bytes_max: WAL_BYTES_MAX,
            files_max: connections + FILES_BESIDES_CONNECTIONS_MAX,
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, Default)]
struct ResourceSample {
    memory_bytes: u64,
    wal_bytes: u64,
    files: usize,
}

/// The highest measurements.
#[derive(Debug)]
pub(crate) struct ResourceFigures {
    bounds: ResourceBounds,
    highest: ResourceSample,
    last: ResourceSample,
    samples: usize,
    store_bytes: u64,
}

/// Measures the server until the load is over.
pub(crate) struct ResourceWatch {
    task: JoinHandle<ResourceFigures>,
}

impl ResourceWatch {
    pub(crate) fn start(process: u32, store: PathBuf, bounds: ResourceBounds, state: Arc<LoadState>) -> Self {
        Self { task: tokio::spawn(watch_resources(process, store, bounds, state)) }
    }

    /// Returns the figures. The load must be over.
    pub(crate) async fn finish(self) -> ResourceFigures {
        self.task.await.expect("the server can be measured")
    }
}

async fn watch_resources(
    process: u32,
    store: PathBuf,
    bounds: ResourceBounds,
    state: Arc<LoadState>,
) -> ResourceFigures {
    let zero = ResourceSample::default();
    let mut figures = ResourceFigures { bounds, highest: zero, last: zero, samples: 0, store_bytes: 0 };
    let mut progress_at = PROGRESS_INTERVAL;
    loop {
        let is_last = state.is_over();
        figures.add(measure(process, &store));
        figures.store_bytes = file_bytes(&store);
        if state.started.elapsed() >= progress_at {
            progress_at += PROGRESS_INTERVAL;
            print_progress(&state, &figures);
        }
        if is_last {
            return figures;
        }
        tokio::time::sleep(SAMPLE_INTERVAL).await;
    }
}

fn print_progress(state: &LoadState, figures: &ResourceFigures) {
    let ResourceSample { memory_bytes, wal_bytes, files } = figures.last;
    println!(
        "{:>5} s: {} sessions created, {} messages sent; memory {} MB, log {} MB, {files} open files",
        state.started.elapsed().as_secs(),
        state.sessions_created.load(std::sync::atomic::Ordering::Acquire),
        state.last_message.load(std::sync::atomic::Ordering::Acquire),
        memory_bytes >> 20,
        wal_bytes >> 20,
    );
}

impl ResourceFigures {
    fn add(&mut self, sample: ResourceSample) {
        let ResourceSample { memory_bytes, wal_bytes, files } = sample;
        self.highest.memory_bytes = self.highest.memory_bytes.max(memory_bytes);
        self.highest.wal_bytes = self.highest.wal_bytes.max(wal_bytes);
        self.highest.files = self.highest.files.max(files);
        self.last = sample;
        self.samples += 1;
    }

    pub(crate) fn assert_within_bounds(&self) {
        let Self { bounds, highest, .. } = self;
        assert!(self.samples > 0, "nothing was measured");
        assert!(highest.memory_bytes <= bounds.memory_bytes_max, "the server needs too much memory: {self}");
        assert!(highest.wal_bytes <= bounds.wal_bytes_max, "the write-ahead log is too long: {self}");
        assert!(highest.files <= bounds.files_max, "the server has too many files open: {self}");
    }
}

impl fmt::Display for ResourceFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bounds, highest, last, samples, store_bytes } = self;
        let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / f64::from(1 << 20));
        writeln!(f, "{:<18}{:>12}{:>12}{:>12}", "", "highest", "at the end", "bound")?;
        for (name, highest, last, bound) in [
            ("memory", highest.memory_bytes, last.memory_bytes, bounds.memory_bytes_max),
            ("write-ahead log", highest.wal_bytes, last.wal_bytes, bounds.wal_bytes_max),
        ] {
            writeln!(f, "{name:<18}{:>12}{:>12}{:>12}", mb(highest), mb(last), mb(bound))?;
        }
        writeln!(f, "{:<18}{:>12}{:>12}{:>12}", "open files", highest.files, last.files, bounds.files_max)?;
        write!(f, "{samples} samples; the store has {}", mb(*store_bytes))
    }
}

fn measure(process: u32, store: &Path) -> ResourceSample {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let status = std::fs::read_to_string(folder.join("status")).expect("the server runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kilobytes: u64 = resident.and_then(|resident| resident.trim().parse().ok()).expect("resident memory");
    let files = std::fs::read_dir(folder.join("fd")).expect("the server runs").count();
    let mut log = store.as_os_str().to_owned();
    log.push("-wal");
    ResourceSample { memory_bytes: kilobytes << 10, wal_bytes: file_bytes(Path::new(&log)), files }
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
