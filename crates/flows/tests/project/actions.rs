//! Structured actions: an agent chooses an action by a schema, and file content follows as a fenced reply. And tool calls
//! that a model writes in its text.

use segue_core::event::{Event, ToolRunOpened, ToolRunOutcome};
use segue_core::flow::OperatorToolApprovalRules;
use segue_core::prompt::ModelOutputFormat;
use segue_flows::project::ProjectFlow;
use segue_flows::project::definition::FlowDefinition;
use segue_flows::project::facts::{AgentTurnEndKind, ProjectFact};
use serde_json::{Value, json};

use crate::support::Project;

/// A session in which all agents choose structured actions, in `execute`.
fn structured_execute() -> Project {
    let mut project = Project::open_with(json!({"workspace": "w", "actions": "structured"}));
    project.walk_to("execute");
    project
}

fn schema(project: &Project, role: &str) -> Option<Value> {
    match &project.session.prompt_for_role(role).output_format {
        ModelOutputFormat::Json(schema) => Some(schema.clone()),
        ModelOutputFormat::Text => None,
    }
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The runs that agents requested, in order.
fn agent_runs(project: &Project) -> Vec<ToolRunOpened> {
    let opened = project.session.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) if opened.requested_by.is_some() => Some(opened.clone()),
        _ => None,
    });
    opened.collect()
}

fn finish_last_run(project: &mut Project, value: Value) {
    let run = agent_runs(project).last().expect("an agent requested a run").run;
    project.finish(run, value).settle();
}

fn written(path: &str) -> Value {
    json!({"changes": [{"path": path, "kind": "created", "lines_added": 1, "lines_removed": 0}]})
}

