//! Isolated copies of a workspace, for agents that work in parallel, and merging them.
//!
//! A copy contains the files that a checkpoint would contain. A merge applies what changed in the copy since it was made. A file that
//! was changed on both sides is merged line by line; if that is not possible, it is reported and left as it is.

use segue_core::tool::ToolResult;
use segue_engine::tools::ToolInvocation;
use segue_flows::workspace_tools::{
    CreateWorkspaceCopyArguments, CreateWorkspaceCopyResult, FileChangeKind, MergeConflict,
    MergeWorkspaceCopyArguments, MergeWorkspaceCopyResult, RemoveWorkspaceCopyArguments,
};

use crate::checkpoint::{
    UnstoredFileContentSource, apply_manifest, describe_changes, diff_manifests, listed_changes, save_checkpoint,
};
use crate::confined_folder::ConfinedFolder;
use crate::content::{digest_of_bytes, text_of_bytes};
use crate::file_diff::{cut_text, diff_artifacts};
use crate::file_tools::result_with_value;
use crate::limits::{CONFLICT_TEXT_BYTES_MAX, CONFLICT_TEXTS_MAX, COPY_NAME_BYTES_MAX, DIFF_INPUT_BYTES_MAX};
use crate::scan::{FileManifest, FileManifestEntry, scan_manifest};
use crate::state::{WorkspaceCopyRecord, WorkspaceStateDatabase, create_private_folder};
use crate::workspace::{OpenWorkspace, copy_folder};
use crate::workspace_path::WorkspacePath;

pub(crate) fn create_copy(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    request: &ToolInvocation,
    arguments: &CreateWorkspaceCopyArguments,
) -> Result<ToolResult, String> {
    let name = full_copy_name(request, &arguments.name)?;
    // A repeated request finds the copy of the first one.
    let found = state.find_copy(&workspace.name, &workspace.owner, &name)?;
    let copy = match found {
        Some(copy) => copy,
        None => workspace.with_write_lock(|| make_copy(workspace, state, name))?,
    };
    let created = CreateWorkspaceCopyResult { copy: copy.name, checkpoint: copy.base };
    Ok(result_with_value(format!("copy `{}` of the workspace `{}`", created.copy, workspace.name), &created))
}

fn make_copy(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    name: String,
) -> Result<WorkspaceCopyRecord, String> {
    let base = save_checkpoint(workspace, state, &format!("copied as {name}"))?;
    let folder = copy_folder(state, &workspace.name, &name);
    let failed = |error: std::io::Error| format!("the copy `{name}` cannot be created: {error}");
    // An interrupted attempt may have left a part of the copy.
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    create_private_folder(&folder).map_err(failed)?;
    let target = workspace.clone().with_copy(&name, ConfinedFolder::open(&folder).map_err(failed)?);
    apply_manifest(&target, state, &FileManifest::default(), &base.manifest)?;
    let copy = WorkspaceCopyRecord { name, base: base.id };
    state.add_copy(&workspace.name, &workspace.owner, &copy)?;
    Ok(copy)
}

/// Opens the copy of the agent that requested a run, if its session has made one for it. Several agents of a session that
/// change files at the same time have a copy each, with the name of the agent.
pub(crate) fn open_agent_copy(
    workspace: OpenWorkspace,
    state: &WorkspaceStateDatabase,
    request: &ToolInvocation,
) -> Result<OpenWorkspace, String> {
    let agent = request.opened.agent.as_ref().filter(|_| request.opened.requested_by.is_some());
    // An agent whose name is not that of a copy has none.
    let Some(Ok(name)) = agent.map(|agent| full_copy_name(request, agent.as_str())) else { return Ok(workspace) };
    match state.find_copy(&workspace.name, &workspace.owner, &name)? {
        Some(copy) => {
            let root = ConfinedFolder::open(&copy_folder(state, &workspace.name, &copy.name))
                .map_err(|error| format!("the copy `{name}` cannot be opened: {error}"))?;
            Ok(workspace.with_copy(&name, root))
        }
        None => Ok(workspace),
    }
}

