//! A story from its plan to its merge, with everything that can go wrong on the way.

use segue_core::event::Event;
use segue_core::ids::TurnId;
use segue_core::prompt::CallFailureKind;
use segue_core::tool::ToolResult;
use segue_flows::team::facts::{StoryStatus, TeamFact, TeamFailureKind};
use segue_flows::team::repository_tools::{RepositoryTool, RepositoryToolResult};
use segue_flows::team::review::ReviewVerdict;
use serde_json::json;

use crate::support::{APPROVED, TestTeam, diff_of, spec, story_json};

const NEEDS_CHANGES: &str = r#"{"verdict": "NEEDS_CHANGES", "feedback": "More detail."}"#;

fn code_review(story: &str) -> String {
    json!({"verdict": "NEEDS_CHANGES", "feedback": "A bug.", "findings": [
        {"file": format!("{story}.txt"), "line": 2, "text": "off by one"},
        {"file": format!("{story}.txt"), "line": 77, "text": "elsewhere"}]})
    .to_string()
}

fn tool_value(result: RepositoryToolResult, text: &str) -> ToolResult {
    ToolResult { text: text.to_owned(), value: serde_json::to_value(result).ok(), ..ToolResult::default() }
}

fn red(commit: &str, digest: &str) -> ToolResult {
    let result = RepositoryToolResult {
        commit: commit.to_owned(),
        passed: Some(false),
        failure_digest: digest.to_owned(),
        ..RepositoryToolResult::default()
    };
    tool_value(result, "1 test failed")
}

fn moved(team: &TestTeam, wanted: &str) -> Vec<StoryStatus> {
    let facts = team.facts().into_iter();
    let of_story = facts.filter_map(|fact| match fact {
        TeamFact::StoryMoved { story, status, .. } if story == wanted => Some(status),
        _ => None,
    });
    of_story.collect()
}

#[test]
fn m20_ordinary_story_passes_all_phases() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.finish_story("coder-1");
    assert_eq!(
        team.phases("coder-1"),
        ["SETUP", "PLANNING", "PLAN_REVIEW", "CODING", "TESTING", "CODE_REVIEW", "AWAIT_MERGE", "DONE", "WAITING"]
    );
    assert_eq!(
        team.phases("architect"),
        ["DISPATCHING", "MONITORING", "REQUEST", "MONITORING", "REQUEST", "MONITORING", "DONE", "WAITING"]
    );
    assert_eq!(team.phases("pm"), ["WORKING", "PREVIEW", "AWAIT_ARCHITECT", "DONE", "WAITING"]);
    assert_eq!(team.merged.len(), 1);
    assert!(team.harness.last_reply().contains("All 1 stories"), "{}", team.harness.last_reply());
    assert_eq!(team.harness.session().title, "Tea timer");
}

/// Returns the last reply with the turn that it belongs to, and how many turns have started.
fn last_reply_turn(team: &TestTeam) -> (Option<TurnId>, usize) {
    let journal = || team.harness.journal().iter().map(|recorded| &recorded.event);
    let turns = journal().filter(|event| matches!(event, Event::TurnStarted { .. })).count();
    let mut replies = journal().filter_map(|event| match event {
        Event::ReplySent(reply) => Some(reply.turn),
        _ => None,
    });
    (replies.next_back().flatten(), turns)
}

#[test]
fn account_of_a_spec_is_the_reply_of_a_turn_of_its_own() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.finish_story("coder-1");
    assert!(team.harness.last_reply().contains("All 1 stories"));
    assert_eq!(last_reply_turn(&team), (Some(TurnId(2)), 2));
    assert!(team.harness.session().current_turn.is_none());
}

