//! A reference is not data: what is not loaded is read, what is loaded is not read again.

use segue_flows::assistant::registry::DetailLevel;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::play::*;

/// A stage on which recipes were read, and not in full.
fn looked() -> SessionHarness {
    let mut stage = open();
    decided(&mut stage, "look", heard("looks"), plan(&[step("read", "recipe", 1, &[])]));
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    host(&mut stage, &found(&recipes()));
    act(&mut stage, done("read"));
    replied(&mut stage, "Three.");
    stage
}

#[test]
fn a21_a_read_that_is_planned_for_what_is_loaded_is_not_done() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let steps =
        [step("read", "recipe", 1, &["recipe_1", "recipe_2"]), step("analyze", "recipe", 2, &["recipe_1", "recipe_2"])];
    decided(&mut stage, "compare the first two", heard("compares"), plan(&steps));
    let planned = facts(&stage, "planned").pop().expect("planned");
    assert_eq!((planned["steps"].as_array().map(Vec::len), &planned["skipped"]), (Some(1), &json!(["read recipe"])));
    assert!(asked(&stage, "act").contains("spaghetti"), "the analysis has the records at once");
    act(&mut stage, done("compared"));
    assert!(asked(&stage, "reply").contains("Not needed, since it was at hand: read recipe"));
    replied(&mut stage, "The second is quicker.");
    assert_eq!(runs(&stage).len(), 1, "only the first turn read anything");
}

#[test]
fn a21_a_step_that_asks_for_what_is_at_hand_gets_it_without_a_run() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "the second?", heard("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    act(&mut stage, tool("read", json!({"refs": ["recipe_2"], "full": true})));
    assert_eq!(runs(&stage).len(), 1);
    let asked = asked(&stage, "act");
    assert!(asked.starts_with("## These are at hand; nothing was read") && asked.contains("spaghetti"), "{asked}");
    assert!(asked.contains("Tool calls left: 2"), "{asked}");
}

#[test]
fn what_a_step_works_with_and_is_not_loaded_is_loaded_before_it_begins() {
    let mut stage = looked();
    assert_eq!(memory(&stage).entities.get("recipe_2").map(|entity| entity.detail), Some(DetailLevel::Summary));
    decided(&mut stage, "the second", heard("chooses"), plan(&[step("analyze", "recipe", 1, &["recipe_2"])]));
    assert!(stage.open_call_roles().is_empty(), "nobody is asked before the record is there");
    let run = runs(&stage).pop().expect("it is fetched");
    assert_eq!(
        (told(&run).operation.as_str(), &told(&run).parameters["items"]),
        ("get", &json!([{"type": "recipe", "id": id("recipe", 2)}]))
    );
    let mut full = recipes().remove(1);
    full["fields"]["instructions"] = json!("Boil.");
    host(&mut stage, &found(&[full]));
    assert!(asked(&stage, "act").contains("Boil."));
    assert_eq!(facts(&stage, "step_ended").len(), 1);
}

#[test]
fn a_step_begins_without_its_records_if_they_cannot_be_had() {
    let mut stage = looked();
    decided(&mut stage, "the second", heard("chooses"), plan(&[step("analyze", "recipe", 1, &["recipe_2"])]));
    stage.finish_tool("records", Err("the disk is gone"));
    assert_eq!(facts(&stage, "tool_failed").len(), 1);
    act(&mut stage, json!({"action": "fail", "reason": "its record is not there"}));
    assert!(asked(&stage, "reply").contains("failed. its record is not there"));
}

#[test]
fn records_are_let_go_of_once_they_are_no_longer_near_and_then_read_again() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let heard_keep = heard_with("likes the first", json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}]}));
    decided(&mut stage, "the first is nice", heard_keep, propose("Shall I plan it?"));
    replied(&mut stage, "Shall I plan it?");
    for said in ["later", "not yet"] {
        talk_turn(&mut stage, said);
    }
    stage.send_message("well");
    let memory = memory(&stage);
    let detail = |name: &str| memory.entities.get(name).map(|entity| entity.detail);
    assert_eq!(detail("recipe_1"), Some(DetailLevel::Full), "it is kept, and so is what is known of it");
    assert_eq!(detail("recipe_2"), Some(DetailLevel::None));
    assert!(!memory.is_type_fully_loaded("recipe"));
    stage.answer_call("understand", &heard("goes on").to_string());
    let asked = asked(&stage, "think");
    assert!(
        asked.contains("- recipe_1 (recipe, retained, detail full): Lemon Herb Chicken; kept: they like it"),
        "{asked}"
    );
    assert!(!asked.contains("recipe_2"), "{asked}");
}

#[test]
fn an_earlier_result_can_be_fetched_for_two_turns() {
    let mut stage = open();
    decided(&mut stage, "look", heard("looks"), plan(&[step("analyze", "recipe", 1, &[])]));
    let mut end = done("weighed");
    end["result"] = json!({"best": "the pasta"});
    act(&mut stage, end);
    replied(&mut stage, "The pasta.");
    decided(&mut stage, "why?", heard("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    act(&mut stage, json!({"action": "retrieve_step", "turn": 1, "step": 1}));
    assert!(asked(&stage, "act").starts_with("## The result of step 1 of turn 1\n\n```\n{\"best\":\"the pasta\"}"));
    act(&mut stage, json!({"action": "retrieve_step", "turn": 1, "step": 7}));
    assert!(asked(&stage, "act").contains("there is no result of step 7 of turn 1; there are: step 1 of turn 1"));
    act(&mut stage, done("because it is quick"));
    replied(&mut stage, "It is quick.");
    talk_turn(&mut stage, "hm");
    decided(&mut stage, "why?", heard("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    act(&mut stage, json!({"action": "retrieve_step", "turn": 1, "step": 1}));
    assert!(asked(&stage, "act").contains("there is no result of step 1 of turn 1"));
}
