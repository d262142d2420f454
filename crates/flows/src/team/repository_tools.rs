//! The tools with which the flow works on the git repository: their declarations, arguments and results.
//!
//! The flow alone starts them; no model is offered one. The host decides where worktrees are, and runs git. Every run
//! carries the work item for which it was started, so that a late result of an earlier assignment is recognised. All of
//! them can be repeated without harm: a run that finds its effect already there returns the same result.

use segue_core::flow::{FlowStep, FlowToolDeclaration, UnknownOutcomePolicy};
use segue_core::ids::AgentName;
use segue_core::prompt::ModelToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits::{GIT_TOOL_RUN_MS_MAX, TEAM_TESTS_RUN_MS_MAX};

/// A tool that works on the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepositoryTool {
    /// Looks at the repository and creates the integration branch.
    Inspect,
    /// Prepares the worktree of a coder for a story.
    Worktree,
    /// Commits the changes in a worktree. The text is the diff against the story's base.
    Commit,
    /// Runs the project's tests on a commit, in its worktree. The text is the end of the output.
    Test,
    /// Rebases a story onto the integration branch. The text is the new diff.
    Rebase,
    /// Moves the integration branch to a commit that was tested and reviewed.
    Merge,
    /// Reads one file of a worktree.
    Read,
    /// Writes one file of a worktree.
    Write,
    /// Sets a worktree back to a commit.
    Restore,
    /// Merges the integration branch into a branch of the user that is not checked out.
    Land,
    /// Sets that branch back.
    UndoLanding,
}

impl RepositoryTool {
    pub const ALL: [Self; 11] = [
        Self::Inspect,
        Self::Worktree,
        Self::Commit,
        Self::Test,
        Self::Rebase,
        Self::Merge,
        Self::Read,
        Self::Write,
        Self::Restore,
        Self::Land,
        Self::UndoLanding,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inspect => "git_inspect",
            Self::Worktree => "git_worktree",
            Self::Commit => "git_commit",
            Self::Test => "git_test",
            Self::Rebase => "git_rebase",
            Self::Merge => "git_merge",
            Self::Read => "git_read",
            Self::Write => "git_write",
            Self::Restore => "git_restore",
            Self::Land => "git_land",
            Self::UndoLanding => "git_undo_landing",
        }
    }

    /// Returns the tool with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            Self::Inspect => "looks at the repository",
            Self::Worktree => "prepares the worktree of a coder",
            Self::Commit => "commits the changes of a worktree",
            Self::Test => "runs the project's tests in a worktree",
            Self::Rebase => "rebases a story onto the integration branch",
            Self::Merge => "merges a story into the integration branch",
            Self::Read => "reads one file of a worktree",
            Self::Write => "writes one file of a worktree",
            Self::Restore => "sets a worktree back to a commit",
            Self::Land => "merges the integration branch into a branch of the user",
            Self::UndoLanding => "sets the branch of the user back",
        }
    }

    /// Returns the declaration of the tool for the flow's spec.
    #[must_use]
    pub fn declaration(self) -> FlowToolDeclaration {
        let spec = ModelToolSpec {
            name: self.name().into(),
            description: self.description().to_owned(),
            parameters: json!({"type": "object"}),
        };
        let run_ms_max = match self {
            // They run commands of the project: its set-up, its tests.
            Self::Inspect | Self::Worktree | Self::Test => TEAM_TESTS_RUN_MS_MAX,
            _ => GIT_TOOL_RUN_MS_MAX,
        };
        let unknown_outcome = UnknownOutcomePolicy::Retry;
        FlowToolDeclaration { unknown_outcome, run_ms_max, ..FlowToolDeclaration::for_host(spec) }
    }

    /// Returns the step that runs the tool.
    #[must_use]
    pub fn into_step(self, agent: Option<AgentName>, request: &RepositoryToolRequest) -> FlowStep {
        let arguments = serde_json::to_value(request).unwrap_or(Value::Null);
        FlowStep::RunTool { tool: self.name().into(), arguments, agent }
    }
}

/// The arguments of all repository tools. Each tool reads those that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepositoryToolRequest {
    /// The name of the spec, from which branches are named.
    pub spec: String,
    /// The work item for which the tool runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub work: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The base of the story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The message of a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A path in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A branch of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether the project's set-up commands run in a new worktree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_up: bool,
}

/// The results of all repository tools. Each tool fills in those that it has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RepositoryToolResult {
    /// The commit on which the work is based.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// The commit that resulted, or that was tested.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The branch of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub integration: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knowledge: Option<String>,
    /// The digest of a diff.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff_digest: String,
    /// The files that changed, or that conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Whether a rebase failed because of conflicts. The worktree is then at the integration branch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conflicts: bool,
    /// Whether the tests passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// A digest of a failure, without what differs from run to run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure_digest: String,
    /// Whether the file that was to be read does not exist.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_missing: bool,
    /// The value of a branch before it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}