#[test]
fn account_of_a_spec_waits_for_the_answer_that_is_being_written() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "the plan").answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done");
    team.harness.send_message("How far are you?");
    team.answer_architect("coder-1", APPROVED);
    assert!(!team.harness.last_reply().contains("All 1 stories"));
    team.harness.answer_call("product_manager", r#"{"say": "Nearly there."}"#);
    assert!(team.harness.last_reply().contains("All 1 stories"), "{}", team.describe());
    assert_eq!(last_reply_turn(&team), (Some(TurnId(3)), 3));
    team.harness.send_message("Thanks.");
    team.harness.answer_call("product_manager", r#"{"say": "You are welcome."}"#);
    assert_eq!(team.harness.last_reply(), "You are welcome.", "it is told once");
}

#[test]
fn coder_can_only_read_while_it_plans() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let tools = |team: &TestTeam| -> Vec<String> {
        let prompt = team.harness.prompt_for_call(team.coder_call("coder-1"));
        prompt.tools.iter().map(|tool| tool.name.to_string()).collect()
    };
    assert!(!tools(&team).contains(&"write_file".to_owned()));
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    assert!(tools(&team).contains(&"write_file".to_owned()));
}

#[test]
fn dependent_story_waits_for_its_merge_and_others_run_in_parallel() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &["a"]), story_json("c", &[])]);
    assert_eq!((team.story_of("coder-1").as_deref(), team.story_of("coder-2").as_deref()), (Some("a"), Some("c")));
    team.finish_story("coder-2");
    assert_eq!(team.phase("coder-2"), "WAITING", "b needs a");
    team.finish_story("coder-1");
    assert!(["coder-1", "coder-2"].iter().any(|agent| team.story_of(agent).as_deref() == Some("b")));
}

#[test]
fn stories_with_the_same_files_are_not_worked_on_at_once() {
    let mut second = story_json("b", &[]);
    second["files"] = json!(["a.txt"]);
    let mut team = TestTeam::start(2, &[story_json("a", &[]), second]);
    assert_eq!(team.phase("coder-2"), "WAITING");
    team.finish_story("coder-1");
    assert!(["coder-1", "coder-2"].iter().any(|agent| team.story_of(agent).as_deref() == Some("b")));
}

#[test]
fn invalid_stories_are_repaired_once_and_then_the_spec_is_one_story() {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1}));
    team.harness.send_message("go");
    team.command("start", json!({})).finish_tools();
    team.answer_architect("pm", r#"{"stories": [{"id": "a", "title": "A"}]}"#);
    let prompt = team.prompt(team.architect_call("pm"));
    assert!(prompt.contains("`acceptance` must list"), "{prompt}");
    team.answer_architect("pm", "no");
    assert_eq!(team.story_of("coder-1").as_deref(), Some("all"));
    assert_eq!(team.phase("coder-1"), "PLANNING", "{}", team.describe());
}

#[test]
fn code_refuses_a_change_before_anybody_reviews_it() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.diffs.insert("a".to_owned(), diff_of("elsewhere.txt"));
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done");
    assert_eq!(team.phase("coder-1"), "CODING");
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("`elsewhere.txt` may not be changed by this story"), "{prompt}");
    team.diffs.remove("a");
    team.answer_coder("coder-1", "done now");
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW");
}

#[test]
fn findings_without_a_line_of_the_diff_are_dropped_and_asked_for_once_more() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done");
    team.answer_architect("coder-1", &code_review("a"));
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("a.txt:2: off by one") && !prompt.contains("elsewhere"), "{prompt}");
    team.answer_coder("coder-1", "done again").answer_architect("coder-1", NEEDS_CHANGES);
    let prompt = team.prompt(team.architect_call("coder-1"));
    assert!(prompt.contains("no finding names a line of the diff"), "{prompt}");
    team.answer_architect("coder-1", NEEDS_CHANGES);
    assert_eq!(moved(&team, "a"), [StoryStatus::Escalated], "then the user decides");
    assert_eq!(team.phase("coder-1"), "WAITING");
}

