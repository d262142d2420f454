//! The host: the tools of the engine that work on workspaces.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolRequest, RepositoryToolResult};
use segue_flows::workspace_tools::{
    ChecksResult, RunChecksArguments, RunCommandArguments, RunCommandResult, WorkspaceCommandEnd, WorkspaceCommandRun,
    WorkspaceStatusArguments, WorkspaceStatusResult, WorkspaceTool, WorkspaceToolRequest,
};
use tokio::time::Instant;

use crate::checkpoint::{
    UnstoredFileContentSource, WorkspaceCheckpoint, create_checkpoint, describe_changes, diff_checkpoint,
    diff_manifests, listed_changes, restore_checkpoint, save_checkpoint,
};
use crate::command::{CommandLimits, CommandSupervisorProgram, WorkspaceCommandRunner};
use crate::command_line::WorkspaceCommandLine;
use crate::copies::{create_copy, merge_copy, open_agent_copy, remove_copy};
use crate::file_diff::{DiffedFileChange, diff_artifacts};
use crate::file_tools::{FileTools, result_with_value};
use crate::find_tools::{file_listing, list_files, search_files};
use crate::git::{TeamRepository, agent_worktree, build_test_result, repository_for, run_repository_tool};
use crate::limits::{AGENTS_MD_BYTES_MAX, CHECK_TAIL_BYTES_MAX, CHECKS_MAX, COMMAND_TAIL_BYTES_MAX};
use crate::scan::{FileManifest, FoundFile, scan_manifest};
use crate::state::{FileReadingAgentKey, WorkspaceStateDatabase};
use crate::workspace::{OpenWorkspace, WorkspaceRegistry};
use crate::workspace_path::WorkspacePath;

/// The file with instructions for agents.
const AGENTS_FILE: &str = "AGENTS.md";
/// Time of a run that is left for comparing files after the command.
const AFTERWORK_MS: u64 = 5_000;

/// The host of all workspace tools.
#[derive(Debug, Clone)]
pub struct WorkspaceToolHost {
    inner: Arc<WorkspaceToolHostInner>,
}

#[derive(Debug)]
struct WorkspaceToolHostInner {
    workspaces: WorkspaceRegistry,
    state_folder: PathBuf,
    /// Opened at first use.
    state: OnceLock<Result<Arc<WorkspaceStateDatabase>, String>>,
    supervisor: CommandSupervisorProgram,
    /// Whether models read how long a command ran.
    shows_durations: bool,
}

impl WorkspaceToolHostInner {
    fn state(&self) -> Result<Arc<WorkspaceStateDatabase>, String> {
        self.state.get_or_init(|| WorkspaceStateDatabase::open(&self.state_folder).map(Arc::new)).clone()
    }
}

