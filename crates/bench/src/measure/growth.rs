//! One session that grows long: what a turn costs at given places, and what it leaves on disk.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground, Keep, Keeper, Nth};
use crate::machine::{cpu_ms, rss_mb, written_bytes};
use crate::stats::{brief, median};

const WARM_UP_TURNS: usize = 8;
/// Turns whose cost is told.
const MARKS: [usize; 6] = [1, 10, 100, 500, 1_000, 5_000];
/// A mark's cost is the median of this many turns around it.
const AROUND: usize = 9;

/// The long session's name.
pub const LONG: &str = "long";

pub async fn measure(job: &Job) -> Result<Vec<Row>> {
    let keep = if job.keeper == Keeper::Sqlite { Keep::Yes } else { Keep::No };
    let ground = Ground::fresh(&job.dir, &job.long_name(), keep)?;
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    bed.turns(&"warm".into(), WARM_UP_TURNS).await?;
    let disk = || if job.keeper == Keeper::Sqlite { ground.settled_bytes() } else { Ok(0) };
    let (disk_start, written, rss) = (disk()?, written_bytes(), rss_mb());
    let session = SessionId::from(LONG);
    let (mut times, mut cpus, mut disks) = (Vec::new(), Vec::new(), BTreeMap::new());
    let half = AROUND / 2;
    let marks: Vec<usize> = MARKS.into_iter().filter(|mark| *mark <= job.turns).collect();
    for place in 0..job.turns + half {
        let (cpu, start) = (cpu_ms(), Instant::now());
        bed.turn(&session, Nth::of(place)).await?;
        times.push(ms_since(start));
        cpus.push(cpu_ms() - cpu);
        let turn = place + 1;
        if (turn >= 100 && marks.contains(&turn)) || turn == job.turns {
            disks.insert(turn, disk()? - disk_start);
        }
    }
    let written = written_bytes() - written;
    let (rss_end, turns) = (rss_mb(), times.len());
    bed.stop().await;
    let at = |values: &[f64], mark: usize| {
        let around = if mark == 1 { 0..1 } else { mark - 1 - half.min(mark - 1)..(mark + half).min(values.len()) };
        brief(median(&values[around]))
    };
    let over =
        |values: &[f64]| -> Row { marks.iter().map(|mark| (mark.to_string(), json!(at(values, *mark)))).collect() };
    let (last, tenth) = (marks.last().copied().unwrap_or(1), 10.min(job.turns));
    let seconds: f64 = times.iter().sum::<f64>() / 1e3;
    let mut fields = json!({
        "turns": job.turns, "ms_at": over(&times), "cpu_ms_at": over(&cpus),
        "ratio_last_to_10": brief(at(&times, last) / at(&times, tenth)),
        "cpu_ratio_last_to_10": brief(at(&cpus, last) / at(&cpus, tenth)),
        "turns_per_s_all": brief(turns as f64 / seconds), "cpu_ms": brief(cpus.iter().sum::<f64>() / turns as f64),
        "rss_mb": brief(rss_end), "rss_grown_mb": brief(rss_end - rss),
    });
    if let (Keeper::Sqlite, Value::Object(fields)) = (job.keeper, &mut fields) {
        let per_turn: BTreeMap<_, _> =
            disks.iter().map(|(turn, bytes)| (turn.to_string(), bytes / *turn as u64)).collect();
        let end = disks.get(&job.turns).copied().unwrap_or_default() as f64 / job.turns as f64;
        fields.insert("disk_bytes".to_owned(), json!(disks));
        fields.insert("disk_bytes_per_turn".to_owned(), json!(per_turn));
        fields.insert("written_bytes_per_turn".to_owned(), json!((written / turns as f64).round()));
        fields.insert("new_text_bytes_per_turn".to_owned(), json!(job.shape.new_text_bytes()));
        fields.insert("disk_to_text".to_owned(), json!(brief(end / job.shape.new_text_bytes() as f64)));
    }
    Ok(vec![job.row("grow", fields)])
}
