//! The five checkpoints of the flow's specification, checked by the receipts of its calls.

use segue_core::context::{CallThread, FragmentSource, PreviousPromptComparison};
use segue_core::ids::HandoverId;
use segue_core::scope::{ThreadOpenReason, ThreadReuseMismatch};
use serde_json::Value;

use crate::harness::{ConciergeHarness, MESSAGES_TO_PLAN, fragment_layout};

#[tokio::test(start_paused = true)]
async fn s27_checkpoint_1_the_mapper_has_no_memory_of_turn_1_in_turn_2() {
    let harness = ConciergeHarness::start("", serde_json::json!({"batch": "every_turn"})).await;
    harness.send_all(&["rent or buy?", "I stay five years"]).await;
    let mappers = harness.calls("mapper").await;
    assert_eq!(mappers.len(), 2, "one per turn");
    for mapper in &mappers {
        assert!(matches!(&mapper.receipt.thread, CallThread::Opened { why: ThreadOpenReason::Fresh, .. }));
        assert_eq!((mapper.receipt.carried.entries, fragment_layout(mapper).as_str()), (0, "instruction | sources"));
    }
    let sent = harness.prompt_text(mappers[1].call).await;
    assert!(sent.contains("I stay five years") && sent.contains("Advice"), "{sent}");
    for old in ["rent or buy?", "Opinion", "rent first", "how long they will stay"] {
        assert!(!sent.contains(old), "`{old}` belongs to turn 1: {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn s27_checkpoint_2_the_starter_persists_into_turn_2_and_hands_over() {
    let harness = ConciergeHarness::start("", Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN[..2]).await;
    let concierge = harness.calls("concierge").await;
    let [first, second] = concierge.as_slice() else { panic!("one call a turn") };
    assert_eq!(second.receipt.thread, CallThread::Continued(first.receipt.thread.thread_id()));
    assert_eq!(second.receipt.prefix, PreviousPromptComparison::Extends(first.call));
    let exchange = harness.conversation_texts(second.call).await;
    assert_eq!(exchange[0], "rent or buy?", "how to answer is in the instruction");
    assert_eq!(exchange[1], "Rent, unless you stay for long.");
    assert_eq!(exchange.len(), 3);
    assert!(exchange[2].contains("<<<HANDOVER>>>"), "the block is explained in the turn in which it is due");
    assert!(exchange[2].ends_with("I stay five years"), "{}", exchange[2]);
    assert_eq!(harness.handovers().await, ["intent Emitted"]);
    assert_eq!(harness.replies().await, ["Rent, unless you stay for long.", "Then buy."]);
}

#[tokio::test(start_paused = true)]
async fn s27_checkpoint_3_the_explorer_is_fresh_sees_the_handover_and_no_transcript_and_persists() {
    let harness = ConciergeHarness::start("", Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN[..2]).await;
    harness.send_all(&["where to?", "why there?"]).await;
    let concierge = harness.calls("concierge").await;
    let (explorer, second) = (&concierge[2], &concierge[3]);
    assert_eq!(explorer.phase.as_ref().map(|phase| phase.as_str()), Some("explorer"));
    match &explorer.receipt.thread {
        CallThread::Opened { why: ThreadOpenReason::Changed(parts), .. } => {
            assert_eq!(parts, &[ThreadReuseMismatch::Phase])
        }
        other => panic!("a new phase opens a new thread, not {other:?}"),
    }
    assert_eq!(fragment_layout(explorer), "identity never part handover | message");
    let handover = explorer.receipt.opening.iter().find(|fragment| fragment.name == *"handover").expect("it is shown");
    assert_eq!(handover.source, Some(FragmentSource::Handover(HandoverId(1))));
    let sent = harness.prompt_text(explorer.call).await;
    assert!(sent.contains("a home that lasts") && sent.contains("- five years"), "{sent}");
    // The handover's fields are included, and nothing else of the conversation.
    for text in
        ["The user asked:\nrent or buy?", "Rent, unless you stay for long.", "The user replied:\nI stay five years"]
    {
        assert_eq!(sent.matches(text).count(), 1, "`{text}` is included once: {sent}");
    }
    assert!(!sent.contains("Then buy."), "that would be a transcript: {sent}");
    assert_eq!(harness.conversation_texts(explorer.call).await, ["where to?"]);
    assert_eq!(second.receipt.thread, CallThread::Continued(explorer.receipt.thread.thread_id()));
    assert_eq!(harness.conversation_texts(second.call).await, ["where to?", "Go on.", "why there?"]);
}

#[tokio::test(start_paused = true)]
async fn s27_checkpoint_4_a_workflow_runs_the_round_and_the_executor_makes_the_plan_of_it() {
    let harness = ConciergeHarness::start("", Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN[..2]).await;
    let report = harness.send(MESSAGES_TO_PLAN[2]).await;
    assert_eq!(report.replies, ["Good. I will work it out.", "Here is the plan."]);
    assert_eq!(report.phase, "executor");
    let (experts, mappers) = (harness.calls("expert").await, harness.calls("mapper").await);
    assert_eq!((experts.len(), mappers.len()), (6, 2));
    for (first, second) in experts.iter().zip(&experts[3..]) {
        assert_eq!(
            second.receipt.thread,
            CallThread::Continued(first.receipt.thread.thread_id()),
            "its thread continues"
        );
        assert_eq!(fragment_layout(second), "| task");
    }
    assert_eq!(mappers[1].receipt.carried.entries, 0);
    let mapped = harness.prompt_text(mappers[1].call).await;
    assert!(mapped.contains("You have bought forty flats") && !mapped.contains("rent or buy?"), "{mapped}");
    let executor = &harness.calls("concierge").await[3];
    assert_eq!(fragment_layout(executor), "identity never part capabilities handover brief | message");
    let source = |name: &str| executor.receipt.opening.iter().find(|fragment| fragment.name == *name)?.source.clone();
    assert_eq!(source("handover"), Some(FragmentSource::Handover(HandoverId(2))));
    assert_eq!(source("brief"), Some(FragmentSource::Call(mappers[1].call)));
    let sent = harness.prompt_text(executor.call).await;
    for wanted in ["buy a flat by May", "see the bank first", "give me a plan"] {
        assert!(sent.contains(wanted), "{wanted}: {sent}");
    }
    assert_eq!(harness.facts("plan_started").await[0]["steps"][1]["title"], "View flats");
}

#[tokio::test(start_paused = true)]
async fn s27_checkpoint_5_step_help_runs_the_round_and_reaches_the_same_executor_once() {
    let harness = ConciergeHarness::start("", Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN).await;
    let stuck = harness.send("I am stuck at the bank").await;
    assert_eq!((stuck.replies.as_slice(), stuck.phase.as_str()), (&["Let me see.".to_owned()][..], "executor"));
    harness.send_all(&["what now?", "thanks"]).await;
    let (concierge, mappers) = (harness.calls("concierge").await, harness.calls("mapper").await);
    let (plan, helped, after) = (&concierge[3], &concierge[5], &concierge[6]);
    assert_eq!(helped.receipt.thread, CallThread::Continued(plan.receipt.thread.thread_id()), "not reset");
    assert_eq!(fragment_layout(helped), "| findings message");
    let findings = helped.receipt.ask.iter().find(|fragment| fragment.name == *"findings").expect("it is shown");
    assert_eq!(findings.source, Some(FragmentSource::Call(mappers[2].call)));
    assert_eq!(fragment_layout(after), "| message", "it is included once");
    let task = harness.prompt_text(harness.calls("expert").await[6].call).await;
    for wanted in ["See the bank", "the bank says no", "You were a loan officer."] {
        assert!(task.contains(wanted), "{wanted}: {task}");
    }
}
