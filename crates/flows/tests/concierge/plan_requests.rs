//! A user who asks for a plan gets one, whatever the explorer writes; a user who does not ask is not pushed.

use expect_test::expect;
use segue_core::event::TurnOutcome;
use segue_core::handover::{Handover, HandoverProvenance};
use segue_core::prompt::CallFailureKind;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::failures::outcome;
use super::support::*;

const ASKS: &str = "We buy a flat by May. Give us a plan: what are the steps?";

fn execution(harness: &SessionHarness) -> Handover {
    harness.session().latest_handover("execution").expect("it was made").clone()
}

#[test]
fn missing_batch_block_is_requested_once_and_then_built() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("a garden matters").answer_call("concierge", "Noted.");
    harness.send_message(ASKS).answer_call("concierge", "First tell me about the money.");
    assert!(harness.session().is_idle(), "the first request is the explorer's to judge");
    assert_eq!(facts(&harness, "plan_requested")[0]["phrase"], "give us a plan");
    harness.send_message("Money is tight. Give us a plan.").take_new_event_lines();
    harness.answer_call("concierge", "A plan is a fine thing.");
    assert!(concierge_prompt(&harness).1.contains("asked for a plan, but your reply had no BATCH block"));
    harness.answer_call("concierge", "I said so already.");
    expect![[r#"
        c9 answered: A plan is a fine thing.
        reply by concierge: A plan is a fine thing.
        plan_requested {"count":2,"message":5,"phrase":"give us a plan"}
        repair of handover execution requested
        c10 concierge asked repair_batch on plain in explorer, th6 continued (6 messages)
        c10 answered: I said so already.
        h2 handover execution (built)
    "#]]
    .assert_eq(&harness.take_new_event_lines().lines().take(7).map(|line| format!("{line}\n")).collect::<String>());
    let handover = execution(&harness);
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some("Money is tight. Give us a plan."))
    );
    assert_eq!(handover.text_field("problem_summary"), Some("a home that lasts"));
    assert_eq!(handover.text_field("situation"), Some("I stay five years"));
    assert_eq!(handover.list_field("constraints"), ["five years", "little cash"]);
    assert_eq!(handover.list_field("open_questions"), ["where to"]);
    assert_eq!(handover.list_field("exploration_highlights"), ["a garden matters", ASKS]);
    assert!(harness.session().is_idle() && harness.last_reply().contains("Shall I?"), "nothing is spent on a guess");
    harness.send_message("Oui");
    let task = prompt_text(&harness, harness.oldest_open_call("expert").0);
    assert!(task.contains("- goal: Money is tight.") && task.contains("a garden matters"), "{task}");

    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(phase(&harness).current, *"executor");
    assert_eq!(calls(&harness, "mapper").len(), 2, "the answers were mapped as for a block");
    harness.answer_call("concierge", "Go to the bank, then look at flats.").answer_call("concierge", "No steps.");
    assert_eq!(
        (harness.last_reply().as_str(), outcome(&harness)),
        ("Go to the bank, then look at flats.", TurnOutcome::Done)
    );
    assert_eq!(facts(&harness, "plan_started")[0]["provenance"], "built");
}

#[test]
fn twice_truncated_batch_block_still_makes_a_plan() {
    let cut = "Good.\n<<<BATCH>>>\nTYPE: WORKFLOW\nHANDOVER:\n  goal: a fl";
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", cut);
    assert!(concierge_prompt(&harness).1.contains("it had no <<<END>>>"));
    harness.answer_call("concierge", cut);
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(
        (execution(&harness).provenance, execution(&harness).text_field("goal")),
        (HandoverProvenance::Built, Some("a home that lasts"))
    );
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Good."), "and no part of it is visible");
}

#[test]
fn requested_batch_block_is_used() {
    let mut harness = open_with_settings(json!({"plan_by_request": 1}));
    play_until_explorer(&mut harness);
    harness.send_message(ASKS).answer_call("concierge", "Good.").answer_call("concierge", WORKFLOW);
    let handover = execution(&harness);
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Repaired, Some("buy a flat by May"))
    );
    assert_eq!(handover.source_calls.len(), 2);

    for other in [STEP_HELP, "<<<BATCH>>>\nTYPE: PARTY\n<<<END>>>"] {
        let mut harness = open_with_settings(json!({"plan_by_request": 1}));
        play_until_explorer(&mut harness);
        harness.send_message(ASKS).answer_call("concierge", &with_text(other)).answer_call("concierge", other);
        assert_eq!(execution(&harness).provenance, HandoverProvenance::Built, "{other}");
    }
    let mut harness = open_with_settings(json!({"plan_by_request": 1}));
    play_until_explorer(&mut harness);
    harness.send_message(ASKS).answer_call("concierge", "Good.").fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(
        execution(&harness).provenance,
        HandoverProvenance::Built,
        "a failed call does not prevent the plan either"
    );
}

