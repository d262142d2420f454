//! The rows of the checklist about phases and transitions, T1–T12 and T21–T36.

use segue_core::decide::OperatorCommand;
use segue_core::event::Event;
use segue_core::ids::UnixMillis;
use segue_core::phase::{PhaseTransitionCause, PhaseTransitionProposer};
use segue_flows::project::ProjectFlow;
use segue_flows::project::facts::{AgentTurnEndKind, ProjectFact, RoutingDecisionMaker};
use segue_testkit::SessionHarness;
use serde_json::json;

use crate::support::{Project, phases_key, plan};

const WORK: [&str; 7] = ["chat", "brainstorm", "plan", "execute", "verification", "chores", "reflection"];

/// The transition table of the requirements, repeated here to check the definition against it.
const TABLE: [(&str, &[&str]); 7] = [
    ("chat", &["execute", "plan", "brainstorm"]),
    ("brainstorm", &["chat", "plan", "execute"]),
    ("plan", &["execute"]),
    ("execute", &["verification", "chat"]),
    ("verification", &["chores", "execute", "chat"]),
    ("chores", &["reflection"]),
    ("reflection", &["chat"]),
];

#[test]
fn t01_seven_phases_have_purpose_criteria_constraints_and_agents() {
    let flow = ProjectFlow::new();
    let work = flow.checked_definition().phases.iter().filter(|phase| phase.name != "end");
    let names: Vec<&str> = work.clone().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, WORK);
    for phase in work {
        assert!(
            !phase.purpose.is_empty() && !phase.criteria.is_empty() && phase.constraints.len() >= 3,
            "{}",
            phase.name
        );
        assert!(!phase.entry.is_empty() && !phase.activities.is_empty(), "{}", phase.name);
        assert!(!phase.agents.is_empty() || phase.name == "reflection", "{}", phase.name);
    }
}

/// The state in which everything that a transition out of a phase needs has been done.
fn ready_to_leave(phase: &str) -> Project {
    let mut project = Project::in_phase(phase);
    match phase {
        "chat" | "brainstorm" => {
            project.answer("project-manager", "What do you mean?").say("yes, go on");
        }
        "plan" => {
            project.complete_with("planner", plan());
            project.session.run_command(OperatorCommand::Flow { command: "approve".into(), arguments: json!(null) });
            project.settle();
        }
        "execute" => {
            project.write("executor").complete("executor", "done");
        }
        "verification" => {
            project.complete("executor-verification", "fine");
        }
        "chores" => {
            project.complete("executor", "tidy");
        }
        _ => {
            project.complete("executor", "reflected");
        }
    }
    project
}

#[test]
fn t02_listed_transitions_are_accepted_and_all_others_are_refused() {
    for (from, listed) in TABLE {
        for to in WORK.into_iter().filter(|to| *to != from) {
            let mut project = ready_to_leave(from);
            // Where only one phase can follow, code has already entered it.
            if project.phase() != from {
                assert_eq!(listed, [project.phase()], "code left {from}");
                continue;
            }
            let refusals = project.refusals().len();
            let agents = match to {
                "chat" | "brainstorm" => "project-manager",
                "plan" => "planner",
                _ => "executor",
            };
            project.route_with(json!({"phase": to, "agents": [agents], "reason": "r", "user_words": "go on"}));
            if listed.contains(&to) {
                assert_eq!(project.phase(), to, "{from} to {to}: {:?}", project.refusals());
                assert_eq!(
                    project.transitions().last().map(|last| last.cause.clone()),
                    Some(PhaseTransitionCause::Proposed)
                );
            } else {
                assert_eq!(project.phase(), from, "{from} to {to}");
                assert_eq!(project.refusals().len(), refusals + 1, "{from} to {to}");
            }
        }
    }
}

