//! What goes wrong in practice, and what comes of it: a conversation never sticks, and nothing is paid for twice.

use expect_test::expect;
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, MidTurnPolicy, TurnResult};
use segue_core::handover::HandoverProvenance;
use segue_core::prompt::FailureKind;
use segue_flows::concierge::ConciergeFlow;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::play::*;

pub fn outcome(stage: &SessionHarness) -> TurnResult {
    let ended = stage.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    ended.expect("a turn has ended")
}

#[test]
fn no_handover_ever_comes_so_it_is_asked_for_and_then_built() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", "Good.");
    assert_eq!(phase(&stage).current, *"starter");
    stage.send_message("so?").take_log();
    stage.answer_call("concierge", "Buy, then.").answer_call("concierge", "I already told you.");
    let log = stage.take_log();
    expect![[r#"
        c7 answered: Buy, then.
        reply by concierge: Buy, then.
        repair of handover intent requested
        c8 concierge asked repair_intent on plain in starter, th5 continued (6 messages)
        c8 answered: I already told you.
        h1 handover intent (built)
        conversation of concierge: starter → explorer by role `concierge`
        t3 done
    "#]]
    .assert_eq(&log);
    assert_eq!(stage.last_reply(), "Buy, then.", "the private exchange is not heard");
    let handover = stage.session().latest_handover("intent").expect("it was built").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Built);
    assert_eq!(handover.text_field("user_query"), Some("rent or buy?"));
    assert_eq!(handover.text_field("user_reply"), Some("I stay\n\nso?"), "all that was said, not only what came last");
    assert_eq!(handover.text_field("starter_response"), Some("Rent, unless you stay for long."));
    assert_eq!(handover.list_field("gaps"), ["Nobody asks how long they will stay."]);
    assert!(
        handover.list_field("tensions")[0].contains("rent first")
            && handover.list_field("tensions")[0].contains("buy at once")
    );
}

#[test]
fn a_handover_that_is_asked_for_again_is_marked_as_repaired() {
    let mut stage = open_set(json!({"handover_by_turn": 2}));
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", "Good.\n<<<HANDOVER>>>\nshape: settled\n<<<END>>>");
    let repair = concierge_prompt(&stage).1;
    assert!(repair.contains("lacks: goal"), "{repair}");
    stage.answer_call("concierge", HANDOVER);
    let handover = stage.session().latest_handover("intent").expect("it was made");
    assert_eq!((handover.provenance, handover.source_calls.len()), (HandoverProvenance::Repaired, 2));
    assert_eq!(stage.last_reply(), "Good.");
}

#[test]
fn a_repair_that_fails_is_done_without() {
    let mut stage = open_set(json!({"handover_by_turn": 1}));
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.answer_call("concierge", "Rent.").fail_call("concierge", FailureKind::InvalidApiKey);
    assert_eq!(stage.session().latest_handover("intent").expect("it was built").provenance, HandoverProvenance::Built);
    assert_eq!((outcome(&stage), phase(&stage).current.as_str()), (TurnResult::Done, "explorer"));
}

#[test]
fn what_the_user_said_reaches_the_explorer_also_where_the_handover_leaves_it_out() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("five years, a child, at most 300k").answer_call("concierge", "Noted.").send_message("ok");
    stage.answer_call("concierge", "Then buy.\n<<<HANDOVER>>>\ngoal: a home\n<<<END>>>");
    let handover = stage.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Emitted);
    assert_eq!(handover.text_field("user_reply"), Some("five years, a child, at most 300k\n\nok"));
    assert_eq!(handover.text_field("user_query"), Some("rent or buy?"));
    assert_eq!(handover.text_field("starter_response"), Some("Rent, unless you stay for long."));
    stage.send_message("where?");
    assert!(concierge_prompt(&stage).0.contains("> five years, a child, at most 300k"));
}

