//! Coders whose models write tool calls into their text, or say that they are done without a change.

use segue_core::tool::ToolResult;
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolResult};
use serde_json::{Value, json};

use crate::support::{APPROVED, TestTeam, spec, story_json};

fn result(text: &str, result: RepositoryToolResult) -> ToolResult {
    ToolResult { text: text.to_owned(), value: serde_json::to_value(result).ok(), ..ToolResult::default() }
}

/// A team whose only coder codes the story `a`, in a repository whose tests pass or fail.
fn coding(base_is_green: bool) -> TestTeam {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1}));
    let inspected = RepositoryToolResult {
        base: "base".to_owned(),
        integration: "segue/tea-timer".to_owned(),
        passed: Some(base_is_green),
        ..RepositoryToolResult::default()
    };
    team.surprises.push((RepositoryTool::Inspect, String::new(), result("", inspected)));
    team.begin(&[story_json("a", &[])]);
    team.answer_coder("coder-1", "the plan").answer_architect("coder-1", APPROVED);
    team
}

fn commit_nothing(team: &mut TestTeam) {
    let nothing = RepositoryToolResult { commit: "base".to_owned(), ..RepositoryToolResult::default() };
    team.surprises.push((RepositoryTool::Commit, "a".to_owned(), result("", nothing)));
}

#[test]
fn nothing_is_done_while_the_tests_fail() {
    let mut team = coding(false);
    commit_nothing(&mut team);
    let red =
        RepositoryToolResult { commit: "base".to_owned(), passed: Some(false), ..RepositoryToolResult::default() };
    team.surprises.push((RepositoryTool::Test, "a".to_owned(), result("FAIL: there is no file a.txt", red)));
    team.answer_coder("coder-1", "Everything is there already.");
    assert_eq!(team.phase("coder-1"), "CODING", "{}", team.describe());
    let prompt = team.harness.prompt_lines("coder");
    assert!(prompt.contains("The tests failed.") && prompt.contains("there is no file a.txt"), "{prompt}");
    assert_eq!(team.merged, Vec::<String>::new());
}

#[test]
fn with_green_tests_the_architect_decides_about_a_story_without_a_change() {
    let mut team = coding(true);
    commit_nothing(&mut team);
    team.answer_coder("coder-1", "Everything is there already.");
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW", "{}", team.describe());
}

fn write_call() -> Value {
    json!({"name": "write_file", "arguments": {"path": "a.txt", "content": "tea"}})
}

#[test]
fn tool_call_in_a_text_is_run_and_its_result_is_the_next_task() {
    let mut team = coding(true);
    team.answer_coder("coder-1", &format!("I write the file:\n```json\n{}\n```", write_call()));
    let run = team.harness.session().open_tool_runs.values().next().expect("it is run").clone();
    assert_eq!((run.tool.as_str(), run.arguments["content"].as_str()), ("write_file", Some("tea")));
    team.end_model_tool("write_file", "created a.txt");
    let prompt = team.harness.prompt_lines("coder");
    assert!(
        prompt.contains("Your tool call `write_file` was carried out.") && prompt.contains("created a.txt"),
        "{prompt}"
    );
    assert_eq!(team.phase("coder-1"), "CODING");
    team.answer_coder("coder-1", "I wrote a.txt.");
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW", "{}", team.describe());
}

#[test]
fn tool_call_in_a_text_that_is_not_possible_is_explained() {
    let mut team = coding(true);
    team.answer_coder("coder-1", r#"{"name": "write_file", "arguments": {"path": "a.txt"}}"#);
    assert!(team.harness.session().open_tool_runs.is_empty(), "`content` is missing");
    let prompt = team.harness.prompt_lines("coder");
    assert!(prompt.contains("the tool call in your text was not run"), "{prompt}");
    assert_eq!(team.phase("coder-1"), "CODING", "the text is no account of the work");
    let mut planning = TestTeam::start(1, &[story_json("a", &[])]);
    planning.answer_coder("coder-1", &write_call().to_string());
    assert!(planning.harness.session().open_tool_runs.is_empty(), "a coder that plans only reads");
    assert_eq!(planning.phase("coder-1"), "PLANNING");
}
