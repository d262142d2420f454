//! Loading of records: missing records are loaded, loaded ones are not read again.

use segue_flows::assistant::registry::RecordLoadLevel;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::support::*;

/// A session that has read recipes, but only their summaries.
fn after_summary_read() -> SessionHarness {
    let mut harness = open();
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "recipe", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    finish_records(&mut harness, &rows_result(&recipes()));
    answer_act(&mut harness, step_complete("read"));
    finish_reply(&mut harness, "Three.");
    harness
}

#[test]
fn a21_planned_read_of_loaded_records_is_skipped() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let steps =
        [step("read", "recipe", 1, &["recipe_1", "recipe_2"]), step("analyze", "recipe", 2, &["recipe_1", "recipe_2"])];
    start_planned_turn(&mut harness, "compare the first two", understood("compares"), plan(&steps));
    let planned = facts(&harness, "planned").pop().expect("planned");
    assert_eq!(
        (planned["steps"].as_array().map(Vec::len), &planned["skipped_steps"]),
        (Some(1), &json!(["read recipe"]))
    );
    assert!(ask_text(&harness, "act").contains("spaghetti"), "the analysis has the records at once");
    answer_act(&mut harness, step_complete("compared"));
    assert!(ask_text(&harness, "reply").contains("Not needed, because the records were already loaded: read recipe"));
    finish_reply(&mut harness, "The second is quicker.");
    assert_eq!(runs(&harness).len(), 1, "only the first turn read anything");
}

#[test]
fn a21_tool_call_for_loaded_records_needs_no_run() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(&mut harness, "the second?", understood("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"refs": ["recipe_2"], "full": true})));
    assert_eq!(runs(&harness).len(), 1);
    let ask_text = ask_text(&harness, "act");
    assert!(
        ask_text.starts_with("## These records were already loaded; nothing was read")
            && ask_text.contains("spaghetti"),
        "{ask_text}"
    );
    assert!(ask_text.contains("Tool calls left: 2"), "{ask_text}");
}

#[test]
fn records_of_a_step_are_loaded_before_it_starts() {
    let mut harness = after_summary_read();
    assert_eq!(
        flow_state(&harness).entities.get("recipe_2").map(|entity| entity.detail),
        Some(RecordLoadLevel::Summary)
    );
    start_planned_turn(
        &mut harness,
        "the second",
        understood("chooses"),
        plan(&[step("analyze", "recipe", 1, &["recipe_2"])]),
    );
    assert!(harness.open_call_roles().is_empty(), "no model is called before the record is loaded");
    let run = runs(&harness).pop().expect("the record is fetched");
    assert_eq!(
        (tool_request(&run).operation.as_str(), &tool_request(&run).parameters["items"]),
        ("get", &json!([{"type": "recipe", "id": id("recipe", 2)}]))
    );
    let mut full = recipes().remove(1);
    full["fields"]["instructions"] = json!("Boil.");
    finish_records(&mut harness, &rows_result(&[full]));
    assert!(ask_text(&harness, "act").contains("Boil."));
    assert_eq!(facts(&harness, "step_ended").len(), 1);
}

#[test]
fn step_starts_even_if_its_records_cannot_be_loaded() {
    let mut harness = after_summary_read();
    start_planned_turn(
        &mut harness,
        "the second",
        understood("chooses"),
        plan(&[step("analyze", "recipe", 1, &["recipe_2"])]),
    );
    harness.finish_tool("records", Err("the disk is gone"));
    assert_eq!(facts(&harness, "tool_failed").len(), 1);
    answer_act(&mut harness, json!({"action": "fail", "reason": "its record is not there"}));
    assert!(ask_text(&harness, "reply").contains("failed. its record is not there"));
}

#[test]
fn records_are_unloaded_when_they_are_no_longer_relevant() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let understood_keep =
        understood_with("likes the first", json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}]}));
    start_planned_turn(&mut harness, "the first is nice", understood_keep, proposal("Shall I plan it?"));
    finish_reply(&mut harness, "Shall I plan it?");
    for said in ["later", "not yet"] {
        talk_turn(&mut harness, said);
    }
    harness.send_message("well");
    let flow_state = flow_state(&harness);
    let detail = |name: &str| flow_state.entities.get(name).map(|entity| entity.detail);
    assert_eq!(detail("recipe_1"), Some(RecordLoadLevel::Full), "a retained record stays loaded");
    assert_eq!(detail("recipe_2"), Some(RecordLoadLevel::None));
    assert!(!flow_state.is_type_fully_loaded("recipe"));
    harness.answer_call("understand", &understood("goes on").to_string());
    let ask_text = ask_text(&harness, "think");
    assert!(
        ask_text.contains("- recipe_1 (recipe, retained, detail full): Lemon Herb Chicken; retained: they like it"),
        "{ask_text}"
    );
    assert!(!ask_text.contains("recipe_2"), "{ask_text}");
}

#[test]
fn step_results_can_be_retrieved_for_two_turns() {
    let mut harness = open();
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("analyze", "recipe", 1, &[])]));
    let mut end = step_complete("weighed");
    end["result"] = json!({"best": "the pasta"});
    answer_act(&mut harness, end);
    finish_reply(&mut harness, "The pasta.");
    start_planned_turn(&mut harness, "why?", understood("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    answer_act(&mut harness, json!({"action": "retrieve_step", "turn": 1, "step": 1}));
    assert!(ask_text(&harness, "act").starts_with("## Result of step 1 of turn 1\n\n```\n{\"best\":\"the pasta\"}"));
    answer_act(&mut harness, json!({"action": "retrieve_step", "turn": 1, "step": 7}));
    assert!(
        ask_text(&harness, "act").contains("step 7 of turn 1 has no stored result; these have one: step 1 of turn 1")
    );
    answer_act(&mut harness, step_complete("because it is quick"));
    finish_reply(&mut harness, "It is quick.");
    talk_turn(&mut harness, "hm");
    start_planned_turn(&mut harness, "why?", understood("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    answer_act(&mut harness, json!({"action": "retrieve_step", "turn": 1, "step": 1}));
    assert!(ask_text(&harness, "act").contains("step 1 of turn 1 has no stored result"));
}
