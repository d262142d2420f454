//! One shape over and over, for a profiler to look at.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use tokio::task::JoinSet;

use crate::bed::{Bed, Ground, Keep, Keeper, Nth};
use crate::flows::Shape;
use crate::machine::cpu_ms;
use crate::runner::progress;

/// What is to be looped.
#[derive(Debug)]
pub struct Loop {
    pub shape: Shape,
    pub keeper: Keeper,
    pub sessions: usize,
    /// Turns of a session before a new one takes its place.
    pub turns: usize,
    pub time: Duration,
}

/// Loops, and tells how fast it went.
///
/// # Errors
/// The engine, the store or the disk failed.
pub async fn run(what: Loop, dir: &std::path::Path) -> Result<()> {
    let ground = Ground::fresh(dir, "loop", Keep::No)?;
    let bed = Bed::start(what.keeper, what.shape, &ground.file()).await?;
    bed.turns(&"warm".into(), what.turns).await?;
    let (cpu, start) = (cpu_ms(), Instant::now());
    let mut places = JoinSet::new();
    for place in 0..what.sessions {
        let (bed, turns, time) = (bed.clone(), what.turns, what.time);
        places.spawn(async move {
            let mut done = 0;
            while start.elapsed() < time {
                let session = SessionId::from(format!("l{place}-{}", done / turns));
                bed.turn(&session, Nth::of(done % turns)).await?;
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
    progress(&format!(
        "{done} turns in {seconds:.1} s: {:.0} turns/s, {:.4} ms of CPU a turn",
        done as f64 / seconds,
        cpu / done as f64
    ));
    bed.stop().await;
    Ok(())
}
