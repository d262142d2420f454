//! What can go wrong in a real repository, and what the team does about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::event::{Event, ToolRunOutcome, TurnOutcome};
use segue_core::prompt::ToolCall;
use segue_flows::team::facts::{StoryStatus, TeamFact};
use segue_models::ModelRequest;
use serde_json::{Value, json};

use crate::support::{BRANCH, RUN_TESTS, UserRepository, git, run_team};

pub(crate) fn story(id: &str, files: &[&str]) -> Value {
    json!({"id": id, "title": format!("Story {id}"), "description": "", "acceptance": ["works"], "files": files,
        "depends_on": []})
}

/// Answers the question for stories.
pub(crate) fn answer_stories(request: &mut ModelRequest, stories: &[Value]) {
    if request.metadata.ask.as_str() == "stories" {
        answer(request, &json!({"stories": stories}).to_string());
    }
}

pub(crate) fn answer(request: &mut ModelRequest, text: &str) {
    request.metadata.hints.reply_template = Some(text.to_owned());
    request.metadata.hints.tool_calls.clear();
}

pub(crate) fn call_tools(request: &mut ModelRequest, calls: &[(&str, Value)]) {
    let number = request.metadata.call.0;
    let calls = calls.iter().enumerate().map(|(index, (name, arguments))| ToolCall {
        id: format!("t{number}-{index}"),
        name: (*name).into(),
        arguments: arguments.clone(),
    });
    request.metadata.hints.reply_template = Some(String::new());
    request.metadata.hints.tool_calls = calls.collect();
}

/// Returns true if a coder is to write code for this story, and has not called a tool for it yet.
pub(crate) fn is_new_coding_task(request: &ModelRequest, story: &str) -> bool {
    let is_coding = request.metadata.role.as_str() == "coder"
        && request.metadata.phase.as_ref().is_some_and(|phase| phase.as_str() == "CODING");
    let is_last_user = request.prompt.messages.last().is_some_and(|message| message.tool_call_id.is_none());
    let is_story = request.prompt.messages.iter().any(|message| message.text().contains(&format!("{story}: Story")));
    is_coding && is_last_user && is_story
}

#[tokio::test(flavor = "multi_thread")]
async fn stories_that_are_green_alone_and_break_together_do_not_both_merge() {
    let repository = UserRepository::new(&[("test.sh", RUN_TESTS), ("limit.txt", "10\n")]);
    let run = run_team(&repository, json!({}), |request| {
        answer_stories(request, &[story("raise", &["limit.txt"]), story("rely", &["tests/limit.sh"])]);
        if is_new_coding_task(request, "raise") {
            call_tools(request, &[("edit_file", json!({"path": "limit.txt", "old_text": "10", "new_text": "20"}))]);
        }
        if is_new_coding_task(request, "rely") {
            let test = "[ \"$(cat limit.txt)\" = 10 ]\n";
            call_tools(request, &[("write_file", json!({"path": "tests/limit.sh", "content": test}))]);
        }
    })
    .await;
    assert_eq!(run.merged_stories().len(), 1, "{}", run.describe());
    let escalated = run.facts().any(|fact| matches!(fact, TeamFact::StoryMoved { status: StoryStatus::Escalated, .. }));
    assert!(escalated, "{}", run.describe());
    assert!(matches!(run.report.outcome, TurnOutcome::Failed { .. }));
    assert!(run.report.replies.concat().contains("1 of 2 stories"), "{:?}", run.report.replies);
    assert!(repository.passes_on_branch(&["sh", "test.sh"]), "what is merged is green");
    let left = git(
        &repository.checkout(),
        &["for-each-ref", "--no-merged", BRANCH, "refs/heads/segue-work", "refs/segue/kept"],
    );
    assert!(!left.is_empty(), "the work of the other one is kept");
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coder_cannot_change_anything_outside_of_its_worktree_or_its_story() {
    let repository = UserRepository::new(&[("test.sh", RUN_TESTS)]);
    let before = repository.user_state();
    let outside = repository.checkout().join("notes.txt").to_string_lossy().into_owned();
    let is_second = Arc::new(AtomicBool::new(false));
    let run = run_team(&repository, json!({"coders": 1}), move |request| {
        answer_stories(request, &[story("own", &["own.txt"])]);
        if is_new_coding_task(request, "own") && !is_second.swap(true, Ordering::Relaxed) {
            let write = |path: &str| ("write_file", json!({"path": path, "content": "changed\n"}));
            let own = write("own.txt");
            call_tools(
                request,
                &[write(&outside), write("../outside.txt"), write(".git/config"), write("other.txt"), own],
            );
        } else if is_new_coding_task(request, "own") {
            call_tools(request, &[("delete_file", json!({"path": "other.txt"}))]);
        }
    })
    .await;
    assert_eq!(run.report.outcome, TurnOutcome::Done, "{}", run.describe());
    let failed =
        run.events.iter().filter(|event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Failed, .. }));
    assert_eq!(failed.count(), 3, "three paths lead out of the worktree");
    let refused = run.facts().find_map(|fact| match fact {
        TeamFact::WorkRefused { problems, .. } => Some(problems.join("; ")),
        _ => None,
    });
    assert!(refused.expect("code refuses the commit").contains("`other.txt` may not be changed"));
    assert_eq!(repository.files_of_branch(), ["notes.txt", "own.txt", "test.sh"]);
    assert_eq!(repository.user_state(), before);
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_own_commit_in_the_middle_of_a_run_is_neither_lost_nor_mixed_in() {
    let repository = Arc::new(UserRepository::new(&[("test.sh", RUN_TESTS)]));
    let base = git(&repository.checkout(), &["rev-parse", "HEAD"]);
    let (theirs, has_committed) = (repository.clone(), AtomicBool::new(false));
    let run = run_team(&repository, json!({}), move |request| {
        answer_stories(request, &[story("one", &["one.txt"]), story("two", &["two.txt"])]);
        for id in ["one", "two"] {
            if is_new_coding_task(request, id) {
                if !has_committed.swap(true, Ordering::Relaxed) {
                    theirs.commit("mine.txt", "mine\n");
                }
                let path = format!("{id}.txt");
                call_tools(request, &[("write_file", json!({"path": path, "content": "written\n"}))]);
            }
        }
    })
    .await;
    assert_eq!(run.report.outcome, TurnOutcome::Done, "{}", run.describe());
    assert_eq!(repository.files_of_branch(), ["notes.txt", "one.txt", "test.sh", "two.txt"]);
    assert_eq!(git(&repository.checkout(), &["merge-base", "main", BRANCH]), base);
    assert_eq!(git(&repository.checkout(), &["log", "-1", "--format=%s"]), "mine.txt");
    run.engine.shutdown().await;
}
