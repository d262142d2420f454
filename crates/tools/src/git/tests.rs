//! Real repositories: what works, what is refused, and that the user's checkout is never touched.

use std::fs;
use std::path::Path;

use segue_flows::team::repository_tools::RepositoryToolRequest;

use super::TeamRepository;
use super::command::git;

struct TestRepository {
    _folder: tempfile::TempDir,
    team: TeamRepository,
}

fn commit_file(folder: &Path, name: &str, content: &str) {
    fs::write(folder.join(name), content).expect("the folder exists");
    git(folder, ["add", "--all"]).expect("it is a repository");
    git(folder, ["commit", "--quiet", "--message", name]).expect("there is something to commit");
}

fn repository() -> TestRepository {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let checkout = folder.path().join("checkout");
    fs::create_dir(&checkout).expect("the folder is new");
    git(&checkout, ["init", "--quiet", "--initial-branch", "main"]).expect("git is installed");
    commit_file(&checkout, "base.txt", "one\ntwo\nthree\n");
    let team = TeamRepository { folder: checkout, worktrees: folder.path().join("worktrees"), spec: "tea".to_owned() };
    TestRepository { _folder: folder, team }
}

fn request(story: &str) -> RepositoryToolRequest {
    let work = format!("{story}#1.1");
    RepositoryToolRequest { spec: "tea".to_owned(), story: story.to_owned(), work, ..RepositoryToolRequest::default() }
}

/// Everything of the user that must not change.
fn user_state(folder: &Path) -> Vec<String> {
    let show = |arguments: &[&str]| git(folder, arguments).unwrap_or_default();
    let index = fs::read(folder.join(".git/index")).map(|bytes| blake3::hash(&bytes).to_string()).unwrap_or_default();
    vec![
        show(&["rev-parse", "HEAD"]),
        show(&["symbolic-ref", "HEAD"]),
        show(&["stash", "list"]),
        show(&["status", "--porcelain"]),
        index,
    ]
}

fn write(team: &TeamRepository, story: &str, path: &str, content: &str) {
    fs::write(team.worktree_folder(story).join(path), content).expect("the worktree exists");
}

#[test]
fn story_is_committed_rebased_and_merged_without_touching_the_user() {
    let TestRepository { team, .. } = &repository();
    fs::write(team.folder.join("base.txt"), "my unfinished work\n").expect("the checkout exists");
    fs::write(team.folder.join("new.txt"), "untracked\n").expect("the checkout exists");
    let before = user_state(&team.folder);
    let found = team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    assert!(found.warnings[0].contains("uncommitted changes"), "{:?}", found.warnings);
    for story in ["a", "b"] {
        team.prepare_worktree(&request(story)).expect("a worktree can be created");
        write(team, story, &format!("{story}.txt"), "content\n");
        let (diff, committed) = team.commit_worktree(&request(story)).expect("there is something to commit");
        assert_eq!(committed.files, [format!("{story}.txt")]);
        assert!(diff.contains("+content"));
    }
    for story in ["a", "b"] {
        let (_, rebased) = team.rebase_onto_integration(&request(story)).expect("there is no conflict");
        let merge = RepositoryToolRequest { commit: Some(rebased.commit.clone()), ..request(story) };
        team.merge_into_integration(&merge).expect("it contains the integration branch");
        // A repetition after a crash changes nothing.
        team.merge_into_integration(&merge).expect("it is already merged");
    }
    let files = git(&team.folder, ["ls-tree", "--name-only", "segue/tea"]).expect("the branch exists");
    assert_eq!(files, "a.txt\nb.txt\nbase.txt");
    assert_eq!(user_state(&team.folder), before, "HEAD, branch, stash, files and index are the same");
}

