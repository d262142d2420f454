//! Failures of models, calls and processes: a conversation never hangs, and no call is paid for twice.

use expect_test::expect;
use segue_core::context::CallThread;
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, MidTurnPolicy, TurnOutcome};
use segue_core::handover::HandoverProvenance;
use segue_core::prompt::CallFailureKind;
use segue_flows::concierge::ConciergeFlow;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::support::*;

pub(crate) fn outcome(harness: &SessionHarness) -> TurnOutcome {
    let ended = harness.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    ended.expect("a turn has ended")
}

#[test]
fn missing_handover_is_requested_and_then_built() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", "Good.");
    assert_eq!(phase(&harness).current, *"starter");
    harness.send_message("so?").take_new_event_lines();
    harness.answer_call("concierge", "Buy, then.").answer_call("concierge", "I already told you.");
    let log = harness.take_new_event_lines();
    expect![[r#"
        c7 answered: Buy, then.
        reply by concierge: Buy, then.
        repair of handover intent requested
        c8 concierge asked repair_intent on plain in starter, th5 continued (6 messages)
        c8 answered: I already told you.
        handover_fields_built {"fields":["effective_stance","gaps","goal","key_findings","shape","starter_response","tensions","user_query","user_reply"],"kind":"intent"}
        h1 handover intent (built)
        conversation of concierge: starter → explorer by role `concierge`
        t3 done
    "#]]
    .assert_eq(&log);
    assert_eq!(harness.last_reply(), "Buy, then.", "the user does not see the repair");
    let handover = harness.session().latest_handover("intent").expect("it was built").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Built);
    assert_eq!(handover.text_field("user_query"), Some("rent or buy?"));
    assert_eq!(handover.text_field("user_reply"), Some("I stay\n\nso?"), "all messages, not only the last one");
    assert_eq!(handover.text_field("starter_response"), Some("Rent, unless you stay for long."));
    assert_eq!(handover.list_field("gaps"), ["Nobody asks how long they will stay."]);
    assert!(
        handover.list_field("tensions")[0].contains("rent first")
            && handover.list_field("tensions")[0].contains("buy at once")
    );
}

#[test]
fn requested_handover_is_marked_as_repaired() {
    let mut harness = open_with_settings(json!({"handover_by_turn": 2}));
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", "Good.\n<<<HANDOVER>>>\nshape: settled\n<<<END>>>");
    let repair = concierge_prompt(&harness).1;
    assert!(repair.contains("had no goal"), "{repair}");
    harness.answer_call("concierge", HANDOVER);
    let handover = harness.session().latest_handover("intent").expect("it was made");
    assert_eq!((handover.provenance, handover.source_calls.len()), (HandoverProvenance::Repaired, 2));
    assert_eq!(harness.last_reply(), "Good.");
}

#[test]
fn failed_repair_is_replaced_by_a_built_handover() {
    let mut harness = open_with_settings(json!({"handover_by_turn": 1}));
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.answer_call("concierge", "Rent.").fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(
        harness.session().latest_handover("intent").expect("it was built").provenance,
        HandoverProvenance::Built
    );
    assert_eq!((outcome(&harness), phase(&harness).current.as_str()), (TurnOutcome::Done, "explorer"));
}

#[test]
fn user_messages_reach_the_explorer_even_if_the_handover_omits_them() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("five years, a child, at most 300k").answer_call("concierge", "Noted.").send_message("ok");
    harness.answer_call("concierge", "Then buy.\n<<<HANDOVER>>>\ngoal: a home\n<<<END>>>");
    let handover = harness.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Emitted);
    assert_eq!(handover.text_field("user_reply"), Some("five years, a child, at most 300k\n\nok"));
    assert_eq!(handover.text_field("user_query"), Some("rent or buy?"));
    assert_eq!(handover.text_field("starter_response"), Some("Rent, unless you stay for long."));
    harness.send_message("where?");
    assert!(concierge_prompt(&harness).0.contains("The user replied:\nfive years, a child, at most 300k"));
}

