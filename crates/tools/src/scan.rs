//! Finds the files of a workspace: all below its folder, except those that version control would not track.
//!
//! Excluded are the rules in `.gitignore` and `.ignore`, the folders of version control (in a worktree, the file that
//! stands for it), a few folders that only contain what can be rebuilt, and each folder with a cache tag. Links are not followed. A file whose name is not valid UTF-8 is skipped.

use std::collections::BTreeMap;
use std::io;

use cap_std::fs::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use segue_flows::workspace_tools::{FileChange, FileChangeKind};
use serde::{Deserialize, Serialize};

use crate::confined_folder::{ConfinedFolder, FileMode, TEMPORARY_PREFIX, open_regular_file, read_regular_file};
use crate::content::{digest_of_bytes, short_hex};
use crate::limits::{FOLDER_DEPTH_MAX, IGNORE_FILE_BYTES_MAX, WORKSPACE_BYTES_MAX, WORKSPACE_FILES_MAX};

/// Folders that are always excluded.
const EXCLUDED_FOLDERS: [&str; 9] =
    [".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache"];
/// What git itself writes: a folder, or in a worktree and a submodule a file.
const GIT_ENTRY: &str = ".git";
/// The file that marks a folder as a cache.
const CACHE_TAG: &str = "CACHEDIR.TAG";
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// A file that a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    pub path: String,
    pub bytes: u64,
    pub mode: FileMode,
}

/// The files of a workspace at one time, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct FileManifest {
    pub files: BTreeMap<String, FileManifestEntry>,
}

/// A file in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileManifestEntry {
    pub digest: String,
    pub bytes: u64,
    pub mode: FileMode,
}

impl FileManifest {
    /// Returns the digest of all paths, modes and contents.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (path, FileManifestEntry { digest, mode, .. }) in &self.files {
            hasher.update(format!("{path}\0{mode:?}\0{digest}\n").as_bytes());
        }
        short_hex(&hasher.finalize())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// Returns the changes from this manifest to a later one, without counts of lines.
    pub(crate) fn changes_to(&self, later: &Self) -> Vec<FileChange> {
        let paths = self.files.keys().chain(later.files.keys().filter(|path| !self.files.contains_key(*path)));
        let mut changes: Vec<FileChange> = paths
            .filter_map(|path| {
                let kind = match (self.files.get(path), later.files.get(path)) {
                    (None, Some(_)) => FileChangeKind::Created,
                    (Some(_), None) => FileChangeKind::Deleted,
                    (Some(old), Some(new)) if old.digest != new.digest || old.mode != new.mode => {
                        FileChangeKind::Modified
                    }
                    (Some(_), Some(_)) | (None, None) => return None,
                };
                Some(FileChange { path: path.clone(), kind, lines_added: 0, lines_removed: 0 })
            })
            .collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    }
}

/// Finds all files of a workspace, sorted by path.
pub(crate) fn find_files(root: &ConfinedFolder) -> Result<Vec<FoundFile>, String> {
    let mut scan = FileScan { files: Vec::new(), rules: Vec::new(), bytes: 0 };
    scan.visit(root.dir(), "").map_err(|error| match error {
        FileScanError::Io(error) => format!("the workspace cannot be read: {error}"),
        FileScanError::Limit(message) => message,
    })?;
    scan.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(scan.files)
}

/// Finds all files of a workspace with their digests.
pub(crate) fn scan_manifest(root: &ConfinedFolder) -> Result<FileManifest, String> {
    let mut manifest = FileManifest::default();
    for file in find_files(root)? {
        let digest = match digest_of_file(root, &file) {
            Ok(digest) => digest,
            // It was deleted or replaced since it was found.
            Err(_) => continue,
        };
        manifest.files.insert(file.path, FileManifestEntry { digest, bytes: file.bytes, mode: file.mode });
    }
    Ok(manifest)
}

