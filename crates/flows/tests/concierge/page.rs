//! Checks `docs/concierge.md`: its diagram, its settings and its conversation.

use segue_core::flow::FlowSettingSpec;
use segue_core::phase::render_mermaid;
use segue_flows::concierge::settings::concierge_setting_specs;
use segue_flows::concierge::spec::{PHASE_GRAPH, concierge_flow_spec};
use segue_testkit::parse_transcript;

use super::support::*;

const PAGE: &str = include_str!("../../../../docs/concierge.md");

fn fenced(kind: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{kind}\n")).expect("the page has one");
    rest.split_once("```").expect("it is closed").0
}

#[test]
fn diagram_on_the_page_equals_the_graph() {
    assert_eq!(fenced("mermaid"), render_mermaid(&concierge_flow_spec().graphs[PHASE_GRAPH], None));
}

#[test]
fn every_setting_is_on_the_page_with_its_default() {
    let rows =
        PAGE.lines().skip_while(|line| !line.starts_with("| setting")).skip(2).take_while(|line| line.starts_with('|'));
    let cell = |row: &str, nth: usize| row.split('|').nth(nth).map(|cell| cell.trim().trim_matches('`').to_owned());
    let on_the_page: Vec<_> = rows.map(|row| (cell(row, 1), cell(row, 2))).collect();
    let default =
        |spec: &FlowSettingSpec| if spec.default.is_null() { String::new() } else { spec.default.to_string() };
    let there_are: Vec<_> =
        concierge_setting_specs().iter().map(|spec| (Some(spec.name.clone()), Some(default(spec)))).collect();
    assert_eq!(on_the_page, there_are);
}

#[test]
fn conversation_on_the_page_runs() {
    let mut harness = open();
    let mut told = visible_replies(&harness).len();
    for (who, text) in parse_transcript(fenced("transcript")) {
        match who {
            "you" => {
                assert!(harness.session().is_idle(), "before: {text}");
                harness.send_message(&text);
            }
            "heard" => {
                assert_eq!(visible_replies(&harness).get(told), Some(&text));
                told += 1;
            }
            "phase" => assert_eq!(phase(&harness).current.as_str(), text),
            role => {
                harness.answer_call(role, &text);
            }
        }
    }
    assert_eq!(visible_replies(&harness).len(), told, "and there were no other replies");
    assert!(harness.session().is_idle());
    assert!(facts(&harness, "block_refused").is_empty() && facts(&harness, "reply_complaints").is_empty());
}
