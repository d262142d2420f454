//! The rows of the checklist.

use segue_core::context::CallThread;
use segue_core::decide::{InputRefusal, OperatorCommand, RecomputeCallOverrides, SessionInput};
use segue_core::handover::HandoverProvenance;
use segue_core::ids::ThreadId;
use segue_core::prompt::{CallFailureKind, ModelReply};
use segue_core::scope::ThreadOpenReason;
use segue_flows::concierge::analysis::ClaimMapShape;
use segue_flows::concierge::brief::render_shape_guidance;
use segue_flows::concierge::facts::{ConciergeFact, ExpertBatchResult};
use segue_flows::concierge::stance::{ReplyStance, render_stance_guidance};
use segue_testkit::SessionHarness;
use serde_json::json;

use super::support::*;

fn thread(harness: &SessionHarness, role: &str, nth: usize) -> ThreadId {
    calls(harness, role)[nth].receipt.thread.thread_id()
}

fn is_opened(harness: &SessionHarness, role: &str, nth: usize) -> bool {
    matches!(calls(harness, role)[nth].receipt.thread, CallThread::Opened { .. })
}

#[test]
fn s01_new_session_is_in_starter_at_turn_zero_with_empty_state() {
    let harness = open();
    let phase = phase(&harness);
    assert_eq!((phase.current.as_str(), phase.turns_started, phase.visit), ("starter", 0, 1));
    let session = harness.session();
    assert!(session.handovers.is_empty() && session.threads.is_empty() && session.thread_by_slot.is_empty());
    assert_eq!(harness.journal().len(), 1, "without settings, no fact is recorded");
}

#[test]
fn s02_phase_state_is_separate_from_threads() {
    let mut harness = open();
    play_first_turn(&mut harness);
    let before = phase(&harness);
    for role in ["expert", "concierge"] {
        harness.run_command(OperatorCommand::Forget { role: role.into(), agent: None, peer: None });
    }
    assert_eq!(phase(&harness), before, "forgetting every thread moves no phase");
    assert_eq!(harness.session().thread_by_slot.keys().filter(|slot| slot.role == *"expert").count(), 3);
}

#[test]
fn s03_state_is_restored_from_the_journal() {
    let mut harness = open();
    play_until_plan(&mut harness);
    // The harness recomputes the state after every input; here a process continues from the journal alone.
    let (before, said) = (phase(&harness), harness.last_reply());
    harness.crash_and_recover();
    assert_eq!((phase(&harness), harness.last_reply()), (before, said));
    harness.send_message("the letter is here");
    assert_eq!(calls(&harness, "concierge").last().map(layout).as_deref(), Some("| message"));
}

#[test]
fn s04_every_mapper_call_starts_a_fresh_thread() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let mappers = calls(&harness, "mapper");
    assert_eq!(mappers.len(), 2);
    for mapper in &mappers {
        assert!(matches!(mapper.receipt.thread, CallThread::Opened { why: ThreadOpenReason::Fresh, .. }));
        assert_eq!(mapper.receipt.carried.entries, 0);
    }
}

#[test]
fn s05_mapper_threads_are_not_stored() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let [first, second] = [0, 1].map(|nth| thread(&harness, "mapper", nth));
    assert_ne!(first, second);
    assert!(harness.session().thread_by_slot.keys().all(|slot| slot.role != *"mapper"));
    assert!(harness.session().threads.values().all(|thread| thread.slot.role != *"mapper"));
}

#[test]
fn s06_mapper_on_an_experts_model_inherits_nothing() {
    let mut harness = open();
    harness.assign_model("expert", "ant");
    harness.assign_model("mapper", "ant");
    play_until_plan(&mut harness);
    let second = &calls(&harness, "mapper")[1];
    assert_eq!(second.model, *"ant");
    let prompt = prompt_text(&harness, second.call);
    assert!(prompt.contains("You have bought forty flats"), "{prompt}");
    assert!(!prompt.contains("rent or buy?") && !prompt.contains("rent first"), "{prompt}");
}

#[test]
fn s07_experts_continue_their_threads_across_phases() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let experts = calls(&harness, "expert");
    assert_eq!(experts.len(), 6);
    for nth in 0..3 {
        assert_eq!(thread(&harness, "expert", nth), thread(&harness, "expert", nth + 3));
    }
    let prompt = prompt_text(&harness, experts[3].call);
    assert!(prompt.contains("rent or buy?") && prompt.contains("Rent first."), "{prompt}");
    assert!(!prompt.contains("Rent, I say."), "no expert sees another's answer: {prompt}");
}