impl WorkspaceToolHost {
    /// Creates a host. `state_folder` will contain checkpoints, copies and what agents have read; it is created at first use.
    #[must_use]
    pub fn new(state_folder: &Path, workspaces: WorkspaceRegistry, supervisor: CommandSupervisorProgram) -> Self {
        // Git runs in the folder of the repository, where a relative path would be another one.
        let state_folder = std::path::absolute(state_folder).unwrap_or_else(|_| state_folder.to_owned());
        let inner = WorkspaceToolHostInner {
            workspaces,
            state_folder,
            state: OnceLock::new(),
            supervisor,
            shows_durations: true,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the same host, whose texts for models do not say how long a command ran. So a recorded conversation can be
    /// replayed on a machine of another speed.
    #[must_use]
    pub fn without_durations(self) -> Self {
        let WorkspaceToolHostInner { workspaces, state_folder, supervisor, .. } = &*self.inner;
        let (workspaces, state_folder, supervisor) = (workspaces.clone(), state_folder.clone(), supervisor.clone());
        let inner = WorkspaceToolHostInner {
            workspaces,
            state_folder,
            state: OnceLock::new(),
            supervisor,
            shows_durations: false,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Adds all workspace tools to a registry.
    #[must_use]
    pub fn add_to(&self, registry: ToolRegistry) -> ToolRegistry {
        let host: Arc<dyn Tool> = Arc::new(self.clone());
        let names = WorkspaceTool::ALL.into_iter().map(WorkspaceTool::name);
        let names = names.chain(RepositoryTool::ALL.into_iter().map(RepositoryTool::name));
        names.fold(registry, |registry, name| registry.with_tool(name, host.clone()))
    }
}

#[async_trait]
impl Tool for WorkspaceToolHost {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        match self.run_request(request, &context).await {
            Ok(result) => result,
            Err(reason) => ToolResult::failed(reason),
        }
    }
}

impl WorkspaceToolHost {
    async fn run_request(&self, invocation: ToolInvocation, context: &ToolRunContext) -> Result<ToolResult, String> {
        let name = &invocation.opened.tool;
        if let Some(tool) = RepositoryTool::from_name(name.as_str()) {
            return self.run_repository_request(tool, invocation, context).await;
        }
        let tool =
            WorkspaceTool::from_name(name.as_str()).ok_or_else(|| format!("there is no workspace tool `{name}`"))?;
        let is_by_model = invocation.opened.requested_by.is_some();
        if is_by_model && !tool.is_for_models() {
            return Err(format!("`{name}` is not available to models"));
        }
        let request = WorkspaceToolRequest::parse(tool, &invocation.opened.arguments)?;
        let run = WorkspaceToolRun::open(&self.inner, invocation, context).await?.in_agent_worktree(tool)?;
        match request {
            WorkspaceToolRequest::RunCommand(arguments) => run.run_command(&arguments).await,
            WorkspaceToolRequest::RunChecks(arguments) => run.run_checks(&arguments).await,
            request => run.run_on_blocking_thread(move |run| run.run_file_tool(&request)).await,
        }
    }
}

impl WorkspaceToolHost {
    /// Runs a tool on the git repository of a workspace.
    async fn run_repository_request(
        &self,
        tool: RepositoryTool,
        invocation: ToolInvocation,
        context: &ToolRunContext,
    ) -> Result<ToolResult, String> {
        if invocation.opened.requested_by.is_some() {
            return Err(format!("`{}` is not available to models", tool.name()));
        }
        let request: RepositoryToolRequest = serde_json::from_value(invocation.opened.arguments.clone())
            .map_err(|error| format!("the arguments of `{}` are wrong: {error}", tool.name()))?;
        let agent = invocation.opened.agent.as_ref().map(|agent| agent.as_str().to_owned());
        let run = WorkspaceToolRun::open(&self.inner, invocation, context).await?;
        let repository =
            repository_for(&run.workspace.config.folder, &self.inner.state_folder, &run.invocation, &request)?;
        if tool == RepositoryTool::Test {
            return run.run_story_checks(&repository, &request).await;
        }
        if tool == RepositoryTool::Inspect && run.workspace.config.checks.is_empty() {
            return Err(
                "the workspace declares no `checks`; declare the command that runs the project's tests".to_owned()
            );
        }
        let (of_run, of_request) = (repository.clone(), request.clone());
        let result = run
            .run_on_blocking_thread(move |_| run_repository_tool(&of_run, tool, &of_request, agent.as_deref()))
            .await?;
        match tool {
            RepositoryTool::Inspect => run.run_base_checks(&repository, &request, result).await,
            RepositoryTool::Worktree if request.set_up => {
                run.set_up_story(&repository, &request).await?;
                Ok(result)
            }
            _ => Ok(result),
        }
    }
}

/// One run of a tool, with everything that it needs.
#[derive(Clone)]
struct WorkspaceToolRun {
    inner: Arc<WorkspaceToolHostInner>,
    state: Arc<WorkspaceStateDatabase>,
    invocation: Arc<ToolInvocation>,
    context: ToolRunContext,
    workspace: OpenWorkspace,
}

impl WorkspaceToolRun {
    async fn open(
        inner: &Arc<WorkspaceToolHostInner>,
        invocation: ToolInvocation,
        context: &ToolRunContext,
    ) -> Result<Self, String> {
        let (inner, invocation, context) = (inner.clone(), Arc::new(invocation), context.clone());
        spawn_blocking(move || {
            let state = inner.state()?;
            state.check_lease_epoch(&session_key(&invocation), context.lease_epoch)?;
            let workspace = inner.workspaces.open_for(&invocation, &state)?;
            let workspace = open_agent_copy(workspace, &state, &invocation)?;
            Ok(Self { inner, state, invocation, context, workspace })
        })
        .await
    }

    /// Runs work on files in a thread for it.
    async fn run_on_blocking_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let run = self.clone();
        spawn_blocking(move || {
            // The thread cannot be stopped, so a cancelled run must at least not begin.
            if run.context.cancellation.is_cancelled() {
                return Err("the run was cancelled".to_owned());
            }
            work(&run)
        })
        .await
    }

    fn state(&self) -> &WorkspaceStateDatabase {
        &self.state
    }

    /// Returns the run in the worktree of its agent, if the agent has one. A reviewer may only read it.
    fn in_agent_worktree(self, tool: WorkspaceTool) -> Result<Self, String> {
        let Some(worktree) = agent_worktree(&self.inner.state_folder, &self.invocation) else { return Ok(self) };
        if worktree.is_read_only && tool.may_change_files() {
            return Err(format!("`{}` may not be used while another agent's work is reviewed", tool.name()));
        }
        let workspace = self.workspace.clone().with_worktree(&worktree.folder)?;
        Ok(Self { workspace, ..self })
    }

    /// Runs the checks of the workspace in the worktree of a story, on exactly the commit that is asked for.
    async fn run_story_checks(
        mut self,
        repository: &TeamRepository,
        request: &RepositoryToolRequest,
    ) -> Result<ToolResult, String> {
        let commit = request.commit.clone().unwrap_or_default();
        let (repository, story, wanted) = (repository.clone(), request.story.clone(), commit.clone());
        let folder = self.run_on_blocking_thread(move |_| repository.check_tested_commit(&story, &wanted)).await?;
        self.workspace = self.workspace.with_worktree(&folder)?;
        let result = self.run_checks(&RunChecksArguments::default()).await?;
        let passed = result.value.as_ref().is_some_and(|value| value["passed"] == true);
        let value = serde_json::to_value(build_test_result(&commit, passed, &result.text)).ok();
        Ok(ToolResult { value, failed: false, ..result })
    }

    /// Prepares the worktree of a story with the workspace's own commands, once for each work item.
    async fn set_up_story(
        mut self,
        repository: &TeamRepository,
        request: &RepositoryToolRequest,
    ) -> Result<(), String> {
        let (of_story, of_request) = (repository.clone(), request.clone());
        if self.workspace.config.set_up.is_empty()
            || self.run_on_blocking_thread(move |_| Ok(of_story.is_set_up(&of_request))).await?
        {
            return Ok(());
        }
        self.workspace = self.workspace.with_worktree(&repository.worktree_folder(&request.story))?;
        self.run_set_up_commands().await?;
        let (of_story, of_request) = (repository.clone(), request.clone());
        self.run_on_blocking_thread(move |_| of_story.note_set_up(&of_request)).await
    }

    /// Runs the commands that prepare a worktree, in the folder of this run.
    async fn run_set_up_commands(&self) -> Result<(), String> {
        let deadline = self.command_deadline();
        for command in &self.workspace.config.set_up {
            let line = WorkspaceCommandLine::parse(command)?;
            let limits = CommandLimits { run_ms_max: ms_until(deadline), tail_bytes_max: CHECK_TAIL_BYTES_MAX };
            let run = self.run_with_command_permit(command, &line, limits).await?;
            if !run.has_passed() {
                return Err(format!("the set-up of the worktree failed\n{}", self.describe_run(&run)));
            }
        }
        Ok(())
    }

    /// Runs the checks on the base, before anything is changed: red tests of the base are not the fault of a story. If
    /// something is merged already, they have passed.
    async fn run_base_checks(
        mut self,
        repository: &TeamRepository,
        request: &RepositoryToolRequest,
        inspected: ToolResult,
    ) -> Result<ToolResult, String> {
        let value = inspected.value.clone().unwrap_or_default();
        let mut result: RepositoryToolResult = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let (of_base, base) = (repository.clone(), result.base.clone());
        let Some(folder) = self.run_on_blocking_thread(move |_| of_base.add_base_worktree(&base)).await? else {
            return Ok(inspected);
        };
        self.workspace = self.workspace.with_worktree(&folder)?;
        let is_set_up = if request.set_up { self.run_set_up_commands().await } else { Ok(()) };
        let tested = match is_set_up {
            Ok(()) => self.run_checks(&RunChecksArguments::default()).await,
            Err(why) => Err(why),
        };
        let of_base = repository.clone();
        self.run_on_blocking_thread(move |_| of_base.remove_base_worktree()).await?;
        let tested = tested?;
        result.passed = Some(tested.value.as_ref().is_some_and(|value| value["passed"] == true));
        if result.passed == Some(false) {
            result.warnings.push("the tests fail already, before anything was changed".to_owned());
        }
        Ok(ToolResult { value: serde_json::to_value(result).ok(), ..inspected })
    }

    fn run_file_tool(&self, request: &WorkspaceToolRequest) -> Result<ToolResult, String> {
        let (workspace, state) = (&self.workspace, self.state());
        let agent = self.invocation.opened.agent.as_ref().map(|agent| agent.as_str().to_owned()).unwrap_or_default();
        let reader =
            FileReadingAgentKey { session: session_key(&self.invocation), agent, place: workspace.name_with_copy() };
        let files = FileTools { workspace, state, reader };
        match request {
            WorkspaceToolRequest::ReadFile(arguments) => files.read_file(arguments),
            WorkspaceToolRequest::WriteFile(arguments) => files.write_file(arguments),
            WorkspaceToolRequest::EditFile(arguments) => files.edit_file(arguments),
            WorkspaceToolRequest::DeleteFile(arguments) => files.delete_file(arguments),
            WorkspaceToolRequest::MoveFile(arguments) => files.move_file(arguments),
            WorkspaceToolRequest::ListFiles(arguments) => list_files(workspace, arguments),
            WorkspaceToolRequest::SearchFiles(arguments) => search_files(workspace, arguments),
            WorkspaceToolRequest::Status(arguments) => self.describe_workspace(arguments),
            WorkspaceToolRequest::CreateCheckpoint(arguments) => create_checkpoint(workspace, state, arguments),
            WorkspaceToolRequest::RestoreCheckpoint(arguments) => restore_checkpoint(workspace, state, arguments),
            WorkspaceToolRequest::DiffCheckpoint(arguments) => diff_checkpoint(workspace, state, arguments),
            WorkspaceToolRequest::CreateCopy(arguments) => create_copy(workspace, state, &self.invocation, arguments),
            WorkspaceToolRequest::MergeCopy(arguments) => merge_copy(workspace, state, arguments),
            WorkspaceToolRequest::RemoveCopy(arguments) => remove_copy(workspace, state, arguments),
            WorkspaceToolRequest::RunCommand(_) | WorkspaceToolRequest::RunChecks(_) => {
                Err("commands are run elsewhere".to_owned())
            }
        }
    }

    fn describe_workspace(&self, arguments: &WorkspaceStatusArguments) -> Result<ToolResult, String> {
        let OpenWorkspace { name, copy, root, config, .. } = &self.workspace;
        let manifest = scan_manifest(root)?;
        let diffed = match &arguments.since {
            None => Vec::new(),
            Some(since) => {
                let from = self.state().load_checkpoint(name, since)?;
                diff_manifests(self.state(), &from, &manifest, UnstoredFileContentSource::In(root))?
            }
        };
        let found: Vec<FoundFile> = manifest
            .files
            .iter()
            .map(|(path, entry)| FoundFile { path: path.clone(), bytes: entry.bytes, mode: entry.mode })
            .collect();
        let listing = file_listing(&found);
        let (agents_md, agents_md_is_cut) = self.read_agents_file();
        let status = WorkspaceStatusResult {
            workspace: name.clone(),
            copy: copy.clone(),
            content_digest: manifest.digest(),
            files: listing.files,
            files_total: listing.files_total,
            changes: listed_changes(&diffed),
            changes_total: diffed.len() as u64,
            checks: config.checks.clone(),
            commands: config.commands.clone(),
            agents_md,
            agents_md_is_cut,
        };
        let mut text = format!("workspace `{name}`: {} files\n", status.files_total);
        if arguments.since.is_some() {
            text.push_str(&describe_changes(&diffed));
        }
        Ok(ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(text, &status) })
    }

    /// Returns the beginning of `AGENTS.md`, and whether there is more.
    fn read_agents_file(&self) -> (Option<String>, bool) {
        let Ok(path) = WorkspacePath::parse(AGENTS_FILE) else { return (None, false) };
        // A file that is missing, too large or not text has no instructions.
        let Ok(content) = self.workspace.root.read(&path) else { return (None, false) };
        let Some(text) = content.as_text() else { return (None, false) };
        let end = text.floor_char_boundary(AGENTS_MD_BYTES_MAX);
        (Some(text[..end].to_owned()), end < text.len())
    }

    async fn run_command(&self, arguments: &RunCommandArguments) -> Result<ToolResult, String> {
        let command = WorkspaceCommandLine::parse(&arguments.command)?;
        command.check_allowed(&self.workspace.config.commands)?;
        let before =
            self.run_on_blocking_thread(|run| save_checkpoint(&run.workspace, run.state(), "before a command")).await?;
        let run_ms_max = self.context.run_ms_max.saturating_sub(AFTERWORK_MS).max(1);
        let run_ms_max =
            arguments.timeout_s.map_or(run_ms_max, |seconds| run_ms_max.min(seconds.saturating_mul(1_000)));
        let limits = CommandLimits { run_ms_max, tail_bytes_max: COMMAND_TAIL_BYTES_MAX };
        let run = self.run_with_command_permit(&arguments.command, &command, limits).await?;
        if let WorkspaceCommandEnd::NotStarted { reason } = &run.end {
            return Err(reason.clone());
        }
        let (_, diffed) = self.compare_with(before).await?;
        let mut text = self.describe_run(&run);
        if !diffed.is_empty() {
            text.push_str(&format!("changed files:\n{}", describe_changes(&diffed)));
        }
        let failed = !run.has_passed();
        let result = RunCommandResult { run, changes: listed_changes(&diffed) };
        Ok(ToolResult { artifacts: diff_artifacts(&diffed), failed, ..result_with_value(text, &result) })
    }

    async fn run_checks(&self, arguments: &RunChecksArguments) -> Result<ToolResult, String> {
        let checks: Vec<&String> = self.workspace.config.checks.iter().chain(&arguments.confirmed).collect();
        if checks.len() > CHECKS_MAX {
            return Err(format!("there are {} checks; at most {CHECKS_MAX} are allowed", checks.len()));
        }
        // An owner is a client of the server: what it confirms must not be more than what the operator allows.
        if self.invocation.owner().is_some() {
            for check in &arguments.confirmed {
                WorkspaceCommandLine::parse(check)?.check_allowed(&self.workspace.config.commands)?;
            }
        }
        let before = self
            .run_on_blocking_thread(|run| save_checkpoint(&run.workspace, run.state(), "before the checks"))
            .await?;
        let deadline = self.command_deadline();
        let mut commands = Vec::new();
        for check in checks {
            let limits = CommandLimits { run_ms_max: ms_until(deadline), tail_bytes_max: CHECK_TAIL_BYTES_MAX };
            commands.push(match WorkspaceCommandLine::parse(check) {
                Ok(command) => self.run_with_command_permit(check, &command, limits).await?,
                Err(reason) => not_started_run(check, reason),
            });
        }
        let content_digest = before.id.clone();
        let (after, diffed) = self.compare_with(before).await?;
        let passed = !commands.is_empty() && commands.iter().all(WorkspaceCommandRun::has_passed);
        let mut text = match (commands.is_empty(), passed) {
            (true, _) => "no checks are declared for this workspace\n".to_owned(),
            (false, true) => "all checks passed\n".to_owned(),
            (false, false) => "checks failed\n".to_owned(),
        };
        commands.iter().for_each(|run| text.push_str(&self.describe_run(run)));
        let result = ChecksResult {
            content_digest,
            content_digest_after: after.digest(),
            commands,
            passed,
            changes: listed_changes(&diffed),
        };
        Ok(ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(text, &result) })
    }

