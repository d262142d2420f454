//! A user who asks for a plan gets one, whatever the explorer writes; one who does not is never pushed.

use expect_test::expect;
use segue_core::event::TurnResult;
use segue_core::handover::{Handover, HandoverProvenance};
use segue_core::prompt::FailureKind;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::failures::outcome;
use super::play::*;

const ASKS: &str = "We buy a flat by May. Give us a plan: what are the steps?";

fn execution(stage: &SessionHarness) -> Handover {
    stage.session().latest_handover("execution").expect("it was made").clone()
}

#[test]
fn an_explorer_that_never_writes_the_block_is_asked_for_it_once_and_then_done_without() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("a garden matters").answer_call("concierge", "Noted.");
    stage.send_message(ASKS).answer_call("concierge", "First tell me about the money.");
    assert!(stage.session().is_idle(), "the first request is the explorer's to judge");
    assert_eq!(facts(&stage, "plan_asked")[0]["words"], "give us a plan");
    stage.send_message("Money is tight. Give us a plan.").take_log();
    stage.answer_call("concierge", "A plan is a fine thing.");
    assert!(concierge_prompt(&stage).1.contains("asked for a plan, and your request for one did not come"));
    stage.answer_call("concierge", "I said so already.");
    expect![[r#"
        c9 answered: A plan is a fine thing.
        reply by concierge: A plan is a fine thing.
        plan_asked {"message":5,"times":2,"words":"give us a plan"}
        repair of handover execution requested
        c10 concierge asked repair_batch on plain in explorer, th6 continued (6 messages)
        c10 answered: I said so already.
        h2 handover execution (built)
    "#]]
    .assert_eq(&stage.take_log().lines().take(7).map(|line| format!("{line}\n")).collect::<String>());
    let handover = execution(&stage);
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some("Money is tight. Give us a plan."))
    );
    assert_eq!(handover.text_field("problem_summary"), Some("a home that lasts"));
    assert_eq!(handover.text_field("situation"), Some("I stay five years"));
    assert_eq!(handover.list_field("constraints"), ["five years", "little cash"]);
    assert_eq!(handover.list_field("open_questions"), ["where to"]);
    assert_eq!(handover.list_field("exploration_highlights"), ["a garden matters", ASKS]);
    let task = sent(&stage, stage.oldest_open_call("expert").0);
    assert!(task.contains("Write a plan for this: Money is tight.") && task.contains("a garden matters"), "{task}");

    experts(&mut stage, PLAN_MAP);
    assert_eq!(phase(&stage).current, *"executor");
    assert_eq!(calls(&stage, "mapper").len(), 2, "everyone was heard and mapped as for a block");
    stage.answer_call("concierge", "Go to the bank, then look at flats.").answer_call("concierge", "No steps.");
    assert_eq!(
        (stage.last_reply().as_str(), outcome(&stage)),
        ("Go to the bank, then look at flats.", TurnResult::Done)
    );
    assert_eq!(facts(&stage, "workflow")[0]["how"], "built");
}

#[test]
fn a_block_that_is_cut_off_and_cut_off_again_makes_a_plan_all_the_same() {
    let cut = "Good.\n<<<BATCH>>>\nTYPE: WORKFLOW\nHANDOVER:\n  goal: a fl";
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", cut);
    assert!(concierge_prompt(&stage).1.contains("it has no end"));
    stage.answer_call("concierge", cut);
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(
        (execution(&stage).provenance, execution(&stage).text_field("goal")),
        (HandoverProvenance::Built, Some("a home that lasts"))
    );
    assert_eq!(heard(&stage).last().map(String::as_str), Some("Good."), "and no part of it is heard");
}

