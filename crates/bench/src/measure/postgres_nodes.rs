//! Nodes on PostgreSQL: concurrent sessions compared with plain PostgreSQL, two nodes compared with one, and the cost of
//! idle sessions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use segue_core::ids::{Seq, SessionId};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::concurrent_sessions::{
    BASELINE_DURATION, ConcurrentSessionsBench, ConcurrentSessionsRunResult, ConcurrentSessionsStats,
};
use super::memory::create_idle_sessions;
use super::postgres_baseline::PostgresBaseline;
use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchEngine, BenchPostgresDatabase, FirstOrLaterTurn};
use crate::machine::{cpu_ms, rss_mb};
use crate::stats::{median, min_and_max, round_significant};

/// Turns for the warm-up and the size of a commit.
const WARM_UP_TURNS: usize = 20;
/// More records than a session has after the warm-up.
const RECORDS_PAGE: usize = 10_000;
/// How long an idle node is observed.
const IDLE_OBSERVATION: Duration = Duration::from_secs(10);
/// Sessions of the smaller of the two idle nodes.
const FEW_SESSIONS: usize = 100;
/// Turns whose median is the time of a turn beside idle sessions.
const TIMED_TURNS: usize = 200;
const COMMITS_SQL: &str = "SELECT count(*) FROM segue_journal";

/// Measures concurrent sessions on one node, compared with plain PostgreSQL.
pub(super) async fn measure_postgres_sessions(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    let engine = BenchEngine::start(measurement.store_kind, measurement.shape, &measurement.dir).await?;
    let postgres = engine.postgres.clone().context("the store is PostgreSQL")?;
    let baseline = PostgresBaseline::create(&postgres).await?;
    let mut concurrent = ConcurrentSessionsBench::new(measurement, engine);
    let row_bytes = measure_commit_bytes(measurement, &mut concurrent, &postgres).await?;
    let raw_rate = || baseline.group_commits_per_s(measurement.sessions, row_bytes, BASELINE_DURATION);
    let mut stats = ConcurrentSessionsStats::default();
    for _ in 0..measurement.repetitions {
        // Measured before and after, because the machine may have become faster or slower meanwhile.
        let raw_before = raw_rate().await?;
        let (commits, groups) = (postgres.query_number(COMMITS_SQL)?, count_commit_groups(&concurrent.engine).await?);
        let (cpu, start) = (cpu_ms(), Instant::now());
        let ConcurrentSessionsRunResult { turn_times_ms, saturated_rate } =
            concurrent.run_turns(measurement.turns).await?;
        let seconds = start.elapsed().as_secs_f64();
        stats.cpu_ms += cpu_ms() - cpu;
        let commits = postgres.query_number(COMMITS_SQL)? - commits;
        let groups = count_commit_groups(&concurrent.engine).await? - groups;
        stats.commits_per_turn = commits / turn_times_ms.len() as f64;
        let raw_turns = f64::midpoint(raw_before, raw_rate().await?) / stats.commits_per_turn;
        stats.rates.push(turn_times_ms.len() as f64 / seconds);
        stats.saturated_rates.push(saturated_rate);
        stats.group_sizes.push(commits / groups.max(1.0));
        stats.baseline_rates.push(raw_turns);
        stats.baseline_shares.push(saturated_rate / raw_turns);
        stats.turn_times.extend(turn_times_ms);
    }
    let rss = rss_mb();
    concurrent.engine.stop().await;
    let mut fields = stats.to_fields(measurement);
    fields.insert("rss_mb".to_owned(), json!(round_significant(rss)));
    fields.insert("row_bytes".to_owned(), json!(row_bytes));
    Ok(vec![measurement.metric_row("conc", Value::Object(fields))])
}

async fn count_commit_groups(engine: &BenchEngine) -> Result<f64> {
    Ok(engine.engine.store().read_metrics().await?.commit_groups.unwrap_or_default() as f64)
}

/// Warms up, and returns the bytes that an average commit submits to the store.
async fn measure_commit_bytes(
    measurement: &BenchMeasurementSpec,
    concurrent: &mut ConcurrentSessionsBench<'_>,
    postgres: &BenchPostgresDatabase,
) -> Result<usize> {
    let commits = postgres.query_number(COMMITS_SQL)?;
    concurrent.run_turns(WARM_UP_TURNS).await?;
    let commits = postgres.query_number(COMMITS_SQL)? - commits;
    let store = concurrent.engine.engine.store();
    let records = store.read_records(&concurrent.first_session(), Seq(0), RECORDS_PAGE).await?;
    let events: usize = records.iter().map(|record| record.bytes.len()).sum();
    let texts = measurement.shape.new_text_bytes() * WARM_UP_TURNS;
    Ok(((events + texts) as f64 * measurement.sessions as f64 / commits.max(1.0)) as usize)
}

