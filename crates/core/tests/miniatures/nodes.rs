//! Five nodes a turn, no threads, each shown its own slice of three layers.

use expect_test::expect;
use segue_core::context::PrefixMatch;
use segue_core::prompt::FailureKind;
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniNodes;

#[test]
fn each_node_is_shown_its_own_slice_and_nothing_of_the_others() {
    let mut stage = SessionHarness::open(MiniNodes::new());
    stage
        .send_message("plan meals")
        .answer_call("understand", "ok")
        .answer_call("think", "```json\n{\"steps\": 2}\n```");
    stage
        .answer_call("act", "rice beans")
        .answer_call("act", "fish")
        .answer_call("reply", "Rice or fish?")
        .answer_call("summarize", "offered two");
    stage.send_message("no fish");
    assert_eq!(
        stage.prompt_lines("understand"),
        "System: be understand\nUser: rice beans fish⏎⏎Rice or fish?⏎⏎no fish\n"
    );
    stage.answer_call("understand", "demote fish");
    assert_eq!(stage.prompt_lines("think"), "System: be think\nUser: rice beans fish⏎⏎offered two⏎⏎no fish\n");
    stage.answer_call("think", "{\"steps\": 0}");
    assert_eq!(stage.prompt_lines("reply"), "System: be reply\nUser: Rice or fish?⏎⏎no fish\n");
    stage.answer_call("reply", "Rice.").take_log();
    stage.fail_call("summarize", FailureKind::Refused);
    expect![[r#"
        c10 try 1 failed (refused: as the test wants); given up
        t2 done
    "#]]
    .assert_eq(&stage.take_log());
}

#[test]
fn a_stateless_role_keeps_its_stable_prefix_and_names_what_broke_it() {
    let mut stage = SessionHarness::open(MiniNodes::new());
    stage
        .send_message("one")
        .answer_call("understand", "ok")
        .answer_call("think", "{}")
        .answer_call("reply", "r")
        .answer_call("summarize", "s");
    stage.send_message("two");
    let (call, _) = stage.oldest_open_call("understand");
    let receipt = &stage.session().open_calls[&call].opened.receipt;
    assert!(
        matches!(&receipt.prefix, PrefixMatch::Broken { kept_tokens: 2, cause, .. } if cause == "conversation"),
        "{:?}",
        receipt.prefix
    );
}

#[test]
fn a_layer_over_its_budget_is_cut_and_the_receipt_says_so() {
    let mut stage = SessionHarness::open(MiniNodes::new());
    stage.send_message("one").answer_call("understand", "ok").answer_call("think", "{\"steps\": 1}");
    stage.answer_call("act", "a b c d e f g").answer_call("reply", "r").answer_call("summarize", "1 2 3 4 5 6 7 8 9");
    stage.send_message("two").answer_call("understand", "ok");
    let (call, _) = stage.oldest_open_call("think");
    let receipt = &stage.session().open_calls[&call].opened.receipt;
    let fates: Vec<_> =
        receipt.ask.iter().map(|piece| (piece.name.as_str(), piece.text.is_some(), piece.tokens_before_cut)).collect();
    assert_eq!(fates, [("entities", true, Some(7)), ("reasoning", false, Some(9)), ("message", true, None)]);
}