#[test]
fn what_comes_when_it_is_asked_for_is_taken() {
    let mut stage = open_set(json!({"plan_by_request": 1}));
    explored(&mut stage);
    stage.send_message(ASKS).answer_call("concierge", "Good.").answer_call("concierge", WORKFLOW);
    let handover = execution(&stage);
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Repaired, Some("buy a flat by May"))
    );
    assert_eq!(handover.source_calls.len(), 2);

    for other in [STEP_HELP, "<<<BATCH>>>\nTYPE: PARTY\n<<<END>>>"] {
        let mut stage = open_set(json!({"plan_by_request": 1}));
        explored(&mut stage);
        stage.send_message(ASKS).answer_call("concierge", &said(other)).answer_call("concierge", other);
        assert_eq!(execution(&stage).provenance, HandoverProvenance::Built, "{other}");
    }
    let mut stage = open_set(json!({"plan_by_request": 1}));
    explored(&mut stage);
    stage.send_message(ASKS).answer_call("concierge", "Good.").fail_call("concierge", FailureKind::InvalidApiKey);
    assert_eq!(execution(&stage).provenance, HandoverProvenance::Built, "nor does a lost answer keep the plan back");
}

#[test]
fn who_asks_for_no_plan_stays_with_the_explorer() {
    let mut stage = open();
    explored(&mut stage);
    let chat = [
        "What about the noise?",
        "I don't want a plan yet.",
        "Do I need a plan at all?",
        "If I want a plan, I will say so.",
        "My sister rents.",
        "The steps in front of the house are steep.",
        "I need to think about it.",
        "Before you give me a plan, tell me about banks.",
        "We plan it for next year, perhaps.",
        "By May I will know more.",
    ];
    for message in chat {
        stage.send_message(message).answer_call("concierge", "I see.");
        assert!(stage.session().is_idle(), "{message}");
    }
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).turns_started), ("explorer", 10));
    assert_eq!(calls(&stage, "concierge").iter().filter(|call| call.ask == *"repair_batch").count(), 0);
    assert_eq!(stage.session().latest_handover("execution"), None);
}

#[test]
fn the_users_yes_is_asked_for_as_for_a_block() {
    let due = || {
        let mut stage = open_set(json!({"plan_by_request": 1, "confirm_batches": true}));
        explored(&mut stage);
        stage.send_message(ASKS).answer_call("concierge", "Good.").answer_call("concierge", "Good.");
        assert!(
            stage.session().is_idle() && stage.last_reply().contains("work out a plan for this"),
            "{}",
            stage.last_reply()
        );
        stage
    };
    for yes in ["yes", "Give us a plan!"] {
        let mut stage = due();
        stage.send_message(yes);
        assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"], "{yes}");
    }
    let mut stage = due();
    stage.send_message("no, wait").answer_call("concierge", "Very well.");
    assert!(stage.session().is_idle());
    assert_eq!(phase(&stage).current, *"explorer");
    stage.send_message("and the garden?").answer_call("concierge", "Small.");
    assert!(stage.session().is_idle(), "a no is not asked about again");
}

#[test]
fn a_message_that_is_answered_twice_asks_once() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message(ASKS).answer_call("concierge", "").answer_call("concierge", "Tell me more.");
    assert_eq!(facts(&stage, "plan_asked").len(), 1);
    assert!(stage.session().is_idle());
}

#[test]
fn each_visit_of_the_explorer_counts_anew() {
    let mut stage = open();
    explored(&mut stage);
    stage
        .send_message("give me a plan")
        .answer_call("concierge", "Soon.")
        .send_message("go on")
        .answer_call("concierge", &said(WORKFLOW));
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", PLAN);
    for step in ["1", "2"] {
        stage
            .send_message("done")
            .answer_call("concierge", &said(&format!("<<<STEP_DONE>>>\nstep: {step}\n<<<END>>>")));
    }
    stage.send_message("Now the garden. Give me a plan.").answer_call("concierge", "What sort of garden?");
    assert!(stage.session().is_idle());
    stage
        .send_message("Roses. What are the steps?")
        .answer_call("concierge", "Nice.")
        .answer_call("concierge", "Nice.");
    let handover = execution(&stage);
    let goal = "Now the garden. Give me a plan. Roses. What are the steps?";
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some(goal)),
        "the goal before was reached"
    );
    assert_eq!(handover.list_field("decisions_made"), ["to buy"]);
}