#[test]
fn long_diff_is_reviewed_file_by_file() {
    let mut story = story_json("a", &[]);
    story["files"] = json!(["**"]);
    let mut team = TestTeam::start(1, &[story]);
    let long = |path: &str| format!("{}@@ -9,0 +9,1 @@\n+{}\n", diff_of(path), "x".repeat(30_000));
    team.diffs.insert("a".to_owned(), format!("{}{}", long("one.txt"), long("two.txt")));
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done");
    let first = team.prompt(team.architect_call("coder-1"));
    assert!(first.contains("file 1 of 2") && first.contains("one.txt") && !first.contains("b/two.txt"));
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW");
    let finding = json!({"verdict": "NEEDS_CHANGES", "feedback": "no", "findings": [{"file": "two.txt", "line": 1, "text": "bad"}]});
    team.answer_architect("coder-1", &finding.to_string());
    assert_eq!(team.phase("coder-1"), "CODING", "the strictest part decides");
}

#[test]
fn failed_tests_go_back_to_the_coder_and_the_same_failure_twice_starts_afresh() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    team.surprises.push((RepositoryTool::Test, "a".to_owned(), red("commit1", "same")));
    team.answer_coder("coder-1", "done");
    assert_eq!(team.phase("coder-1"), "CODING");
    assert!(team.prompt(team.coder_call("coder-1")).contains("1 test failed"));
    team.surprises.push((RepositoryTool::Test, "a".to_owned(), red("commit2", "same")));
    team.answer_coder("coder-1", "done");
    assert_eq!(team.phase("coder-1"), "CODING", "{}", team.describe());
    let work = team.work_of("coder-1");
    assert_eq!(work, "a#2.1", "a new attempt has a new thread");
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(
        prompt.contains("attempt 2")
            && prompt.contains("plan review of coder-1: APPROVED")
            && !prompt.contains("1 test failed")
    );
    assert!(team.facts().iter().any(|fact| matches!(fact, TeamFact::Assigned(work) if work.attempt == 2)));
}

#[test]
fn m27_used_up_rounds_force_a_review_and_return_to_where_they_were() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    for _ in 0..10 {
        let call = team.coder_call("coder-1");
        team.answer_with_tool(call, "list_files", json!({})).end_model_tool("list_files", "a.txt");
    }
    assert_eq!(team.phase("coder-1"), "BUDGET_REVIEW", "{}", team.describe());
    let prompt = team.prompt(team.architect_call("coder-1"));
    assert!(prompt.contains("used up its rounds while planning"), "{prompt}");
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.phase("coder-1"), "PLANNING");
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    for _ in 0..12 {
        let call = team.coder_call("coder-1");
        team.answer_with_tool(call, "list_files", json!({})).end_model_tool("list_files", "a.txt");
    }
    assert_eq!(team.phase("coder-1"), "BUDGET_REVIEW");
    team.answer_architect("coder-1", NEEDS_CHANGES);
    assert_eq!(team.phase("coder-1"), "CODING");
    assert!(team.prompt(team.coder_call("coder-1")).contains("More detail."));
}

#[test]
fn m28_third_request_for_changes_warns_and_the_sixth_rejects() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    for round in 1..=5 {
        team.answer_coder("coder-1", "plan").answer_architect("coder-1", NEEDS_CHANGES);
        let warned = team.prompt(team.coder_call("coder-1")).contains("times in a row");
        assert_eq!(warned, round >= 3, "round {round}");
    }
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", NEEDS_CHANGES);
    let given = team.facts().into_iter().rev().find_map(|fact| match fact {
        TeamFact::ReviewGiven(given) => Some(*given),
        _ => None,
    });
    let given = given.expect("there are reviews");
    assert_eq!(
        (given.streak, given.verdict, given.review.verdict),
        (6, ReviewVerdict::Rejected, ReviewVerdict::NeedsChanges)
    );
    // The story is rewritten and waits again, once.
    let work = team.work_of("coder-1");
    assert_eq!(work, "a#2.2");
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("An earlier attempt failed"), "{prompt}");
    team.answer_coder("coder-1", "plan")
        .answer_architect("coder-1", r#"{"verdict": "REJECTED", "feedback": "impossible"}"#);
    assert_eq!(moved(&team, "a"), [StoryStatus::Escalated]);
    assert!(team.harness.last_reply().contains("needs you"), "{}", team.harness.last_reply());
}

