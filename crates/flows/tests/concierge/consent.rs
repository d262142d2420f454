//! The user's answers to the question whether the experts may be asked.

use serde_json::json;

use super::support::*;

fn asked() -> segue_testkit::SessionHarness {
    let mut harness = open_with_settings(json!({"confirm_batches": true}));
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert!(harness.session().is_idle());
    harness
}

#[test]
fn longer_yes_confirms_the_batch() {
    for message in ["Yes, go ahead", "Sure, that would be great!", "ok, please do", "Oui", "Ja, gerne"] {
        let mut harness = asked();
        harness.send_message(message);
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{message}");
    }
}

#[test]
fn unclear_answer_keeps_the_confirmation_pending_for_one_message() {
    let mut harness = asked();
    harness.send_message("what would that take?");
    assert_eq!(harness.open_call_roles(), ["concierge"]);
    assert!(concierge_prompt(&harness).1.contains("can still say yes"));
    harness.answer_call("concierge", "A minute.").send_message("yes then");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);

    let mut harness = asked();
    harness.send_message("hm").answer_call("concierge", "Think about it.").send_message("the garden matters too");
    assert!(concierge_prompt(&harness).1.contains("did not say yes to asking the experts"));
    harness.answer_call("concierge", "It does.").send_message("yes");
    assert_eq!(harness.open_call_roles(), ["concierge"], "a yes to something else");
    assert_eq!(facts(&harness, "batch_declined").len(), 1);
}

#[test]
fn yes_word_in_an_objection_spends_nothing() {
    for message in ["Definitely too expensive", "Sure sounds expensive", "What are the steps to register a company?"] {
        let mut harness = asked();
        harness.send_message(message);
        assert_eq!(harness.open_call_roles(), ["concierge"], "{message}");
        assert!(concierge_prompt(&harness).1.contains("can still say yes"), "{message}");
    }
}

#[test]
fn no_is_reported_to_the_concierge() {
    let mut harness = asked();
    harness.send_message("no, leave it");
    assert!(concierge_prompt(&harness).1.contains("did not want you to ask the experts"));
    harness.answer_call("concierge", "Very well.").send_message("yes");
    assert_eq!(harness.open_call_roles(), ["concierge"]);
}

#[test]
fn confirmation_question_has_no_internal_terms() {
    let harness = asked();
    let question = visible_replies(&harness).pop().expect("it was asked");
    assert_eq!(segue_flows::concierge::leaks::find_leaked_terms(&question), [], "{question}");
}
