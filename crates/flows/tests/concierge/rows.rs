//! The checklist, row by row.

use segue_core::context::{FragmentSource, ThreadUse};
use segue_core::decide::{InputRefusal, OperatorCommand, RecomputeOptions, SessionInput};
use segue_core::event::{Event, TurnResult};
use segue_core::handover::HandoverProvenance;
use segue_core::ids::ThreadId;
use segue_core::prompt::{FailureKind, ModelReply};
use segue_core::scope::ThreadOpenReason;
use segue_flows::concierge::facts::{BatchResult, Fact};
use segue_flows::concierge::state::ConciergeState;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::play::*;

fn thread(stage: &SessionHarness, role: &str, nth: usize) -> ThreadId {
    calls(stage, role)[nth].receipt.thread.thread_id()
}

fn is_opened(stage: &SessionHarness, role: &str, nth: usize) -> bool {
    matches!(calls(stage, role)[nth].receipt.thread, ThreadUse::Opened { .. })
}

#[test]
fn s01_a_new_session_stands_in_starter_at_turn_zero_with_nothing_else() {
    let stage = open();
    let phase = phase(&stage);
    assert_eq!((phase.current.as_str(), phase.turns_started, phase.visit), ("starter", 0, 1));
    let session = stage.session();
    assert!(session.handovers.is_empty() && session.threads.is_empty() && session.thread_by_slot.is_empty());
    assert_eq!(stage.journal().len(), 1, "nothing is noted where nothing was set");
}

#[test]
fn s02_where_the_concierge_stands_is_kept_apart_from_what_models_remember() {
    let mut stage = open();
    started(&mut stage);
    let before = phase(&stage);
    for role in ["expert", "concierge"] {
        stage.run_command(OperatorCommand::Forget { role: role.into(), agent: None, peer: None });
    }
    assert_eq!(phase(&stage), before, "forgetting every thread moves no phase");
    assert_eq!(stage.session().thread_by_slot.keys().filter(|slot| slot.role == *"expert").count(), 3);
}

#[test]
fn s03_state_is_what_the_journal_says_at_every_point() {
    let mut stage = open();
    planned(&mut stage);
    // The stage folds the journal anew after every input; here a process goes on from nothing but the journal.
    let (before, said) = (phase(&stage), stage.last_reply());
    stage.crash_and_recover();
    assert_eq!((phase(&stage), stage.last_reply()), (before, said));
    stage.send_message("the letter is here");
    assert_eq!(calls(&stage, "concierge").last().map(layout).as_deref(), Some("| message"));
}

#[test]
fn s04_every_mapper_call_begins_anew_with_nothing_from_before() {
    let mut stage = open();
    planned(&mut stage);
    let mappers = calls(&stage, "mapper");
    assert_eq!(mappers.len(), 2);
    for mapper in &mappers {
        assert!(matches!(mapper.receipt.thread, ThreadUse::Opened { why: ThreadOpenReason::Fresh, .. }));
        assert_eq!(mapper.receipt.carried.entries, 0);
    }
}

#[test]
fn s05_what_a_mapper_call_opened_is_kept_nowhere() {
    let mut stage = open();
    planned(&mut stage);
    let [first, second] = [0, 1].map(|nth| thread(&stage, "mapper", nth));
    assert_ne!(first, second);
    assert!(stage.session().thread_by_slot.keys().all(|slot| slot.role != *"mapper"));
    assert!(stage.session().threads.values().all(|thread| thread.slot.role != *"mapper"));
}

#[test]
fn s06_a_mapper_on_the_model_of_an_expert_inherits_nothing() {
    let mut stage = open();
    stage.assign_model("expert", "ant");
    stage.assign_model("mapper", "ant");
    planned(&mut stage);
    let second = &calls(&stage, "mapper")[1];
    assert_eq!(second.model, *"ant");
    let prompt = sent(&stage, second.call);
    assert!(prompt.contains("You have bought forty flats"), "{prompt}");
    assert!(!prompt.contains("rent or buy?") && !prompt.contains("rent first"), "{prompt}");
}

#[test]
fn s07_experts_continue_their_threads_across_phases() {
    let mut stage = open();
    planned(&mut stage);
    let experts = calls(&stage, "expert");
    assert_eq!(experts.len(), 6);
    for nth in 0..3 {
        assert_eq!(thread(&stage, "expert", nth), thread(&stage, "expert", nth + 3));
    }
    let prompt = sent(&stage, experts[3].call);
    assert!(prompt.contains("rent or buy?") && prompt.contains("Rent first."), "{prompt}");
    assert!(!prompt.contains("Rent, I say."), "nobody sees another's answer: {prompt}");
}

