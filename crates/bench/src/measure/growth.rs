//! One session that grows long: what a turn costs at given places, and what it leaves on disk.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, StoreKind, TurnPosition};
use crate::machine::{cpu_ms, disk_written_bytes, rss_mb};
use crate::stats::{median, round_significant};

const WARM_UP_TURNS: usize = 8;
/// Turns whose cost is told.
const MEASURED_TURNS: [usize; 6] = [1, 10, 100, 500, 1_000, 5_000];
/// A mark's cost is the median of this many turns around it.
const MEDIAN_WINDOW: usize = 9;

/// The long session's name.
pub const LONG_SESSION: &str = "long";

pub async fn measure_growth(job: &Measurement) -> Result<Vec<MetricRow>> {
    let keep = if job.store_kind == StoreKind::Sqlite { FolderRetention::Keep } else { FolderRetention::Delete };
    let ground = DatabaseFolder::create_empty(&job.dir, &job.long_session_name(), keep)?;
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    bed.run_turns(&"warm".into(), WARM_UP_TURNS).await?;
    let disk = || if job.store_kind == StoreKind::Sqlite { ground.checkpointed_bytes() } else { Ok(0) };
    let (disk_start, written, rss) = (disk()?, disk_written_bytes(), rss_mb());
    let session = SessionId::from(LONG_SESSION);
    let (mut times, mut cpus, mut disks) = (Vec::new(), Vec::new(), BTreeMap::new());
    let half = MEDIAN_WINDOW / 2;
    let marks: Vec<usize> = MEASURED_TURNS.into_iter().filter(|mark| *mark <= job.turns).collect();
    for place in 0..job.turns + half {
        let (cpu, start) = (cpu_ms(), Instant::now());
        bed.run_turn(&session, TurnPosition::from_index(place)).await?;
        times.push(elapsed_ms(start));
        cpus.push(cpu_ms() - cpu);
        let turn = place + 1;
        if (turn >= 100 && marks.contains(&turn)) || turn == job.turns {
            disks.insert(turn, disk()? - disk_start);
        }
    }
    let written = disk_written_bytes() - written;
    let (rss_end, turns) = (rss_mb(), times.len());
    bed.stop().await;
    let at = |values: &[f64], mark: usize| {
        let around = if mark == 1 { 0..1 } else { mark - 1 - half.min(mark - 1)..(mark + half).min(values.len()) };
        round_significant(median(&values[around]))
    };
    let over = |values: &[f64]| -> MetricRow {
        marks.iter().map(|mark| (mark.to_string(), json!(at(values, *mark)))).collect()
    };
    let (last, tenth) = (marks.last().copied().unwrap_or(1), 10.min(job.turns));
    let seconds: f64 = times.iter().sum::<f64>() / 1e3;
    let mut fields = json!({
        "turns": job.turns, "ms_at": over(&times), "cpu_ms_at": over(&cpus),
        "ratio_last_to_10": round_significant(at(&times, last) / at(&times, tenth)),
        "cpu_ratio_last_to_10": round_significant(at(&cpus, last) / at(&cpus, tenth)),
        "turns_per_s_all": round_significant(turns as f64 / seconds), "cpu_ms": round_significant(cpus.iter().sum::<f64>() / turns as f64),
        "rss_mb": round_significant(rss_end), "rss_grown_mb": round_significant(rss_end - rss),
    });
    if let (StoreKind::Sqlite, Value::Object(fields)) = (job.store_kind, &mut fields) {
        let per_turn: BTreeMap<_, _> =
            disks.iter().map(|(turn, bytes)| (turn.to_string(), bytes / *turn as u64)).collect();
        let end = disks.get(&job.turns).copied().unwrap_or_default() as f64 / job.turns as f64;
        fields.insert("disk_bytes".to_owned(), json!(disks));
        fields.insert("disk_bytes_per_turn".to_owned(), json!(per_turn));
        fields.insert("written_bytes_per_turn".to_owned(), json!((written / turns as f64).round()));
        fields.insert("new_text_bytes_per_turn".to_owned(), json!(job.shape.new_text_bytes()));
        fields.insert("disk_to_text".to_owned(), json!(round_significant(end / job.shape.new_text_bytes() as f64)));
    }
    Ok(vec![job.metric_row("grow", fields)])
}
