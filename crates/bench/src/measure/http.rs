//! Turns through HTTP beside the same turns in process, and many open streams with events arriving in all of them.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use segue_server::{Options, Server};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground, Keep, Nth};
use crate::machine::{descriptors, rss_mb};
use crate::stats::{brief, median, percentile};
use crate::text;

const WARM_UP_TURNS: usize = 8;
/// More than any measurement asks.
const ENOUGH: usize = 1_000_000;

/// A server around a bed, and a client.
struct Served {
    bed: Bed,
    url: String,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Served {
    async fn start(job: &Job, ground: &Ground) -> Result<Self> {
        let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
        let mut options = Options::new(job.dir.clone());
        options.address.set_port(0);
        options.flow = job.shape.name().into();
        options.bounds.requests_per_minute_max = u32::MAX;
        options.bounds.streams_max = ENOUGH;
        options.bounds.turns_max = ENOUGH;
        let server = Server::bind(bed.engine.clone(), options).await?;
        let url = format!("http://127.0.0.1:{}", server.address().port());
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        // Whoever comes first sets it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(ENOUGH).build()?;
        Ok(Self { bed, url, client, stop, done })
    }

    async fn open(&self, session: &str) -> Result<()> {
        let body = json!({ "session": session });
        let answer = self.client.post(format!("{}/v1/sessions", self.url)).json(&body).send().await?;
        ensure!(answer.status().is_success(), "the session {session} was not opened: {}", answer.status());
        Ok(())
    }

    async fn turn(client: &reqwest::Client, url: &str, session: &str) -> Result<()> {
        let body = json!({ "text": text::user() });
        let answer = client.post(format!("{url}/v1/sessions/{session}/messages")).json(&body).send().await?;
        ensure!(answer.status().is_success(), "the turn was not taken: {}", answer.status());
        let report: serde_json::Value = answer.json().await?;
        ensure!(report["outcome"]["is"] == "done", "the turn ended as {}", report["outcome"]);
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(self.done.await?)
    }
}

/// Turns of many sessions at once, through HTTP and in process in turn.
pub async fn turns(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "http", Keep::No)?;
    let served = Served::start(job, &ground).await?;
    served.open("warm").await?;
    for _ in 0..WARM_UP_TURNS {
        Served::turn(&served.client, &served.url, "warm").await?;
    }
    let (mut over, mut within) = (Tally::default(), Tally::default());
    for rep in 0..job.reps {
        over.add(over_http(job, &served, rep).await?);
        within.add(in_process(job, &served.bed, rep).await?);
    }
    let rss = rss_mb();
    served.stop().await?;
    let shares: Vec<f64> = over.rates.iter().zip(&within.rates).map(|(over, within)| over / within).collect();
    let fields = json!({
        "sessions": job.sessions, "turns": job.turns, "reps": job.reps,
        "turns_per_s": brief(median(&over.rates)), "median": brief(median(&over.times)),
        "p99": brief(percentile(&over.times, 99)),
        "in_process_turns_per_s": brief(median(&within.rates)), "in_process_median": brief(median(&within.times)),
        "in_process_p99": brief(percentile(&within.times, 99)),
        "of_in_process": brief(median(&shares)), "rss_mb": brief(rss),
    });
    Ok(vec![job.row("http", fields)])
}

#[derive(Default)]
struct Tally {
    rates: Vec<f64>,
    times: Vec<f64>,
}

impl Tally {
    fn add(&mut self, (seconds, times): (f64, Vec<f64>)) {
        self.rates.push(times.len() as f64 / seconds);
        self.times.extend(times);
    }
}

async fn over_http(job: &Job, served: &Served, rep: usize) -> Result<(f64, Vec<f64>)> {
    for number in 0..job.sessions {
        served.open(&format!("h{rep}-{number}")).await?;
    }
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..job.sessions {
        let (client, url, turns) = (served.client.clone(), served.url.clone(), job.turns);
        clients.spawn(async move {
            let session = format!("h{rep}-{number}");
            let mut times = Vec::with_capacity(turns);
            for _ in 0..turns {
                let turn = Instant::now();
                Served::turn(&client, &url, &session).await?;
                times.push(ms_since(turn));
            }
            Ok::<_, anyhow::Error>(times)
        });
    }
    gather(clients, start).await
}