#[test]
fn handover_in_the_first_turn_is_refused_with_a_notice() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.answer_call("concierge", &format!("Rent.\n{HANDOVER}"));
    assert_eq!((harness.last_reply().as_str(), phase(&harness).current.as_str()), ("Rent.", "starter"));
    assert!(harness.session().handovers.is_empty());
    harness.send_message("I stay five years");
    assert!(concierge_prompt(&harness).1.contains("has not replied to your answer yet"));
    harness.answer_call("concierge", &format!("Then buy.\n{HANDOVER}"));
    assert_eq!(phase(&harness).current, *"explorer");

    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.answer_call("concierge", HANDOVER);
    assert_eq!(harness.open_call_roles(), ["concierge"], "the user still needs a reply");
}

#[test]
fn map_truncated_before_its_edges_is_requested_once_more() {
    let cut = MAP.split_once("],\n \"edges\"").expect("claims, then edges").0;
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "a")
        .answer_call("expert", "b")
        .answer_call("expert", "c");
    harness.answer_call("mapper", cut);
    assert!(prompt_text(&harness, harness.oldest_open_call("mapper").0).contains("cut short"));
    harness.answer_call("mapper", MAP);
    assert_eq!(facts(&harness, "map_parsed")[0]["map"]["edges"].as_array().map(Vec::len), Some(1));

    for repair in ["prose", cut] {
        let mut harness = open();
        harness
            .send_message("rent or buy?")
            .answer_call("expert", "a")
            .answer_call("expert", "b")
            .answer_call("expert", "c");
        harness.answer_call("mapper", cut).answer_call("mapper", repair);
        assert_eq!(facts(&harness, "map_parsed").len(), 1, "the readable part is used");
        assert_eq!(harness.open_call_roles(), ["concierge"]);
    }
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "a")
        .answer_call("expert", "b")
        .answer_call("expert", "c");
    harness.answer_call("mapper", cut).fail_call("mapper", CallFailureKind::InvalidApiKey);
    assert_eq!((facts(&harness, "map_parsed").len(), facts(&harness, "map_unavailable").len()), (1, 0));
}

#[test]
fn long_answer_does_not_displace_the_others() {
    let mut harness = open();
    harness.set_window(1_000_000);
    let long = "many words here ".repeat(60_000);
    harness
        .send_message("rent or buy?")
        .answer_call("expert", &long)
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy at once.");
    let opened = calls(&harness, "mapper")[0].clone();
    let shown = prompt_text(&harness, opened.call);
    assert!(shown.contains("## Source 3\n\n```\nBuy at once.\n```"), "{}", &shown[shown.len() - 300..]);
    assert!(shown.ends_with("Write the map, then the narrative."));
    assert!(opened.receipt.ask[0].why.contains("1 were cut"), "{}", opened.receipt.ask[0].why);
}

#[test]
fn truncated_handover_is_requested_by_the_third_turn() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", "Then buy.\n<<<HANDOVER>>>\ngoal: a ho");
    assert_eq!(visible_replies(&harness)[1], "Then buy.", "no part of a block is visible");
    harness
        .send_message("yes")
        .answer_call("concierge", "Good.\n<<<HANDOVER>>>\ngoal: a ho")
        .answer_call("concierge", HANDOVER);
    assert_eq!(
        harness.session().latest_handover("intent").expect("it was made").provenance,
        HandoverProvenance::Repaired
    );
    assert_eq!(visible_replies(&harness)[2], "Good.");
}

#[test]
fn last_valid_handover_is_used_and_all_are_hidden() {
    let mut harness = open();
    play_first_turn(&mut harness);
    let first = HANDOVER.replace("a home that lasts", "a first draft");
    harness.send_message("I stay").answer_call(
        "concierge",
        &format!("So.\n{first}\nOr rather:\n{HANDOVER}\n<<<HANDOVER>>>\nshape: x\n<<<END>>>"),
    );
    assert_eq!(
        harness.session().latest_handover("intent").and_then(|made| made.text_field("goal")),
        Some("a home that lasts")
    );
    assert_eq!(harness.last_reply(), "So.⏎Or rather:");
    assert!(facts(&harness, "reply_complaints")[0].to_string().contains("more than once"));
}

#[test]
fn handover_in_a_code_fence_is_the_handover() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", &format!("Like this:\n```\n{HANDOVER}\n```"));
    assert_eq!(harness.session().handovers.len(), 1);
    assert_eq!(harness.last_reply(), "Like this:");
    assert!(facts(&harness, "reply_complaints")[0].to_string().contains("is not exact"));
}

#[test]
fn handover_in_the_middle_is_removed_from_the_reply() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", &format!("Before.\n\n{HANDOVER}\n\nAfter."));
    assert_eq!(harness.last_reply(), "Before.⏎⏎After.");
    assert_eq!(phase(&harness).current, *"explorer");
}

