//! The rehearsal model plays whole conversations, in any domain, without a model.

use std::sync::Arc;

use segue_core::event::{Event, TurnResult};
use segue_models::RehearsalModel;
use serde_json::{Value, json};

use super::kitchen::Kitchen;

async fn rehearsed(settings: Value, messages: &[&str]) -> (Kitchen, Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = Arc::new(RehearsalModel::instant());
    let kitchen = Kitchen::open(model, &folder.path().join("records.db"), settings).await;
    let mut replies = Vec::new();
    for message in messages {
        let report = kitchen.say(message).await;
        assert_eq!(report.outcome, TurnResult::Done, "{message}");
        let said = report.replies.join("\n");
        assert!(said.contains("(rehearsal)"), "{message}: {said}");
        replies.push(said);
    }
    let broken: Vec<_> = kitchen.events().await.into_iter().filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if kind == "broken" || kind == "tool_failed" || kind == "not_planned")).collect();
    assert!(broken.is_empty(), "{broken:?}");
    (kitchen, replies, folder)
}

#[tokio::test]
async fn a_kitchen_can_be_tried_without_a_model() {
    let messages = [
        "help me plan meals",
        "3 days, dinners only",
        "no cod this week",
        "let's go with the chicken and pasta ones",
        "invent a recipe",
        "save it",
        "remove the omelette",
    ];
    let (kitchen, replies, _folder) = rehearsed(Value::Null, &messages).await;
    assert!(replies[0].contains("I would look at what you have first"), "{}", replies[0]);
    assert!(replies[1].contains("Cod Chowder") && replies[1].contains("chicken thighs"), "{}", replies[1]);
    assert!(replies[2].contains("6 of type recipe remain") && !replies[2].contains("Cod"), "{}", replies[2]);
    assert!(kitchen.runs(3).await.is_empty(), "nothing is read again");
    let dishes: Vec<String> = kitchen.meals().into_iter().map(|(_, dish)| dish).collect();
    assert_eq!(dishes, ["Lemon Herb Chicken", "Garlic Pasta"], "{}", replies[3]);
    assert!(replies[4].contains("It is a draft and not saved"), "{}", replies[4]);
    assert!(replies[5].contains("created recipe “A new recipe”"), "{}", replies[5]);
    assert!(replies[6].contains("deleted recipe “Mushroom Omelette”"), "{}", replies[6]);
}

#[tokio::test]
async fn a_reading_list_needs_nothing_of_the_kitchen() {
    let messages = ["show me my books", "not Middlemarch", "note: The Dispossessed begins with a wall"];
    let (kitchen, replies, _folder) = rehearsed(json!({"domain": "reading"}), &messages).await;
    assert!(replies[0].contains("Middlemarch"), "{}", replies[0]);
    assert!(replies[1].contains("3 of type book remain") && !replies[1].contains("Middlemarch"), "{}", replies[1]);
    let sql = "SELECT n.text, b.title FROM reading_note n JOIN reading_book b ON b.id = n.book ORDER BY n.rowid DESC";
    let note: (String, String) = kitchen
        .records
        .with_connection(|connection| connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))
        .expect("it is there");
    assert_eq!(note, (messages[2].to_owned(), "The Dispossessed".to_owned()), "{}", replies[2]);
    let (rules, state) = kitchen.engine.load_session(&kitchen.session).await.expect("readable");
    let exhibits = kitchen.engine.artifacts(&kitchen.session, &*rules, &state).await.expect("on show");
    let names: Vec<&str> = exhibits.iter().map(|exhibit| exhibit.name.as_str()).collect();
    assert_eq!(names, ["entities", "reasoning", "writes"]);
}