    fn describe_run(&self, run: &WorkspaceCommandRun) -> String {
        describe_run(run, self.inner.shows_durations.then_some(run.duration_ms))
    }

    /// Returns when the last command of this run has to end.
    fn command_deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.context.run_ms_max.saturating_sub(AFTERWORK_MS))
    }

    /// Runs a command as soon as fewer than allowed run in the workspace. The time that it waits is a part of its time.
    async fn run_with_command_permit(
        &self,
        shown: &str,
        command: &WorkspaceCommandLine,
        limits: CommandLimits,
    ) -> Result<WorkspaceCommandRun, String> {
        let deadline = Instant::now() + Duration::from_millis(limits.run_ms_max);
        let _permit = self.workspace.command_permit(Duration::from_millis(limits.run_ms_max)).await?;
        let limits = CommandLimits { run_ms_max: ms_until(deadline), ..limits };
        Ok(self.command_runner().run(shown, command, limits).await)
    }

    fn command_runner(&self) -> WorkspaceCommandRunner<'_> {
        WorkspaceCommandRunner {
            workspace: &self.workspace,
            state: self.state(),
            supervisor: &self.inner.supervisor,
            progress: &self.context.progress,
        }
    }

    /// Compares a checkpoint with the current content.
    async fn compare_with(&self, before: WorkspaceCheckpoint) -> Result<(FileManifest, Vec<DiffedFileChange>), String> {
        self.run_on_blocking_thread(move |run| {
            let after = scan_manifest(&run.workspace.root)?;
            let current = UnstoredFileContentSource::In(&run.workspace.root);
            let diffed = diff_manifests(run.state(), &before.manifest, &after, current)?;
            Ok((after, diffed))
        })
        .await
    }
}