#[test]
fn marker_in_the_users_message_is_data() {
    let mut harness = open();
    harness.send_message(&format!("what does this mean? {HANDOVER}"));
    answer_experts(&mut harness, MAP);
    let mapper = prompt_text(&harness, calls(&harness, "mapper")[0].call);
    assert!(mapper.contains("```\nwhat does this mean?"), "fenced where it enters a prompt: {mapper}");
    harness.answer_call("concierge", "A handover, it seems.");
    assert!(harness.session().handovers.is_empty());
    assert_eq!(phase(&harness).current, *"starter");
}

#[test]
fn mapper_without_a_map_is_asked_once_more_and_then_skipped() {
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    harness.answer_call("mapper", "They mostly want to rent.");
    let repair = calls(&harness, "mapper")[1].clone();
    assert_eq!(layout(&repair), "instruction | sources repair");
    assert!(prompt_text(&harness, repair.call).contains("They mostly want to rent."));
    harness.answer_call("mapper", "As I said.");
    assert!(facts(&harness, "map_unavailable")[0]["why"].to_string().contains("no JSON object"));
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains("### Perspective 3") && system.contains("Rent first."), "{system}");
    harness.answer_call("concierge", "Rent.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("Rent.", TurnOutcome::Done));

    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "a")
        .answer_call("expert", "b")
        .answer_call("expert", "c");
    harness.answer_call("mapper", "prose").answer_call("mapper", MAP);
    assert_eq!(facts(&harness, "map_parsed").len(), 1);
}

#[test]
fn failed_mapper_is_skipped() {
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "a")
        .answer_call("expert", "b")
        .answer_call("expert", "c");
    harness.fail_call("mapper", CallFailureKind::InvalidApiKey).answer_call("concierge", "Rent.");
    assert_eq!(harness.last_reply(), "Rent.");
}

#[test]
fn late_answer_is_not_awaited_but_recorded() {
    let mut harness = open_with_settings(json!({"answer_timeout_ms": 1000}));
    harness.send_message("rent or buy?").answer_call("expert", "Rent first.").answer_call("expert", "Rent.");
    assert_eq!(harness.session().timers.len(), 1, "timers of answered calls are stopped");
    harness.advance_and_tick(2000);
    assert_eq!(facts(&harness, "answer_timed_out")[0]["slot"], 2);
    assert_eq!(facts(&harness, "batch_closed")[0]["missing"], json!(["plain #3: not in time"]));
    harness.answer_call("expert", "Buy at once.");
    assert_eq!(facts(&harness, "late_answer").len(), 1);
    let mapper = prompt_text(&harness, harness.oldest_open_call("mapper").0);
    assert!(!mapper.contains("Buy at once."), "{mapper}");
    harness.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(harness.session().is_idle() && harness.session().timers.is_empty());
}

#[test]
fn unanswered_call_ends_with_its_turn() {
    let mut harness = open_with_settings(json!({"experts": [{"samples": 2}, {"model": "slow", "timeout_ms": 10}]}));
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .advance_and_tick(20);
    harness.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(harness.session().is_idle());
    assert_eq!(outcome(&harness), TurnOutcome::Done);
}

#[test]
fn quorum_of_answers_is_enough() {
    let mut harness =
        open_with_settings(json!({"experts": [{"model": "ant", "samples": 2}, {"model": "bee"}], "quorum": 2}));
    harness.send_message("rent or buy?").answer_call("expert", "Rent first.");
    assert_eq!(harness.open_call_roles(), ["expert", "expert"]);
    harness.answer_call("expert", "Rent.");
    assert_eq!(harness.open_call_roles(), ["expert", "mapper"], "the third may still answer");
    harness.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(harness.session().is_idle());
    let models: Vec<_> =
        calls(&harness, "expert").iter().map(|call| format!("{} {}", call.model, call.sample)).collect();
    assert_eq!(models, ["ant 0", "ant 1", "bee 0"]);
}

