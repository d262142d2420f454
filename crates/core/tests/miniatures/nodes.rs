//! Tests of the sample flow with five nodes per turn and no lasting threads.

use expect_test::expect;
use segue_core::context::PreviousPromptComparison;
use segue_core::prompt::CallFailureKind;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniFiveNodeFlow;

#[test]
fn each_node_sees_only_its_own_layers() {
    let mut harness = SessionHarness::open(MiniFiveNodeFlow::new());
    harness
        .send_message("plan meals")
        .answer_call("understand", "ok")
        .answer_call("think", "```json\n{\"steps\": 2}\n```");
    harness
        .answer_call("act", "rice beans")
        .answer_call("act", "fish")
        .answer_call("reply", "Rice or fish?")
        .answer_call("summarize", "offered two");
    harness.send_message("no fish");
    assert_eq!(
        harness.prompt_lines("understand"),
        "System: be understand\nUser: rice beans fish⏎⏎Rice or fish?⏎⏎no fish\n"
    );
    harness.answer_call("understand", "demote fish");
    assert_eq!(harness.prompt_lines("think"), "System: be think\nUser: rice beans fish⏎⏎offered two⏎⏎no fish\n");
    harness.answer_call("think", "{\"steps\": 0}");
    assert_eq!(harness.prompt_lines("reply"), "System: be reply\nUser: Rice or fish?⏎⏎no fish\n");
    harness.answer_call("reply", "Rice.").take_new_event_lines();
    harness.fail_call("summarize", CallFailureKind::Refused);
    expect![[r#"
        c10 attempt 1 failed (refused: as the test wants); given up
        t2 done
    "#]]
    .assert_eq(&harness.take_new_event_lines());
}

#[test]
fn fresh_role_keeps_its_stable_prefix_and_names_the_first_difference() {
    let mut harness = SessionHarness::open(MiniFiveNodeFlow::new());
    harness
        .send_message("one")
        .answer_call("understand", "ok")
        .answer_call("think", "{}")
        .answer_call("reply", "r")
        .answer_call("summarize", "s");
    harness.send_message("two");
    let (call, _) = harness.oldest_open_call("understand");
    let receipt = &harness.session().open_calls[&call].opened.receipt;
    assert!(
        matches!(&receipt.prefix, PreviousPromptComparison::Broken { kept_tokens: 2, cause, .. } if cause == "conversation"),
        "{:?}",
        receipt.prefix
    );
}

#[test]
fn a_layer_over_its_budget_is_cut_and_the_receipt_says_so() {
    let mut harness = SessionHarness::open(MiniFiveNodeFlow::new());
    harness.send_message("one").answer_call("understand", "ok").answer_call("think", "{\"steps\": 1}");
    harness.answer_call("act", "a b c d e f g").answer_call("reply", "r").answer_call("summarize", "1 2 3 4 5 6 7 8 9");
    harness.send_message("two").answer_call("understand", "ok");
    let (call, _) = harness.oldest_open_call("think");
    let receipt = &harness.session().open_calls[&call].opened.receipt;
    let fates: Vec<_> =
        receipt.ask.iter().map(|piece| (piece.name.as_str(), piece.text.is_some(), piece.tokens_before_cut)).collect();
    assert_eq!(fates, [("entities", true, Some(7)), ("reasoning", false, Some(9)), ("message", true, None)]);
}
