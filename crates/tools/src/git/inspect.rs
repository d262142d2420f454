//! Looks at a repository before any work starts: what the work is based on, and what will not work.

use std::path::Path;

use segue_flows::team::repository_tools::RepositoryToolResult;

use super::TeamRepository;
use super::command::{git, git_succeeds, resolve_commit};
use crate::limits::{GIT_DISK_SPACE_KIB_MIN, GIT_FILE_BYTES_MAX};

impl TeamRepository {
    /// Looks at the repository and creates the integration branch, unless it exists.
    pub(crate) fn inspect_and_create_integration(&self, knowledge_file: &str) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| self.inspect_locked(knowledge_file))
    }

    fn inspect_locked(&self, knowledge_file: &str) -> Result<RepositoryToolResult, String> {
        let folder = &self.folder;
        if !git_succeeds(folder, ["rev-parse", "--git-dir"]) {
            return Err(format!(
                "`{}` is not a git repository; run `git init` and commit your files",
                folder.display()
            ));
        }
        let Some(head) = resolve_commit(folder, "HEAD") else {
            return Err("the repository has no commits; commit something first, so that the work has a base".to_owned());
        };
        self.check_disk_space()?;
        let mut warnings = Vec::new();
        let branch = git(folder, ["symbolic-ref", "--short", "--quiet", "HEAD"]).ok();
        if branch.is_none() {
            warnings.push(
                "the repository is not on a branch; the work is based on the commit that is checked out".to_owned(),
            );
        }
        let is_bare = git(folder, ["rev-parse", "--is-bare-repository"])? == "true";
        if !is_bare && !git(folder, ["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            warnings.push("your uncommitted changes are not part of the base".to_owned());
        }
        if git(folder, ["rev-parse", "--is-shallow-repository"])? == "true" {
            warnings.push("the repository is shallow; its older history is missing".to_owned());
        }
        if git_succeeds(folder, ["cat-file", "-e", &format!("{head}:.gitmodules")]) {
            warnings.push("the repository has submodules; they are initialised in each worktree".to_owned());
        }
        check_large_files(folder, &head)?;
        let base = self.create_integration_branch(&head)?;
        let file_at = |commit: &str, path: &str| -> Option<String> {
            let name = format!("{commit}:{path}");
            let bytes: usize = git(folder, ["cat-file", "-s", &name]).ok()?.parse().ok()?;
            (bytes <= GIT_FILE_BYTES_MAX).then(|| git(folder, ["show", &name]).ok()).flatten()
        };
        let integration = self.integration_branch();
        Ok(RepositoryToolResult {
            knowledge: file_at(&integration, knowledge_file),
            instructions: file_at(&base, "AGENTS.md"),
            base,
            branch,
            integration,
            warnings,
            ..RepositoryToolResult::default()
        })
    }

    /// Creates the integration branch at `head`. Returns the commit on which it was based when it was created.
    fn create_integration_branch(&self, head: &str) -> Result<String, String> {
        let base_ref = format!("refs/segue/base/{}", self.spec);
        let integration = self.integration_ref();
        if let (Some(base), Some(_)) =
            (resolve_commit(&self.folder, &base_ref), resolve_commit(&self.folder, &integration))
        {
            return Ok(base);
        }
        if resolve_commit(&self.folder, &integration).is_some() {
            let name = self.integration_branch();
            return Err(format!("the branch `{name}` exists already, but not from this team; rename it or the spec"));
        }
        git(&self.folder, ["update-ref", &base_ref, head])?;
        git(&self.folder, ["update-ref", &integration, head, ""])?;
        Ok(head.to_owned())
    }

    fn check_disk_space(&self) -> Result<(), String> {
        std::fs::create_dir_all(&self.worktrees)
            .map_err(|error| format!("the folder for worktrees cannot be created: {error}"))?;
        let Some(free) = free_kib(&self.worktrees) else { return Ok(()) };
        if free < GIT_DISK_SPACE_KIB_MIN {
            let (free, needed) = (free / 1024, GIT_DISK_SPACE_KIB_MIN / 1024);
            return Err(format!(
                "only {free} MiB are free on the disk of the worktrees; at least {needed} MiB are needed"
            ));
        }
        Ok(())
    }
}

/// Returns the free space at a path, if `df` says it.
fn free_kib(path: &Path) -> Option<u64> {
    let output = std::process::Command::new("df").arg("-Pk").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

fn check_large_files(folder: &Path, head: &str) -> Result<(), String> {
    let attributes = git(folder, ["show", &format!("{head}:.gitattributes")]).unwrap_or_default();
    let uses_lfs = attributes.lines().any(|line| line.contains("filter=lfs"));
    if uses_lfs && !git_succeeds(folder, ["lfs", "version"]) {
        return Err("the repository uses Git LFS, which is not installed; install git-lfs and try again".to_owned());
    }
    Ok(())
}
