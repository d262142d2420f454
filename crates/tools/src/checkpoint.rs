//! Checkpoints: the content of a workspace at one time, stored outside of it by content. Equal contents are stored once.
//!
//! Excluded files are not part of a checkpoint, and restoring leaves them alone.

use segue_core::tool::ToolResult;
use segue_flows::workspace_tools::{
    CreateCheckpointArguments, CreateCheckpointResult, DiffCheckpointArguments, FileChange, FileChangesResult,
    RestoreCheckpointArguments, RestoreCheckpointResult,
};

use crate::confined_folder::ConfinedFolder;
use crate::content::digest_of_bytes;
use crate::file_diff::{DiffedFileChange, FileContentChange, cut_text, describe_change, diff_artifacts, diff_change};
use crate::file_tools::result_with_value;
use crate::limits::{CHECKPOINT_FILE_BYTES_MAX, CHECKPOINT_LABEL_BYTES_MAX, DIFF_TEXT_BYTES_MAX, LISTED_CHANGES_MAX};
use crate::scan::{FileManifest, FileManifestEntry, scan_manifest};
use crate::state::WorkspaceStateDatabase;
use crate::workspace::OpenWorkspace;
use crate::workspace_path::WorkspacePath;

/// A checkpoint that was just created or loaded.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceCheckpoint {
    pub id: String,
    pub manifest: FileManifest,
}

/// Stores the current content of a workspace.
pub(crate) fn save_checkpoint(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    label: &str,
) -> Result<WorkspaceCheckpoint, String> {
    let mut manifest = scan_manifest(&workspace.root)?;
    let mut new_files = Vec::new();
    for (path, entry) in &mut manifest.files {
        if entry.bytes > CHECKPOINT_FILE_BYTES_MAX || state.has_file(&entry.digest)? {
            continue;
        }
        // A file that changed since the scan is stored as it is now. One that is gone keeps its digest, without a content.
        let Ok(content) = workspace.root.read_entry(path, entry.mode) else { continue };
        entry.digest = digest_of_bytes(&content);
        entry.bytes = content.len() as u64;
        new_files.push((entry.digest.clone(), content));
    }
    let label = &label[..label.floor_char_boundary(CHECKPOINT_LABEL_BYTES_MAX)];
    let id = state.save_checkpoint(&workspace.name, label, &manifest, &new_files)?;
    Ok(WorkspaceCheckpoint { id, manifest })
}

pub(crate) fn create_checkpoint(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    arguments: &CreateCheckpointArguments,
) -> Result<ToolResult, String> {
    let WorkspaceCheckpoint { id, manifest } = save_checkpoint(workspace, state, &arguments.label)?;
    let files = manifest.files.len() as u64;
    let created = CreateCheckpointResult { checkpoint: id, files, bytes: manifest.bytes() };
    Ok(result_with_value(format!("checkpoint {} of {files} files", created.checkpoint), &created))
}

pub(crate) fn restore_checkpoint(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    arguments: &RestoreCheckpointArguments,
) -> Result<ToolResult, String> {
    let target = state.load_checkpoint(&workspace.name, &arguments.checkpoint)?;
    workspace.with_write_lock(|| {
        let previous = save_checkpoint(workspace, state, "before a restore")?;
        let diffed = diff_manifests(state, &previous.manifest, &target, UnstoredFileContentSource::None)?;
        apply_manifest(workspace, state, &previous.manifest, &target)?;
        let restored = RestoreCheckpointResult {
            checkpoint: arguments.checkpoint.clone(),
            previous: previous.id,
            changes: listed_changes(&diffed),
        };
        let text = format!("restored checkpoint {}\n{}", arguments.checkpoint, describe_changes(&diffed));
        Ok(ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(text, &restored) })
    })
}

