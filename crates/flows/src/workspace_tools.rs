//! The tools that work on the files of a workspace: their declarations, arguments and results.
//!
//! A flow offers [`WorkspaceTool::for_models`] to its roles, and starts the others itself with [`WorkspaceToolRequest::into_step`].
//! Everything that reads or changes files is done by the host of these tools, which is not part of this crate. The host takes
//! the workspace from the session's settings ([`WORKSPACE_SETTING`], [`COPY_SETTING`]), never from the arguments.

mod arguments;
mod results;

use segue_core::flow::{FlowStep, FlowToolDeclaration, UnknownOutcomePolicy};
use segue_core::ids::{AgentName, ToolName};
use segue_core::prompt::ModelToolSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use arguments::{
    CreateCheckpointArguments, CreateWorkspaceCopyArguments, DeleteFileArguments, DiffCheckpointArguments,
    EditFileArguments, ListFilesArguments, MergeWorkspaceCopyArguments, MoveFileArguments, ReadFileArguments,
    RemoveWorkspaceCopyArguments, RestoreCheckpointArguments, RunChecksArguments, RunCommandArguments,
    SearchFilesArguments, WorkspaceStatusArguments, WriteFileArguments,
};
pub use results::{
    ChecksResult, CreateCheckpointResult, CreateWorkspaceCopyResult, FileChange, FileChangeKind, FileChangesResult,
    FileSearchMatch, ListFilesResult, ListedWorkspaceFile, MergeConflict, MergeWorkspaceCopyResult, ReadFileResult,
    RestoreCheckpointResult, RunCommandResult, SearchFilesResult, WorkspaceCommandEnd, WorkspaceCommandRun,
    WorkspaceStatusResult,
};

use crate::limits::{
    CHECKS_RUN_MS_MAX, COMMAND_RUN_MS_MAX, COMMAND_TEXT_BYTES_MAX, FILE_TOOL_RUN_MS_MAX, FILE_TOOL_TEXT_BYTES_MAX,
};

/// The setting that names the workspace of a session, as declared in the configuration.
pub const WORKSPACE_SETTING: &str = "workspace";
/// The setting that names the isolated copy of the workspace in which a session works. Without it, a session works in the
/// workspace folder itself.
pub const COPY_SETTING: &str = "copy";

/// A tool that works on the files of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkspaceTool {
    ReadFile,
    WriteFile,
    EditFile,
    DeleteFile,
    MoveFile,
    ListFiles,
    SearchFiles,
    RunCommand,
    /// Runs the check commands of the workspace.
    RunChecks,
    /// Describes the workspace: its files, their digest, what changed, and the text of `AGENTS.md`.
    Status,
    CreateCheckpoint,
    RestoreCheckpoint,
    DiffCheckpoint,
    /// Creates an isolated copy of the workspace.
    CreateCopy,
    /// Merges the changes of a copy into the workspace.
    MergeCopy,
    RemoveCopy,
}

impl WorkspaceTool {
    pub const ALL: [Self; 16] = [
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::DeleteFile,
        Self::MoveFile,
        Self::ListFiles,
        Self::SearchFiles,
        Self::RunCommand,
        Self::RunChecks,
        Self::Status,
        Self::CreateCheckpoint,
        Self::RestoreCheckpoint,
        Self::DiffCheckpoint,
        Self::CreateCopy,
        Self::MergeCopy,
        Self::RemoveCopy,
    ];