#[test]
fn a_handover_in_the_first_turn_is_too_early_and_told_so() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.answer_call("concierge", &format!("Rent.\n{HANDOVER}"));
    assert_eq!((stage.last_reply().as_str(), phase(&stage).current.as_str()), ("Rent.", "starter"));
    assert!(stage.session().handovers.is_empty());
    stage.send_message("I stay five years");
    assert!(concierge_prompt(&stage).1.contains("have not replied to your answer yet"));
    stage.answer_call("concierge", &format!("Then buy.\n{HANDOVER}"));
    assert_eq!(phase(&stage).current, *"explorer");

    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.answer_call("concierge", HANDOVER);
    assert_eq!(stage.open_call_roles(), ["concierge"], "and words are still owed");
}

#[test]
fn a_map_that_was_cut_off_before_its_edges_is_asked_for_once_more() {
    let cut = MAP.split_once("],\n \"edges\"").expect("claims, then edges").0;
    let mut stage = open();
    stage.send_message("rent or buy?").answer_call("expert", "a").answer_call("expert", "b").answer_call("expert", "c");
    stage.answer_call("mapper", cut);
    assert!(sent(&stage, stage.oldest_open_call("mapper").0).contains("cut short"));
    stage.answer_call("mapper", MAP);
    assert_eq!(facts(&stage, "map")[0]["map"]["edges"].as_array().map(Vec::len), Some(1));

    for repair in ["prose", cut] {
        let mut stage = open();
        stage
            .send_message("rent or buy?")
            .answer_call("expert", "a")
            .answer_call("expert", "b")
            .answer_call("expert", "c");
        stage.answer_call("mapper", cut).answer_call("mapper", repair);
        assert_eq!(facts(&stage, "map").len(), 1, "what could be read is better than nothing");
        assert_eq!(stage.open_call_roles(), ["concierge"]);
    }
    let mut stage = open();
    stage.send_message("rent or buy?").answer_call("expert", "a").answer_call("expert", "b").answer_call("expert", "c");
    stage.answer_call("mapper", cut).fail_call("mapper", FailureKind::InvalidApiKey);
    assert_eq!((facts(&stage, "map").len(), facts(&stage, "no_map").len()), (1, 0));
}

#[test]
fn a_long_answer_does_not_crowd_out_the_others() {
    let mut stage = open();
    stage.set_window(1_000_000);
    let long = "many words here ".repeat(60_000);
    stage
        .send_message("rent or buy?")
        .answer_call("expert", &long)
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy at once.");
    let opened = calls(&stage, "mapper")[0].clone();
    let shown = sent(&stage, opened.call);
    assert!(shown.contains("## Source 3\n\n```\nBuy at once.\n```"), "{}", &shown[shown.len() - 300..]);
    assert!(shown.ends_with("Write the map, then the narrative."));
    assert!(opened.receipt.ask[0].why.contains("1 were cut"), "{}", opened.receipt.ask[0].why);
}

#[test]
fn a_handover_that_is_cut_off_is_asked_for_by_the_third_turn() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", "Then buy.\n<<<HANDOVER>>>\ngoal: a ho");
    assert_eq!(heard(&stage)[1], "Then buy.", "no part of a block is heard");
    stage
        .send_message("yes")
        .answer_call("concierge", "Good.\n<<<HANDOVER>>>\ngoal: a ho")
        .answer_call("concierge", HANDOVER);
    assert_eq!(
        stage.session().latest_handover("intent").expect("it was made").provenance,
        HandoverProvenance::Repaired
    );
    assert_eq!(heard(&stage)[2], "Good.");
}

#[test]
fn of_two_handovers_the_last_good_one_stands_and_neither_is_heard() {
    let mut stage = open();
    started(&mut stage);
    let first = HANDOVER.replace("a home that lasts", "a first draft");
    stage.send_message("I stay").answer_call(
        "concierge",
        &format!("So.\n{first}\nOr rather:\n{HANDOVER}\n<<<HANDOVER>>>\nshape: x\n<<<END>>>"),
    );
    assert_eq!(
        stage.session().latest_handover("intent").and_then(|made| made.text_field("goal")),
        Some("a home that lasts")
    );
    assert_eq!(stage.last_reply(), "So.⏎Or rather:");
    assert!(facts(&stage, "complaints")[0].to_string().contains("more than once"));
}

