//! Fresh short sessions, one after the other, and beside them the bare loop that commits as often.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::sqlite_baseline::{BaselineLoad, SqliteBaseline};
use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, StoreKind, TurnPosition};
use crate::machine::cpu_ms;
use crate::stats::{median, min_and_max, round_significant, summarize_samples};

const WARM_UP_TURNS: usize = 8;
const CALIBRATION_TURNS: usize = 40;

pub async fn measure_sequential_turns(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "turns", FolderRetention::Delete)?;
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    bed.run_turns(&"warm".into(), WARM_UP_TURNS).await?;
    let mut beside = match job.store_kind {
        StoreKind::Sqlite => Some(BaselineComparison::calibrate(job, &bed, &ground).await?),
        StoreKind::Memory => None,
    };
    let (mut all, mut firsts, mut medians, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut cpu = 0.0;
    for rep in 0..job.repetitions {
        let session = SessionId::from(format!("s{rep}"));
        let mut times = Vec::with_capacity(job.turns);
        let (cpu_start, start) = (cpu_ms(), Instant::now());
        for place in 0..job.turns {
            let turn = Instant::now();
            bed.run_turn(&session, TurnPosition::from_index(place)).await?;
            times.push(elapsed_ms(turn));
        }
        let seconds = start.elapsed().as_secs_f64();
        cpu += cpu_ms() - cpu_start;
        rates.push(job.turns as f64 / seconds);
        firsts.push(times[0]);
        medians.push(median(&times[1..]));
        all.extend_from_slice(&times[1..]);
        if let Some(beside) = &mut beside {
            beside.compare(job.turns as f64 / seconds, Duration::from_secs_f64(seconds))?;
        }
    }
    bed.stop().await;
    let mut fields = summarize_samples(&all);
    let more = json!({
        "turns": job.turns, "reps": job.repetitions, "first_turn": round_significant(median(&firsts)), "rep_medians": min_and_max(&medians),
        "turns_per_s": round_significant(median(&rates)), "turns_per_s_range": min_and_max(&rates),
        "cpu_ms": round_significant(cpu / (job.repetitions * job.turns) as f64),
    });
    if let (Value::Object(more), beside) = (more, beside.map(|beside| beside.to_fields())) {
        fields.extend(more);
        fields.extend(beside.unwrap_or_default());
    }
    Ok(vec![job.metric_row("turn_ms", Value::Object(fields))])
}

/// The bare loop of one commit at a time.
struct BaselineComparison {
    baseline: SqliteBaseline,
    load: BaselineLoad,
    commits_per_turn: f64,
    rates: Vec<f64>,
    shares: Vec<f64>,
}

impl BaselineComparison {
    async fn calibrate(job: &Measurement, engine: &BenchEngine, folder: &DatabaseFolder) -> Result<Self> {
        let (commits, bytes) = (folder.count_commits()?, folder.checkpointed_bytes()?);
        engine.run_turns(&"calibration".into(), CALIBRATION_TURNS).await?;
        let commits = (folder.count_commits()? - commits) as f64;
        let bytes = (folder.checkpointed_bytes()? - bytes) as f64;
        Ok(Self {
            baseline: SqliteBaseline::create(&job.dir)?,
            load: BaselineLoad { rows_per_transaction: 1, row_bytes: (bytes / commits) as usize },
            commits_per_turn: commits / CALIBRATION_TURNS as f64,
            rates: Vec::new(),
            shares: Vec::new(),
        })
    }

    fn compare(&mut self, ours: f64, time: Duration) -> Result<()> {
        let turns = self.baseline.rows_per_s(self.load, time)? / self.commits_per_turn;
        self.rates.push(turns);
        self.shares.push(ours / turns);
        Ok(())
    }

    fn to_fields(&self) -> MetricRow {
        let fields = json!({
            "commits_per_turn": round_significant(self.commits_per_turn), "row_bytes": self.load.row_bytes, "group": 1,
            "raw_turns_per_s": round_significant(median(&self.rates)), "of_raw": round_significant(median(&self.shares)),
            "of_raw_range": min_and_max(&self.shares),
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