#[test]
fn t03_refused_transition_is_recorded_keeps_the_phase_and_no_agent_starts() {
    let mut project = ready_to_leave("execute");
    let opened = project.count_facts(|fact| matches!(fact, ProjectFact::TurnOpened { .. }));
    project.route("chores", &["executor"]);
    assert_eq!((project.phase().as_str(), project.refusals().len()), ("execute", 1));
    assert_eq!(project.count_facts(|fact| matches!(fact, ProjectFact::TurnOpened { .. })), opened);
    // The router is told why, and asked again.
    assert_eq!(project.roles(), ["router"]);
    assert!(
        project.prompt("router").contains("`chores` cannot be entered from `execute`"),
        "{}",
        project.prompt("router")
    );
    // After two refusals the default agent works in the only phase that can follow.
    project.route("reflection", &["executor"]);
    assert_eq!((project.phase().as_str(), project.roles()), ("verification", vec!["executor-verification".to_owned()]));
    let by_default = |fact: &ProjectFact| matches!(fact, ProjectFact::TurnOpened { decision, .. } if decision.by == RoutingDecisionMaker::Default);
    assert_eq!(project.count_facts(by_default), 1);
}

#[test]
fn t04_hand_off_within_a_phase_is_recorded_without_a_new_visit() {
    let mut project = Project::in_phase("verification");
    let visit = project.visit();
    project.complete("executor-verification", "fine").route("verification", &["project-manager"]);
    assert_eq!(project.visit(), visit);
    let last = project.transitions().pop().expect("it is recorded");
    assert_eq!(last.cause, PhaseTransitionCause::SamePhase);
    assert_eq!((last.from.as_str(), last.to.as_str()), ("verification", "verification"));
    assert_eq!(project.roles(), ["project-manager-verification"]);
}

#[test]
fn t05_transition_record_has_all_eight_fields() {
    let mut project = ready_to_leave("execute");
    project.route("verification", &["executor"]);
    let recorded = project.session.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::PhaseEntered(entered) => Some((recorded.at, entered.transition.clone())),
        _ => None,
    });
    let (at, transition) = recorded.expect("it was entered");
    assert_eq!((transition.from.as_str(), transition.to.as_str()), ("execute", "verification"));
    assert!(at > UnixMillis(0));
    assert_eq!(transition.by, PhaseTransitionProposer::Role("router".into()));
    assert_eq!(transition.note.proposer_label.as_deref(), Some("router"));
    assert_eq!(transition.note.reason.as_deref(), Some("it is next"));
    assert!(transition.note.message.is_some_and(|message| message.contains("Executor: it is next")));
    assert_eq!(transition.note.summary.as_deref(), Some("Executor: done"));
}

#[test]
fn t06_phase_start_changes_only_with_the_phase() {
    let mut project = Project::in_phase("verification");
    let since = |project: &Project| project.session.session().phase_graphs[&phases_key()].state.since;
    let before = since(&project);
    project.session.advance_clock(5_000);
    project.complete("executor-verification", "fine").route("verification", &["project-manager"]);
    assert_eq!(since(&project), before);
    project.complete("project-manager-verification", "fine").route("chores", &["executor"]);
    assert!(since(&project) > before);
}

#[test]
fn t07_action_is_the_default_and_a_clear_request_starts_execute() {
    let mut project = Project::open();
    project.say("add a flag --version");
    let prompt = project.prompt("router");
    assert!(prompt.contains("Prefer action to discussion"), "{prompt}");
    assert_eq!(project.phase(), "chat");
    project.route("execute", &["executor"]);
    assert_eq!((project.phase().as_str(), project.roles()), ("execute", vec!["executor".to_owned()]));
}

#[test]
fn t07_message_in_a_finished_reflection_enters_chat_before_routing() {
    let mut project = Project::in_phase("reflection");
    project.complete("executor", "reflected").route("chat", &["project-manager"]);
    assert_eq!(project.phase(), "chat");
    let mut project = Project::in_phase("reflection");
    // The session stops in reflection, because the router fails; the next message is routed from chat.
    project.complete("executor", "reflected");
    project.session.fail_call("router", segue_core::prompt::CallFailureKind::Refused);
    assert_eq!(project.phase(), "reflection");
    project.say("and now something else");
    assert_eq!((project.phase().as_str(), project.roles()), ("chat", vec!["router".to_owned()]));
}

