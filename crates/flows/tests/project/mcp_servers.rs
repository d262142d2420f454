//! Tools of MCP servers: which phase has them, what agents are told about them, and what happens to them in a crash.

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, ToolRunOpened, ToolRunOutcome};
use segue_core::flow::OperatorToolApprovalRules;
use segue_core::prompt::ModelOutputFormat;
use segue_core::tool::ToolResult;
use segue_flows::project::definition::FlowDefinition;
use segue_flows::project::{PROJECT_DEFINITION, ProjectFlow};
use serde_json::{Value, json};

use crate::support::Project;

pub(crate) const CLOSE: &str = "mcp__tickets__close";

/// The built-in flow, in which `execute` lists a tool of a server.
fn definition() -> String {
    let tools = "tools = [\"@read\", \"@write\", \"@run\"]";
    PROJECT_DEFINITION.replacen(tools, &tools.replace(']', &format!(", \"{CLOSE}\"]")), 1)
}

fn listing(description: &str) -> Value {
    let schema = json!({"type": "object", "required": ["ticket"], "properties": {"ticket": {"type": "integer"}}});
    let tool = json!({"name": "close", "description": description, "input_schema": schema});
    json!({"servers": {"tickets": {"tools": [tool]}}})
}

pub(crate) fn open_with_server(settings: Value) -> Project {
    let flow = ProjectFlow::from_source(&definition()).unwrap_or_else(|errors| panic!("{errors}"));
    let mut project = Project::open_flow(flow, settings);
    project.listing = listing("closes a ticket");
    project
}

fn in_execute(settings: Value) -> Project {
    let mut project = open_with_server(settings);
    project.walk_to("execute");
    project
}

/// Begins another turn, in which the executor works.
fn next_turn(project: &mut Project) {
    project.session.run_command(OperatorCommand::Cancel { turn: None });
    project.say("go on").route("execute", &["executor"]);
}

fn close_runs(project: &Project) -> Vec<ToolRunOpened> {
    let opened = project.session.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) if opened.tool == *CLOSE => Some(opened.clone()),
        _ => None,
    });
    opened.collect()
}

#[test]
fn tool_is_offered_only_in_the_phase_that_lists_it_as_its_server_describes_it() {
    let mut project = open_with_server(json!({"workspace": "w"}));
    project.walk_to("chat");
    assert_eq!(project.offered_tools("project-manager"), [""; 0]);
    let mut project = in_execute(json!({"workspace": "w"}));
    assert!(project.offered_tools("executor").contains(&CLOSE.to_owned()));
    let prompt = project.session.prompt_for_role("executor");
    let tool = prompt.tools.iter().find(|tool| tool.name == *CLOSE).expect("it is offered");
    assert_eq!(tool.parameters["required"], json!(["ticket"]));
    assert!(tool.description.contains("server `tickets`") && tool.description.contains("```\ncloses a ticket\n```"));
    project.session.answer_with_tool_call("executor", CLOSE, json!({"ticket": 1}));
    let run = close_runs(&project).pop().expect("it runs");
    assert_eq!(run.phase.as_ref().map(|phase| phase.as_str()), Some("execute"));
    project.finish(run.run, json!({})).write("executor").complete("executor", "done");
    project.route("verification", &["executor"]);
    assert!(!project.offered_tools("executor-verification").contains(&CLOSE.to_owned()));
    // A call from a phase that does not list it is refused.
    project.session.answer_with_tool_call("executor-verification", CLOSE, json!({"ticket": 2}));
    let ended = project.session.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::ToolRunEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(ended, Some(ToolRunOutcome::Refused));
}

#[test]
fn agent_with_a_list_of_tools_has_only_those() {
    let only_read = definition().replacen("name = \"executor\"\n", "name = \"executor\"\ntools = [\"@read\"]\n", 1);
    let mut project =
        Project::open_flow(ProjectFlow::from_source(&only_read).expect("valid"), json!({"workspace": "w"}));
    project.listing = listing("closes a ticket");
    project.walk_to("execute");
    let offered = project.offered_tools("executor");
    assert!(offered.contains(&"read_file".to_owned()) && !offered.contains(&CLOSE.to_owned()), "{offered:?}");
}

#[test]
fn run_in_progress_at_a_crash_is_not_repeated_and_its_outcome_is_told() {
    let mut project = in_execute(json!({"workspace": "w"}));
    project.session.answer_with_tool_call("executor", CLOSE, json!({"ticket": 1}));
    project.session.crash_and_recover();
    project.settle();
    assert_eq!(close_runs(&project).len(), 1);
    let unknown = project
        .session
        .journal()
        .iter()
        .any(|recorded| matches!(recorded.event, Event::ToolRunEnded { outcome: ToolRunOutcome::Unknown, .. }));
    assert!(unknown);
    assert!(project.prompt("executor").contains("may or may not"), "{}", project.prompt("executor"));
}

