//! The five checkpoints of the specification, end to end. The receipts show what each call was sent.

use segue_core::context::{CallThread, FragmentSource, PreviousPromptComparison};
use segue_core::scope::{ThreadOpenReason, ThreadReuseMismatch};

use super::support::*;

#[test]
fn s27_checkpoint_1_mapper_has_no_memory() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let mappers = calls(&harness, "mapper");
    let [first, second] = mappers.as_slice() else { panic!("two maps were made") };
    for mapper in [first, second] {
        assert!(matches!(&mapper.receipt.thread, CallThread::Opened { why: ThreadOpenReason::Fresh, .. }));
        assert_eq!(mapper.receipt.carried.entries, 0);
        assert_eq!(layout(mapper), "instruction | sources");
    }
    let prompt = prompt_text(&harness, second.call);
    assert_eq!(prompt.matches("## Source").count(), 3);
    assert!(!prompt.contains("Nobody asks how long they will stay."), "nothing of the first map: {prompt}");
}

#[test]
fn s27_checkpoint_2_starter_remembers_turn_one_and_hands_over_in_turn_two() {
    let mut harness = open();
    play_first_turn(&mut harness);
    harness.send_message("I stay five years");
    let messages = harness.prompt_for_role("concierge").messages;
    let texts: Vec<String> = messages.iter().skip(1).map(|message| message.text().to_string()).collect();
    assert_eq!(texts[0], "rent or buy?");
    assert_eq!(texts[1], "Rent, unless you stay for long.");
    assert!(texts[2].contains("<<<HANDOVER>>>") && texts[2].ends_with("I stay five years"), "{}", texts[2]);
    let call = calls(&harness, "concierge")[1].clone();
    assert!(
        matches!(call.receipt.prefix, PreviousPromptComparison::Extends(before) if before == calls(&harness, "concierge")[0].call)
    );
    harness.answer_call("concierge", &format!("Then buy.\n{HANDOVER}"));
    assert_eq!(harness.session().latest_handover("intent").expect("it was made").source_calls, [call.call]);
}

#[test]
fn s27_checkpoint_3_explorer_starts_fresh_with_the_handover_and_persists() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("where?");
    let call = calls(&harness, "concierge")[2].clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    match &call.receipt.thread {
        CallThread::Opened { why: ThreadOpenReason::Changed(parts), .. } => {
            assert_eq!(parts, &[ThreadReuseMismatch::Phase])
        }
        other => panic!("a new phase opens a new thread, not {other:?}"),
    }
    let handover = call.receipt.opening.iter().find(|piece| piece.name == *"handover").expect("it is in the recipe");
    let made = harness.session().latest_handover("intent").expect("it was made").id;
    assert_eq!(handover.source, Some(FragmentSource::Handover(made)));
    let prompt = prompt_text(&harness, call.call);
    assert!(prompt.contains("a home that lasts") && !prompt.contains("Rent, unless you stay for long."));
    harness.answer_call("concierge", "In town.").send_message("why?");
    let again = calls(&harness, "concierge")[3].clone();
    assert_eq!(again.receipt.thread, CallThread::Continued(call.receipt.thread.thread_id()));
    assert_eq!(again.receipt.carried.entries, 2);
}

#[test]
fn s27_checkpoint_4_workflow_block_runs_a_batch_and_the_executor_presents_the_plan() {
    let mut harness = open();
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    let experts_asked: Vec<String> = calls(&harness, "expert")[3..].iter().map(layout).collect();
    assert_eq!(experts_asked, ["| task", "| task", "| task"], "each goes on in its own thread");
    answer_experts(&mut harness, PLAN_MAP);
    let executor = calls(&harness, "concierge")[3].clone();
    assert_eq!(layout(&executor), "identity never part capabilities handover brief | message");
    let prompt = prompt_text(&harness, executor.call);
    assert!(
        prompt.contains("buy a flat by May") && prompt.contains("measure twice") && prompt.contains("give me a plan")
    );
    harness.answer_call("concierge", PLAN);
    assert_eq!(harness.last_reply(), "Here is the plan.");
    let workflow = &facts(&harness, "plan_started")[0];
    assert_eq!(workflow["goal"], "buy a flat by May");
    assert_eq!(workflow["steps"][1]["done_when"], "one is liked");
}

#[test]
fn s27_checkpoint_5_step_help_reaches_the_same_executor_thread() {
    let mut harness = open();
    play_until_plan(&mut harness);
    let thread = calls(&harness, "concierge")[3].receipt.thread.thread_id();
    harness.send_message("the bank says no").answer_call("concierge", &format!("Let me see.\n{STEP_HELP}"));
    answer_experts(&mut harness, PLAN_MAP);
    harness.send_message("what now?");
    let call = calls(&harness, "concierge")[5].clone();
    assert_eq!(call.receipt.thread, CallThread::Continued(thread));
    assert_eq!(layout(&call), "| findings message");
    let findings = call.receipt.ask.iter().find(|fragment| fragment.name == *"findings").expect("it is shown");
    assert_eq!(findings.source, Some(FragmentSource::Call(calls(&harness, "mapper")[2].call)));
    harness.answer_call("concierge", "Ask the second bank.");
    assert_eq!(harness.last_reply(), "Ask the second bank.");
}