#[test]
fn retry_after_all_experts_failed_asks_the_same_question() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    for _ in 0..3 {
        harness.fail_call("expert", CallFailureKind::InvalidApiKey);
    }
    let TurnOutcome::Failed { reason } = outcome(&harness) else { panic!("the turn has failed") };
    assert!(reason.contains("no expert answered") && reason.contains("retry"), "{reason}");
    harness.send_message("Try again!");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(harness.prompt_for_role("expert").messages.last().expect("there is one").text(), "rent or buy?");
    answer_experts(&mut harness, MAP);
    let (_, last) = concierge_prompt(&harness);
    assert_eq!(last, "rent or buy?");
    harness.answer_call("concierge", "Rent.").send_message("why?");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.ends_with("\n\nwhy?") && !last.contains("Try again!"), "{last}");
}

#[test]
fn retry_by_hand_repeats_only_the_failed_calls() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    for _ in 0..3 {
        harness.fail_call("expert", CallFailureKind::InvalidApiKey);
    }
    harness.run_command(OperatorCommand::Retry { turn: None });
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "the explorer is not asked again");
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(concierge_prompt(&harness).1, "give me a plan");
    harness.fail_call("concierge", CallFailureKind::InvalidApiKey).run_command(OperatorCommand::Retry { turn: None });
    assert_eq!(harness.open_call_roles(), ["concierge"], "nor are the experts and the mapper");
    assert_eq!(concierge_prompt(&harness).1, "give me a plan");
    harness.answer_call("concierge", PLAN);
    assert_eq!((outcome(&harness), phase(&harness).current.as_str()), (TurnOutcome::Done, "executor"));
    assert_eq!([calls(&harness, "expert").len(), calls(&harness, "mapper").len()], [9, 2]);
}

#[test]
fn next_message_after_a_failed_turn_includes_the_unanswered_one() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    for _ in 0..3 {
        harness.fail_call("expert", CallFailureKind::InvalidApiKey);
    }
    harness.send_message("in Berlin, I mean");
    assert_eq!(
        harness.prompt_for_role("expert").messages.last().expect("there is one").text(),
        "rent or buy?\n\nin Berlin, I mean"
    );
    assert_eq!(facts(&harness, "batch_abandoned").len(), 1);
}

#[test]
fn expert_answers_are_not_requested_again_when_the_concierge_fails() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.fail_call("concierge", CallFailureKind::InvalidApiKey).send_message("retry");
    assert_eq!(harness.open_call_roles(), ["concierge"]);
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("rent first"));
    assert_eq!(last, "rent or buy?");
    assert_eq!((calls(&harness, "expert").len(), calls(&harness, "mapper").len()), (3, 1));
}

#[test]
fn retry_of_a_failed_plan_batch_does_not_call_the_explorer_again() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    for _ in 0..3 {
        harness.fail_call("expert", CallFailureKind::InvalidApiKey);
    }
    assert!(matches!(outcome(&harness), TurnOutcome::Failed { .. }));
    assert_eq!(phase(&harness).current, *"explorer");
    harness.send_message("retry");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(concierge_prompt(&harness).1, "give me a plan");
    harness.answer_call("concierge", PLAN);
    assert_eq!(calls(&harness, "concierge").len(), 4);

    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    for _ in 0..3 {
        harness.fail_call("expert", CallFailureKind::InvalidApiKey);
    }
    harness.send_message("never mind");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("No expert answered") && last.ends_with("never mind"), "{last}");
}

#[test]
fn only_the_failed_call_is_retried() {
    let mut harness = open();
    harness.send_message("rent or buy?").fail_call("expert", CallFailureKind::Overload);
    let attempts: Vec<u32> = harness.session().open_calls.values().map(|open| open.attempt).collect();
    assert_eq!(attempts, [2, 1, 1]);
    answer_experts(&mut harness, MAP);
    assert_eq!(calls(&harness, "expert").len(), 3);
}

#[test]
fn single_answer_to_a_help_request_is_used() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("stuck").answer_call("concierge", &with_text(STEP_HELP)).answer_call("expert", "Ask again.");
    harness.fail_call("expert", CallFailureKind::InvalidApiKey).fail_call("expert", CallFailureKind::InvalidApiKey);
    assert!(harness.session().is_idle());
    harness.send_message("so?");
    assert!(concierge_prompt(&harness).1.contains("Ask again."));
}

#[test]
fn crash_between_batch_and_mapper_repeats_no_call() {
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    harness.crash_and_recover();
    assert_eq!(harness.open_call_roles(), ["mapper"]);
    harness.answer_call("mapper", MAP).crash_and_recover();
    assert_eq!(harness.open_call_roles(), ["concierge"]);
    harness.answer_call("concierge", "Rent.");
    assert_eq!(calls(&harness, "expert").len(), 3);
    assert_eq!(calls(&harness, "mapper").len(), 1);
}