#[test]
fn t08_router_is_told_which_request_leads_to_which_phase() {
    let mut project = Project::open();
    project.say("hm");
    let prompt = project.prompt("router");
    for (phase, entry) in [
        ("plan", "the task is complex and needs design decisions"),
        ("chat", "the request is unclear or ambiguous"),
        ("brainstorm", "the question is open-ended"),
    ] {
        let line = prompt.lines().find(|line| line.starts_with(&format!("- `{phase}`"))).expect("it is listed");
        assert!(line.contains(entry), "{line}");
    }
    for (phase, agent) in [("plan", "planner"), ("chat", "project-manager"), ("brainstorm", "project-manager")] {
        let mut project = Project::open();
        project.say("hm").route(phase, &[agent]);
        assert_eq!(project.phase(), phase);
    }
}

#[test]
fn t09_execute_must_lead_to_verification_before_chores_and_end() {
    let mut project = ready_to_leave("execute");
    project.route("chat", &["project-manager"]).answer("project-manager", "Is that right?").say("yes");
    assert_eq!(project.open_gates(), ["verified"], "a detour leaves the gate open");
    let (phases, _) = project.offered_routes();
    assert_eq!(phases, ["chat", "brainstorm", "plan", "execute"], "the end is blocked");
    project.route("end", &[]);
    assert!(project.refusals()[0].contains("gate `verified` is open"), "{:?}", project.refusals());
    // Entering verification does not satisfy the gate; leaving it with evidence does.
    let mut project = Project::in_phase("verification");
    assert!(project.open_gates().contains(&"verified".to_owned()));
    project.complete("executor-verification", "fine").route("chores", &["executor"]);
    assert_eq!(project.open_gates(), ["learned", "tidied"]);
}

#[test]
fn t10_verification_may_return_to_execute() {
    let mut project = Project::in_phase("verification");
    project.complete("executor-verification", "broken").route("execute", &["executor"]);
    assert_eq!(project.phase(), "execute");
    assert!(project.open_gates().contains(&"verified".to_owned()));
}

#[test]
fn t11_chores_leads_to_reflection_only_and_no_router_is_asked() {
    let project = ready_to_leave("chores");
    assert_eq!(project.phase(), "reflection");
    let last = project.transitions().pop().expect("it was entered");
    assert_eq!(last.by, PhaseTransitionProposer::Engine);
    assert_eq!(last.note.reason.as_deref(), Some("the only possibility"));
}

#[test]
fn t12_only_the_user_grants_a_skip_and_is_warned() {
    let mut project = ready_to_leave("execute");
    // A model that wants to skip is refused.
    project.route_with(json!({"phase": "chores", "agents": ["executor"], "reason": "the user said quick"}));
    assert_eq!(project.phase(), "execute");
    project.session.run_command(OperatorCommand::Cancel { turn: None });
    project.session.run_command(OperatorCommand::Grant { phase: phases_key(), to: "end".into() });
    let warned = project.session.journal().iter().any(|recorded| matches!(&recorded.event, Event::ReplySent(_)));
    assert!(warned);
    project.settle();
    assert!(project.is_closed(), "{}", project.session.last_reply());
    let skipped = project.transitions().pop().expect("it ended");
    assert!(
        skipped
            .describe_skips_or_blocked_exit()
            .expect("a skip warns")
            .contains("phase `verification` (gate `verified`)"),
        "{skipped:?}"
    );
    // The account says that nothing was verified.
    assert!(project.session.last_reply().contains("not verified"), "{}", project.session.last_reply());
}

