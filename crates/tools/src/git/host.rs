//! The host of the repository tools that the team flow starts.

use std::path::{Path, PathBuf};

use segue_core::tool::ToolResult;
use segue_engine::tools::ToolInvocation;
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolRequest, RepositoryToolResult};

use super::TeamRepository;
use super::diff_digest::failure_digest;
use crate::limits::GIT_NAME_BYTES_MAX;

/// Separates the architect from the agent whose worktree it reads.
const READER_SEPARATOR: char = '@';

/// Returns the repository that a request is about.
///
/// # Errors
/// Fails if a name could lead out of the folder for worktrees.
pub(crate) fn repository_for(
    folder: &Path,
    state_folder: &Path,
    invocation: &ToolInvocation,
    request: &RepositoryToolRequest,
) -> Result<TeamRepository, String> {
    let is_plain = |name: &str| {
        name.len() <= GIT_NAME_BYTES_MAX
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
    };
    if request.spec.is_empty() || !is_plain(&request.spec) || !is_plain(&request.story) {
        return Err(format!("`{}` and `{}` cannot be names of branches", request.spec, request.story));
    }
    let worktrees = session_worktrees(state_folder, invocation);
    Ok(TeamRepository { folder: folder.to_owned(), worktrees, spec: request.spec.clone() })
}

/// Returns where the worktrees of a session are.
fn session_worktrees(state_folder: &Path, invocation: &ToolInvocation) -> PathBuf {
    let key = format!("{} {}", invocation.session, invocation.session_opened_at.0);
    state_folder.join("worktrees").join(&blake3::hash(key.as_bytes()).to_hex()[..16])
}

/// The worktree in which an agent works, and whether it may change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentWorktree {
    pub folder: PathBuf,
    pub is_read_only: bool,
}

/// Returns the worktree of the agent for which a tool runs, if it has one.
pub(crate) fn agent_worktree(state_folder: &Path, invocation: &ToolInvocation) -> Option<AgentWorktree> {
    let agent = invocation.opened.agent.as_ref()?.as_str();
    let (agent, is_read_only) = match agent.split_once(READER_SEPARATOR) {
        Some((_, other)) => (other, true),
        None => (agent, false),
    };
    let link = agent_worktree_file(&session_worktrees(state_folder, invocation), agent)?;
    let folder = PathBuf::from(std::fs::read_to_string(link).ok()?);
    folder.is_dir().then_some(AgentWorktree { folder, is_read_only })
}

/// Returns the file that names the worktree of an agent.
fn agent_worktree_file(worktrees: &Path, agent: &str) -> Option<PathBuf> {
    let is_plain = !agent.is_empty() && agent.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    is_plain.then(|| worktrees.join("agents").join(agent))
}

/// Runs a repository tool, except for the tests.
pub(crate) fn run_repository_tool(
    repository: &TeamRepository,
    tool: RepositoryTool,
    request: &RepositoryToolRequest,
    agent: Option<&str>,
) -> Result<ToolResult, String> {
    let done = |text: String, result: RepositoryToolResult| ToolResult {
        text,
        value: serde_json::to_value(result).ok(),
        ..ToolResult::default()
    };
    match tool {
        RepositoryTool::Inspect => {
            let result =
                repository.inspect_and_create_integration(request.path.as_deref().unwrap_or("knowledge.dot"))?;
            Ok(done(format!("based on {}", result.base), result))
        }
        RepositoryTool::Worktree => {
            let result = repository.prepare_worktree(request)?;
            if let Some(link) = agent.and_then(|agent| agent_worktree_file(&repository.worktrees, agent)) {
                let folder = repository.worktree_folder(&request.story);
                write_agent_worktree_file(&link, &folder).map_err(|error| format!("{}: {error}", link.display()))?;
            }
            Ok(done("the worktree is ready".to_owned(), result))
        }
        RepositoryTool::Commit => repository.commit_worktree(request).map(|(diff, result)| done(diff, result)),
        RepositoryTool::Rebase => repository.rebase_onto_integration(request).map(|(diff, result)| done(diff, result)),
        RepositoryTool::Merge => {
            repository.merge_into_integration(request).map(|result| done("merged".to_owned(), result))
        }
        RepositoryTool::Read => match repository.read_worktree_file(request)? {
            Some(text) => Ok(done(text, RepositoryToolResult::default())),
            None => {
                Ok(done(String::new(), RepositoryToolResult { is_missing: true, ..RepositoryToolResult::default() }))
            }
        },
        RepositoryTool::Write => repository
            .write_worktree_file(request)
            .map(|()| done("written".to_owned(), RepositoryToolResult::default())),
        RepositoryTool::Restore => {
            repository.restore_worktree(request).map(|result| done("restored".to_owned(), result))
        }
        RepositoryTool::Land => repository.land_on_user_branch(request).map(|result| done("landed".to_owned(), result)),
        RepositoryTool::UndoLanding => repository.undo_landing(request).map(|result| done("undone".to_owned(), result)),
        RepositoryTool::Test => Err("tests are run elsewhere".to_owned()),
    }
}

fn write_agent_worktree_file(link: &Path, folder: &Path) -> std::io::Result<()> {
    if let Some(parent) = link.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(link, folder.to_string_lossy().as_bytes())
}

/// Returns the result of a test run.
pub(crate) fn build_test_result(commit: &str, passed: bool, output: &str) -> RepositoryToolResult {
    RepositoryToolResult {
        commit: commit.to_owned(),
        passed: Some(passed),
        failure_digest: if passed { String::new() } else { failure_digest(output) },
        ..RepositoryToolResult::default()
    }
}
