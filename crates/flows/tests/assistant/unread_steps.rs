//! A step is done only if it was done: a read step needs a read.

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
    start_planned_turn(&mut harness, "the first?", understood("asks"), plan(&[step("read", "recipe", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe", "refs": ["recipe_1"]})));
    answer_act(&mut harness, step_complete("it is the chicken"));
    assert_eq!(facts(&harness, "step_ended").pop().expect("it ended")["status"], "done");
    assert_eq!(runs(&harness).len(), 1, "only the first turn read");
}