#[test]
fn t21_prompt_contains_phase_definitions_and_the_constraints_of_the_current_phase() {
    let project = Project::in_phase("execute");
    let prompt = project.prompt("executor");
    for phase in WORK {
        assert!(prompt.contains(&format!("- `{phase}`")), "{phase}");
    }
    assert!(prompt.contains("Phase: `execute` (Implementation)"), "{prompt}");
    assert!(prompt.contains("- focus on delivering what was asked"), "{prompt}");
    assert!(!prompt.contains("do not rush to one solution"), "constraints of other phases are not shown");
}

#[test]
fn t22_complete_varies_by_phase_and_learn_exists_only_in_reflection() {
    let answer = |phase: &str, role: &str, arguments: serde_json::Value| {
        let mut project = Project::in_phase(phase);
        if phase == "execute" {
            project.write(role);
        }
        project.complete_with(role, arguments);
        let text = project.session.journal().iter().rev().find_map(|recorded| match &recorded.event {
            Event::ToolRunEnded { text, .. } => Some(project.session.text_on_one_line(*text)),
            _ => None,
        });
        (text.expect("it was answered"), project)
    };
    let (refused, _) = answer("plan", "planner", json!({"summary": "planned"}));
    assert!(refused.contains("this phase ends with a plan"), "{refused}");
    let (accepted, _) = answer("plan", "planner", plan());
    assert!(accepted.contains("the plan with 1 steps is recorded"), "{accepted}");
    let (accepted, _) = answer("execute", "executor", json!({"summary": "wrote it"}));
    assert!(accepted.contains("your work in `execute` is recorded as complete"), "{accepted}");
    for (phase, role, has_learn) in
        [("execute", "executor", false), ("chores", "executor", false), ("reflection", "executor", true)]
    {
        let tools = Project::in_phase(phase).offered_tools(role);
        assert_eq!(tools.contains(&"learn".to_owned()), has_learn, "{phase}");
        assert!(tools.contains(&"complete".to_owned()), "{phase}");
    }
}

#[test]
fn t23_reflection_reaches_each_participant_exactly_once() {
    let mut project = Project::in_phase("verification");
    project.complete("executor-verification", "fine").route("verification", &["project-manager"]);
    project
        .complete("project-manager-verification", "fine")
        .route("chores", &["executor"])
        .complete("executor", "tidy");
    // One turn for all, opened by code; the planner did not take part.
    assert_eq!(project.roles(), ["executor", "project-manager"]);
    let reflections: Vec<ProjectFact> = project
        .facts()
        .into_iter()
        .filter(|fact| matches!(fact, ProjectFact::TurnOpened { decision, .. } if decision.phase == "reflection"))
        .collect();
    let [ProjectFact::TurnOpened { decision, .. }] = reflections.as_slice() else { panic!("{reflections:?}") };
    assert_eq!(decision.by, RoutingDecisionMaker::Code);
    project.complete("executor", "e").complete("project-manager", "p");
    assert_eq!(project.roles(), ["router"]);
    let (phases, _) = project.offered_routes();
    assert_eq!(phases, ["chat", "end"], "nobody reflects again");
}

#[test]
fn t24_end_stops_execution_and_closes_the_conversation() {
    let mut project = Project::in_phase("end");
    assert!(project.is_closed() && project.roles().is_empty());
    assert_eq!(project.phase(), "end");
    let refusal = project.session.try_input(segue_core::decide::SessionInput::Message {
        text: "more".into(),
        idempotency_key: None,
        mid_turn_policy: None,
        images: Vec::new(),
    });
    let refusal = refusal.expect_err("the session has ended").to_string();
    assert!(refusal.contains("start a new session, or fork this one"), "{refusal}");
}

#[test]
fn t24_end_named_as_agent_means_the_phase() {
    let mut project = Project::in_phase("reflection");
    project.complete("executor", "e").route_with(json!({"agents": ["END"], "reason": "all is done"}));
    assert!(project.is_closed());
    // Mixed with agents it is dropped.
    let mut project = Project::open();
    project.say("x").route_with(json!({"phase": "chat", "agents": ["END", "project-manager"], "reason": "r"}));
    assert_eq!((project.is_closed(), project.roles()), (false, vec!["project-manager".to_owned()]));
}

