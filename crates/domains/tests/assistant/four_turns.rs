//! A conversation of four turns: agree, find, narrow down, write.

use std::sync::Arc;

use segue_core::context::{FragmentReceipt, PreviousPromptComparison};
use segue_core::decide::OperatorCommand;
use segue_core::event::TurnOutcome;
use segue_flows::assistant::tools::DomainToolRequest;
use segue_models::ScriptedModel;
use segue_models::scripted::Scenario;
use serde_json::Value;

use super::support::{Kitchen, has_uuid};

const SCRIPT: &str = include_str!("four_turns.toml");

/// Plays the scenario and checks its expectations.
async fn play_four_turns() -> (Kitchen, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario: Scenario = SCRIPT.parse().expect("a sound scenario");
    let model: ScriptedModel = SCRIPT.parse().expect("a sound script");
    let kitchen = Kitchen::open(Arc::new(model), &folder.path().join("records.db"), Value::Null).await;
    for (turn, say) in (1..).zip(&scenario.user_messages) {
        let report = kitchen.send(&say.text).await;
        assert_eq!(report.outcome, TurnOutcome::Done, "{}", say.text);
        assert_eq!(Some(report.replies.join("\n")), say.expect.reply, "{}", say.text);
        assert_eq!(u32::try_from(kitchen.calls(turn).await.len()).ok(), say.expect.calls, "{}", say.text);
    }
    (kitchen, folder)
}

fn fragment_receipt<'p>(pieces: &'p [FragmentReceipt], name: &str) -> &'p FragmentReceipt {
    pieces
        .iter()
        .find(|fragment_receipt| fragment_receipt.name == *name)
        .unwrap_or_else(|| panic!("no fragment `{name}`"))
}

#[tokio::test]
async fn a23_four_turns_align_plan_narrow_down_and_write() {
    let (kitchen, _folder) = play_four_turns().await;
    // Turn 1 makes a proposal and does nothing else.
    let roles =
        |calls: &[segue_core::event::CallOpened]| calls.iter().map(|call| call.role.to_string()).collect::<Vec<_>>();
    assert_eq!(roles(&kitchen.calls(1).await), ["understand", "think", "reply"]);
    assert!(kitchen.runs(1).await.is_empty());
    // The standing records are known from the first turn on, and what expires soon.
    for call in kitchen.calls(1).await.iter().filter(|call| call.role != *"understand") {
        let sent = kitchen.prompt_text(call.call).await;
        for line in
            ["- what: peanuts; stance: allergy; note: one guest; no traces", "- name: cod; amount: 400 g", "8 recipe"]
        {
            assert!(sent.contains(line), "{}: {line}: {sent}", call.role);
        }
        assert!(!sent.contains("garlic"), "what expires later is not shown: {sent}");
    }

    // Turn 2 reads two types without asking a model, then analyzes them.
    let calls = kitchen.calls(2).await;
    assert_eq!(roles(&calls), ["understand", "think", "act", "reply"]);
    let read: Vec<DomainToolRequest> =
        kitchen.runs(2).await.iter().filter_map(|run| DomainToolRequest::parse(&run.arguments)).collect();
    assert_eq!(read.iter().map(|told| told.operation.as_str()).collect::<Vec<_>>(), ["read", "read"]);
    let analysis = calls.iter().find(|call| call.agent.as_ref().is_some_and(|agent| *agent == *"step-3"));
    let sent = kitchen.prompt_text(analysis.expect("it was made").call).await;
    assert!(
        sent.contains("Step 1 (read recipe): 8 recipe records found")
            && sent.contains("Step 2 (read inventory): 7 inventory records found")
    );
    assert!(sent.contains("\"ref\":\"recipe_8\"") && sent.contains("red lentils"), "with the full records");
    assert!(sent.contains("\"ref\":\"inventory_2\"") && sent.contains("400 g"), "of both types");
    assert!(sent.contains("with peanuts on top") && sent.contains("stance: allergy"), "the allergy matters here");
    assert!(kitchen.prompt_text(calls[1].call).await.contains("The assistant proposed this in turn 1"));

    // Turn 3 reads nothing again and leaves out the cod.
    assert!(kitchen.runs(3).await.is_empty(), "nothing was read");
    let calls = kitchen.calls(3).await;
    assert_eq!(roles(&calls), ["understand", "think", "act", "reply", "summarize"]);
    let think = kitchen.prompt_text(calls[1].call).await;
    for line in [
        "- recipe_1: Lemon Herb Chicken",
        "- all records of type recipe are loaded; there are no others",
        "Demoted: recipe_3 (no cod this week)",
        "Turn 2 (narrowing): the user wanted: three days, dinners only",
    ] {
        assert!(think.contains(line), "{line}: {think}");
    }
    assert!(!think.contains("- recipe_3: Baked Cod"), "what was set aside is not offered");
    let act = kitchen.prompt_text(calls[2].call).await;
    assert!(act.contains("\"ref\":\"recipe_1\"") && !act.contains("\"ref\":\"recipe_3\""), "{act}");
    let reply = kitchen.prompt_text(calls[3].call).await;
    assert!(
        reply.contains("- Turn: 3 (the conversation is already going on)") && reply.contains("- Phase: narrowing"),
        "{reply}"
    );
    assert!(reply.contains("Lentil Soup") && !reply.contains("recipe_"), "names, no references: {reply}");

    // Turn 4 writes the two chosen meals into the table.
    let wrote: Vec<DomainToolRequest> =
        kitchen.runs(4).await.iter().filter_map(|run| DomainToolRequest::parse(&run.arguments)).collect();
    assert_eq!(
        wrote.iter().map(|told| told.operation.as_str()).collect::<Vec<_>>(),
        ["create"],
        "the records were loaded already"
    );
    let meal = |day: &str, dish: &str| (day.to_owned(), dish.to_owned());
    assert_eq!(kitchen.meals(), [meal("2026-01-15", "Lemon Herb Chicken"), meal("2026-01-16", "Garlic Pasta")]);
    let reply = kitchen
        .prompt_text(kitchen.calls(4).await.into_iter().find(|call| call.role == *"reply").expect("made").call)
        .await;
    assert!(reply.contains("- created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)"), "{reply}");
}

