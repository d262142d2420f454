//! Agents that change files at the same time: each has a copy of the workspace, which is merged when the routing turn is
//! closed.

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, ToolRunOpened};
use segue_flows::project::{PROJECT_DEFINITION, ProjectFlow};
use serde_json::json;

use crate::support::Project;

/// The built-in flow with a second agent that works in `execute`.
fn open() -> Project {
    let (before, execute) = PROJECT_DEFINITION.split_once("name = \"execute\"").expect("there is the phase");
    let execute = execute.replacen("agents = [\"executor\"]", "agents = [\"executor\", \"helper\"]", 1);
    let helper = "\n[[agents]]\nname = \"helper\"\nrole = \"You help.\"\nactions = \"native\"\n";
    let source = format!("{before}name = \"execute\"{execute}{helper}");
    let flow = ProjectFlow::from_source(&source).unwrap_or_else(|errors| panic!("{errors}"));
    let mut project = Project::open_flow(flow, json!({"workspace": "w"}));
    project.say("build a tool");
    project
}

/// A session in which both agents work.
fn both_work() -> Project {
    let mut project = open();
    project.route("execute", &["executor", "helper"]);
    project
}

/// The runs on copies, in order, as `tool agent`.
fn copy_runs(project: &Project) -> Vec<String> {
    let opened = project.session.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) if opened.tool.as_str().starts_with("copy_") => Some(describe(opened)),
        _ => None,
    });
    opened.collect()
}

fn describe(opened: &ToolRunOpened) -> String {
    let agent = opened.agent.as_ref().map(|agent| agent.as_str()).unwrap_or_default();
    format!("{} {agent}", opened.tool)
}

const CREATED: [&str; 2] = ["copy_create executor", "copy_create helper"];
const MERGED: [&str; 4] = ["copy_merge executor", "copy_remove executor", "copy_merge helper", "copy_remove helper"];

#[test]
fn copies_are_made_when_the_turn_opens_and_merged_when_all_agents_have_completed() {
    let mut project = both_work();
    assert_eq!(copy_runs(&project), CREATED);
    let mut roles = project.roles();
    roles.sort();
    assert_eq!(roles, ["executor", "helper"], "both work at the same time");
    project.write("executor").complete("executor", "wrote it");
    assert_eq!(copy_runs(&project).len(), 2, "the helper still works");
    project.write("helper").complete("helper", "helped");
    assert_eq!(copy_runs(&project)[2..], MERGED);
    assert!(project.offered_routes().0.contains(&"verification".to_owned()), "{:?}", project.offered_routes());
    // The next turn has copies of its own.
    project.route("execute", &["helper", "executor"]);
    assert_eq!(copy_runs(&project).len(), 8);
}

#[test]
fn fork_does_not_merge_the_copies_of_its_original() {
    let mut project = both_work();
    project.write("executor");
    project.session.fork();
    project.say("continue here");
    assert_eq!(copy_runs(&project), CREATED, "the original merges them");
}

#[test]
fn single_writer_works_in_the_workspace_itself() {
    let mut project = open();
    project.route("execute", &["executor"]);
    project.write("executor").complete("executor", "wrote it");
    assert!(copy_runs(&project).is_empty());
}

#[test]
fn conflict_is_told_with_its_paths_and_the_work_does_not_count_as_completed() {
    let mut project = both_work();
    project.conflicts = vec![json!({"path": "src/a.rs", "reason": "both sides changed the same lines",
        "marked_text": "<<<<<<< ours\none\n=======\ntwo\n>>>>>>> theirs"})];
    project.write("executor").complete("executor", "wrote it");
    project.write("helper").complete("helper", "helped");
    assert!(!project.offered_routes().0.contains(&"verification".to_owned()), "{:?}", project.offered_routes());
    let prompt = project.prompt("router");
    assert!(prompt.contains("src/a.rs: both sides changed the same lines"), "{prompt}");
    project.conflicts.clear();
    project.route("execute", &["helper"]);
    let prompt = project.prompt("helper");
    assert!(
        prompt.contains("src/a.rs: both sides changed the same lines") && prompt.contains("<<<<<<< ours"),
        "{prompt}"
    );
    assert!(prompt.contains("is in checkpoint saved-copy"), "{prompt}");
    project.write("helper").complete("helper", "combined both");
    assert!(project.offered_routes().0.contains(&"verification".to_owned()));
}

#[test]
fn crash_while_both_work_loses_no_copy() {
    let mut project = both_work();
    project.write("executor").complete("executor", "wrote it");
    project.session.crash_and_recover();
    project.settle();
    project.write("helper").complete("helper", "helped");
    assert_eq!(copy_runs(&project), [&CREATED[..], &MERGED[..]].concat());
}

#[test]
fn copies_of_a_cancelled_turn_are_merged_in_the_next_one() {
    let mut project = both_work();
    project.write("executor");
    project.session.run_command(OperatorCommand::Cancel { turn: None });
    assert_eq!(copy_runs(&project), CREATED);
    project.say("go on");
    assert_eq!(copy_runs(&project)[2..], MERGED);
    assert_eq!(project.roles(), ["router"]);
}

#[test]
fn merge_that_failed_is_told_and_tried_again() {
    let mut project = both_work();
    project.write("executor").complete("executor", "wrote it");
    project.fails_merges = true;
    project.write("helper").complete("helper", "helped");
    assert_eq!(copy_runs(&project)[2..], ["copy_merge executor", "copy_merge helper"]);
    assert!(project.prompt("router").contains("could not be merged, and is kept"), "{}", project.prompt("router"));
    assert!(!project.offered_routes().0.contains(&"verification".to_owned()));
    project.fails_merges = false;
    project.route("execute", &["executor"]).write("executor").complete("executor", "again");
    assert_eq!(copy_runs(&project)[4..], MERGED, "no new copy was made");
}

#[test]
fn agents_work_in_the_workspace_if_a_copy_cannot_be_made() {
    let mut project = open();
    project.session.answer_call(
        "router",
        &json!({"phase": "execute", "agents": ["executor", "helper"], "reason": "r"}).to_string(),
    );
    project.fails_copies = true;
    project.settle();
    assert_eq!(copy_runs(&project), CREATED);
    assert_eq!(project.roles().len(), 2);
    project.write("executor").complete("executor", "wrote it").write("helper").complete("helper", "helped");
    assert_eq!(copy_runs(&project).len(), 2, "there is nothing to merge");
}
