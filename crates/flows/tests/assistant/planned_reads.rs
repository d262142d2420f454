//! Read steps that the flow carries out without a model, and reads that are answered from memory.

use serde_json::json;

use super::support::*;

#[test]
fn planned_read_needs_no_model_and_the_reply_has_the_records() {
    let mut harness = open();
    start_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    let request = tool_request(&all_runs(&harness)[0]);
    assert_eq!((request.operation.as_str(), &request.parameters["type"]), ("read", &json!("recipe")));
    assert_eq!(request.parameters["full"], true);
    finish_records(&mut harness, &rows_result(&recipes()));
    assert!(calls(&harness, "act").is_empty());
    let end = facts(&harness, "step_ended").pop().expect("the step ended");
    assert_eq!((&end["status"], &end["outcome"]), (&json!("done"), &json!("3 recipe records found")));
    assert_eq!(end["refs"], json!(["recipe_1", "recipe_2", "recipe_3"]));
    let told = ask_text(&harness, "reply");
    assert!(told.contains("- name: Lemon Herb Chicken; minutes: 10; ingredients: chicken, lemon; tags: t"), "{told}");
    assert!(!told.contains("recipe_1"), "{told}");
}

#[test]
fn planned_read_of_named_records_reads_only_these() {
    let mut harness = open();
    start_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "recipe", 1, &[])]));
    finish_records(&mut harness, &rows_result(&recipes()));
    finish_reply(&mut harness, "Three.");
    let mut read = step("read", "recipe", 1, &["recipe_2"]);
    read["refresh"] = json!(true);
    start_turn(&mut harness, "did the second change?", understood("asks"), plan(&[read]));
    let request = tool_request(&all_runs(&harness)[1]);
    assert_eq!(request.parameters["where"][0]["value"], json!([id("recipe", 2)]));
}

#[test]
fn act_searches_if_there_are_too_many_records() {
    let mut harness = open();
    start_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    finish_records(&mut harness, &json!({"rows": recipes(), "total": 800}).to_string());
    assert!(flow_state(&harness).entities.entities.is_empty(), "an arbitrary part is not used");
    let asked = ask_text(&harness, "act");
    assert!(asked.contains("There are 800 records of this type, too many to read them all."), "{asked}");
    answer_act(&mut harness, step_complete("none fits"));
    assert!(ask_text(&harness, "act").contains("nothing was read in this step"), "Act has to search");
}

#[test]
fn act_is_asked_if_the_planned_read_fails() {
    let mut harness = open();
    start_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    harness.finish_tool("records", Err("the disk is gone"));
    assert_eq!(harness.open_call_roles(), ["act"]);
}

#[test]
fn a21_read_of_a_whole_type_is_answered_from_memory_until_it_changes_or_is_refreshed() {
    let mut harness = open();
    let read = || plan(&[step("read", "recipe", 1, &[])]);
    start_turn(&mut harness, "what can I cook?", understood("asks"), read());
    finish_records(&mut harness, &rows_result(&recipes()));
    finish_reply(&mut harness, "Three.");

    start_turn(&mut harness, "and again?", understood("asks"), read());
    assert_eq!(all_runs(&harness).len(), 1, "nothing is read again");
    assert!(ask_text(&harness, "reply").contains("name: Garlic Pasta"), "the reply has the records");
    finish_reply(&mut harness, "Still three.");

    let mut refreshed = step("read", "recipe", 1, &[]);
    refreshed["refresh"] = json!(true);
    start_turn(&mut harness, "I changed one elsewhere", understood("asks"), plan(&[refreshed]));
    assert_eq!(all_runs(&harness).len(), 2, "the user wants the newest");
    finish_records(&mut harness, &rows_result(&recipes()));
    finish_reply(&mut harness, "Three.");

    let write = plan(&[write_step("create", "recipe", 1, &[])]);
    start_turn(&mut harness, "add toast", understood("adds"), write);
    let toast = json!({"name": "Toast", "ingredients": ["bread"]});
    answer_act(&mut harness, tool_call("create", json!({"records": [toast]})));
    let row = recipe(4, "Toast", &["bread"]);
    let change =
        json!({"type": "recipe", "id": id("recipe", 4), "label": "Toast", "before": null, "after": row["fields"]});
    finish_records(&mut harness, &json!({"rows": [row], "changes": [change]}).to_string());
    answer_act(&mut harness, step_complete("added"));
    finish_reply(&mut harness, "Added.");
    start_turn(&mut harness, "what can I cook?", understood("asks"), read());
    assert_eq!(all_runs(&harness).len(), 4, "the type was changed");
}

#[test]
fn a21_plan_of_nothing_but_loaded_records_is_answered_from_memory() {
    let mut harness = open();
    start_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "recipe", 1, &[])]));
    finish_records(&mut harness, &rows_result(&recipes()));
    finish_reply(&mut harness, "Three.");
    start_turn(&mut harness, "the second?", understood("asks"), plan(&[step("read", "recipe", 1, &["recipe_2"])]));
    assert_eq!(all_runs(&harness).len(), 1);
    let told = ask_text(&harness, "reply");
    assert!(told.contains("spaghetti") && !told.contains("tomatoes"), "{told}");
}
