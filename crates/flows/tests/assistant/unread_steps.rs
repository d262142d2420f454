//! A step is done only if it was done: a read step needs a read, and an analyze step cites only what was read.

use serde_json::json;

use super::support::*;

#[test]
fn read_step_without_a_read_is_refused_and_then_read_by_the_flow() {
    let mut harness = open();
    start_planned_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    answer_act(&mut harness, step_complete("one fits"));
    let complaint = ask_text(&harness, "act");
    assert!(complaint.contains("nothing was read in this step"), "{complaint}");
    answer_act(&mut harness, step_complete("one fits, really"));
    let opened = runs(&harness);
    assert_eq!(opened.len(), 1, "the flow reads what the plan names");
    let request = tool_request(&opened[0]);
    assert_eq!((request.operation.as_str(), &request.parameters["type"]), ("read", &json!("recipe")));
    finish_records(&mut harness, &rows_result(&recipes()));
    assert!(ask_text(&harness, "act").contains("Lemon Herb Chicken"), "the step continues with the records");
    answer_act(&mut harness, step_complete("the chicken fits"));
    assert_eq!(facts(&harness, "step_ended")[0]["outcome"], "the chicken fits");
    finish_reply(&mut harness, "There is one.");
}

#[test]
fn read_step_whose_read_failed_is_not_done() {
    let mut harness = open();
    start_planned_turn(&mut harness, "chicken?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    for _ in 0..3 {
        answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
        harness.finish_tool("records", Err("the disk is gone"));
    }
    answer_act(&mut harness, step_complete("none fits"));
    answer_act(&mut harness, step_complete("none fits"));
    assert_eq!(facts(&harness, "step_ended")[0]["status"], "failed");
    let told = ask_text(&harness, "reply");
    assert!(told.contains("read recipe: failed") && !told.contains("none fits"), "{told}");
}

#[test]
fn read_answered_from_memory_completes_a_read_step() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_turn(&mut harness, "the first?", understood("asks"), plan(&[step("read", "recipe", 1, &["recipe_1"])]));
    assert_eq!(facts(&harness, "step_ended").pop().expect("it ended")["status"], "done");
    assert_eq!(runs(&harness).len(), 1, "only the first turn read");
}

#[test]
fn analyze_step_cannot_cite_what_nobody_read() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(&mut harness, "which?", understood("asks"), plan(&[step("analyze", "recipe", 1, &[])]));
    let mut end = step_complete("two fit");
    end["refs"] = json!(["recipe_1"]);
    end["result"] = json!({"fit": ["recipe_1", "recipe_9"]});
    answer_act(&mut harness, end.clone());
    let complaint = ask_text(&harness, "act");
    assert!(complaint.contains("`result`: `recipe_9` is not a known reference"), "{complaint}");
    answer_act(&mut harness, end);
    assert_eq!(facts(&harness, "step_ended").pop().expect("it ended")["status"], "failed");
    let told = ask_text(&harness, "reply");
    assert!(!told.contains("two fit"), "{told}");
}

#[test]
fn record_known_only_by_its_label_is_not_cited() {
    let mut harness = open();
    start_planned_turn(&mut harness, "meals?", understood("asks"), plan(&[step("read", "meal", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": "meal", "full": true})));
    let link = json!({"id": id("recipe", 1), "label": "Lemon Herb Chicken"});
    let meal = json!({"type": "meal", "id": id("meal", 1), "label": "Lemon Herb Chicken",
        "fields": {"date": "2026-01-15", "slot": "dinner", "recipe": link}});
    finish_records(&mut harness, &rows_result(&[meal]));
    answer_act(&mut harness, step_complete("one meal"));
    finish_reply(&mut harness, "One.");
    start_planned_turn(&mut harness, "quick?", understood("asks"), plan(&[step("analyze", "meal", 1, &[])]));
    let mut end = step_complete("the chicken is quick");
    end["refs"] = json!(["meal_1", "recipe_1"]);
    answer_act(&mut harness, end.clone());
    let complaint = ask_text(&harness, "act");
    assert!(complaint.contains("`refs`: `recipe_1` was not read"), "{complaint}");
    answer_act(&mut harness, end);
    assert_eq!(facts(&harness, "step_ended").pop().expect("it ended")["refs"], json!(["meal_1"]));
}
