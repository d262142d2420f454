//! Prompt templates of the user's own.

use segue_core::flow::Flow;
use segue_flows::concierge::ConciergeFlow;
use segue_testkit::SessionHarness;
use serde_json::json;

#[test]
fn own_template_is_used_for_its_role_only_and_the_receipt_says_so() {
    let own = json!({"prompts": {"expert": "You are a carpenter. Answer as one."}});
    assert_eq!(Flow::validate_settings(&ConciergeFlow::new(), &own), [""; 0]);
    let mut harness = SessionHarness::open_with_settings(ConciergeFlow::new(), own);
    harness.send_message("Oak or pine?");
    let prompt = harness.prompt_lines("expert");
    assert!(prompt.contains("You are a carpenter."), "{prompt}");
    let (call, _) = harness.oldest_open_call("expert");
    let opened = &harness.session().open_calls[&call].opened;
    let whys: Vec<&str> = opened.receipt.opening.iter().map(|fragment| fragment.why.as_str()).collect();
    assert!(whys.iter().any(|why| why.ends_with("with your own prompt expert")), "{whys:?}");
    for _ in 0..3 {
        harness.answer_call("expert", "Oak.");
    }
    let mapper = harness.prompt_lines("mapper");
    assert!(mapper.contains("You make a map of the positions"), "{mapper}");
    harness.assert_invariants();
}

#[test]
fn template_that_fails_with_some_arguments_is_replaced_by_the_built_in_one() {
    // `format` is a text, so it has no member.
    let own = json!({"prompts": {"mapper": "Make a map: {{ format.member.of_it }}"}});
    assert_eq!(Flow::validate_settings(&ConciergeFlow::new(), &own), [""; 0], "the variable exists");
    let mut harness = SessionHarness::open_with_settings(ConciergeFlow::new(), own);
    harness.send_message("Oak or pine?");
    for _ in 0..3 {
        harness.answer_call("expert", "Oak.");
    }
    assert!(harness.prompt_lines("mapper").contains("You make a map of the positions"));
}