#[test]
fn a_handover_inside_a_code_fence_is_text() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", &format!("Like this:\n```\n{HANDOVER}\n```"));
    assert!(stage.session().handovers.is_empty());
    assert!(stage.last_reply().contains("<<<HANDOVER>>>"));
}

#[test]
fn a_handover_in_the_middle_of_the_text_is_cut_out_of_it() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", &format!("Before.\n\n{HANDOVER}\n\nAfter."));
    assert_eq!(stage.last_reply(), "Before.⏎⏎After.");
    assert_eq!(phase(&stage).current, *"explorer");
}

#[test]
fn a_marker_in_the_users_message_is_data() {
    let mut stage = open();
    stage.send_message(&format!("what does this mean? {HANDOVER}"));
    experts(&mut stage, MAP);
    let mapper = sent(&stage, calls(&stage, "mapper")[0].call);
    assert!(mapper.contains("```\nwhat does this mean?"), "fenced where it enters a prompt: {mapper}");
    stage.answer_call("concierge", "A handover, it seems.");
    assert!(stage.session().handovers.is_empty());
    assert_eq!(phase(&stage).current, *"starter");
}

#[test]
fn a_mapper_that_writes_prose_is_asked_once_more_and_then_done_without() {
    let mut stage = open();
    stage
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    stage.answer_call("mapper", "They mostly want to rent.");
    let repair = calls(&stage, "mapper")[1].clone();
    assert_eq!(layout(&repair), "instruction | sources repair");
    assert!(sent(&stage, repair.call).contains("They mostly want to rent."));
    stage.answer_call("mapper", "As I said.");
    assert!(facts(&stage, "no_map")[0]["why"].to_string().contains("no JSON object"));
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("### Perspective 3") && system.contains("Rent first."), "{system}");
    stage.answer_call("concierge", "Rent.");
    assert_eq!((stage.last_reply().as_str(), outcome(&stage)), ("Rent.", TurnResult::Done));

    let mut stage = open();
    stage.send_message("rent or buy?").answer_call("expert", "a").answer_call("expert", "b").answer_call("expert", "c");
    stage.answer_call("mapper", "prose").answer_call("mapper", MAP);
    assert_eq!(facts(&stage, "map").len(), 1);
}

#[test]
fn a_mapper_that_fails_is_done_without() {
    let mut stage = open();
    stage.send_message("rent or buy?").answer_call("expert", "a").answer_call("expert", "b").answer_call("expert", "c");
    stage.fail_call("mapper", FailureKind::InvalidApiKey).answer_call("concierge", "Rent.");
    assert_eq!(stage.last_reply(), "Rent.");
}

#[test]
fn a_slow_answer_is_not_waited_for_and_still_kept() {
    let mut stage = open_set(json!({"answer_timeout_ms": 1000}));
    stage.send_message("rent or buy?").answer_call("expert", "Rent first.").answer_call("expert", "Rent.");
    assert_eq!(stage.session().timers.len(), 1, "those who answered are not timed any more");
    stage.advance_and_tick(2000);
    assert_eq!(facts(&stage, "overdue")[0]["seat"], 2);
    assert_eq!(facts(&stage, "batch_closed")[0]["missing"], json!(["plain #3: not in time"]));
    stage.answer_call("expert", "Buy at once.");
    assert_eq!(facts(&stage, "late").len(), 1);
    let mapper = sent(&stage, stage.oldest_open_call("mapper").0);
    assert!(!mapper.contains("Buy at once."), "{mapper}");
    stage.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(stage.session().is_idle() && stage.session().timers.is_empty());
}

#[test]
fn an_answer_that_never_comes_ends_with_its_turn() {
    let mut stage = open_set(json!({"experts": [{"samples": 2}, {"model": "slow", "timeout_ms": 10}]}));
    stage
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .advance_and_tick(20);
    stage.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(stage.session().is_idle());
    assert_eq!(outcome(&stage), TurnResult::Done);
}