#[test]
fn s08_without_a_thread_the_whole_prompt_of_the_phase_opens_one() {
    let mut stage = open();
    planned(&mut stage);
    for (nth, opening) in [
        (0, "identity never part brief guidance | message"),
        (2, "identity never part handover | message"),
        (3, "identity never part capabilities handover brief | message"),
    ] {
        assert!(is_opened(&stage, "concierge", nth));
        assert_eq!(layout(&calls(&stage, "concierge")[nth]), opening);
    }
}

#[test]
fn s09_with_a_thread_the_message_alone_goes_into_it() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("five years");
    let second = &calls(&stage, "concierge")[1];
    assert_eq!(second.receipt.thread, ThreadUse::Continued(thread(&stage, "concierge", 0)));
    assert_eq!(layout(second), "| message");
    assert_eq!(concierge_prompt(&stage).1, "five years");
}

#[test]
fn s10_the_thread_a_phase_opened_stays_its_thread() {
    let mut stage = open();
    explored(&mut stage);
    let slot = |stage: &SessionHarness| {
        stage.session().thread_by_slot.iter().find(|(slot, _)| slot.role == *"concierge").map(|it| *it.1)
    };
    stage.send_message("where?").answer_call("concierge", "In town.");
    let opened = thread(&stage, "concierge", 2);
    assert_eq!(slot(&stage), Some(opened));
    for message in ["why?", "how?"] {
        stage.send_message(message).answer_call("concierge", "So.");
        assert_eq!(slot(&stage), Some(opened), "going on does not change it");
    }
}

#[test]
fn s11_turns_are_counted_within_a_phase_and_begin_again_with_the_next() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    assert_eq!(phase(&stage).turns_started, 1, "1 during the first turn");
    stage.answer_call("concierge", "Rent.").send_message("why?");
    assert_eq!(phase(&stage).turns_started, 2);
    stage.answer_call("concierge", &said(HANDOVER));
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).turns_started), ("explorer", 0));
    stage.send_message("and now?");
    assert_eq!(phase(&stage).turns_started, 1);
}

#[test]
fn s12_a_handover_block_in_starter_is_kept_and_moves_on_to_an_explorer_without_memory() {
    let mut stage = open();
    explored(&mut stage);
    let handover = stage.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.provenance, HandoverProvenance::Emitted);
    assert_eq!(handover.source_calls, [calls(&stage, "concierge")[1].call]);
    assert_eq!(handover.list_field("key_findings"), ["renting keeps doors open", "buying, once, is cheap"]);
    assert_eq!(handover.text_field("goal"), Some("a home that lasts"));
    stage.send_message("where?");
    assert!(is_opened(&stage, "concierge", 2));
}

#[test]
fn s13_the_user_hears_what_stands_outside_the_block() {
    let mut stage = open();
    explored(&mut stage);
    assert_eq!(stage.last_reply(), "Then buy.");
    assert!(heard(&stage).iter().all(|said| !said.contains("<<<")));
}

#[test]
fn s14_a_block_that_is_cut_off_is_hidden_and_makes_no_handover() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay").answer_call("concierge", "Then buy.\n\n<<<HANDOVER>>>\ngoal: a home");
    assert_eq!(stage.last_reply(), "Then buy.");
    assert!(stage.session().handovers.is_empty());
    assert_eq!(phase(&stage).current, *"starter");
    assert_eq!(facts(&stage, "complaints").len(), 1);
}

#[test]
fn s15_missing_and_malformed_fields_are_absent() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay");
    stage.answer_call(
        "concierge",
        "<<<HANDOVER>>>\ngoal: a home\ntensions: none\nconstraints: [time\nmood: bad\n<<<END>>>",
    );
    let handover = stage.session().latest_handover("intent").expect("it was made").clone();
    assert_eq!(handover.text_field("goal"), Some("a home"));
    assert_eq!((handover.text_field("shape"), handover.text_field("resisted_framing")), (None, None));
    assert!(handover.list_field("tensions").is_empty() && handover.list_field("gaps").is_empty());
    assert!(!facts(&stage, "complaints").is_empty());
}