#[test]
fn s08_new_thread_opens_with_the_full_phase_prompt() {
    let mut harness = open();
    play_until_plan(&mut harness);
    for (nth, opening) in [
        (0, "identity never part guidance brief | message"),
        (2, "identity never part handover | message"),
        (3, "identity never part capabilities handover brief | message"),
    ] {
        assert!(is_opened(&harness, "concierge", nth));
        assert_eq!(layout(&calls(&harness, "concierge")[nth]), opening);
    }
}

#[test]
fn s09_existing_thread_gets_only_the_message() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("five years");
    let second = &calls(&harness, "concierge")[1];
    assert_eq!(second.receipt.thread, CallThread::Continued(thread(&harness, "concierge", 0)));
    assert_eq!(layout(second), "| handover_due message", "the handover is due in this turn");
    assert!(concierge_prompt(&harness).1.ends_with("five years"));
    harness.answer_call("concierge", &format!("Then buy.\n\n{HANDOVER}"));
    harness.send_message("where?").answer_call("concierge", "In town.").send_message("why?");
    let last = calls(&harness, "concierge")[3].clone();
    assert_eq!(last.receipt.thread, CallThread::Continued(thread(&harness, "concierge", 2)));
    assert_eq!(layout(&last), "| message");
    assert_eq!(concierge_prompt(&harness).1, "why?");
}

#[test]
fn s10_thread_of_a_phase_is_kept() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    let slot = |harness: &SessionHarness| {
        harness.session().thread_by_slot.iter().find(|(slot, _)| slot.role == *"concierge").map(|it| *it.1)
    };
    harness.send_message("where?").answer_call("concierge", "In town.");
    let opened = thread(&harness, "concierge", 2);
    assert_eq!(slot(&harness), Some(opened));
    for message in ["why?", "how?"] {
        harness.send_message(message).answer_call("concierge", "So.");
        assert_eq!(slot(&harness), Some(opened), "continuing does not change it");
    }
}

#[test]
fn s11_turn_counter_restarts_in_each_phase() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    assert_eq!(phase(&harness).turns_started, 1, "1 during the first turn");
    harness.answer_call("concierge", "Rent.").send_message("why?");
    assert_eq!(phase(&harness).turns_started, 2);
    harness.answer_call("concierge", &with_text(HANDOVER));
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).turns_started), ("explorer", 0));
    harness.send_message("and now?");
    assert_eq!(phase(&harness).turns_started, 1);
}

#[test]
fn s12_handover_block_moves_starter_to_a_fresh_explorer() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    let handover = harness.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Emitted);
    assert_eq!(handover.source_calls, [calls(&harness, "concierge")[1].call]);
    assert_eq!(handover.list_field("key_findings"), ["renting keeps doors open", "buying, once, is cheap"]);
    assert_eq!(handover.text_field("goal"), Some("a home that lasts"));
    harness.send_message("where?");
    assert!(is_opened(&harness, "concierge", 2));
}

#[test]
fn s13_user_sees_all_text_outside_blocks_and_nothing_else() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", &format!("Then buy.\n\n{HANDOVER}\n\nAsk me anything."));
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Then buy.⏎⏎Ask me anything."));
    assert_eq!(phase(&harness).current, *"explorer", "the block counts wherever it is");
    harness.send_message("plan it").answer_call("concierge", &format!("{WORKFLOW}\nI work on it."));
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("I work on it."));
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN).send_message("I have the letter, and we found one.");
    let done = |step: &str| format!("<<<STEP_DONE>>>\nstep: {step}\n<<<END>>>");
    let reply = format!("Good.\n\n{}\n\nAnd the flat?\n\n{}\n\nThat is all.", done("1"), done("2"));
    harness.answer_call("concierge", &reply);
    assert_eq!(
        visible_replies(&harness).last().map(String::as_str),
        Some("Good.⏎⏎And the flat?⏎⏎That is all."),
        "also the text between two blocks"
    );
    assert_eq!(facts(&harness, "step_completed").len(), 2, "both blocks count");
}

#[test]
fn s14_truncated_block_is_hidden_and_makes_no_handover() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", "Then buy.\n\n<<<HANDOVER>>>\ngoal: a home");
    assert_eq!(harness.last_reply(), "Then buy.");
    assert!(harness.session().handovers.is_empty());
    assert_eq!(phase(&harness).current, *"starter");
    assert_eq!(facts(&harness, "reply_complaints").len(), 1);
}