#[test]
fn crash_at_any_point_loses_and_repeats_nothing() {
    let mut whole = open();
    play_until_plan(&mut whole);
    let script: [(&str, String); 12] = [
        ("expert", "Rent first.".into()),
        ("expert", "Rent, I say.".into()),
        ("expert", "Buy at once.".into()),
        ("mapper", MAP.into()),
        ("concierge", "Rent, unless you stay for long.".into()),
        ("concierge", format!("Then buy.\n\n{HANDOVER}")),
        ("concierge", format!("Good. I will work it out.\n{WORKFLOW}")),
        ("expert", "Rent first.".into()),
        ("expert", "Rent, I say.".into()),
        ("expert", "Buy at once.".into()),
        ("mapper", PLAN_MAP.into()),
        ("concierge", PLAN.into()),
    ];
    let mut harness = open();
    let mut messages = ["rent or buy?", "I stay five years", "give me a plan"].into_iter();
    for (role, text) in &script {
        if harness.session().is_idle() {
            harness.send_message(messages.next().expect("there is something left to say"));
        }
        harness.crash_and_recover().answer_call(role, text).crash_and_recover();
    }
    assert_eq!(visible_replies(&harness), visible_replies(&whole));
    let count = |harness: &SessionHarness| ["expert", "mapper", "concierge"].map(|role| calls(harness, role).len());
    assert_eq!(count(&harness), count(&whole));
}

#[test]
fn cancelled_turn_leaves_no_state_behind() {
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .answer_call("expert", "Rent.")
        .run_command(OperatorCommand::Cancel { turn: None });
    assert!(harness.session().is_idle() && harness.session().timers.is_empty());
    harness.send_message("a cat or a dog?");
    assert_eq!(harness.prompt_for_role("expert").messages.last().expect("there is one").text(), "a cat or a dog?");
    assert_eq!(facts(&harness, "batch_started").len(), 2);
}

#[test]
fn interrupting_message_replaces_the_first() {
    let mut harness = SessionHarness::open_with_mid_turn_policy(ConciergeFlow::new(), MidTurnPolicy::Interrupt);
    harness.send_message("rent or buy?").answer_call("expert", "Rent.").send_message("a cat or a dog?");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, MAP);
    let (_, last) = concierge_prompt(&harness);
    assert_eq!(last, "a cat or a dog?");
}

#[test]
fn plan_request_without_a_goal_is_requested_again_and_then_built() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness
        .send_message("plan it")
        .answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE: workflow\nHANDOVER:\n  priorities: [quiet]\n<<<END>>>");
    assert!(concierge_prompt(&harness).1.contains("it has no goal"));
    harness.answer_call("concierge", "no block again");
    let handover = harness.session().latest_handover("execution").expect("it was built").clone();
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some("a home that lasts"))
    );
    assert_eq!(handover.list_field("priorities"), ["quiet"]);
    let task = prompt_text(&harness, harness.oldest_open_call("expert").0);
    assert!(task.contains("- goal: a home that lasts") && task.contains("priorities: quiet"), "{task}");
    assert_eq!(harness.last_reply(), "Good.");
}

#[test]
fn truncated_plan_request_is_requested_again() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("plan it").answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE: WORKFLOW\nHANDO");
    assert!(concierge_prompt(&harness).1.contains("it had no <<<END>>>"));
    harness.answer_call("concierge", WORKFLOW);
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);

    let mut harness = open();
    play_until_explorer(&mut harness);
    harness
        .send_message("May, then")
        .answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE")
        .answer_call("concierge", "sorry");
    assert_eq!(outcome(&harness), TurnOutcome::Done);
    harness.send_message("well?");
    assert!(concierge_prompt(&harness).1.contains("had no <<<END>>>"));
}

#[test]
fn blocks_in_the_wrong_phase_are_refused_reported_and_hidden() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("plan it").answer_call("concierge", &format!("Hm.\n{WORKFLOW}\n{PLAN}"));
    assert!(harness.session().is_idle());
    assert_eq!(facts(&harness, "block_refused").len(), 2, "the starter can ask for nothing");
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("stuck").answer_call("concierge", &format!("Hm.\n{STEP_HELP}"));
    assert_eq!((harness.last_reply().as_str(), harness.open_call_roles().len()), ("Hm.", 0));
    harness
        .send_message("and")
        .answer_call("concierge", "Hm.\n<<<BATCH>>>\nTYPE: PARTY\nPROMPT: dance\n<<<END>>>")
        .send_message("so");
    assert!(concierge_prompt(&harness).1.contains("TYPE “PARTY” is unknown"));
}