#[test]
fn a_quorum_is_enough() {
    let mut stage = open_set(json!({"experts": [{"model": "ant", "samples": 2}, {"model": "bee"}], "quorum": 2}));
    stage.send_message("rent or buy?").answer_call("expert", "Rent first.");
    assert_eq!(stage.open_call_roles(), ["expert", "expert"]);
    stage.answer_call("expert", "Rent.");
    assert_eq!(stage.open_call_roles(), ["expert", "mapper"], "the third may still answer");
    stage.answer_call("mapper", PLAN_MAP).answer_call("concierge", "Rent.");
    assert!(stage.session().is_idle());
    let models: Vec<_> = calls(&stage, "expert").iter().map(|call| format!("{} {}", call.model, call.sample)).collect();
    assert_eq!(models, ["ant 0", "ant 1", "bee 0"]);
}

#[test]
fn all_fail_and_trying_again_asks_the_same_question() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    for _ in 0..3 {
        stage.fail_call("expert", FailureKind::InvalidApiKey);
    }
    let TurnResult::Failed { reason } = outcome(&stage) else { panic!("the turn has failed") };
    assert!(reason.contains("no answer came") && reason.contains("retry"), "{reason}");
    stage.send_message("Try again!");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(stage.prompt_for_role("expert").messages.last().expect("there is one").text(), "rent or buy?");
    experts(&mut stage, MAP);
    assert_eq!(concierge_prompt(&stage).1, "rent or buy?");
    stage.answer_call("concierge", "Rent.").send_message("why?");
    assert_eq!(concierge_prompt(&stage).1, "why?");
}

#[test]
fn a_failed_turn_is_tried_again_by_hand_at_the_price_of_what_failed() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    for _ in 0..3 {
        stage.fail_call("expert", FailureKind::InvalidApiKey);
    }
    stage.run_command(OperatorCommand::Retry);
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"], "the explorer is not asked again");
    experts(&mut stage, PLAN_MAP);
    assert_eq!(concierge_prompt(&stage).1, "give me a plan");
    stage.fail_call("concierge", FailureKind::InvalidApiKey).run_command(OperatorCommand::Retry);
    assert_eq!(stage.open_call_roles(), ["concierge"], "nor are the experts and the mapper");
    assert_eq!(concierge_prompt(&stage).1, "give me a plan");
    stage.answer_call("concierge", PLAN);
    assert_eq!((outcome(&stage), phase(&stage).current.as_str()), (TurnResult::Done, "executor"));
    assert_eq!([calls(&stage, "expert").len(), calls(&stage, "mapper").len()], [9, 2]);
}

#[test]
fn another_message_after_a_failed_turn_brings_what_was_not_answered_along() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    for _ in 0..3 {
        stage.fail_call("expert", FailureKind::InvalidApiKey);
    }
    stage.send_message("in Berlin, I mean");
    assert_eq!(
        stage.prompt_for_role("expert").messages.last().expect("there is one").text(),
        "rent or buy?\n\nin Berlin, I mean"
    );
    assert_eq!(facts(&stage, "batch_dropped").len(), 1);
}

#[test]
fn what_was_answered_is_not_paid_for_again_when_the_concierge_fails() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.fail_call("concierge", FailureKind::InvalidApiKey).send_message("retry");
    assert_eq!(stage.open_call_roles(), ["concierge"]);
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("rent first"));
    assert_eq!(last, "rent or buy?");
    assert_eq!((calls(&stage, "expert").len(), calls(&stage, "mapper").len()), (3, 1));
}

