//! What is put on show of a session, picked by what it holds.

use segue_core::flow::artifact::{Artifact, ArtifactContent, ArtifactNote, ArtifactTableRow};
use segue_core::flow::{EventSubject, FactDisplay, Flow, FlowContext, TextResolver};
use segue_core::session::SessionState;
use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::state::AssistantState;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::play::*;

fn on_show(stage: &SessionHarness) -> Vec<Artifact> {
    let flow = AssistantFlow::new();
    let state = SessionState::fold(&flow, stage.journal());
    let memory = state.flow.downcast_ref::<AssistantState>().expect("it is this flow's");
    let (texts, about) = (TextResolver::new(stage.texts()), EventSubject::default());
    flow.artifacts(&FlowContext { session: &state.session, state: memory, texts: &texts, subject: &about })
}

fn table(exhibits: &[Artifact], name: &str) -> Vec<ArtifactTableRow> {
    let exhibit = exhibits.iter().find(|exhibit| exhibit.name == name).unwrap_or_else(|| panic!("no {name}"));
    let ArtifactContent::Table { columns, rows } = &exhibit.content else { panic!("{name} is a table") };
    assert!(rows.iter().all(|row| row.cells.len() == columns.len()));
    rows.clone()
}

fn notes(exhibits: &[Artifact], name: &str) -> Vec<ArtifactNote> {
    let exhibit = exhibits.iter().find(|exhibit| exhibit.name == name).unwrap_or_else(|| panic!("no {name}"));
    let ArtifactContent::Notes { items } = &exhibit.content else { panic!("{name} are notes") };
    items.clone()
}

#[test]
fn a_session_that_holds_nothing_shows_nothing() {
    assert_eq!(on_show(&open()), []);
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
    let exhibits = on_show(&stage);
    let groups: Vec<String> =
        table(&exhibits, "entities").iter().map(|row| format!("{} {}", row.group, row.id)).collect();
    assert_eq!(groups, ["active recipe_1", "active recipe_2", "demoted recipe_3"]);
    assert_eq!(notes(&exhibits, "conversation")[0].text, "Shall I plan Lemon Herb Chicken?");
    for said in ["hm", "well"] {
        talk_turn(&mut stage, said);
    }
    stage.send_message("still here");
    let exhibits = on_show(&stage);
    let row = |id: &str, group: &str, label: &str, detail: &str, why: &str| ArtifactTableRow {
        id: id.to_owned(),
        group: group.to_owned(),
        cells: [id, label, "yes", detail, "read", "1"].map(str::to_owned).into(),
        why: why.to_owned(),
        commands: Vec::new(),
    };
    assert_eq!(
        table(&exhibits, "entities"),
        [
            row("recipe_1", "retained", "Lemon Herb Chicken", "full", "they like it"),
            row("recipe_3", "demoted", "Baked Cod", "none", "no cod"),
        ]
    );
    let reasoning = notes(&exhibits, "reasoning");
    let titles: Vec<&str> = reasoning.iter().map(|item| item.title.as_str()).collect();
    assert_eq!(titles, ["Up to turn 2, in short", "Turn 3 (exploring): talks", "Turn 4 (exploring): talks"]);
    assert_eq!(reasoning[1].text, "decided propose, to agree");
}

#[test]
fn the_trace_of_a_turn_says_what_was_curated_done_and_not_done() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let heard = heard_with("no cod", json!({"demote": [{"ref": "recipe_3", "reason": "no cod"}]}));
    decided(&mut stage, "no cod", heard, plan(&[step("analyze", "recipe", 1, &[]), step("write", "meal", 2, &[])]));
    act(&mut stage, json!({"action": "blocked", "reason": "nothing fits"}));
    replied(&mut stage, "Nothing fits.");
    let reasoning = notes(&on_show(&stage), "reasoning");
    assert_eq!(
        reasoning[1].text,
        "decided plan_direct, to help\nstep 1 (analyze recipe), could not be done: nothing fits\n\
         step 2 (write meal), not begun\ncurated recipe_3: no cod\nnot everything was done: nothing fits"
    );
}

#[test]
fn writes_are_shown_with_whether_they_stand() {
    let mut stage = wrote();
    replied(&mut stage, "Added.");
    let writes = table(&on_show(&stage), "writes");
    let what = "created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)";
    assert_eq!(writes[0].cells, ["x2", "2", what]);
    assert_eq!(writes[0].group, "stands");
    let offers: Vec<(&str, &Value)> =
        writes[0].commands.iter().map(|it| (it.command.as_str(), &it.arguments)).collect();
    assert_eq!(offers, [("undo", &json!({"run": 2}))]);
}

#[test]
fn facts_are_told_in_words_and_writes_are_news() {
    let mut stage = wrote();
    replied(&mut stage, "Added.");
    let (flow, memory) = (AssistantFlow::new(), memory(&stage));
    let told = stage.journal().iter().filter_map(|recorded| match &recorded.event {
        segue_core::event::Event::FlowFactRecorded { kind, value } => {
            Some(match flow.describe_fact(&memory, kind, value) {
                FactDisplay::Detail(text) => text,
                FactDisplay::Notice(text) => format!("! {text}"),
                FactDisplay::Hidden => "-".to_owned(),
                FactDisplay::Raw => panic!("{kind} is not told"),
            })
        }
        _ => None,
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "understood: wants recipes",
            "plan: 1 read recipe",
            "x1 brought 3 by read",
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
