//! Reading, writing, editing, deleting and moving single files.
//!
//! The host remembers which content each agent last read. A file that has changed since, or that the agent never read, is neither
//! overwritten nor deleted.

use std::io;

use segue_core::tool::ToolResult;
use segue_flows::workspace_tools::{
    DeleteFileArguments, EditFileArguments, FileChangesResult, MoveFileArguments, ReadFileArguments, ReadFileResult,
    WriteFileArguments,
};
use serde::Serialize;

use crate::confined_folder::is_missing;
use crate::content::{FileContent, digest_of_bytes};
use crate::exact_edit::replace_exactly;
use crate::file_diff::{FileContentChange, describe_change, diff_artifacts, diff_change};
use crate::limits::{FILE_BYTES_MAX, READ_LINE_BYTES_MAX, READ_TEXT_BYTES_MAX};
use crate::state::{FileReadingAgentKey, WorkspaceStateDatabase};
use crate::workspace::OpenWorkspace;
use crate::workspace_path::WorkspacePath;

/// The tools on single files, for one agent.
pub(crate) struct FileTools<'t> {
    pub workspace: &'t OpenWorkspace,
    pub state: &'t WorkspaceStateDatabase,
    pub reader: FileReadingAgentKey,
}

impl FileTools<'_> {
    pub(crate) fn read_file(&self, arguments: &ReadFileArguments) -> Result<ToolResult, String> {
        let path = WorkspacePath::parse(&arguments.path)?;
        let content = self.read_existing(&path)?;
        let digest = content.digest();
        self.state.set_last_read(&self.reader, path.as_str(), Some(&digest))?;
        let bytes = content.0.len() as u64;
        let Some(text) = content.as_text() else {
            let read = ReadFileResult { path: path.to_string(), digest, bytes, lines: 0, first_line: 0, last_line: 0 };
            return Ok(result_with_value(
                format!("`{path}` is a binary file of {bytes} bytes; its content is not shown"),
                &read,
            ));
        };
        let lines: Vec<&str> = text.lines().collect();
        let first = arguments.first_line.unwrap_or(1).max(1) as usize;
        if first > lines.len().max(1) {
            return Err(format!("`{path}` has only {} lines", lines.len()));
        }
        let last = arguments.lines_max.map_or(lines.len(), |most| (first - 1 + most as usize).min(lines.len()));
        let mut shown = String::new();
        let mut end = first - 1;
        for line in &lines[first - 1..last] {
            let cut = line.floor_char_boundary(READ_LINE_BYTES_MAX);
            let mark = if cut < line.len() { " (line cut)" } else { "" };
            let line = format!("{}\t{}{mark}\n", end + 1, &line[..cut]);
            if shown.len() + line.len() > READ_TEXT_BYTES_MAX {
                break;
            }
            shown.push_str(&line);
            end += 1;
        }
        let header = match (lines.len(), end) {
            (0, _) => format!("`{path}` is empty\n"),
            (all, end) if first == 1 && end == all => String::new(),
            (all, end) => format!("`{path}`, lines {first} to {end} of {all}; continue with `first_line`\n"),
        };
        let read = ReadFileResult {
            path: path.to_string(),
            digest,
            bytes,
            lines: lines.len() as u64,
            first_line: first as u64,
            last_line: end as u64,
        };
        Ok(result_with_value(format!("{header}{shown}"), &read))
    }

    pub(crate) fn write_file(&self, arguments: &WriteFileArguments) -> Result<ToolResult, String> {
        let path = WorkspacePath::parse_for_change(&arguments.path)?;
        self.workspace.with_write_lock(|| {
            let before = self.read_current(&path)?;
            if let Some(before) = &before
                && before.0 != arguments.content.as_bytes()
            {
                self.check_content_was_read(&path, before, "overwritten")?;
            }
            let after = arguments.content.clone().into_bytes();
            self.apply_write(&path, before.map(|content| content.0), after, AgentFileReadStateOnWrite::Update)
        })
    }

    pub(crate) fn edit_file(&self, arguments: &EditFileArguments) -> Result<ToolResult, String> {
        let path = WorkspacePath::parse_for_change(&arguments.path)?;
        self.workspace.with_write_lock(|| {
            let before = self.read_current(&path)?.ok_or_else(|| missing_file_message(&path))?;
            let Some(text) = before.as_text() else {
                return Err(format!("`{path}` is a binary file; it cannot be edited"));
            };
            let EditFileArguments { old_text, new_text, replace_all, .. } = arguments;
            // Windows line ends are kept, though models write only line feeds.
            let edited = match replace_exactly(text, old_text, new_text, *replace_all) {
                Err(_) if text.contains("\r\n") && !old_text.contains('\r') => {
                    let with_returns = |text: &str| text.replace('\n', "\r\n");
                    replace_exactly(text, &with_returns(old_text), &with_returns(new_text), *replace_all)
                }
                other => other,
            }
            .map_err(|why| format!("`{path}`: {why}"))?;
            // An agent that did not know the whole content before does not know it now.
            let is_known = self.state.last_read_digest(&self.reader, path.as_str())? == Some(before.digest());
            let record = if is_known { AgentFileReadStateOnWrite::Update } else { AgentFileReadStateOnWrite::Keep };
            self.apply_write(&path, Some(before.0), edited.into_bytes(), record)
        })
    }

    pub(crate) fn delete_file(&self, arguments: &DeleteFileArguments) -> Result<ToolResult, String> {
        let path = WorkspacePath::parse_for_change(&arguments.path)?;
        self.workspace.with_write_lock(|| {
            let is_link = self.metadata(&path)?.is_some_and(|metadata| metadata.is_symlink());
            let before = match is_link {
                true => None,
                false => Some(self.read_current(&path)?.ok_or_else(|| missing_file_message(&path))?),
            };
            if let Some(before) = &before {
                self.check_content_was_read(&path, before, "deleted")?;
            }
            self.workspace.root.remove(&path).map_err(|error| file_error_message("deleted", &path, &error))?;
            self.state.set_last_read(&self.reader, path.as_str(), None)?;
            let before = before.map(|content| content.0).unwrap_or_default();
            Ok(changes_result(&[FileContentChange { path: path.to_string(), before: Some(before), after: None }]))
        })
    }

    pub(crate) fn move_file(&self, arguments: &MoveFileArguments) -> Result<ToolResult, String> {
        let from = WorkspacePath::parse_for_change(&arguments.from)?;
        let to = WorkspacePath::parse_for_change(&arguments.to)?;
        self.workspace.with_write_lock(|| {
            let content = self.read_current(&from)?.ok_or_else(|| missing_file_message(&from))?;
            if self.metadata(&to)?.is_some() {
                return Err(format!("`{to}` exists already; delete it first, or choose another path"));
            }
            self.workspace.root.rename(&from, &to).map_err(|error| file_error_message("moved", &from, &error))?;
            let known = self.state.last_read_digest(&self.reader, from.as_str())?;
            self.state.set_last_read(&self.reader, to.as_str(), known.as_deref())?;
            self.state.set_last_read(&self.reader, from.as_str(), None)?;
            Ok(changes_result(&[
                FileContentChange { path: from.to_string(), before: Some(content.0.clone()), after: None },
                FileContentChange { path: to.to_string(), before: None, after: Some(content.0) },
            ]))
        })
    }

    fn apply_write(
        &self,
        path: &WorkspacePath,
        before: Option<Vec<u8>>,
        after: Vec<u8>,
        record: AgentFileReadStateOnWrite,
    ) -> Result<ToolResult, String> {
        if after.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("the content has {} bytes; the limit is {FILE_BYTES_MAX}", after.len()));
        }
        let digest = digest_of_bytes(&after);
        if before.as_ref() == Some(&after) {
            self.state.set_last_read(&self.reader, path.as_str(), Some(&digest))?;
            return Ok(result_with_value(format!("`{path}` already has this content"), &FileChangesResult::default()));
        }
        self.workspace.root.write(path, &after, None).map_err(|error| file_error_message("written", path, &error))?;
        if record == AgentFileReadStateOnWrite::Update {
            self.state.set_last_read(&self.reader, path.as_str(), Some(&digest))?;
        }
        Ok(changes_result(&[FileContentChange { path: path.to_string(), before, after: Some(after) }]))
    }

    /// Refuses a change of a content that the agent has not read.
    fn check_content_was_read(&self, path: &WorkspacePath, current: &FileContent, verb: &str) -> Result<(), String> {
        match self.state.last_read_digest(&self.reader, path.as_str())? {
            Some(known) if known == current.digest() => Ok(()),
            Some(_) => Err(format!("`{path}` was not {verb}: it has changed since you read it; read it again first")),
            None => Err(format!("`{path}` was not {verb}: it exists and you have not read it; read it first")),
        }
    }

    fn metadata(&self, path: &WorkspacePath) -> Result<Option<cap_std::fs::Metadata>, String> {
        self.workspace.root.metadata(path).map_err(|error| file_error_message("examined", path, &error))
    }

    fn read_existing(&self, path: &WorkspacePath) -> Result<FileContent, String> {
        self.workspace.root.read(path).map_err(|error| match is_missing(&error) {
            true => missing_file_message(path),
            false => file_error_message("read", path, &error),
        })
    }

    /// Reads a regular file that is about to be changed; `None` if there is none.
    fn read_current(&self, path: &WorkspacePath) -> Result<Option<FileContent>, String> {
        match self.metadata(path)? {
            None => Ok(None),
            Some(metadata) if metadata.is_symlink() => {
                Err(format!("`{path}` is a link; change the file to which it points"))
            }
            Some(_) => self.read_existing(path).map(Some),
        }
    }
}