#[test]
fn new_file_is_written_by_a_choice_and_a_fenced_reply() {
    let mut project = structured_execute();
    assert_eq!(project.offered_tools("executor"), [""; 0], "the model needs no tool calls");
    project.answer("executor", r#"{"action": "write_file", "path": "new", "path_new": "src/tool.sh"}"#);
    assert_eq!(schema(&project, "executor"), None, "the content is a plain reply");
    assert_eq!(project.offered_tools("executor"), [""; 0]);
    assert!(
        project
            .prompt("executor")
            .contains("The file:\n```\nsrc/tool.sh\n```\nWrite its whole content in one code fence")
    );
    project.answer("executor", "Here it is:\n```sh\necho hi\n```\n");
    let run = agent_runs(&project).pop().expect("the file is written");
    assert_eq!((run.tool.as_str(), run.agent.as_ref().map(|agent| agent.as_str())), ("write_file", Some("executor")));
    assert_eq!(run.arguments, json!({"path": "src/tool.sh", "content": "echo hi\n"}));
    assert_eq!(run.phase.as_ref().map(|phase| phase.as_str()), Some("execute"));
    finish_last_run(&mut project, written("src/tool.sh"));
    // The result, the new list of files and the changes are shown without being asked for.
    let prompt = project.prompt("executor");
    assert!(prompt.contains("Your action `write_file` was carried out"), "{prompt}");
    assert!(prompt.contains("- src/tool.sh (created)") && prompt.contains("- main.rs\n"), "{prompt}");
    assert!(
        names(&schema(&project, "executor").expect("a choice")["properties"]["path"]["enum"])
            .contains(&"src/tool.sh".to_owned())
    );
    project.answer("executor", r#"{"action": "complete", "summary": "wrote the tool"}"#);
    assert_eq!(project.roles(), ["router"], "{:?}", project.facts());
    let completed =
        |fact: &ProjectFact| matches!(fact, ProjectFact::AgentTurnEnd { how: AgentTurnEndKind::Completed, .. });
    assert_eq!(project.count_facts(completed), 1);
}

#[test]
fn existing_file_is_shown_before_it_is_replaced_as_a_whole() {
    let mut project = structured_execute();
    project.answer("executor", r#"{"action": "write_file", "path": "main.rs"}"#);
    let read = agent_runs(&project).pop().expect("it is read first");
    assert_eq!((read.tool.as_str(), &read.arguments), ("read_file", &json!({"path": "main.rs"})));
    let value = json!({"path": "main.rs", "digest": "d", "bytes": 9, "lines": 2, "first_line": 1, "last_line": 2});
    let result = segue_core::tool::ToolResult {
        text: "1\tfn main() {\n2\t\tlet a = 1; }\n".to_owned(),
        value: Some(value),
        ..Default::default()
    };
    project.session.apply_input(segue_core::decide::SessionInput::ToolResult { run: read.run, result });
    let prompt = project.prompt("executor");
    assert!(
        prompt.contains(
            "The file:\n```\nmain.rs\n```\nThis is what it contains now:\n```\nfn main() {\n\tlet a = 1; }\n```"
        ),
        "{prompt}"
    );
    project.answer("executor", "```rust\nfn main() {}\n```");
    let write = agent_runs(&project).pop().expect("it is written");
    assert_eq!(write.arguments, json!({"path": "main.rs", "content": "fn main() {}\n"}));
}

#[test]
fn file_that_was_not_shown_as_a_whole_is_not_replaced() {
    let mut project = structured_execute();
    project.answer("executor", r#"{"action": "write_file", "path": "main.rs"}"#);
    let cut = json!({"path": "main.rs", "digest": "d", "bytes": 9, "lines": 900, "first_line": 1, "last_line": 400});
    finish_last_run(&mut project, cut);
    let prompt = project.prompt("executor");
    assert!(prompt.contains("`main.rs` is too long, or not a text"), "{prompt}");
    assert!(schema(&project, "executor").is_some(), "it chooses again");
}

#[test]
fn content_with_fences_inside_is_kept_whole() {
    let mut project = structured_execute();
    project.answer("executor", r#"{"action": "write_file", "path": "new", "path_new": "README.md"}"#);
    project.answer("executor", "```markdown\n# Tool\n```\nsh tool.sh\n```\nThat is all.\n```\n");
    let run = agent_runs(&project).pop().expect("the file is written");
    assert_eq!(run.arguments["content"], "# Tool\n```\nsh tool.sh\n```\nThat is all.\n");
}

#[test]
fn invalid_path_is_refused_with_the_reason_and_repaired() {
    let mut project = structured_execute();
    for (answer, why) in [
        (
            r#"{"action": "write_file", "path": "new", "path_new": "../outside.sh"}"#,
            "`../outside.sh` is not a path inside",
        ),
        (r#"{"action": "read_file", "path": "missing.rs"}"#, "there is no file `missing.rs`"),
        (r#"{"action": "write_file", "path": "new"}"#, "`path_new` is missing"),
    ] {
        project.answer("executor", answer);
        assert!(project.prompt("executor").contains(why), "{why}: {}", project.prompt("executor"));
    }
    assert_eq!(agent_runs(&project).len(), 0);
    project.answer("executor", r#"{"action": "read_file", "path": "main.rs"}"#);
    assert_eq!(agent_runs(&project).len(), 1, "the repaired action runs");
}

#[test]
fn agent_without_a_usable_action_is_stopped_and_satisfies_nothing() {
    let mut project = structured_execute();
    for _ in 0..4 {
        assert_eq!(project.roles(), ["executor"]);
        project.answer("executor", "I would like to write a file now.");
    }
    let stopped = project.facts().into_iter().find_map(|fact| match fact {
        ProjectFact::AgentTurnEnd { how, completion, .. } => Some((how, completion.summary)),
        _ => None,
    });
    let (how, summary) = stopped.expect("its part is over");
    assert_eq!(how, AgentTurnEndKind::AutoCompleted);
    assert!(summary.contains("it chose no usable action"), "{summary}");
}

#[test]
fn schema_lists_only_the_tools_of_the_phase_and_no_edits() {
    let actions = |project: &Project, role: &str| {
        names(&schema(project, role).expect("a choice")["properties"]["action"]["enum"])
    };
    let project = structured_execute();
    let expected = ["delete_file", "move_file", "read_file", "run_command", "search_files", "write_file", "complete"];
    assert_eq!(actions(&project, "executor"), expected);
    let mut project = Project::open_with(json!({"workspace": "w", "actions": {"planner": "structured"}}));
    project.walk_to("plan");
    assert_eq!(actions(&project, "planner"), ["read_file", "search_files", "complete"]);
    // A model that is not held to the schema is refused, too.
    project.answer("planner", r#"{"action": "write_file", "path": "new", "path_new": "a"}"#);
    assert!(project.prompt("planner").contains("`write_file` is not possible here"));
    assert_eq!(agent_runs(&project).len(), 0);
    project.answer(
        "planner",
        r#"{"action": "complete", "summary": "s", "goal": "g", "steps": [{"title": "t", "done_when": "d"}]}"#,
    );
    assert_eq!(project.count_facts(|fact| matches!(fact, ProjectFact::PlanSubmitted(_))), 1);
    // Another agent of the same session still has tool calls.
    project.command("approve", Value::Null);
    assert!(project.offered_tools("executor").contains(&"edit_file".to_owned()));
}

#[test]
fn last_failing_output_is_shown_until_the_command_passes() {
    let mut project = structured_execute();
    let run = |code: i32| {
        json!({"run": {"command": "sh t.sh", "end": {"kind": "exited", "code": code}, "duration_ms": 1,
            "output_bytes": 4, "output_tail": "boom 7\n"}, "changes": []})
    };
    project.answer("executor", r#"{"action": "run_command", "command": "sh t.sh"}"#);
    finish_last_run(&mut project, run(1));
    project.answer("executor", r#"{"action": "search_files", "pattern": "x"}"#);
    finish_last_run(&mut project, json!({}));
    let last = |project: &Project| {
        let prompt = project.session.prompt_for_role("executor");
        prompt.messages.last().expect("a message").text()
    };
    assert!(
        last(&project)
            .contains("The last run of this command failed:\n```\nsh t.sh\n```\nIts output:\n```\nboom 7\n```"),
        "{}",
        last(&project)
    );
    project.answer("executor", r#"{"action": "run_command", "command": "sh t.sh"}"#);
    finish_last_run(&mut project, run(0));
    assert!(!last(&project).contains("The last failed run"), "{}", last(&project));
}

#[test]
fn approval_rules_hold_a_structured_action_by_role_and_phase() {
    let mut project = structured_execute();
    let rules = OperatorToolApprovalRules {
        ask: vec!["executor@execute/run_command".parse().expect("a pattern")],
        ..Default::default()
    };
    project.session = project.session.with_approval_rules(rules);
    project.answer("executor", r#"{"action": "run_command", "command": "make"}"#);
    assert_eq!(project.session.session().held_tool_runs.len(), 1);
    let run = agent_runs(&project).pop().expect("it waits").run;
    project.session.run_command(segue_core::decide::OperatorCommand::Deny { run, reason: "no".to_owned() });
    assert!(project.prompt("executor").contains("a person denied this tool call: no"));
}

#[test]
fn message_during_structured_work_is_seen_at_the_next_action() {
    let mut project = structured_execute();
    project.session.send_message("use four spaces");
    project.answer("executor", r#"{"action": "write_file", "path": "new", "path_new": "a.sh"}"#);
    project.answer("executor", "```\na\n```");
    finish_last_run(&mut project, written("a.sh"));
    let prompt = project.prompt("executor");
    assert!(prompt.contains("use four spaces") && prompt.contains("while you were working"), "{prompt}");
    assert!(prompt.contains("Your action `write_file` was carried out"), "{prompt}");
}

#[test]
fn repeated_structured_action_ends_the_agents_turn() {
    let mut project = structured_execute();
    for _ in 0..3 {
        project.answer("executor", r#"{"action": "search_files", "pattern": "x"}"#);
        finish_last_run(&mut project, json!({"matches": []}));
    }
    let stopped = |fact: &ProjectFact| matches!(fact, ProjectFact::AgentTurnEnd { how: AgentTurnEndKind::Stopped, .. });
    assert_eq!(project.count_facts(stopped), 1);
}

#[test]
fn auto_uses_tool_calls_only_for_models_that_are_known_to_have_them() {
    let mut project = Project::open();
    project.session.assign_model("executor", "tiny");
    project.session.set_tool_calls_unsupported("tiny");
    project.walk_to("plan");
    assert!(schema(&project, "planner").is_none() && project.offered_tools("planner").contains(&"complete".to_owned()));
    project.complete_with("planner", crate::support::plan()).command("approve", Value::Null);
    assert!(schema(&project, "executor").is_some());
    assert_eq!(project.offered_tools("executor"), [""; 0]);
    assert!(project.prompt("executor").contains("Choose exactly one next action"));
}

#[test]
fn flow_file_sets_the_mode_of_an_agent_and_a_wrong_one_is_reported() {
    let source = segue_flows::project::PROJECT_DEFINITION;
    let structured = source.replace("name = \"executor\"\n", "name = \"executor\"\nactions = \"structured\"\n");
    let flow = ProjectFlow::from_source(&structured).expect("it is valid");
    let mut project = Project::open_flow(flow, json!({"workspace": "w"}));
    project.walk_to("execute");
    assert!(schema(&project, "executor").is_some());
    let wrong = source.replace("name = \"executor\"\n", "name = \"executor\"\nactions = \"clever\"\n");
    let errors = FlowDefinition::parse(&wrong).expect_err("it is wrong").errors;
    let message = errors[0].to_string();
    assert!(message.contains("clever") && message.contains("`structured`"), "{message}");
}

#[test]
fn tool_call_in_the_text_runs_if_the_agent_may_make_it() {
    for text in [
        r#"{"name": "read_file", "arguments": {"path": "main.rs"}}"#,
        "I will look first.\n```json\n{\"tool\": \"read_file\", \"parameters\": {\"path\": \"main.rs\"}}\n```",
        r#"<tool_call>{"function": {"name": "read_file", "arguments": "{\"path\": \"main.rs\"}"}}</tool_call>"#,
    ] {
        let mut project = Project::in_phase("execute");
        project.answer("executor", text);
        let run = agent_runs(&project).pop().unwrap_or_else(|| panic!("it runs: {text}"));
        assert_eq!((run.tool.as_str(), &run.arguments), ("read_file", &json!({"path": "main.rs"})));
        finish_last_run(&mut project, json!({"path": "main.rs"}));
        let prompt = project.prompt("executor");
        assert!(prompt.contains("Your action `read_file` was carried out"), "{prompt}");
        assert!(!project.offered_tools("executor").is_empty(), "it still has tool calls");
    }
}

#[test]
fn tool_call_in_the_text_does_not_run_in_a_phase_without_the_tool() {
    let mut project = Project::in_phase("plan");
    project.answer("planner", r#"{"name": "write_file", "arguments": {"path": "a", "content": "b"}}"#);
    assert_eq!(agent_runs(&project).len(), 0);
    assert!(project.prompt("planner").contains("you have no tool `write_file` in this phase"));
    project.answer("planner", r#"{"name": "read_file", "arguments": {"lines_max": 3}}"#);
    assert_eq!(agent_runs(&project).len(), 0, "its arguments are wrong");
}

#[test]
fn tool_call_in_an_answer_is_never_shown_to_the_user() {
    let mut project = Project::in_phase("chat");
    let call = r#"{"name": "write_file", "arguments": {"path": "a", "content": "b"}}"#;
    project.answer("project-manager", call);
    assert!(project.prompt("project-manager").contains("Answer the user in plain words"));
    project.answer("project-manager", &format!("I will write it.\n{call}"));
    assert_eq!(project.session.last_reply(), "I will write it.");
    let mut project = Project::in_phase("chat");
    project.answer("project-manager", call).answer("project-manager", call);
    assert_eq!(project.session.last_reply(), "I could not give a usable answer. Please ask again in other words.");
    assert!(project.is_waiting_for_user());
}

#[test]
fn structured_run_with_an_unknown_outcome_is_told_to_the_agent() {
    let mut project = structured_execute();
    project.answer("executor", r#"{"action": "run_command", "command": "make"}"#);
    project.session.crash_and_recover();
    let unknown = |event: &Event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Unknown, .. });
    assert!(project.session.journal().iter().any(|recorded| unknown(&recorded.event)));
    assert!(project.prompt("executor").contains("it may or may not have taken effect"));
}
