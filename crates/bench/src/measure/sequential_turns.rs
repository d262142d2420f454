//! New short sessions, one after the other, compared with a bare SQLite loop that commits as often.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::sqlite_baseline::{SqliteBaseline, SqliteBaselineLoad};
use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn, StoreKind};
use crate::machine::cpu_ms;
use crate::stats::{median, min_and_max, round_significant, summarize_samples};

const WARM_UP_TURNS: usize = 8;
const CALIBRATION_TURNS: usize = 40;

pub(crate) async fn measure_sequential_turns(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "turns", BenchFolderRetention::Delete)?;
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    bench_engine.run_turns(&"warm".into(), WARM_UP_TURNS).await?;
    let mut comparison = match measurement.store_kind {
        StoreKind::Sqlite => {
            Some(SqliteBaselineComparison::calibrate_baseline(measurement, &bench_engine, &database_folder).await?)
        }
        StoreKind::Memory | StoreKind::Postgres => None,
    };
    let (mut all_times, mut firsts, mut medians, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut cpu = 0.0;
    for repetition in 0..measurement.repetitions {
        let session = SessionId::from(format!("s{repetition}"));
        let mut times = Vec::with_capacity(measurement.turns);
        let (cpu_start, start) = (cpu_ms(), Instant::now());
        for index in 0..measurement.turns {
            let turn = Instant::now();
            bench_engine.run_turn(&session, FirstOrLaterTurn::from_index(index)).await?;
            times.push(elapsed_ms(turn));
        }
        let seconds = start.elapsed().as_secs_f64();
        cpu += cpu_ms() - cpu_start;
        rates.push(measurement.turns as f64 / seconds);
        firsts.push(times[0]);
        medians.push(median(&times[1..]));
        all_times.extend_from_slice(&times[1..]);
        if let Some(comparison) = &mut comparison {
            comparison.compare_with_baseline(measurement.turns as f64 / seconds, Duration::from_secs_f64(seconds))?;
        }
    }
    bench_engine.stop().await;
    let mut fields = summarize_samples(&all_times);
    let turn_fields = json!({
        "turns": measurement.turns, "reps": measurement.repetitions, "first_turn": round_significant(median(&firsts)), "rep_medians": min_and_max(&medians),
        "turns_per_s": round_significant(median(&rates)), "turns_per_s_range": min_and_max(&rates),
        "cpu_ms": round_significant(cpu / (measurement.repetitions * measurement.turns) as f64),
    });
    if let (Value::Object(turn_fields), comparison) = (turn_fields, comparison.map(|comparison| comparison.to_fields()))
    {
        fields.extend(turn_fields);
        fields.extend(comparison.unwrap_or_default());
    }
    Ok(vec![measurement.metric_row("turn_ms", Value::Object(fields))])
}

/// Comparison with a bare loop of one commit at a time.
struct SqliteBaselineComparison {
    baseline: SqliteBaseline,
    load: SqliteBaselineLoad,
    commits_per_turn: f64,
    rates: Vec<f64>,
    shares: Vec<f64>,
}

impl SqliteBaselineComparison {
    async fn calibrate_baseline(
        measurement: &BenchMeasurementSpec,
        engine: &BenchEngine,
        folder: &BenchDatabaseFolder,
    ) -> Result<Self> {
        let (commits, bytes) = (folder.count_commits()?, folder.checkpointed_bytes()?);
        engine.run_turns(&"calibration".into(), CALIBRATION_TURNS).await?;
        let commits = (folder.count_commits()? - commits) as f64;
        let bytes = (folder.checkpointed_bytes()? - bytes) as f64;
        Ok(Self {
            baseline: SqliteBaseline::create(&measurement.dir)?,
            load: SqliteBaselineLoad { rows_per_transaction: 1, row_bytes: (bytes / commits) as usize },
            commits_per_turn: commits / CALIBRATION_TURNS as f64,
            rates: Vec::new(),
            shares: Vec::new(),
        })
    }

    fn compare_with_baseline(&mut self, engine_rate: f64, time: Duration) -> Result<()> {
        let turns = self.baseline.rows_per_s(self.load, time)? / self.commits_per_turn;
        self.rates.push(turns);
        self.shares.push(engine_rate / turns);
        Ok(())
    }

    fn to_fields(&self) -> BenchMeasurementFigures {
        let fields = json!({
            "commits_per_turn": round_significant(self.commits_per_turn), "row_bytes": self.load.row_bytes, "group": 1,
            "raw_turns_per_s": round_significant(median(&self.rates)), "of_raw": round_significant(median(&self.shares)),
            "of_raw_range": min_and_max(&self.shares),
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
