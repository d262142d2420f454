//! The documented example of a flow without Rust: a support desk.

use segue_flows::project::ProjectFlow;
use serde_json::{Value, json};

use crate::support::Project;

const SUPPORT_DESK: &str = include_str!("../../../../docs/examples/support-desk.toml");

fn open() -> Project {
    let flow = ProjectFlow::from_source(SUPPORT_DESK).unwrap_or_else(|errors| panic!("{errors}"));
    Project::open_flow(flow, json!({"workspace": "w"}))
}

#[test]
fn report_passes_from_triage_to_a_confirmed_fix() {
    let mut desk = open();
    desk.say("the lamp does not work");
    assert_eq!(
        desk.offered_routes(),
        (vec!["triage".to_owned(), "diagnose".to_owned()], vec!["receptionist".to_owned(), "technician".to_owned()])
    );
    desk.route("triage", &["receptionist"]).answer("receptionist", "Since when?");
    desk.say("since the update; pressing the switch does nothing").route("diagnose", &["technician"]);
    assert_eq!(
        desk.offered_tools("technician"),
        ["complete", "list_files", "read_file", "run_command", "search_files"]
    );
    desk.complete("technician", "the relay is inverted").route("fix", &["technician"]);
    desk.write("technician").complete("technician", "turned the relay around").route("confirm", &["receptionist"]);
    desk.answer("receptionist", "Please try it. Is it gone?");
    // A message alone does not close the report: the user has to confirm it.
    desk.say("it works now, thank you").route("solved", &[]);
    assert!(!desk.is_closed());
    assert!(desk.refusals()[0].contains("the user has not confirmed it"), "{:?}", desk.refusals());
    desk.route("confirm", &["receptionist"]).answer("receptionist", "Please use /confirm.");
    desk.command("confirm", Value::Null);
    assert!(desk.offered_routes().0.contains(&"solved".to_owned()));
    desk.route("solved", &[]);
    assert!(desk.is_closed());
}

#[test]
fn report_cannot_be_closed_around_the_confirmation() {
    let mut desk = open();
    desk.say("x").route("diagnose", &["technician"]).complete("technician", "c").route("fix", &["technician"]);
    desk.write("technician").complete("technician", "f").route("diagnose", &["technician"]);
    assert_eq!(desk.open_gates(), ["confirmed"]);
    desk.complete("technician", "nothing more").route("solved", &[]);
    assert_eq!(desk.phase(), "diagnose");
}
