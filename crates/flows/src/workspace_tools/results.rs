//! The structured results of the workspace tools, which a run records beside the text for the model. Long lists are cut, so
//! that the result stays below the limit of a recorded value; a count then tells how many there are.

use serde::{Deserialize, Serialize};

/// The result of `read_file`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFileResult {
    pub path: String,
    /// The digest of the whole file.
    pub digest: String,
    pub bytes: u64,
    pub lines: u64,
    /// The first and the last line that were returned.
    pub first_line: u64,
    pub last_line: u64,
}

/// The result of `write_file`, `edit_file`, `delete_file` and `move_file`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileChangesResult {
    pub changes: Vec<FileChange>,
}

/// A change of one file. A moved file is a deleted one and a created one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub path: String,
    pub kind: FileChangeKind,
    /// The number of lines that were added and removed; 0 for binary files.
    #[serde(default)]
    pub lines_added: u64,
    #[serde(default)]
    pub lines_removed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Created,
    Modified,
    Deleted,
}

/// A file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedWorkspaceFile {
    pub path: String,
    pub bytes: u64,
}

/// The result of `list_files`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListFilesResult {
    pub files: Vec<ListedWorkspaceFile>,
    /// The number of files, also of those that the list leaves out.
    pub files_total: u64,
}

/// The result of `search_files`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SearchFilesResult {
    pub matches: Vec<FileSearchMatch>,
    /// Whether the search stopped at a limit, so that there may be more matches.
    pub is_incomplete: bool,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSearchMatch {
    pub path: String,
    pub line: u64,
    pub text: String,
}

/// One run of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceCommandRun {
    pub command: String,
    pub end: WorkspaceCommandEnd,
    pub duration_ms: u64,
    /// The number of bytes that the command wrote to its output and its error output together.
    pub output_bytes: u64,
    /// The end of the output.
    pub output_tail: String,
}

impl WorkspaceCommandRun {
    /// Returns whether the command ended with exit code 0.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.end == WorkspaceCommandEnd::Exited { code: 0 }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WorkspaceCommandEnd {
    Exited {
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        signal: i32,
    },
    /// It was stopped because it ran for too long.
    TimedOut,
    /// It was stopped because it wrote too much output.
    OutputLimit,
    /// It was not started, because it is not allowed or does not exist.
    NotStarted {
        reason: String,
    },
}

/// The result of `run_command`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommandResult {
    pub run: WorkspaceCommandRun,
    /// The files that changed while the command ran.
    pub changes: Vec<FileChange>,
}

/// The result of `run_checks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksResult {
    /// The digest of the content on which the checks ran.
    pub content_digest: String,
    /// The digest after the checks, which differs if a check changed files, such as a lock file.
    pub content_digest_after: String,
    /// The checks in the order in which they ran. All of them run, also after one has failed.
    pub commands: Vec<WorkspaceCommandRun>,
    /// Whether there was a check, and all of them passed.
    pub passed: bool,
    /// The files that the checks changed.
    pub changes: Vec<FileChange>,
}

/// The result of `workspace_status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkspaceStatusResult {
    pub workspace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// The digest of all files that are not excluded.
    pub content_digest: String,
    pub files: Vec<ListedWorkspaceFile>,
    /// The number of files, also of those that the list leaves out.
    pub files_total: u64,
    /// The changes since the checkpoint of the request.
    pub changes: Vec<FileChange>,
    pub changes_total: u64,
    /// The check commands of the workspace.
    pub checks: Vec<String>,
    /// The commands that agents may run.
    pub commands: Vec<String>,
    /// The text of `AGENTS.md`, or its beginning. It is untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_md: Option<String>,
    /// Whether `agents_md` is only the beginning.
    #[serde(default)]
    pub agents_md_is_cut: bool,
}

/// The result of `checkpoint_create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateCheckpointResult {
    /// The id of the checkpoint, which equals the digest of its content: equal contents have the same checkpoint.
    pub checkpoint: String,
    pub files: u64,
    pub bytes: u64,
}

/// The result of `checkpoint_restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCheckpointResult {
    pub checkpoint: String,
    /// A checkpoint of the content before, by which the restoring can be undone.
    pub previous: String,
    pub changes: Vec<FileChange>,
}

/// The result of `copy_create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateWorkspaceCopyResult {
    /// The full name of the copy: the value of the setting `copy` of the session that works in it.
    pub copy: String,
    /// The checkpoint of the content that was copied.
    pub checkpoint: String,
}

/// The result of `copy_merge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeWorkspaceCopyResult {
    /// The files of the workspace that changed.
    pub changes: Vec<FileChange>,
    /// The files that were not merged. They keep the content of the workspace, and the copy keeps its own.
    pub conflicts: Vec<MergeConflict>,
    /// The digest of the workspace after the merge.
    pub content_digest: String,
    /// A checkpoint of the workspace before the merge.
    pub previous: String,
    /// If there are conflicts, a checkpoint of the whole copy, so that nothing is lost when the copy is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_checkpoint: Option<String>,
}

/// A file that both the workspace and a copy changed in ways that cannot be combined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflict {
    pub path: String,
    pub reason: String,
    /// The content with both versions between conflict markers, if it is short text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_text: Option<String>,
}