#[test]
fn rebase_keeps_the_digest_of_an_unchanged_diff() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    for (story, content) in [("a", "zero\none\ntwo\nthree\n"), ("b", "one\ntwo\nthree\nfour\n")] {
        team.prepare_worktree(&request(story)).expect("a worktree can be created");
        write(team, story, if story == "a" { "other.txt" } else { "base.txt" }, content);
    }
    let (_, a) = team.commit_worktree(&request("a")).expect("there is something to commit");
    let (_, b) = team.commit_worktree(&request("b")).expect("there is something to commit");
    team.merge_into_integration(&RepositoryToolRequest { commit: Some(a.commit), ..request("a") })
        .expect("it contains the base");
    let old = RepositoryToolRequest { commit: Some(b.commit.clone()), ..request("b") };
    assert!(team.merge_into_integration(&old).expect_err("it lacks a").contains("has moved"));
    let (_, rebased) = team.rebase_onto_integration(&request("b")).expect("there is no conflict");
    assert_ne!(rebased.commit, b.commit);
    assert_eq!(rebased.diff_digest, b.diff_digest);
}

#[test]
fn conflict_sets_the_worktree_to_the_new_base_and_keeps_the_work() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    for story in ["a", "b"] {
        team.prepare_worktree(&request(story)).expect("a worktree can be created");
        write(team, story, "base.txt", &format!("{story}\n"));
    }
    let (_, a) = team.commit_worktree(&request("a")).expect("there is something to commit");
    let (_, b) = team.commit_worktree(&request("b")).expect("there is something to commit");
    team.merge_into_integration(&RepositoryToolRequest { commit: Some(a.commit.clone()), ..request("a") })
        .expect("it contains the base");
    let (_, conflict) = team.rebase_onto_integration(&request("b")).expect("a conflict is a result");
    assert!(conflict.conflicts);
    assert_eq!((conflict.files, conflict.base), (vec!["base.txt".to_owned()], a.commit));
    assert_eq!(fs::read_to_string(team.worktree_folder("b").join("base.txt")).expect("it exists"), "a\n");
    let kept = git(&team.folder, ["for-each-ref", "--format=%(objectname)", "refs/segue/kept"]).expect("git works");
    assert_eq!(kept, b.commit);
}

#[test]
fn rebase_that_is_repeated_after_a_crash_reports_the_same_conflict() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    for story in ["a", "b"] {
        team.prepare_worktree(&request(story)).expect("a worktree can be created");
        write(team, story, "base.txt", &format!("{story}\n"));
    }
    let (_, a) = team.commit_worktree(&request("a")).expect("there is something to commit");
    let (_, b) = team.commit_worktree(&request("b")).expect("there is something to commit");
    team.merge_into_integration(&RepositoryToolRequest { commit: Some(a.commit), ..request("a") })
        .expect("it contains the base");
    let rebase = RepositoryToolRequest { commit: Some(b.commit), ..request("b") };
    let (_, first) = team.rebase_onto_integration(&rebase).expect("a conflict is a result");
    // The process died before the result was recorded: the worktree has nothing of the story any more.
    let (_, second) = team.rebase_onto_integration(&rebase).expect("a conflict is a result");
    assert!(first.conflicts);
    assert_eq!(first, second);
    // Work on the new base is another commit.
    write(team, "b", "base.txt", "a\nb\n");
    let (_, redone) = team.commit_worktree(&request("b")).expect("there is something to commit");
    let rebase = RepositoryToolRequest { commit: Some(redone.commit.clone()), ..request("b") };
    assert_eq!(team.rebase_onto_integration(&rebase).expect("there is no conflict").1.commit, redone.commit);
}

#[test]
fn operation_waits_for_the_git_command_of_a_killed_process() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    let (lock_file, done) = (team.worktrees.join("test.lock"), team.worktrees.join("done"));
    // A command that was started under the lock outlives the work.
    let command = super::command::with_lock_file(&lock_file, || {
        let lock = super::command::clone_held_lock().ok_or("the lock is not held")?;
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 0.2; echo done > \"$0\""]).arg(&done).stdin(lock);
        command.spawn().map_err(|error| error.to_string())
    });
    let mut command = command.expect("it was started");
    super::command::with_lock_file(&lock_file, || {
        assert!(done.exists(), "the command has ended");
        Ok(())
    })
    .expect("the lock is free");
    command.wait().expect("it is a child");
}

