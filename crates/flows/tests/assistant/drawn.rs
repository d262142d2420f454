//! The panels: what is shown of a session, picked by what it holds.

use segue_core::flow::{Content, Panel, panels};
use segue_core::session::State;
use segue_flows::assistant::Assistant;
use segue_testkit::Stage;
use serde_json::json;

use super::play::*;

fn drawn(stage: &Stage) -> Vec<Panel> {
    let flow = Assistant::new();
    let state = State::fold(&flow, stage.journal());
    panels(&flow, &state, stage.shelf()).expect("every text is at hand")
}

fn table(panels: &[Panel], name: &str) -> Vec<Vec<String>> {
    let panel = panels.iter().find(|panel| panel.name == name).unwrap_or_else(|| panic!("no panel {name}"));
    let Content::Table { columns, rows } = &panel.content else { panic!("{name} is a table") };
    assert!(rows.iter().all(|row| row.len() == columns.len()));
    rows.clone()
}

#[test]
fn a_session_that_holds_nothing_shows_nothing() {
    assert_eq!(drawn(&open()), []);
}

#[test]
fn entities_are_shown_with_where_they_stand_and_why() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let heard = heard_with(
        "no cod",
        json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}),
    );
    decided(&mut stage, "no cod", heard, propose("Shall I plan recipe_1?"));
    replied(&mut stage, "Shall I?");
    for said in ["hm", "well"] {
        talk_turn(&mut stage, said);
    }
    stage.say("still here");
    let panels = drawn(&stage);
    let row = |line: &[&str]| line.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        table(&panels, "entities"),
        [
            row(&["retained", "recipe_1", "Lemon Herb Chicken", "yes", "full", "read", "1", "they like it"]),
            row(&["demoted", "recipe_3", "Baked Cod", "yes", "none", "read", "1", "no cod"]),
        ]
    );
    let reasoning = table(&panels, "reasoning");
    assert_eq!(reasoning.len(), 2);
    assert_eq!(reasoning[0][..4], row(&["3", "exploring", "talks", "propose, to agree"]));
    let names: Vec<&str> = panels.iter().map(|panel| panel.name.as_str()).collect();
    assert_eq!(names, ["assistant", "pending", "entities", "reasoning", "earlier_reasoning"]);
}

#[test]
fn writes_are_shown_with_whether_they_stand() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "add it", heard("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    act(
        &mut stage,
        tool(
            "create",
            json!({"type": "meal", "records": [{"date": "2026-01-15", "slot": "dinner", "recipe": "recipe_1"}]}),
        ),
    );
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    replied(&mut stage, "Added.");
    let writes = table(&drawn(&stage), "writes");
    assert_eq!(writes, [["x2", "2", "created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)", "stands"]]);
}
