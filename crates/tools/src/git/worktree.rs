//! Worktrees of stories. A worktree that contains unmerged work is never thrown away: what is in it becomes a commit under
//! `refs/segue/kept` before it is used for something else.

use std::fs;
use std::path::{Component, Path, PathBuf};

use segue_flows::team::repository_tools::{RepositoryToolRequest, RepositoryToolResult};

use super::TeamRepository;
use super::command::{git, git_paths, git_succeeds, resolve_commit};
use super::diff_digest::diff_digest;
use crate::limits::GIT_FILE_BYTES_MAX;

/// Lists the ignored files that are copied into a new worktree.
const INCLUDE_FILE: &str = ".worktreeinclude";

impl TeamRepository {
    /// Prepares the worktree of a story, at the integration branch.
    pub(crate) fn prepare_worktree(&self, request: &RepositoryToolRequest) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| {
            let head = self.integration_head()?;
            let folder = self.worktree_folder(&request.story);
            let marker = self.prepared_marker_path(&request.story);
            let is_same_work = fs::read_to_string(&marker).is_ok_and(|work| work == request.work);
            if folder.join(".git").exists() {
                self.existing_worktree(&request.story)?;
                self.remove_own_lock(&folder);
                if !is_same_work {
                    self.keep_worktree_content(&folder, &request.story)?;
                    git(&folder, ["reset", "--hard", &head])?;
                    git(&folder, ["clean", "-fd"])?;
                }
            } else {
                self.add_worktree(&folder, &request.story, &head)?;
            }
            if !is_same_work {
                self.copy_included_files(&folder)?;
                if folder.join(".gitmodules").exists() {
                    git(&folder, ["submodule", "update", "--init", "--recursive"])
                        .map_err(|error| format!("the submodules cannot be initialised: {error}"))?;
                }
                fs::write(&marker, &request.work).map_err(|error| format!("{}: {error}", marker.display()))?;
            }
            let base = git(&folder, ["merge-base", "HEAD", &head])?;
            Ok(RepositoryToolResult {
                base,
                commit: git(&folder, ["rev-parse", "HEAD"])?,
                ..RepositoryToolResult::default()
            })
        })
    }

    /// Creates a worktree of the base, for a test run before anything is changed. Returns `None` if something is merged
    /// already.
    pub(crate) fn add_base_worktree(&self, base: &str) -> Result<Option<PathBuf>, String> {
        if self.integration_head()? != base {
            return Ok(None);
        }
        // A crash may have left the one of an earlier run.
        self.remove_base_worktree()?;
        self.with_repository_lock(|| {
            let folder = self.base_worktree_folder();
            let path = folder.to_string_lossy().into_owned();
            git(&self.folder, ["worktree", "add", "--quiet", "--force", "--detach", &path, base])?;
            self.copy_included_files(&folder)?;
            Ok(Some(folder))
        })
    }

    /// Removes that worktree. Nobody works in it.
    pub(crate) fn remove_base_worktree(&self) -> Result<(), String> {
        self.with_repository_lock(|| {
            let folder = self.base_worktree_folder();
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", folder.display()));
                }
                Ok(()) | Err(_) => {}
            }
            git(&self.folder, ["worktree", "prune"]).map(|_| ())
        })
    }

    /// Returns a folder that no story can have: its name contains a dot.
    fn base_worktree_folder(&self) -> PathBuf {
        self.worktrees.join(format!("{}.base", self.spec))
    }

    /// Returns the file that says for which work item a worktree was prepared.
    fn prepared_marker_path(&self, story: &str) -> PathBuf {
        self.worktrees.join(&self.spec).join(format!("{story}.work"))
    }

    /// Returns true if the worktree of a story was set up for the work item of a request.
    pub(crate) fn is_set_up(&self, request: &RepositoryToolRequest) -> bool {
        fs::read_to_string(self.set_up_marker_path(&request.story)).is_ok_and(|work| work == request.work)
    }

    /// Notes that the worktree of a story is set up. Git must not see what the set-up wrote: it would become a part of the
    /// story.
    pub(crate) fn note_set_up(&self, request: &RepositoryToolRequest) -> Result<(), String> {
        let folder = self.existing_worktree(&request.story)?;
        let changed = git(&folder, ["status", "--porcelain"])?;
        if !changed.is_empty() {
            return Err(format!(
                "the set-up of the worktree changed files that git does not ignore; add them to `.gitignore`:\n{changed}"
            ));
        }
        let marker = self.set_up_marker_path(&request.story);
        fs::write(&marker, &request.work).map_err(|error| format!("{}: {error}", marker.display()))
    }

    /// Returns the file that says for which work item a worktree was set up.
    fn set_up_marker_path(&self, story: &str) -> PathBuf {
        self.worktrees.join(&self.spec).join(format!("{story}.set-up"))
    }

    fn add_worktree(&self, folder: &Path, story: &str, head: &str) -> Result<(), String> {
        let branch = self.story_branch(story);
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        }
        // A worktree whose folder is gone is forgotten; others are not touched.
        git(&self.folder, ["worktree", "prune"])?;
        if let Some(old) = resolve_commit(&self.folder, &format!("refs/heads/{branch}")) {
            self.keep_commit(story, &old)?;
        }
        let path = folder.to_string_lossy().into_owned();
        git(&self.folder, ["worktree", "add", "--quiet", "--force", "-B", &branch, &path, head]).map(|_| ())
    }

    /// Removes the index lock of a worktree. Only one operation at a time uses a worktree, and it waits for those of a
    /// killed process, so a lock is from a command that was killed itself.
    pub(super) fn remove_own_lock(&self, folder: &Path) {
        if let Ok(git_dir) = git(folder, ["rev-parse", "--absolute-git-dir"]) {
            // If there is none, there is nothing to remove.
            let _ = fs::remove_file(Path::new(&git_dir).join("index.lock"));
        }
    }

    /// Keeps everything that a worktree contains, as a commit.
    pub(super) fn keep_worktree_content(&self, folder: &Path, story: &str) -> Result<(), String> {
        // A rebase that a crash interrupted.
        if !git_succeeds(folder, ["symbolic-ref", "--quiet", "HEAD"]) {
            let _ = git(folder, ["rebase", "--abort"]);
        }
        git(folder, ["add", "--all"])?;
        if !git_succeeds(folder, ["diff", "--cached", "--quiet"]) {
            git(folder, ["commit", "--quiet", "--no-verify", "--message", "unfinished work"])?;
        }
        let commit = git(folder, ["rev-parse", "HEAD"])?;
        self.keep_commit(story, &commit)
    }

    fn keep_commit(&self, story: &str, commit: &str) -> Result<(), String> {
        let merged = self.integration_head()?;
        if git_succeeds(&self.folder, ["merge-base", "--is-ancestor", commit, &merged]) {
            return Ok(());
        }
        let name = format!("refs/segue/kept/{}/{story}/{}", self.spec, &commit[..commit.len().min(12)]);
        git(&self.folder, ["update-ref", &name, commit]).map(|_| ())
    }

    /// Copies the ignored files that `.worktreeinclude` lists, such as local settings.
    fn copy_included_files(&self, folder: &Path) -> Result<(), String> {
        if !self.folder.join(INCLUDE_FILE).is_file() {
            return Ok(());
        }
        let listed = git_paths(
            &self.folder,
            ["ls-files", "-z", "--others", "--ignored", &format!("--exclude-from={INCLUDE_FILE}")],
        )?;
        for path in listed {
            let (from, to) = (self.folder.join(&path), folder.join(&path));
            let is_file = fs::symlink_metadata(&from).is_ok_and(|found| found.is_file());
            if !is_file || to.exists() {
                continue;
            }
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).map_err(|error| format!("{path}: {error}"))?;
            }
            fs::copy(&from, &to).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }

    /// Commits the changes of a worktree. Returns the diff against the base, and what changed.
    pub(crate) fn commit_worktree(
        &self,
        request: &RepositoryToolRequest,
    ) -> Result<(String, RepositoryToolResult), String> {
        self.with_repository_lock(|| {
            let folder = self.existing_worktree(&request.story)?;
            self.remove_own_lock(&folder);
            git(&folder, ["add", "--all"])?;
            if !git_succeeds(&folder, ["diff", "--cached", "--quiet"]) {
                let message = request.message.as_deref().unwrap_or("work of a coder");
                git(&folder, ["commit", "--quiet", "--no-verify", "--message", message])?;
            }
            let head = self.integration_head()?;
            let base = match &request.base {
                Some(base) => base.clone(),
                None => git(&folder, ["merge-base", "HEAD", &head])?,
            };
            self.describe_commit(&folder, &base)
        })
    }

    /// Returns the diff between a base and the commit of a worktree.
    pub(super) fn describe_commit(&self, folder: &Path, base: &str) -> Result<(String, RepositoryToolResult), String> {
        let diff = git(folder, ["diff", "--no-color", "--no-ext-diff", "--no-textconv", base, "HEAD"])?;
        let files = git_paths(folder, ["diff", "--name-only", "-z", base, "HEAD"])?;
        let result = RepositoryToolResult {
            base: base.to_owned(),
            commit: git(folder, ["rev-parse", "HEAD"])?,
            diff_digest: diff_digest(&diff),
            files,
            ..RepositoryToolResult::default()
        };
        Ok((diff, result))
    }

    /// Sets a worktree back to a commit. What it contained is kept.
    pub(crate) fn restore_worktree(&self, request: &RepositoryToolRequest) -> Result<RepositoryToolResult, String> {
        self.with_repository_lock(|| {
            let folder = self.existing_worktree(&request.story)?;
            let commit = request.commit.clone().or_else(|| request.base.clone()).ok_or("no commit is given")?;
            self.remove_own_lock(&folder);
            self.keep_worktree_content(&folder, &request.story)?;
            git(&folder, ["reset", "--hard", &commit])?;
            git(&folder, ["clean", "-fd"])?;
            fs::write(self.prepared_marker_path(&request.story), &request.work).map_err(|error| error.to_string())?;
            Ok(RepositoryToolResult { commit, ..RepositoryToolResult::default() })
        })
    }

    /// Reads one file of a worktree; `None` if it does not exist.
    pub(crate) fn read_worktree_file(&self, request: &RepositoryToolRequest) -> Result<Option<String>, String> {
        let path = self.file_in_worktree(request)?;
        match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
            Ok(found) if found.len() > GIT_FILE_BYTES_MAX as u64 => {
                Err(format!("the file has {} bytes, but at most {GIT_FILE_BYTES_MAX} are read", found.len()))
            }
            Ok(_) => fs::read_to_string(&path).map(Some).map_err(|error| error.to_string()),
        }
    }

    /// Writes one file of a worktree.
    pub(crate) fn write_worktree_file(&self, request: &RepositoryToolRequest) -> Result<(), String> {
        let path = self.file_in_worktree(request)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| error.to_string())?;
        }
        fs::write(&path, request.content.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
    }

    /// Returns a path in a worktree. Nothing outside of it can be named, and no link is followed.
    fn file_in_worktree(&self, request: &RepositoryToolRequest) -> Result<PathBuf, String> {
        let folder = self.existing_worktree(&request.story)?;
        let path = request.path.as_deref().ok_or("no path is given")?;
        let mut file = folder;
        for part in Path::new(path).components() {
            let Component::Normal(name) = part else {
                return Err(format!("`{path}` is not a path within the repository"));
            };
            file.push(name);
            let is_link = fs::symlink_metadata(&file).is_ok_and(|found| found.file_type().is_symlink());
            if name == ".git" || is_link {
                return Err(format!("`{path}` cannot be used: it leads through a link or into `.git`"));
            }
        }
        Ok(file)
    }

    /// Returns the worktree of a story. Its link to the repository must be the one that git wrote: a command of a coder
    /// could have changed it.
    pub(crate) fn existing_worktree(&self, story: &str) -> Result<PathBuf, String> {
        let folder = self.worktree_folder(story);
        let Ok(link) = fs::read_to_string(folder.join(".git")) else {
            return Err(format!("the story `{story}` has no worktree"));
        };
        let common = git(&self.folder, ["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
        let expected = format!("gitdir: {common}/worktrees/");
        match link.trim_end().strip_prefix(&expected) {
            Some(name) if !name.contains('/') => Ok(folder),
            _ => Err(format!("the worktree of `{story}` does not belong to the repository any more")),
        }
    }

    /// Returns the newest commit of the integration branch.
    pub(super) fn integration_head(&self) -> Result<String, String> {
        let name = self.integration_branch();
        resolve_commit(&self.folder, &self.integration_ref())
            .ok_or_else(|| format!("the branch `{name}` does not exist any more"))
    }
}
