//! The integration branch: rebasing onto it, moving it to a commit, and merging it into a branch of the user.

use segue_flows::team::repository_tools::{RepositoryToolRequest, RepositoryToolResult};
use serde::{Deserialize, Serialize};

use super::TeamRepository;
use super::command::{git, git_paths, git_succeeds, resolve_commit};

/// A conflict that a rebase found. It is recorded before the worktree changes, so that a repetition finds it, too.
#[derive(Debug, Serialize, Deserialize)]
struct RecordedRebaseConflict {
    /// The commit that was rebased.
    commit: String,
    base: String,
    files: Vec<String>,
}

impl TeamRepository {
    /// Rebases the work of a story onto the integration branch. On a conflict the work is kept, and the worktree is set to
    /// the integration branch.
    pub(crate) fn rebase_onto_integration(
        &self,
        request: &RepositoryToolRequest,
    ) -> Result<(String, RepositoryToolResult), String> {
        self.with_repository_lock(|| {
            let folder = self.existing_worktree(&request.story)?;
            let head = self.integration_head()?;
            self.remove_own_lock(&folder);
            if let Some(conflict) = self.find_conflict(request) {
                // A crash interrupted what follows a conflict.
                return self.start_again_after_conflict(request, conflict);
            }
            if !git_succeeds(&folder, ["symbolic-ref", "--quiet", "HEAD"]) {
                // A crash interrupted an earlier rebase.
                git(&folder, ["rebase", "--abort"])?;
            }
            let base = git(&folder, ["merge-base", "HEAD", &head])?;
            if base != head {
                let rebased = git(&folder, ["rebase", "--quiet", "--no-autostash", "--onto", &head, &base]);
                if let Err(error) = rebased {
                    let files = git_paths(&folder, ["diff", "--name-only", "-z", "--diff-filter=U"])?;
                    git(&folder, ["rebase", "--abort"])?;
                    if files.is_empty() {
                        return Err(format!("the rebase failed: {error}"));
                    }
                    self.keep_worktree_content(&folder, &request.story)?;
                    let commit = request.commit.clone().unwrap_or_default();
                    let conflict = RecordedRebaseConflict { commit, base: head, files };
                    self.record_conflict(request, &conflict)?;
                    return self.start_again_after_conflict(request, conflict);
                }
            }
            self.describe_commit(&folder, &head)
        })
    }

    /// Sets the worktree to the new base. The work that conflicts was kept before.
    fn start_again_after_conflict(
        &self,
        request: &RepositoryToolRequest,
        conflict: RecordedRebaseConflict,
    ) -> Result<(String, RepositoryToolResult), String> {
        let folder = self.existing_worktree(&request.story)?;
        git(&folder, ["reset", "--hard", &conflict.base])?;
        git(&folder, ["clean", "-fd"])?;
        let RecordedRebaseConflict { base, files, .. } = conflict;
        Ok((String::new(), RepositoryToolResult { base, conflicts: true, files, ..RepositoryToolResult::default() }))
    }

    /// Returns the conflict of exactly this commit, if a rebase of it found one.
    fn find_conflict(&self, request: &RepositoryToolRequest) -> Option<RecordedRebaseConflict> {
        let text = std::fs::read_to_string(self.conflict_file(&request.story)).ok()?;
        let conflict: RecordedRebaseConflict = serde_json::from_str(&text).ok()?;
        (request.commit.as_ref() == Some(&conflict.commit)).then_some(conflict)
    }