#[test]
fn rejected_story_blocks_its_dependants_and_the_others_go_on() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &["a"]), story_json("c", &[])]);
    for _ in 0..2 {
        team.answer_coder("coder-1", "plan")
            .answer_architect("coder-1", r#"{"verdict": "REJECTED", "feedback": "no"}"#);
    }
    assert_eq!(moved(&team, "b"), [StoryStatus::Blocked]);
    team.finish_story("coder-2");
    let reply = team.harness.last_reply();
    assert!(
        reply.contains("1 of 3 stories") && reply.contains("a \"Title of a\"") && reply.contains("blocked"),
        "{reply}"
    );
    // The user tries again: the dependant waits again, too.
    assert_eq!(team.phase("architect"), "WAITING");
}

#[test]
fn answer_for_an_assignment_that_changed_is_recorded_and_discarded() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan");
    let call = team.architect_call("coder-1");
    team.command("edit_story", json!({"story": "a", "description": "something else"})).finish_tools();
    assert!(!team.harness.session().open_calls.contains_key(&call), "the review of the old story is not awaited");
    assert_eq!(team.work_of("coder-1"), "a#2.2");
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("something else") && !prompt.contains("secret-of-a"), "{prompt}");
}

#[test]
fn merges_happen_one_at_a_time_and_a_changed_diff_is_reviewed_again() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    for agent in ["coder-1", "coder-2"] {
        team.answer_coder(agent, "plan").answer_architect(agent, APPROVED).answer_coder(agent, "done");
    }
    let changed = RepositoryToolResult {
        base: "newer".to_owned(),
        commit: "rebased".to_owned(),
        diff_digest: "other".to_owned(),
        ..RepositoryToolResult::default()
    };
    team.surprises.push((RepositoryTool::Rebase, "b".to_owned(), tool_value(changed, &diff_of("b.txt"))));
    team.answer_architect("coder-1", APPROVED);
    team.answer_architect("coder-2", APPROVED);
    assert_eq!(team.merged.len(), 1);
    assert_eq!(team.phase("coder-2"), "CODE_REVIEW", "the diff is not the one that was approved");
    assert!(team.phases("coder-2").ends_with(&["AWAIT_MERGE", "CODING", "TESTING", "CODE_REVIEW"].map(str::to_owned)));
    team.answer_architect("coder-2", APPROVED);
    assert_eq!(team.merged.len(), 2);
}

#[test]
fn stories_that_break_together_do_not_both_merge() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    for agent in ["coder-1", "coder-2"] {
        team.answer_coder(agent, "plan").answer_architect(agent, APPROVED).answer_coder(agent, "done");
    }
    team.answer_architect("coder-1", APPROVED);
    // The rebase of the second is clean, but its tests fail on the new base.
    let diff_digest = segue_core::body::BodyId::hash_text(&diff_of("b.txt")).to_string();
    let rebased = RepositoryToolResult {
        base: "commit1".into(),
        commit: "rebased".into(),
        diff_digest,
        ..RepositoryToolResult::default()
    };
    team.surprises.push((RepositoryTool::Rebase, "b".to_owned(), tool_value(rebased, &diff_of("b.txt"))));
    team.surprises.push((RepositoryTool::Test, "b".to_owned(), red("rebased", "together")));
    team.answer_architect("coder-2", APPROVED);
    assert_eq!(team.merged, ["commit1"]);
    assert_eq!(team.phase("coder-2"), "CODING");
}

#[test]
fn merge_conflict_redoes_the_story_on_the_new_base_and_is_bounded() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let conflict = || {
        let result = RepositoryToolResult {
            base: "newer".into(),
            conflicts: true,
            files: vec!["a.txt".into()],
            ..RepositoryToolResult::default()
        };
        tool_value(result, "")
    };
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    for _ in 0..2 {
        team.surprises.push((RepositoryTool::Rebase, "a".to_owned(), conflict()));
        team.answer_coder("coder-1", "done").answer_architect("coder-1", APPROVED);
        assert_eq!(team.phase("coder-1"), "CODING");
        let prompt = team.prompt(team.coder_call("coder-1"));
        assert!(
            prompt.contains("conflict with them in these files:\n```\na.txt\n```") && prompt.contains("+one"),
            "{prompt}"
        );
    }
    team.surprises.push((RepositoryTool::Rebase, "a".to_owned(), conflict()));
    team.answer_coder("coder-1", "done").answer_architect("coder-1", APPROVED);
    assert!(team.phases("coder-1").contains(&"ERROR".to_owned()));
}

