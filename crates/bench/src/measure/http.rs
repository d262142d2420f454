//! Turns through HTTP beside the same turns in process, and many open streams with events arriving in all of them.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use segue_server::{HttpServer, ServerOptions};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder, FolderRetention, TurnPosition};
use crate::machine::{open_descriptor_count, rss_mb};
use crate::sample_text;
use crate::stats::{median, percentile, round_significant};

const WARM_UP_TURNS: usize = 8;
/// More than any measurement asks.
const UNLIMITED: usize = 1_000_000;

/// A server around a bed, and a client.
struct BenchServer {
    engine: BenchEngine,
    url: String,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl BenchServer {
    async fn start(job: &Measurement, folder: &DatabaseFolder) -> Result<Self> {
        let bed = BenchEngine::start(job.store_kind, job.shape, &folder.database_file()).await?;
        let mut options = ServerOptions::new(job.dir.clone());
        options.address.set_port(0);
        options.default_flow = job.shape.flow_name().into();
        options.limits.requests_per_minute_max = u32::MAX;
        options.limits.streams_max = UNLIMITED;
        options.limits.turns_max = UNLIMITED;
        let server = HttpServer::bind(bed.engine.clone(), options).await?;
        let url = format!("http://127.0.0.1:{}", server.local_address().port());
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        // Whoever comes first sets it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(UNLIMITED).build()?;
        Ok(Self { engine: bed, url, client, stop, done })
    }

    async fn open_session(&self, session: &str) -> Result<()> {
        let body = json!({ "session": session });
        let answer = self.client.post(format!("{}/v1/sessions", self.url)).json(&body).send().await?;
        ensure!(answer.status().is_success(), "the session {session} was not opened: {}", answer.status());
        Ok(())
    }

    async fn run_http_turn(client: &reqwest::Client, url: &str, session: &str) -> Result<()> {
        let body = json!({ "text": sample_text::next_user_message() });
        let answer = client.post(format!("{url}/v1/sessions/{session}/messages")).json(&body).send().await?;
        ensure!(answer.status().is_success(), "the turn was not taken: {}", answer.status());
        let report: serde_json::Value = answer.json().await?;
        ensure!(report["outcome"]["type"] == "done", "the turn ended as {}", report["outcome"]);
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(self.done.await?)
    }
}

/// Turns of many sessions at once, through HTTP and in process in turn.
pub async fn measure_http_turns(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "http", FolderRetention::Delete)?;
    let served = BenchServer::start(job, &ground).await?;
    served.open_session("warm").await?;
    for _ in 0..WARM_UP_TURNS {
        BenchServer::run_http_turn(&served.client, &served.url, "warm").await?;
    }
    let (mut over, mut within) = (HttpTurnStats::default(), HttpTurnStats::default());
    for rep in 0..job.repetitions {
        over.add_run(run_turns_over_http(job, &served, rep).await?);
        within.add_run(run_turns_in_process(job, &served.engine, rep).await?);
    }
    let rss = rss_mb();
    served.stop().await?;
    let shares: Vec<f64> = over.rates.iter().zip(&within.rates).map(|(over, within)| over / within).collect();
    let fields = json!({
        "sessions": job.sessions, "turns": job.turns, "reps": job.repetitions,
        "turns_per_s": round_significant(median(&over.rates)), "median": round_significant(median(&over.times)),
        "p99": round_significant(percentile(&over.times, 99)),
        "in_process_turns_per_s": round_significant(median(&within.rates)), "in_process_median": round_significant(median(&within.times)),
        "in_process_p99": round_significant(percentile(&within.times, 99)),
        "of_in_process": round_significant(median(&shares)), "rss_mb": round_significant(rss),
    });
    Ok(vec![job.metric_row("http", fields)])
}

#[derive(Default)]
struct HttpTurnStats {
    rates: Vec<f64>,
    times: Vec<f64>,
}

impl HttpTurnStats {
    fn add_run(&mut self, (seconds, times): (f64, Vec<f64>)) {
        self.rates.push(times.len() as f64 / seconds);
        self.times.extend(times);
    }
}

async fn run_turns_over_http(job: &Measurement, server: &BenchServer, rep: usize) -> Result<(f64, Vec<f64>)> {
    for number in 0..job.sessions {
        server.open_session(&format!("h{rep}-{number}")).await?;
    }
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..job.sessions {
        let (client, url, turns) = (server.client.clone(), server.url.clone(), job.turns);
        clients.spawn(async move {
            let session = format!("h{rep}-{number}");
            let mut times = Vec::with_capacity(turns);
            for _ in 0..turns {
                let turn = Instant::now();
                BenchServer::run_http_turn(&client, &url, &session).await?;
                times.push(elapsed_ms(turn));
            }
            Ok::<_, anyhow::Error>(times)
        });
    }
    collect_turn_times(clients, start).await
}