    fn record_conflict(
        &self,
        request: &RepositoryToolRequest,
        conflict: &RecordedRebaseConflict,
    ) -> Result<(), String> {
        let text = serde_json::to_string(conflict).map_err(|error| error.to_string())?;
        let file = self.conflict_file(&request.story);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    fn conflict_file(&self, story: &str) -> std::path::PathBuf {
        self.worktrees.join(&self.spec).join(format!("{story}.conflict"))
    }

    /// Returns the worktree of a story, if it contains exactly this commit and nothing else.
    pub(crate) fn check_tested_commit(&self, story: &str, commit: &str) -> Result<std::path::PathBuf, String> {
        self.with_repository_lock(|| {
            let folder = self.existing_worktree(story)?;
            self.remove_own_lock(&folder);
            let head = git(&folder, ["rev-parse", "HEAD"])?;
            if head != commit {
                return Err(format!("the worktree is at {head}, but {commit} is to be tested"));
            }
            // What a test run left behind is not part of the commit; what was changed is.
            if !git(&folder, ["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
                git(&folder, ["checkout", "--quiet", "--force", "HEAD", "--", "."])?;
            }
            Ok(folder)
        })
    }

    /// Moves the integration branch forward to a commit that contains it.
    pub(crate) fn merge_into_integration(
        &self,
        request: &RepositoryToolRequest,
    ) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| {
            let commit = request.commit.clone().ok_or("no commit is given")?;
            let head = self.integration_head()?;
            let is_merged = git_succeeds(&self.folder, ["merge-base", "--is-ancestor", &commit, &head]);
            if !is_merged {
                if !git_succeeds(&self.folder, ["merge-base", "--is-ancestor", &head, &commit]) {
                    return Err("the integration branch has moved since the tests ran; rebase first".to_owned());
                }
                self.refuse_if_checked_out(&self.integration_ref())?;
                // The old value is compared, so nothing that another process merged is lost.
                git(&self.folder, ["update-ref", &self.integration_ref(), &commit, &head])?;
            }
            Ok(RepositoryToolResult { commit, ..RepositoryToolResult::default() })
        })
    }

    /// Merges the integration branch into a branch of the user that is not checked out anywhere.
    pub(crate) fn land_on_user_branch(&self, request: &RepositoryToolRequest) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| {
            let branch = request.branch.clone().ok_or("no branch is given")?;
            let name = user_branch_ref(&self.folder, &branch)?;
            self.refuse_if_checked_out(&name)?;
            let head = self.integration_head()?;
            let before = resolve_commit(&self.folder, &name);
            let commit = match &before {
                None => head,
                Some(old) if git_succeeds(&self.folder, ["merge-base", "--is-ancestor", &head, old]) => old.clone(),
                Some(old) if git_succeeds(&self.folder, ["merge-base", "--is-ancestor", old, &head]) => head,
                Some(old) => {
                    let tree = git(&self.folder, ["merge-tree", "--write-tree", old, &head]).map_err(|_| {
                        format!("`{branch}` and `{}` conflict; merge them yourself", self.integration_branch())
                    })?;
                    let message = format!("Merge {}", self.integration_branch());
                    git(&self.folder, ["commit-tree", &tree, "-p", old, "-p", &head, "-m", &message])?
                }
            };
            git(&self.folder, ["update-ref", &name, &commit, before.as_deref().unwrap_or("")])?;
            Ok(RepositoryToolResult { branch: Some(branch), commit, before, ..RepositoryToolResult::default() })
        })
    }

    /// Sets a branch of the user back to where it was before it was landed on.
    pub(crate) fn undo_landing(&self, request: &RepositoryToolRequest) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| {
            let branch = request.branch.clone().ok_or("no branch is given")?;
            let name = user_branch_ref(&self.folder, &branch)?;
            self.refuse_if_checked_out(&name)?;
            match &request.commit {
                Some(before) => git(&self.folder, ["update-ref", &name, before])?,
                None => git(&self.folder, ["update-ref", "-d", &name])?,
            };
            Ok(RepositoryToolResult { branch: Some(branch), ..RepositoryToolResult::default() })
        })
    }

    /// A branch that somebody works on is never moved.
    fn refuse_if_checked_out(&self, name: &str) -> Result<(), String> {
        let worktrees = git(&self.folder, ["worktree", "list", "--porcelain"])?;
        let is_checked_out = worktrees.lines().any(|line| line.strip_prefix("branch ") == Some(name));
        let short = name.trim_start_matches("refs/heads/");
        if is_checked_out {
            return Err(format!(
                "`{short}` is checked out, so it is not moved; merge `{}` there yourself",
                self.integration_branch()
            ));
        }
        Ok(())
    }
}

fn user_branch_ref(folder: &std::path::Path, branch: &str) -> Result<String, String> {
    let is_valid = git_succeeds(folder, ["check-ref-format", "--branch", branch]);
    if !is_valid || branch.starts_with('-') || branch.starts_with("segue") {
        return Err(format!("`{branch}` is not the name of a branch of yours"));
    }
    Ok(format!("refs/heads/{branch}"))
}
