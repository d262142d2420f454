//! One session that grows long: what a turn costs at given lengths, and how much it leaves on disk.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn, StoreKind};
use crate::machine::{cpu_ms, disk_written_bytes, rss_mb};
use crate::stats::{median, round_significant};

const WARM_UP_TURNS: usize = 8;
/// Turns whose cost is reported.
const MEASURED_TURNS: [usize; 6] = [1, 10, 100, 500, 1_000, 5_000];
/// The cost of a turn is the median of this many turns around it.
const MEDIAN_WINDOW: usize = 9;

pub(crate) const LONG_SESSION: &str = "long";

pub(crate) async fn measure_session_growth(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let retention = if measurement.store_kind == StoreKind::Sqlite {
        BenchFolderRetention::Keep
    } else {
        BenchFolderRetention::Delete
    };
    let database_folder =
        BenchDatabaseFolder::create_empty(&measurement.dir, &measurement.long_session_name(), retention)?;
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    bench_engine.run_turns(&"warm".into(), WARM_UP_TURNS).await?;
    let database_bytes =
        || if measurement.store_kind == StoreKind::Sqlite { database_folder.checkpointed_bytes() } else { Ok(0) };
    let (disk_start, written_bytes, rss) = (database_bytes()?, disk_written_bytes(), rss_mb());
    let session = SessionId::from(LONG_SESSION);
    let (mut times, mut cpus, mut disk_bytes) = (Vec::new(), Vec::new(), BTreeMap::new());
    let half_window = MEDIAN_WINDOW / 2;
    let measured_turns: Vec<usize> =
        MEASURED_TURNS.into_iter().filter(|turn_number| *turn_number <= measurement.turns).collect();
    for index in 0..measurement.turns + half_window {
        let (cpu, start) = (cpu_ms(), Instant::now());
        bench_engine.run_turn(&session, FirstOrLaterTurn::from_index(index)).await?;
        times.push(elapsed_ms(start));
        cpus.push(cpu_ms() - cpu);
        let turn = index + 1;
        if (turn >= 100 && measured_turns.contains(&turn)) || turn == measurement.turns {
            disk_bytes.insert(turn, database_bytes()? - disk_start);
        }
    }
    let written_bytes = disk_written_bytes() - written_bytes;
    let (rss_end, turns) = (rss_mb(), times.len());
    bench_engine.stop().await;
    let median_around = |values: &[f64], turn_number: usize| {
        let window = if turn_number == 1 {
            0..1
        } else {
            turn_number - 1 - half_window.min(turn_number - 1)..(turn_number + half_window).min(values.len())
        };
        round_significant(median(&values[window]))
    };
    let medians_by_turn = |values: &[f64]| -> BenchMeasurementFigures {
        measured_turns
            .iter()
            .map(|turn_number| (turn_number.to_string(), json!(median_around(values, *turn_number))))
            .collect()
    };
    let (last, tenth) = (measured_turns.last().copied().unwrap_or(1), 10.min(measurement.turns));
    let seconds: f64 = times.iter().sum::<f64>() / 1e3;
    let mut fields = json!({
        "turns": measurement.turns, "ms_at": medians_by_turn(&times), "cpu_ms_at": medians_by_turn(&cpus),
        "ratio_last_to_10": round_significant(median_around(&times, last) / median_around(&times, tenth)),
        "cpu_ratio_last_to_10": round_significant(median_around(&cpus, last) / median_around(&cpus, tenth)),
        "turns_per_s_all": round_significant(turns as f64 / seconds), "cpu_ms": round_significant(cpus.iter().sum::<f64>() / turns as f64),
        "rss_mb": round_significant(rss_end), "rss_grown_mb": round_significant(rss_end - rss),
    });
    if let (StoreKind::Sqlite, Value::Object(fields)) = (measurement.store_kind, &mut fields) {
        let per_turn: BTreeMap<_, _> =
            disk_bytes.iter().map(|(turn, bytes)| (turn.to_string(), bytes / *turn as u64)).collect();
        let end = disk_bytes.get(&measurement.turns).copied().unwrap_or_default() as f64 / measurement.turns as f64;
        fields.insert("disk_bytes".to_owned(), json!(disk_bytes));
        fields.insert("disk_bytes_per_turn".to_owned(), json!(per_turn));
        fields.insert("written_bytes_per_turn".to_owned(), json!((written_bytes / turns as f64).round()));
        fields.insert("new_text_bytes_per_turn".to_owned(), json!(measurement.shape.new_text_bytes()));
        fields.insert(
            "disk_to_text".to_owned(),
            json!(round_significant(end / measurement.shape.new_text_bytes() as f64)),
        );
    }
    Ok(vec![measurement.metric_row("grow", fields)])
}
