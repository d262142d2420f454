//! The workspace of a conversation: a folder with the files that the conversation describes, and real tools on it. The
//! folder exists for this conversation only. What tools report does not depend on where the folder is or how fast the
//! machine is, so that a recording can be replayed elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use async_trait::async_trait;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_eval::workspace_fixture::EvalWorkspaceFixture;
use segue_flows::team::repository_tools::RepositoryTool;
use segue_flows::workspace_tools::WorkspaceTool;
use segue_tools::{CommandSupervisorProgram, WorkspaceConfig, WorkspaceRegistry, WorkspaceToolHost};
use serde_json::Value;
use tempfile::TempDir;

/// What models read instead of the path of the folder.
const SHOWN_ROOT: &str = "/evaluation";
/// The time of the first commit, so that its name is always the same.
const FIRST_COMMIT_DATE: &str = "2026-01-12T12:00:00+00:00";

/// The folder of a conversation.
pub(super) struct EvalWorkspace {
    /// The folder with the files and with the state of the tools.
    root: PathBuf,
    name: String,
    fixture: EvalWorkspaceFixture,
    /// Removes the folder when it is dropped, unless it is kept.
    _temporary: Option<TempDir>,
}

impl EvalWorkspace {
    /// Creates the folder of a session, below `kept` if it is to be kept.
    pub(super) fn create(fixture: &EvalWorkspaceFixture, name: &str, kept: Option<&Path>) -> anyhow::Result<Self> {
        let failed = || format!("the workspace of `{name}` could not be created");
        let temporary = match kept {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("segue-eval-").tempdir().with_context(failed)?),
        };
        let root = match (&temporary, kept) {
            (Some(folder), _) => folder.path().to_owned(),
            (None, kept) => kept.unwrap_or(Path::new(".")).join(name),
        };
        std::fs::create_dir_all(&root).with_context(failed)?;
        let root = root.canonicalize().with_context(failed)?;
        let created = Self { root, name: name.to_owned(), fixture: fixture.clone(), _temporary: temporary };
        created.write_files().with_context(failed)?;
        if fixture.git {
            created.create_repository().with_context(failed)?;
        }
        Ok(created)
    }

    fn folder(&self) -> PathBuf {
        self.root.join("files")
    }

    fn write_files(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.folder())?;
        for (path, content) in &self.fixture.files {
            // The paths were checked: none leads out of the folder.
            let file = self.folder().join(path);
            file.parent().map(std::fs::create_dir_all).transpose().with_context(|| path.clone())?;
            std::fs::write(&file, content).with_context(|| path.clone())?;
        }
        Ok(())
    }

    fn create_repository(&self) -> anyhow::Result<()> {
        self.git(&["init", "--quiet", "--template=", "--initial-branch", "main"])?;
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--no-verify", "--message", "the beginning"])?;
        Ok(())
    }

    /// Runs git in the folder, and returns its output.
    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(self.folder())
            .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false"])
            .args(["-c", "user.name=Segue", "-c", "user.email=segue@localhost"])
            .args(arguments)
            .env("GIT_AUTHOR_DATE", FIRST_COMMIT_DATE)
            .env("GIT_COMMITTER_DATE", FIRST_COMMIT_DATE)
            .stdin(Stdio::null());
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"] {
            command.env_remove(variable);
        }
        let output = command.output().context("git could not be started")?;
        if !output.status.success() {
            bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the names of all references of the repository; none if the folder is not a repository.
    pub(super) fn git_references(&self) -> anyhow::Result<Vec<String>> {
        if !self.fixture.git {
            return Ok(Vec::new());
        }
        let listed = self.git(&["for-each-ref", "--format=%(refname)"])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Adds the tools of the workspace.
    pub(super) fn add_tools(&self, registry: ToolRegistry) -> ToolRegistry {
        let config = WorkspaceConfig {
            folder: self.folder(),
            checks: self.fixture.checks.clone(),
            commands: self.fixture.commands.clone(),
            ..WorkspaceConfig::default()
        };
        let workspaces = WorkspaceRegistry::default().with_workspace(self.name.as_str(), config);
        let host =
            WorkspaceToolHost::new(&self.root.join("state"), workspaces, CommandSupervisorProgram::this_program());
        let root = self.root.to_string_lossy().into_owned();
        let tool: Arc<dyn Tool> = Arc::new(PathMaskingWorkspaceTool { host: host.without_durations(), root });
        let names = WorkspaceTool::ALL.into_iter().map(WorkspaceTool::name);
        let names = names.chain(RepositoryTool::ALL.into_iter().map(RepositoryTool::name));
        names.fold(registry, |registry, name| registry.with_tool(name, tool.clone()))
    }
}

/// The workspace tools, with another path in place of the folder's in all results.
struct PathMaskingWorkspaceTool {
    host: WorkspaceToolHost,
    root: String,
}

#[async_trait]
impl Tool for PathMaskingWorkspaceTool {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        let mut result = self.host.run(request, context).await;
        result.text = result.text.replace(&self.root, SHOWN_ROOT);
        if let Some(value) = &mut result.value {
            replace_in_texts(value, &self.root, SHOWN_ROOT);
        }
        result
    }
}

fn replace_in_texts(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in_texts(item, from, to)),
        Value::Object(members) => members.values_mut().for_each(|member| replace_in_texts(member, from, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
