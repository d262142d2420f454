//! Tests of the sample flow with three agents, messages between them, and threads per peer and work item.

use expect_test::expect;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniTeamFlow;

#[test]
fn reviewers_thread_lasts_for_one_story() {
    let mut harness = SessionHarness::open(MiniTeamFlow::new());
    harness.send_message("story-1 to ann").send_message("story-2 to bob");
    harness.answer_call("coder", "plan one?").answer_call("architect", "change it");
    harness.answer_call("coder", "plan bob?").answer_call("architect", "fine, bob").take_new_event_lines();
    // ann resubmits: the architect sees its own earlier review of ann, and nothing of bob's.
    harness.answer_call("coder", "plan two?");
    assert_eq!(
        harness.prompt_lines("architect"),
        "System: arch on story-1 with ann\nUser: plan one?\nAssistant: change it\nUser: plan two?\n"
    );
    harness.answer_call("architect", "good").answer_call("coder", "done").answer_call("coder", "done");
    // With a new story no event says "reset", but the thread is a new one.
    harness.send_message("story-3 to ann").answer_call("coder", "plan three?");
    assert_eq!(harness.prompt_lines("architect"), "System: arch on story-3 with ann\nUser: plan three?\n");
}

#[test]
fn urgent_message_is_received_first_and_none_is_lost() {
    let mut harness = SessionHarness::open(MiniTeamFlow::new());
    harness
        .send_message("story-1 to ann")
        .send_message("story-2 to ann")
        .send_message("fact to ann")
        .take_new_event_lines();
    harness.answer_call("coder", "done");
    expect![[r#"
        c1 answered: done
        coder of ann: coding → review by agent `ann`
        coder of ann: review → waiting by agent `ann`
        m6 received
        coder of ann: waiting → coding by agent `ann`
        c2 coder ann asked letter on plain in coding, th2 new: another work item; prefix broken by instruction after 0 tokens
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    assert_eq!(harness.prompt_lines("coder"), "System: ann on story-2 with ann\nUser: fact\n");
    harness.answer_call("coder", "noted");
    assert_eq!(
        harness.prompt_lines("coder"),
        "System: ann on story-2 with ann\nUser: fact\nAssistant: noted\nUser: story-2\n"
    );
}

#[test]
fn crash_between_two_messages_loses_neither() {
    let mut harness = SessionHarness::open(MiniTeamFlow::new());
    harness
        .send_message("story-1 to ann")
        .send_message("story-2 to bob")
        .answer_call("coder", "plan one?")
        .crash_and_recover();
    assert_eq!(harness.open_call_roles(), ["coder", "architect"]);
    harness.answer_call("architect", "good").answer_call("coder", "done").answer_call("coder", "done");
    assert!(harness.session().is_idle());
    assert!(harness.session().inboxes.is_empty());
}