#[test]
fn t27_handoff_is_attached_only_if_the_newest_transition_is_recent_and_has_a_summary() {
    let project = ready_to_leave("execute");
    let mut recent = project;
    recent.session.advance_clock(29_000);
    recent.route("verification", &["executor"]);
    assert!(recent.prompt("executor-verification").contains("Handed over from `execute` to `verification`"));
    // 30 seconds pass between the transition and the opening of the agent's turn.
    let mut late = ready_to_leave("execute");
    late.session
        .answer_call("router", &json!({"phase": "verification", "agents": ["executor"], "reason": "r"}).to_string());
    late.session.advance_clock(30_000);
    late.settle();
    assert!(!late.prompt("executor-verification").contains("Handed over"), "{}", late.prompt("executor-verification"));
    // The first transition has no summary.
    assert!(!Project::in_phase("execute").prompt("executor").contains("Handed over"));
}

#[test]
fn t28_leaving_reflection_for_chat_clears_the_files_that_were_read() {
    let mut project = Project::in_phase("execute");
    let read = json!({"path": "main.rs", "digest": "d1", "bytes": 1, "lines": 1, "first_line": 1, "last_line": 1});
    project.use_tool("executor", "read_file", json!({"path": "main.rs"}), read);
    let read_files = |project: &Project| read_files_of(&project.session, "executor");
    assert_eq!(read_files(&project), json!({"main.rs": "d1"}));
    project.write("executor").complete("executor", "done").route("verification", &["executor"]);
    project.complete("executor-verification", "ok").route("chores", &["executor"]).complete("executor", "tidy");
    assert_eq!(read_files(&project), json!({"main.rs": "d1"}));
    project.complete("executor", "reflected").route("chat", &["project-manager"]);
    assert_eq!(read_files(&project), json!({}));
}

fn read_files_of(session: &SessionHarness, agent: &str) -> serde_json::Value {
    session.flow_state_json()["agents"][agent]["read_files"].clone()
}

#[test]
fn t29_session_without_a_phase_is_in_chat_and_records_it_with_the_first_transition() {
    let project = Project::open();
    assert_eq!(project.phase(), "chat");
    assert!(project.transitions().is_empty());
    let mut project = project;
    project.say("hello").route("chat", &["project-manager"]);
    let first = &project.transitions()[0];
    assert_eq!((first.from.as_str(), first.to.as_str()), ("chat", "chat"));
}

#[test]
fn t35_brainstorm_is_left_only_at_the_users_request() {
    let mut project = Project::in_phase("brainstorm");
    project.answer("project-manager", "What if it sang?").say("nice, now plan it please");
    // The router may not leave without the user's words.
    project.route_with(json!({"phase": "plan", "agents": ["planner"], "reason": "enough ideas"}));
    assert_eq!(project.phase(), "brainstorm");
    assert!(project.refusals()[0].contains("the user did not ask for it"), "{:?}", project.refusals());
    // Words that the user did not say do not count.
    project.route_with(json!({"phase": "plan", "agents": ["planner"], "reason": "r", "user_words": "let us build"}));
    assert_eq!((project.phase().as_str(), project.refusals().len()), ("brainstorm", 2));
    // Default routing continues the conversation.
    assert_eq!(project.roles(), ["project-manager"]);
    project.answer("project-manager", "Or danced?").say("no: now plan it please");
    project.route_with(json!({"phase": "plan", "agents": ["planner"], "reason": "r", "user_words": "Now plan it"}));
    assert_eq!(project.phase(), "plan");
}

#[test]
fn t35_user_may_leave_brainstorm_by_a_command() {
    let mut project = Project::in_phase("brainstorm");
    project.answer("project-manager", "What if it sang?");
    let propose = OperatorCommand::Propose { phase: phases_key(), to: "plan".into(), reason: None };
    project.session.run_command(propose);
    project.settle();
    assert_eq!((project.phase().as_str(), project.roles()), ("plan", vec!["planner".to_owned()]));
}

