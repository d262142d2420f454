//! Checks `docs/assistant.md`: its tables match the flow's declaration, and its conversation runs.

use segue_core::event::Event;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::{ConfiguredDomains, assistant_setting_specs};
use segue_flows::assistant::spec::assistant_flow_spec;
use segue_testkit::parse_transcript;
use serde_json::Value;

use super::support::*;

const PAGE: &str = include_str!("../../../../docs/assistant.md");

fn rows(heading: &str) -> Vec<Vec<String>> {
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn fragments_in_the_docs_match_the_recipes() {
    let spec = assistant_flow_spec(&ConfiguredDomains::new(DomainSchema::built_in()));
    let nodes = rows("| node");
    assert_eq!(nodes.len(), NODES.len());
    for row in nodes {
        let role = &spec.roles[row[1].trim_matches('`')];
        let ask = role.asks.get("go").or_else(|| role.asks.values().next()).expect("it is asked");
        let prompt_text: Vec<String> = ask.iter().map(|fragment| format!("`{}`", fragment.name)).collect();
        assert_eq!(row[3], prompt_text.join(" "), "{}", row[1]);
    }
}

#[test]
fn settings_in_the_docs_match_the_declared_ones() {
    let specs = assistant_setting_specs(&ConfiguredDomains::new(DomainSchema::built_in()));
    let rows = rows("| setting");
    assert_eq!(rows.len(), specs.len());
    for (row, spec) in rows.iter().zip(specs) {
        assert_eq!(row[1].trim_matches('`'), spec.name);
        let default: Value = serde_json::from_str(row[2].trim_matches('`')).expect("a value");
        assert_eq!(default, spec.default, "{}", spec.name);
    }
}

#[test]
fn conversation_in_the_docs_runs() {
    let mut harness = open();
    let (_, rest) = PAGE.split_once("```transcript\n").expect("the page has one");
    let (transcript, _) = rest.split_once("```").expect("it is closed");
    for (who, text) in parse_transcript(transcript) {
        match who {
            "you" => {
                assert!(harness.session().is_idle(), "before: {text}");
                harness.send_message(&text);
            }
            "heard" => assert_eq!(harness.last_reply(), text),
            "records" => finish_records(&mut harness, &text),
            role => {
                harness.answer_call(role, &text);
            }
        }
    }
    assert!(harness.session().is_idle());
    assert!(facts(&harness, "answer_rejected").is_empty() && facts(&harness, "tool_failed").is_empty());
    assert_eq!(flow_state(&harness).writes.len(), 1);
    let ended = harness.journal().iter().filter(|recorded| matches!(recorded.event, Event::TurnEnded { .. })).count();
    assert_eq!(ended, 2);
}