#[test]
fn interrupted_work_survives_and_another_attempt_keeps_it() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    write(team, "a", "half.txt", "half\n");
    let git_dir = git(&team.worktree_folder("a"), ["rev-parse", "--absolute-git-dir"]).expect("it is a worktree");
    fs::write(Path::new(&git_dir).join("index.lock"), "").expect("the folder exists");
    // The same work item continues where it was, with the lock of the dead process removed.
    team.prepare_worktree(&request("a")).expect("it exists");
    assert!(team.worktree_folder("a").join("half.txt").exists());
    let next = RepositoryToolRequest { work: "a#2.1".to_owned(), ..request("a") };
    team.prepare_worktree(&next).expect("it can be used again");
    assert!(!team.worktree_folder("a").join("half.txt").exists());
    let kept = git(&team.folder, ["for-each-ref", "--format=%(refname)", "refs/segue/kept"]).expect("git works");
    assert!(kept.starts_with("refs/segue/kept/tea/a/"), "{kept}");
    let half = git(&team.folder, ["show", &format!("{kept}:half.txt")]).expect("it is kept");
    assert_eq!(half, "half");
}

#[test]
fn hooks_of_the_project_do_not_run() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    let hook = team.folder.join(".git/hooks/pre-commit");
    fs::write(&hook, "#!/bin/sh\nexit 1\n").expect("the folder exists");
    #[cfg(unix)]
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    write(team, "a", "a.txt", "a\r\nb\n");
    team.commit_worktree(&request("a")).expect("no hook stops it");
    let stored = super::command::git_bytes(&team.worktree_folder("a"), ["show", "HEAD:a.txt"]).expect("it is there");
    assert_eq!(stored, b"a\r\nb\n", "line endings are preserved");
}

#[test]
fn unusual_repositories_work_or_are_refused_clearly() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let team = |checkout: &Path| TeamRepository {
        folder: checkout.to_owned(),
        worktrees: folder.path().join("worktrees"),
        spec: "tea".to_owned(),
    };
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).expect("the folder is new");
    assert!(
        team(&empty)
            .inspect_and_create_integration("k.dot")
            .expect_err("no repository")
            .contains("is not a git repository")
    );
    git(&empty, ["init", "--quiet"]).expect("git is installed");
    assert!(team(&empty).inspect_and_create_integration("k.dot").expect_err("no commit").contains("has no commits"));
    commit_file(&empty, "a.txt", "a\n");
    commit_file(&empty, "b.txt", "b\n");
    git(&empty, ["checkout", "--quiet", "--detach"]).expect("there is a commit");
    let found = team(&empty).inspect_and_create_integration("k.dot").expect("it is usable");
    assert!(found.branch.is_none() && found.warnings[0].contains("not on a branch"));
    // The clones are new to the team: they must not contain the branch that it has just created.
    git(&empty, ["branch", "--quiet", "-D", "segue/tea"]).expect("it was created");
    let (bare, shallow) = (folder.path().join("bare"), folder.path().join("shallow"));
    let source = format!("file://{}", empty.display());
    git(folder.path(), ["clone", "--quiet", "--bare", &source, "bare"]).expect("it can be cloned");
    let bare = team(&bare);
    bare.inspect_and_create_integration("k.dot").expect("it is usable");
    bare.prepare_worktree(&request("a")).expect("a bare repository has worktrees, too");
    git(folder.path(), ["clone", "--quiet", "--depth=1", &source, "shallow"]).expect("it can be cloned");
    let found = team(&shallow).inspect_and_create_integration("k.dot").expect("it is usable");
    assert!(found.warnings.iter().any(|warning| warning.contains("shallow")), "{:?}", found.warnings);
    commit_file(&shallow, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let lfs = TeamRepository { spec: "other".to_owned(), ..team(&shallow) };
    if !super::command::git_succeeds(&shallow, ["lfs", "version"]) {
        assert!(lfs.inspect_and_create_integration("k.dot").expect_err("it needs LFS").contains("Git LFS"));
    }
}

