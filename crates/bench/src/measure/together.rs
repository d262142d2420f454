//! Many sessions at once on one store, and beside them plain SQLite: group commit of as many bytes for as many writers, and
//! a bare loop that nobody waits for, with transactions and rows as large as theirs became.

use std::time::{Duration, Instant};

use anyhow::Result;
use segue_core::ids::{Seq, SessionId};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::raw::{Load, Raw};
use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground, Keep, Keeper, Nth};
use crate::machine::{cpu_ms, rss_mb};
use crate::stats::{brief, median, range, summary};

/// Turns of one session before the next takes its place.
const SESSION_TURNS: usize = 20;
/// More than a session of a wave has.
const RECORDS: usize = 10_000;
const RAW_TIME: Duration = Duration::from_millis(1_000);

pub async fn measure(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "conc", Keep::No)?;
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    let raw = match job.keeper {
        Keeper::Sqlite => Some(Raw::open(&job.dir)?),
        Keeper::Memory => None,
    };
    let mut crowd = Crowd { job, bed, wave: 0 };
    let mut tally = Tally::default();
    let size = if raw.is_some() { Some(crowd.commit_size(&ground).await?) } else { None };
    for _ in 0..job.reps {
        let before = match (&raw, size) {
            (Some(raw), Some(size)) => {
                let limit = raw.group_commits_per_s(job.sessions, size.given, RAW_TIME).await?;
                Some((raw, size, limit, ground.transactions()?, ground.commits()?))
            }
            _ => None,
        };
        let (cpu, start) = (cpu_ms(), Instant::now());
        let Wave { times, full_rate } = crowd.run(job.turns).await?;
        let seconds = start.elapsed().as_secs_f64();
        tally.cpu_ms += cpu_ms() - cpu;
        tally.rates.push(times.len() as f64 / seconds);
        tally.full_rates.push(full_rate);
        if let Some((raw, size, limit_before, transactions, commits)) = before {
            let commits = (ground.commits()? - commits) as f64;
            let group = commits / (ground.transactions()? - transactions).max(1) as f64;
            let load = Load { group: (group.round() as usize).max(1), row_bytes: size.kept };
            let commits_per_turn = commits / times.len() as f64;
            // Before and after, since the machine may have become faster or slower meanwhile.
            let limit_after = raw.group_commits_per_s(job.sessions, size.given, RAW_TIME).await?;
            let limit = f64::midpoint(limit_before, limit_after) / commits_per_turn;
            tally.groups.push(group);
            tally.raw_rates.push(limit);
            tally.shares.push(full_rate / limit);
            tally.bare_shares.push(full_rate * commits_per_turn / raw.rows_per_s(load, RAW_TIME)?);
            tally.commits_per_turn = commits_per_turn;
        }
        tally.times.extend(times);
    }
    let rss = rss_mb();
    crowd.bed.stop().await;
    let mut fields = tally.fields(job);
    fields.insert("rss_mb".to_owned(), json!(brief(rss)));
    if let Some(size) = size {
        fields.insert("row_bytes".to_owned(), json!(size.given));
        fields.insert("kept_bytes".to_owned(), json!(size.kept));
    }
    Ok(vec![job.row("conc", Value::Object(fields))])
}

/// How many bytes a commit has.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// As the engine brings it to the store.
    given: usize,
    /// In the file.
    kept: usize,
}

struct Crowd<'j> {
    job: &'j Job,
    bed: Bed,
    wave: usize,
}

/// What all places did together.
struct Wave {
    /// How long each turn took.
    times: Vec<f64>,
    /// Turns a second while all of them were at work: at the end some wait for others, which a limit that is measured over a
    /// span of time knows nothing of.
    full_rate: f64,
}

impl Crowd<'_> {
    /// Has every place make `turns` turns.
    async fn run(&mut self, turns: usize) -> Result<Wave> {
        self.wave += 1;
        let begun = Instant::now();
        let mut places = JoinSet::new();
        for place in 0..self.job.sessions {
            let (bed, name) = (self.bed.clone(), format!("c{}-{place}", self.wave));
            places.spawn(async move {
                let mut times = Vec::with_capacity(turns);
                let mut ends = Vec::with_capacity(turns);
                for turn in 0..turns {
                    let session = SessionId::from(format!("{name}-{}", turn / SESSION_TURNS));
                    let start = Instant::now();
                    bed.turn(&session, Nth::of(turn % SESSION_TURNS)).await?;
                    times.push(ms_since(start));
                    ends.push(ms_since(begun));
                }
                anyhow::Ok((times, ends))
            });
        }
        let mut all = Vec::with_capacity(turns * self.job.sessions);
        let (mut all_ends, mut first_out) = (Vec::with_capacity(all.capacity()), f64::INFINITY);
        while let Some(done) = places.join_next().await {
            let (times, ends) = done??;
            first_out = first_out.min(ends.last().copied().unwrap_or(f64::INFINITY));
            all.extend(times);
            all_ends.extend(ends);
        }
        let ended = all_ends.iter().filter(|end| **end <= first_out).count();
        Ok(Wave { times: all, full_rate: ended as f64 * 1_000.0 / first_out })
    }

    /// Warms up, and says how large a commit is.
    async fn commit_size(&mut self, ground: &Ground) -> Result<Size> {
        let (commits, bytes) = (ground.commits()?, ground.settled_bytes()?);
        self.run(SESSION_TURNS).await?;
        let (commits, bytes) = (ground.commits()? - commits, ground.settled_bytes()? - bytes);
        let commits = usize::try_from(commits)?.max(1);
        let store = self.bed.engine.store();
        let records = store.read(&SessionId::from(format!("c{}-0-0", self.wave)), Seq(0), RECORDS).await?;
        let events: usize = records.iter().map(|record| record.bytes.len()).sum();
        let texts = self.job.shape.new_text_bytes() * SESSION_TURNS;
        let given = (events + texts) * self.job.sessions / commits;
        Ok(Size { given, kept: usize::try_from(bytes)? / commits })
    }
}

#[derive(Default)]
struct Tally {
    times: Vec<f64>,
    rates: Vec<f64>,
    full_rates: Vec<f64>,
    raw_rates: Vec<f64>,
    shares: Vec<f64>,
    bare_shares: Vec<f64>,
    groups: Vec<f64>,
    commits_per_turn: f64,
    cpu_ms: f64,
}

impl Tally {
    fn fields(&self, job: &Job) -> Row {
        let fields = json!({
            "procs": 1, "sessions": job.sessions, "turns": job.turns, "reps": job.reps,
            "turns_per_s": brief(median(&self.rates)), "range": range(&self.rates), "lat_ms": summary(&self.times),
            "cpu_ms": brief(self.cpu_ms / self.times.len() as f64), "errors": 0,
        });
        let mut fields = fields.as_object().cloned().unwrap_or_default();
        if !self.shares.is_empty() {
            fields.insert("group".to_owned(), json!(brief(median(&self.groups))));
            fields.insert("full_turns_per_s".to_owned(), json!(brief(median(&self.full_rates))));
            fields.insert("commits_per_turn".to_owned(), json!(brief(self.commits_per_turn)));
            fields.insert("raw_turns_per_s".to_owned(), json!(brief(median(&self.raw_rates))));
            fields.insert("of_raw".to_owned(), json!(brief(median(&self.shares))));
            fields.insert("of_raw_range".to_owned(), range(&self.shares));
            fields.insert("of_bare".to_owned(), json!(brief(median(&self.bare_shares))));
        }
        fields
    }
}