async fn in_process(job: &Job, bed: &Bed, rep: usize) -> Result<(f64, Vec<f64>)> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..job.sessions {
        let (bed, turns) = (bed.clone(), job.turns);
        clients.spawn(async move {
            let session = SessionId::from(format!("p{rep}-{number}"));
            let mut times = Vec::with_capacity(turns);
            for place in 0..turns {
                let turn = Instant::now();
                bed.turn(&session, Nth::of(place)).await?;
                times.push(ms_since(turn));
            }
            Ok::<_, anyhow::Error>(times)
        });
    }
    gather(clients, start).await
}

async fn gather(mut clients: JoinSet<Result<Vec<f64>>>, start: Instant) -> Result<(f64, Vec<f64>)> {
    let mut all = Vec::new();
    while let Some(times) = clients.join_next().await {
        all.extend(times??);
    }
    Ok((start.elapsed().as_secs_f64(), all))
}

/// Many open streams, each of a session of its own; then a turn in every session, until every stream has heard its end.
pub async fn streams(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::fresh(&job.dir, "streams", Keep::No)?;
    let served = Served::start(job, &ground).await?;
    served.open("warm").await?;
    Served::turn(&served.client, &served.url, "warm").await?;
    for number in 0..job.sessions {
        served.open(&format!("s{number}")).await?;
    }
    let (base, fds, start) = (rss_mb(), descriptors(), Instant::now());
    let mut live = Vec::new();
    let mut hearing = JoinSet::new();
    for number in 0..job.sessions {
        let (said, heard) = oneshot::channel();
        live.push(heard);
        let url = format!("{}/v1/sessions/s{number}/events", served.url);
        let request = served.client.get(url).header("accept", "text/event-stream");
        hearing.spawn(async move { hear(request, said).await });
    }
    for heard in live {
        heard.await.context("a stream broke off")?;
    }
    let opened_ms = ms_since(start);
    let (open, open_fds) = (rss_mb(), descriptors());
    let start = Instant::now();
    let bed = Arc::new(served.bed.clone());
    let mut turns = JoinSet::new();
    for number in 0..job.sessions {
        let bed = bed.clone();
        turns.spawn(async move { bed.turn(&SessionId::from(format!("s{number}")), Nth::Later).await });
    }
    while let Some(turn) = turns.join_next().await {
        turn??;
    }
    let mut events = 0;
    while let Some(heard) = hearing.join_next().await {
        events += heard??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let fields = json!({
        "streams": job.sessions, "opened_ms": brief(opened_ms), "events": events,
        "heard_ms": brief(seconds * 1e3), "events_per_s": brief(events as f64 / seconds),
        "base_mb": brief(base), "rss_mb": brief(open), "rss_mb_after": brief(rss_mb()),
        "kb_per_stream": brief((open - base) * 1e3 / job.sessions as f64), "fds": open_fds - fds,
    });
    served.stop().await?;
    Ok(vec![job.row("streams", fields)])
}

/// Reads a stream up to the end of a turn; how many events it had.
async fn hear(request: reqwest::RequestBuilder, live: oneshot::Sender<()>) -> Result<usize> {
    let mut response = request.send().await?;
    let (mut events, mut rest, mut live) = (0, String::new(), Some(live));
    while let Some(bytes) = response.chunk().await? {
        rest.push_str(std::str::from_utf8(&bytes)?);
        while let Some((event, later)) = rest.split_once("\n\n") {
            events += usize::from(event.contains("event: event"));
            if event.contains("event: live")
                && let Some(live) = live.take()
            {
                // Whoever waits may have gone.
                let _ = live.send(());
            }
            if event.contains("\"is\":\"turn_ended\"") {
                return Ok(events);
            }
            rest = later.to_owned();
        }
    }
    anyhow::bail!("a stream ended before its turn did")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::Keeper;
    use crate::flows::Shape;
    use crate::measure::What;

    fn job(what: What, sessions: usize, dir: &tempfile::TempDir) -> Job {
        let dir = dir.path().to_owned();
        Job { what, keeper: Keeper::Sqlite, shape: Shape::Single, turns: 3, reps: 1, sessions, dir }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn turns_over_http_are_measured_beside_those_in_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = turns(&job(What::Http, 2, &dir)).await.expect("measured");
        let figure = |name: &str| rows[0][name].as_f64().expect("a figure");
        assert!(figure("turns_per_s") > 0.0 && figure("in_process_turns_per_s") > 0.0, "{rows:?}");
        assert!(figure("p99") >= figure("median"), "{rows:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_stream_hears_all_of_its_turn() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = streams(&job(What::Streams, 20, &dir)).await.expect("measured");
        let events = rows[0]["events"].as_u64().expect("a count");
        assert!(events > 0 && events % 20 == 0, "all hear as many: {rows:?}");
    }
}
