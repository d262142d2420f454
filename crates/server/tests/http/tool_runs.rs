//! Tool runs over HTTP: approval, typed results and progress.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Method;
use segue_core::event::Event;
use segue_core::flow::{FlowToolApprovalPolicy, FlowToolDeclaration};
use segue_core::ids::{Seq, SessionId};
use segue_core::prompt::ModelToolSpec;
use segue_core::tool::{ToolArtifact, ToolArtifactKind, ToolResult};
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, SessionUpdate};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::test_server::{SseReader, TestServer};

const SCENARIO: &str = r#"
[[reply]]
contains = "write it"
times = 1
tool_calls = [{ name = "write", arguments = { path = "a.txt" } }]

[default]
text = "After: {{last}}"
"#;

/// Reports its progress, and returns when it is notified.
#[derive(Default)]
struct WriteTool {
    may_return: Notify,
}

#[async_trait]
impl Tool for WriteTool {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        context.progress.report("half of it");
        self.may_return.notified().await;
        let artifact = ToolArtifact {
            kind: ToolArtifactKind::Diff,
            name: "a.txt".to_owned(),
            media_type: "text/x-diff".to_owned(),
            text: "+new".to_owned(),
        };
        ToolResult {
            value: Some(json!({"wrote": request.opened.arguments})),
            artifacts: vec![artifact],
            ..ToolResult::done("written")
        }
    }
}

/// Starts a server whose flow has a tool that needs approval, and sends a message that makes the model request it.
async fn server_with_held_run() -> (TestServer, Arc<WriteTool>) {
    let spec =
        ModelToolSpec { name: "write".into(), description: "writes".into(), parameters: json!({"type": "object"}) };
    let write =
        FlowToolDeclaration { approval: FlowToolApprovalPolicy::Required, ..FlowToolDeclaration::for_host(spec) };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("write")).with_tool(write);
    let flow = Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    let model: ScriptedModel = SCENARIO.parse().expect("a sound scenario");
    let (disk, tool) = (InMemoryStoreDisk::new(), Arc::new(WriteTool::default()));
    let models = ModelRegistry::from_single_model(Arc::new(model));
    let config = EngineConfig {
        tools: ToolRegistry::default().with_tool("write", tool.clone()),
        ..EngineConfig::new(Arc::new(InMemoryStore::open(&disk)), vec![flow], models, "scripted")
    };
    let engine = Engine::start(config).await.expect("it starts");
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let server = TestServer::with_engine(engine, &disk, folder, |_| {}).await;
    server.open_session("fox", "puppet").await;
    let message = json!({"text": "write it", "wait": false});
    server.post("/v1/sessions/fox/messages", message).await.expect_json(202);
    wait_for(&server, |event| matches!(event, Event::ToolRunHeld { .. })).await;
    (server, tool)
}

async fn wait_for(server: &TestServer, is_awaited: impl Fn(&Event) -> bool) {
    let session = SessionId::from("fox");
    let mut subscription = server.engine.subscribe(&session, Seq(0)).await.expect("it exists");
    loop {
        match subscription.next_update().await.expect("it can be read") {
            SessionUpdate::Event(event) if is_awaited(&event.event) => return,
            SessionUpdate::Event(_) | SessionUpdate::TextDelta { .. } | SessionUpdate::ToolProgress { .. } => {}
        }
    }
}

async fn first_tool_run(server: &TestServer) -> Value {
    server.get("/v1/sessions/fox/turns/t1").await.expect_json(200)["tool_runs"][0].clone()
}

#[tokio::test]
async fn held_run_is_listed_approved_and_shown_with_its_result() {
    let (server, tool) = server_with_held_run().await;
    let held = server.get("/v1/sessions/fox").await.expect_json(200)["held_tool_runs"].clone();
    assert_eq!(held.as_array().map(Vec::len), Some(1), "{held}");
    for (field, expected) in [
        ("run", json!("x1")),
        ("reason", json!("approval")),
        ("tool", json!("write")),
        ("arguments", json!({"path": "a.txt"})),
        ("role", json!("speaker")),
        ("call", json!("c1")),
    ] {
        assert_eq!(held[0][field], expected, "{field} of {held}");
    }
    assert_eq!(first_tool_run(&server).await["held"], "approval");
    let path = "/v1/sessions/fox/tool-runs/x1";
    let list = json!({"arguments": [1]});
    assert_eq!(server.post(&format!("{path}/approve"), list).await.problem_code(400), "bad-arguments");
    assert_eq!(server.post(&format!("{path}/resolve"), json!({"action": "fail"})).await.problem_code(409), "not-held");
    let edited = json!({"arguments": {"path": "b.txt"}, "remember": true});
    let approved = server.post(&format!("{path}/approve"), edited).await.expect_json(200);
    assert_eq!(approved["held_tool_runs"], json!([]));
    assert_eq!(server.post(&format!("{path}/deny"), json!({})).await.problem_code(409), "not-held");

    let request = server.request(Method::GET, "/v1/sessions/fox/events");
    let streamed = SseReader::open(request).await.read_until("tool_progress").await;
    let progress = &streamed.last().expect("it was read").data;
    assert_eq!(*progress, json!({"run": "x1", "text": "half of it"}));

    tool.may_return.notify_one();
    wait_for(&server, |event| matches!(event, Event::TurnEnded { .. })).await;
    let run = first_tool_run(&server).await;
    for (field, expected) in [
        ("held", Value::Null),
        ("outcome", json!("done")),
        ("arguments", json!({"path": "b.txt"})),
        ("requested_arguments", json!({"path": "a.txt"})),
        ("value", json!({"wrote": {"path": "b.txt"}})),
        ("artifacts", json!([{"kind": "diff", "name": "a.txt", "media_type": "text/x-diff", "text": "+new"}])),
    ] {
        assert_eq!(run[field], expected, "{field} of {run}");
    }
}

#[tokio::test]
async fn denied_run_tells_the_model_why() {
    let (server, _tool) = server_with_held_run().await;
    let deny = json!({"reason": "not today"});
    server.post("/v1/sessions/fox/tool-runs/x1/deny", deny).await.expect_json(200);
    wait_for(&server, |event| matches!(event, Event::TurnEnded { .. })).await;
    let turn = server.get("/v1/sessions/fox/turns/t1").await.expect_json(200);
    let run = &turn["tool_runs"][0];
    assert_eq!(
        (&run["outcome"], &run["text"]),
        (&json!("refused"), &json!("a person denied this tool call: not today"))
    );
}