#[tokio::test]
async fn a23_every_receipt_gives_a_reason_for_each_fragment() {
    let (kitchen, _folder) = play_four_turns().await;
    let think = kitchen.calls(3).await.into_iter().find(|call| call.role == *"think").expect("made");
    let receipt = &think.receipt;
    let loaded = fragment_receipt(&receipt.ask, "loaded");
    assert_eq!(loaded.why, "records that need not be read again");
    assert!(loaded.text.is_some_and(|text| text.tokens > 40));
    let pending = fragment_receipt(&receipt.ask, "pending");
    assert_eq!((pending.text, pending.why.as_str()), (None, "no question or proposal is open"));
    assert_eq!(fragment_receipt(&receipt.ask, "reasoning").why, "2 turns in full");
    // The opening is the same in every turn, so vendors can cache it.
    let PreviousPromptComparison::Broken { kept_tokens, cause, .. } = &receipt.prefix else {
        panic!("another turn, another thread")
    };
    assert_eq!(cause.as_str(), "entities");
    let opening: u32 =
        receipt.opening.iter().filter_map(|fragment_receipt| fragment_receipt.text).map(|text| text.tokens).sum();
    assert!(*kept_tokens >= opening && opening > 800, "kept {kept_tokens} of {opening}");
    for turn in 1..=4 {
        for call in kitchen.calls(turn).await {
            assert!(
                call.receipt
                    .ask
                    .iter()
                    .chain(&call.receipt.opening)
                    .all(|fragment_receipt| !fragment_receipt.why.is_empty())
            );
        }
    }
}

#[tokio::test]
async fn a27_no_id_is_in_the_exact_bytes_of_any_prompt() {
    let (kitchen, _folder) = play_four_turns().await;
    let ids = kitchen.ids();
    assert!(ids.len() > 15 && ids.iter().all(|id| has_uuid(id)), "there are ids to be found");
    let mut seen = 0;
    for turn in 1..=4 {
        for call in kitchen.calls(turn).await {
            let sent = kitchen.prompt_text(call.call).await;
            assert!(!has_uuid(&sent), "{}: {sent}", call.call);
            assert!(ids.iter().all(|id| !sent.contains(id.as_str())));
            seen += 1;
        }
    }
    assert_eq!(seen, 18);
}

#[tokio::test]
async fn write_can_be_undone_by_command() {
    let (kitchen, _folder) = play_four_turns().await;
    let undo = || OperatorCommand::Flow { command: "undo".to_owned(), arguments: Value::Null };
    kitchen.engine.apply_command(&kitchen.session, undo()).await.expect("it is permitted");
    kitchen.engine.wake_session(&kitchen.session).await.expect("it lives");
    while !kitchen.engine.load_session(&kitchen.session).await.expect("readable").1.session.is_idle() {
        tokio::task::yield_now().await;
    }
    assert_eq!(kitchen.meals(), []);
    let refused = kitchen.engine.apply_command(&kitchen.session, undo()).await.expect_err("there is nothing left");
    assert_eq!(
        (refused.code(), refused.to_string().as_str()),
        ("command", "this session has no write that can be undone")
    );
}
