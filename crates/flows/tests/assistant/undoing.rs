//! Taking writes back.

use segue_core::decide::{OperatorCommand, SessionInput};
use segue_flows::assistant::registry::EntityAction;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::play::*;

fn undo(arguments: Value) -> SessionInput {
    SessionInput::Operator(OperatorCommand::Flow { command: "undo".to_owned(), arguments })
}

fn written() -> SessionHarness {
    let mut stage = wrote();
    replied(&mut stage, "Added.");
    stage
}

#[test]
fn a_write_is_taken_back_from_what_the_journal_says() {
    let mut stage = written();
    stage.apply_input(undo(Value::Null));
    let run = runs(&stage).pop().expect("the host is told");
    let told = told(&run);
    assert_eq!((told.operation.as_str(), &told.parameters["changes"][0]["before"]), ("undo", &Value::Null));
    assert_eq!(told.parameters["changes"][0]["id"], json!(id("meal", 1)));
    let change =
        json!({"type": "meal", "id": id("meal", 1), "label": "Lemon Herb Chicken", "before": {}, "after": null});
    host(&mut stage, &json!({"changes": [change]}).to_string());
    assert_eq!(stage.last_reply(), "Taken back:⏎- deleted meal “Lemon Herb Chicken”");
    let memory = memory(&stage);
    assert_eq!(memory.entities.get("meal_1").map(|meal| meal.last_action), Some(EntityAction::Deleted));
    assert!(memory.writes[0].undone && memory.writes.len() == 1);
    assert!(stage.session().is_idle());
}

#[test]
fn what_cannot_be_taken_back_is_refused_with_the_reason() {
    let refused = |stage: &mut SessionHarness, arguments: Value| {
        stage.try_input(undo(arguments)).expect_err("refused").to_string()
    };
    let mut stage = open();
    assert_eq!(refused(&mut stage, Value::Null), "nothing was written in this session that could be taken back");
    let mut stage = written();
    assert_eq!(refused(&mut stage, json!({"run": "x9"})), "x9 wrote nothing that is remembered; those that did: x2");
    assert!(refused(&mut stage, json!({"run": []})).contains("must be the number of a tool run"));
    stage.send_message("and now");
    assert!(refused(&mut stage, Value::Null).contains("a turn is running"));
    stage.run_command(OperatorCommand::Cancel);
    stage.apply_input(undo(json!({"run": "x2"})));
    host(&mut stage, &json!({"refused": "it was changed since"}).to_string());
    assert_eq!(stage.last_reply(), "That could not be taken back: it was changed since");
    stage.apply_input(undo(json!({"run": 2})));
    host(
        &mut stage,
        &json!({"changes": [{"type": "meal", "id": id("meal", 1), "label": "X", "before": {}, "after": null}]})
            .to_string(),
    );
    assert_eq!(refused(&mut stage, json!({"run": 2})), "x2 was taken back already");
}