#[test]
fn s15_missing_and_malformed_fields_are_absent() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay");
    harness.answer_call(
        "concierge",
        "<<<HANDOVER>>>\ngoal: a home\ntensions: none\nconstraints: [time\nmood: bad\nand worse\n\
         still_unclear: [where to, when]\nThey sounded tired.\naccepted_framing: time decides\nin the end\n\
         resisted_framing: NULL\nkey_findings: [null, \"rent, first\", none]\nunprompted_reveals:\n  - a child\n  - null\n\
         effective_stance: None\n<<<END>>>",
    );
    let handover = harness.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.text_field("goal"), Some("a home"));
    assert_eq!(handover.text_field("resisted_framing"), None);
    assert_eq!(handover.list_field("constraints"), ["time"], "an unknown key is not part of the list before it");
    assert_eq!(handover.list_field("still_unclear"), ["where to", "when"], "a list ends at its bracket");
    assert_eq!(handover.text_field("accepted_framing"), Some("time decides\nin the end"));
    assert!(handover.list_field("tensions").is_empty() && handover.list_field("gaps").is_empty());
    assert_eq!(handover.text_field("effective_stance"), None, "none is no value");
    assert_eq!(handover.list_field("key_findings"), ["rent, first"], "nor is it an item");
    assert_eq!(handover.list_field("unprompted_reveals"), ["a child"]);
    let complaints = facts(&harness, "reply_complaints")[0]["complaints"].clone();
    assert_eq!(
        complaints,
        json!([
            "HANDOVER.constraints: list has no closing bracket",
            "HANDOVER.mood: unknown key; its value was ignored",
            "HANDOVER.still_unclear: text after the list was ignored: `They sounded tired.`",
        ])
    );
}

#[test]
fn s15_fields_that_repeat_the_sample_of_the_prompt_are_absent() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call(
        "concierge",
        "Fine.\n<<<HANDOVER>>>\ngoal: a home\nuser_reply: What the user replied.\neffective_stance: decide\n\
         accepted_framing: what the user agreed\nconstraints: [what limits the user, five years]\nshape: shape\n<<<END>>>",
    );
    let handover = harness.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(
        (handover.text_field("goal"), handover.text_field("effective_stance")),
        (Some("a home"), Some("decide"))
    );
    assert_eq!((handover.text_field("accepted_framing"), handover.text_field("shape")), (None, Some("contested")));
    assert_eq!(handover.list_field("constraints"), ["five years"]);
    assert_eq!(handover.text_field("user_reply"), Some("I stay"), "the user's own words take its place");
    let complaints = facts(&harness, "reply_complaints")[0].to_string();
    for field in ["user_reply", "accepted_framing", "constraints", "shape"] {
        assert!(complaints.contains(&format!("HANDOVER: {field} repeats the prompt's sample")), "{complaints}");
    }

    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay");
    harness.answer_call("concierge", "Fine.\n<<<HANDOVER>>>\ngoal: What the user wants\n<<<END>>>");
    assert_eq!(phase(&harness).current, *"starter", "there is no goal in it");
}

#[test]
fn s16_handover_outside_starter_is_refused_reported_and_hidden() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("hm").answer_call("concierge", &format!("Hm.\n{HANDOVER}"));
    assert_eq!((harness.last_reply().as_str(), phase(&harness).current.as_str()), ("Hm.", "explorer"));
    assert_eq!(harness.session().handovers.len(), 1);
    assert_eq!(facts(&harness, "block_refused").len(), 1);
    harness.send_message("and?");
    assert!(concierge_prompt(&harness).1.contains("HANDOVER block was ignored"));
    harness.answer_call("concierge", "Well.").send_message("so?");
    assert_eq!(concierge_prompt(&harness).1, "so?", "the notice is shown once");
}

#[test]
fn s17_batch_block_is_parsed_into_type_handover_and_raw_prompt() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    let handover = harness.session().latest_handover("execution").expect("it was made").clone();
    assert_eq!(handover.text_field("goal"), Some("buy a flat by May"));
    assert_eq!(handover.list_field("decisions_made"), ["to buy"]);
    let batch = &facts(&harness, "batch_started")[1];
    assert_eq!(batch["purpose"], "plan");
    assert_eq!(batch["task"]["prompt"], "You have bought forty flats for families.\nWrite the plan: step by step.");
}

