//! Limits with ways out: visits, routing turns, repeated tool calls, steering, phase limits.

use segue_core::event::Event;
use segue_flows::project::facts::{AgentTurnEndKind, MidWorkNoticeToAgentReason, ProjectFact};
use serde_json::{Value, json};

use crate::support::Project;

fn read_result() -> Value {
    json!({"path": "a", "digest": "d", "bytes": 1, "lines": 1, "first_line": 1, "last_line": 1})
}

#[test]
fn execute_is_entered_at_most_three_times_and_then_the_user_is_asked_with_a_summary() {
    let mut project = Project::open();
    project.passes = false;
    project.say("build it").route("execute", &["executor"]);
    for attempt in 1..=3 {
        project.write("executor").complete("executor", &format!("attempt {attempt}"));
        assert_eq!(project.roles(), ["router"], "attempt {attempt}");
        project.route("verification", &["executor"]).complete("executor-verification", "red");
        if attempt < 3 {
            project.route("execute", &["executor"]);
            assert_eq!(project.phase(), "execute", "attempt {attempt}");
        }
    }
    assert!(project.is_waiting_for_user(), "{:?}", project.roles());
    let reply = project.session.last_reply();
    assert!(reply.contains("sent back as often as allowed") && reply.contains("`make test` failed"), "{reply}");
    assert!(reply.contains("attempt 3"), "{reply}");
    // A message gives new attempts, with the context kept.
    project.say("try once more").route("execute", &["executor"]);
    assert_eq!(project.phase(), "execute");
}

#[test]
fn router_that_insists_on_an_exhausted_phase_is_refused() {
    let mut project = Project::open();
    project.say("build it").route("execute", &["executor"]);
    for _ in 0..2 {
        project.write("executor").complete("executor", "a").route("verification", &["executor"]);
        project.complete("executor-verification", "green").route("execute", &["executor"]);
    }
    project.write("executor").complete("executor", "a").route("verification", &["executor"]);
    project.complete("executor-verification", "green").route("execute", &["executor"]);
    assert_eq!(project.phase(), "verification");
    assert!(project.refusals()[0].contains("was entered as often as allowed"), "{:?}", project.refusals());
}

#[test]
fn same_call_with_the_same_result_is_warned_at_two_and_ends_the_agents_turn_at_three() {
    let mut project = Project::in_phase("execute");
    let read = |project: &mut Project| {
        project.use_tool("executor", "read_file", json!({"path": "a"}), read_result());
    };
    read(&mut project);
    assert!(!project.prompt("executor").contains("twice with the same arguments"));
    read(&mut project);
    assert!(project.prompt("executor").contains("You have called `read_file` twice with the same arguments"));
    let warned = |fact: &ProjectFact| {
        matches!(fact, ProjectFact::AgentSteered { why: MidWorkNoticeToAgentReason::RepeatedCall, .. })
    };
    assert_eq!(project.count_facts(warned), 1);
    read(&mut project);
    let stopped = |fact: &ProjectFact| matches!(fact, ProjectFact::AgentTurnEnd { how: AgentTurnEndKind::Stopped, .. });
    assert_eq!((project.count_facts(stopped), project.roles()), (1, vec!["router".to_owned()]));
}

#[test]
fn another_result_of_the_same_call_is_not_a_repetition() {
    let mut project = Project::in_phase("execute");
    for digest in ["1", "2", "3", "4"] {
        let mut value = read_result();
        value["digest"] = json!(digest);
        project.use_tool("executor", "read_file", json!({"path": "a"}), value);
    }
    assert_eq!(project.count_facts(|fact| matches!(fact, ProjectFact::AgentSteered { .. })), 0);
}

#[test]
fn message_in_the_middle_of_work_is_seen_at_the_next_tool_boundary() {
    let mut project = Project::in_phase("execute");
    project.session.send_message("use four spaces");
    assert!(!project.prompt("executor").contains("use four spaces"));
    project.write("executor");
    let prompt = project.prompt("executor");
    assert!(prompt.contains("the user:\n```\nuse four spaces\n```"), "{prompt}");
    assert!(prompt.contains("while you were working"), "{prompt}");
    // It is delivered once.
    project.write("executor");
    assert_eq!(project.prompt("executor").matches("use four spaces").count(), 1);
    // And it gets its own turn, so that the router sees it too.
    project.complete("executor", "done").route("chat", &["project-manager"]).answer("project-manager", "Done.");
    assert!(project.prompt("router").contains("use four spaces"));
}

#[test]
fn limit_of_a_phase_counts_routing_turns_and_leads_to_chat() {
    let mut project = Project::in_phase("plan");
    for number in 0..8 {
        if project.phase() != "plan" {
            break;
        }
        let steps = json!([{"title": format!("step {number}"), "done_when": "d"}]);
        project.complete_with("planner", json!({"summary": "s", "plan": {"goal": "g", "steps": steps}}));
        if project.phase() == "plan" {
            project.say(&format!("change {number}"));
        }
    }
    assert_eq!(project.phase(), "chat");
    assert!(project.is_waiting_for_user());
    assert!(project.session.last_reply().contains("the phase reached its limit"), "{}", project.session.last_reply());
}

#[test]
fn routing_turns_after_one_message_are_limited() {
    let source =
        segue_flows::project::PROJECT_DEFINITION.replace("[router]", "[limits]\nrouting_turns_max = 2\n\n[router]");
    let flow = segue_flows::project::ProjectFlow::from_source(&source).expect("it is valid");
    let mut project = Project::open_flow(flow, json!({"workspace": "w"}));
    project.walk_to("verification").complete("executor-verification", "fine");
    assert!(project.is_waiting_for_user());
    assert!(
        project.session.last_reply().contains("I stopped after 2 routing turns"),
        "{}",
        project.session.last_reply()
    );
    project.command("continue", Value::Null);
    assert!(project.is_waiting_for_user(), "only a message gives new turns");
    project.say("go on").route("chores", &["executor"]);
    assert_eq!(project.phase(), "chores");
}

#[test]
fn cancelled_turn_leaves_no_open_routing_turn() {
    let mut project = Project::in_phase("execute");
    project.session.run_command(segue_core::decide::OperatorCommand::Cancel { turn: None });
    project.say("start again");
    assert_eq!(project.roles(), ["router"]);
    project.route("execute", &["executor"]);
    assert_eq!(project.roles(), ["executor"]);
    let ended = |event: &Event| matches!(event, Event::TurnEnded { .. });
    assert_eq!(project.session.journal().iter().filter(|recorded| ended(&recorded.event)).count(), 1);
}

#[test]
fn late_completion_is_recorded_and_changes_nothing() {
    let mut project = Project::in_phase("execute");
    // The same answer completes the work and asks for it again after the turn is closed.
    project.write("executor").complete("executor", "done");
    let turns = project.count_facts(|fact| matches!(fact, ProjectFact::TurnOpened { .. }));
    project.route("verification", &["executor"]);
    assert_eq!(project.count_facts(|fact| matches!(fact, ProjectFact::TurnOpened { .. })), turns + 1);
}
