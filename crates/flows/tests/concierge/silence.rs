//! Answers that hold nothing for the user: only a block, or nothing at all. The user is never left without a word.

use segue_core::event::TurnResult;

use super::failures::outcome;
use super::play::*;

#[test]
fn a_starter_who_only_hands_over_leaves_the_answer_to_the_explorer() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay five years").answer_call("concierge", HANDOVER);
    assert_eq!((phase(&stage).current.as_str(), stage.open_call_roles()), ("explorer", vec!["concierge".to_owned()]));
    let call = calls(&stage, "concierge")[2].clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    assert_eq!(concierge_prompt(&stage).1, "I stay five years", "it is told nothing of another's silence");
    stage.answer_call("concierge", "Then buy.");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("Then buy.", TurnResult::Done));
}

#[test]
fn an_empty_answer_is_asked_for_once_more_and_then_fails_the_turn() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("where?").answer_call("concierge", "  \n");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("held nothing that the user can see") && last.ends_with("where?"), "{last}");
    stage.answer_call("concierge", "In town.");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("In town.", TurnResult::Done));

    stage.send_message("why?").answer_call("concierge", "").answer_call("concierge", "");
    let TurnResult::Failed { reason } = outcome(&stage) else { panic!("the turn has failed") };
    assert!(reason.contains("nothing to show"), "{reason}");
    stage.send_message("retry");
    assert!(concierge_prompt(&stage).1.ends_with("why?"), "the question is still open");
    stage.answer_call("concierge", "Because.").send_message("and?");
    assert_eq!(concierge_prompt(&stage).1, "and?");
}

#[test]
fn an_executor_who_only_asks_for_help_gives_it_in_the_same_turn() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("the bank says no").answer_call("concierge", STEP_HELP);
    experts(&mut stage, PLAN_MAP);
    assert_eq!(layout(calls(&stage, "concierge").last().expect("it is asked")), "| findings message");
    assert!(concierge_prompt(&stage).1.ends_with("the bank says no"));
    stage.answer_call("concierge", "Try the other bank.").send_message("thanks");
    assert_eq!(concierge_prompt(&stage).1, "thanks", "and it is told once");
}

#[test]
fn a_step_that_is_marked_done_without_a_word_is_followed_by_one() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("I have the letter").answer_call("concierge", "<<<STEP_DONE>>>\nstep: 1\n<<<END>>>");
    let call = calls(&stage, "concierge").last().expect("it is asked").clone();
    assert_eq!(layout(&call), "| workflow notices message");
    stage.answer_call("concierge", "Well done.").send_message("found one");
    stage.answer_call("concierge", "<<<STEP_DONE>>>\nstep: 2\n<<<END>>>");
    assert_eq!(phase(&stage).current, *"explorer");
    let outcome = stage.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.text_field("outcome"), Some("All 2 steps were done."));
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("All 2 steps were done.") && last == "found one", "{system}\n{last}");
    stage.answer_call("concierge", "Congratulations.");
    assert_eq!(stage.last_reply(), "Congratulations.");
}

#[test]
fn a_plan_that_is_only_steps_is_put_into_words() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("plan it").answer_call("concierge", &said(WORKFLOW));
    experts(&mut stage, PLAN_MAP);
    let steps = PLAN.split_once("\n\n").expect("words, then steps").1;
    stage.answer_call("concierge", steps);
    assert_eq!(facts(&stage, "workflow").len(), 1);
    let call = calls(&stage, "concierge").last().expect("it is asked").clone();
    assert_eq!((call.ask.as_str(), layout(&call).as_str()), ("reply", "| notices message"));
    assert!(concierge_prompt(&stage).1.contains("held nothing that the user can see"));
    stage.answer_call("concierge", "First the bank, then five flats.");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("First the bank, then five flats.", TurnResult::Done));
}

#[test]
fn what_is_answered_in_private_is_no_word_to_the_user() {
    let mut stage = open();
    explored(&mut stage);
    stage
        .send_message("May, then")
        .answer_call("concierge", "<<<BATCH>>>\nTYPE: WORKFLOW\nHANDO")
        .answer_call("concierge", "Sorry, no.");
    assert_eq!(stage.open_call_roles(), ["concierge"], "only the rules have heard that");
    assert!(concierge_prompt(&stage).1.contains("held nothing that the user can see"));
    stage.answer_call("concierge", "What is it to be?");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("What is it to be?", TurnResult::Done));

    let mut stage = open_set(serde_json::json!({"handover_by_turn": 2}));
    started(&mut stage);
    stage
        .send_message("I stay")
        .answer_call("concierge", "<<<HANDOVER>>>\nshape: x\n<<<END>>>")
        .answer_call("concierge", "It is done.");
    assert_eq!((phase(&stage).current.as_str(), stage.open_call_roles().len()), ("explorer", 1));
    stage.answer_call("concierge", "Then buy.");
    assert_eq!(heard(&stage).last().map(String::as_str), Some("Then buy."));

    let mut stage = open();
    explored(&mut stage);
    stage.send_message("plan it").answer_call("concierge", &said(WORKFLOW));
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", "").answer_call("concierge", "1. Go.\n2. Come.");
    assert_eq!(stage.open_call_roles(), ["concierge"], "the plan was told in private alone");
    stage.answer_call("concierge", "Go, then come.");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("Go, then come.", TurnResult::Done));
}