#[test]
fn approval_rules_hold_a_run() {
    let mut project = in_execute(json!({"workspace": "w"}));
    let ask = vec![format!("executor@execute/{CLOSE}").parse().expect("a pattern")];
    project.session = project.session.with_approval_rules(OperatorToolApprovalRules { ask, ..Default::default() });
    project.session.answer_with_tool_call("executor", CLOSE, json!({"ticket": 1}));
    assert_eq!(project.session.session().held_tool_runs.len(), 1);
}

#[test]
fn tools_of_a_server_that_cannot_be_asked_are_not_offered_and_the_reason_is_told_in_a_fence() {
    let mut project = open_with_server(json!({"workspace": "w"}));
    project.listing = json!({"servers": {"tickets": {"error": "the server `tickets` cannot be started"}}});
    project.walk_to("execute");
    assert!(!project.offered_tools("executor").contains(&CLOSE.to_owned()));
    let line = format!("```\n- {CLOSE}: the server `tickets` cannot be started\n```");
    assert!(project.prompt("executor").contains(&line), "{}", project.prompt("executor"));
    // The server is asked again in the next turn.
    project.write("executor").complete("executor", "done");
    project.listing = listing("closes a ticket");
    next_turn(&mut project);
    assert!(project.offered_tools("executor").contains(&CLOSE.to_owned()));
}

#[test]
fn descriptions_stay_while_the_server_cannot_be_asked() {
    let mut project = in_execute(json!({"workspace": "w"}));
    project.write("executor").complete("executor", "done");
    project.listing = json!({"servers": {"tickets": {"error": "it is away"}}});
    next_turn(&mut project);
    assert!(project.offered_tools("executor").contains(&CLOSE.to_owned()));
}

#[test]
fn structured_agent_is_shown_the_arguments_and_must_give_them() {
    let mut project = in_execute(json!({"workspace": "w", "actions": "structured"}));
    let ModelOutputFormat::Json(schema) = &project.session.prompt_for_role("executor").output_format else {
        panic!("it answers by a schema")
    };
    assert!(schema["properties"]["action"]["enum"].as_array().is_some_and(|all| all.contains(&json!(CLOSE))));
    assert_eq!(schema["properties"]["arguments"]["type"], "object");
    let prompt = project.prompt("executor");
    assert!(prompt.contains(&format!("To use `{CLOSE}`")) && prompt.contains("\"required\":[\"ticket\"]"), "{prompt}");
    project.answer("executor", &json!({"action": CLOSE, "arguments": {}}).to_string());
    assert!(project.prompt("executor").contains(&format!("the arguments of `{CLOSE}` lack `ticket`")));
    project.answer("executor", &json!({"action": CLOSE, "arguments": "{\"ticket\": 1}"}).to_string());
    let run = close_runs(&project).pop().expect("it runs");
    assert_eq!(run.arguments, json!({"ticket": 1}));
}

#[test]
fn call_in_a_text_runs_only_with_what_the_server_requires() {
    let mut project = in_execute(json!({"workspace": "w"}));
    project.answer("executor", &json!({"name": CLOSE, "arguments": {"id": 1}}).to_string());
    assert!(close_runs(&project).is_empty());
    assert!(project.prompt("executor").contains("lack `ticket`"), "{}", project.prompt("executor"));
    project.answer("executor", &json!({"name": CLOSE, "arguments": {"ticket": 1}}).to_string());
    assert_eq!(close_runs(&project).len(), 1);
}

#[test]
fn phase_that_a_tool_proposes_is_told_to_the_router_and_moves_nothing() {
    let mut project = in_execute(json!({"workspace": "w"}));
    for phase in ["plan", "no such phase"] {
        project.session.answer_with_tool_call("executor", CLOSE, json!({"ticket": 1}));
        let run = close_runs(&project).pop().expect("it runs").run;
        let value = Some(json!({"segue/propose_phase": phase}));
        let result = ToolResult { text: phase.to_owned(), value, ..ToolResult::default() };
        project.session.apply_input(segue_core::decide::SessionInput::ToolResult { run, result });
        project.settle();
        assert_eq!(project.phase(), "execute");
    }
    project.complete("executor", "nothing to change").complete("executor", "really nothing");
    let prompt = project.prompt("router");
    assert!(prompt.contains(&format!("the tool `{CLOSE}` proposes the phase `plan`")), "{prompt}");
    assert!(!prompt.contains("no such phase"), "{prompt}");
}

#[test]
fn places_of_listed_tools_are_known_and_wrong_names_are_mistakes() {
    let source = definition();
    let line = source.lines().position(|line| line.contains(CLOSE)).expect("it is listed") + 1;
    let [located] = &FlowDefinition::locate_mcp_tools(&source)[..] else { panic!("one tool is listed") };
    assert_eq!((located.line, located.column, located.name.as_str()), (line, 37, CLOSE));
    let broken = source.replace(CLOSE, "mcp__Tickets__close");
    let errors = FlowDefinition::parse(&broken).expect_err("the name is wrong");
    let expected = format!("{line}:37: `mcp__Tickets__close` is not the name of a tool of an MCP server");
    assert!(errors.to_string().starts_with(&expected), "{errors}");
}
