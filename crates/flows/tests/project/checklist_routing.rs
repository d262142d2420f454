//! The rows of the checklist about routing and agents, T13–T20, T25, T26, T30–T34, T43.

use std::collections::BTreeSet;

use segue_core::event::Event;
use segue_core::prompt::CallFailureKind;
use segue_flows::project::facts::{AgentTurnEndKind, ProjectFact, RoutingDecisionMaker};
use serde_json::json;

use crate::support::Project;

fn turns(project: &Project) -> Vec<u32> {
    let opened = project.facts().into_iter().filter_map(|fact| match fact {
        ProjectFact::TurnOpened { turn, .. } => Some(turn),
        _ => None,
    });
    opened.collect()
}

fn done(project: &Project) -> Vec<(String, AgentTurnEndKind)> {
    let done = project.facts().into_iter().filter_map(|fact| match fact {
        ProjectFact::AgentTurnEnd { agent, how, .. } => Some((agent.to_string(), how)),
        _ => None,
    });
    done.collect()
}

#[test]
fn t13_decision_needs_an_agent_and_a_reason_and_the_phase_is_optional() {
    for (answer, complaint) in [
        (json!({"phase": "execute", "who": [], "because": "r"}), "`who` is missing or empty"),
        (json!({"phase": "execute", "because": "r"}), "`who` is missing or empty"),
        (json!({"phase": "execute", "agents": ["executor"]}), "`because` is missing or empty"),
        (json!({"phase": "execute", "who": ["executor"], "because": " "}), "`because` is missing or empty"),
    ] {
        let mut project = Project::open();
        project.say("x").route_with(answer);
        assert_eq!(project.roles(), ["router"], "it is asked once more");
        assert!(project.prompt("router").contains(complaint), "{}", project.prompt("router"));
    }
    let mut project = Project::open();
    project.say("x").route_with(json!({"agents": ["project-manager"], "reason": "r"}));
    assert_eq!((project.phase().as_str(), project.roles()), ("chat", vec!["project-manager".to_owned()]));
}

#[test]
fn t14_fenced_json_is_read_and_prose_is_an_error() {
    let mut project = Project::open();
    project
        .say("x")
        .route_text("Sure!\n```json\n{\"phase\": \"execute\", \"agents\": [\"executor\"], \"reason\": \"r\"}\n```");
    assert_eq!(project.phase(), "execute");
    let mut project = Project::open();
    project.say("x").route_text("I think the executor should do it.");
    let rejected = |fact: &ProjectFact| matches!(fact, ProjectFact::DecisionRejected { complaints, .. } if complaints[0].contains("no JSON object"));
    assert_eq!((project.count_facts(rejected), project.roles()), (1, vec!["router".to_owned()]));
    // After one repair the default agent of the phase works.
    project.route_text("As I said.");
    assert_eq!((project.phase().as_str(), project.roles()), ("chat", vec!["project-manager".to_owned()]));
}

#[test]
fn t15_each_decision_opens_a_turn_with_a_unique_id() {
    let project = Project::in_phase("reflection");
    let turns = turns(&project);
    assert_eq!(turns, [1, 2, 3, 4]);
    assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), turns.len());
}

#[test]
fn t16_several_agents_of_one_decision_work_at_the_same_time() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done").route("verification", &["executor", "project-manager"]);
    assert_eq!(project.roles(), ["executor-verification", "project-manager-verification"]);
    assert!(project.prompt("executor-verification").contains("These agents work at the same time: Project manager"));
}

#[test]
fn t17_turn_closes_only_when_every_agent_has_completed() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done").route("verification", &["executor", "project-manager"]);
    project.complete("project-manager-verification", "fine");
    assert_eq!(project.roles(), ["executor-verification"], "the router waits");
    project.complete("executor-verification", "fine");
    assert_eq!(project.roles(), ["router"]);
}

#[test]
fn t17_two_agents_that_complete_at_the_same_instant_close_the_turn_once() {
    for first in ["executor-verification", "project-manager-verification"] {
        let mut project = Project::in_phase("execute");
        project.write("executor").complete("executor", "done").route("verification", &["executor", "project-manager"]);
        let second = if first.starts_with('e') { "project-manager-verification" } else { "executor-verification" };
        // Both answers arrive before anything else is decided; no clock tick lies between them.
        project.session.with_deferred_dispatch(|session| {
            session.answer_with_tool_call(first, "complete", json!({"summary": "a"}));
            session.answer_with_tool_call(second, "complete", json!({"summary": "b"}));
        });
        project.session.advance_and_tick(1);
        project.settle();
        assert_eq!(project.roles(), ["router"]);
        assert_eq!(done(&project).iter().filter(|(_, how)| *how == AgentTurnEndKind::Completed).count(), 3);
        let counted = |event: &Event| matches!(event, Event::PhaseRoundCounted { .. });
        let rounds = project.session.journal().iter().filter(|recorded| counted(&recorded.event)).count();
        assert_eq!(rounds, 2, "one for execute, one for verification");
    }
}