#[test]
fn story_without_a_change_is_done_if_the_architect_agrees() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.diffs.insert("a".to_owned(), String::new());
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED).answer_coder("coder-1", "nothing to do");
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW");
    team.answer_architect("coder-1", APPROVED);
    assert!(team.merged.is_empty());
    assert!(team.harness.last_reply().contains("All 1 stories"));
}

#[test]
fn m29_contexts_and_states_survive_a_restart_in_every_phase() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.harness.crash_and_recover();
    team.answer_coder("coder-1", "plan one");
    team.harness.crash_and_recover();
    team.answer_architect("coder-1", NEEDS_CHANGES);
    team.harness.crash_and_recover();
    team.answer_coder("coder-1", "plan two");
    team.harness.crash_and_recover();
    assert!(team.prompt(team.architect_call("coder-1")).contains("plan one"), "the context is restored");
    team.answer_architect("coder-1", APPROVED);
    team.harness.crash_and_recover();
    team.answer_coder("coder-1", "done");
    team.harness.crash_and_recover();
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.merged.len(), 1);
}

#[test]
fn m30_outage_suspends_and_returns_in_place_and_then_a_person_is_asked() {
    let fail_four_times = |team: &mut TestTeam, role: &str| {
        for _ in 0..4 {
            team.harness.advance_clock(60_000);
            team.harness.fail_call(role, CallFailureKind::Overload);
        }
    };
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    fail_four_times(&mut team, "coder");
    assert_eq!(team.phase("coder-1"), "SUSPEND");
    team.harness.advance_and_tick(61_000);
    assert_eq!(team.phase("coder-1"), "PLANNING");
    team.answer_coder("coder-1", "plan");
    fail_four_times(&mut team, "architect");
    assert_eq!((team.phase("architect"), team.phase("coder-1")), ("SUSPEND".to_owned(), "PLAN_REVIEW".to_owned()));
    team.harness.advance_and_tick(61_000);
    assert_eq!(team.phase("architect"), "REQUEST");
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.phase("coder-1"), "CODING");
    for _ in 0..5 {
        if team.phase("coder-1") != "CODING" {
            break;
        }
        fail_four_times(&mut team, "coder");
        team.harness.advance_and_tick(61_000);
    }
    let escalated = team.facts().into_iter().find_map(|fact| match fact {
        TeamFact::Escalated { subject, failure, .. } => Some((subject, failure)),
        _ => None,
    });
    assert_eq!(escalated, Some(("a".to_owned(), TeamFailureKind::Transient)));
}

#[test]
fn failure_of_the_environment_is_named_as_such() {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1}));
    team.surprises.push((RepositoryTool::Worktree, "a".to_owned(), ToolResult::failed("no space left on the disk")));
    team.begin(&[story_json("a", &[])]);
    let escalated = team.facts().into_iter().find_map(|fact| match fact {
        TeamFact::Escalated { reason, failure, .. } => Some((reason, failure)),
        _ => None,
    });
    let (reason, failure) = escalated.expect("a person is asked");
    assert!(reason.contains("no space left") && failure == TeamFailureKind::Environment);
}

#[test]
fn repository_that_cannot_be_used_is_reported() {
    let mut team = TestTeam::open(json!({"spec": spec(), "headless": true}));
    team.surprises.push((RepositoryTool::Inspect, String::new(), ToolResult::failed("the repository has no commits")));
    team.harness.send_message("go");
    team.finish_tools();
    assert!(team.harness.session().current_turn.is_none(), "a headless turn fails");
    assert!(team.harness.session().failed_turn.is_some());
}
