//! Runs forty turns of the assistant in its kitchen domain and counts the prompt tokens of each node, turn by turn.
//! Measures no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::Seq;
use segue_domains::SqliteRecordsTool;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::RECORDS_TOOL;
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::InMemoryStore;
use serde_json::json;

use super::{BenchMeasurementFigures, BenchMeasurementSpec};
use crate::stats::round_significant;

/// The model's side of the conversation; tests use it too.
const MODEL_SCRIPT: &str = include_str!("../../../domains/tests/assistant/forty_turns.toml");
const USER_MESSAGES: [&str; 4] = [
    "please look at what we could cook",
    "weigh them for tonight, but no cod",
    "write me a stew of our own",
    "forget that one, put the pasta on the plan",
];
/// Turns whose figures are reported.
const MEASURED_TURNS: [u32; 5] = [1, 5, 10, 20, 40];
/// Events read at a time.
const EVENTS_PAGE: usize = 512;

pub(crate) async fn measure_prompt_sizes(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let model: ScriptedModel = MODEL_SCRIPT.parse()?;
    let records = SqliteRecordsTool::in_memory(ConfiguredDomains::new(DomainSchema::built_in()));
    let store = Arc::new(InMemoryStore::with_own_disk());
    let config = EngineConfig::new(
        store,
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(Arc::new(model)),
        "scripted",
    );
    let tools = ToolRegistry::default().with_tool(RECORDS_TOOL, Arc::new(records));
    let engine = Engine::start(EngineConfig { tools, ..config }).await?;
    let session = engine.open_session(&"assistant".into(), SessionOptions::default()).await?;
    for turn in 0..measurement.turns {
        let message = format!("{} (this is message {})", USER_MESSAGES[turn % USER_MESSAGES.len()], turn + 1);
        let report = engine.send_and_wait(&session, UserMessage::from(message.as_str())).await?;
        if report.outcome != TurnOutcome::Done {
            bail!("turn {} ended with {:?}", turn + 1, report.outcome);
        }
    }
    let mut tokens_by_node: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
    let mut after = Seq(0);
    loop {
        let events = engine.read_events(&session, after, EVENTS_PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for recorded in &events {
            let Event::CallOpened(opened) = &recorded.event else { continue };
            let Some(turn) = opened.turn else { continue };
            let tokens = tokens_by_node.entry(opened.role.to_string()).or_default().entry(turn.0).or_default();
            *tokens = (*tokens).max(opened.receipt.tokens);
        }
    }
    engine.shutdown().await;
    Ok(tokens_by_node.iter().map(|(node, tokens)| prompt_size_row(measurement, node, tokens)).collect())
}

fn prompt_size_row(
    measurement: &BenchMeasurementSpec,
    node: &str,
    tokens: &BTreeMap<u32, u32>,
) -> BenchMeasurementFigures {
    let max_tokens_in =
        |from: u32, to: u32| f64::from(tokens.range(from..=to).map(|(_, tokens)| *tokens).max().unwrap_or(0));
    let last = u32::try_from(measurement.turns).unwrap_or(u32::MAX);
    let measured = MEASURED_TURNS.iter().filter_map(|turn| Some((turn.to_string(), *tokens.get(turn)?)));
    let growth = max_tokens_in(last.saturating_sub(7), last) / max_tokens_in(9, 16).max(1.0);
    measurement.metric_row(
        "prompt",
        json!({
            "shape": node, "turns": measurement.turns, "tokens_at": measured.collect::<BTreeMap<_, _>>(), "tokens_of_turns": tokens,
            "tokens_most": max_tokens_in(1, last), "last_to_16": round_significant(growth),
        }),
    )
}
