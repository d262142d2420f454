//! Flows in files: how they are written, checked, used, and kept by the sessions that were opened with them.

use crate::support::Place;

const CONFIG: &str =
    "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n[flows.letters]\nfile = \"letters.toml\"\n";

/// A home with a starter flow that is used by its configuration.
fn place_with_flow() -> Place {
    let place = Place::new();
    place.ok(&["flows", "new", "letters"]);
    place.write("segue.toml", CONFIG);
    place
}

#[test]
fn starter_file_is_valid_and_used_like_any_flow() {
    let place = place_with_flow();
    let checked = place.ok(&["flows", "check", "letters.toml"]);
    assert!(checked.contains("flow `letters` is valid: 4 phases, 2 agents, 1 gates"), "{checked}");
    let listed = place.ok(&["flows"]);
    assert!(listed.contains("letters"), "{listed}");
    let run = place.run(&["send", "--flow", "letters", "--session", "a", "hello there"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("This is Host"), "{}", run.out);
    // A file that exists is not overwritten.
    assert!(place.fails(&["flows", "new", "letters"]).contains("cannot create letters.toml"));
    assert!(place.fails(&["flows", "new", "Letters"]).contains("cannot use this name"));
}

#[test]
fn graph_is_drawn_from_a_name_or_a_file() {
    let place = place_with_flow();
    let by_file = place.ok(&["flows", "show", "letters.toml"]);
    assert_eq!(by_file, place.ok(&["flows", "show", "letters"]));
    for part in [
        "▶ talk  (host)",
        "├─▶ review  when completed",
        "└┄▶ talk  after 6 rounds",
        "■ done",
        "gate reviewed: after work",
    ] {
        assert!(by_file.contains(part), "{part}: {by_file}");
    }
    assert!(place.ok(&["flows", "show", "letters", "--mermaid"]).contains("stateDiagram-v2"));
    assert!(place.ok(&["flows", "show", "project"]).contains("gate verified"));
}

#[test]
fn every_mistake_is_reported_with_file_line_and_column() {
    let place = place_with_flow();
    let broken = place
        .read("letters.toml")
        .replace("agents = [\"host\"]", "agents = [\"hosst\"]")
        .replace("to = \"review\"", "to = \"revieww\"");
    place.write("broken.toml", &broken);
    let errors = place.fails(&["flows", "check", "broken.toml"]);
    assert!(errors.contains("broken.toml:") && errors.contains("there is no agent `hosst`"), "{errors}");
    assert!(errors.contains("there is no phase `revieww`"), "{errors}");
    // A broken file is an error of the configuration, too.
    place.write("letters.toml", &broken);
    let errors = place.fails(&["send", "--flow", "letters", "hello"]);
    assert!(errors.contains("`flows.letters.file`: the flow file has mistakes"), "{errors}");
    // The list would be incomplete without it.
    let errors = place.fails(&["flows"]);
    assert!(errors.contains("`flows.letters.file`: the flow file has mistakes"), "{errors}");
}

#[test]
fn session_keeps_its_definition_when_the_file_changes_or_is_gone() {
    let place = place_with_flow();
    assert_eq!(place.run(&["send", "--flow", "letters", "--session", "a", "hello"]).code, 0);
    let renamed = place.read("letters.toml").replace("title = \"Host\"", "title = \"Butler\"");
    place.write("letters.toml", &renamed);
    let old = place.run(&["send", "--session", "a", "hello again"]);
    assert!(old.out.contains("This is Host"), "{} {}", old.out, old.err);
    let new = place.run(&["send", "--flow", "letters", "--session", "b", "hello"]);
    assert!(new.out.contains("This is Butler"), "{} {}", new.out, new.err);
    // Without the file and its table, the session still runs with what it has recorded.
    place.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
    std::fs::remove_file(place.path().join("letters.toml")).expect("it exists");
    let gone = place.run(&["send", "--session", "a", "and again"]);
    assert!(gone.out.contains("This is Host"), "{} {}", gone.out, gone.err);
    assert!(place.fails(&["send", "--flow", "letters", "hello"]).contains("letters"));
    assert!(place.run(&["show", "a"]).out.contains("This is Host"));
}

#[test]
fn checks_of_an_untrusted_folder_need_trust() {
    let place = place_with_flow();
    let with_check = format!("{}\n[[checks]]\nname = \"tests\"\ncommand = \"make test\"\n", place.read("letters.toml"));
    place.write("letters.toml", &with_check);
    let mut command = place.command(&["send", "--flow", "letters", "hello"]);
    let output = command.env_remove("SEGUE_TRUST").output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("run the command `make test` as a check (flow `letters`)"), "{error}");
}

#[test]
fn run_says_by_its_exit_code_that_it_waits_for_the_user() {
    let place = place_with_flow();
    let run = place.run(&["run", "--flow", "letters", "--json", "hello there"]);
    assert_eq!(run.code, 2, "{} {}", run.out, run.err);
    let report: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&report["outcome"], &report["ended"]), (&"done".into(), &false.into()));
    let misused = place.run(&["run", "--budget", "nothing", "x"]);
    assert!(misused.code == 2 && misused.err.contains("invalid value"), "{}", misused.err);
    assert!(place.fails(&["run", "--budget", "0", "x"]).contains("--budget must be an amount of dollars"));
}
