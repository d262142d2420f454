//! The arguments of the workspace tools. Models use some fields under other names, which are accepted too.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFileArguments {
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    pub path: String,
    /// The number of the first line to read, beginning with 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_max: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFileArguments {
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    pub path: String,
    #[serde(alias = "contents", alias = "text")]
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditFileArguments {
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    pub path: String,
    /// The exact passage to replace.
    #[serde(alias = "old_string", alias = "old_str")]
    pub old_text: String,
    #[serde(alias = "new_string", alias = "new_str")]
    pub new_text: String,
    /// Whether all occurrences are replaced. Otherwise the passage must occur exactly once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace_all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteFileArguments {
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveFileArguments {
    #[serde(alias = "source")]
    pub from: String,
    #[serde(alias = "destination")]
    pub to: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListFilesArguments {
    /// Only files below this folder.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "path", alias = "directory")]
    pub folder: Option<String>,
    /// Only files that match this pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SearchFilesArguments {
    /// A regular expression, or a text if `literal` is set.
    #[serde(alias = "query", alias = "regex")]
    pub pattern: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub literal: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
    /// Only files below this folder.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "path", alias = "directory")]
    pub folder: Option<String>,
    /// Only files that match this pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommandArguments {
    /// The program and its arguments, quoted as in a shell.
    #[serde(alias = "cmd")]
    pub command: String,
    /// The maximum duration in seconds; the one of the tool's declaration if absent or longer.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "timeout")]
    pub timeout_s: Option<u64>,
}

/// The arguments of `run_checks`. Without arguments, all checks of the workspace run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunChecksArguments {
    /// Commands that the user confirmed as checks of this session. They run after the declared checks. In a session of
    /// the operator they need not be in the list of allowed commands; in a session of an owner they must.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkspaceStatusArguments {
    /// The checkpoint from which changes are counted; none are reported if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateCheckpointArguments {
    /// What the checkpoint was made for, such as `before EXECUTE`.
    pub label: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCheckpointArguments {
    pub checkpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffCheckpointArguments {
    /// The older checkpoint.
    pub from: String,
    /// The newer checkpoint; the current content if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateWorkspaceCopyArguments {
    /// A name for the copy that is unique in the session, of lower-case letters, digits and hyphens. A repeated request with
    /// the same name returns the same copy.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeWorkspaceCopyArguments {
    /// The copy, as named by the result of `copy_create`.
    pub copy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveWorkspaceCopyArguments {
    /// The copy, as named by the result of `copy_create`.
    pub copy: String,
}
