//! A whole project through the program, with the rehearsal model and real files and commands.

use serde_json::Value;

use crate::support::Place;

const CONFIG: &str = "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n\
    [workspaces.app]\nfolder = \"app\"\nchecks = [\"sh test.sh\"]\ncommands = [\"sh\"]\n";
const REQUEST: &str = "build me a small command-line tool";

fn place_with_workspace() -> Place {
    let place = Place::new();
    place.write("segue.toml", CONFIG);
    std::fs::create_dir(place.path().join("app")).expect("created");
    place
}

/// Carries out the request in a session, and returns the report.
fn run_project(place: &Place, session: &str) -> Value {
    let run = place.run(&["run", "--session", session, "--set", "workspace=app", "--json", REQUEST]);
    assert_eq!(run.code, 0, "{} {}", run.out, run.err);
    serde_json::from_str(&run.out).expect("JSON")
}

/// The values of the facts of a kind, in order.
fn facts(place: &Place, session: &str, kind: &str) -> Vec<Value> {
    let shown = place.json(&["show", session, "--events", "--json"]);
    let events = shown["events"].as_array().expect("a list").iter().map(|recorded| &recorded["event"]);
    let facts = events.filter(|event| event["type"] == "flow_fact_recorded" && event["kind"] == kind);
    facts.map(|fact| fact["value"].clone()).collect()
}

#[test]
fn whole_project_writes_files_fails_a_real_check_once_and_ends_with_evidence() {
    let place = place_with_workspace();
    let report = run_project(&place, "a");
    assert_eq!((&report["ended"], &report["phase"]), (&true.into(), &"end".into()));
    assert_eq!(report["result"]["verified"], true);
    assert_eq!(report["result"]["files"], serde_json::json!(["README.md", "greet.sh", "test.sh"]));
    // The files are real, and the mistake is corrected.
    let mut greet = std::process::Command::new("sh");
    let said = greet.args(["greet.sh", "Ada"]).current_dir(place.path().join("app")).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "Hello, Ada!\n");
    let verdicts = facts(&place, "a", "verdict_reached");
    let passed: Vec<bool> = verdicts.iter().map(|verdict| verdict["passed"] == true).collect();
    assert_eq!(passed, [false, true, true], "the last one is after the chores");
    let output = verdicts[0]["commands"][0]["output_tail"].as_str().expect("a text");
    assert_eq!(output, "expected: Hello, Ada!\nbut got:  Hello Ada\n");
    let phases: Vec<String> = facts(&place, "a", "turn_opened")
        .iter()
        .map(|turn| turn["decision"]["phase"].as_str().unwrap_or_default().to_owned())
        .collect();
    let expected = ["execute", "verification", "execute", "verification", "chores", "reflection"];
    assert_eq!(phases, expected);
    assert_eq!(facts(&place, "a", "lesson_learned").len(), 1, "the only participant reflects once");
}

#[test]
fn tool_runs_are_shown_live_without_colours_and_not_with_json() {
    let place = place_with_workspace();
    let run = place.run(&["run", "--session", "a", "--set", "workspace=app", REQUEST]);
    assert_eq!(run.code, 0, "{} {}", run.out, run.err);
    for line in [
        "executor: write_file greet.sh · ✓ greet.sh +",
        "run_checks · ✗ 0 of 1 passed · ",
        "run_checks · ✓ 1 of 1 passed",
    ] {
        assert!(run.err.contains(line), "{line}: {}", run.err);
    }
    assert!(!run.err.contains('\u{1b}') && !run.out.contains("write_file"), "{} {}", run.out, run.err);
    let run = place.run(&["run", "--session", "b", "--set", "workspace=app", "--json", REQUEST]);
    assert!(!run.err.contains("write_file"), "{}", run.err);
}

#[test]
fn lesson_of_a_session_is_in_the_receipts_of_the_next_one_in_the_workspace() {
    let place = place_with_workspace();
    run_project(&place, "a");
    let report = run_project(&place, "b");
    assert_eq!(report["result"]["verified"], true, "{report}");
    // The second call is the executor's first one.
    let receipt = place.ok(&["explain", "b", "c2"]);
    assert!(receipt.contains("what the agent has learned here"), "{receipt}");
    let prompt = place.ok(&["explain", "b", "c2", "--prompt"]);
    assert!(prompt.contains("- run the test after each change: "), "{prompt}");
    let first = place.ok(&["explain", "a", "c2"]);
    assert!(first.contains("lessons: omitted, the agent has no lessons yet"), "{first}");
    assert_eq!(facts(&place, "b", "lesson_learned").len(), 0, "it knows the lesson");
}