#[test]
fn when_nobody_helps_with_a_plan_the_explorer_is_not_asked_again_for_a_retry() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    for _ in 0..3 {
        stage.fail_call("expert", FailureKind::InvalidApiKey);
    }
    assert!(matches!(outcome(&stage), TurnResult::Failed { .. }));
    assert_eq!(phase(&stage).current, *"explorer");
    stage.send_message("retry");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    experts(&mut stage, PLAN_MAP);
    assert_eq!(concierge_prompt(&stage).1, "give me a plan");
    stage.answer_call("concierge", PLAN);
    assert_eq!(calls(&stage, "concierge").len(), 4);

    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    for _ in 0..3 {
        stage.fail_call("expert", FailureKind::InvalidApiKey);
    }
    stage.send_message("never mind");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("Nobody answered") && last.ends_with("never mind"), "{last}");
}

#[test]
fn only_the_call_that_failed_is_made_again() {
    let mut stage = open();
    stage.send_message("rent or buy?").fail_call("expert", FailureKind::Overload);
    let attempts: Vec<u32> = stage.session().open_calls.values().map(|open| open.attempt).collect();
    assert_eq!(attempts, [2, 1, 1]);
    experts(&mut stage, MAP);
    assert_eq!(calls(&stage, "expert").len(), 3);
}

#[test]
fn one_answer_to_a_request_for_help_is_gone_on_with() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("stuck").answer_call("concierge", &said(STEP_HELP)).answer_call("expert", "Ask again.");
    stage.fail_call("expert", FailureKind::InvalidApiKey).fail_call("expert", FailureKind::InvalidApiKey);
    assert!(stage.session().is_idle());
    stage.send_message("so?");
    assert!(concierge_prompt(&stage).1.contains("Ask again."));
}

#[test]
fn the_process_dies_between_batch_and_mapper_and_nobody_is_asked_twice() {
    let mut stage = open();
    stage
        .send_message("rent or buy?")
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    stage.crash_and_recover();
    assert_eq!(stage.open_call_roles(), ["mapper"]);
    stage.answer_call("mapper", MAP).crash_and_recover();
    assert_eq!(stage.open_call_roles(), ["concierge"]);
    stage.answer_call("concierge", "Rent.");
    assert_eq!(calls(&stage, "expert").len(), 3);
    assert_eq!(calls(&stage, "mapper").len(), 1);
}

#[test]
fn a_crash_at_every_point_loses_nothing_and_repeats_nothing() {
    let mut whole = open();
    planned(&mut whole);
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
    let mut stage = open();
    let mut messages = ["rent or buy?", "I stay five years", "give me a plan"].into_iter();
    for (role, text) in &script {
        if stage.session().is_idle() {
            stage.send_message(messages.next().expect("there is something left to say"));
        }
        stage.crash_and_recover().answer_call(role, text).crash_and_recover();
    }
    assert_eq!(heard(&stage), heard(&whole));
    let count = |stage: &SessionHarness| ["expert", "mapper", "concierge"].map(|role| calls(stage, role).len());
    assert_eq!(count(&stage), count(&whole));
}

#[test]
fn a_turn_that_is_stopped_leaves_nothing_behind() {
    let mut stage = open();
    stage.send_message("rent or buy?").answer_call("expert", "Rent.").run_command(OperatorCommand::Cancel);
    assert!(stage.session().is_idle() && stage.session().timers.is_empty());
    stage.send_message("a cat or a dog?");
    assert_eq!(stage.prompt_for_role("expert").messages.last().expect("there is one").text(), "a cat or a dog?");
    assert_eq!(facts(&stage, "batch").len(), 2);
}

#[test]
fn a_message_that_interrupts_takes_the_place_of_the_first() {
    let mut stage = SessionHarness::open_with_mid_turn_policy(ConciergeFlow::new(), MidTurnPolicy::Interrupt);
    stage.send_message("rent or buy?").answer_call("expert", "Rent.").send_message("a cat or a dog?");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    experts(&mut stage, MAP);
    assert_eq!(concierge_prompt(&stage).1, "a cat or a dog?");
}

