//! Forty turns of the assistant over its kitchen: how many tokens each node is shown, turn by turn. No time is measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use segue_core::event::{Event, Outcome};
use segue_core::ids::Seq;
use segue_domains::Records;
use segue_engine::tools::Tools;
use segue_engine::{Engine, Message, Opening, Setup};
use segue_flows::assistant::domain::Domain;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::RECORDS;
use segue_models::{Models, Scripted};
use segue_store::memory::MemoryStore;
use serde_json::json;

use super::{Job, Row};
use crate::stats::brief;

/// The models' side of the conversation; the tests play it too.
const SCRIPT: &str = include_str!("../../../domains/tests/assistant/forty_turns.toml");
const WISHES: [&str; 4] = [
    "please look at what we could cook",
    "weigh them for tonight, but no cod",
    "write me a stew of our own",
    "forget that one, put the pasta on the plan",
];
/// Turns whose figures are told.
const MARKS: [u32; 5] = [1, 5, 10, 20, 40];
/// Events read at a time.
const PAGE: usize = 512;

pub async fn measure(job: &Job) -> Result<Vec<Row>> {
    let model: Scripted = SCRIPT.parse()?;
    let records = Records::in_memory(Domains::new(Domain::shipped()));
    let store = Arc::new(MemoryStore::alone());
    let setup = Setup::new(store, segue_flows::all(), Models::only(Arc::new(model)), "scripted");
    let tools = Tools::default().with(RECORDS, Arc::new(records));
    let engine = Engine::start(Setup { tools, ..setup }).await?;
    let session = engine.open(&"assistant".into(), Opening::default()).await?;
    for turn in 0..job.turns {
        let message = format!("{} (this is message {})", WISHES[turn % WISHES.len()], turn + 1);
        let report = engine.ask(&session, Message::from(message.as_str())).await?;
        if report.outcome != Outcome::Done {
            bail!("turn {} ended with {:?}", turn + 1, report.outcome);
        }
    }
    let mut most: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
    let mut after = Seq(0);
    loop {
        let events = engine.events(&session, after, PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for recorded in &events {
            let Event::CallOpened(opened) = &recorded.event else { continue };
            let Some(turn) = opened.turn else { continue };
            let tokens = most.entry(opened.role.to_string()).or_default().entry(turn.0).or_default();
            *tokens = (*tokens).max(opened.receipt.tokens);
        }
    }
    engine.shutdown().await;
    Ok(most.iter().map(|(node, tokens)| row(job, node, tokens)).collect())
}

fn row(job: &Job, node: &str, tokens: &BTreeMap<u32, u32>) -> Row {
    let within = |from: u32, to: u32| f64::from(tokens.range(from..=to).map(|(_, tokens)| *tokens).max().unwrap_or(0));
    let last = u32::try_from(job.turns).unwrap_or(u32::MAX);
    let marks = MARKS.iter().filter_map(|mark| Some((mark.to_string(), *tokens.get(mark)?)));
    let grown = within(last.saturating_sub(7), last) / within(9, 16).max(1.0);
    job.row(
        "prompt",
        json!({
            "shape": node, "turns": job.turns, "tokens_at": marks.collect::<BTreeMap<_, _>>(), "tokens_of_turns": tokens,
            "tokens_most": within(1, last), "last_to_16": brief(grown),
        }),
    )
}
