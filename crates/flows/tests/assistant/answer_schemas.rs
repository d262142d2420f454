//! The schema of each answer carries what is known when the call is made.

use segue_core::event::CallOpened;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

/// Returns the schema of the newest call of a role.
fn schema(harness: &SessionHarness, role: &str) -> Value {
    let opened: CallOpened = calls(harness, role).pop().expect("it was called");
    let stored = harness.stored_text(opened.output_schema.expect("its answer has a schema"));
    let format: Value = serde_json::from_str(&stored).expect("JSON");
    find_member(&format, "properties").expect("an object").clone()
}

/// Returns the first member with this name at any depth.
fn find_member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let members = value.as_object()?;
    members.get(name).or_else(|| members.values().find_map(|member| find_member(member, name)))
}

#[test]
fn without_known_records_only_an_empty_list_of_references_is_valid() {
    let mut harness = open();
    harness.send_message("chicken?");
    let understand = schema(&harness, "understand");
    for member in ["references", "retain", "demote", "drop"] {
        assert_eq!(understand[member]["maxItems"], 0, "{member}");
    }
    assert_eq!(understand["pending"]["enum"], json!([null]), "nothing waits for an answer");
    harness.answer_call("understand", &understood("asks").to_string());
    let step = &schema(&harness, "think")["steps"]["items"]["properties"];
    assert_eq!(step["refs"]["maxItems"], 0);
    assert_eq!(step["subdomain"]["enum"], json!(["recipe", "inventory", "preference", "meal"]));
    assert_eq!(step["operation"]["enum"], json!(["create", "update", "delete", "link", "unlink", null]));
    let searched = step["where"]["items"]["properties"]["field"]["enum"].to_string();
    assert!(searched.contains("expires") && searched.contains("ingredients"), "{searched}");
    assert!(step["sort"]["enum"].to_string().ends_with(",null]"), "{}", step["sort"]);
}

#[test]
fn known_references_are_listed() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    harness.send_message("and?");
    let all = json!(["recipe_1", "recipe_2", "recipe_3"]);
    assert_eq!(schema(&harness, "understand")["references"]["items"]["enum"], all);
    harness.answer_call("understand", &understood("asks").to_string());
    assert_eq!(schema(&harness, "think")["steps"]["items"]["properties"]["refs"]["items"]["enum"], all);
}

#[test]
fn act_sees_references_of_the_records_that_just_arrived() {
    let mut harness = open();
    start_planned_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    let first = schema(&harness, "act");
    assert_eq!((&first["refs"]["maxItems"], &first["tool"]["enum"]), (&json!(0), &json!(["read"])));
    assert!(!first["action"]["enum"].to_string().contains("retrieve_step"), "no result can be retrieved yet");
    assert!(first.get("drafts").is_none(), "only a generate step has drafts");
    let fields = &first["arguments"]["properties"]["where"]["items"]["properties"]["field"]["enum"];
    assert!(fields.to_string().contains("\"minutes\"") && !fields.to_string().contains("expires"), "{fields}");
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    finish_records(&mut harness, &rows_result(&recipes()));
    assert_eq!(schema(&harness, "act")["refs"]["items"]["enum"], json!(["recipe_1", "recipe_2", "recipe_3"]));
}

#[test]
fn act_is_offered_only_the_write_of_its_step() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let steps = plan(&[write_step("create", "meal", 1, &["recipe_1"])]);
    start_planned_turn(&mut harness, "plan the chicken", understood("plans"), steps);
    let schema = schema(&harness, "act");
    assert_eq!(schema["tool"]["enum"], json!(["create"]));
    let record = &schema["arguments"]["properties"]["records"]["items"];
    assert_eq!(record["properties"]["slot"]["enum"], json!(["breakfast", "lunch", "dinner"]));
    assert_eq!(record["properties"]["recipe"]["enum"], json!(["recipe_1", "recipe_2", "recipe_3"]));
    assert_eq!(record["required"], json!(["date", "slot", "recipe", "uses", "note"]));
    assert_eq!(record["properties"]["note"]["type"], json!(["string", "null"]));
    assert!(schema["arguments"]["properties"].get("set").is_none());
}