async fn run_turns_in_process(job: &Measurement, engine: &BenchEngine, rep: usize) -> Result<(f64, Vec<f64>)> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..job.sessions {
        let (bed, turns) = (engine.clone(), job.turns);
        clients.spawn(async move {
            let session = SessionId::from(format!("p{rep}-{number}"));
            let mut times = Vec::with_capacity(turns);
            for place in 0..turns {
                let turn = Instant::now();
                bed.run_turn(&session, TurnPosition::from_index(place)).await?;
                times.push(elapsed_ms(turn));
            }
            Ok::<_, anyhow::Error>(times)
        });
    }
    collect_turn_times(clients, start).await
}

async fn collect_turn_times(mut clients: JoinSet<Result<Vec<f64>>>, start: Instant) -> Result<(f64, Vec<f64>)> {
    let mut all = Vec::new();
    while let Some(times) = clients.join_next().await {
        all.extend(times??);
    }
    Ok((start.elapsed().as_secs_f64(), all))
}

/// Many open streams, each of a session of its own; then a turn in every session, until every stream has heard its end.
pub async fn measure_event_streams(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::create_empty(&job.dir, "streams", FolderRetention::Delete)?;
    let served = BenchServer::start(job, &ground).await?;
    served.open_session("warm").await?;
    BenchServer::run_http_turn(&served.client, &served.url, "warm").await?;
    for number in 0..job.sessions {
        served.open_session(&format!("s{number}")).await?;
    }
    let (base, fds, start) = (rss_mb(), open_descriptor_count(), Instant::now());
    let mut live = Vec::new();
    let mut hearing = JoinSet::new();
    for number in 0..job.sessions {
        let (said, heard) = oneshot::channel();
        live.push(heard);
        let url = format!("{}/v1/sessions/s{number}/events", served.url);
        let request = served.client.get(url).header("accept", "text/event-stream");
        hearing.spawn(async move { read_stream_until_turn_end(request, said).await });
    }
    for heard in live {
        heard.await.context("a stream broke off")?;
    }
    let opened_ms = elapsed_ms(start);
    let (open, open_fds) = (rss_mb(), open_descriptor_count());
    let start = Instant::now();
    let bed = Arc::new(served.engine.clone());
    let mut turns = JoinSet::new();
    for number in 0..job.sessions {
        let bed = bed.clone();
        turns.spawn(async move { bed.run_turn(&SessionId::from(format!("s{number}")), TurnPosition::Later).await });
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
        "streams": job.sessions, "opened_ms": round_significant(opened_ms), "events": events,
        "heard_ms": round_significant(seconds * 1e3), "events_per_s": round_significant(events as f64 / seconds),
        "base_mb": round_significant(base), "rss_mb": round_significant(open), "rss_mb_after": round_significant(rss_mb()),
        "kb_per_stream": round_significant((open - base) * 1e3 / job.sessions as f64), "fds": open_fds - fds,
    });
    served.stop().await?;
    Ok(vec![job.metric_row("streams", fields)])
}

/// Reads a stream up to the end of a turn; how many events it had.
async fn read_stream_until_turn_end(request: reqwest::RequestBuilder, live: oneshot::Sender<()>) -> Result<usize> {
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
            if event.contains("\"type\":\"turn_ended\"") {
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
    use crate::bench_engine::StoreKind;
    use crate::bench_flows::TurnShape;
    use crate::measure::MeasurementKind;

    fn job(what: MeasurementKind, sessions: usize, dir: &tempfile::TempDir) -> Measurement {
        let dir = dir.path().to_owned();
        Measurement {
            kind: what,
            store_kind: StoreKind::Sqlite,
            shape: TurnShape::Single,
            turns: 3,
            repetitions: 1,
            sessions,
            dir,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn turns_over_http_are_measured_beside_those_in_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = measure_http_turns(&job(MeasurementKind::Http, 2, &dir)).await.expect("measured");
        let figure = |name: &str| rows[0][name].as_f64().expect("a figure");
        assert!(figure("turns_per_s") > 0.0 && figure("in_process_turns_per_s") > 0.0, "{rows:?}");
        assert!(figure("p99") >= figure("median"), "{rows:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_stream_hears_all_of_its_turn() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = measure_event_streams(&job(MeasurementKind::Streams, 20, &dir)).await.expect("measured");
        let events = rows[0]["events"].as_u64().expect("a count");
        assert!(events > 0 && events % 20 == 0, "all hear as many: {rows:?}");
    }
}
