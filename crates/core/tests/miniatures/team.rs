//! Three agents with state machines of their own, messages between them, a reviewer whose threads are keyed by (peer, work
//! item), an urgent lane.

use expect_test::expect;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniTeam;

#[test]
fn the_reviewer_remembers_within_a_story_and_forgets_with_it() {
    let mut stage = SessionHarness::open(MiniTeam::new());
    stage.send_message("story-1 to ann").send_message("story-2 to bob");
    stage.answer_call("coder", "plan one?").answer_call("architect", "change it");
    stage.answer_call("coder", "plan bob?").answer_call("architect", "fine, bob").take_log();
    // ann resubmits: the architect sees its own earlier review of ann, and nothing of bob's.
    stage.answer_call("coder", "plan two?");
    assert_eq!(
        stage.prompt_lines("architect"),
        "System: arch on story-1 with ann\nUser: plan one?\nAssistant: change it\nUser: plan two?\n"
    );
    stage.answer_call("architect", "good").answer_call("coder", "done").answer_call("coder", "done");
    // A new story: no event says "reset", yet the thread is another.
    stage.send_message("story-3 to ann").answer_call("coder", "plan three?");
    assert_eq!(stage.prompt_lines("architect"), "System: arch on story-3 with ann\nUser: plan three?\n");
}

#[test]
fn an_urgent_letter_is_taken_first_and_none_is_lost() {
    let mut stage = SessionHarness::open(MiniTeam::new());
    stage.send_message("story-1 to ann").send_message("story-2 to ann").send_message("fact to ann").take_log();
    stage.answer_call("coder", "done");
    expect![[r#"
        c1 answered: done
        coder of ann: coding → review by agent `ann`
        coder of ann: review → waiting by agent `ann`
        m6 taken
        coder of ann: waiting → coding by agent `ann`
        c2 coder ann asked letter on plain in coding, th2 new: another work item; prefix kept 0, broken by instruction
    "#]]
    .assert_eq(&stage.take_log());
    assert_eq!(stage.prompt_lines("coder"), "System: ann on story-2 with ann\nUser: fact\n");
    stage.answer_call("coder", "noted");
    assert_eq!(
        stage.prompt_lines("coder"),
        "System: ann on story-2 with ann\nUser: fact\nAssistant: noted\nUser: story-2\n"
    );
}

#[test]
fn a_crash_between_two_letters_loses_neither() {
    let mut stage = SessionHarness::open(MiniTeam::new());
    stage
        .send_message("story-1 to ann")
        .send_message("story-2 to bob")
        .answer_call("coder", "plan one?")
        .crash_and_recover();
    assert_eq!(stage.open_call_roles(), ["coder", "architect"]);
    stage.answer_call("architect", "good").answer_call("coder", "done").answer_call("coder", "done");
    assert!(stage.session().is_idle());
    assert!(stage.session().inboxes.is_empty());
}
