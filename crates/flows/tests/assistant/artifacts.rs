//! The artifacts of a session, and the descriptions of its facts.

use segue_core::flow::{
    ArtifactNotesItem, ArtifactTableRow, DecisionTextResolver, EventSubject, FactDisplay, Flow, FlowArtifact,
    FlowContext, TypedArtifactContent,
};
use segue_core::session::SessionState;
use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::state::AssistantState;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

fn session_artifacts(harness: &SessionHarness) -> Vec<FlowArtifact> {
    let flow = AssistantFlow::new();
    let state = SessionState::fold(&flow, harness.journal());
    let flow_state = state.flow.downcast_ref::<AssistantState>().expect("the state of this flow");
    let (texts, about) = (DecisionTextResolver::new(harness.texts()), EventSubject::default());
    flow.artifacts(&FlowContext { session: &state.session, state: flow_state, texts: &texts, subject: &about })
}

fn table(artifacts: &[FlowArtifact], name: &str) -> Vec<ArtifactTableRow> {
    let artifact = artifacts.iter().find(|artifact| artifact.name == name).unwrap_or_else(|| panic!("no {name}"));
    let TypedArtifactContent::Table { columns, rows } = &artifact.content else { panic!("{name} is a table") };
    assert!(rows.iter().all(|row| row.cells.len() == columns.len()));
    rows.clone()
}

fn notes(artifacts: &[FlowArtifact], name: &str) -> Vec<ArtifactNotesItem> {
    let artifact = artifacts.iter().find(|artifact| artifact.name == name).unwrap_or_else(|| panic!("no {name}"));
    let TypedArtifactContent::Notes { items } = &artifact.content else { panic!("{name} are notes") };
    items.clone()
}

#[test]
fn empty_session_has_no_artifacts() {
    assert_eq!(session_artifacts(&open()), []);
}

#[test]
fn entities_artifact_shows_tiers_and_reasons() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let understood = understood_with(
        "no cod",
        json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}),
    );
    start_planned_turn(&mut harness, "no cod", understood, proposal("Shall I plan recipe_1?"));
    finish_reply(&mut harness, "Shall I?");
    let artifacts = session_artifacts(&harness);
    let groups: Vec<String> =
        table(&artifacts, "entities").iter().map(|row| format!("{} {}", row.group, row.id)).collect();
    assert_eq!(groups, ["active recipe_1", "active recipe_2", "demoted recipe_3"]);
    assert_eq!(notes(&artifacts, "conversation")[0].text, "Shall I plan Lemon Herb Chicken?");
    for said in ["hm", "well"] {
        talk_turn(&mut harness, said);
    }
    harness.send_message("still here");
    let artifacts = session_artifacts(&harness);
    let row = |id: &str, group: &str, label: &str, detail: &str, why: &str| ArtifactTableRow {
        id: id.to_owned(),
        group: group.to_owned(),
        cells: [id, label, "yes", detail, "read", "1"].map(str::to_owned).into(),
        why: why.to_owned(),
        commands: Vec::new(),
    };
    assert_eq!(
        table(&artifacts, "entities"),
        [
            row("recipe_1", "retained", "Lemon Herb Chicken", "full", "they like it"),
            row("recipe_3", "demoted", "Baked Cod", "none", "no cod"),
        ]
    );
    let reasoning = notes(&artifacts, "reasoning");
    let titles: Vec<&str> = reasoning.iter().map(|item| item.title.as_str()).collect();
    assert_eq!(titles, ["Summary up to turn 2", "Turn 3 (exploring): talks", "Turn 4 (exploring): talks"]);
    assert_eq!(reasoning[1].text, "decision: propose (goal: agree)");
}

#[test]
fn reasoning_artifact_shows_reasons_outcomes_and_unfinished_steps() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let understood = understood_with("no cod", json!({"demote": [{"ref": "recipe_3", "reason": "no cod"}]}));
    start_planned_turn(
        &mut harness,
        "no cod",
        understood,
        plan(&[step("analyze", "recipe", 1, &[]), step("write", "meal", 2, &[])]),
    );
    answer_act(&mut harness, json!({"action": "blocked", "reason": "nothing fits"}));
    finish_reply(&mut harness, "Nothing fits.");
    let reasoning = notes(&session_artifacts(&harness), "reasoning");
    assert_eq!(
        reasoning[1].text,
        "decision: plan_direct (goal: help)\nstep 1 (analyze recipe), could not be done: nothing fits\n\
         step 2 (write meal), not started\nreason for recipe_3: no cod\nnot completed: nothing fits"
    );
}

#[test]
fn writes_artifact_shows_status_and_undo() {
    let mut harness = after_write();
    finish_reply(&mut harness, "Added.");
    let writes = table(&session_artifacts(&harness), "writes");
    let what = "created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)";
    assert_eq!(writes[0].cells, ["x3", "2", what]);
    assert_eq!(writes[0].group, "active");
    let offers: Vec<(&str, &Value)> =
        writes[0].commands.iter().map(|it| (it.command.as_str(), &it.arguments)).collect();
    assert_eq!(offers, [("undo", &json!({"run": 3}))]);
}

#[test]
fn every_fact_is_described_and_writes_are_notices() {
    let mut harness = after_write();
    finish_reply(&mut harness, "Added.");
    let (flow, flow_state) = (AssistantFlow::new(), flow_state(&harness));
    let tool_request = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        segue_core::event::Event::FlowFactRecorded { kind, value } => {
            Some(match flow.describe_fact(&flow_state, kind, value) {
                FactDisplay::Detail(text) => text,
                FactDisplay::Notice(text) => format!("! {text}"),
                FactDisplay::Hidden => "-".to_owned(),
                FactDisplay::Raw => panic!("{kind} is not described"),
            })
        }
        _ => None,
    });
    assert_eq!(
        tool_request.collect::<Vec<_>>(),
        [
            "understood: wants recipes",
            "plan: 1 read recipe",
            "step 1 has to search among 1000 records",
            "x2 (read) returned 3 records",
            "step 1: found three recipes",
            "-",
            "understood: chooses",
            "plan: 1 write meal",
            "! created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)",
            "step 1: added",
            "-",
        ]
    );
}
