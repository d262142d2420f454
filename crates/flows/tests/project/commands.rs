//! The commands for people: approve, plan, confirm, check, restore, continue, end; and rollback.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_flows::project::facts::ProjectFact;
use serde_json::{Value, json};

use crate::support::{Project, phases_key, plan};

fn refused(project: &mut Project, command: &str, arguments: Value) -> String {
    let command = OperatorCommand::Flow { command: command.to_owned(), arguments };
    match project.session.try_input(SessionInput::Operator(command)) {
        Err(InputRefusal::FlowCommandRefused(why)) => why,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn commands_that_make_no_sense_now_are_refused_with_the_reason() {
    let mut project = Project::open();
    assert_eq!(refused(&mut project, "approve", Value::Null), "there is no plan to approve");
    assert!(refused(&mut project, "check", json!({"command": " "})).contains("must be a command line"));
    assert!(refused(&mut project, "restore", json!({})).contains("name a `checkpoint` or a `visit`"));
    assert!(refused(&mut project, "plan", json!({"steps": "nothing"})).contains("title | done when"));
    project.walk_to("execute");
    assert!(refused(&mut project, "continue", Value::Null).contains("a turn is running"));
    assert!(refused(&mut project, "confirm", Value::Null).contains("a turn is running"));
}

#[test]
fn user_edits_the_plan_before_it_is_approved() {
    let mut project = Project::in_phase("plan");
    project.complete_with("planner", plan());
    project.command("plan", json!({"steps": "1. write the tool | it runs\n2. test it | the test passes"}));
    assert!(project.is_waiting_for_user());
    project.command("approve", Value::Null);
    let prompt = project.prompt("executor");
    assert!(
        prompt.contains("1. write the tool (done when: it runs)\n2. test it (done when: the test passes)"),
        "{prompt}"
    );
}

#[test]
fn restoring_files_uses_the_checkpoint_of_a_visit() {
    let mut project = Project::in_phase("execute");
    let before = project.content;
    project.write("executor").complete("executor", "done").route("chat", &["project-manager"]);
    project.answer("project-manager", "Done.");
    assert!(project.content > before);
    project.command("restore", json!({"visit": 2}));
    assert_eq!(project.content, before);
    assert!(project.session.last_reply().contains("The files are restored"));
}

#[test]
fn rollback_says_how_the_files_can_follow() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done").route("chat", &["project-manager"]);
    project.answer("project-manager", "Done.");
    project.session.run_command(OperatorCommand::RollBack { phase: phases_key(), visit: 1 });
    assert_eq!(project.phase(), "chat");
    assert!(project.session.last_reply().contains("`/restore` with visit 1"), "{}", project.session.last_reply());
    assert!(project.open_gates().is_empty(), "the gates are those of the restored visit");
    project.say("something else");
    assert_eq!(project.roles(), ["router"]);
}

#[test]
fn ending_early_says_what_was_done_and_what_is_not_verified() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "wrote half of it");
    project.command("end", Value::Null);
    assert!(project.is_closed());
    let reply = project.session.last_reply();
    for part in ["at your request", "wrote half of it", "not verified: no check ran", "Not done: verified", "main.rs"] {
        assert!(reply.contains(part), "{part}: {reply}");
    }
    let recorded =
        |fact: &ProjectFact| matches!(fact, ProjectFact::EndedEarly { open_gates } if *open_gates == ["verified"]);
    assert_eq!(project.count_facts(recorded), 1);
    assert!(project.session.session().closed_reason.as_deref().is_some_and(|reason| reason.contains("verified")));
}

#[test]
fn user_moves_to_another_phase_while_an_agent_works() {
    let mut project = Project::in_phase("execute");
    let propose = OperatorCommand::Propose { phase: phases_key(), to: "chat".into(), reason: None };
    project.session.run_command(propose);
    project.settle();
    assert_eq!(project.phase(), "chat");
    assert_eq!(project.roles(), ["router"], "the work in execute was given up");
}

#[test]
fn session_without_a_workspace_needs_the_users_word() {
    let mut project = Project::open_with(Value::Null);
    project.walk_to_without_files("verification");
    project.complete("executor-verification", "I believe it works");
    assert!(project.is_waiting_for_user());
    assert_eq!(project.phase(), "verification");
    project.command("confirm", Value::Null);
    assert!(project.offered_routes().0.contains(&"chores".to_owned()));
}

impl Project {
    fn walk_to_without_files(&mut self, phase: &str) {
        assert_eq!(phase, "verification");
        self.say("write a poem").route("execute", &["executor"]).complete("executor", "a poem");
        self.route("verification", &["executor"]);
    }
}
