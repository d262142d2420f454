//! Turns over HTTP compared with the same turns in process, and many open event streams.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use segue_core::ids::SessionId;
use segue_server::{BoundHttpServer, ServerOptions};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine, BenchFolderRetention, FirstOrLaterTurn};
use crate::machine::{open_descriptor_count, rss_mb};
use crate::sample_text;
use crate::stats::{median, percentile, round_significant};

const WARM_UP_TURNS: usize = 8;
/// More than any measurement uses.
const UNLIMITED: usize = 1_000_000;

/// An HTTP server for the measured engine, and a client.
pub(super) struct BenchServer {
    pub(super) engine: BenchEngine,
    url: String,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl BenchServer {
    pub(super) async fn start(measurement: &BenchMeasurementSpec, folder: &BenchDatabaseFolder) -> Result<Self> {
        let bench_engine =
            BenchEngine::start(measurement.store_kind, measurement.shape, &folder.database_file()).await?;
        let mut options = ServerOptions::new(segue_server::CrossServerSharedState::from_folder(&measurement.dir));
        options.address.set_port(0);
        options.default_flow = measurement.shape.flow_name().into();
        options.limits.requests_per_minute_max = u32::MAX;
        options.limits.streams_max = UNLIMITED;
        options.limits.turns_max = UNLIMITED;
        let server = BoundHttpServer::bind(bench_engine.engine.clone(), options).await?;
        let url = format!("http://127.0.0.1:{}", server.local_address().port());
        let (stop, stop_receiver) = oneshot::channel();
        let done = tokio::spawn(server.run(async move {
            let _ = stop_receiver.await;
        }));
        // Fails if the provider is installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(UNLIMITED).build()?;
        Ok(Self { engine: bench_engine, url, client, stop, done })
    }

    /// Sends a GET request. Returns the status when the body has arrived.
    pub(super) async fn get(&self, path: &str) -> Result<reqwest::StatusCode> {
        let response = self.client.get(format!("{}{path}", self.url)).send().await?;
        let status = response.status();
        response.bytes().await?;
        Ok(status)
    }

    async fn open_session(&self, session: &str) -> Result<()> {
        let body = json!({ "session": session });
        let response = self.client.post(format!("{}/v1/sessions", self.url)).json(&body).send().await?;
        ensure!(response.status().is_success(), "the session {session} was not opened: {}", response.status());
        Ok(())
    }

    async fn run_http_turn(client: &reqwest::Client, url: &str, session: &str) -> Result<()> {
        let body = json!({ "text": sample_text::next_user_message() });
        let response = client.post(format!("{url}/v1/sessions/{session}/messages")).json(&body).send().await?;
        ensure!(response.status().is_success(), "the message was refused: {}", response.status());
        let report: serde_json::Value = response.json().await?;
        ensure!(report["outcome"]["type"] == "done", "the turn ended as {}", report["outcome"]);
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(self.done.await?)
    }
}

/// Runs turns of concurrent sessions, alternately over HTTP and in process.
pub(crate) async fn measure_http_turns(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "http", BenchFolderRetention::Delete)?;
    let server = BenchServer::start(measurement, &database_folder).await?;
    server.open_session("warm").await?;
    for _ in 0..WARM_UP_TURNS {
        BenchServer::run_http_turn(&server.client, &server.url, "warm").await?;
    }
    let (mut http_stats, mut in_process_stats) = (TurnRatesAndTimes::default(), TurnRatesAndTimes::default());
    for repetition in 0..measurement.repetitions {
        http_stats.add_run(run_turns_over_http(measurement, &server, repetition).await?);
        in_process_stats.add_run(run_turns_in_process(measurement, &server.engine, repetition).await?);
    }
    let rss = rss_mb();
    server.stop().await?;
    let shares: Vec<f64> =
        http_stats.rates.iter().zip(&in_process_stats.rates).map(|(http, in_process)| http / in_process).collect();
    let fields = json!({
        "sessions": measurement.sessions, "turns": measurement.turns, "reps": measurement.repetitions,
        "turns_per_s": round_significant(median(&http_stats.rates)), "median": round_significant(median(&http_stats.times)),
        "p99": round_significant(percentile(&http_stats.times, 99)),
        "in_process_turns_per_s": round_significant(median(&in_process_stats.rates)), "in_process_median": round_significant(median(&in_process_stats.times)),
        "in_process_p99": round_significant(percentile(&in_process_stats.times, 99)),
        "of_in_process": round_significant(median(&shares)), "rss_mb": round_significant(rss),
    });
    Ok(vec![measurement.metric_row("http", fields)])
}

#[derive(Default)]
struct TurnRatesAndTimes {
    rates: Vec<f64>,
    times: Vec<f64>,
}

impl TurnRatesAndTimes {
    fn add_run(&mut self, (seconds, times): (f64, Vec<f64>)) {
        self.rates.push(times.len() as f64 / seconds);
        self.times.extend(times);
    }
}

