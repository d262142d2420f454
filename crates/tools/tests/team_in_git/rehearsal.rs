//! The rehearsal: a spec of four stories from its start to the branch that the user gets.

use segue_core::context::{CallThread, FragmentSource};
use segue_core::event::TurnOutcome;
use segue_core::prompt::ChatRole;
use segue_flows::team::facts::{CoderRequestKind, TeamFact};
use segue_flows::team::knowledge::parse_knowledge_dot;
use segue_flows::team::review::ReviewVerdict;
use serde_json::json;

use crate::support::{BRANCH, TeamRun, UserRepository, git, run_team};

/// Returns the reviews of one kind of a story.
fn verdicts(run: &TeamRun, story: &str, kind: CoderRequestKind) -> Vec<ReviewVerdict> {
    let reviews = run.reviews().into_iter().filter(|given| given.story == story && given.kind == kind);
    reviews.map(|given| given.verdict).collect()
}

/// Returns how many coders had a story at the same time, at most.
fn most_coders_at_once(run: &TeamRun) -> usize {
    let (mut working, mut most) = (Vec::new(), 0);
    for fact in run.facts() {
        match fact {
            TeamFact::Assigned(assignment) if !working.contains(&assignment.agent) => working.push(assignment.agent),
            TeamFact::Unassigned { agent } => working.retain(|other| *other != agent),
            _ => {}
        }
        most = most.max(working.len());
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn four_stories_are_built_reviewed_and_merged_without_touching_the_user() {
    let repository = UserRepository::new(&[]);
    let before = repository.user_state();
    let run = run_team(&repository, json!({}), |_| ()).await;
    assert_eq!(run.report.outcome, TurnOutcome::Done, "{}", run.describe());
    assert!(run.report.replies.concat().contains("All 4 stories"), "{:?}", run.report.replies);
    assert_eq!(repository.user_state(), before, "HEAD, branch, index, files and stash are the same");

    let (needs_changes, approved) = (ReviewVerdict::NeedsChanges, ReviewVerdict::Approved);
    assert_eq!(verdicts(&run, "timer", CoderRequestKind::PlanReview), [needs_changes, approved]);
    assert_eq!(verdicts(&run, "guide", CoderRequestKind::CodeReview), [needs_changes, approved]);
    assert_eq!(verdicts(&run, "guide", CoderRequestKind::BudgetReview), [approved]);
    assert_eq!(most_coders_at_once(&run), 2);
    let conflicts = run.facts().filter(|fact| matches!(fact, TeamFact::MergeConflicted { .. })).count();
    assert_eq!(conflicts, 1, "{}", run.describe());

    let mut merged = run.merged_stories();
    assert_eq!(
        (merged.first().map(String::as_str), merged.last().map(String::as_str)),
        (Some("timer"), Some("knowledge-1"))
    );
    merged.sort();
    assert_eq!(merged, ["guide", "knowledge-1", "move", "ring", "timer"], "each is merged once");
    let branches = git(&repository.checkout(), &["for-each-ref", "--format=%(refname)", "refs/heads/segue-work"]);
    let unmerged = git(&repository.checkout(), &["for-each-ref", "--no-merged", BRANCH, "refs/heads/segue-work"]);
    assert_eq!((branches.lines().count(), unmerged.as_str()), (5, ""));
    assert!(repository.passes_on_branch(&["sh", "test.sh"]));
    assert!(repository.file_of_branch("docs/tea.md").contains("sh bin/steep.sh green"));
    let files = repository.files_of_branch();
    assert!(files.contains(&"bin/steep.sh".to_owned()) && !files.contains(&"tea/steep.sh".to_owned()), "{files:?}");
    assert!(files.iter().any(|path| path.ends_with("/ring.sh") && !path.starts_with("tests")), "{files:?}");
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m04_receipt_of_the_second_review_proves_that_it_saw_the_first() {
    let run = run_team(&UserRepository::new(&[]), json!({}), |_| ()).await;
    let plan_reviews = run.reviews().into_iter().filter(|given| given.kind == CoderRequestKind::PlanReview);
    let of_timer: Vec<_> = plan_reviews.filter(|given| given.story == "timer").collect();
    let calls: Vec<_> = of_timer.iter().map(|given| given.call.expect("the architect decided")).collect();
    let (first, second) = (run.receipt(calls[0]), run.receipt(calls[1]));
    assert!(matches!(first.thread, CallThread::Opened { .. }) && first.carried.entries == 0);
    assert_eq!(second.thread, CallThread::Continued(first.thread.thread_id()));
    // The first plan, and the first review.
    assert_eq!(second.carried.entries, 2);
    let prompt = run.engine.rebuild_prompt(&run.session, calls[1]).await.expect("it was made");
    let own_words: Vec<String> = prompt
        .messages
        .iter()
        .filter(|message| message.chat_role == ChatRole::Assistant)
        .map(|message| message.text())
        .collect();
    assert_eq!(own_words.len(), 1);
    assert!(own_words[0].contains(&of_timer[0].review.feedback), "{own_words:?}");
    // Everything that was asked came from a message of this story's coder.
    assert!(second.ask.iter().all(|fragment| matches!(fragment.source, Some(FragmentSource::Message(_)) | None)));
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m19_knowledge_is_committed_by_the_express_path_and_valid_for_graphviz() {
    let repository = UserRepository::new(&[]);
    let run = run_team(&repository, json!({}), |_| ()).await;
    let phases = run.phases_of_story("knowledge-1");
    assert_eq!(phases, ["SETUP", "CODING", "TESTING", "CODE_REVIEW", "AWAIT_MERGE", "DONE"], "{}", run.describe());
    let dot = repository.file_of_branch("knowledge.dot");
    let graph = parse_knowledge_dot(&dot).expect("it is valid");
    let nodes: Vec<&str> = graph.nodes.keys().map(String::as_str).collect();
    assert_eq!(nodes, ["steeping-times", "tests-in-tests"]);
    let changed = git(&repository.checkout(), &["diff", "--name-only", &format!("{BRANCH}~1"), BRANCH]);
    assert_eq!(changed, "knowledge.dot", "it is a commit of its own");
    // Graphviz is not installed everywhere.
    if std::process::Command::new("dot").arg("-V").output().is_ok() {
        assert!(repository.passes_on_branch(&["dot", "-Tsvg", "-o", "knowledge.svg", "knowledge.dot"]));
    }
    run.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m26_single_context_contradicts_itself_until_the_story_needs_a_person() {
    let repository = UserRepository::new(&[]);
    let run = run_team(&repository, json!({"contexts": "single"}), |_| ()).await;
    let feedback: Vec<String> = run
        .reviews()
        .into_iter()
        .filter(|given| given.attempt == 1 && given.kind == CoderRequestKind::PlanReview)
        .map(|given| given.review.feedback.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(feedback, ["Choose the", "Read the", "Choose the", "Read the", "Choose the", "Read the"]);
    let TurnOutcome::Failed { reason } = &run.report.outcome else { panic!("{}", run.describe()) };
    assert_eq!(reason, "4 of 4 stories are missing");
    assert!(run.merged_stories().iter().all(|story| story.starts_with("knowledge")), "{}", run.describe());
    run.engine.shutdown().await;
}
