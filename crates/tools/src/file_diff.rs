//! Compares contents of files, for people (artifacts), models (text) and flows (counts of lines).

use segue_core::tool::{ToolArtifact, ToolArtifactKind};
use segue_flows::workspace_tools::{FileChange, FileChangeKind};

use crate::content::text_of_bytes;
use crate::limits::{DIFF_ARTIFACTS_MAX, DIFF_BYTES_MAX, DIFF_INPUT_BYTES_MAX};

/// A change of one file with both contents, if they are known.
#[derive(Debug, Clone)]
pub(crate) struct FileContentChange {
    pub path: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

/// A change as a result reports it, and its unified diff.
#[derive(Debug, Clone)]
pub(crate) struct DiffedFileChange {
    pub change: FileChange,
    pub diff: String,
}

/// Compares both contents line by line.
pub(crate) fn diff_change(change: &FileContentChange) -> DiffedFileChange {
    let FileContentChange { path, before, after } = change;
    let kind = match (before, after) {
        (None, _) => FileChangeKind::Created,
        (_, None) => FileChangeKind::Deleted,
        (Some(_), Some(_)) => FileChangeKind::Modified,
    };
    let unchanged = |note: &str| DiffedFileChange {
        change: FileChange { path: path.clone(), kind, lines_added: 0, lines_removed: 0 },
        diff: format!("--- {path}\n+++ {path}\n({note})\n"),
    };
    let (before, after) = (before.as_deref().unwrap_or_default(), after.as_deref().unwrap_or_default());
    let (Some(old), Some(new)) = (text_of_bytes(before), text_of_bytes(after)) else {
        return unchanged(&format!("binary: {} bytes before, {} bytes after", before.len(), after.len()));
    };
    if old.len() + new.len() > DIFF_INPUT_BYTES_MAX {
        return unchanged(&format!("too large to compare: {} bytes before, {} bytes after", old.len(), new.len()));
    }
    let mut options = diffy::DiffOptions::new();
    let name = |exists: bool| if exists { path.clone() } else { "/dev/null".to_owned() };
    options.set_original_filename(name(kind != FileChangeKind::Created));
    options.set_modified_filename(name(kind != FileChangeKind::Deleted));
    let patch = options.create_patch(old, new);
    let (mut lines_added, mut lines_removed) = (0, 0);
    for line in patch.hunks().iter().flat_map(|hunk| hunk.lines()) {
        match line {
            diffy::Line::Insert(_) => lines_added += 1,
            diffy::Line::Delete(_) => lines_removed += 1,
            diffy::Line::Context(_) => {}
        }
    }
    let mut diff = patch.to_string();
    cut_text(&mut diff, DIFF_BYTES_MAX);
    DiffedFileChange { change: FileChange { path: path.clone(), kind, lines_added, lines_removed }, diff }
}

/// Returns one artifact for each change; the last one combines all that are too many.
pub(crate) fn diff_artifacts(changes: &[DiffedFileChange]) -> Vec<ToolArtifact> {
    let artifact = |name: String, text: String| ToolArtifact {
        kind: ToolArtifactKind::Diff,
        name,
        media_type: "text/x-diff".to_owned(),
        text,
    };
    let own = if changes.len() > DIFF_ARTIFACTS_MAX { DIFF_ARTIFACTS_MAX - 1 } else { changes.len() };
    let mut artifacts: Vec<ToolArtifact> =
        changes[..own].iter().map(|change| artifact(change.change.path.clone(), change.diff.clone())).collect();
    if let rest @ [_, ..] = &changes[own..] {
        let mut text: String = rest.iter().map(|change| change.diff.as_str()).collect();
        cut_text(&mut text, DIFF_BYTES_MAX);
        artifacts.push(artifact(format!("{} further files", rest.len()), text));
    }
    artifacts
}

/// Describes a change on one line, such as `M src/main.rs (+3 -1)`.
pub(crate) fn describe_change(change: &FileChange) -> String {
    let letter = match change.kind {
        FileChangeKind::Created => 'A',
        FileChangeKind::Modified => 'M',
        FileChangeKind::Deleted => 'D',
    };
    format!("{letter} {} (+{} -{})", change.path, change.lines_added, change.lines_removed)
}

/// Cuts a text to a length in bytes, and marks the cut.
pub(crate) fn cut_text(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str("\n(cut)\n");
    }
}
