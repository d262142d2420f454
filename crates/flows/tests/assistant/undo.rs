//! The `undo` command.

use segue_core::decide::{OperatorCommand, SessionInput};
use segue_flows::assistant::registry::LastEntityAction;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

fn undo(arguments: Value) -> SessionInput {
    SessionInput::Operator(OperatorCommand::Flow { command: "undo".to_owned(), arguments })
}

fn session_with_write() -> SessionHarness {
    let mut harness = after_write();
    finish_reply(&mut harness, "Added.");
    harness
}

#[test]
fn write_is_undone_from_the_journal() {
    let mut harness = session_with_write();
    harness.apply_input(undo(Value::Null));
    let run = runs(&harness).pop().expect("a run was requested");
    let tool_request = tool_request(&run);
    assert_eq!(
        (tool_request.operation.as_str(), &tool_request.parameters["changes"][0]["before"]),
        ("undo", &Value::Null)
    );
    assert_eq!(tool_request.parameters["changes"][0]["id"], json!(id("meal", 1)));
    let change =
        json!({"type": "meal", "id": id("meal", 1), "label": "Lemon Herb Chicken", "before": {}, "after": null});
    finish_records(&mut harness, &json!({"changes": [change]}).to_string());
    assert_eq!(harness.last_reply(), "The write was undone. Changes made:⏎- deleted meal “Lemon Herb Chicken”");
    let flow_state = flow_state(&harness);
    assert_eq!(flow_state.entities.get("meal_1").map(|meal| meal.last_action), Some(LastEntityAction::Deleted));
    assert!(flow_state.writes[0].undone && flow_state.writes.len() == 1);
    assert!(harness.session().is_idle());
}

#[test]
fn impossible_undo_is_refused_with_the_reason() {
    let refused = |harness: &mut SessionHarness, arguments: Value| {
        harness.try_input(undo(arguments)).expect_err("refused").to_string()
    };
    let mut harness = open();
    assert_eq!(refused(&mut harness, Value::Null), "this session has no write that can be undone");
    let mut harness = session_with_write();
    assert_eq!(
        refused(&mut harness, json!({"run": "x9"})),
        "x9 is not a write of this session that can be undone; these are: x3"
    );
    assert!(refused(&mut harness, json!({"run": []})).contains("must be a tool run (like x3 or 3)"));
    harness.send_message("and now");
    assert!(refused(&mut harness, Value::Null).contains("a turn is running"));
    harness.run_command(OperatorCommand::Cancel { turn: None });
    harness.apply_input(undo(json!({"run": "x3"})));
    finish_records(&mut harness, &json!({"refusal": "it was changed since"}).to_string());
    assert_eq!(harness.last_reply(), "The write could not be undone: it was changed since");
    harness.apply_input(undo(json!({"run": 3})));
    finish_records(
        &mut harness,
        &json!({"changes": [{"type": "meal", "id": id("meal", 1), "label": "X", "before": {}, "after": null}]})
            .to_string(),
    );
    assert_eq!(refused(&mut harness, json!({"run": 3})), "x3 was already undone");
}

#[test]
fn undo_without_a_result_is_looked_up_in_the_log_of_runs() {
    let interrupted = || {
        let mut harness = session_with_write();
        harness.apply_input(undo(Value::Null));
        harness.finish_tool("records", Err("the records database failed"));
        let run = runs(&harness).pop().expect("the log is asked");
        assert_eq!(tool_request(&run).operation.as_str(), "resolve_run");
        harness
    };
    let mut harness = interrupted();
    let change =
        json!({"type": "meal", "id": id("meal", 1), "label": "Lemon Herb Chicken", "before": {}, "after": null});
    finish_records(&mut harness, &json!({"changes": [change]}).to_string());
    assert!(flow_state(&harness).writes[0].undone, "it was executed");
    let mut harness = interrupted();
    finish_records(&mut harness, &json!({"never_executed": true}).to_string());
    assert_eq!(harness.last_reply(), "The write could not be undone: the request was not executed");
    let mut harness = interrupted();
    harness.finish_tool("records", Err("the records database failed"));
    let unknown = "it is unknown whether this was executed; check the records";
    assert_eq!(harness.last_reply(), format!("The write could not be undone: {unknown}"));
}

#[test]
fn write_that_a_closed_session_interrupts_has_an_unknown_outcome() {
    let mut harness = during_write();
    harness.run_command(OperatorCommand::Close);
    let failed = facts(&harness, "tool_failed");
    assert_eq!(failed[0]["why"], json!("it is unknown whether this was executed; check the records"), "{failed:?}");
    let mut harness = session_with_write();
    harness.apply_input(undo(Value::Null));
    harness.run_command(OperatorCommand::Close);
    assert_eq!(facts(&harness, "undo_failed").len(), 1);
}