#[test]
fn s18_workflow_runs_batch_mapper_and_analysis_and_enters_the_executor() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.take_new_event_lines();
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(phase(&harness).current, *"explorer", "until there is something to present");
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).turns_started), ("executor", 1));
    assert!(is_opened(&harness, "concierge", 3));
    assert_eq!(facts(&harness, "map_analysed").len(), 2);
    assert_eq!(harness.open_call_roles(), ["concierge"], "the plan is presented in the same turn");
}

#[test]
fn s18_with_synthesis_next_turn_the_plan_waits_for_the_next_message() {
    let mut harness = open_with_settings(json!({"synthesis": "next_turn"}));
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &with_text(WORKFLOW));
    answer_experts(&mut harness, PLAN_MAP);
    assert!(harness.session().is_idle());
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).turns_started), ("executor", 0));
    harness.send_message("well?");
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("buy a flat by May") && system.contains("measure twice"));
    assert_eq!(last, "give me a plan\n\nwell?");
    harness.answer_call("concierge", PLAN);
    assert_eq!(facts(&harness, "plan_started").len(), 1);
}

#[test]
fn s19_the_first_executor_turn_gets_the_handover_the_brief_and_the_message() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    let call = calls(&harness, "concierge")[3].clone();
    assert_eq!(layout(&call), "identity never part capabilities handover brief | message");
    let (system, last) = concierge_prompt(&harness);
    for wanted in ["buy a flat by May", "a family of three", "which bank", "measure twice", "<<<STEPS>>>"] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
    assert_eq!(last, "give me a plan");
}

#[test]
fn s20_step_help_runs_a_batch_and_keeps_phase_and_thread() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let before = phase(&harness).visit;
    harness.send_message("the bank says no").answer_call("concierge", &format!("Let me think.\n{STEP_HELP}"));
    assert_eq!(harness.last_reply(), "Let me think.");
    let task = prompt_text(&harness, harness.oldest_open_call("expert").0);
    for wanted in ["See the bank", "the bank says no", "little cash", "You were a loan officer. What now?"] {
        assert!(task.contains(wanted), "{wanted}\n{task}");
    }
    answer_experts(&mut harness, PLAN_MAP);
    assert!(harness.session().is_idle());
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).visit), ("executor", before));
    let batch = &facts(&harness, "batch_started")[2];
    assert_eq!(
        (&batch["task"]["step"], &batch["task"]["blocker"]),
        (&json!("See the bank"), &json!("the bank says no"))
    );
    harness.send_message("so?");
    assert_eq!(thread(&harness, "concierge", 3), thread(&harness, "concierge", 5));
}

#[test]
fn s21_step_help_is_shown_once_with_the_next_message() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("stuck").answer_call("concierge", &with_text(STEP_HELP));
    answer_experts(&mut harness, PLAN_MAP);
    harness.send_message("so?");
    let (_, last) = concierge_prompt(&harness);
    assert!(
        last.contains("New help for the step") && last.contains("measure twice") && last.ends_with("so?"),
        "{last}"
    );
    // A failed call does not count as shown.
    harness.fail_call("concierge", CallFailureKind::InvalidApiKey).send_message("so?");
    assert!(concierge_prompt(&harness).1.contains("measure twice"));
    harness.answer_call("concierge", "Try the other bank.").send_message("thanks");
    assert_eq!(concierge_prompt(&harness).1, "thanks");
}

#[test]
fn s22_each_phase_prompt_lists_only_its_own_capabilities() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    let (starter, first) = concierge_prompt(&harness);
    for word in ["<<<", "handover", "HANDOVER"] {
        assert!(!starter.contains(word) && !first.contains(word), "no block is due in the first turn: {starter}");
    }
    harness.answer_call("concierge", "Rent.").send_message("no");
    let (starter, second) = concierge_prompt(&harness);
    assert!(second.contains("<<<HANDOVER>>>") && !second.contains("<<<BATCH>>>"), "{second}");
    assert!(!starter.contains("<<<"), "the opening prompt is unchanged: {starter}");
    harness.answer_call("concierge", HANDOVER).send_message("plan it");
    let (explorer, _) = concierge_prompt(&harness);
    assert!(
        explorer.contains("TYPE: WORKFLOW") && !explorer.contains("STEP_HELP") && !explorer.contains("<<<HANDOVER>>>")
    );
    harness.answer_call("concierge", WORKFLOW);
    answer_experts(&mut harness, PLAN_MAP);
    let (executor, _) = concierge_prompt(&harness);
    assert!(executor.contains("TYPE: STEP_HELP") && executor.contains("<<<STEP_DONE>>>"));
}

