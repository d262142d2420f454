//! Sessions that were written once are read for ever. `golden/four_turns.jsonl` is the conversation of four turns as it was
//! exported when the flow was first complete; `golden/four_turns_early.jsonl` is the same without any field that came later than
//! the first version of a fact: no summaries of turns, no phases, nothing pending. Neither is ever edited.

use std::sync::Arc;

use segue_core::event::TurnResult;
use segue_core::ids::SessionId;
use segue_engine::{Engine, UserMessage};
use segue_flows::assistant::registry::RelevanceTier;
use segue_flows::assistant::state::AssistantState;
use segue_models::RehearsalModel;
use segue_store::memory::MemoryDisk;

use super::kitchen::{engine, events};

const FULL: &str = include_str!("golden/four_turns.jsonl");
const EARLY: &str = include_str!("golden/four_turns_early.jsonl");

/// The session of a file, in an engine whose tables hold nothing but samples.
async fn imported(text: &str) -> (Engine, SessionId, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Arc::new(RehearsalModel::instant());
    let (engine, _) = engine(&MemoryDisk::new(), model, &folder.path().join("records.db")).await;
    let session = engine.import_session(text.lines().map(str::to_owned), None).await.expect("it can be read");
    (engine, session, folder)
}

async fn memory(engine: &Engine, session: &SessionId) -> AssistantState {
    let (_, state) = engine.load_session(session).await.expect("it folds");
    state.flow.downcast_ref::<AssistantState>().expect("it is the assistant's").clone()
}

#[tokio::test]
async fn a24_a_session_of_the_first_complete_version_folds_to_what_it_was() {
    let (engine, session, _folder) = imported(FULL).await;
    let memory = memory(&engine, &session).await;
    assert_eq!(memory.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [3, 4]);
    assert!(memory.reasoning.compacted.is_some());
    assert_eq!(memory.conversation.recent.len(), 4);
    assert_eq!(memory.writes.len(), 1);
    let tier = |reference: &str| memory.entities.get(reference).map(|entity| entity.tier(memory.current_turn_number()));
    assert_eq!((tier("recipe_1"), tier("recipe_3")), (Some(RelevanceTier::Active), Some(RelevanceTier::Demoted)));
}

#[tokio::test]
async fn a24_a_session_without_the_newer_fields_loads_and_goes_on() {
    for field in ["summary", "pending", "how", "skipped", "complaints", "all_of", "total", "note", "wrote", "curation"]
    {
        let is_there = |text: &str| text.contains(&format!("\"{field}\":"));
        let facts: String = EARLY.lines().filter(|line| line.contains("\"type\":\"fact\"")).collect();
        assert!(!is_there(&facts), "the early session knows nothing of `{field}`");
    }
    let (engine, session, _folder) = imported(EARLY).await;
    let before = memory(&engine, &session).await;
    assert!(before.reasoning.recent.is_empty() && before.reasoning.compacted.is_none());
    assert_eq!(before.conversation.recent.len(), 4);
    assert!(before.entities.get("recipe_1").is_some_and(|entity| entity.label == "Lemon Herb Chicken"));
    let report = engine.send_and_wait(&session, UserMessage::from("what else could I cook?")).await.expect("answered");
    assert_eq!(report.outcome, TurnResult::Done);
    let after = memory(&engine, &session).await;
    assert_eq!(after.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [5]);
    assert_eq!(after.conversation.recent.back().map(|exchange| exchange.turn), Some(5));
    let known = |memory: &AssistantState| memory.entities.counters.get("recipe").copied();
    assert!(known(&after) >= known(&before), "numbers go on");
    assert!(!events(&engine, &session).await.is_empty());
}
