//! Stored sessions stay readable. `golden/four_turns.jsonl` is an export of the conversation of four turns.
//! `golden/four_turns_early.jsonl` is the same without the fields that were added after the first version of a fact: no turn
//! summaries, no phases, no pending question. From format 1 on, neither is edited.

use std::sync::Arc;

use segue_core::event::TurnOutcome;
use segue_core::ids::SessionId;
use segue_engine::{Engine, UserMessage};
use segue_flows::assistant::registry::EntityRelevanceTier;
use segue_flows::assistant::state::AssistantState;
use segue_models::RehearsalModel;
use segue_store::memory::InMemoryStoreDisk;

use super::support::{engine, events};

const FULL: &str = include_str!("golden/four_turns.jsonl");
const EARLY: &str = include_str!("golden/four_turns_early.jsonl");

/// Imports a session into an engine whose tables contain only the samples.
async fn import_golden(text: &str) -> (Engine, SessionId, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Arc::new(RehearsalModel::instant());
    let (engine, _) = engine(&InMemoryStoreDisk::new(), model, &folder.path().join("records.db")).await;
    let session = engine.import_session(text.lines().map(str::to_owned), None).await.expect("it can be read");
    (engine, session, folder)
}

async fn assistant_state(engine: &Engine, session: &SessionId) -> AssistantState {
    let (_, state) = engine.load_session(session).await.expect("it folds");
    state.flow.downcast_ref::<AssistantState>().expect("it is the assistant's").clone()
}

#[tokio::test]
async fn a24_golden_session_loads_with_the_expected_state() {
    let (engine, session, _folder) = import_golden(FULL).await;
    let assistant_state = assistant_state(&engine, &session).await;
    assert_eq!(assistant_state.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [3, 4]);
    assert!(assistant_state.reasoning.compacted.is_some());
    assert_eq!(assistant_state.conversation.recent.len(), 4);
    assert_eq!(assistant_state.writes.len(), 1);
    let tier = |reference: &str| {
        assistant_state
            .entities
            .get(reference)
            .map(|entity| entity.relevance_tier(assistant_state.current_turn_number()))
    };
    assert_eq!(
        (tier("recipe_1"), tier("recipe_3")),
        (Some(EntityRelevanceTier::Active), Some(EntityRelevanceTier::Demoted))
    );
}

#[tokio::test]
async fn a24_session_without_newer_fields_loads_and_continues() {
    for field in [
        "summary",
        "pending",
        "quality",
        "skipped_steps",
        "complaints",
        "fully_loaded_type",
        "total",
        "note",
        "write_summaries",
        "curation",
    ] {
        let is_there = |text: &str| text.contains(&format!("\"{field}\":"));
        let facts: String = EARLY.lines().filter(|line| line.contains("\"type\":\"flow_fact_recorded\"")).collect();
        assert!(!is_there(&facts), "the early session knows nothing of `{field}`");
    }
    let (engine, session, _folder) = import_golden(EARLY).await;
    let before = assistant_state(&engine, &session).await;
    assert!(before.reasoning.recent.is_empty() && before.reasoning.compacted.is_none());
    assert_eq!(before.conversation.recent.len(), 4);
    assert!(before.entities.get("recipe_1").is_some_and(|entity| entity.label == "Lemon Herb Chicken"));
    let report = engine.send_and_wait(&session, UserMessage::from("what else could I cook?")).await.expect("answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    let after = assistant_state(&engine, &session).await;
    assert_eq!(after.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [5]);
    assert_eq!(after.conversation.recent.back().map(|exchange| exchange.turn), Some(5));
    let known = |assistant_state: &AssistantState| assistant_state.entities.counters.get("recipe").copied();
    assert!(known(&after) >= known(&before), "numbers go on");
    assert!(!events(&engine, &session).await.is_empty());
}
