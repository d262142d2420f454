//! Over forty turns, prompts stay within their budgets and do not grow with the conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::event::TurnOutcome;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::spec::assistant_flow_spec;
use segue_models::ScriptedModel;
use serde_json::Value;

use super::support::Kitchen;

/// Reads, compares, drafts and writes, again and again.
const SCRIPT: &str = include_str!("forty_turns.toml");
const TURNS: u32 = 40;
const MESSAGES: [&str; 4] = [
    "please look at what we could cook",
    "weigh them for tonight, but no cod",
    "write me a stew of our own",
    "forget that one, put the pasta on the plan",
];

/// Returns the largest prompt that a node's recipe allows, in tokens.
fn budget(role: &str) -> u32 {
    let spec = assistant_flow_spec(&ConfiguredDomains::new(DomainSchema::built_in()));
    let role = &spec.roles[role];
    let sum = |fragments: &[segue_core::context::FragmentSpec]| -> u32 {
        // Stable fragments have no budget; no instruction is longer than this.
        fragments.iter().map(|fragment| fragment.tokens_max.unwrap_or(1_500)).sum()
    };
    let asks = role.asks.values().map(|ask| sum(ask)).max().unwrap_or_default();
    sum(&role.opening) + asks
}

#[tokio::test]
async fn prompts_stay_within_budget_over_forty_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let model: ScriptedModel = SCRIPT.parse().expect("a sound script");
    let kitchen = Kitchen::open(Arc::new(model), &folder.path().join("records.db"), Value::Null).await;
    let mut tokens: BTreeMap<String, Vec<(u32, u32)>> = BTreeMap::new();
    for turn in 1..=TURNS {
        let message = MESSAGES[(turn as usize - 1) % MESSAGES.len()];
        let report = kitchen.send(&format!("{message} (this is message {turn})")).await;
        assert_eq!(report.outcome, TurnOutcome::Done, "turn {turn}");
        for call in kitchen.calls(turn).await.iter().filter(|call| call.ask == *"go" || call.role == *"summarize") {
            tokens.entry(call.role.to_string()).or_default().push((turn, call.receipt.tokens));
        }
    }
    for (role, shown) in &tokens {
        let most = shown.iter().map(|(_, tokens)| *tokens).max().unwrap_or_default();
        assert!(most < budget(role), "{role}: {most} of {}", budget(role));
        let within = |from: u32, to: u32| {
            shown.iter().filter(|(turn, _)| (from..=to).contains(turn)).map(|(_, tokens)| *tokens).max()
        };
        let (Some(early), Some(late)) = (within(9, 16), within(33, 40)) else { panic!("{role} spoke throughout") };
        assert!(
            f64::from(late) <= f64::from(early) * 1.05,
            "{role} grows: {early} tokens by turn 16, {late} by turn 40"
        );
    }
    assert_eq!(tokens.len(), 5);
    // The state stays small too.
    let (rules, state) = kitchen.engine.load_session(&kitchen.session).await.expect("readable");
    let bytes = rules.serialize_state(&state.flow).expect("it is data").to_string().len();
    assert!(bytes < 120_000, "{bytes}");
}
