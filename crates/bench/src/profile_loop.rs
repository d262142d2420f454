//! One shape over and over, for a profiler to look at.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use tokio::task::JoinSet;

use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, StoreKind, TurnPosition};
use crate::bench_flows::TurnShape;
use crate::machine::cpu_ms;
use crate::runner::print_progress;

/// What is to be looped.
#[derive(Debug)]
pub struct ProfileLoopOptions {
    pub shape: TurnShape,
    pub store_kind: StoreKind,
    pub sessions: usize,
    /// Turns of a session before a new one takes its place.
    pub turns: usize,
    pub duration: Duration,
}

/// Loops, and tells how fast it went.
///
/// # Errors
/// The engine, the store or the disk failed.
pub async fn run_profile_loop(options: ProfileLoopOptions, dir: &std::path::Path) -> Result<()> {
    let ground = DatabaseFolder::create_empty(dir, "loop", FolderRetention::Delete)?;
    let bed = BenchEngine::start(options.store_kind, options.shape, &ground.database_file()).await?;
    bed.run_turns(&"warm".into(), options.turns).await?;
    let (cpu, start) = (cpu_ms(), Instant::now());
    let mut places = JoinSet::new();
    for place in 0..options.sessions {
        let (bed, turns, time) = (bed.clone(), options.turns, options.duration);
        places.spawn(async move {
            let mut done = 0;
            while start.elapsed() < time {
                let session = SessionId::from(format!("l{place}-{}", done / turns));
                bed.run_turn(&session, TurnPosition::from_index(done % turns)).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(turns) = places.join_next().await {
        done += turns??;
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_ms() - cpu);
    print_progress(&format!(
        "{done} turns in {seconds:.1} s: {:.0} turns/s, {:.4} ms of CPU a turn",
        done as f64 / seconds,
        cpu / done as f64
    ));
    bed.stop().await;
    Ok(())
}