#[test]
fn a_workflow_without_goal_is_asked_for_again_and_then_built() {
    let mut stage = open();
    explored(&mut stage);
    stage
        .send_message("plan it")
        .answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE: workflow\nHANDOVER:\n  priorities: [quiet]\n<<<END>>>");
    assert!(concierge_prompt(&stage).1.contains("it lacks goal"));
    stage.answer_call("concierge", "no block again");
    let handover = stage.session().latest_handover("execution").expect("it was built").clone();
    assert_eq!(
        (handover.provenance, handover.text_field("goal")),
        (HandoverProvenance::Built, Some("a home that lasts"))
    );
    assert_eq!(handover.list_field("priorities"), ["quiet"]);
    let task = sent(&stage, stage.oldest_open_call("expert").0);
    assert!(task.contains("Write a plan for this: a home that lasts") && task.contains("priorities: quiet"), "{task}");
    assert_eq!(stage.last_reply(), "Good.");
}

#[test]
fn a_workflow_that_is_cut_off_is_asked_for_again() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("plan it").answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE: WORKFLOW\nHANDO");
    assert!(concierge_prompt(&stage).1.contains("it has no end"));
    stage.answer_call("concierge", WORKFLOW);
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);

    let mut stage = open();
    explored(&mut stage);
    stage
        .send_message("May, then")
        .answer_call("concierge", "Good.\n<<<BATCH>>>\nTYPE")
        .answer_call("concierge", "sorry");
    assert_eq!(outcome(&stage), TurnResult::Done);
    stage.send_message("well?");
    assert!(concierge_prompt(&stage).1.contains("had no end"));
}

#[test]
fn requests_that_do_not_belong_are_refused_told_and_hidden() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("plan it").answer_call("concierge", &format!("Hm.\n{WORKFLOW}\n{PLAN}"));
    assert!(stage.session().is_idle());
    assert_eq!(facts(&stage, "refused").len(), 2, "the starter can ask for nothing");
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("stuck").answer_call("concierge", &format!("Hm.\n{STEP_HELP}"));
    assert_eq!((stage.last_reply().as_str(), stage.open_call_roles().len()), ("Hm.", 0));
    stage
        .send_message("and")
        .answer_call("concierge", "Hm.\n<<<BATCH>>>\nTYPE: PARTY\nPROMPT: dance\n<<<END>>>")
        .send_message("so");
    assert!(concierge_prompt(&stage).1.contains("“PARTY”, is none you were given"));
}

#[test]
fn steps_that_do_not_come_are_asked_for_privately_and_then_read_from_the_plan() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("plan it").answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", "Do this:\n1. **See the bank**: ask.\n2. View flats\n");
    assert!(concierge_prompt(&stage).1.contains("did not come"));
    stage.answer_call("concierge", "<<<STEPS>>>\n\n<<<END>>>");
    let workflow = &facts(&stage, "workflow")[0];
    assert_eq!((&workflow["how"], workflow["steps"].as_array().map(Vec::len)), (&json!("built"), Some(2)));
    assert!(stage.last_reply().starts_with("Do this:"));
    stage.send_message("go");
    assert!(concierge_prompt(&stage).1.contains("[>] 1. See the bank (current)"), "it never saw these steps");
}

#[test]
fn a_plan_without_any_steps_has_one() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("plan it").answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", "Just do it.").fail_call("concierge", FailureKind::InvalidApiKey);
    assert_eq!(facts(&stage, "workflow")[0]["steps"], json!([{"title": "buy a flat by May"}]));
    assert_eq!(outcome(&stage), TurnResult::Done);
}

#[test]
fn a_step_that_is_not_the_current_one_is_refused_and_told() {
    let mut stage = open();
    planned(&mut stage);
    stage
        .send_message("done")
        .answer_call("concierge", "Good.\n<<<STEP_DONE>>>\nstep: View flats\n<<<END>>>")
        .send_message("next");
    let (_, last) = concierge_prompt(&stage);
    assert!(
        last.contains("it is not the current step. The current step is “See the bank”. If they have chosen"),
        "{last}"
    );
    stage.answer_call("concierge", "Hm.\n<<<STEP_DONE>>>\nstep: Sell the cat\n<<<END>>>").send_message("next");
    assert!(concierge_prompt(&stage).1.contains("the plan has no such step"));
    assert!(facts(&stage, "step_done").is_empty());
}

