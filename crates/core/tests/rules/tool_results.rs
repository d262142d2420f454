//! Typed results of tools: text for the model, a value for the flow, and artifacts.

use segue_core::body::TextRef;
use segue_core::decide::SessionInput;
use segue_core::event::Event;
use segue_core::flow::{FlowToolDeclaration, ToolRunnerKind};
use segue_core::ids::ToolRunId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::scope::Scope;
use segue_core::tool::{ToolArtifact, ToolArtifactKind, ToolResult};
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

use super::{events, refused_steps, tool};

fn session_with_open_run(declaration: FlowToolDeclaration) -> SessionHarness {
    let role = ClosureFlow::test_role("speaker", Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(role).with_tool(declaration);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
    harness
}

fn diff(name: &str, text: String) -> ToolArtifact {
    ToolArtifact { kind: ToolArtifactKind::Diff, name: name.to_owned(), media_type: "text/x-diff".to_owned(), text }
}

fn finish(harness: &mut SessionHarness, result: ToolResult) -> (TextRef, Option<Value>, Vec<ToolArtifact<TextRef>>) {
    harness.apply_input(SessionInput::ToolResult { run: ToolRunId(1), result });
    let ended = events(harness, |event| match event {
        Event::ToolRunEnded { text, value, artifacts, .. } => Some((*text, value.clone(), artifacts.clone())),
        _ => None,
    });
    ended.into_iter().next().expect("the run has ended")
}

#[test]
fn value_and_artifacts_are_recorded_but_only_the_text_is_sent_to_the_model() {
    let mut harness = session_with_open_run(tool("look", ToolRunnerKind::Host));
    let result = ToolResult {
        value: Some(json!({"changed": 1})),
        artifacts: vec![diff("a.txt", "-one\n+two\n".to_owned())],
        ..ToolResult::done("one file changed")
    };
    let (_, value, artifacts) = finish(&mut harness, result);
    assert_eq!(value, Some(json!({"changed": 1})));
    assert_eq!((artifacts.len(), artifacts[0].name.as_str()), (1, "a.txt"));
    assert_eq!(&*harness.stored_text(artifacts[0].text.body), "-one\n+two\n");
    assert!(harness.prompt_lines("speaker").ends_with("Tool: one file changed\n"));
    let referenced = events(&harness, |event| match event {
        Event::ToolRunEnded { .. } => Some(event.referenced_bodies().len()),
        _ => None,
    });
    assert_eq!(referenced, [2], "an export contains the artifact");
}

#[test]
fn value_and_artifacts_have_limits() {
    let mut harness = session_with_open_run(tool("look", ToolRunnerKind::Host));
    let long = "x".repeat(SESSION_LIMITS.tool_artifact_bytes_max + 1);
    let mut artifacts = vec![diff("a.txt", long.clone())];
    artifacts.resize(SESSION_LIMITS.tool_artifacts_max + 1, diff("b.txt", String::new()));
    let value = Some(json!("x".repeat(SESSION_LIMITS.tool_value_bytes_max)));
    let (_, value, artifacts) = finish(&mut harness, ToolResult { value, artifacts, ..ToolResult::done("done") });
    assert_eq!((value, artifacts.len()), (None, SESSION_LIMITS.tool_artifacts_max));
    let kept = harness.stored_text(artifacts[0].text.body);
    assert!(kept.len() < long.len() + 64 && kept.starts_with("xx") && !kept.ends_with('x'), "cut and marked");
    assert_eq!(refused_steps(&harness).len(), 2, "{:?}", refused_steps(&harness));
}

#[test]
fn text_is_cut_at_the_limit_of_the_tool() {
    let declaration = FlowToolDeclaration { output_bytes_max: 10, ..tool("look", ToolRunnerKind::Host) };
    let mut harness = session_with_open_run(declaration);
    let (text, ..) = finish(&mut harness, ToolResult::done("0123456789abcdef"));
    let kept = harness.stored_text(text.body);
    assert!(kept.starts_with("0123456789") && !kept.contains('a'), "{kept}");
}

#[test]
fn limits_of_a_tool_have_limits() {
    let with = |declaration| {
        ClosureFlow::spec_with_role(ClosureFlow::test_role("speaker", Scope::per_session())).with_tool(declaration)
    };
    let errors =
        with(FlowToolDeclaration { run_ms_max: 0, output_bytes_max: usize::MAX, ..tool("look", ToolRunnerKind::Host) })
            .validation_errors();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(with(tool("look", ToolRunnerKind::Host)).validation_errors().is_empty());
}