/// Returns the name of a copy that no other session uses.
fn full_copy_name(request: &ToolInvocation, name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > COPY_NAME_BYTES_MAX || !name.chars().all(is_allowed) {
        return Err(format!(
            "the name of a copy has 1 to {COPY_NAME_BYTES_MAX} lower-case letters, digits and hyphens, not `{name}`"
        ));
    }
    let origin = format!("{}\0{}\0{name}", request.session, request.session_opened_at.0);
    Ok(format!("{name}-{}", &digest_of_bytes(origin.as_bytes())[..12]))
}

pub(crate) fn remove_copy(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    arguments: &RemoveWorkspaceCopyArguments,
) -> Result<ToolResult, String> {
    if let Some(copy) = state.find_copy(&workspace.name, &workspace.owner, &arguments.copy)? {
        // Without its record the copy is not used any more, even if a part of its folder stays.
        state.remove_copy(&workspace.name, &copy.name)?;
        match std::fs::remove_dir_all(copy_folder(state, &workspace.name, &copy.name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("the folder of the copy `{}` cannot be removed: {error}", copy.name));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(ToolResult::done(format!("the copy `{}` is removed", arguments.copy)))
}

pub(crate) fn merge_copy(
    workspace: &OpenWorkspace,
    state: &WorkspaceStateDatabase,
    arguments: &MergeWorkspaceCopyArguments,
) -> Result<ToolResult, String> {
    let copy = state.find_copy(&workspace.name, &workspace.owner, &arguments.copy)?;
    let copy = copy.ok_or_else(|| format!("the workspace `{}` has no copy `{}`", workspace.name, arguments.copy))?;
    let base = state.load_checkpoint(&workspace.name, &copy.base)?;
    let folder = copy_folder(state, &workspace.name, &copy.name);
    let root = ConfinedFolder::open(&folder).map_err(|error| format!("the copy cannot be opened: {error}"))?;
    let theirs = scan_manifest(&root)?;
    workspace.with_write_lock(|| {
        let previous = save_checkpoint(workspace, state, &format!("before merging {}", copy.name))?;
        let merge = WorkspaceCopyMerger {
            workspace,
            state,
            copy: &root,
            base: &base,
            ours: &previous.manifest,
            theirs: &theirs,
        };
        let conflicts = merge.apply_copy_changes()?;
        let merged = scan_manifest(&workspace.root)?;
        let current = UnstoredFileContentSource::In(&workspace.root);
        let diffed = diff_manifests(state, &previous.manifest, &merged, current)?;
        let mut text = describe_changes(&diffed);
        for conflict in &conflicts {
            text.push_str(&format!("conflict in {}: {}\n", conflict.path, conflict.reason));
        }
        let copy_checkpoint = match conflicts.is_empty() {
            true => None,
            false => {
                let of_copy = workspace
                    .clone()
                    .with_copy(&copy.name, ConfinedFolder::open(&folder).map_err(|error| error.to_string())?);
                Some(save_checkpoint(&of_copy, state, &format!("{} before it was merged", copy.name))?.id)
            }
        };
        let result = MergeWorkspaceCopyResult {
            changes: listed_changes(&diffed),
            conflicts,
            content_digest: merged.digest(),
            previous: previous.id,
            copy_checkpoint,
        };
        Ok(ToolResult { artifacts: diff_artifacts(&diffed), ..result_with_value(text, &result) })
    })
}

struct WorkspaceCopyMerger<'t> {
    workspace: &'t OpenWorkspace,
    state: &'t WorkspaceStateDatabase,
    copy: &'t ConfinedFolder,
    base: &'t FileManifest,
    ours: &'t FileManifest,
    theirs: &'t FileManifest,
}

impl WorkspaceCopyMerger<'_> {
    /// Applies the changes of the copy, and returns the files that could not be merged.
    fn apply_copy_changes(&self) -> Result<Vec<MergeConflict>, String> {
        let mut conflicts: Vec<MergeConflict> = Vec::new();
        let mut changes = self.base.changes_to(self.theirs);
        // Deletions first: a file may have become a folder, or the reverse.
        changes.sort_by_key(|change| change.kind != FileChangeKind::Deleted);
        for change in changes {
            let path = change.path;
            let (base, ours, theirs) =
                (self.base.files.get(&path), self.ours.files.get(&path), self.theirs.files.get(&path));
            if is_same_entry(ours, theirs) {
                continue;
            }
            let merged =
                if is_same_entry(base, ours) { self.take_theirs(&path, theirs) } else { self.merge_file(&path) };
            if let Err(mut conflict) = merged? {
                if conflicts.iter().filter(|conflict| conflict.marked_text.is_some()).count() >= CONFLICT_TEXTS_MAX {
                    conflict.marked_text = None;
                }
                conflicts.push(conflict);
            }
        }
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(conflicts)
    }

    fn take_theirs(&self, path: &str, theirs: Option<&FileManifestEntry>) -> Result<Result<(), MergeConflict>, String> {
        let at = WorkspacePath::parse(path)?;
        let failed = |error: std::io::Error| format!("`{path}` cannot be merged: {error}");
        match theirs {
            // A file that the copy only ignores now was not deleted.
            None if self.copy.metadata(&at).map_err(failed)?.is_some() => {}
            None => self.workspace.root.remove(&at).map_err(failed)?,
            Some(entry) => {
                let content = self.copy.read_entry(path, entry.mode).map_err(failed)?;
                self.workspace.root.write_entry(&at, &content, entry.mode).map_err(failed)?;
            }
        }
        Ok(Ok(()))
    }

    /// Merges a file that both sides changed.
    fn merge_file(&self, path: &str) -> Result<Result<(), MergeConflict>, String> {
        let conflict = |reason: &str, marked_text: Option<String>| {
            Ok(Err(MergeConflict { path: path.to_owned(), reason: reason.to_owned(), marked_text }))
        };
        let (Some(ours), Some(theirs)) = (self.ours.files.get(path), self.theirs.files.get(path)) else {
            let is_deleted_here = !self.ours.files.contains_key(path);
            return match is_deleted_here {
                true => conflict("it was deleted in the workspace and changed in the copy", None),
                false => conflict("it was changed in the workspace and deleted in the copy", None),
            };
        };
        let read =
            |root: &ConfinedFolder, entry: &FileManifestEntry| root.read_entry(path, entry.mode).unwrap_or_default();
        let base = match self.base.files.get(path) {
            Some(entry) => self.state.load_file(&entry.digest)?.unwrap_or_default(),
            None => Vec::new(),
        };
        let (ours_content, theirs_content) = (read(&self.workspace.root, ours), read(self.copy, theirs));
        let texts = (text_of_bytes(&base), text_of_bytes(&ours_content), text_of_bytes(&theirs_content));
        let (Some(base), Some(ours_text), Some(theirs_text)) = texts else {
            return conflict("both sides changed this binary file", None);
        };
        if base.len() + ours_text.len() + theirs_text.len() > DIFF_INPUT_BYTES_MAX {
            return conflict("both sides changed this file, which is too large to merge", None);
        }
        match diffy::merge(base, ours_text, theirs_text) {
            Ok(merged) => {
                let at = WorkspacePath::parse(path)?;
                let written = self.workspace.root.write(&at, merged.as_bytes(), None);
                written.map_err(|error| format!("`{path}` cannot be merged: {error}"))?;
                Ok(Ok(()))
            }
            Err(mut marked) => {
                cut_text(&mut marked, CONFLICT_TEXT_BYTES_MAX);
                conflict("both sides changed the same lines", Some(marked))
            }
        }
    }
}

fn is_same_entry(a: Option<&FileManifestEntry>, b: Option<&FileManifestEntry>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.digest == b.digest && a.mode == b.mode,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