pub(crate) fn diff_checkpoint(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    arguments: &DiffCheckpointArguments,
) -> Result<ToolResult, String> {
    let from = state.load_checkpoint(&workspace.name, &arguments.from)?;
    let diffed = match &arguments.to {
        Some(to) => {
            diff_manifests(state, &from, &state.load_checkpoint(&workspace.name, to)?, UnstoredFileContentSource::None)?
        }
        None => diff_manifests(
            state,
            &from,
            &scan_manifest(&workspace.root)?,
            UnstoredFileContentSource::In(&workspace.root),
        )?,
    };
    let mut text = describe_changes(&diffed);
    for change in &diffed {
        if text.len() > DIFF_TEXT_BYTES_MAX {
            break;
        }
        text.push_str(&change.diff);
    }
    cut_text(&mut text, DIFF_TEXT_BYTES_MAX);
    let changes = FileChangesResult { changes: listed_changes(&diffed) };
    Ok(ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(text, &changes) })
}

/// Changes the files of a workspace from one manifest to another.
pub(crate) fn apply_manifest(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    current: &FileManifest,
    target: &FileManifest,
) -> Result<(), String> {
    // Deletions first: a file can take the place of a folder.
    for path in current.files.keys().filter(|path| !target.files.contains_key(*path)) {
        let path = WorkspacePath::parse(path)?;
        workspace.root.remove(&path).map_err(|error| format!("`{path}` cannot be deleted: {error}"))?;
    }
    for (path, entry) in &target.files {
        if current.files.get(path).is_some_and(|found| found.digest == entry.digest && found.mode == entry.mode) {
            continue;
        }
        let content = state.load_file(&entry.digest)?;
        let content = content.ok_or_else(|| format!("`{path}` cannot be restored: it was too large to be stored"))?;
        let path = WorkspacePath::parse(path)?;
        workspace
            .root
            .write_entry(&path, &content, entry.mode)
            .map_err(|error| format!("`{path}` cannot be restored: {error}"))?;
    }
    Ok(())
}

/// Where contents are found that are not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnstoredFileContentSource<'t> {
    In(&'t ConfinedFolder),
    None,
}

/// Compares two manifests file by file. A content that is not available is shown as empty.
pub(crate) fn diff_manifests(
    state: &WorkspaceStateDatabase,
    from: &FileManifest,
    to: &FileManifest,
    current: UnstoredFileContentSource<'_>,
) -> Result<Vec<DiffedFileChange>, String> {
    let content = |path: &str, entry: &FileManifestEntry| -> Result<Vec<u8>, String> {
        if let Some(stored) = state.load_file(&entry.digest)? {
            return Ok(stored);
        }
        Ok(match current {
            UnstoredFileContentSource::In(root) => root.read_entry(path, entry.mode).unwrap_or_default(),
            UnstoredFileContentSource::None => Vec::new(),
        })
    };
    let mut diffed = Vec::new();
    for change in from.changes_to(to) {
        let path = change.path;
        let before = from.files.get(&path).map(|entry| content(&path, entry)).transpose()?;
        let after = to.files.get(&path).map(|entry| content(&path, entry)).transpose()?;
        diffed.push(diff_change(&FileContentChange { path, before, after }));
    }
    Ok(diffed)
}

/// Returns the changes for a result, without those beyond the limit.
pub(crate) fn listed_changes(diffed: &[DiffedFileChange]) -> Vec<FileChange> {
    diffed.iter().take(LISTED_CHANGES_MAX).map(|diffed| diffed.change.clone()).collect()
}

/// Describes changes, one on each line.
pub(crate) fn describe_changes(diffed: &[DiffedFileChange]) -> String {
    if diffed.is_empty() {
        return "no files changed\n".to_owned();
    }
    let mut text: String =
        diffed.iter().take(LISTED_CHANGES_MAX).map(|diffed| format!("{}\n", describe_change(&diffed.change))).collect();
    if diffed.len() > LISTED_CHANGES_MAX {
        text.push_str(&format!("… and {} more\n", diffed.len() - LISTED_CHANGES_MAX));
    }
    text
}