#[test]
fn s16_a_handover_outside_starter_is_refused_told_and_hidden() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("hm").answer_call("concierge", &format!("Hm.\n{HANDOVER}"));
    assert_eq!((stage.last_reply().as_str(), phase(&stage).current.as_str()), ("Hm.", "explorer"));
    assert_eq!(stage.session().handovers.len(), 1);
    assert_eq!(facts(&stage, "refused").len(), 1);
    stage.send_message("and?");
    assert!(concierge_prompt(&stage).1.contains("HANDOVER block was not acted on"));
    stage.answer_call("concierge", "Well.").send_message("so?");
    assert_eq!(concierge_prompt(&stage).1, "so?", "it is told once");
}

#[test]
fn s17_a_batch_block_gives_its_type_its_handover_and_its_prompt_as_it_stands() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    let handover = stage.session().latest_handover("execution").expect("it was made").clone();
    assert_eq!(handover.text_field("goal"), Some("buy a flat by May"));
    assert_eq!(handover.list_field("decisions_made"), ["to buy"]);
    let batch = &facts(&stage, "batch")[1];
    assert_eq!(batch["purpose"], "workflow");
    assert_eq!(batch["task"]["prompt"], "You have bought forty flats for families.\nWrite the plan: step by step.");
}

#[test]
fn s18_a_workflow_asks_everyone_maps_anew_analyses_and_enters_the_executor() {
    let mut stage = open();
    explored(&mut stage);
    stage.take_log();
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    assert_eq!(phase(&stage).current, *"explorer", "until there is something to present");
    experts(&mut stage, PLAN_MAP);
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).turns_started), ("executor", 1));
    assert!(is_opened(&stage, "concierge", 3));
    assert_eq!(facts(&stage, "analysis").len(), 2);
    assert_eq!(stage.open_call_roles(), ["concierge"], "the plan is presented in the same turn");
}

#[test]
fn s18_with_synthesis_next_turn_the_plan_waits_for_the_next_message() {
    let mut stage = open_set(json!({"synthesis": "next_turn"}));
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &said(WORKFLOW));
    experts(&mut stage, PLAN_MAP);
    assert!(stage.session().is_idle());
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).turns_started), ("executor", 0));
    stage.send_message("well?");
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("buy a flat by May") && system.contains("measure twice"));
    assert_eq!(last, "give me a plan\n\nwell?");
    stage.answer_call("concierge", PLAN);
    assert_eq!(facts(&stage, "workflow").len(), 1);
}

#[test]
fn s19_the_first_executor_turn_gets_the_handover_the_brief_and_the_message() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    let call = calls(&stage, "concierge")[3].clone();
    assert_eq!(layout(&call), "identity never part capabilities handover brief | message");
    let (system, last) = concierge_prompt(&stage);
    for wanted in ["buy a flat by May", "a family of three", "which bank", "measure twice", "<<<STEPS>>>"] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
    assert_eq!(last, "give me a plan");
}

#[test]
fn s20_step_help_runs_the_round_and_leaves_phase_and_thread_alone() {
    let mut stage = open();
    planned(&mut stage);
    let before = phase(&stage).visit;
    stage.send_message("the bank says no").answer_call("concierge", &format!("Let me think.\n{STEP_HELP}"));
    assert_eq!(stage.last_reply(), "Let me think.");
    let task = sent(&stage, stage.oldest_open_call("expert").0);
    for wanted in ["See the bank", "the bank says no", "little cash", "You were a loan officer. What now?"] {
        assert!(task.contains(wanted), "{wanted}\n{task}");
    }
    experts(&mut stage, PLAN_MAP);
    assert!(stage.session().is_idle());
    assert_eq!((phase(&stage).current.as_str(), phase(&stage).visit), ("executor", before));
    let batch = &facts(&stage, "batch")[2];
    assert_eq!(
        (&batch["task"]["step"], &batch["task"]["blocker"]),
        (&json!("See the bank"), &json!("the bank says no"))
    );
    stage.send_message("so?");
    assert_eq!(thread(&stage, "concierge", 3), thread(&stage, "concierge", 5));
}

#[test]
fn s21_step_help_reaches_the_next_message_once() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("stuck").answer_call("concierge", &said(STEP_HELP));
    experts(&mut stage, PLAN_MAP);
    stage.send_message("so?");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("Help has come in") && last.contains("measure twice") && last.ends_with("so?"), "{last}");
    // A call that brings no answer has told nothing.
    stage.fail_call("concierge", FailureKind::InvalidApiKey).send_message("so?");
    assert!(concierge_prompt(&stage).1.contains("measure twice"));
    stage.answer_call("concierge", "Try the other bank.").send_message("thanks");
    assert_eq!(concierge_prompt(&stage).1, "thanks");
}

