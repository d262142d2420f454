//! Workspaces in the configuration, and the supervisor of commands inside the program.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Place, Run};

const CONFIG: &str = "[workspaces.shop]\nfolder = \"code\"\nchecks = [\"cargo test\"]\ncommands = [\"ls\"]\n";

fn place_with_workspace() -> Place {
    let place = Place::new();
    place.write("segue.toml", CONFIG);
    std::fs::create_dir(place.path().join("code")).expect("created");
    place
}

#[test]
fn a_workspace_needs_trust_in_the_folder_that_declares_it() {
    let place = place_with_workspace();
    let mut command = place.command(&["send", "hello"]);
    let run = Run::of(&command.env_remove("SEGUE_TRUST").output().expect("it runs"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.err.contains("let agents change files in"), "{}", run.err);
    assert!(run.err.contains("/code and run `ls`, `cargo test` (workspace `shop`)"), "{}", run.err);
}

#[test]
fn the_doctor_checks_workspaces_and_the_sandbox() {
    let place = place_with_workspace();
    let report = place.ok(&["doctor"]);
    assert!(report.contains("/code: checks cargo test; commands ls\n"), "{report}");
    let is_confined = report.contains("commands are confined by Landlock");
    let is_warned = report.contains("this kernel has no Landlock: commands in shop can access all files of your user");
    assert!(is_confined != is_warned, "{report}");
    std::fs::remove_dir(place.path().join("code")).expect("removed");
    let run = place.run(&["doctor"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("failed  workspace shop: "), "{}", run.out);
}

#[test]
fn the_program_supervises_commands() {
    let place = Place::new();
    let request: Value = json!({
        "program": "/bin/sh", "name": "sh", "arguments": ["-c", "echo from the command; exit 7"], "folder": place.path(),
        "environment": {"PATH": "/usr/bin:/bin"}, "sandbox": null, "run_ms_max": 60_000, "silence_ms_max": 60_000,
    });
    let mut command = place.command(&["supervise"]);
    let mut supervisor =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut input = supervisor.stdin.take().expect("piped");
    writeln!(input, "{request}").expect("written");
    // The input stays open until the command has ended.
    let output = supervisor.wait_with_output().expect("it ends");
    drop(input);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the command\n");
    let report: Value = serde_json::from_slice(&output.stderr).expect("a report");
    assert_eq!(report, json!({"reason": "ended", "exit_code": 7, "signal": null}));
}
