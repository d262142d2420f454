//! Paths of files in a workspace, as models and flows write them.

use crate::limits::PATH_BYTES_MAX;

/// A relative path without `.` and `..`, with `/` between its parts.
///
/// This check gives clear errors. What keeps an access inside the workspace is [`crate::confined_folder::ConfinedFolder`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkspacePath(String);

/// Folders of version control. A changed hook or configuration would be executed outside of the sandbox.
const PROTECTED_FOLDERS: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

impl WorkspacePath {
    /// Parses a path to read from.
    pub(crate) fn parse(path: &str) -> Result<Self, String> {
        let shown = || path.chars().take(80).flat_map(char::escape_debug).collect::<String>();
        if path.len() > PATH_BYTES_MAX {
            return Err(format!("the path has {} bytes; at most {PATH_BYTES_MAX} are allowed", path.len()));
        }
        if path.chars().any(char::is_control) {
            return Err(format!("the path `{}` contains a control character", shown()));
        }
        if path.starts_with('/') || path.starts_with('~') || path.contains('\\') || path.get(1..3) == Some(":/") {
            return Err(format!(
                "the path `{}` is not relative to the workspace folder; write it like `src/main.rs`",
                shown()
            ));
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(format!("the path `{}` contains `..`; only files inside the workspace can be used", shown()));
        }
        if parts.is_empty() {
            return Err("the path is empty; give the path of a file, like `src/main.rs`".to_owned());
        }
        Ok(Self(parts.join("/")))
    }

    /// Parses a path of a folder; `None` is the workspace folder itself.
    pub(crate) fn parse_folder(path: Option<&str>) -> Result<Option<Self>, String> {
        match path.map(str::trim) {
            None | Some("" | "." | "./" | "/") => Ok(None),
            Some(path) => Self::parse(path).map(Some),
        }
    }

    /// Parses a path to write to.
    pub(crate) fn parse_for_change(path: &str) -> Result<Self, String> {
        let path = Self::parse(path)?;
        let protected = |part: &&str| PROTECTED_FOLDERS.iter().any(|folder| folder.eq_ignore_ascii_case(part));
        if let Some(folder) = path.0.split('/').find(protected) {
            return Err(format!("files below `{folder}` cannot be changed by tools"));
        }
        Ok(path)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the folder and the name of the file.
    pub(crate) fn split_folder_and_name(&self) -> (Option<&str>, &str) {
        match self.0.rsplit_once('/') {
            Some((folder, name)) => (Some(folder), name),
            None => (None, &self.0),
        }
    }
}

impl std::fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised() {
        for (given, expected) in [("a", "a"), ("./a//b/", "a/b"), ("a/./b", "a/b"), ("a b/ü.rs", "a b/ü.rs")] {
            assert_eq!(WorkspacePath::parse(given).map(|path| path.0), Ok(expected.to_owned()), "{given}");
        }
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in
            ["/etc/passwd", "../a", "a/../../b", "a/..", "~/.ssh/id", "C:/a", "a\\..\\b", "", ".", "a\0b", "a\nb"]
        {
            assert!(WorkspacePath::parse(path).is_err(), "{path:?}");
        }
        assert!(WorkspacePath::parse(&"a/".repeat(600)).is_err());
    }

    #[test]
    fn hooks_of_version_control_cannot_be_changed() {
        for path in [".git/hooks/pre-commit", "sub/.GIT/config", ".jj/a"] {
            assert!(WorkspacePath::parse(path).is_ok(), "{path}");
            assert!(WorkspacePath::parse_for_change(path).is_err(), "{path}");
        }
        assert!(WorkspacePath::parse_for_change(".gitignore").is_ok());
    }
}