#[test]
fn s22_each_phase_is_taught_what_it_can_ask_for_and_no_more() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    let (starter, _) = concierge_prompt(&stage);
    assert!(!starter.contains("<<<BATCH>>>") && starter.contains("<<<HANDOVER>>>"));
    stage
        .answer_call("concierge", "Rent.")
        .send_message("no")
        .answer_call("concierge", HANDOVER)
        .send_message("plan it");
    let (explorer, _) = concierge_prompt(&stage);
    assert!(
        explorer.contains("TYPE: WORKFLOW") && !explorer.contains("STEP_HELP") && !explorer.contains("<<<HANDOVER>>>")
    );
    stage.answer_call("concierge", WORKFLOW);
    experts(&mut stage, PLAN_MAP);
    let (executor, _) = concierge_prompt(&stage);
    assert!(executor.contains("TYPE: STEP_HELP") && executor.contains("<<<STEP_DONE>>>"));
}

#[test]
fn s23_no_transcript_enters_a_prompt() {
    let mut stage = open();
    planned(&mut stage);
    let concierge = calls(&stage, "concierge");
    let explorer = sent(&stage, concierge[2].call);
    assert!(!explorer.contains("Rent, unless you stay for long.") && !explorer.contains("Then buy."), "{explorer}");
    let executor = sent(&stage, concierge[3].call);
    assert!(!executor.contains("I will work it out") && !executor.contains("rent or buy?"), "{executor}");
}

#[test]
fn s24_the_starter_is_shown_the_query_the_brief_and_how_to_answer() {
    let mut stage = open();
    stage.send_message("rent or buy? decide for me");
    experts(&mut stage, MAP);
    let (system, last) = concierge_prompt(&stage);
    assert_eq!(last, "rent or buy? decide for me");
    for wanted in ["rent first", "Nobody asks how long they will stay.", "## How to answer", "## Voice", "## Never"] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
    assert_eq!(facts(&stage, "stance")[0]["stance"], "decide");
    assert!(system.contains("They want a decision"), "{system}");
}

#[test]
fn s24_a_stance_that_is_set_goes_first() {
    let mut stage = open_set(json!({"stance": "challenge"}));
    stage.send_message("decide for me");
    experts(&mut stage, MAP);
    assert_eq!(facts(&stage, "stance")[0], json!({"stance": "challenge", "because": "it is set"}));
}

#[test]
fn s25_the_explorer_is_shown_every_field_and_what_is_missing_as_missing() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("where?");
    let (system, _) = concierge_prompt(&stage);
    for wanted in [
        "Shape: contested",
        "- renting keeps doors open",
        "- freedom against price",
        "> rent or buy?",
        "rent, unless you stay",
        "> I stay five years",
        "Goal: a home that lasts",
        "- five years",
        "They went along with: time decides",
        "They pushed back on: none identified",
        "- a child is coming",
        "- where to",
        "What served them: decide",
        "Gaps:\n- none identified",
    ] {
        assert!(system.contains(wanted), "{wanted}\n{system}");
    }
}

#[test]
fn s26_the_plan_is_shown_when_it_changed_with_only_the_current_step_in_full() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("I have the letter");
    assert_eq!(concierge_prompt(&stage).1, "I have the letter", "the plan is as the concierge wrote it");
    stage
        .answer_call("concierge", "Well done.\n<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>")
        .send_message("what next?");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("Progress: 1 of 2") && last.contains("[x] 1. See the bank"), "{last}");
    assert!(last.contains("five of them") && !last.contains("ask for a letter"), "{last}");
    stage.answer_call("concierge", "View flats.").send_message("ok");
    assert_eq!(concierge_prompt(&stage).1, "ok");
}

#[test]
fn s28_the_same_map_gives_the_same_shape_scores_and_confidence() {
    let analysis = |crash: bool| {
        let mut stage = open();
        stage
            .send_message("rent or buy?")
            .answer_call("expert", "a")
            .answer_call("expert", "b")
            .answer_call("expert", "c");
        if crash {
            stage.crash_and_recover();
        }
        stage.answer_call("mapper", MAP);
        facts(&stage, "analysis")[0].to_string()
    };
    assert_eq!(analysis(false), analysis(true));
    assert!(analysis(false).contains("\"confidence\""));
}

