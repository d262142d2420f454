//! Replies without visible text: only a block, or empty. The user always gets a reply.

use segue_core::event::TurnOutcome;

use super::failures::outcome;
use super::support::*;

#[test]
fn starter_reply_with_only_a_handover_lets_the_explorer_answer() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay five years").answer_call("concierge", HANDOVER);
    assert_eq!(
        (phase(&harness).current.as_str(), harness.open_call_roles()),
        ("explorer", vec!["concierge".to_owned()])
    );
    let call = calls(&harness, "concierge")[2].clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    assert_eq!(concierge_prompt(&harness).1, "I stay five years", "it gets no notice about the starter's empty reply");
    harness.answer_call("concierge", "Then buy.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("Then buy.", TurnOutcome::Done));
}

#[test]
fn empty_reply_is_requested_once_more_and_then_replaced_by_a_neutral_sentence() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("where?").answer_call("concierge", "  \n");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("had no text that the user can see") && last.ends_with("where?"), "{last}");
    harness.answer_call("concierge", "In town.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("In town.", TurnOutcome::Done));

    let signals_only = "<<<STEP_DONE>>>\nstep: 1\n<<<END>>>";
    harness.send_message("why?").answer_call("concierge", signals_only).answer_call("concierge", signals_only);
    let neutral = include_str!("../../prompts/concierge/no_words.md").trim_end();
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), (neutral, TurnOutcome::Done));
    harness.send_message("and?");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("why?") && last.ends_with("and?"), "the question is still unanswered: {last}");
    harness.answer_call("concierge", "Because.").send_message("so?");
    assert_eq!(concierge_prompt(&harness).1, "so?");
}

#[test]
fn starter_that_writes_only_signals_is_asked_for_a_plain_answer() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.answer_call("concierge", &HANDOVER.replace("<<<HANDOVER>>>", ">>>HANDOVER<<<"));
    assert_eq!(visible_replies(&harness), [""; 0]);
    assert!(facts(&harness, "reply_complaints")[0].to_string().contains("is not exact"));
    harness.answer_call("concierge", "Rent.").send_message("I stay");
    assert!(concierge_prompt(&harness).1.contains("<<<HANDOVER>>>"));
    harness.answer_call("concierge", "<<<HANDOVER>>>\nshape: x\n<<<END>>>");
    let (_, last) = concierge_prompt(&harness);
    assert!(!last.contains("<<<HANDOVER>>>") && last.contains("had no text that the user can see"), "{last}");
    harness.answer_call("concierge", "Then buy.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("Then buy.", TurnOutcome::Done));
}

#[test]
fn executor_reply_with_only_a_help_block_is_answered_in_the_same_turn() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("the bank says no").answer_call("concierge", STEP_HELP);
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(layout(calls(&harness, "concierge").last().expect("it is asked")), "| findings message");
    assert!(concierge_prompt(&harness).1.ends_with("the bank says no"));
    harness.answer_call("concierge", "Try the other bank.").send_message("thanks");
    assert_eq!(concierge_prompt(&harness).1, "thanks", "and it is shown once");
}

#[test]
fn step_done_without_text_is_followed_by_a_reply() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("I have the letter").answer_call("concierge", "<<<STEP_DONE>>>\nstep: 1\n<<<END>>>");
    let call = calls(&harness, "concierge").last().expect("it is asked").clone();
    assert_eq!(layout(&call), "| workflow notices message");
    harness.answer_call("concierge", "Well done.").send_message("found one");
    harness.answer_call("concierge", "<<<STEP_DONE>>>\nstep: 2\n<<<END>>>");
    assert_eq!(phase(&harness).current, *"explorer");
    let outcome = harness.session().latest_handover("outcome").expect("it was built").clone();
    assert_eq!(outcome.text_field("outcome"), Some("All 2 steps were done."));
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("All 2 steps were done.") && last == "found one", "{system}\n{last}");
    harness.answer_call("concierge", "Congratulations.");
    assert_eq!(harness.last_reply(), "Congratulations.");
}

#[test]
fn plan_with_only_a_steps_block_is_followed_by_a_reply() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("plan it").answer_call("concierge", &with_text(WORKFLOW));
    answer_experts(&mut harness, PLAN_MAP);
    let steps = PLAN.split_once("\n\n").expect("words, then steps").1;
    harness.answer_call("concierge", steps);
    assert_eq!(facts(&harness, "plan_started").len(), 1);
    let call = calls(&harness, "concierge").last().expect("it is asked").clone();
    assert_eq!((call.ask.as_str(), layout(&call).as_str()), ("reply", "| notices message"));
    assert!(concierge_prompt(&harness).1.contains("had no text that the user can see"));
    harness.answer_call("concierge", "First the bank, then five flats.");
    assert_eq!(
        (harness.last_reply().as_str(), outcome(&harness)),
        ("First the bank, then five flats.", TurnOutcome::Done)
    );
}

