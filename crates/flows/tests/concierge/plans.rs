//! The active plan: which step is current, and that the concierge knows it.

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnOutcome};
use segue_core::prompt::CallFailureKind;
use serde_json::json;

use super::failures::outcome;
use super::support::*;

fn says(block: &str, step: &str) -> String {
    format!("Good.\n<<<{block}>>>\nstep: {step}\n<<<END>>>")
}

#[test]
fn chosen_step_becomes_current() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("with the flats").answer_call("concierge", &says("STEP_START", "View flats"));
    assert_eq!(facts(&harness, "step_started")[0]["step"], 1);
    harness.send_message("found one");
    let last = concierge_prompt(&harness).1;
    assert!(last.contains("[ ] 1. See the bank") && last.contains("[>] 2. View flats (current)"), "{last}");
    harness.answer_call("concierge", &says("STEP_DONE", "View flats")).send_message("and now?");
    let last = concierge_prompt(&harness).1;
    assert!(last.contains("Progress: 1 of 2") && last.contains("[>] 1. See the bank (current)"), "{last}");
    harness.answer_call("concierge", &says("STEP_DONE", "See the bank"));
    assert_eq!(phase(&harness).current, *"explorer");
    let outcome = harness.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.list_field("steps"), ["See the bank", "View flats"]);
}

#[test]
fn step_can_be_started_and_completed_in_one_reply() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let both = format!("{}\n{}", says("STEP_START", "2"), says("STEP_DONE", "2"));
    harness.send_message("I have found a flat already").answer_call("concierge", &both);
    assert_eq!((facts(&harness, "step_started").len(), facts(&harness, "step_completed").len()), (1, 1));
    assert!(facts(&harness, "block_refused").is_empty());
}

#[test]
fn invalid_step_start_is_refused_with_a_notice() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness
        .send_message("sell the cat")
        .answer_call("concierge", &says("STEP_START", "Sell the cat"))
        .send_message("well?");
    assert!(concierge_prompt(&harness).1.contains("“Sell the cat” was not started: the plan has no such step"));
    harness
        .answer_call("concierge", &says("STEP_DONE", "1"))
        .send_message("once more?")
        .answer_call("concierge", &says("STEP_START", "1"));
    harness.send_message("well?");
    assert!(concierge_prompt(&harness).1.contains("“1” was not started: it is already done"));
    harness.answer_call("concierge", &says("STEP_START", "2")).send_message("go");
    assert_eq!(concierge_prompt(&harness).1, "go", "starting the current step changes nothing");
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("start").answer_call("concierge", &says("STEP_START", "1"));
    assert_eq!((harness.last_reply().as_str(), facts(&harness, "block_refused").len()), ("Good.", 1));
}

#[test]
fn plan_is_shown_again_after_compaction() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.set_window(3_600);
    harness.send_message("tell me more");
    for turn in 0..12 {
        harness
            .answer_call("concierge", &format!("Part {turn}. {}", "many words here ".repeat(60)))
            .send_message("and then?");
        if harness.open_call_roles() == ["summariser"] {
            harness.answer_call("summariser", "They talked about flats.");
            break;
        }
    }
    let mut compacted = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ThreadCompacted(compacted) => Some(compacted.clone()),
        _ => None,
    });
    let compacted = compacted.next_back().expect("it was shortened");
    assert!(harness.text_on_one_line(compacted.summary[0]).contains("[>] 1. See the bank (current)"));
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("[>] 1. See the bank (current)") && last.ends_with("and then?"), "{last}");
    harness.answer_call("concierge", "Go to the bank.").send_message("fine");
    assert_eq!(concierge_prompt(&harness).1, "fine", "and it is shown once");
}

#[test]
fn missing_steps_are_requested_and_then_parsed_from_the_plan() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("plan it").answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", "Do this:\n1. **See the bank**: ask.\n2. View flats\n");
    assert!(concierge_prompt(&harness).1.contains("had no STEPS block"));
    harness.answer_call("concierge", "<<<STEPS>>>\n\n<<<END>>>");
    let workflow = &facts(&harness, "plan_started")[0];
    assert_eq!((&workflow["provenance"], workflow["steps"].as_array().map(Vec::len)), (&json!("built"), Some(2)));
    assert!(harness.last_reply().starts_with("Do this:"));
    harness.send_message("go");
    assert!(concierge_prompt(&harness).1.contains("[>] 1. See the bank (current)"), "it has not seen these steps");
}

#[test]
fn plan_without_steps_gets_its_goal_as_the_only_step() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("plan it").answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", "Just do it.").fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(facts(&harness, "plan_started")[0]["steps"], json!([{"title": "buy a flat by May"}]));
    assert_eq!(outcome(&harness), TurnOutcome::Done);
}

#[test]
fn completing_another_step_is_refused_with_a_notice() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness
        .send_message("done")
        .answer_call("concierge", "Good.\n<<<STEP_DONE>>>\nstep: View flats\n<<<END>>>")
        .send_message("next");
    let (_, last) = concierge_prompt(&harness);
    assert!(
        last.contains("it is not the current step. The current step is “See the bank”. If the user chose"),
        "{last}"
    );
    harness.answer_call("concierge", "Hm.\n<<<STEP_DONE>>>\nstep: Sell the cat\n<<<END>>>").send_message("next");
    assert!(concierge_prompt(&harness).1.contains("the plan has no such step"));
    assert!(facts(&harness, "step_completed").is_empty());
}

#[test]
fn last_step_completes_the_plan_and_the_next_explorer_gets_the_outcome() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness
        .send_message("letter is here")
        .answer_call("concierge", "Good.\n<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>");
    harness
        .send_message("found one")
        .answer_call("concierge", "All done: letter and flat.\n<<<STEP_DONE>>>\nstep: 2\n<<<END>>>");
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).turns_started), ("explorer", 0));
    let outcome = harness.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.text_field("outcome"), Some("All done: letter and flat."));
    assert_eq!(outcome.list_field("decisions"), ["to buy"]);
    harness.send_message("and the garden?");
    let call = calls(&harness, "concierge").last().expect("it was called").clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    let (system, last) = concierge_prompt(&harness);
    assert!(
        system.contains("All done: letter and flat.")
            && system.contains("- View flats")
            && system.contains("- which bank")
    );
    assert!(!system.contains("found one"));
    assert_eq!(last, "and the garden?");
    harness.answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(phase(&harness).current, *"executor", "and it can make a new plan");
}

#[test]
fn plan_request_of_the_executor_starts_a_new_visit() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let before = phase(&harness).visit;
    let other = WORKFLOW.replace("buy a flat by May", "rent a flat by June");
    harness.send_message("we cannot buy").answer_call("concierge", &format!("Then rent.\n{other}"));
    assert_eq!(phase(&harness).visit, before, "the old plan is kept until there is a new one");
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).visit), ("executor", before + 1));
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains("rent a flat by June") && !system.contains("a plan that is under way"), "{system}");
    harness.answer_call("concierge", PLAN);
    assert_eq!(facts(&harness, "plan_started")[1]["goal"], "rent a flat by June");
}

#[test]
fn new_thread_after_forget_contains_the_plan() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness
        .run_command(OperatorCommand::Forget { role: "concierge".into(), agent: None, peer: None })
        .send_message("where were we?");
    assert!(concierge_prompt(&harness).0.contains("[>] 1. See the bank (current)"));
}