#[test]
fn s29_one_failure_is_tolerated_and_one_answer_is_no_map() {
    let mut stage = open();
    stage
        .send_message("rent or buy?")
        .fail_call("expert", FailureKind::InvalidApiKey)
        .answer_call("expert", "Rent.")
        .answer_call("expert", "Buy.");
    let mapper = sent(&stage, stage.oldest_open_call("mapper").0);
    assert!(mapper.contains("## Source 2") && !mapper.contains("## Source 3"), "{mapper}");

    let mut stage = open();
    stage
        .send_message("rent or buy?")
        .fail_call("expert", FailureKind::InvalidApiKey)
        .fail_call("expert", FailureKind::InvalidApiKey);
    stage.answer_call("expert", "Rent.");
    assert_eq!(stage.open_call_roles(), ["concierge"]);
    assert!(facts(&stage, "no_map")[0]["why"].to_string().contains("at least 2 answers"));
    assert!(concierge_prompt(&stage).0.contains("Rent."));
    let alone = all_facts(&stage)
        .into_iter()
        .any(|fact| matches!(fact, Fact::BatchCompleted { result: BatchResult::Single { .. }, .. }));
    assert!(alone);
}

#[test]
fn s30_another_model_opens_a_new_thread_and_the_handovers_stay() {
    let mut stage = open();
    planned(&mut stage);
    stage.send_message("I have the letter").answer_call("concierge", &said("<<<STEP_DONE>>>\nstep: 1\n<<<END>>>"));
    stage.assign_model("concierge", "dog");
    stage.send_message("go on");
    let call = calls(&stage, "concierge").last().expect("it was called").clone();
    assert_eq!(call.model, *"dog");
    assert_eq!(layout(&call), "identity never part capabilities handover plan | message");
    let (system, last) = concierge_prompt(&stage);
    assert!(system.contains("a plan that is under way") && system.contains("[>] 2. View flats (current)"), "{system}");
    assert!(system.contains("buy a flat by May") && system.contains("TYPE: STEP_HELP"));
    assert_eq!(last, "go on");
    assert_eq!(stage.session().handovers.len(), 2);
}

#[test]
fn s31_a_batch_wished_by_a_model_waits_for_the_users_yes() {
    let mut stage = open_set(json!({"confirm_batches": true}));
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    assert!(stage.session().is_idle());
    assert_eq!(heard(&stage)[2], "Good.");
    assert!(heard(&stage)[3].contains("buy a flat by May"));
    stage.send_message("Yes, please");
    assert_eq!(stage.open_call_roles(), ["expert", "expert", "expert"]);
    experts(&mut stage, PLAN_MAP);
    assert_eq!(concierge_prompt(&stage).1, "give me a plan");
    stage.answer_call("concierge", PLAN);
    assert_eq!(phase(&stage).current, *"executor");

    let mut stage = open_set(json!({"confirm_batches": true}));
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", WORKFLOW).send_message("wait, first tell me why");
    assert_eq!(stage.open_call_roles(), ["concierge"], "anything else is simply what the user says");
    let (_, last) = concierge_prompt(&stage);
    assert!(last.contains("neither yes nor no") && last.ends_with("wait, first tell me why"), "{last}");
}

#[test]
fn s33_machinery_in_a_reply_is_flagged_on_the_call_and_not_blocked() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.answer_call("concierge", "My analysis of the claims says rent.");
    assert_eq!(stage.last_reply(), "My analysis of the claims says rent.");
    let leak = &facts(&stage, "leak")[0];
    assert_eq!(leak["terms"], json!(["analysis", "claim"]));
    assert_eq!(leak["call"], json!(calls(&stage, "concierge")[0].call));
}

