//! Runs one turn shape in a loop, for a profiler.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use tokio::task::JoinSet;

use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn, StoreKind};
use crate::bench_flows::BenchTurnShape;
use crate::machine::cpu_ms;
use crate::runner::print_progress;

/// Options of the loop.
#[derive(Debug)]
pub(crate) struct ProfileLoopOptions {
    pub shape: BenchTurnShape,
    pub store_kind: StoreKind,
    pub sessions: usize,
    /// Turns of a session before a new one replaces it.
    pub turns: usize,
    pub duration: Duration,
}

/// Runs the loop and prints its speed.
///
/// # Errors
/// The engine, the store or the disk failed.
pub(crate) async fn run_profile_loop(options: ProfileLoopOptions, dir: &std::path::Path) -> Result<()> {
    let database_folder = BenchDatabaseFolder::create_empty(dir, "loop", BenchFolderRetention::Delete)?;
    let bench_engine = BenchEngine::start(options.store_kind, options.shape, &database_folder.database_file()).await?;
    bench_engine.run_turns(&"warm".into(), options.turns).await?;
    let (cpu, start) = (cpu_ms(), Instant::now());
    let mut tasks = JoinSet::new();
    for index in 0..options.sessions {
        let (bench_engine, turns, duration) = (bench_engine.clone(), options.turns, options.duration);
        tasks.spawn(async move {
            let mut done = 0;
            while start.elapsed() < duration {
                let session = SessionId::from(format!("l{index}-{}", done / turns));
                bench_engine.run_turn(&session, FirstOrLaterTurn::from_index(done % turns)).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(turns) = tasks.join_next().await {
        done += turns??;
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_ms() - cpu);
    print_progress(&format!(
        "{done} turns in {seconds:.1} s: {:.0} turns/s, {:.4} ms of CPU per turn",
        done as f64 / seconds,
        cpu / done as f64
    ));
    bench_engine.stop().await;
    Ok(())
}
