//! The commands that prepare a worktree.

use segue_core::event::TurnOutcome;
use segue_flows::team::facts::{TeamFact, TeamFailureKind};
use segue_tools::WorkspaceConfig;
use serde_json::json;

use crate::scenarios::{answer_stories, call_tools, is_new_coding_task, story};
use crate::support::{TeamRun, UserRepository, run_team_in};

/// Tests that need what the set-up writes.
const NEEDS_SET_UP: &str = "cat .tools/ready\n";
/// A set-up that fails as soon as the repository contains `broken.txt`.
const SET_UP: &str =
    "if [ -e broken.txt ]; then echo no-such-package >&2; exit 3; fi\nmkdir -p .tools\necho yes > .tools/ready\n";

fn repository(set_up: &str) -> UserRepository {
    UserRepository::new(&[("test.sh", NEEDS_SET_UP), ("set-up.sh", set_up), (".gitignore", ".tools/\n")])
}

/// Runs two stories, the second of which needs the first. The first one writes `first`.
async fn run_two_stories(repository: &UserRepository, first: &'static str) -> TeamRun {
    let config = WorkspaceConfig { set_up: vec!["sh set-up.sh".to_owned()], ..repository.workspace() };
    run_team_in(repository, config, json!({}), move |request| {
        let mut second = story("second", &["second.txt"]);
        second["depends_on"] = json!(["first"]);
        answer_stories(request, &[story("first", &[first]), second]);
        for (id, path) in [("first", first), ("second", "second.txt")] {
            if is_new_coding_task(request, id) {
                call_tools(request, &[("write_file", json!({"path": path, "content": "written\n"}))]);
            }
        }
    })
    .await
}

fn escalations(run: &TeamRun) -> Vec<(String, String, TeamFailureKind)> {
    let escalated = run.facts().filter_map(|fact| match fact {
        TeamFact::Escalated { subject, reason, failure } => Some((subject, reason, failure)),
        _ => None,
    });
    escalated.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn set_up_commands_prepare_the_base_and_each_worktree() {
    let repository = repository(SET_UP);
    let before = repository.user_state();
    let run = run_two_stories(&repository, "first.txt").await;
    assert_eq!(run.report.outcome, TurnOutcome::Done, "{}", run.describe());
    let base_is_green = run.facts().find_map(|fact| match fact {
        TeamFact::RepositoryInspected(repository) => repository.base_is_green,
        _ => None,
    });
    assert_eq!(base_is_green, Some(true), "the tests of the base need the set-up, too");
    let files = repository.files_of_branch();
    assert_eq!(files, [".gitignore", "first.txt", "notes.txt", "second.txt", "set-up.sh", "test.sh"]);
    assert_eq!(repository.user_state(), before);
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_up_that_fails_in_a_worktree_is_a_failure_of_the_environment_with_its_output() {
    let repository = repository(SET_UP);
    let run = run_two_stories(&repository, "broken.txt").await;
    assert_eq!(run.merged_stories(), ["first"], "{}", run.describe());
    let escalated = escalations(&run);
    let [(subject, reason, failure)] = escalated.as_slice() else { panic!("{}", run.describe()) };
    assert_eq!((subject.as_str(), *failure), ("second", TeamFailureKind::Environment));
    assert!(reason.contains("sh set-up.sh") && reason.contains("exit code 3"), "{reason}");
    assert!(reason.contains("no-such-package"), "{reason}");
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_up_that_fails_on_the_base_keeps_the_team_from_starting() {
    let run = run_two_stories(&repository("echo no-such-package\nexit 3\n"), "first.txt").await;
    assert!(matches!(&run.report.outcome, TurnOutcome::Failed { reason } if reason.contains("no-such-package")));
    let escalated = escalations(&run);
    assert_eq!(escalated.len(), 1, "{}", run.describe());
    assert_eq!((escalated[0].0.as_str(), escalated[0].2), ("repository", TeamFailureKind::Environment));
    assert!(!run.facts().any(|fact| matches!(fact, TeamFact::Assigned(_))));
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn set_up_cannot_change_what_git_would_commit_with_the_story() {
    let set_up = format!("{SET_UP}echo 1 > lock.txt\n");
    let run = run_two_stories(&repository(&set_up), "first.txt").await;
    let escalated = escalations(&run);
    assert!(escalated[0].1.contains("lock.txt") && escalated[0].1.contains(".gitignore"), "{escalated:?}");
    assert!(run.merged_stories().is_empty(), "{}", run.describe());
    run.engine.shutdown().await;
}
