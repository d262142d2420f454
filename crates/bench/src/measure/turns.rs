//! Fresh short sessions, one after the other, and beside them the bare loop that commits as often.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::raw::{Load, Raw};
use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground, Keep, Keeper, Nth};
use crate::machine::cpu_ms;
use crate::stats::{brief, median, range, summary};

const WARM_UP_TURNS: usize = 8;
const CALIBRATION_TURNS: usize = 40;

pub async fn measure(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "turns", Keep::No)?;
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    bed.turns(&"warm".into(), WARM_UP_TURNS).await?;
    let mut beside = match job.keeper {
        Keeper::Sqlite => Some(Beside::calibrate(job, &bed, &ground).await?),
        Keeper::Memory => None,
    };
    let (mut all, mut firsts, mut medians, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut cpu = 0.0;
    for rep in 0..job.reps {
        let session = SessionId::from(format!("s{rep}"));
        let mut times = Vec::with_capacity(job.turns);
        let (cpu_start, start) = (cpu_ms(), Instant::now());
        for place in 0..job.turns {
            let turn = Instant::now();
            bed.turn(&session, Nth::of(place)).await?;
            times.push(ms_since(turn));
        }
        let seconds = start.elapsed().as_secs_f64();
        cpu += cpu_ms() - cpu_start;
        rates.push(job.turns as f64 / seconds);
        firsts.push(times[0]);
        medians.push(median(&times[1..]));
        all.extend_from_slice(&times[1..]);
        if let Some(beside) = &mut beside {
            beside.run(job.turns as f64 / seconds, Duration::from_secs_f64(seconds))?;
        }
    }
    bed.stop().await;
    let mut fields = summary(&all);
    let more = json!({
        "turns": job.turns, "reps": job.reps, "first_turn": brief(median(&firsts)), "rep_medians": range(&medians),
        "turns_per_s": brief(median(&rates)), "turns_per_s_range": range(&rates),
        "cpu_ms": brief(cpu / (job.reps * job.turns) as f64),
    });
    if let (Value::Object(more), beside) = (more, beside.map(|beside| beside.fields())) {
        fields.extend(more);
        fields.extend(beside.unwrap_or_default());
    }
    Ok(vec![job.row("turn_ms", Value::Object(fields))])
}

/// The bare loop of one commit at a time.
struct Beside {
    raw: Raw,
    load: Load,
    commits_per_turn: f64,
    rates: Vec<f64>,
    shares: Vec<f64>,
}

impl Beside {
    async fn calibrate(job: &Job, bed: &Bed, ground: &Ground) -> Result<Self> {
        let (commits, bytes) = (ground.commits()?, ground.settled_bytes()?);
        bed.turns(&"calibration".into(), CALIBRATION_TURNS).await?;
        let commits = (ground.commits()? - commits) as f64;
        let bytes = (ground.settled_bytes()? - bytes) as f64;
        Ok(Self {
            raw: Raw::open(&job.dir)?,
            load: Load { group: 1, row_bytes: (bytes / commits) as usize },
            commits_per_turn: commits / CALIBRATION_TURNS as f64,
            rates: Vec::new(),
            shares: Vec::new(),
        })
    }

    fn run(&mut self, ours: f64, time: Duration) -> Result<()> {
        let turns = self.raw.rows_per_s(self.load, time)? / self.commits_per_turn;
        self.rates.push(turns);
        self.shares.push(ours / turns);
        Ok(())
    }

    fn fields(&self) -> Row {
        let fields = json!({
            "commits_per_turn": brief(self.commits_per_turn), "row_bytes": self.load.row_bytes, "group": 1,
            "raw_turns_per_s": brief(median(&self.rates)), "of_raw": brief(median(&self.shares)),
            "of_raw_range": range(&self.shares),
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
