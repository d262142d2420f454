//! A project whose tests never end.

use std::path::PathBuf;

use segue_core::event::ToolRunOpened;
use segue_core::ids::{SessionId, ToolRunId, UnixMillis};
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolRequest, RepositoryToolResult};
use segue_tools::{CommandSupervisorProgram, WorkspaceConfig, WorkspaceRegistry, WorkspaceToolHost};
use serde_json::json;

use crate::support::UserRepository;

/// The time that a run has in all. The host reserves five seconds of it for its own work after the command.
const RUN_MS_MAX: u64 = 6_000;

async fn run(host: &WorkspaceToolHost, tool: RepositoryTool, request: RepositoryToolRequest) -> ToolResult {
    let invocation = ToolInvocation {
        session: SessionId::from("tea"),
        session_opened_at: UnixMillis(7),
        settings: json!({"workspace": "app"}),
        opened: ToolRunOpened {
            run: ToolRunId(1),
            turn: None,
            tool: tool.name().into(),
            arguments: serde_json::to_value(request).expect("it is JSON"),
            requested_by: None,
            agent: Some("coder-1".into()),
            phase: None,
        },
    };
    host.run(invocation, ToolRunContext { run_ms_max: RUN_MS_MAX, ..ToolRunContext::for_tests() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn test_command_that_hangs_is_stopped_and_counts_as_failed() {
    let repository = UserRepository::new(&[("test.sh", "echo begun\nsleep 1000\n")]);
    let config = WorkspaceConfig {
        folder: repository.checkout(),
        checks: vec!["sh test.sh".to_owned()],
        ..WorkspaceConfig::default()
    };
    let workspaces = WorkspaceRegistry::default().with_workspace("app", config);
    let supervisor = CommandSupervisorProgram::at_path(PathBuf::from(env!("CARGO_BIN_EXE_segue-supervisor")));
    let host = WorkspaceToolHost::new(&repository.state_folder(), workspaces, supervisor);
    let request = RepositoryToolRequest { spec: "tea".to_owned(), ..RepositoryToolRequest::default() };
    let found = run(&host, RepositoryTool::Inspect, request.clone()).await;
    assert!(!found.failed, "{}", found.text);
    let of_story = RepositoryToolRequest { story: "a".to_owned(), work: "a#1.1".to_owned(), ..request };
    let prepared = run(&host, RepositoryTool::Worktree, of_story.clone()).await;
    let value: RepositoryToolResult = serde_json::from_value(prepared.value.expect("a value")).expect("a result");
    let tested =
        run(&host, RepositoryTool::Test, RepositoryToolRequest { commit: Some(value.commit), ..of_story }).await;
    assert!(!tested.failed, "red tests are a result: {}", tested.text);
    assert!(tested.text.contains("stopped: it ran for too long") && tested.text.contains("begun"), "{}", tested.text);
    let value: RepositoryToolResult = serde_json::from_value(tested.value.expect("a value")).expect("a result");
    assert_eq!(value.passed, Some(false));
}