fn digest_of_file(root: &ConfinedFolder, file: &FoundFile) -> io::Result<String> {
    if file.mode == FileMode::Link {
        return Ok(digest_of_bytes(&root.read_entry(&file.path, file.mode)?));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open_regular_file(root.dir(), &file.path)?.0)?;
    Ok(short_hex(&hasher.finalize()))
}

enum FileScanError {
    Io(io::Error),
    Limit(String),
}

struct FileScan {
    files: Vec<FoundFile>,
    /// The rules of the folders from the root to the current one.
    rules: Vec<Gitignore>,
    bytes: u64,
}

impl FileScan {
    fn visit(&mut self, folder: &Dir, path: &str) -> Result<(), FileScanError> {
        if self.rules.len() > FOLDER_DEPTH_MAX {
            return Err(FileScanError::Limit(format!(
                "`{path}` is nested too deeply; the limit is {FOLDER_DEPTH_MAX} folders"
            )));
        }
        if !path.is_empty() && folder.symlink_metadata(CACHE_TAG).is_ok_and(|tag| tag.is_file()) {
            return Ok(());
        }
        self.rules.push(read_ignore_rules(folder, path));
        for entry in folder.entries().map_err(FileScanError::Io)? {
            // An entry that vanished or cannot be examined is not a file of the workspace.
            let Ok(entry) = entry else { continue };
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(metadata) = folder.symlink_metadata(&name) else { continue };
            let entry_path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let is_skipped = name == GIT_ENTRY
                || name.starts_with(TEMPORARY_PREFIX)
                || self.is_ignored(&entry_path, metadata.is_dir());
            if metadata.is_dir() {
                if is_skipped || EXCLUDED_FOLDERS.contains(&name.as_str()) {
                    continue;
                }
                // Does not follow a link that has replaced the folder: it could lead to the folder itself.
                let Ok(inner) = folder.open_dir(&name) else { continue };
                if inner.dir_metadata().is_ok_and(|opened| is_same_file(&opened, &metadata)) {
                    self.visit(&inner, &entry_path)?;
                }
            } else if (metadata.is_file() || metadata.is_symlink()) && !is_skipped {
                self.add_file(FoundFile {
                    path: entry_path,
                    bytes: metadata.len(),
                    mode: FileMode::from_metadata(&metadata),
                })?;
            }
        }
        self.rules.pop();
        Ok(())
    }

    fn add_file(&mut self, file: FoundFile) -> Result<(), FileScanError> {
        self.bytes = self.bytes.saturating_add(file.bytes);
        self.files.push(file);
        let hint = "exclude what can be rebuilt in `.gitignore`";
        if self.files.len() > WORKSPACE_FILES_MAX {
            return Err(FileScanError::Limit(format!(
                "the workspace has more than {WORKSPACE_FILES_MAX} files; {hint}"
            )));
        }
        if self.bytes > WORKSPACE_BYTES_MAX {
            let most = WORKSPACE_BYTES_MAX / 1024 / 1024;
            return Err(FileScanError::Limit(format!("the files of the workspace have more than {most} MB; {hint}")));
        }
        Ok(())
    }

    /// Whether the rules exclude a path. The innermost rule that names it decides.
    fn is_ignored(&self, path: &str, is_folder: bool) -> bool {
        let ruling = self.rules.iter().rev().map(|rules| rules.matched(path, is_folder)).find(|found| !found.is_none());
        matches!(ruling, Some(Match::Ignore(_)))
    }
}

fn is_same_file(a: &cap_std::fs::Metadata, b: &cap_std::fs::Metadata) -> bool {
    use cap_std::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Reads the rules of one folder. A rule that is not valid is skipped, as Git does.
fn read_ignore_rules(folder: &Dir, path: &str) -> Gitignore {
    let mut rules = GitignoreBuilder::new(path);
    for file in IGNORE_FILES {
        let Ok(content) = read_regular_file(folder, file, IGNORE_FILE_BYTES_MAX) else { continue };
        for line in String::from_utf8_lossy(&content).lines() {
            let _ = rules.add_line(None, line);
        }
    }
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}
