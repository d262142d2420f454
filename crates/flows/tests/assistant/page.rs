//! The page about the flow: its tables are those of the flow's data, and its conversation runs.

use segue_core::event::Event;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::{DomainCatalog, assistant_setting_specs};
use segue_flows::assistant::spec::assistant_flow_spec;
use segue_testkit::parse_transcript;
use serde_json::Value;

use super::play::*;

const PAGE: &str = include_str!("../../../../docs/assistant.md");

fn rows(heading: &str) -> Vec<Vec<String>> {
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn each_node_on_the_page_is_shown_what_the_page_says() {
    let spec = assistant_flow_spec(&DomainCatalog::new(DomainSchema::built_in()));
    let nodes = rows("| node");
    assert_eq!(nodes.len(), NODES.len());
    for row in nodes {
        let role = &spec.roles[row[1].trim_matches('`')];
        let ask = role.recipe.asks.get("go").or_else(|| role.recipe.asks.values().next()).expect("it is asked");
        let shown: Vec<String> = ask.iter().map(|fragment| format!("`{}`", fragment.name)).collect();
        assert_eq!(row[3], shown.join(" "), "{}", row[1]);
    }
}

#[test]
fn every_setting_on_the_page_is_one_and_its_default_is_right() {
    let specs = assistant_setting_specs(&DomainCatalog::new(DomainSchema::built_in()));
    let rows = rows("| setting");
    assert_eq!(rows.len(), specs.len());
    for (row, spec) in rows.iter().zip(specs) {
        assert_eq!(row[1].trim_matches('`'), spec.name);
        let default: Value = serde_json::from_str(row[2].trim_matches('`')).expect("a value");
        assert_eq!(default, spec.default, "{}", spec.name);
    }
}

#[test]
fn the_conversation_on_the_page_runs() {
    let mut stage = open();
    let (_, rest) = PAGE.split_once("```transcript\n").expect("the page has one");
    let (transcript, _) = rest.split_once("```").expect("it is closed");
    for (who, text) in parse_transcript(transcript) {
        match who {
            "you" => {
                assert!(stage.session().is_idle(), "before: {text}");
                stage.send_message(&text);
            }
            "heard" => assert_eq!(stage.last_reply(), text),
            "records" => host(&mut stage, &text),
            role => {
                stage.answer_call(role, &text);
            }
        }
    }
    assert!(stage.session().is_idle());
    assert!(facts(&stage, "broken").is_empty() && facts(&stage, "tool_failed").is_empty());
    assert_eq!(memory(&stage).writes.len(), 1);
    let ended = stage.journal().iter().filter(|recorded| matches!(recorded.event, Event::TurnEnded { .. })).count();
    assert_eq!(ended, 2);
}
