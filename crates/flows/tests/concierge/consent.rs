//! What the user says to the question whether everyone may be asked.

use serde_json::json;

use super::play::*;

fn asked() -> segue_testkit::SessionHarness {
    let mut stage = open_set(json!({"confirm_batches": true}));
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert!(stage.session().is_idle());
    stage
}

#[test]
fn yes_in_more_words_is_a_yes() {
    for message in ["Yes, go ahead", "Sure, that would be great!", "ok, please do"] {
        let mut stage = asked();
        stage.send_message(message);
        assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"], "{message}");
    }
}

#[test]
fn what_is_neither_yes_nor_no_leaves_the_wish_open_for_one_message() {
    let mut stage = asked();
    stage.send_message("what would that take?");
    assert_eq!(stage.open_call_roles(), ["concierge"]);
    assert!(concierge_prompt(&stage).1.contains("they can still say yes"));
    stage.answer_call("concierge", "A minute.").send_message("yes then");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);

    let mut stage = asked();
    stage.send_message("hm").answer_call("concierge", "Think about it.").send_message("the garden matters too");
    assert!(concierge_prompt(&stage).1.contains("did not say yes to having the experts asked"));
    stage.answer_call("concierge", "It does.").send_message("yes");
    assert_eq!(stage.open_call_roles(), ["concierge"], "a yes to something else");
    assert_eq!(facts(&stage, "declined").len(), 1);
}

#[test]
fn a_no_is_told_as_one() {
    let mut stage = asked();
    stage.send_message("no, leave it");
    assert!(concierge_prompt(&stage).1.contains("did not want the experts"));
    stage.answer_call("concierge", "Very well.").send_message("yes");
    assert_eq!(stage.open_call_roles(), ["concierge"]);
}

#[test]
fn the_question_itself_speaks_of_no_machinery() {
    let stage = asked();
    let question = heard(&stage).pop().expect("it was asked");
    assert_eq!(segue_flows::concierge::leaks::find_leaked_terms(&question), [], "{question}");
}