#[test]
fn batch_can_run_on_every_turn() {
    let mut harness = open_with_settings(json!({"batch": "every_turn"}));
    play_first_turn(&mut harness);
    harness.send_message("I stay five years");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, PLAN_MAP);
    let call = calls(&harness, "concierge")[1].clone();
    assert_eq!(layout(&call), "| turn_findings handover_due message");
    assert!(concierge_prompt(&harness).1.contains("measure twice"));
    harness.answer_call("concierge", &with_text(HANDOVER)).send_message("plan it");
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN).send_message("go");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
}

#[test]
fn findings_about_a_message_are_shown_with_it_only() {
    let mut harness = open_with_settings(json!({"batch": "every_turn"}));
    play_first_turn(&mut harness);
    harness.send_message("I stay five years");
    answer_experts(&mut harness, PLAN_MAP);
    // A reply without visible text is asked for again, with the same findings.
    harness.answer_call("concierge", "  ");
    let again = prompt_text(&harness, harness.oldest_open_call("concierge").0);
    assert!(again.contains("measure twice") && again.contains("no text that the user can see"), "{again}");
    harness.answer_call("concierge", "Then measure.").send_message("and now?");
    answer_experts(&mut harness, MAP);
    let next = prompt_text(&harness, harness.oldest_open_call("concierge").0);
    assert!(next.contains("Then measure.") && next.contains("I stay five years"), "{next}");
    assert!(!next.contains("measure twice"), "they were about the message before: {next}");
    let findings = next.split("(New findings").nth(1).expect("there are new ones");
    assert!(findings.contains("rent first"), "{findings}");
}

#[test]
fn s07_experts_thread_lasts_for_the_session_but_stays_bounded() {
    let mut harness = open_with_settings(json!({"batch": "every_turn", "samples": 2, "handover_by_turn": 100}));
    for turn in 0..24 {
        harness.send_message(&format!("fact {turn}: {}", "a few words more ".repeat(10)));
        while harness.open_call_roles().iter().any(|role| role == "summariser") {
            harness.answer_call("summariser", "They stay for five years.");
        }
        for call in calls(&harness, "expert").iter().rev().take(2) {
            assert!(call.receipt.tokens < 3_600, "turn {turn}: {}", call.receipt.tokens);
        }
        for _ in 0..2 {
            harness.answer_call("expert", &format!("Advice {turn}. {}", "many words here ".repeat(60)));
        }
        harness.answer_call("mapper", PLAN_MAP).answer_call("concierge", &format!("Reply {turn}."));
    }
    let compactions = harness.journal().iter().filter(|recorded| matches!(recorded.event, Event::ThreadCompacted(_)));
    assert!((2..=10).contains(&compactions.count()), "not in every turn");
    let last = calls(&harness, "expert").pop().expect("it was called");
    assert!(matches!(last.receipt.thread, CallThread::Continued(_)), "it is the same thread");
    let prompt = prompt_text(&harness, last.call);
    for kept in ["You are an expert", "They stay for five years.", "fact 22", "Advice 22.", "fact 23"] {
        assert!(prompt.contains(kept), "{kept}: {prompt}");
    }
    assert!(!prompt.contains("Advice 0."), "{prompt}");
}

#[test]
fn long_phase_is_compacted_and_continues() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.set_window(2_400);
    harness.send_message("tell me more");
    for turn in 0..6 {
        harness
            .answer_call("concierge", &format!("Part {turn}. {}", "many words here ".repeat(60)))
            .send_message("and then?");
        if harness.open_call_roles() == ["summariser"] {
            harness.answer_call("summariser", "They talked about flats.");
        }
    }
    assert!(harness.journal().iter().any(|recorded| matches!(recorded.event, Event::ThreadCompacted(_))));
    let prompt = prompt_text(&harness, harness.oldest_open_call("concierge").0);
    assert!(prompt.contains("They talked about flats.") && prompt.contains("a home that lasts"), "{prompt}");
}