/// Whether a write changes what the agent is known to have read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentFileReadStateOnWrite {
    Update,
    Keep,
}

/// Returns a result that describes the changes, with their diffs as artifacts.
pub(crate) fn changes_result(changes: &[FileContentChange]) -> ToolResult {
    let diffed: Vec<_> = changes.iter().map(diff_change).collect();
    let lines: Vec<String> = diffed.iter().map(|diffed| describe_change(&diffed.change)).collect();
    let changes = FileChangesResult { changes: diffed.iter().map(|diffed| diffed.change.clone()).collect() };
    ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(lines.join("\n"), &changes) }
}

/// Returns a successful result with a structured value.
pub(crate) fn result_with_value(text: impl Into<String>, value: &impl Serialize) -> ToolResult {
    ToolResult { value: serde_json::to_value(value).ok(), ..ToolResult::done(text) }
}

fn missing_file_message(path: &WorkspacePath) -> String {
    format!("there is no file `{path}`; `list_files` shows which there are")
}

fn file_error_message(verb: &str, path: &WorkspacePath, error: &io::Error) -> String {
    let why = match error.kind() {
        // This is what an access that leads out of the folder fails with.
        io::ErrorKind::PermissionDenied => "access denied, or a link leads out of the workspace".to_owned(),
        io::ErrorKind::CrossesDevices => "a link leads out of the workspace".to_owned(),
        _ => error.to_string(),
    };
    format!("`{path}` cannot be {verb}: {why}")
}
