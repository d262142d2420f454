//! What a planned read looks for, and plans that change only what the user asked to be changed.

use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

/// A read step over recipes with conditions.
fn search(conditions: Value) -> Value {
    let mut read = step("read", "recipe", 1, &[]);
    read["where"] = conditions;
    read
}

fn asks_for(what: &str, steps: &[Value]) -> Value {
    let mut plan = plan(steps);
    plan["asks_for"] = json!(what);
    plan
}

fn last_step_end(harness: &SessionHarness) -> Value {
    facts(harness, "step_ended").pop().expect("the step ended")
}

#[test]
fn planned_read_searches_by_the_conditions_of_the_plan() {
    let mut harness = open();
    let mut read = search(json!([{"field": "ingredients", "op": "contains", "value": "chicken"},
        {"field": "minutes", "op": "<=", "value": "20"}]));
    read["sort"] = json!("minutes");
    start_turn(&mut harness, "quick chicken?", understood("asks"), plan(&[read]));
    let request = tool_request(&all_runs(&harness)[0]);
    assert_eq!(
        request.parameters["where"],
        json!([{"field": "ingredients", "op": "contains", "value": "chicken"},
            {"field": "minutes", "op": "<=", "value": 20}])
    );
    assert_eq!(request.parameters["sort"]["field"], "minutes");
    finish_records(&mut harness, &rows_result(&recipes()[..1]));
    let end = last_step_end(&harness);
    assert_eq!(end["refs"], json!(["recipe_1"]));
    assert_eq!(
        end["outcome"],
        "1 recipe record found: ingredients contains “chicken” and minutes <= 20, in order of minutes"
    );
}

#[test]
fn conditions_that_cannot_be_used_are_left_out() {
    let mut harness = open();
    let read =
        search(json!([{"field": "mood", "op": "=", "value": 1}, {"field": "minutes", "op": "contains", "value": "x"},
        {"field": "tags", "op": "=", "value": "t"}, {"field": "name", "op": "contains", "value": " "}, "cod"]));
    start_turn(&mut harness, "tagged?", understood("asks"), plan(&[read]));
    let request = tool_request(&all_runs(&harness)[0]);
    assert_eq!(request.parameters["where"], json!([{"field": "tags", "op": "contains", "value": "t"}]));
}

#[test]
fn search_that_finds_nothing_is_widened_to_all_fields() {
    let mut harness = open();
    let read = search(json!([{"field": "name", "op": "contains", "value": "GARLIC"},
        {"field": "minutes", "op": "<=", "value": 20}]));
    start_turn(&mut harness, "garlic?", understood("asks"), plan(&[read]));
    finish_records(&mut harness, &rows_result(&[]));
    assert_eq!(facts(&harness, "search_widened").len(), 1);
    let request = tool_request(&all_runs(&harness)[1]);
    assert!(!request.parameters.contains_key("where"), "everything is read");
    let mut rows = recipes();
    rows[2]["fields"]["tags"] = json!(["with garlic"]);
    finish_records(&mut harness, &rows_result(&rows));
    assert_eq!(last_step_end(&harness)["refs"], json!(["recipe_2"]), "the third takes 30 minutes");
    let told = ask_text(&harness, "reply");
    assert!(told.contains("Garlic Pasta") && !told.contains("name: Baked Cod"), "{told}");
}

#[test]
fn search_that_fits_nothing_lists_all_records_and_says_so() {
    let mut harness = open();
    let read = search(json!([{"field": "name", "op": "contains", "value": "sushi"}]));
    start_turn(&mut harness, "sushi?", understood("asks"), plan(&[read]));
    finish_records(&mut harness, &rows_result(&[]));
    finish_records(&mut harness, &rows_result(&recipes()));
    let end = last_step_end(&harness);
    assert_eq!(
        end["outcome"],
        "no recipe record with name contains “sushi” was found; all 3 recipe records are listed"
    );
    assert_eq!(end["refs"], json!(["recipe_1", "recipe_2", "recipe_3"]));
}

#[test]
fn act_searches_if_a_widened_search_has_too_many_records() {
    let mut harness = open();
    let read = search(json!([{"field": "name", "op": "contains", "value": "sushi"}]));
    start_turn(&mut harness, "sushi?", understood("asks"), plan(&[read]));
    finish_records(&mut harness, &rows_result(&[]));
    finish_records(&mut harness, &json!({"rows": recipes(), "total": 800}).to_string());
    assert_eq!(harness.open_call_roles(), ["act"]);
}

#[test]
fn question_changes_nothing_even_if_a_write_is_planned() {
    let mut harness = open();
    let steps = [step("read", "recipe", 1, &[]), step("write", "recipe", 2, &[])];
    start_turn(&mut harness, "what is quick?", understood("asks"), asks_for("information", &steps));
    let planned = facts(&harness, "planned").pop().expect("planned");
    assert_eq!(planned["withheld_writes"], json!(["write recipe"]));
    finish_records(&mut harness, &rows_result(&recipes()));
    assert!(calls(&harness, "act").is_empty(), "nothing is written");
    assert!(ask_text(&harness, "reply").contains("Not done, because the user asked for no change: write recipe"));
}

#[test]
fn plan_of_writes_alone_for_a_question_is_asked_for_again() {
    let mut harness = open();
    let write = [step("write", "recipe", 1, &[])];
    start_turn(&mut harness, "what is quick?", understood("asks"), asks_for("information", &write));
    assert!(facts(&harness, "planned").is_empty());
    harness.answer_call("think", &asks_for("change", &write).to_string());
    assert_eq!(facts(&harness, "planned").len(), 1, "the model says that a change is wanted");
}

#[test]
fn accepted_proposal_may_change_records_whatever_think_says() {
    let mut harness = open();
    start_turn(&mut harness, "plan something", understood("plans"), proposal("Shall I add toast?"));
    finish_reply(&mut harness, "Shall I add toast?");
    let accepted = understood_with("agrees", json!({"pending": "accepted"}));
    start_turn(&mut harness, "yes", accepted, asks_for("information", &[step("write", "recipe", 1, &[])]));
    assert_eq!(harness.open_call_roles(), ["act"]);
}

#[test]
fn reads_of_a_group_come_before_its_other_steps() {
    let mut harness = open();
    let steps = [step("write", "meal", 1, &[]), step("read", "recipe", 1, &[])];
    start_turn(&mut harness, "plan the cod", understood("plans"), plan(&steps));
    assert!(calls(&harness, "act").is_empty(), "the write waits for the records");
    finish_records(&mut harness, &rows_result(&recipes()));
    assert!(ask_text(&harness, "act").contains("recipe_3"));
}