#[test]
fn s34_what_was_processed_is_not_processed_again() {
    let mut stage = open();
    let message = || SessionInput::Message {
        text: "rent or buy?".into(),
        idempotency_key: Some("k1".into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    stage.apply_input(message());
    let before = stage.journal().len();
    stage.apply_input(message());
    assert_eq!(stage.journal().len(), before);
    let (call, attempt) = stage.oldest_open_call("expert");
    stage.answer_call("expert", "Rent.");
    let again =
        SessionInput::Answer { call, attempt, reply: ModelReply::default(), cost_microusd: None, duration_ms: 1 };
    assert!(matches!(stage.try_input(again), Err(InputRefusal::CallNotPending { .. })));
}

#[test]
fn receipts_say_where_everything_came_from() {
    let mut stage = open();
    planned(&mut stage);
    let piece = |nth: usize, name: &str| {
        let call = calls(&stage, "concierge")[nth].clone();
        call.receipt.opening.iter().find(|piece| piece.name == *name).cloned().expect("it is in the recipe")
    };
    let mapper = calls(&stage, "mapper");
    assert_eq!(piece(0, "brief").source, Some(FragmentSource::Call(mapper[0].call)));
    assert_eq!(piece(3, "brief").source, Some(FragmentSource::Call(mapper[1].call)));
    assert!(matches!(piece(2, "handover").source, Some(FragmentSource::Handover(_))));
    assert_eq!(piece(2, "brief").text, None);
    assert_eq!(piece(0, "capabilities").why, "the starter can ask for nothing");
}

#[test]
fn settings_that_are_not_understood_are_told() {
    let stage = open_set(json!({"quorum": 9}));
    let complaints = json!({"complaints": ["`quorum` is 9, and 3 are asked; all of them are waited for"]});
    assert_eq!(facts(&stage, "settings")[0], complaints);
    assert_eq!(facts(&open_set(json!({"qorum": 2})), "settings").len(), 1);
}

#[test]
fn a_state_written_before_a_field_existed_still_loads() {
    let memory: ConciergeState = serde_json::from_value(json!({})).expect("every field has a default");
    assert_eq!(memory, ConciergeState::default());
}

#[test]
fn a_failed_turn_says_so() {
    let mut stage = open();
    stage.send_message("rent or buy?");
    experts(&mut stage, MAP);
    stage.fail_call("concierge", FailureKind::InvalidApiKey);
    let last = &stage.journal().last().expect("there are events").event;
    assert!(
        matches!(last, Event::TurnEnded { outcome: TurnResult::Failed { reason }, .. } if reason.contains("retry"))
    );
}

#[test]
fn s32_a_past_step_is_made_once_more_from_frozen_inputs_and_the_timeline_stays() {
    let mut stage = open();
    planned(&mut stage);
    let (before, threads, state) = (phase(&stage), stage.session().threads.clone(), stage.last_reply());
    let (mapper, starter) = (calls(&stage, "mapper")[0].call, calls(&stage, "concierge")[0].call);

    // Another mapper.
    let again =
        stage.recompute_call(mapper, &RecomputeOptions { model: Some("owl".into()), ..RecomputeOptions::default() });
    let (new, old) = (stage.prompt_for_call(again), stage.rebuild_prompt(mapper));
    assert_eq!((new.model.as_str(), &new.messages), ("owl", &old.messages), "the same prompt, another model");
    stage.answer_call("mapper", "<map>{\"claims\": []}</map>");

    // Another stance.
    let again = stage.recompute_call(
        starter,
        &RecomputeOptions { settings: json!({"stance": "challenge"}), ..RecomputeOptions::default() },
    );
    let opened = calls(&stage, "concierge").last().expect("it is open").clone();
    let recomputes = opened.recomputation.expect("it says what it is");
    assert_eq!((recomputes.call, recomputes.changed_fragments.as_slice()), (starter, &["guidance".into()][..]));
    assert!(stage.prompt_for_call(again).messages[0].text().contains("They want to be tested"));
    stage.answer_call("concierge", "Why buy at all?\n<<<HANDOVER>>>\ngoal: x\n<<<END>>>");

    // Another concierge; it fails, the process dies, and nothing of it matters.
    stage.recompute_call(starter, &RecomputeOptions { model: Some("dog".into()), ..RecomputeOptions::default() });
    stage.crash_and_recover().fail_call("concierge", FailureKind::InvalidApiKey);

    assert_eq!((phase(&stage), &stage.session().threads, stage.last_reply()), (before, &threads, state));
    assert_eq!(stage.session().handovers.len(), 2);
    assert_eq!(facts(&stage, "map").len(), 2, "no flow hears of it");
    assert!(stage.session().is_idle());
    stage.send_message("go on");
    assert_eq!(calls(&stage, "concierge").last().map(layout).as_deref(), Some("| message"));
}

#[test]
fn s32_a_step_made_once_more_in_the_middle_of_a_turn_is_in_nobodys_way() {
    let mut stage = open();
    started(&mut stage);
    let first = calls(&stage, "expert")[0].call;
    stage.send_message("I stay").recompute_call(first, &RecomputeOptions::default());
    assert_eq!(stage.open_call_roles(), ["concierge", "expert"]);
    stage.answer_call("concierge", "Buy.");
    assert_eq!(stage.last_reply(), "Buy.");
    assert!(stage.session().current_turn.is_none());
    stage.answer_call("expert", "Rent still.");
    assert_eq!(stage.session().ledger.by_role["expert"].answered_calls, 4, "it is paid for");
}