#[test]
fn t18_duplicate_completion_does_not_close_a_turn_early() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done").route("verification", &["executor", "project-manager"]);
    let calls = vec![
        segue_core::prompt::ToolCall { id: "a".into(), name: "complete".into(), arguments: json!({"summary": "one"}) },
        segue_core::prompt::ToolCall { id: "b".into(), name: "complete".into(), arguments: json!({"summary": "two"}) },
    ];
    let reply = segue_core::prompt::ModelReply { tool_calls: calls, ..Default::default() };
    project.session.reply_to_call("executor-verification", reply);
    assert_eq!(project.roles(), ["project-manager-verification"]);
    assert_eq!(done(&project).len(), 2);
}

#[test]
fn t19_router_is_not_called_while_a_turn_is_open() {
    let mut project = Project::in_phase("execute");
    assert_eq!(project.roles(), ["executor"]);
    project.say("one more thing");
    assert!(!project.roles().contains(&"router".to_owned()));
    project.write("executor").write("executor");
    assert!(!project.roles().contains(&"router".to_owned()));
}

#[test]
fn t20_failed_agent_does_not_strand_its_turn_and_satisfies_nothing() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done").route("verification", &["executor", "project-manager"]);
    project.session.fail_call("executor-verification", CallFailureKind::Refused);
    assert_eq!(project.roles(), ["project-manager-verification"]);
    project.complete("project-manager-verification", "fine");
    assert_eq!(project.roles(), ["router"]);
    assert!(!project.offered_routes().0.contains(&"chores".to_owned()), "the verification is not complete");
    // A lone agent that fails ends the turn as failed, and the turn can be retried.
    let mut project = Project::in_phase("execute");
    project.session.fail_call("executor", CallFailureKind::Refused);
    assert!(project.session.session().failed_turn.is_some());
    project.session.run_command(segue_core::decide::OperatorCommand::Retry { turn: None });
    project.settle();
    project.route("execute", &["executor"]);
    assert_eq!((project.phase().as_str(), project.roles()), ("execute", vec!["executor".to_owned()]));
}

#[test]
fn t25_unknown_agent_gives_feedback_a_lesson_and_one_retry() {
    let mut project = Project::open();
    project.say("x").route("execute", &["wizard"]);
    assert_eq!((project.phase().as_str(), project.roles()), ("chat", vec!["router".to_owned()]));
    assert!(project.prompt("router").contains("`wizard` cannot work in `execute`"), "{}", project.prompt("router"));
    project.route("execute", &["wizard"]);
    assert_eq!(project.roles(), ["project-manager"], "after one retry the default agent works");
    project.answer("project-manager", "Hello.").say("again");
    // The lesson is kept, once.
    let prompt = project.prompt("router");
    assert_eq!(prompt.matches("`wizard` cannot work in `execute`").count(), 1, "{prompt}");
    assert!(prompt.contains("From earlier mistakes"));
}

#[test]
fn t25_agent_that_may_not_work_in_the_phase_counts_as_unknown() {
    let mut project = Project::open();
    project.say("x").route("execute", &["planner"]);
    let unknown =
        |fact: &ProjectFact| matches!(fact, ProjectFact::UnknownAgents { names, .. } if *names == ["planner"]);
    assert_eq!(project.count_facts(unknown), 1);
}

#[test]
fn t26_valid_agents_of_the_same_decision_still_run() {
    let mut project = Project::open();
    project.say("x").route("execute", &["wizard", "executor"]);
    assert_eq!((project.phase().as_str(), project.roles()), ("execute", vec!["executor".to_owned()]));
    project.write("executor").complete("executor", "done");
    assert!(project.prompt("router").contains("`wizard` cannot work in `execute`"), "the feedback waits");
}

#[test]
fn t30_restart_restores_phase_transitions_and_turns() {
    let mut project = Project::in_phase("chores");
    let before = (project.phase(), project.session.flow_state_json());
    project.session.crash_and_recover();
    project.settle();
    assert_eq!(project.phase(), before.0);
    let after = project.session.flow_state_json();
    assert_eq!((&after["turns"], &after["last_transition"]), (&before.1["turns"], &before.1["last_transition"]));
    project.complete("executor", "tidy");
    assert_eq!(project.phase(), "reflection");
}

