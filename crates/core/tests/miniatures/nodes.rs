//! Five nodes a turn, no threads, each shown its own slice of three layers.

use expect_test::expect;
use segue_core::context::Prefix;
use segue_core::prompt::FailureKind;
use segue_testkit::Stage;
use segue_testkit::miniatures::Nodes;

#[test]
fn each_node_is_shown_its_own_slice_and_nothing_of_the_others() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("plan meals").answer("understand", "ok").answer("think", "```json\n{\"steps\": 2}\n```");
    stage
        .answer("act", "rice beans")
        .answer("act", "fish")
        .answer("reply", "Rice or fish?")
        .answer("summarize", "offered two");
    stage.say("no fish");
    assert_eq!(
        stage.prompt_lines("understand"),
        "System: be understand\nUser: rice beans fish⏎⏎Rice or fish?⏎⏎no fish\n"
    );
    stage.answer("understand", "demote fish");
    assert_eq!(stage.prompt_lines("think"), "System: be think\nUser: rice beans fish⏎⏎offered two⏎⏎no fish\n");
    stage.answer("think", "{\"steps\": 0}");
    assert_eq!(stage.prompt_lines("reply"), "System: be reply\nUser: Rice or fish?⏎⏎no fish\n");
    stage.answer("reply", "Rice.").log();
    stage.fail("summarize", FailureKind::Refused);
    expect![[r#"
        c10 try 1 failed (refused: as the test wants); given up
        t2 done
    "#]]
    .assert_eq(&stage.log());
}

#[test]
fn a_stateless_role_keeps_its_stable_prefix_and_names_what_broke_it() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("one").answer("understand", "ok").answer("think", "{}").answer("reply", "r").answer("summarize", "s");
    stage.say("two");
    let (call, _) = stage.open_call("understand");
    let receipt = &stage.session().calls[&call].opened.receipt;
    assert!(
        matches!(&receipt.prefix, Prefix::Broken { kept: 2, by, .. } if by == "conversation"),
        "{:?}",
        receipt.prefix
    );
}

#[test]
fn a_layer_over_its_budget_is_cut_and_the_receipt_says_so() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("one").answer("understand", "ok").answer("think", "{\"steps\": 1}");
    stage.answer("act", "a b c d e f g").answer("reply", "r").answer("summarize", "1 2 3 4 5 6 7 8 9");
    stage.say("two").answer("understand", "ok");
    let (call, _) = stage.open_call("think");
    let receipt = &stage.session().calls[&call].opened.receipt;
    let fates: Vec<_> =
        receipt.ask.iter().map(|piece| (piece.name.as_str(), piece.text.is_some(), piece.cut_from)).collect();
    assert_eq!(fates, [("entities", true, Some(7)), ("reasoning", false, Some(9)), ("message", true, None)]);
}
