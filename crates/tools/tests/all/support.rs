//! A workspace in a temporary folder, and runs of tools in it.

use std::path::{Path, PathBuf};

use segue_core::event::ToolRunOpened;
use segue_core::ids::{CallId, LeaseEpoch, SessionId, ToolRunId, UnixMillis};
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::workspace_tools::{WorkspaceTool, WorkspaceToolRequest};
use segue_tools::{CommandSupervisorProgram, WorkspaceConfig, WorkspaceRegistry, WorkspaceToolHost};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) struct TestWorkspace {
    pub host: WorkspaceToolHost,
    pub files: tempfile::TempDir,
    pub state: tempfile::TempDir,
    pub config: WorkspaceConfig,
}

/// Who runs a tool.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub session: String,
    pub agent: Option<String>,
    pub copy: Option<String>,
    pub epoch: u64,
    pub is_model: bool,
}

pub(crate) fn agent(name: &str) -> Caller {
    Caller { session: "project".into(), agent: Some(name.into()), copy: None, epoch: 1, is_model: true }
}

pub(crate) fn flow() -> Caller {
    Caller { session: "project".into(), agent: None, copy: None, epoch: 1, is_model: false }
}

pub(crate) fn supervisor_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_segue-supervisor"))
}

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        Self::with_config(WorkspaceConfig { commands: vec!["*".into()], ..WorkspaceConfig::default() })
    }

    /// Creates a workspace in a new folder, with everything else as given.
    pub(crate) fn with_config(config: WorkspaceConfig) -> Self {
        let files = tempfile::tempdir().expect("a temporary folder");
        let state = tempfile::tempdir().expect("a temporary folder");
        let config = WorkspaceConfig { folder: files.path().to_owned(), ..config };
        let host = open_host(state.path(), &config);
        Self { host, files, state, config }
    }

    /// Opens the host again, as after a restart of the program.
    pub(crate) fn restart(&mut self) {
        self.host = open_host(self.state.path(), &self.config);
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.files.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be created");
        std::fs::write(path, content).expect("the file can be written");
    }

    pub(crate) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn run(&self, caller: &Caller, tool: WorkspaceTool, arguments: Value) -> ToolResult {
        self.run_named(caller, tool.name(), arguments).await
    }

    pub(crate) async fn run_named(&self, caller: &Caller, tool: &str, arguments: Value) -> ToolResult {
        let context = ToolRunContext { lease_epoch: LeaseEpoch(caller.epoch), ..ToolRunContext::for_tests() };
        self.host.run(invocation(caller, tool, arguments), context).await
    }

    /// Runs a tool as a flow does, and returns the structured result.
    pub(crate) async fn run_for_flow<T: DeserializeOwned>(&self, request: WorkspaceToolRequest) -> T {
        self.run_as(&flow(), request).await
    }

    pub(crate) async fn run_as<T: DeserializeOwned>(&self, caller: &Caller, request: WorkspaceToolRequest) -> T {
        let result = self.run_named(caller, request.tool().name(), request.to_arguments()).await;
        assert!(!result.failed, "{}", result.text);
        let value = result.value.unwrap_or_else(|| panic!("no value: {}", result.text));
        serde_json::from_value(value).expect("the value has the declared type")
    }

    /// Runs a tool that must succeed, and returns its text.
    pub(crate) async fn ok(&self, caller: &Caller, tool: WorkspaceTool, arguments: Value) -> String {
        let result = self.run(caller, tool, arguments).await;
        assert!(!result.failed, "{}", result.text);
        result.text
    }

    /// Runs a tool that must fail, and returns its text.
    pub(crate) async fn refused(&self, caller: &Caller, tool: WorkspaceTool, arguments: Value) -> String {
        let result = self.run(caller, tool, arguments).await;
        assert!(result.failed, "{}", result.text);
        result.text
    }
}

fn open_host(state: &Path, config: &WorkspaceConfig) -> WorkspaceToolHost {
    let workspaces = WorkspaceRegistry::default().with_workspace("shop", config.clone());
    WorkspaceToolHost::new(state, workspaces, CommandSupervisorProgram::at_path(supervisor_program()))
}

pub(crate) fn invocation(caller: &Caller, tool: &str, arguments: Value) -> ToolInvocation {
    ToolInvocation {
        session: SessionId::from(caller.session.as_str()),
        session_opened_at: UnixMillis(7),
        settings: json!({"workspace": "shop", "copy": caller.copy}),
        opened: ToolRunOpened {
            run: ToolRunId(1),
            turn: None,
            tool: tool.into(),
            arguments,
            requested_by: caller.is_model.then(|| (CallId(1), "1".to_owned())),
            agent: caller.agent.as_deref().map(Into::into),
            phase: None,
        },
    }
}