#[test]
fn repair_replies_do_not_count_as_replies_to_the_user() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness
        .send_message("May, then")
        .answer_call("concierge", "<<<BATCH>>>\nTYPE: WORKFLOW\nHANDO")
        .answer_call("concierge", "Sorry, no.");
    assert_eq!(harness.open_call_roles(), ["concierge"], "the user has not seen that");
    assert!(concierge_prompt(&harness).1.contains("had no text that the user can see"));
    harness.answer_call("concierge", "What is it to be?");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("What is it to be?", TurnOutcome::Done));

    let mut harness = open_with_settings(serde_json::json!({"handover_by_turn": 2}));
    play_first_turn(&mut harness);
    harness
        .send_message("I stay")
        .answer_call("concierge", "<<<HANDOVER>>>\nshape: x\n<<<END>>>")
        .answer_call("concierge", "It is done.");
    assert_eq!((phase(&harness).current.as_str(), harness.open_call_roles().len()), ("explorer", 1));
    harness.answer_call("concierge", "Then buy.");
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Then buy."));

    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("plan it").answer_call("concierge", &with_text(WORKFLOW));
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", "").answer_call("concierge", "1. Go.\n2. Come.");
    assert_eq!(harness.open_call_roles(), ["concierge"], "the user has not seen the plan");
    harness.answer_call("concierge", "Go, then come.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("Go, then come.", TurnOutcome::Done));
}

#[test]
fn reply_that_repeats_the_last_one_is_requested_once_more() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    let advice = "Renting is a good option for several reasons: it costs less at first, you can move within three months, \
                  the landlord pays for repairs, and your savings stay free for other things.";
    harness.send_message("where?").answer_call("concierge", advice);
    let longer = format!("{advice} Buying is a good option too.");
    harness.send_message("I have two children").answer_call("concierge", &longer);
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("repeated the one before") && last.ends_with("I have two children"), "{last}");
    let again = calls(&harness, "concierge").last().expect("it was asked again").clone();
    assert_eq!(layout(&again), "identity never part handover earlier | notices message");
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains(advice) && !system.contains(&longer), "the model does not see the repetition: {system}");
    harness.answer_call("concierge", "Then look for three rooms near a school.");
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Then look for three rooms near a school."));
    assert!(!visible_replies(&harness).contains(&longer), "the user does not get the repetition");

    harness.send_message("and the price?").answer_call("concierge", "Then look for three rooms near a school.");
    assert_eq!(outcome(&harness), TurnOutcome::Done, "a short reply may be given twice");

    harness.send_message("say the long one again").answer_call("concierge", advice);
    harness.send_message("and again").answer_call("concierge", advice).answer_call("concierge", advice);
    assert_eq!(harness.last_reply(), advice, "the user gets it if the model insists");
}

#[test]
fn reply_that_tells_the_user_the_instruction_is_requested_once_more() {
    let mut harness = open();
    harness.send_message("rent or buy? decide for me");
    answer_experts(&mut harness, MAP);
    let (system, message) = concierge_prompt(&harness);
    assert_eq!(message, "rent or buy? decide for me", "how to answer is not said in the user's message");
    let instruction = "Recommend one option in your first sentences.";
    assert!(system.contains(instruction), "{system}");
    let echo = format!("Decide. {instruction} Give the two or three most important reasons.\n\nRent first.");
    harness.answer_call("concierge", &echo);
    assert_eq!(visible_replies(&harness), [""; 0], "the user does not get it");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("told the user your instructions"), "{last}");
    assert!(!last.contains("first sentences"), "the model does not see its reply: {last}");
    harness.answer_call("concierge", &echo);
    let shown = harness.last_reply();
    assert!(shown.ends_with("Rent first.") && !shown.contains("first sentences"), "{shown}");
    assert_eq!(outcome(&harness), TurnOutcome::Done);
}

#[test]
fn reply_that_is_nothing_but_the_instruction_becomes_a_neutral_sentence() {
    let mut harness = open();
    harness.send_message("rent or buy? decide for me");
    answer_experts(&mut harness, MAP);
    let echo = "Recommend one option in your first sentences. The user wants a decision from you.";
    harness.answer_call("concierge", echo).answer_call("concierge", echo);
    let neutral = include_str!("../../prompts/concierge/no_words.md").trim_end();
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), (neutral, TurnOutcome::Done));
}

#[test]
fn reply_that_is_only_the_users_message_is_requested_once_more() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    let message = "We stay for eight years, and both have work.";
    harness.send_message(message).answer_call("concierge", "we stay for eight years,  and both have work.\n");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("only repeated the user's message"), "{last}");
    harness.answer_call("concierge", "Then buying pays.");
    assert_eq!((harness.last_reply().as_str(), outcome(&harness)), ("Then buying pays.", TurnOutcome::Done));

    harness.send_message("yes, of course").answer_call("concierge", "Yes, of course");
    assert_eq!(harness.last_reply(), "Yes, of course", "a few words may be the same");
}
