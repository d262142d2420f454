//! What sessions of one workspace share: lessons, and the right to work in it.

use segue_core::decide::{CLAIM_TOPIC, OperatorCommand};
use segue_core::event::{AskOutcome, Event};
use segue_flows::project::facts::{AskUserReason, ProjectFact};
use serde_json::{Value, json};

use crate::support::Project;

/// What happened with claims, in order.
fn claims(project: &Project) -> Vec<String> {
    let events = project.session.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ClaimRequested { workspace, name, .. } => Some(format!("requested {name} of {workspace}")),
        Event::ClaimReleased { reason, .. } => Some(format!("released: {reason}")),
        Event::PhaseEntered(entered) if entered.transition.is_visit_start() => Some(entered.transition.to.to_string()),
        _ => None,
    });
    events.collect()
}

fn holds_claim(project: &Project) -> bool {
    project.session.session().claim.as_ref().is_some_and(|claim| claim.is_held)
}

#[test]
fn lesson_is_sent_to_the_workspace_and_shown_in_its_next_session() {
    let mut first = Project::in_phase("reflection");
    let lesson = json!({"title": "quote paths", "lesson": "folders have spaces here"});
    first.session.answer_with_tool_call("executor", "learn", lesson);
    first.settle();
    assert_eq!(first.lessons.len(), 1);
    let mut second = Project::open();
    second.lessons = first.lessons;
    second.walk_to("execute");
    assert!(
        second.prompt("executor").contains("- quote paths: folders have spaces here"),
        "{}",
        second.prompt("executor")
    );
    // It is the executor's lesson, and nobody else's.
    let mut third = Project::open();
    third.lessons = second.lessons;
    third.walk_to("plan");
    assert!(!third.prompt("planner").contains("quote paths"));
}

#[test]
fn lessons_are_requested_once_and_again_only_after_a_failure() {
    let count = |project: &Project| {
        let asked = |event: &Event| matches!(event, Event::AskSent(sent) if sent.topic == "lessons");
        project.session.journal().iter().filter(|recorded| asked(&recorded.event)).count()
    };
    let mut project = Project::in_phase("chat");
    project.answer("project-manager", "Hello.").say("and now?");
    assert_eq!(count(&project), 1);
    let mut project = Project::open();
    project.session.send_message("hello");
    let ask = *project.session.session().open_asks.keys().next().expect("it is asked");
    project.reply_as_workspace(ask, AskOutcome::Refused { reason: "gone".to_owned() });
    project.settle().route("chat", &["project-manager"]).answer("project-manager", "Hello.");
    assert_eq!(count(&project), 1, "the turn goes on without lessons");
    project.say("again");
    assert_eq!(count(&project), 2);
}

#[test]
fn lesson_that_the_workspace_refuses_is_reported() {
    let mut project = Project::in_phase("reflection");
    let lesson = json!({"title": "t", "lesson": "l"});
    project.session.answer_with_tool_call("executor", "learn", lesson);
    let ask = *project.session.session().open_asks.keys().next().expect("it is asked");
    project.reply_as_workspace(ask, AskOutcome::Refused { reason: "full".to_owned() });
    let lost = |fact: &ProjectFact| matches!(fact, ProjectFact::LessonNotKept { why } if why == "full");
    assert_eq!(project.count_facts(lost), 1);
}

#[test]
fn claim_is_held_from_execute_through_chores() {
    let mut project = Project::in_phase("reflection");
    let expected = [
        "execute",
        "requested execute of w~workspace",
        "verification",
        "chores",
        "reflection",
        "released: the session has left the phases that need it",
    ];
    assert_eq!(claims(&project), expected);
    project.complete("executor", "reflected").route("end", &[]);
    assert_eq!(claims(&project).last().map(String::as_str), Some("end"));
}

#[test]
fn claim_is_released_while_the_session_waits_for_the_user_and_requested_again_for_work() {
    let mut project = Project::open();
    project.checks = Vec::new();
    project.walk_to("verification").complete("executor-verification", "it works");
    assert!(project.is_waiting_for_user() && !holds_claim(&project), "{:?}", claims(&project));
    assert_eq!(claims(&project).last().map(String::as_str), Some("released: the session waits for the user"));
    // Talking needs no claim.
    project.say("what did you do?").route("chat", &["project-manager"]).answer("project-manager", "This.");
    assert!(!holds_claim(&project));
    project.say("go on").route("execute", &["executor"]);
    assert!(holds_claim(&project));
    project.session.run_command(OperatorCommand::Cancel { turn: None });
    assert!(project.session.session().claim.is_none(), "{:?}", claims(&project));
}

#[test]
fn session_without_the_claim_waits_and_says_for_whom() {
    let mut project = Project::open();
    project.holder = Some("other");
    project.walk_to("execute");
    assert_eq!((project.phase().as_str(), project.roles()), ("execute", Vec::new()));
    let waits = |fact: &ProjectFact| {
        matches!(fact, ProjectFact::ClaimAwaited(wait)
            if wait.describe_wait() == "waiting for session `other` to finish its work in this workspace")
    };
    assert_eq!(project.count_facts(waits), 1);
    // The other session has changed the content in the meantime.
    project.content = 7;
    project.holder = None;
    project.settle();
    assert_eq!((project.roles(), holds_claim(&project)), (vec!["executor".to_owned()], true));
    assert_eq!(project.session.flow_state_json()["content"], json!({"at": "7"}));
}

#[test]
fn wait_for_the_claim_has_a_deadline_and_the_user_can_wait_again() {
    let mut project = Project::open();
    project.holder = Some("other");
    project.walk_to("execute");
    project.session.advance_and_tick(30 * 60 * 1_000 + 1);
    assert!(project.is_waiting_for_user());
    let stopped =
        |fact: &ProjectFact| matches!(fact, ProjectFact::UserAsked { why: AskUserReason::WorkspaceClaim, .. });
    assert_eq!(project.count_facts(stopped), 1);
    let reply = project.session.last_reply();
    assert!(reply.contains("session `other` still works in this workspace"), "{reply}");
    assert!(project.session.session().claim.is_none(), "it no longer waits");
    project.holder = None;
    project.command("continue", Value::Null);
    assert_eq!(project.roles(), ["executor"]);
}

#[test]
fn refused_claim_starts_no_work() {
    let mut project = Project::open();
    project.holder = Some("other");
    project.walk_to("execute");
    let mut asks = project.session.session().open_asks.values();
    let ask = asks.find(|sent| sent.topic == CLAIM_TOPIC).expect("it is requested").ask;
    project.reply_as_workspace(ask, AskOutcome::Refused { reason: "too many claims".to_owned() });
    assert!(project.is_waiting_for_user());
    assert_eq!(project.count_facts(|fact| matches!(fact, ProjectFact::TurnOpened { .. })), 0);
}

#[test]
fn copy_of_the_workspace_needs_no_claim() {
    let mut project = Project::open_with(json!({"workspace": "w", "copy": "left"}));
    project.holder = Some("other");
    project.walk_to("execute");
    assert_eq!((project.roles(), claims(&project)), (vec!["executor".to_owned()], vec!["execute".to_owned()]));
}