    /// Returns the tools that a flow may offer to models.
    pub fn for_models() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|tool| tool.is_for_models())
    }

    /// Returns the tool with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::DeleteFile => "delete_file",
            Self::MoveFile => "move_file",
            Self::ListFiles => "list_files",
            Self::SearchFiles => "search_files",
            Self::RunCommand => "run_command",
            Self::RunChecks => "run_checks",
            Self::Status => "workspace_status",
            Self::CreateCheckpoint => "checkpoint_create",
            Self::RestoreCheckpoint => "checkpoint_restore",
            Self::DiffCheckpoint => "checkpoint_diff",
            Self::CreateCopy => "copy_create",
            Self::MergeCopy => "copy_merge",
            Self::RemoveCopy => "copy_remove",
        }
    }

    /// Returns whether models may be offered the tool. The others are started by flows only: their arguments are trusted.
    #[must_use]
    pub fn is_for_models(self) -> bool {
        match self {
            Self::ReadFile
            | Self::WriteFile
            | Self::EditFile
            | Self::DeleteFile
            | Self::MoveFile
            | Self::ListFiles
            | Self::SearchFiles
            | Self::RunCommand => true,
            Self::RunChecks
            | Self::Status
            | Self::CreateCheckpoint
            | Self::RestoreCheckpoint
            | Self::DiffCheckpoint
            | Self::CreateCopy
            | Self::MergeCopy
            | Self::RemoveCopy => false,
        }
    }

    /// Returns whether a run of the tool may change files of the workspace.
    #[must_use]
    pub fn may_change_files(self) -> bool {
        match self {
            Self::WriteFile
            | Self::EditFile
            | Self::DeleteFile
            | Self::MoveFile
            | Self::RunCommand
            | Self::RunChecks
            | Self::RestoreCheckpoint
            | Self::MergeCopy => true,
            Self::ReadFile
            | Self::ListFiles
            | Self::SearchFiles
            | Self::Status
            | Self::CreateCheckpoint
            | Self::DiffCheckpoint
            | Self::CreateCopy
            | Self::RemoveCopy => false,
        }
    }

    /// Returns the declaration of the tool for a flow's spec.
    ///
    /// A run of a changing tool that was in progress when the process died has an unknown outcome, and its agent is informed.
    /// The tools that only flows start can be repeated without harm, so they are repeated.
    #[must_use]
    pub fn declaration(self) -> FlowToolDeclaration {
        let spec = ModelToolSpec {
            name: ToolName::from(self.name()),
            description: self.description().trim_end().to_owned(),
            parameters: self.parameters(),
        };
        let (run_ms_max, output_bytes_max) = match self {
            Self::RunCommand => (COMMAND_RUN_MS_MAX, COMMAND_TEXT_BYTES_MAX),
            Self::RunChecks => (CHECKS_RUN_MS_MAX, COMMAND_TEXT_BYTES_MAX),
            _ => (FILE_TOOL_RUN_MS_MAX, FILE_TOOL_TEXT_BYTES_MAX),
        };
        let unknown_outcome = match self.is_for_models() && self.may_change_files() {
            true => UnknownOutcomePolicy::Fail,
            false => UnknownOutcomePolicy::Retry,
        };
        FlowToolDeclaration { unknown_outcome, run_ms_max, output_bytes_max, ..FlowToolDeclaration::for_host(spec) }
    }

    fn description(self) -> &'static str {
        match self {
            Self::ReadFile => include_str!("../prompts/workspace_tools/read_file.md"),
            Self::WriteFile => include_str!("../prompts/workspace_tools/write_file.md"),
            Self::EditFile => include_str!("../prompts/workspace_tools/edit_file.md"),
            Self::DeleteFile => include_str!("../prompts/workspace_tools/delete_file.md"),
            Self::MoveFile => include_str!("../prompts/workspace_tools/move_file.md"),
            Self::ListFiles => include_str!("../prompts/workspace_tools/list_files.md"),
            Self::SearchFiles => include_str!("../prompts/workspace_tools/search_files.md"),
            Self::RunCommand => include_str!("../prompts/workspace_tools/run_command.md"),
            // No model is offered these; the texts are for `segue flows`.
            Self::RunChecks => "runs the check commands of the workspace",
            Self::Status => "describes the workspace and what changed since a checkpoint",
            Self::CreateCheckpoint => "saves the files of the workspace",
            Self::RestoreCheckpoint => "restores the files of the workspace",
            Self::DiffCheckpoint => "compares a checkpoint with the workspace or with another checkpoint",
            Self::CreateCopy => "creates an isolated copy of the workspace",
            Self::MergeCopy => "merges the changes of a copy into the workspace",
            Self::RemoveCopy => "removes a copy of the workspace",
        }
    }

    /// Returns the JSON schema of the arguments.
    fn parameters(self) -> Value {
        let path = json!({"type": "string", "description": "the path of the file, relative to the workspace folder"});
        let text = |description: &str| json!({"type": "string", "description": description});
        let flag = |description: &str| json!({"type": "boolean", "description": description});
        let count = |description: &str| json!({"type": "integer", "minimum": 1, "description": description});
        let (properties, required): (Value, &[&str]) = match self {
            Self::ReadFile => (
                json!({
                    "path": path,
                    "first_line": count("the first line to read; 1 if absent"),
                    "lines_max": count("the maximum number of lines to read"),
                }),
                &["path"],
            ),
            Self::WriteFile => (json!({"path": path, "content": text("the whole new content")}), &["path", "content"]),
            Self::EditFile => (
                json!({
                    "path": path,
                    "old_text": text("the exact passage to replace"),
                    "new_text": text("the text to put in its place"),
                    "replace_all": flag("whether all occurrences are replaced"),
                }),
                &["path", "old_text", "new_text"],
            ),
            Self::DeleteFile => (json!({"path": path}), &["path"]),
            Self::MoveFile => (json!({"from": path, "to": text("the new path")}), &["from", "to"]),
            Self::ListFiles => (
                json!({
                    "folder": text("list only files below this folder"),
                    "glob": text("list only files that match this pattern, such as `**/*.rs`"),
                }),
                &[],
            ),
            Self::SearchFiles => (
                json!({
                    "pattern": text("a regular expression, or the exact text if `literal` is true"),
                    "literal": flag("whether the pattern is searched for as it is"),
                    "ignore_case": flag("whether upper and lower case are equal"),
                    "folder": text("search only files below this folder"),
                    "glob": text("search only files that match this pattern, such as `**/*.rs`"),
                }),
                &["pattern"],
            ),
            Self::RunCommand => (
                json!({
                    "command": text("the program and its arguments, such as `cargo test --lib`"),
                    "timeout_s": count("stop the command after this many seconds"),
                }),
                &["command"],
            ),
            Self::RunChecks
            | Self::Status
            | Self::CreateCheckpoint
            | Self::RestoreCheckpoint
            | Self::DiffCheckpoint
            | Self::CreateCopy
            | Self::MergeCopy
            | Self::RemoveCopy => return json!({"type": "object"}),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }
}