#[test]
fn user_commits_on_main_in_the_middle_of_a_run() {
    let TestRepository { team, .. } = &repository();
    let base = team.inspect_and_create_integration("knowledge.dot").expect("it is usable").base;
    commit_file(&team.folder, "mine.txt", "mine\n");
    assert_eq!(
        team.inspect_and_create_integration("knowledge.dot").expect("it is usable").base,
        base,
        "the base was recorded"
    );
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    assert!(!team.worktree_folder("a").join("mine.txt").exists());
}

#[test]
fn landing_never_moves_a_branch_that_is_checked_out() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    write(team, "a", "a.txt", "a\n");
    let (_, a) = team.commit_worktree(&request("a")).expect("there is something to commit");
    team.merge_into_integration(&RepositoryToolRequest { commit: Some(a.commit.clone()), ..request("a") })
        .expect("it contains the base");
    let land = |branch: &str| {
        team.land_on_user_branch(&RepositoryToolRequest { branch: Some(branch.to_owned()), ..request("") })
    };
    assert!(land("main").expect_err("it is checked out").contains("is checked out"));
    assert!(land("-x").is_err() && land("segue/tea").is_err());
    git(&team.folder, ["branch", "release"]).expect("it is new");
    let before = git(&team.folder, ["rev-parse", "release"]).expect("it exists");
    let landed = land("release").expect("it is free");
    assert_eq!((landed.commit, landed.before.as_ref()), (a.commit, Some(&before)));
    let undo = RepositoryToolRequest { branch: Some("release".to_owned()), commit: landed.before, ..request("") };
    team.undo_landing(&undo).expect("it is free");
    assert_eq!(git(&team.folder, ["rev-parse", "release"]).expect("it exists"), before);
}

#[test]
fn files_outside_of_the_worktree_cannot_be_written() {
    let TestRepository { team, .. } = &repository();
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    #[cfg(unix)]
    std::os::unix::fs::symlink(std::env::temp_dir(), team.worktree_folder("a").join("link"))
        .expect("links can be created");
    for path in ["../x", "/etc/x", ".git", "link/x", "a/../../x"] {
        let write = RepositoryToolRequest { path: Some(path.to_owned()), content: Some(String::new()), ..request("a") };
        assert!(team.write_worktree_file(&write).is_err(), "{path}");
    }
    let write =
        RepositoryToolRequest { path: Some("docs/k.dot".to_owned()), content: Some("x".to_owned()), ..request("a") };
    team.write_worktree_file(&write).expect("it is inside");
    assert_eq!(team.read_worktree_file(&write).expect("it is inside"), Some("x".to_owned()));
    let missing = RepositoryToolRequest { path: Some("no.dot".to_owned()), ..request("a") };
    assert_eq!(team.read_worktree_file(&missing).expect("it is inside"), None);
}

#[test]
fn listed_ignored_files_are_copied_into_a_worktree() {
    let TestRepository { team, .. } = &repository();
    commit_file(&team.folder, ".gitignore", "*.env\nbuild/\n");
    fs::write(team.folder.join("local.env"), "A=1\n").expect("the checkout exists");
    fs::write(team.folder.join("secret.env"), "B=2\n").expect("the checkout exists");
    commit_file(&team.folder, ".worktreeinclude", "local.env\n");
    team.inspect_and_create_integration("knowledge.dot").expect("it is usable");
    team.prepare_worktree(&request("a")).expect("a worktree can be created");
    assert!(team.worktree_folder("a").join("local.env").exists());
    assert!(!team.worktree_folder("a").join("secret.env").exists());
    let (_, committed) = team.commit_worktree(&request("a")).expect("nothing has to be committed");
    assert!(committed.files.is_empty(), "ignored files are not committed");
}