#[test]
fn s23_no_transcript_enters_a_prompt() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let concierge = calls(&harness, "concierge");
    let explorer = prompt_text(&harness, concierge[2].call);
    // The handover says it in its own words, so the prompt is not empty by accident.
    assert!(explorer.contains("rent, unless you stay") && explorer.contains("I stay five years"), "{explorer}");
    assert!(!explorer.contains("Rent, unless you stay for long.") && !explorer.contains("Then buy."), "{explorer}");
    let executor = prompt_text(&harness, concierge[3].call);
    assert!(executor.contains("buy a flat by May") && executor.contains("give me a plan"), "{executor}");
    assert!(!executor.contains("I will work it out") && !executor.contains("rent or buy?"), "{executor}");
    // The experts of the plan get what the concierge wrote for them, not what it said to the user.
    let task = prompt_text(&harness, calls(&harness, "expert")[3].call);
    assert!(task.contains("You have bought forty flats for families."), "{task}");
    assert!(!task.contains("I stay five years") && !task.contains("Then buy."), "{task}");

    // Within a visit, a message is sent once, in its own place.
    harness.send_message("which bank?").answer_call("concierge", "The one in town.").send_message("and then?");
    let within = harness.prompt_for_role("concierge").messages;
    assert_eq!(within.last().map(|message| message.text().to_string()).as_deref(), Some("and then?"));
    let all: String = within.iter().map(|message| message.text().to_string()).collect();
    assert_eq!((all.matches("which bank?").count(), all.matches("The one in town.").count()), (1, 1), "{all}");

    // The way back to the explorer carries the outcome only.
    let done = "<<<STEP_DONE>>>\nstep: 1\n<<<END>>>\n<<<STEP_DONE>>>\nstep: 2\n<<<END>>>";
    harness.answer_call("concierge", &format!("You have a home.\n{done}")).send_message("thanks");
    assert_eq!(phase(&harness).visit, 4);
    let back = prompt_text(&harness, harness.oldest_open_call("concierge").0);
    assert!(back.contains("You have a home.") && back.contains("buy a flat by May"), "{back}");
    for earlier in ["Here is the plan.", "which bank?", "The one in town.", "and then?", "Then buy."] {
        assert!(!back.contains(earlier), "{earlier}: {back}");
    }
}

#[test]
fn s23_fields_that_the_flow_wrote_are_recorded() {
    let built = |block: &str| {
        let mut harness = open();
        play_first_turn(&mut harness);
        harness.send_message("I stay five years").answer_call("concierge", &with_text(block));
        facts(&harness, "handover_fields_built").pop()
    };
    assert_eq!(built(HANDOVER), None, "the model wrote all fields, and the shape is as the map says");
    let short = "<<<HANDOVER>>>\ngoal: a home\nshape: round\nuser_query: to rent\n<<<END>>>";
    assert_eq!(built(short), Some(json!({"kind": "intent", "fields": ["shape", "starter_response", "user_reply"]})));
    let mut harness = open_with_settings(json!({"handover_by_turn": 2}));
    play_first_turn(&mut harness);
    harness.send_message("I stay").answer_call("concierge", "Buy.").answer_call("concierge", "No.");
    let fields = facts(&harness, "handover_fields_built").pop().expect("it was built")["fields"].clone();
    assert!(fields.as_array().is_some_and(|fields| fields.contains(&json!("goal"))), "{fields}");
}

#[test]
fn s24_starter_prompt_has_query_brief_and_guidance() {
    let mut harness = open();
    harness.send_message("rent or buy? decide for me");
    answer_experts(&mut harness, MAP);
    let (system, last) = concierge_prompt(&harness);
    assert_eq!(last, "rent or buy? decide for me");
    for wanted in ["rent first", "buy at once", "Nobody asks how long they will stay.", "## Never"] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
    let guidance = render_stance_guidance(ReplyStance::Decide);
    let shape = render_shape_guidance(ClaimMapShape::Contested);
    let texts = [guidance.framing.unwrap_or_default(), shape, guidance.behaviour, guidance.voice];
    let places: Vec<Option<usize>> = texts.iter().map(|text| system.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{system}");
    assert_eq!(facts(&harness, "stance_chosen")[0]["stance"], "decide");
    let at = |text: &str| system.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("## Never") < at("rent first"), "in this order");
    let voice = &texts[3];
    harness.answer_call("concierge", "Rent.").send_message("no");
    assert!(!concierge_prompt(&harness).1.contains(voice), "the thread has the guidance already");

    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    let (system, _) = concierge_prompt(&harness);
    assert!(!system.contains("The user wants a decision"), "another message has another stance");
    assert!(system.contains("Reply in the language that the user writes in."), "{system}");
}

