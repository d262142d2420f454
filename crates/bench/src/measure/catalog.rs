//! What the session list, the search, readiness and the change feed cost with few and with many sessions.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use segue_core::ids::SessionId;
use segue_store::SessionQuery;
use serde_json::json;

use super::http::BenchServer;
use super::memory::create_idle_sessions;
use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchFolderRetention, FirstOrLaterTurn};
use crate::stats::{median, round_significant};

/// Sessions of the smaller catalog.
const FEW_SESSIONS: usize = 1_000;
/// Entries of a list, as the server asks for by default.
const LIST_ENTRIES: usize = 50;
/// How far from the newest session the one is that the search by title finds.
const SEARCHED_RANK: usize = 20;
/// Unmeasured repetitions, so that caches are warm.
const WARM_UP_REPETITIONS: usize = 5;

/// Measures with few sessions, adds sessions, and measures again.
pub(crate) async fn measure_session_catalog(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::create_empty(&measurement.dir, "catalog", BenchFolderRetention::Delete)?;
    let server = BenchServer::start(measurement, &database_folder).await?;
    let few = FEW_SESSIONS.min(measurement.sessions / 2);
    create_idle_sessions(&server.engine, 0..few).await?;
    let with_few = measure_queries(measurement, &server, few).await?;
    create_idle_sessions(&server.engine, few..measurement.sessions).await?;
    let with_many = measure_queries(measurement, &server, measurement.sessions).await?;
    server.stop().await?;
    let rows = with_few.iter().zip(&with_many).map(|((name, few_ms), (_, many_ms))| {
        let fields = json!({
            "shape": name, "few": few, "many": measurement.sessions, "few_ms": round_significant(*few_ms),
            "many_ms": round_significant(*many_ms), "many_to_few": round_significant(many_ms / few_ms),
        });
        measurement.metric_row("catalog", fields)
    });
    Ok(rows.collect())
}

/// Returns the median time of each query in milliseconds.
async fn measure_queries(
    measurement: &BenchMeasurementSpec,
    server: &BenchServer,
    sessions: usize,
) -> Result<Vec<(&'static str, f64)>> {
    let engine = &server.engine;
    let newest = engine.engine.list_sessions(&SessionQuery::newest(SEARCHED_RANK)).await?.entries;
    ensure!(newest.len() == SEARCHED_RANK, "the list has {} sessions", newest.len());
    let title = newest[SEARCHED_RANK - 1].summary.title.clone();
    let search = |text: String, limit| SessionQuery { text: Some(text), ..SessionQuery::newest(limit) };
    let mut times: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for repetition in 0..WARM_UP_REPETITIONS + measurement.repetitions {
        let mut measured: Vec<(&'static str, f64)> = Vec::new();
        let start = Instant::now();
        let listed = engine.engine.list_sessions(&SessionQuery::newest(LIST_ENTRIES)).await?.entries.len();
        measured.push(("list", elapsed_ms(start)));
        ensure!(listed == LIST_ENTRIES, "the list has {listed} sessions");
        let start = Instant::now();
        let found = engine.engine.list_sessions(&search(title.clone(), 1)).await?.entries.len();
        measured.push(("search title", elapsed_ms(start)));
        ensure!(found == 1, "the search found {found} sessions");
        let start = Instant::now();
        let page = engine.engine.store().list_sessions(&search("no text has this".to_owned(), LIST_ENTRIES)).await?;
        measured.push(("search page", elapsed_ms(start)));
        ensure!(page.entries.is_empty(), "the search found something");
        let start = Instant::now();
        let ready = server.get("/ready").await?;
        measured.push(("ready", elapsed_ms(start)));
        ensure!(ready.is_success(), "the server is not ready: {ready}");
        let cursor = engine.engine.session_changes_after(None, 1).await?.next_cursor;
        engine.run_turn(&SessionId::from(format!("i{}", sessions / 2)), FirstOrLaterTurn::Later).await?;
        let start = Instant::now();
        let changes = engine.engine.session_changes_after(Some(cursor), LIST_ENTRIES).await?.changes.len();
        measured.push(("changes", elapsed_ms(start)));
        ensure!(changes == 1, "the feed has {changes} changes");
        if repetition >= WARM_UP_REPETITIONS {
            measured.into_iter().for_each(|(name, ms)| times.entry(name).or_default().push(ms));
        }
    }
    Ok(times.into_iter().map(|(name, times)| (name, median(&times))).collect())
}