async fn run_turns_over_http(
    measurement: &BenchMeasurementSpec,
    server: &BenchServer,
    repetition: usize,
) -> Result<(f64, Vec<f64>)> {
    for number in 0..measurement.sessions {
        server.open_session(&format!("h{repetition}-{number}")).await?;
    }
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..measurement.sessions {
        let (client, url, turns) = (server.client.clone(), server.url.clone(), measurement.turns);
        clients.spawn(async move {
            let session = format!("h{repetition}-{number}");
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

async fn run_turns_in_process(
    measurement: &BenchMeasurementSpec,
    engine: &BenchEngine,
    repetition: usize,
) -> Result<(f64, Vec<f64>)> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..measurement.sessions {
        let (bench_engine, turns) = (engine.clone(), measurement.turns);
        clients.spawn(async move {
            let session = SessionId::from(format!("p{repetition}-{number}"));
            let mut times = Vec::with_capacity(turns);
            for index in 0..turns {
                let turn = Instant::now();
                bench_engine.run_turn(&session, FirstOrLaterTurn::from_index(index)).await?;
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

/// Opens many event streams, one per session; then runs a turn in every session until every stream has received its
/// end.
pub(crate) async fn measure_event_streams(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "streams", BenchFolderRetention::Delete)?;
    let server = BenchServer::start(measurement, &database_folder).await?;
    server.open_session("warm").await?;
    BenchServer::run_http_turn(&server.client, &server.url, "warm").await?;
    for number in 0..measurement.sessions {
        server.open_session(&format!("s{number}")).await?;
    }
    let (base_mb, descriptors_before, start) = (rss_mb(), open_descriptor_count(), Instant::now());
    let mut live_receivers = Vec::new();
    let mut streams = JoinSet::new();
    for number in 0..measurement.sessions {
        let (live_sender, live_receiver) = oneshot::channel();
        live_receivers.push(live_receiver);
        let url = format!("{}/v1/sessions/s{number}/events", server.url);
        let request = server.client.get(url).header("accept", "text/event-stream");
        streams.spawn(async move { read_stream_until_turn_end(request, live_sender).await });
    }
    for live_receiver in live_receivers {
        live_receiver.await.context("a stream was closed")?;
    }
    let opened_ms = elapsed_ms(start);
    let (open_mb, descriptors_open) = (rss_mb(), open_descriptor_count());
    let start = Instant::now();
    let bench_engine = Arc::new(server.engine.clone());
    let mut turns = JoinSet::new();
    for number in 0..measurement.sessions {
        let bench_engine = bench_engine.clone();
        turns.spawn(async move {
            bench_engine.run_turn(&SessionId::from(format!("s{number}")), FirstOrLaterTurn::Later).await
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn??;
    }
    let mut events = 0;
    while let Some(stream_events) = streams.join_next().await {
        events += stream_events??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let fields = json!({
        "streams": measurement.sessions, "opened_ms": round_significant(opened_ms), "events": events,
        "heard_ms": round_significant(seconds * 1e3), "events_per_s": round_significant(events as f64 / seconds),
        "base_mb": round_significant(base_mb), "rss_mb": round_significant(open_mb), "rss_mb_after": round_significant(rss_mb()),
        "kb_per_stream": round_significant((open_mb - base_mb) * 1e3 / measurement.sessions as f64), "fds": descriptors_open - descriptors_before,
    });
    server.stop().await?;
    Ok(vec![measurement.metric_row("streams", fields)])
}

/// Reads a stream up to the end of a turn. Returns the number of events.
async fn read_stream_until_turn_end(
    request: reqwest::RequestBuilder,
    live_sender: oneshot::Sender<()>,
) -> Result<usize> {
    let mut response = request.send().await?;
    let (mut events, mut rest, mut live_sender) = (0, String::new(), Some(live_sender));
    while let Some(bytes) = response.chunk().await? {
        rest.push_str(std::str::from_utf8(&bytes)?);
        while let Some((event, remaining)) = rest.split_once("\n\n") {
            events += usize::from(event.contains("event: event"));
            if event.contains("event: live")
                && let Some(sender) = live_sender.take()
            {
                // The receiver may be gone.
                let _ = sender.send(());
            }
            if event.contains("\"type\":\"turn_ended\"") {
                return Ok(events);
            }
            rest = remaining.to_owned();
        }
    }
    anyhow::bail!("a stream ended before its turn did")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_engine::StoreKind;
    use crate::bench_flows::BenchTurnShape;
    use crate::measure::BenchWorkloadKind;

    fn measurement(kind: BenchWorkloadKind, sessions: usize, dir: &tempfile::TempDir) -> BenchMeasurementSpec {
        let dir = dir.path().to_owned();
        BenchMeasurementSpec {
            kind,
            store_kind: StoreKind::Sqlite,
            shape: BenchTurnShape::Single,
            turns: 3,
            repetitions: 1,
            sessions,
            dir,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn turns_are_measured_over_http_and_in_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = measure_http_turns(&measurement(BenchWorkloadKind::Http, 2, &dir)).await.expect("measured");
        let figure = |name: &str| rows[0][name].as_f64().expect("a figure");
        assert!(figure("turns_per_s") > 0.0 && figure("in_process_turns_per_s") > 0.0, "{rows:?}");
        assert!(figure("p99") >= figure("median"), "{rows:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_stream_receives_all_events_of_its_turn() {
        let dir = tempfile::tempdir().expect("a folder");
        let rows = measure_event_streams(&measurement(BenchWorkloadKind::Streams, 20, &dir)).await.expect("measured");
        let events = rows[0]["events"].as_u64().expect("a count");
        assert!(events > 0 && events % 20 == 0, "all receive equally many: {rows:?}");
    }
}