#[test]
fn s24_explorer_keeps_the_stance() {
    for (question, framing) in [("rent or buy? decide for me", true), ("rent or buy?", false)] {
        let mut harness = open();
        harness.send_message(question);
        answer_experts(&mut harness, MAP);
        harness.answer_call("concierge", "Rent.").send_message("I stay").answer_call("concierge", &with_text(HANDOVER));
        harness.send_message("where?");
        let (system, _) = concierge_prompt(&harness);
        assert_eq!(system.contains("The user wants a decision from you."), framing, "{system}");
    }
}

#[test]
fn s24_stance_setting_has_priority() {
    let mut harness = open_with_settings(json!({"stance": "challenge"}));
    harness.send_message("decide for me");
    answer_experts(&mut harness, MAP);
    assert_eq!(facts(&harness, "stance_chosen")[0], json!({"stance": "challenge", "reason": "it is set"}));
}

#[test]
fn s25_explorer_prompt_shows_every_handover_field() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("where?");
    let (system, _) = concierge_prompt(&harness);
    for wanted in [
        "Shape: contested",
        "- renting keeps doors open",
        "- freedom against price",
        "The user asked:\nrent or buy?",
        "rent, unless you stay",
        "The user replied:\nI stay five years",
        "Goal: a home that lasts",
        "- five years",
        "The user agreed with: time decides",
        "The user resisted: none identified",
        "- a child is coming",
        "- where to",
        "What helped the user: decide",
        "Gaps:\n- none identified",
    ] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
}

#[test]
fn s26_changed_plan_is_shown_with_only_the_current_step_in_full() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("I have the letter");
    assert_eq!(concierge_prompt(&harness).1, "I have the letter", "the plan is as the concierge wrote it");
    harness
        .answer_call("concierge", "Well done.\n<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>")
        .send_message("what next?");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("Progress: 1 of 2") && last.contains("[x] 1. See the bank"), "{last}");
    assert!(last.contains("five of them") && !last.contains("ask for a letter"), "{last}");
    harness.answer_call("concierge", "View flats.").send_message("ok");
    assert_eq!(concierge_prompt(&harness).1, "ok");
}

#[test]
fn s28_the_same_map_gives_the_same_shape_scores_and_confidence() {
    let analysis = |crash: bool| {
        let mut harness = open();
        harness
            .send_message("rent or buy?")
            .answer_call("expert", "a")
            .answer_call("expert", "b")
            .answer_call("expert", "c");
        if crash {
            harness.crash_and_recover();
        }
        harness.answer_call("mapper", MAP);
        facts(&harness, "map_analysed")[0].to_string()
    };
    assert_eq!(analysis(false), analysis(true));
    assert!(analysis(false).contains("\"confidence\""));
}

#[test]
fn s29_one_failure_is_tolerated_and_one_answer_makes_no_map() {
    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .fail_call("expert", CallFailureKind::InvalidApiKey)
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    let mapper = prompt_text(&harness, harness.oldest_open_call("mapper").0);
    assert!(mapper.contains("## Source 2") && !mapper.contains("## Source 3"), "{mapper}");

    let mut harness = open();
    harness
        .send_message("rent or buy?")
        .fail_call("expert", CallFailureKind::InvalidApiKey)
        .fail_call("expert", CallFailureKind::InvalidApiKey);
    harness.answer_call("expert", "Rent.");
    assert_eq!(harness.open_call_roles(), ["concierge"]);
    assert!(facts(&harness, "map_unavailable")[0]["why"].to_string().contains("at least 2 answers"));
    assert!(concierge_prompt(&harness).0.contains("Rent."));
    let alone = all_facts(&harness)
        .into_iter()
        .any(|fact| matches!(fact, ConciergeFact::BatchCompleted { result: ExpertBatchResult::Single { .. }, .. }));
    assert!(alone);
}