/// Returns the milliseconds until a time, at least one.
fn ms_until(deadline: Instant) -> u64 {
    let remaining = deadline.saturating_duration_since(Instant::now());
    u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn not_started_run(check: &str, reason: String) -> WorkspaceCommandRun {
    WorkspaceCommandRun {
        command: check.to_owned(),
        end: WorkspaceCommandEnd::NotStarted { reason },
        duration_ms: 0,
        output_bytes: 0,
        output_tail: String::new(),
    }
}

/// Describes a run for a model: the command, how it ended, after how long if that is known, and the end of its output.
fn describe_run(run: &WorkspaceCommandRun, duration_ms: Option<u64>) -> String {
    let end = match &run.end {
        WorkspaceCommandEnd::Exited { code } => format!("exit code {code}"),
        WorkspaceCommandEnd::Signalled { signal } => format!("ended by signal {signal}"),
        WorkspaceCommandEnd::TimedOut => "stopped: it ran for too long".to_owned(),
        WorkspaceCommandEnd::OutputLimit => "stopped: it wrote too much output".to_owned(),
        WorkspaceCommandEnd::NotStarted { reason } => format!("not started: {reason}"),
    };
    let cut = if run.output_bytes > run.output_tail.len() as u64 { "end of the output" } else { "output" };
    let output = match run.output_tail.trim_end() {
        "" => "no output\n".to_owned(),
        output => format!("{cut}:\n{output}\n"),
    };
    let after = duration_ms.map(|ms| format!(" after {}.{} s", ms / 1_000, ms % 1_000 / 100)).unwrap_or_default();
    format!("$ {}\n{end}{after}\n{output}", run.command)
}

/// Returns the identity of a session: a name can be used again after a delete.
fn session_key(invocation: &ToolInvocation) -> String {
    format!("{} {}", invocation.session, invocation.session_opened_at.0)
}

async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(format!("the tool failed: {error}")))
}
