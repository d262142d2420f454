//! The five checkpoints of the flow's source, end to end, with receipts as evidence: what each call was really shown.

use segue_core::context::{FragmentSource, PrefixMatch, ThreadUse};
use segue_core::scope::{ThreadChange, ThreadOpenReason};

use super::play::*;

#[test]
fn s27_checkpoint_1_the_mapper_remembers_nothing() {
    let mut stage = open();
    planned(&mut stage);
    let mappers = calls(&stage, "mapper");
    let [first, second] = mappers.as_slice() else { panic!("two maps were made") };
    for mapper in [first, second] {
        assert!(matches!(&mapper.receipt.thread, ThreadUse::Opened { why: ThreadOpenReason::Fresh, .. }));
        assert_eq!(mapper.receipt.carried.entries, 0);
        assert_eq!(layout(mapper), "instruction | sources");
    }
    let prompt = sent(&stage, second.call);
    assert_eq!(prompt.matches("## Source").count(), 3);
    assert!(!prompt.contains("Nobody asks how long they will stay."), "nothing of the first map: {prompt}");
}

#[test]
fn s27_checkpoint_2_the_starter_knows_its_first_turn_and_hands_over_in_its_second() {
    let mut stage = open();
    started(&mut stage);
    stage.send_message("I stay five years");
    let messages = stage.prompt_for_role("concierge").messages;
    let texts: Vec<String> = messages.iter().skip(1).map(|message| message.text().to_string()).collect();
    assert_eq!(texts, ["rent or buy?", "Rent, unless you stay for long.", "I stay five years"]);
    let call = calls(&stage, "concierge")[1].clone();
    assert!(
        matches!(call.receipt.prefix, PrefixMatch::Extends(before) if before == calls(&stage, "concierge")[0].call)
    );
    stage.answer_call("concierge", &format!("Then buy.\n{HANDOVER}"));
    assert_eq!(stage.session().latest_handover("intent").expect("it was made").source_calls, [call.call]);
}

#[test]
fn s27_checkpoint_3_the_explorer_is_fresh_sees_the_handover_and_persists() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("where?");
    let call = calls(&stage, "concierge")[2].clone();
    assert_eq!(layout(&call), "identity never part handover | message");
    match &call.receipt.thread {
        ThreadUse::Opened { why: ThreadOpenReason::Changed(parts), .. } => assert_eq!(parts, &[ThreadChange::Phase]),
        other => panic!("a new phase opens a new thread, not {other:?}"),
    }
    let handover = call.receipt.opening.iter().find(|piece| piece.name == *"handover").expect("it is in the recipe");
    let made = stage.session().latest_handover("intent").expect("it was made").id;
    assert_eq!(handover.source, Some(FragmentSource::Handover(made)));
    let prompt = sent(&stage, call.call);
    assert!(prompt.contains("a home that lasts") && !prompt.contains("Rent, unless you stay for long."));
    stage.answer_call("concierge", "In town.").send_message("why?");
    let again = calls(&stage, "concierge")[3].clone();
    assert_eq!(again.receipt.thread, ThreadUse::Continued(call.receipt.thread.thread_id()));
    assert_eq!(again.receipt.carried.entries, 2);
}

#[test]
fn s27_checkpoint_4_a_workflow_runs_the_round_and_the_executor_makes_the_plan() {
    let mut stage = open();
    explored(&mut stage);
    stage.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    let experts_asked: Vec<String> = calls(&stage, "expert")[3..].iter().map(layout).collect();
    assert_eq!(experts_asked, ["| task", "| task", "| task"], "each goes on in its own thread");
    experts(&mut stage, PLAN_MAP);
    let executor = calls(&stage, "concierge")[3].clone();
    assert_eq!(layout(&executor), "identity never part capabilities handover brief | message");
    let prompt = sent(&stage, executor.call);
    assert!(
        prompt.contains("buy a flat by May") && prompt.contains("measure twice") && prompt.contains("give me a plan")
    );
    stage.answer_call("concierge", PLAN);
    assert_eq!(stage.last_reply(), "Here is the plan.");
    let workflow = &facts(&stage, "workflow")[0];
    assert_eq!(workflow["goal"], "buy a flat by May");
    assert_eq!(workflow["steps"][1]["done_when"], "one is liked");
}

#[test]
fn s27_checkpoint_5_step_help_reaches_the_same_executor() {
    let mut stage = open();
    planned(&mut stage);
    let thread = calls(&stage, "concierge")[3].receipt.thread.thread_id();
    stage.send_message("the bank says no").answer_call("concierge", &format!("Let me see.\n{STEP_HELP}"));
    experts(&mut stage, PLAN_MAP);
    stage.send_message("what now?");
    let call = calls(&stage, "concierge")[5].clone();
    assert_eq!(call.receipt.thread, ThreadUse::Continued(thread));
    assert_eq!(layout(&call), "| findings message");
    let findings = &call.receipt.ask[1];
    assert_eq!(findings.source, Some(FragmentSource::Call(calls(&stage, "mapper")[2].call)));
    stage.answer_call("concierge", "Ask the second bank.");
    assert_eq!(stage.last_reply(), "Ask the second bank.");
}