#[test]
fn s30_model_change_opens_a_new_thread_and_keeps_handovers() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness
        .send_message("I have the letter")
        .answer_call("concierge", &with_text("<<<STEP_DONE>>>\nstep: 1\n<<<END>>>"));
    harness.assign_model("concierge", "dog");
    harness.send_message("go on");
    let call = calls(&harness, "concierge").last().expect("it was called").clone();
    assert_eq!(call.model, *"dog");
    assert_eq!(layout(&call), "identity never part capabilities handover plan earlier | message");
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("a plan that is under way") && system.contains("[>] 2. View flats (current)"), "{system}");
    assert!(system.contains("buy a flat by May") && system.contains("TYPE: STEP_HELP"));
    assert_eq!(last, "go on");
    assert_eq!(harness.session().handovers.len(), 2);
}

#[test]
fn s30_reopened_thread_is_shown_the_visit_so_far() {
    let reopened = |harness: &mut SessionHarness, message: &str| {
        harness.assign_model("concierge", "dog");
        harness.send_message(message);
        let (system, last) = concierge_prompt(harness);
        assert!(last.ends_with(message), "{last}");
        system
    };
    let mut harness = open();
    play_first_turn(&mut harness);
    let starter = reopened(&mut harness, "I stay five years");
    assert!(starter.contains("rent or buy?") && starter.contains("Rent, unless you stay for long."), "{starter}");

    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("where?").answer_call("concierge", "In a quiet street.");
    harness.send_message("which one?").answer_call("concierge", "The one behind the church.");
    let explorer = reopened(&mut harness, "and the price?");
    let said = ["where?", "In a quiet street.", "which one?", "The one behind the church."];
    let places: Vec<Option<usize>> = said.iter().map(|text| explorer.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "all of the visit, in order: {explorer}");
    assert!(!explorer.contains("and the price?"), "the new message is not part of it: {explorer}");
    assert!(!explorer.contains("Then buy."), "what was said in another phase does not cross: {explorer}");

    let mut harness = open();
    play_until_plan(&mut harness);
    harness.send_message("which bank?").answer_call("concierge", "The one in town.");
    let executor = reopened(&mut harness, "go on");
    assert!(executor.contains("which bank?") && executor.contains("The one in town."), "{executor}");
    assert!(executor.contains("[>] 1. See the bank"), "{executor}");
}

#[test]
fn s30_forgotten_thread_is_shown_the_visit_so_far_once() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("where?").answer_call("concierge", "In a quiet street.");
    harness.run_command(OperatorCommand::Forget { role: "concierge".into(), agent: None, peer: None });
    harness.send_message("and the price?");
    let call = calls(&harness, "concierge").last().expect("it was called").clone();
    assert!(matches!(call.receipt.thread, CallThread::Opened { .. }), "{:?}", call.receipt.thread);
    let (system, last) = concierge_prompt(&harness);
    assert!(system.contains("where?") && system.contains("In a quiet street."), "{system}");
    assert!(system.contains("Goal: a home that lasts") && !system.contains("Then buy."), "{system}");
    assert_eq!(last, "and the price?");
    harness.answer_call("concierge", "High.").send_message("why?");
    let again = prompt_text(&harness, harness.oldest_open_call("concierge").0);
    assert_eq!(again.matches("In a quiet street.").count(), 1, "{again}");
    assert!(again.contains("High."), "the new thread continues: {again}");
}

#[test]
fn s30_ordinary_thread_repeats_nothing() {
    let mut harness = open();
    play_until_plan(&mut harness);
    for call in calls(&harness, "concierge") {
        assert!(!layout(&call).contains("earlier"), "{}", layout(&call));
    }
}

#[test]
fn s31_batch_requested_by_a_model_waits_for_confirmation() {
    let mut harness = open_with_settings(json!({"confirm_batches": true}));
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert!(harness.session().is_idle());
    assert_eq!(visible_replies(&harness)[2], "Good.");
    assert!(visible_replies(&harness)[3].contains("buy a flat by May"));
    harness.send_message("Yes, please");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!(concierge_prompt(&harness).1, "give me a plan");
    harness.answer_call("concierge", PLAN);
    assert_eq!(phase(&harness).current, *"executor");

    let mut harness = open_with_settings(json!({"confirm_batches": true}));
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", WORKFLOW).send_message("wait, first tell me why");
    assert_eq!(harness.open_call_roles(), ["concierge"], "any other answer is an ordinary message");
    let (_, last) = concierge_prompt(&harness);
    assert!(last.contains("neither yes nor no") && last.ends_with("wait, first tell me why"), "{last}");
}

