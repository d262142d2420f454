//! Flow files: every mistake is reported with its place, and a valid file is a flow like any other.

use segue_core::flow::Flow;
use segue_flows::project::definition::{FlowDefinition, starter_definition};
use segue_flows::project::{PROJECT_DEFINITION, ProjectFlow};

fn errors(source: &str) -> Vec<String> {
    let errors = FlowDefinition::parse(source).expect_err("it has mistakes");
    errors.errors.iter().map(ToString::to_string).collect()
}

/// A small valid flow.
const SMALL: &str = r#"
name = "small"
start = "talk"

[[agents]]
name = "host"
role = "You talk."

[[phases]]
name = "talk"
agents = ["host"]
completion = "answer"

[[phases]]
name = "done"
kind = "end"

[[edges]]
from = "talk"
to = "done"
"#;

#[test]
fn valid_files_are_flows_without_errors() {
    for source in [SMALL, PROJECT_DEFINITION, &starter_definition("letters")] {
        let flow = ProjectFlow::from_source(source).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(Flow::spec(&flow).validation_errors(), [""; 0]);
        assert_eq!(Flow::definition(&flow), Some(source));
    }
    let starter = ProjectFlow::from_source(&starter_definition("letters")).expect("it is valid");
    assert_eq!(Flow::spec(&starter).name, "letters");
}

#[test]
fn all_mistakes_are_reported_with_line_and_column() {
    let broken = SMALL
        .replace("agents = [\"host\"]", "agents = [\"host\", \"ghost\"]\ntools = [\"teleport\"]")
        .replace("to = \"done\"", "to = [\"done\", \"nowhere\"]\nwhen = \"full_moon\"");
    let errors = errors(&broken);
    assert_eq!(errors.len(), 4, "{errors:#?}");
    assert!(errors[0].starts_with("11:19: there is no agent `ghost`; agents are `host`"), "{errors:#?}");
    assert!(errors[1].starts_with("12:10: there is no tool `teleport`; there are `@read`"), "{errors:#?}");
    assert!(errors[2].starts_with("21:15: there is no phase `nowhere`; phases are `talk`, `done`"), "{errors:#?}");
    assert!(errors[3].starts_with("22:8: there is no condition `full_moon`; there are `completed`"), "{errors:#?}");
}

#[test]
fn malformed_entries_do_not_hide_each_other() {
    let broken = SMALL
        .replace("completion = \"answer\"", "completion = \"maybe\"")
        .replace("kind = \"end\"", "colour = \"red\"");
    let errors = errors(&broken);
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].contains("12:14: unknown variant `maybe`"), "{errors:#?}");
    assert!(errors[1].contains("unknown field `colour`"), "{errors:#?}");
    let syntax = FlowDefinition::parse("name = \nstart = ").expect_err("it is not TOML");
    assert!(syntax.errors.len() >= 2, "{syntax}");
}

#[test]
fn phase_that_cannot_be_reached_is_an_error_at_its_name() {
    let lonely = format!(
        "{SMALL}\n[[phases]]\nname = \"attic\"\nagents = [\"host\"]\n\n[[edges]]\nfrom = \"attic\"\nto = \"done\"\n"
    );
    let errors = errors(&lonely);
    assert_eq!(errors, ["23:8: `attic` cannot be reached from `talk`; add an edge that leads to it, or remove it"]);
}

#[test]
fn phase_without_exit_and_gate_without_exit_are_errors() {
    let stuck = SMALL.replace("[[edges]]\nfrom = \"talk\"\nto = \"done\"\n", "");
    let errors_of_stuck = errors(&format!("edges = []\n{stuck}"));
    assert!(errors_of_stuck.iter().any(|error| error.contains("`talk` has no exit")), "{errors_of_stuck:#?}");
    let gate = format!(
        "{SMALL}\n[[gates]]\nname = \"g\"\nopened_by = \"talk\"\nsatisfied_by = \"done\"\nevidence = \"checks_pass\"\n"
    );
    let errors_of_gate = errors(&gate);
    assert!(errors_of_gate[0].contains("25:16: gate `g` has no exit"), "{errors_of_gate:#?}");
}

#[test]
fn edge_can_replace_only_another_next_phase_and_only_under_a_condition() {
    let with_edge = |edge: &str| errors(&SMALL.replace("to = \"done\"\n", &format!("to = \"done\"\n{edge}\n")));
    let errors = with_edge("instead_of = [\"talk\", \"done\", \"nowhere\"]");
    assert!(errors[0].contains("21:14: `instead_of` needs a condition in `when`"), "{errors:#?}");
    assert!(errors[1].contains("`talk` must be a phase to which another edge from `talk` leads"), "{errors:#?}");
    assert!(errors[2].contains("`done` must be a phase to which another edge from `talk` leads"), "{errors:#?}");
    assert!(errors[3].contains("`nowhere` must be a phase"), "{errors:#?}");
}

#[test]
fn gate_that_blocks_its_own_way_is_found_by_the_engine_and_placed() {
    let source = PROJECT_DEFINITION.replace("blocks = [\"chores\"]", "blocks = [\"chores\", \"verification\"]");
    let errors = errors(&source);
    assert!(!errors.is_empty() && !errors[0].starts_with("1:1:"), "{errors:#?}");
}

#[test]
fn reserved_and_ill_formed_names_are_errors() {
    let errors = errors(
        &SMALL.replace("name = \"host\"", "name = \"router\"").replace("name = \"small\"", "name = \"Small Flow\""),
    );
    assert!(errors.iter().any(|error| error.contains("`router` is reserved")), "{errors:#?}");
    assert!(errors.iter().any(|error| error.starts_with("2:8: `Small Flow` is not a name of a flow")), "{errors:#?}");
}

#[test]
fn huge_file_is_refused() {
    let huge = format!("{SMALL}\n# {}", "x".repeat(200_000));
    assert!(errors(&huge)[0].contains("at most 131072 are allowed"));
}
