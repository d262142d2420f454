//! The files of a checkout in memory. Rules read this value instead of the disk, so that tests can use small checkouts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::rust_source::ParsedRustSource;

/// All files of a checkout.
pub(crate) struct SourceTree {
    /// The texts by path, relative to the root and with `/` on every system; `None` if a file is not UTF-8.
    files: BTreeMap<String, Option<String>>,
    rust_files: Vec<ParsedRustFile>,
}

/// A parsed Rust file.
pub(crate) struct ParsedRustFile {
    /// The path, relative to the root.
    pub path: String,
    pub source: ParsedRustSource,
    pub purpose: FilePurpose,
}

/// Whether a Rust file is production code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FilePurpose {
    /// A part of a program or library.
    Production,
    /// Compiled for tests, benchmarks or examples only.
    Test,
}

/// Folders that are skipped if there is no git.
const IGNORED_FOLDERS: [&str; 3] = [".git", "target", "node_modules"];

impl SourceTree {
    /// Reads all files that git tracks or does not ignore; without git, all files.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let paths = match list_git_paths(root) {
            Some(paths) => paths,
            None => walk_paths(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            // A tracked file may have been deleted.
            if let Ok(bytes) = std::fs::read(root.join(&path)) {
                files.insert(path, String::from_utf8(bytes).ok());
            }
        }
        Ok(Self::new(files))
    }

    /// Returns a checkout with these paths and texts.
    #[cfg(test)]
    pub(crate) fn from_files(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect())
    }

    fn new(files: BTreeMap<String, Option<String>>) -> Self {
        let mut rust: Vec<ParsedRustFile> = files
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .filter_map(|(path, text)| {
                let source = ParsedRustSource::parse(text.as_deref()?);
                Some(ParsedRustFile { path: path.clone(), source, purpose: FilePurpose::Production })
            })
            .collect();
        let declared: BTreeSet<String> = rust.iter().flat_map(test_module_paths).collect();
        for file in &mut rust {
            if file.source.is_test_only || is_test_path(&file.path) || is_in_modules(&file.path, &declared) {
                file.purpose = FilePurpose::Test;
            }
        }
        Self { files, rust_files: rust }
    }

    pub(crate) fn file_text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns the paths and texts of all files that are UTF-8.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Whether a path is a file or a folder with files.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }

    pub(crate) fn rust_files(&self) -> &[ParsedRustFile] {
        &self.rust_files
    }

    /// Returns the Rust files that are production code.
    pub(crate) fn production_files(&self) -> impl Iterator<Item = &ParsedRustFile> {
        self.rust_files.iter().filter(|file| file.purpose == FilePurpose::Production)
    }
}

/// Returns the names of the folders between the root and a file.
pub(crate) fn parent_folders(path: &str) -> impl Iterator<Item = &str> {
    path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/')
}

fn is_test_path(path: &str) -> bool {
    parent_folders(path).any(|folder| ["tests", "benches", "examples"].contains(&folder))
}

/// Returns the paths, without `.rs`, of the modules that this file declares for tests only.
fn test_module_paths(file: &ParsedRustFile) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let home = match name {
        "lib.rs" | "main.rs" => folder.to_owned(),
        name => format!("{folder}/{}", name.trim_end_matches(".rs")),
    };
    file.source.test_modules.iter().map(|module| format!("{home}/{module}")).collect()
}

fn is_in_modules(path: &str, modules: &BTreeSet<String>) -> bool {
    let mut module = path.trim_end_matches(".rs");
    loop {
        if modules.contains(module) {
            return true;
        }
        match module.rsplit_once('/') {
            Some((parent, _)) => module = parent,
            None => return false,
        }
    }
}

fn list_git_paths(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    // A checkout inside another repository that ignores it has no files for git.
    (output.status.success() && paths.iter().any(|path| path == "Cargo.toml")).then_some(paths)
}

fn walk_paths(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder)).with_context(|| format!("`{folder}` cannot be read"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("`{folder}` cannot be read"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if IGNORED_FOLDERS.contains(&name.as_str()) {
                continue;
            }
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type().with_context(|| format!("`{path}` cannot be read"))?;
            if kind.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_declared_for_tests_are_not_production_code() {
        let tree = SourceTree::from_files(&[
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod check;\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/b/tests/more.rs", ""),
            ("crates/a/src/check.rs", ""),
            ("crates/a/src/checked.rs", ""),
            ("crates/a/tests/whole.rs", ""),
        ]);
        let production: Vec<&str> = tree.production_files().map(|file| file.path.as_str()).collect();
        assert_eq!(production, ["crates/a/src/b.rs", "crates/a/src/checked.rs", "crates/a/src/lib.rs"]);
    }

    #[test]
    fn a_folder_exists_if_it_has_a_file() {
        let tree = SourceTree::from_files(&[("docs/a/b.md", ""), ("docs/a.md", "")]);
        for path in ["docs", "docs/", "docs/a", "docs/a.md", "docs/a/b.md", ""] {
            assert!(tree.exists(path), "{path}");
        }
        for path in ["doc", "docs/b.md", "docs/a/b", "docs/a.m"] {
            assert!(!tree.exists(path), "{path}");
        }
    }

    #[test]
    fn walking_finds_the_tracked_files() {
        let root = crate::checkout::checkout_root();
        let walked = walk_paths(&root).expect("the checkout can be read");
        for path in ["Cargo.toml", "xtask/src/tidy/source_tree.rs"] {
            assert!(walked.iter().any(|found| found == path), "{path}");
        }
        assert!(!walked.iter().any(|path| path.starts_with(".git/") || path == ".git" || path.starts_with("target/")));
    }
}