#[test]
fn user_who_asks_for_no_plan_stays_with_the_explorer() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    let chat = [
        "What about the noise?",
        "I don't want a plan yet.",
        "Do I need a plan at all?",
        "If I want a plan, I will say so.",
        "My sister rents.",
        "What are the steps to register a company?",
        "So what are the steps to register a company?",
        "The steps in front of the house are steep.",
        "I need to think about it.",
        "Before you give me a plan, tell me about banks.",
        "We plan it for next year, perhaps.",
        "By May I will know more.",
    ];
    for message in chat {
        harness.send_message(message).answer_call("concierge", "I see.");
        assert!(harness.session().is_idle(), "{message}");
    }
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).turns_started), ("explorer", 12));
    assert_eq!(calls(&harness, "concierge").iter().filter(|call| call.ask == *"repair_batch").count(), 0);
    assert_eq!(harness.session().latest_handover("execution"), None);
}

#[test]
fn built_plan_request_also_waits_for_confirmation() {
    let due = || {
        let mut harness = open_with_settings(json!({"plan_by_request": 1, "confirm_batches": true}));
        play_until_explorer(&mut harness);
        harness.send_message(ASKS).answer_call("concierge", "Good.").answer_call("concierge", "Good.");
        assert!(
            harness.session().is_idle() && harness.last_reply().contains("work out a plan for this"),
            "{}",
            harness.last_reply()
        );
        harness
    };
    for yes in ["yes", "Give us a plan!"] {
        let mut harness = due();
        harness.send_message(yes);
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{yes}");
    }
    let mut harness = due();
    harness.send_message("no, wait").answer_call("concierge", "Very well.");
    assert!(harness.session().is_idle());
    assert_eq!(phase(&harness).current, *"explorer");
    harness.send_message("and the garden?").answer_call("concierge", "Small.");
    assert!(harness.session().is_idle(), "a no is final");
}

#[test]
fn message_answered_twice_counts_as_one_request() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message(ASKS).answer_call("concierge", "").answer_call("concierge", "Tell me more.");
    assert_eq!(facts(&harness, "plan_requested").len(), 1);
    assert!(harness.session().is_idle());
}

#[test]
fn each_explorer_visit_counts_requests_separately() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness
        .send_message("give me a plan")
        .answer_call("concierge", "Soon.")
        .send_message("go on")
        .answer_call("concierge", &with_text(WORKFLOW));
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN);
    for step in ["1", "2"] {
        harness
            .send_message("done")
            .answer_call("concierge", &with_text(&format!("<<<STEP_DONE>>>\nstep: {step}\n<<<END>>>")));
    }
    harness.send_message("Now the garden. Give me a plan.").answer_call("concierge", "What sort of garden?");
    assert!(harness.session().is_idle());
    harness
        .send_message("Roses. What are the steps?")
        .answer_call("concierge", "Nice.")
        .answer_call("concierge", "Nice.");
    let handover = execution(&harness);
    let goal = "Now the garden. Give me a plan. Roses. What are the steps?";
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some(goal)),
        "the previous goal was reached"
    );
    assert_eq!(handover.list_field("decisions_made"), ["to buy"]);
}

#[test]
fn explorer_that_declines_twice_leaves_the_choice_to_the_user() {
    let offered = || {
        let mut harness = open_with_settings(json!({"plan_by_request": 1}));
        play_until_explorer(&mut harness);
        harness.send_message(ASKS).answer_call("concierge", "Not yet.").answer_call("concierge", "Not yet.");
        assert!(harness.session().is_idle() && harness.last_reply().contains("Shall I?"), "{}", harness.last_reply());
        harness
    };
    let mut harness = offered();
    harness.send_message("Oui");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    let mut harness = offered();
    harness.send_message("Definitely too expensive");
    assert_eq!(harness.open_call_roles(), ["concierge"], "nothing is spent on a guess");
}
