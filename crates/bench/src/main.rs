//! Measures the engine with a model that answers at once, and compares it with the limits of the machine. The content
//! of messages does not matter here.

mod bench_engine;
mod bench_flows;
mod claim_maps;
mod instant_model;
mod machine;
mod measure;
mod measurement_plan;
mod profile_loop;
mod report;
mod runner;
mod sample_text;
mod stats;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::bench_engine::StoreKind;
use crate::bench_flows::BenchTurnShape;
use crate::measurement_plan::BenchExtent;
use crate::runner::{BenchNoisePolicy, print_progress};

/// Faster than the system's allocator when memory is allocated on one thread and freed on another. The program uses it
/// too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the engine: turns per second, latency, growth, memory and opening, compared with plain SQLite on the same
/// disk.
#[derive(Debug, Parser)]
#[command(name = "segue-bench", version)]
struct BenchArgs {
    /// Make a short run with fewer turns and sessions
    #[arg(long)]
    quick: bool,
    /// Print JSON lines for the comparison with other frameworks, and nothing else
    #[arg(long)]
    peers: bool,
    /// Only run measurements whose name contains NAME (turns, conc, grow, open, resume, read, idle, inflight, cold,
    /// http, streams, prompts, tokens, catalog, nodes, idlecost; store and shape are part of the name, as in `postgres`); may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Folder for databases, on the disk to be measured [default: a temporary folder]
    #[arg(long, env = "PEERS_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Also write all figures to FILE as JSON lines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cores that other processes may use before a measurement is delayed and repeated
    #[arg(long, default_value_t = 0.2)]
    noise: f64,
    /// Seconds to wait for a quiet machine before each measurement
    #[arg(long, default_value_t = 10)]
    quiet_wait: u64,
    /// How often to repeat a measurement because the machine was not quiet
    #[arg(long, default_value_t = 1)]
    retries: usize,
    /// Measure instead the time to parse, analyse and render a claim map of the concierge, by size
    #[arg(long)]
    maps: bool,
    /// Run one shape in a loop, for a profiler
    #[arg(long = "loop", value_name = "SHAPE")]
    loop_shape: Option<BenchTurnShape>,
    /// For --loop: duration in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// For --loop: number of concurrent sessions
    #[arg(long, default_value_t = 64)]
    sessions: usize,
    /// For --loop: turns of a session before a new one replaces it
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// For --loop: where journals are stored
    #[arg(long, default_value = "sqlite")]
    store: StoreKind,
    /// Run one measurement in this process
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> Result<()> {
    let arguments = BenchArgs::parse();
    if let Some(measurement) = &arguments.child {
        let measurement = serde_json::from_str(measurement).context("invalid measurement")?;
        let rows = build_runtime()?.block_on(measure::run_measurement(&measurement))?;
        return rows.iter().try_for_each(|row| print_line(&serde_json::to_string(row)?));
    }
    if arguments.maps {
        return print_line(&claim_maps::measure_claim_maps());
    }
    let folder = match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            tempfile::Builder::new().prefix("segue-bench-").tempdir_in(dir)?
        }
        None => tempfile::Builder::new().prefix("segue-bench-").tempdir()?,
    };
    if let Some(shape) = arguments.loop_shape {
        let options = profile_loop::ProfileLoopOptions {
            shape,
            store_kind: arguments.store,
            sessions: arguments.sessions.max(1),
            turns: arguments.turns.max(1),
            duration: Duration::from_secs(arguments.seconds),
        };
        return build_runtime()?.block_on(profile_loop::run_profile_loop(options, folder.path()));
    }
    run_measurements(&arguments, folder.path())
}

fn run_measurements(arguments: &BenchArgs, dir: &std::path::Path) -> Result<()> {
    let extent = match (arguments.quick, arguments.peers) {
        (true, _) => BenchExtent::Quick,
        (false, true) => BenchExtent::Peers,
        (false, false) => BenchExtent::Full,
    };
    let measurements = measurement_plan::plan_measurements(extent, &arguments.only, dir);
    ensure!(
        !measurements.is_empty(),
        "no measurement has a name that contains any of {:?}; see --help",
        arguments.only
    );
    if machine::file_system_type(dir) == "tmpfs" {
        print_progress("warning: the folder for databases is in memory, so nothing here is durable; use --dir");
    }
    let noise_policy = BenchNoisePolicy {
        noise_cores_max: arguments.noise,
        quiet_wait: Duration::from_secs(arguments.quiet_wait),
        retries: arguments.retries,
    };
    let mut rows = Vec::new();
    for (index, measurement) in measurements.iter().enumerate() {
        print_progress(&format!("[{}/{}] {}", index + 1, measurements.len(), measurement.name()));
        let new_rows = runner::run_when_quiet(measurement, noise_policy)?;
        if arguments.peers {
            new_rows.iter().try_for_each(|row| print_line(&serde_json::to_string(row)?))?;
        }
        rows.extend(new_rows);
    }
    if let Some(file) = &arguments.json {
        let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        std::fs::write(file, lines.join("\n") + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    if !arguments.peers {
        print_line(&format!("segue {} on {}", env!("CARGO_PKG_VERSION"), machine::describe_machine(dir)))?;
        print_line(&report::render_report(&rows, arguments.noise))?;
    }
    Ok(())
}

fn build_runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