/// Measures the same sessions on one node and on two, alternately. The nodes share this process, but nothing else.
pub(crate) async fn measure_one_and_two_nodes(
    measurement: &BenchMeasurementSpec,
) -> Result<Vec<BenchMeasurementFigures>> {
    let first = BenchEngine::start(measurement.store_kind, measurement.shape, &measurement.dir).await?;
    let postgres = first.postgres.clone().context("the store is PostgreSQL")?;
    let second = BenchEngine::start_node(&postgres, measurement.shape).await?;
    run_sessions_on_nodes(&[&first, &second], measurement.sessions, WARM_UP_TURNS, "warm").await?;
    let (mut one, mut two, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..measurement.repetitions {
        let name = format!("one{repetition}");
        let rate_of_one = run_sessions_on_nodes(&[&first], measurement.sessions, measurement.turns, &name).await?;
        let name = format!("two{repetition}");
        let rate_of_two =
            run_sessions_on_nodes(&[&first, &second], measurement.sessions, measurement.turns, &name).await?;
        one.push(rate_of_one);
        two.push(rate_of_two);
        shares.push(rate_of_two / rate_of_one);
    }
    second.stop().await;
    first.stop().await;
    let fields = json!({
        "sessions": measurement.sessions, "one_turns_per_s": round_significant(median(&one)),
        "two_turns_per_s": round_significant(median(&two)), "two_to_one": round_significant(median(&shares)),
        "two_to_one_range": min_and_max(&shares),
    });
    Ok(vec![measurement.metric_row("nodes", fields)])
}

/// Runs new sessions, spread over nodes. Returns the turns per second of all.
async fn run_sessions_on_nodes(nodes: &[&BenchEngine], sessions: usize, turns: usize, name: &str) -> Result<f64> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..sessions {
        let (node, name) = (nodes[index % nodes.len()].clone(), format!("{name}-{index}"));
        tasks.spawn(async move {
            for turn in 0..turns {
                let session = SessionId::from(format!("{name}-{}", turn / WARM_UP_TURNS));
                node.run_turn(&session, FirstOrLaterTurn::from_index(turn % WARM_UP_TURNS)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok((sessions * turns) as f64 / start.elapsed().as_secs_f64())
}

/// What a node and its database do while all sessions are idle, and how long a turn takes meanwhile.
struct BenchIdleNodeCost {
    node_cpu_ms_per_s: f64,
    transactions_per_s: f64,
    rss_mb: f64,
    turn_ms: f64,
}

/// Measures an idle node with few sessions and with many.
pub(crate) async fn measure_idle_cost(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let engine = BenchEngine::start(measurement.store_kind, measurement.shape, &measurement.dir).await?;
    let postgres = engine.postgres.clone().context("the store is PostgreSQL")?;
    let few = FEW_SESSIONS.min(measurement.sessions / 2);
    create_idle_sessions(&engine, 0..few).await?;
    let with_few = observe_idle_node(&engine, &postgres, "few").await?;
    create_idle_sessions(&engine, few..measurement.sessions).await?;
    let with_many = observe_idle_node(&engine, &postgres, "many").await?;
    let bytes = postgres.query_number("SELECT pg_database_size(current_database())")?;
    engine.stop().await;
    let fields = json!({
        "few": few, "sessions": measurement.sessions,
        "few_cpu_ms_per_s": round_significant(with_few.node_cpu_ms_per_s),
        "cpu_ms_per_s": round_significant(with_many.node_cpu_ms_per_s),
        "few_transactions_per_s": round_significant(with_few.transactions_per_s),
        "transactions_per_s": round_significant(with_many.transactions_per_s),
        "few_rss_mb": round_significant(with_few.rss_mb), "rss_mb": round_significant(with_many.rss_mb),
        "few_turn_ms": round_significant(with_few.turn_ms), "turn_ms": round_significant(with_many.turn_ms),
        "turn_ratio": round_significant(with_many.turn_ms / with_few.turn_ms),
        "database_bytes_per_session": (bytes / measurement.sessions as f64).round(),
    });
    Ok(vec![measurement.metric_row("idlecost", fields)])
}

async fn observe_idle_node(
    engine: &BenchEngine,
    postgres: &BenchPostgresDatabase,
    name: &str,
) -> Result<BenchIdleNodeCost> {
    const TRANSACTIONS_SQL: &str =
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    super::memory::wait_until_quiet().await;
    let (transactions, cpu, start) = (postgres.query_number(TRANSACTIONS_SQL)?, cpu_ms(), Instant::now());
    tokio::time::sleep(IDLE_OBSERVATION).await;
    let seconds = start.elapsed().as_secs_f64();
    let (cpu, rss_mb) = (cpu_ms() - cpu, rss_mb());
    let transactions = postgres.query_number(TRANSACTIONS_SQL)? - transactions;
    let session = SessionId::from(format!("timed-{name}"));
    let mut times = Vec::new();
    for index in 0..TIMED_TURNS {
        let start = Instant::now();
        engine.run_turn(&session, FirstOrLaterTurn::from_index(index)).await?;
        times.push(elapsed_ms(start));
    }
    Ok(BenchIdleNodeCost {
        node_cpu_ms_per_s: cpu / seconds,
        transactions_per_s: transactions / seconds,
        rss_mb,
        turn_ms: median(&times),
    })
}