#[test]
fn the_last_step_closes_the_plan_and_the_next_message_opens_an_explorer_who_knows_the_outcome() {
    let mut stage = open();
    planned(&mut stage);
    stage
        .send_message("letter is here")
        .answer_call("concierge", "Good.\n<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>");
    stage
        .send_message("found one")
        .answer_call("concierge", "All done: letter and flat.\n<<<STEP_DONE>>>\nstep: 2\n<<<END>>>");
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).turns_started), ("explorer", 0));
    let outcome = stage.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.text_field("outcome"), Some("All done: letter and flat."));
    assert_eq!(outcome.list_field("decisions"), ["to buy"]);
    stage.send_message("and the garden?");
    let call = calls(&stage, "concierge").last().expect("it was called").clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    let (system, last) = concierge_prompt(&stage);
    assert!(
        system.contains("All done: letter and flat.")
            && system.contains("- View flats")
            && system.contains("- which bank")
    );
    assert!(!system.contains("found one"));
    assert_eq!(last, "and the garden?");
    stage.answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    assert_eq!(phase(&stage).current, *"executor", "and it can plan anew");
}

#[test]
fn a_workflow_from_the_executor_is_a_new_plan_in_a_new_visit() {
    let mut stage = open();
    planned(&mut stage);
    let before = phase(&stage).visit;
    let other = WORKFLOW.replace("buy a flat by May", "rent a flat by June");
    stage.send_message("we cannot buy").answer_call("concierge", &format!("Then rent.\n{other}"));
    assert_eq!(phase(&stage).visit, before, "the old plan stands until there is a new one");
    experts(&mut stage, PLAN_MAP);
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).visit), ("executor", before + 1));
    let (system, _) = concierge_prompt(&stage);
    assert!(system.contains("rent a flat by June") && !system.contains("a plan that is under way"), "{system}");
    stage.answer_call("concierge", PLAN);
    assert_eq!(facts(&stage, "workflow")[1]["goal"], "rent a flat by June");
}

#[test]
fn every_turn_can_ask_everyone() {
    let mut stage = open_set(json!({"batch": "every_turn"}));
    started(&mut stage);
    stage.send_message("I stay five years");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    experts(&mut stage, PLAN_MAP);
    let call = calls(&stage, "concierge")[1].clone();
    assert_eq!(layout(&call), "| findings message");
    assert!(concierge_prompt(&stage).1.contains("measure twice"));
    stage.answer_call("concierge", &said(HANDOVER)).send_message("plan it");
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    stage.answer_call("concierge", PLAN).send_message("go");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
}

#[test]
fn a_reset_by_hand_in_mid_plan_opens_a_thread_that_knows_the_plan() {
    let mut stage = open();
    planned(&mut stage);
    stage
        .run_command(OperatorCommand::Forget { role: "concierge".into(), agent: None, peer: None })
        .send_message("where were we?");
    assert!(concierge_prompt(&stage).0.contains("[>] 1. See the bank (current)"));
}

#[test]
fn a_long_phase_is_shortened_and_goes_on() {
    let mut stage = open();
    explored(&mut stage);
    stage.set_window(2_400);
    stage.send_message("tell me more");
    for turn in 0..6 {
        stage
            .answer_call("concierge", &format!("Part {turn}. {}", "many words here ".repeat(60)))
            .send_message("and then?");
        if stage.open_call_roles() == ["summariser"] {
            stage.answer_call("summariser", "They talked about flats.");
        }
    }
    assert!(stage.journal().iter().any(|recorded| matches!(recorded.event, Event::ThreadCompacted(_))));
    let prompt = sent(&stage, stage.oldest_open_call("concierge").0);
    assert!(prompt.contains("They talked about flats.") && prompt.contains("a home that lasts"), "{prompt}");
}
