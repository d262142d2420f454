//! The git repository of a team: worktrees for stories, the integration branch, and landing.
//!
//! The user's checkout, its index, its stash and its branches are never touched. All writes of one repository are
//! serialised, and run without the project's hooks. Every operation can be repeated: if its effect is already there, it
//! returns the same result. What is not merged is kept, either in its worktree or as a commit under `refs/segue/kept`.

mod command;
mod diff_digest;
mod host;
mod inspect;
mod integrate;
mod worktree;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub(crate) use host::{agent_worktree, build_test_result, repository_for, run_repository_tool};

/// A repository, and the folder for its worktrees.
#[derive(Debug, Clone)]
pub(crate) struct TeamRepository {
    /// The user's checkout, or a bare repository.
    pub folder: PathBuf,
    /// Where the worktrees of one session are.
    pub worktrees: PathBuf,
    /// The name of the spec in branches.
    pub spec: String,
}

impl TeamRepository {
    /// Returns the full name of the integration branch.
    fn integration_ref(&self) -> String {
        format!("refs/heads/{}", self.integration_branch())
    }

    pub(crate) fn integration_branch(&self) -> String {
        format!("segue/{}", self.spec)
    }

    fn story_branch(&self, story: &str) -> String {
        format!("segue-work/{}/{story}", self.spec)
    }

    /// Runs work during which nothing else writes to the repository.
    fn with_repository_lock<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let repository = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        let name = &blake3::hash(repository.as_os_str().as_encoded_bytes()).to_hex()[..16];
        // All sessions of a store have their worktrees in the same folder.
        let folder = self.worktrees.parent().unwrap_or(&self.worktrees);
        command::with_lock_file(&folder.join(format!("{name}.lock")), work)
    }

    pub(crate) fn worktree_folder(&self, story: &str) -> PathBuf {
        self.worktrees.join(&self.spec).join(story)
    }
}
