//! Two sessions of the project flow in one workspace: one at a time works in it, in the order in which they asked.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::event::Event;
use segue_core::ids::SessionId;
use segue_core::prompt::ToolCall;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, SessionOptions};
use segue_flows::project::ProjectFlow;
use segue_flows::workspace::WorkspaceFlow;
use segue_flows::workspace_tools::WorkspaceTool;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::{Value, json};

use crate::harness::{ReceivedCall, ReceivedCalls, advance_ms, engine_config, load_state, read_events};

/// A workspace whose content never changes. Its check passes.
struct StillWorkspace;

#[async_trait]
impl Tool for StillWorkspace {
    async fn run(&self, request: ToolInvocation, _context: ToolRunContext) -> ToolResult {
        let value = match request.opened.tool.as_str() {
            "workspace_status" => json!({
                "workspace": "w", "content_digest": "d", "files": [], "files_total": 0, "changes": [],
                "changes_total": 0, "checks": ["make test"], "commands": [], "agents_md": null,
            }),
            "checkpoint_create" => json!({"checkpoint": "d", "files": 0, "bytes": 0}),
            "run_checks" => json!({
                "content_digest": "d", "content_digest_after": "d", "passed": true, "changes": [],
                "commands": [{"command": "make test", "end": {"kind": "exited", "code": 0}, "duration_ms": 1,
                    "output_bytes": 0, "output_tail": ""}],
            }),
            _ => json!({"changes": [{"path": "a", "kind": "modified", "lines_added": 1, "lines_removed": 0}]}),
        };
        ToolResult { text: "done".to_owned(), value: Some(value), ..ToolResult::default() }
    }
}

async fn project_engine() -> (Engine, ReceivedCalls) {
    let (config, calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), Arc::new(ProjectFlow::new()));
    let flows = [config.flows, vec![Arc::new(WorkspaceFlow::new())]].concat();
    let host: Arc<dyn Tool> = Arc::new(StillWorkspace);
    let register = |tools: ToolRegistry, tool: WorkspaceTool| tools.with_tool(tool.name(), Arc::clone(&host));
    let tools = WorkspaceTool::ALL.into_iter().fold(ToolRegistry::default(), register);
    let engine = Engine::start(EngineConfig { flows, tools, ..config }).await.expect("the engine starts");
    (engine, calls)
}

async fn start_work(engine: &Engine, calls: &mut ReceivedCalls, name: &str) -> SessionId {
    let settings = json!({"workspace": "w"});
    let options = SessionOptions { session: Some(name.into()), settings, ..SessionOptions::default() };
    let session = engine.open_session(&"project".into(), options).await.expect("a session opens");
    engine.send_message(&session, "build it".into()).await.expect("accepted");
    let routing = calls.next().await;
    assert_eq!((routing.metadata.session.as_str(), routing.metadata.role.as_str()), (name, "router"));
    routing.answer(r#"{"phase": "execute", "agents": ["executor"], "reason": "it is clear"}"#);
    session
}

fn holds_claim(state: &segue_core::session::SessionState) -> bool {
    state.session.claim.as_ref().is_some_and(|claim| claim.is_held)
}

async fn next_of(calls: &mut ReceivedCalls, session: &str, role: &str) -> ReceivedCall {
    let call = calls.next().await;
    assert_eq!((call.metadata.session.as_str(), call.metadata.role.as_str()), (session, role));
    call
}

fn call_tool(call: ReceivedCall, tool: &str, arguments: Value) {
    call.call_tool_with(ToolCall { id: "w1".to_owned(), name: tool.into(), arguments });
}

#[tokio::test(start_paused = true)]
async fn second_session_waits_until_the_first_has_left_the_phases_that_change_the_workspace() {
    let (engine, mut calls) = project_engine().await;
    let one = start_work(&engine, &mut calls, "one").await;
    let work = next_of(&mut calls, "one", "executor").await;
    let two = start_work(&engine, &mut calls, "two").await;
    advance_ms(5_000).await;
    calls.expect_none_yet();
    assert!(holds_claim(&load_state(&engine, &one).await) && !holds_claim(&load_state(&engine, &two).await));
    // Its user is told for whom it waits.
    let waits = read_events(&engine, &two).await.into_iter().any(|event| {
        matches!(event, Event::FlowFactRecorded { kind, value } if kind == "claim_awaited" && value["holder"] == "one")
    });
    assert!(waits);
    call_tool(work, "write_file", json!({"path": "a", "content": "b"}));
    call_tool(next_of(&mut calls, "one", "executor").await, "complete", json!({"summary": "wrote it"}));
    let routing = next_of(&mut calls, "one", "router").await;
    routing.answer(r#"{"phase": "verification", "agents": ["executor"], "reason": "it is next"}"#);
    let verification = next_of(&mut calls, "one", "executor-verification").await;
    assert!(!holds_claim(&load_state(&engine, &two).await), "the first session keeps the claim between phases");
    call_tool(verification, "complete", json!({"summary": "it works"}));
    let routing = next_of(&mut calls, "one", "router").await;
    // Back to the user: nothing is changed meanwhile, so the other session may work.
    routing.answer(r#"{"phase": "chat", "agents": ["project-manager"], "reason": "the user is asked"}"#);
    let mut roles = Vec::new();
    for _ in 0..2 {
        let call = calls.next().await;
        roles.push(format!("{} {}", call.metadata.session, call.metadata.role));
        std::mem::forget(call);
    }
    roles.sort();
    assert_eq!(roles, ["one project-manager", "two executor"]);
    assert!(!holds_claim(&load_state(&engine, &one).await) && holds_claim(&load_state(&engine, &two).await));
}

#[tokio::test(start_paused = true)]
async fn session_that_waits_too_long_asks_its_user() {
    let (engine, mut calls) = project_engine().await;
    start_work(&engine, &mut calls, "one").await;
    let work = next_of(&mut calls, "one", "executor").await;
    let two = start_work(&engine, &mut calls, "two").await;
    advance_ms(31 * 60 * 1_000).await;
    let state = load_state(&engine, &two).await;
    assert!(state.session.current_turn.is_none() && state.session.claim.is_none());
    drop(work);
}