#[test]
fn t31_state_can_be_rebuilt_from_the_events_alone() {
    let project = Project::in_phase("end");
    let copy = project.session.fork_at(project.session.journal().len());
    let (mut one, mut other) = (project.session.flow_state_json(), copy.flow_state_json());
    // The fork itself is an event.
    one.as_object_mut().expect("it is an object").remove("agent_calls");
    other.as_object_mut().expect("it is an object").remove("agent_calls");
    assert_eq!(one, other);
}

#[test]
fn t32_agent_sees_what_happened_while_it_was_away_once_with_its_author() {
    let mut project = Project::open();
    project.say("what would you build?").route("chat", &["project-manager"]).answer("project-manager", "A clock.");
    project.say("fine, build the clock").route("execute", &["executor"]);
    let prompt = project.prompt("executor");
    assert!(prompt.contains("the user:\n```\nwhat would you build?\n```"), "{prompt}");
    assert!(prompt.contains("Project manager:\n```\nA clock.\n```"), "{prompt}");
    assert_eq!(prompt.matches("A clock.").count(), 1);
    assert!(prompt.contains("The user says:\n```\nfine, build the clock\n```"), "{prompt}");
    project.write("executor").complete("executor", "built").route("chat", &["project-manager"]);
    project.answer("project-manager", "Built.").say("improve it").route("execute", &["executor"]);
    // The thread still contains the earlier messages; the new part does not repeat them.
    let prompt = project.prompt("executor");
    assert_eq!(prompt.matches("A clock.").count(), 1, "{prompt}");
    assert_eq!(prompt.matches("Project manager:\n```\nBuilt.\n```").count(), 1, "{prompt}");
}

#[test]
fn t33_agent_that_does_not_complete_is_reminded_once_and_then_completed_for_it() {
    let mut project = Project::in_phase("execute");
    project.write("executor").answer("executor", "All done!");
    assert_eq!(project.roles(), ["executor"]);
    assert!(project.prompt("executor").contains("only the tool `complete` completes it"));
    project.answer("executor", "Really, all done.");
    assert_eq!(done(&project), [("executor".to_owned(), AgentTurnEndKind::AutoCompleted)]);
    // It satisfies no exit condition.
    assert_eq!(project.offered_routes().0, ["execute", "chat"]);
}

#[test]
fn t33_agent_that_never_completes_does_not_run_for_ever() {
    let mut project = Project::in_phase("execute");
    for _ in 0..6 {
        if project.roles() != ["executor"] {
            break;
        }
        project.answer("executor", "I am thinking.").answer("executor", "Still thinking.");
        if project.roles() == ["router"] {
            project.route("execute", &["executor"]);
        }
    }
    assert!(project.is_waiting_for_user(), "{:?}", project.roles());
    assert!(project.session.last_reply().contains("repeated without progress"), "{}", project.session.last_reply());
}

#[test]
fn t34_repeated_routing_is_told_to_the_router_and_stops_the_third_time() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "one").route("execute", &["executor"]);
    project.complete("executor", "two");
    let noticed =
        |times: u32| move |fact: &ProjectFact| matches!(fact, ProjectFact::LoopNoticed { times: t, .. } if *t == times);
    assert_eq!(project.count_facts(noticed(2)), 1);
    assert!(
        project.prompt("router").contains("`execute` with executor was routed 2 times"),
        "{}",
        project.prompt("router")
    );
    project.route("execute", &["executor"]).complete("executor", "three");
    assert_eq!(project.count_facts(noticed(3)), 1);
    assert!(project.is_waiting_for_user());
    assert!(project.session.last_reply().contains("the same step was repeated"), "{}", project.session.last_reply());
    // A message continues with the context kept.
    project.say("go on then").route("verification", &["executor"]);
    assert_eq!(project.phase(), "verification");
}

#[test]
fn t43_router_sees_the_last_ten_turns_in_full_and_older_ones_summarized() {
    let mut project = Project::open();
    for number in 1..=12 {
        project.say(&format!("question {number}"));
        project
            .route_with(json!({"phase": "chat", "agents": ["project-manager"], "reason": format!("reason {number}.")}));
        project.answer("project-manager", "answer");
    }
    project.say("last");
    let prompt = project.prompt("router");
    assert!(prompt.contains("Earlier: chat with project-manager 2 times"), "{prompt}");
    assert!(!prompt.contains("reason 2.") && prompt.contains("reason 3.") && prompt.contains("reason 12."), "{prompt}");
}

#[test]
fn code_routes_where_only_one_answer_is_possible() {
    let project = Project::in_phase("reflection");
    let routed: Vec<(String, RoutingDecisionMaker)> = project
        .facts()
        .into_iter()
        .filter_map(|fact| match fact {
            ProjectFact::TurnOpened { decision, .. } => Some((decision.phase.to_string(), decision.by)),
            _ => None,
        })
        .collect();
    let expected = [
        ("execute", RoutingDecisionMaker::Router),
        ("verification", RoutingDecisionMaker::Router),
        ("chores", RoutingDecisionMaker::Router),
        ("reflection", RoutingDecisionMaker::Code),
    ];
    assert_eq!(routed, expected.map(|(phase, by)| (phase.to_owned(), by)));
}

