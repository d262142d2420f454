//! The rehearsal model plays whole conversations in any domain, and its replies say what was really done.

use std::sync::Arc;

use segue_core::event::{Event, TurnOutcome};
use segue_models::RehearsalModel;
use serde_json::{Value, json};

use super::support::Kitchen;

/// Sends messages to a new session and returns the replies. No answer may have been rejected, and no tool may have failed.
async fn rehearse(settings: Value, messages: &[&str]) -> (Kitchen, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = Arc::new(RehearsalModel::instant());
    let kitchen = Kitchen::open(model, &folder.path().join("records.db"), settings).await;
    let mut replies = Vec::new();
    for message in messages {
        let report = kitchen.send(message).await;
        assert_eq!(report.outcome, TurnOutcome::Done, "{message}");
        let reply = report.replies.join("\n");
        assert!(reply.contains("(rehearsal)"), "{message}: {reply}");
        replies.push(reply);
    }
    let failures = ["answer_rejected", "tool_failed", "plan_failed"];
    let events = kitchen.events().await.into_iter();
    let failed: Vec<_> = events
        .filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if failures.contains(&kind.as_str())))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    (kitchen, replies, folder)
}

/// The line of a reply that begins with `- {start}`.
fn line<'r>(reply: &'r str, start: &str) -> &'r str {
    let found = reply.lines().find(|line| line.starts_with(&format!("- {start}")));
    found.unwrap_or_else(|| panic!("no line begins with `- {start}`: {reply}"))
}

#[tokio::test]
async fn kitchen_can_be_tried_without_a_model() {
    let messages = [
        "help me plan meals",
        "3 days, dinners only",
        "no cod this week",
        "let's go with the chicken and pasta ones",
        "invent a recipe",
        "save it",
        "remove the omelette",
    ];
    let (kitchen, replies, _folder) = rehearse(Value::Null, &messages).await;
    assert!(replies[0].starts_with("This is the built-in demo model."), "{}", replies[0]);
    assert!(replies[0].contains("Shall I look at your records first (recipe, inventory"), "{}", replies[0]);
    assert_eq!(
        line(&replies[1], "planned"),
        "- planned: read every recipe record; read every inventory record; list what was found"
    );
    assert!(line(&replies[1], "read: 8 recipe records").contains("Cod Chowder"), "{}", replies[1]);
    assert!(line(&replies[1], "read: 7 inventory records").contains("chicken thighs"), "{}", replies[1]);
    assert_eq!(line(&replies[1], "written"), "- written: nothing");
    assert!(!line(&replies[2], "left: 6 recipe records").contains("Cod"), "{}", replies[2]);
    assert_eq!(line(&replies[2], "ruled out"), "- ruled out for now: cod, Baked Cod with Tomatoes, Cod Chowder");
    assert!(kitchen.runs(3).await.is_empty(), "nothing is read again");
    let dishes: Vec<String> = kitchen.meals().into_iter().map(|(_, dish)| dish).collect();
    assert_eq!(dishes, ["Lemon Herb Chicken", "Garlic Pasta"], "{}", replies[3]);
    assert_eq!(replies[3].matches("- written: created meal").count(), 2, "{}", replies[3]);
    assert!(replies[4].contains("The draft is not saved yet"), "{}", replies[4]);
    assert_eq!(line(&replies[4], "written"), "- written: nothing");
    assert!(line(&replies[5], "written").contains("created recipe “A new recipe”"), "{}", replies[5]);
    assert!(line(&replies[6], "written").contains("deleted recipe “Mushroom Omelette”"), "{}", replies[6]);
}

#[tokio::test]
async fn reading_list_can_be_tried_without_a_model() {
    let messages = ["show me my books", "not Middlemarch", "note: The Dispossessed begins with a wall"];
    let (kitchen, replies, _folder) = rehearse(json!({"domain": "reading"}), &messages).await;
    assert!(line(&replies[0], "read: 4 book records").contains("Middlemarch"), "{}", replies[0]);
    assert!(!line(&replies[1], "left: 3 book records").contains("Middlemarch"), "{}", replies[1]);
    let sql = "SELECT n.text, b.title FROM reading_note n JOIN reading_book b ON b.id = n.book ORDER BY n.rowid DESC";
    let note: (String, String) = kitchen
        .records
        .with_connection(|connection| connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))
        .expect("the note is stored");
    assert_eq!(note, (messages[2].to_owned(), "The Dispossessed".to_owned()), "{}", replies[2]);
    let (flow, state) = kitchen.engine.load_session(&kitchen.session).await.expect("the session exists");
    let artifacts = kitchen.engine.artifacts(&kitchen.session, &*flow, &state).await.expect("artifacts");
    let names: Vec<&str> = artifacts.iter().map(|artifact| artifact.name.as_str()).collect();
    assert_eq!(names, ["entities", "reasoning", "writes"]);
}

/// The demo model must not write something else because a keyword fits.
#[tokio::test]
async fn demo_model_writes_nothing_if_it_cannot_do_what_was_asked() {
    for request in [
        "add chicken to the inventory",
        "change the chicken recipe to 20 minutes, and keep the rest",
        "put the pasta on the plan for Friday",
        "delete the cod recipe",
    ] {
        let (kitchen, replies, _folder) = rehearse(Value::Null, &["show me recipes and inventory", request]).await;
        assert!(replies[1].contains("nothing was changed"), "{request}: {}", replies[1]);
        let is_write = |event: &Event| matches!(event, Event::FlowFactRecorded { value, .. } if value["write_summaries"].is_array());
        assert_eq!(kitchen.events().await.iter().filter(|event| is_write(event)).count(), 0, "{request}");
    }
}
