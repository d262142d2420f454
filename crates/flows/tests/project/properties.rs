//! Random runs: whatever router and agents do, nothing ends after work without evidence or the user's recorded grant.

use proptest::prelude::*;
use segue_core::decide::OperatorCommand;
use segue_core::phase::PhaseTransitionCause;
use segue_flows::project::facts::ProjectFact;
use serde_json::{Value, json};

use crate::support::{Project, phases_key};

/// One action of a random run.
#[derive(Debug, Clone)]
enum Action {
    Message,
    Route(&'static str, &'static str),
    Prose,
    Write,
    Complete,
    Answer,
    Fail,
    ChecksTurn(bool),
    Approve,
    Confirm,
    Grant(&'static str),
    Crash,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let phases = prop::sample::select(vec![
        "chat",
        "brainstorm",
        "plan",
        "execute",
        "verification",
        "chores",
        "reflection",
        "end",
        "nowhere",
    ]);
    let agents = prop::sample::select(vec!["project-manager", "planner", "executor", "wizard", "END"]);
    let action = prop_oneof![
        3 => Just(Action::Message),
        12 => (phases.clone(), agents).prop_map(|(phase, agent)| Action::Route(phase, agent)),
        1 => Just(Action::Prose),
        4 => Just(Action::Write),
        10 => Just(Action::Complete),
        4 => Just(Action::Answer),
        1 => Just(Action::Fail),
        2 => any::<bool>().prop_map(Action::ChecksTurn),
        2 => Just(Action::Approve),
        1 => Just(Action::Confirm),
        1 => phases.prop_map(Action::Grant),
        1 => Just(Action::Crash),
    ];
    prop::collection::vec(action, 1..90)
}

fn perform(project: &mut Project, action: &Action) {
    if project.is_closed() {
        return;
    }
    let roles = project.roles();
    let agent = roles.iter().find(|role| *role != "router").cloned();
    let routes = roles.iter().any(|role| role == "router");
    match (action, agent) {
        (Action::Message, _) if project.is_waiting_for_user() => drop(project.say("go on and build it")),
        (Action::Route(phase, agent), _) if routes => {
            project.route_with(json!({"phase": phase, "agents": [agent], "reason": "r", "user_words": "go on"}));
        }
        (Action::Prose, _) if routes => drop(project.route_text("let me think")),
        (Action::Write, Some(role)) if project.offered_tools(&role).contains(&"write_file".to_owned()) => {
            project.write(&role);
        }
        (Action::Complete, Some(role)) => {
            let steps = json!([{"title": "t", "done_when": "d"}]);
            project.complete_with(&role, json!({"summary": "s", "plan": {"goal": "g", "steps": steps}}));
        }
        (Action::Answer, Some(role)) => drop(project.answer(&role, "done, I promise")),
        (Action::Fail, Some(role)) => {
            project.session.fail_call(&role, segue_core::prompt::CallFailureKind::Refused);
            project.settle();
        }
        (Action::ChecksTurn(passes), _) => project.passes = *passes,
        (Action::Approve, _) => try_command(project, "approve"),
        (Action::Confirm, _) => try_command(project, "confirm"),
        (Action::Grant(phase), _) => {
            let grant = OperatorCommand::Grant { phase: phases_key(), to: (*phase).into() };
            // A grant that makes no sense is refused.
            if project.session.try_input(segue_core::decide::SessionInput::Operator(grant)).is_ok() {
                project.settle();
            }
        }
        (Action::Crash, _) => {
            project.session.crash_and_recover();
            project.settle();
        }
        _ => {}
    }
}

fn try_command(project: &mut Project, command: &str) {
    let input = OperatorCommand::Flow { command: command.to_owned(), arguments: Value::Null };
    if project.session.try_input(segue_core::decide::SessionInput::Operator(input)).is_ok() {
        project.settle();
    }
}

/// Returns whether the end was reached with a grant of the user that skipped something.
fn was_granted(project: &Project) -> bool {
    project.transitions().iter().any(|transition| matches!(&transition.cause, PhaseTransitionCause::Granted { .. }))
}

fn check_ended(project: &Project) {
    if project.phase() != "end" || was_granted(project) {
        return;
    }
    let executed = project.transitions().iter().any(|transition| transition.to == "execute");
    if !executed {
        return;
    }
    let state = project.session.flow_state_json();
    let verdict = project.facts().into_iter().rev().find_map(|fact| match fact {
        ProjectFact::VerdictReached(verdict) if verdict.passed => Some(verdict),
        _ => None,
    });
    let passed = verdict.is_some_and(|verdict| verdict.digest == project.content.to_string());
    assert!(passed, "ended with content {} and state {}", project.content, state["verdict"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_run_ends_after_execute_without_evidence_or_a_grant(actions in actions()) {
        let mut project = Project::open();
        for action in &actions {
            perform(&mut project, action);
            check_ended(&project);
        }
    }

    #[test]
    fn every_run_ends_waits_for_the_user_or_has_work(actions in actions()) {
        let mut project = Project::open();
        for action in &actions {
            perform(&mut project, action);
            let session = project.session.session();
            let has_work = !session.open_calls.is_empty() || !session.open_tool_runs.is_empty();
            prop_assert!(session.current_turn.is_none() || has_work);
            let stalled = project.session.journal().iter().any(|recorded| matches!(&recorded.event,
                segue_core::event::Event::TurnEnded { outcome: segue_core::event::TurnOutcome::Failed { reason }, .. }
                    if reason.contains("left no pending work")));
            prop_assert!(!stalled, "{}", project.session.journal_json_lines());
        }
    }
}