/// The typed arguments of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkspaceToolRequest {
    ReadFile(ReadFileArguments),
    WriteFile(WriteFileArguments),
    EditFile(EditFileArguments),
    DeleteFile(DeleteFileArguments),
    MoveFile(MoveFileArguments),
    ListFiles(ListFilesArguments),
    SearchFiles(SearchFilesArguments),
    RunCommand(RunCommandArguments),
    RunChecks(RunChecksArguments),
    Status(WorkspaceStatusArguments),
    CreateCheckpoint(CreateCheckpointArguments),
    RestoreCheckpoint(RestoreCheckpointArguments),
    DiffCheckpoint(DiffCheckpointArguments),
    CreateCopy(CreateWorkspaceCopyArguments),
    MergeCopy(MergeWorkspaceCopyArguments),
    RemoveCopy(RemoveWorkspaceCopyArguments),
}

impl WorkspaceToolRequest {
    /// Parses the arguments of a run. `tool` is the recorded name.
    ///
    /// # Errors
    /// Returns what is wrong with the arguments, in words for the model that wrote them.
    pub fn parse(tool: WorkspaceTool, arguments: &Value) -> Result<Self, String> {
        fn deserialize_arguments<T: DeserializeOwned>(tool: WorkspaceTool, arguments: &Value) -> Result<T, String> {
            serde_json::from_value(arguments.clone())
                .map_err(|error| format!("the arguments of `{}` are wrong: {error}", tool.name()))
        }
        Ok(match tool {
            WorkspaceTool::ReadFile => Self::ReadFile(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::WriteFile => Self::WriteFile(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::EditFile => Self::EditFile(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::DeleteFile => Self::DeleteFile(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::MoveFile => Self::MoveFile(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::ListFiles => Self::ListFiles(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::SearchFiles => Self::SearchFiles(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::RunCommand => Self::RunCommand(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::RunChecks => Self::RunChecks(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::Status => Self::Status(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::CreateCheckpoint => Self::CreateCheckpoint(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::RestoreCheckpoint => Self::RestoreCheckpoint(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::DiffCheckpoint => Self::DiffCheckpoint(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::CreateCopy => Self::CreateCopy(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::MergeCopy => Self::MergeCopy(deserialize_arguments(tool, arguments)?),
            WorkspaceTool::RemoveCopy => Self::RemoveCopy(deserialize_arguments(tool, arguments)?),
        })
    }

    /// Returns the tool that the arguments are for.
    #[must_use]
    pub fn tool(&self) -> WorkspaceTool {
        match self {
            Self::ReadFile(_) => WorkspaceTool::ReadFile,
            Self::WriteFile(_) => WorkspaceTool::WriteFile,
            Self::EditFile(_) => WorkspaceTool::EditFile,
            Self::DeleteFile(_) => WorkspaceTool::DeleteFile,
            Self::MoveFile(_) => WorkspaceTool::MoveFile,
            Self::ListFiles(_) => WorkspaceTool::ListFiles,
            Self::SearchFiles(_) => WorkspaceTool::SearchFiles,
            Self::RunCommand(_) => WorkspaceTool::RunCommand,
            Self::RunChecks(_) => WorkspaceTool::RunChecks,
            Self::Status(_) => WorkspaceTool::Status,
            Self::CreateCheckpoint(_) => WorkspaceTool::CreateCheckpoint,
            Self::RestoreCheckpoint(_) => WorkspaceTool::RestoreCheckpoint,
            Self::DiffCheckpoint(_) => WorkspaceTool::DiffCheckpoint,
            Self::CreateCopy(_) => WorkspaceTool::CreateCopy,
            Self::MergeCopy(_) => WorkspaceTool::MergeCopy,
            Self::RemoveCopy(_) => WorkspaceTool::RemoveCopy,
        }
    }

    /// Returns the arguments as the journal stores them.
    #[must_use]
    pub fn to_arguments(&self) -> Value {
        fn serialize_arguments(arguments: &impl Serialize) -> Value {
            serde_json::to_value(arguments).unwrap_or_default()
        }
        match self {
            Self::ReadFile(arguments) => serialize_arguments(arguments),
            Self::WriteFile(arguments) => serialize_arguments(arguments),
            Self::EditFile(arguments) => serialize_arguments(arguments),
            Self::DeleteFile(arguments) => serialize_arguments(arguments),
            Self::MoveFile(arguments) => serialize_arguments(arguments),
            Self::ListFiles(arguments) => serialize_arguments(arguments),
            Self::SearchFiles(arguments) => serialize_arguments(arguments),
            Self::RunCommand(arguments) => serialize_arguments(arguments),
            Self::RunChecks(arguments) => serialize_arguments(arguments),
            Self::Status(arguments) => serialize_arguments(arguments),
            Self::CreateCheckpoint(arguments) => serialize_arguments(arguments),
            Self::RestoreCheckpoint(arguments) => serialize_arguments(arguments),
            Self::DiffCheckpoint(arguments) => serialize_arguments(arguments),
            Self::CreateCopy(arguments) => serialize_arguments(arguments),
            Self::MergeCopy(arguments) => serialize_arguments(arguments),
            Self::RemoveCopy(arguments) => serialize_arguments(arguments),
        }
    }

    /// Returns the step with which a flow runs the tool itself, for an agent if one is given.
    #[must_use]
    pub fn into_step(self, agent: Option<AgentName>) -> FlowStep {
        FlowStep::RunTool { tool: ToolName::from(self.tool().name()), arguments: self.to_arguments(), agent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name_and_has_a_valid_declaration() {
        for tool in WorkspaceTool::ALL {
            assert_eq!(WorkspaceTool::from_name(tool.name()), Some(tool));
            let declaration = tool.declaration();
            assert_eq!(declaration.spec.name.as_str(), tool.name());
            assert!(!declaration.spec.description.is_empty());
        }
        assert_eq!(WorkspaceTool::from_name("rm"), None);
    }

    #[test]
    fn a_change_by_a_model_is_never_repeated_after_a_crash() {
        for tool in WorkspaceTool::for_models() {
            let expected =
                if tool.may_change_files() { UnknownOutcomePolicy::Fail } else { UnknownOutcomePolicy::Retry };
            assert_eq!(tool.declaration().unknown_outcome, expected, "{}", tool.name());
        }
    }

    /// The arguments of each tool for models, with all fields.
    fn sample_arguments(tool: WorkspaceTool) -> Value {
        match tool {
            WorkspaceTool::ReadFile => json!({"path": "a", "first_line": 2, "lines_max": 3}),
            WorkspaceTool::WriteFile => json!({"path": "a", "content": "b"}),
            WorkspaceTool::EditFile => json!({"path": "a", "old_text": "b", "new_text": "c", "replace_all": true}),
            WorkspaceTool::DeleteFile => json!({"path": "a"}),
            WorkspaceTool::MoveFile => json!({"from": "a", "to": "b"}),
            WorkspaceTool::ListFiles => json!({"folder": "a", "glob": "*.rs"}),
            WorkspaceTool::SearchFiles => {
                json!({"pattern": "a", "literal": true, "ignore_case": true, "folder": "b", "glob": "*.rs"})
            }
            WorkspaceTool::RunCommand => json!({"command": "cargo test", "timeout_s": 5}),
            _ => json!({}),
        }
    }

    #[test]
    fn schema_and_typed_arguments_have_the_same_fields() {
        for tool in WorkspaceTool::for_models() {
            let sample = sample_arguments(tool);
            let parameters = tool.declaration().spec.parameters;
            let declared: Vec<&String> =
                parameters["properties"].as_object().into_iter().flatten().map(|f| f.0).collect();
            let mut given: Vec<&String> = sample.as_object().into_iter().flatten().map(|f| f.0).collect();
            let mut declared = declared;
            declared.sort();
            given.sort();
            assert_eq!(declared, given, "{}", tool.name());
            let request = WorkspaceToolRequest::parse(tool, &sample).expect("the sample is valid");
            assert_eq!(request.tool(), tool);
            assert_eq!(request.to_arguments(), sample, "{}", tool.name());
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        let error =
            WorkspaceToolRequest::parse(WorkspaceTool::WriteFile, &json!({"path": "a"})).expect_err("it is refused");
        assert_eq!(error, "the arguments of `write_file` are wrong: missing field `content`");
    }

    #[test]
    fn names_that_other_agents_use_are_accepted() {
        let arguments = json!({"file_path": "a", "old_string": "b", "new_string": "c"});
        let request = WorkspaceToolRequest::parse(WorkspaceTool::EditFile, &arguments).expect("aliases are accepted");
        let expected =
            EditFileArguments { path: "a".into(), old_text: "b".into(), new_text: "c".into(), replace_all: false };
        assert_eq!(request, WorkspaceToolRequest::EditFile(expected));
    }
}