#[test]
fn t36_plan_needs_a_document_and_the_users_approval() {
    let mut project = Project::in_phase("plan");
    project.complete_with("planner", json!({"summary": "done", "plan": {"goal": "g", "steps": [{"title": "a"}]}}));
    assert_eq!(project.roles(), ["planner"], "a step without done-when is refused");
    project.complete_with("planner", plan());
    assert!(project.is_waiting_for_user());
    assert!(project.session.last_reply().contains("write it — done when it runs"), "{}", project.session.last_reply());
    assert_eq!(project.phase(), "plan");
    // A message is feedback on the plan.
    project.say("add a test");
    assert_eq!(project.roles(), ["planner"]);
    project.complete_with("planner", plan());
    assert!(project.is_waiting_for_user());
    project.command("approve", json!(null));
    assert_eq!((project.phase().as_str(), project.roles()), ("execute", vec!["executor".to_owned()]));
    assert!(project.prompt("executor").contains("The plan:\n```\na tool"));
    let approvals = project.count_facts(|fact| matches!(fact, ProjectFact::PlanApproved { .. }));
    assert_eq!(approvals, 1);
}

#[test]
fn t36_automatic_approval_is_recorded_as_such() {
    let mut project = Project::open_with(json!({"workspace": "w", "plan_approval": "auto"}));
    project.walk_to("plan").complete_with("planner", plan());
    assert_eq!(project.phase(), "execute");
    let auto = |fact: &ProjectFact| {
        matches!(fact, ProjectFact::PlanApproved { by: segue_flows::project::facts::PlanApprover::Auto })
    };
    assert_eq!(project.count_facts(auto), 1);
}

#[test]
fn t40_reflection_is_left_only_when_every_participant_has_reflected() {
    let mut project = Project::in_phase("verification");
    project.complete("executor-verification", "fine").route("verification", &["project-manager"]);
    project.complete("project-manager-verification", "ok").route("chores", &["executor"]).complete("executor", "tidy");
    // "No lesson" is a valid reflection.
    project.complete("executor", "no lesson");
    assert_eq!((project.phase().as_str(), project.roles()), ("reflection", vec!["project-manager".to_owned()]));
    project.session.fail_call("project-manager", segue_core::prompt::CallFailureKind::Refused);
    // The agent that failed is called again, and only this one.
    assert_eq!((project.phase().as_str(), project.roles()), ("reflection", vec!["project-manager".to_owned()]));
    project.complete("project-manager", "no lesson");
    assert_eq!(project.offered_routes().0, ["chat", "end"]);
    let failed = |fact: &ProjectFact| matches!(fact, ProjectFact::AgentTurnEnd { how: AgentTurnEndKind::Failed, .. });
    assert_eq!(project.count_facts(failed), 1);
}

/// A small model can fail to record a lesson again and again. It has nothing to say then, and the work ends.
#[test]
fn t40_agent_that_failed_to_reflect_twice_has_no_lesson() {
    let mut project = Project::in_phase("verification");
    project.complete("executor-verification", "fine").route("chores", &["executor"]).complete("executor", "tidy");
    assert_eq!((project.phase().as_str(), project.roles()), ("reflection", vec!["executor".to_owned()]));
    for attempt in 1..=2 {
        assert_eq!(project.roles(), ["executor"], "attempt {attempt}");
        // It is reminded once, and then its work is completed for it.
        project.answer("executor", "I think").answer("executor", "I still think");
    }
    assert_eq!(
        (project.roles(), project.offered_routes().0),
        (vec!["router".to_owned()], vec!["chat".into(), "end".into()])
    );
}

#[test]
fn t42_prompt_contains_the_previous_phase_and_the_instruction_for_agent_and_phase() {
    let project = Project::in_phase("chores");
    let prompt = project.prompt("executor");
    assert!(prompt.contains("The phase before was `verification`"), "{prompt}");
    assert!(prompt.contains("Clean up after the recent work"), "{prompt}");
}
