//! The chat asks about tool runs that wait for approval.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::flow::{FlowToolApprovalPolicy, FlowToolDeclaration};
use segue_core::prompt::ModelToolSpec;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use super::*;

const SCENARIO: &str = r#"
[[reply]]
contains = "second job"
times = 1
tool_calls = [{ name = "write", arguments = { path = "b.txt" } }]

[[reply]]
contains = "first job"
times = 1
tool_calls = [{ name = "write", arguments = { path = "a.txt" } }]

[default]
text = "After: {{last}}"
"#;

struct WriteTool;

#[async_trait]
impl Tool for WriteTool {
    async fn run(&self, _: ToolInvocation, _: ToolRunContext) -> ToolResult {
        ToolResult::done("written")
    }
}

/// The screen after a conversation with a role whose tool needs approval.
async fn screen_after(lines: &str) -> String {
    let parameters = serde_json::json!({"type": "object"});
    let spec = ModelToolSpec { name: "write".into(), description: "writes".into(), parameters };
    let write =
        FlowToolDeclaration { approval: FlowToolApprovalPolicy::Required, ..FlowToolDeclaration::for_host(spec) };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("write")).with_tool(write);
    let flow = Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    let model: ScriptedModel = SCENARIO.parse().expect("a sound scenario");
    let config = EngineConfig {
        tools: ToolRegistry::default().with_tool("write", Arc::new(WriteTool)),
        ..EngineConfig::new(
            Arc::new(InMemoryStore::open(&InMemoryStoreDisk::new())),
            vec![flow],
            ModelRegistry::from_single_model(Arc::new(model)),
            "scripted",
        )
    };
    let engine = Engine::start(config).await.expect("it starts");
    let options = TerminalChatOptions { default_flow: "puppet".into(), ..options() };
    let backend = LocalOrRemoteEngine::Local(&engine);
    let session = open_or_resume_session(backend, &options).await.expect("it opens");
    let reader = InputReader::from_lines(std::io::Cursor::new(lines.to_owned()));
    let (terminal, screen) = TestTerminal::tall();
    let keyboard = (reader, TerminalModeGuard::capture(TerminalOrPipedOutput::Piped));
    chat_in_session(backend, &options, session, screen, keyboard).await.expect("the conversation succeeds");
    engine.shutdown().await;
    terminal.text()
}

#[tokio::test]
async fn chat_asks_before_a_held_tool_run() {
    let text = screen_after("first job\ny\n").await;
    let shown = "speaker wants to run `write` (x1) with {\n  \"path\": \"a.txt\"\n}";
    assert!(text.contains(shown) && text.contains("After: first job") && text.contains("write a.txt · ✓"), "{text}");
}

#[tokio::test]
async fn chat_denies_with_a_reason_and_asks_again_for_the_next_run() {
    let text = screen_after("first job\nn not a.txt\nsecond job\nperhaps\n").await;
    assert!(text.contains("write a.txt · ✗ refused") && text.contains("After: first job"), "{text}");
    assert!(text.contains("(x2)") && text.contains("(x2 keeps waiting; you are asked again"), "{text}");
}

#[tokio::test]
async fn chat_does_not_ask_again_for_a_tool_that_is_always_allowed() {
    let text = screen_after("first job\nalways\nsecond job\n").await;
    assert!(text.contains("After: first job") && text.contains("After: second job"), "{text}");
    assert!(!text.contains("(x2)"), "{text}");
}