#[test]
fn schema_lists_exactly_the_legal_phases_and_agents() {
    let mut project = Project::open();
    project.say("x");
    let (phases, agents) = project.offered_routes();
    assert_eq!(phases, ["chat", "brainstorm", "plan", "execute", "end"]);
    assert_eq!(agents, ["project-manager", "planner", "executor"]);
    project.route("execute", &["executor"]).write("executor").complete("executor", "done");
    project.route("verification", &["executor"]).complete("executor-verification", "it works");
    let (phases, agents) = project.offered_routes();
    assert_eq!(phases, ["verification", "execute", "chores"]);
    assert_eq!(agents, ["project-manager", "executor"]);
}

/// A model that must write the agents first chooses the phase to fit them, and explains it afterwards.
#[test]
fn router_writes_its_reason_before_the_phase_and_the_phase_before_the_agents() {
    let mut project = Project::open();
    project.say("write a tool");
    let prompt = project.session.prompt_for_role("router");
    let segue_core::prompt::ModelOutputFormat::Json(schema) = &prompt.output_format else {
        panic!("the router answers in JSON")
    };
    let sent = schema["properties"].to_string();
    let position = |name: &str| sent.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {sent}"));
    assert!(position("because") < position("phase") && position("phase") < position("who"), "{sent}");
    project.route_with(json!({"phase": "execute", "agents": ["executor"], "reason": "the obvious names"}));
    assert_eq!(project.phase(), "execute", "a model that is not held to the schema may use them");
}

#[test]
fn answer_that_only_repeats_why_the_agent_was_called_is_asked_for_again() {
    let mut project = Project::open();
    let reason = "The user has a clear request, so it must be clarified.";
    project.say("hello").route_with(json!({"because": reason, "phase": "chat", "who": ["project-manager"]}));
    project.answer("project-manager", reason);
    assert_eq!(project.roles(), ["project-manager"], "nothing was shown to the user");
    assert!(project.prompt("project-manager").contains("it only repeats why you were called"));
    project.answer("project-manager", "Hello! What shall we build?");
    assert_eq!(project.session.last_reply(), "Hello! What shall we build?");
}

#[test]
fn after_completed_work_the_router_is_offered_verification_only() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done");
    let (phases, agents) = project.offered_routes();
    assert_eq!((phases, agents), (vec!["verification".into()], vec!["executor".into(), "project-manager".into()]));
    // A router that gives no usable answer cannot keep the work from being verified.
    project.route_text("I do not know.").route_text("Really not.");
    assert_eq!((project.phase().as_str(), project.roles()), ("verification", vec!["executor-verification".to_owned()]));
}

#[test]
fn message_of_the_user_lets_the_router_choose_a_replaced_phase() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done");
    assert_eq!(project.offered_routes().0, ["verification"]);
    project.session.fail_call("router", segue_core::prompt::CallFailureKind::Refused);
    project.say("first tell me what you did");
    assert!(project.offered_routes().0.contains(&"chat".to_owned()), "{:?}", project.offered_routes());
}

/// A small model has verified and correct work verified again and again, until the loop rule stops it.
#[test]
fn agent_that_found_nothing_to_do_on_verified_content_is_not_offered_again() {
    let mut project = Project::in_phase("execute");
    project.write("executor").complete("executor", "done");
    project.route("verification", &["executor"]).complete("executor-verification", "it works");
    let (phases, agents) = project.offered_routes();
    assert_eq!(phases, ["verification", "execute", "chores"]);
    assert_eq!(agents, ["project-manager", "executor"], "another agent can verify, and there may be more to build");
    project.route("execute", &["executor"]).complete("executor", "nothing is missing");
    project.complete("executor", "really nothing");
    // The executor has verified this content already, so only the other agent can, and nobody has to be asked.
    assert_eq!(project.roles(), ["project-manager-verification"]);
    project.complete("project-manager-verification", "I agree");
    assert_eq!((project.phase().as_str(), project.roles()), ("chores", vec!["executor".to_owned()]));
}

#[test]
fn agent_is_offered_again_if_the_checks_failed() {
    let mut project = Project::in_phase("execute");
    project.passes = false;
    project.write("executor").complete("executor", "done");
    project.route("verification", &["executor"]).complete("executor-verification", "red");
    project.route("execute", &["executor"]).complete("executor", "I do not know why");
    project.complete("executor", "really not");
    assert!(project.offered_routes().1.contains(&"executor".to_owned()), "{:?}", project.offered_routes());
}