#[test]
fn s33_internal_terms_in_a_reply_are_recorded_and_not_blocked() {
    let mut harness = open();
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    harness.answer_call("concierge", "My analysis of the claims says rent.");
    assert_eq!(harness.last_reply(), "My analysis of the claims says rent.");
    let leak = &facts(&harness, "internal_terms_leaked")[0];
    assert_eq!(leak["terms"], json!(["analysis", "claim"]));
    assert_eq!(leak["call"], json!(calls(&harness, "concierge")[0].call));
}

#[test]
fn s34_repeated_input_is_a_no_op() {
    let mut harness = open();
    let message = || SessionInput::Message {
        text: "rent or buy?".into(),
        idempotency_key: Some("k1".into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    harness.apply_input(message());
    let before = harness.journal().len();
    harness.apply_input(message());
    assert_eq!(harness.journal().len(), before);
    let (call, attempt) = harness.oldest_open_call("expert");
    harness.answer_call("expert", "Rent.");
    let again =
        SessionInput::Answer { call, attempt, reply: ModelReply::default(), cost_microusd: None, duration_ms: 1 };
    assert!(matches!(harness.try_input(again), Err(InputRefusal::CallNotPending { .. })));
}

#[test]
fn s32_recomputation_uses_frozen_inputs_and_keeps_the_timeline() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let (before, threads, state) = (phase(&harness), harness.session().threads.clone(), harness.last_reply());
    let (mapper, starter) = (calls(&harness, "mapper")[0].call, calls(&harness, "concierge")[0].call);

    // Another mapper.
    let again = harness.recompute_call(
        mapper,
        &RecomputeCallOverrides { model: Some("owl".into()), ..RecomputeCallOverrides::default() },
    );
    let (new, old) = (harness.prompt_for_call(again), harness.rebuild_prompt(mapper));
    assert_eq!((new.model.as_str(), &new.messages), ("owl", &old.messages), "the same prompt, another model");
    harness.answer_call("mapper", "<map>{\"claims\": []}</map>");

    // Another stance.
    let again = harness.recompute_call(
        starter,
        &RecomputeCallOverrides { settings: json!({"stance": "challenge"}), ..RecomputeCallOverrides::default() },
    );
    let opened = calls(&harness, "concierge").last().expect("it is open").clone();
    let recomputes = opened.recomputation.expect("it says what it is");
    assert_eq!((recomputes.call, recomputes.changed_fragments.as_slice()), (starter, &["guidance".into()][..]));
    assert!(
        harness
            .prompt_for_call(again)
            .messages
            .iter()
            .any(|message| message.text().contains("wants their view to be tested"))
    );
    harness.answer_call("concierge", "Why buy at all?\n<<<HANDOVER>>>\ngoal: x\n<<<END>>>");

    // Another concierge; it fails and the process dies, without any effect.
    harness.recompute_call(
        starter,
        &RecomputeCallOverrides { model: Some("dog".into()), ..RecomputeCallOverrides::default() },
    );
    harness.crash_and_recover().fail_call("concierge", CallFailureKind::InvalidApiKey);

    assert_eq!((phase(&harness), &harness.session().threads, harness.last_reply()), (before, &threads, state));
    assert_eq!(harness.session().handovers.len(), 2);
    assert_eq!(facts(&harness, "map_parsed").len(), 2, "the flow does not see it");
    assert!(harness.session().is_idle());
    harness.send_message("go on");
    assert_eq!(calls(&harness, "concierge").last().map(layout).as_deref(), Some("| message"));
}

#[test]
fn s32_recomputation_during_a_turn_does_not_disturb_it() {
    let mut harness = open();
    play_first_turn(&mut harness);
    let first = calls(&harness, "expert")[0].call;
    harness.send_message("I stay").recompute_call(first, &RecomputeCallOverrides::default());
    assert_eq!(harness.open_call_roles(), ["concierge", "expert"]);
    harness.answer_call("concierge", "Buy.");
    assert_eq!(harness.last_reply(), "Buy.");
    assert!(harness.session().current_turn.is_none());
    harness.answer_call("expert", "Rent still.");
    assert_eq!(harness.session().ledger.by_role["expert"].answered_calls, 4, "it is paid for");
}
