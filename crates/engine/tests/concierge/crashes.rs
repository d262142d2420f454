//! The process dies and another resumes the session. Calls that were answered are not made again.

use segue_core::event::{Event, TurnOutcome};
use serde_json::{Value, json};

use crate::harness::{ConciergeHarness, MESSAGES_TO_PLAN};

fn is_call_of(role: &'static str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::CallOpened(opened) if opened.role == *role)
}

/// Returns how often each call was started.
async fn attempt_counts(harness: &ConciergeHarness, role: &str) -> Vec<usize> {
    let events = harness.events().await;
    let unknown_attempts = |call| {
        events
            .iter()
            .filter(|event| matches!(event, Event::CallOutcomeUnknown { call: unknown, .. } if *unknown == call))
            .count()
    };
    harness.calls(role).await.iter().map(|opened| 1 + unknown_attempts(opened.call)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_between_batch_and_mapper() {
    let harness = ConciergeHarness::start("[[reply]]\nrole = \"mapper\"\nhang = true\n", Value::Null).await;
    harness.send_until("rent or buy?", is_call_of("mapper")).await;
    // Experts that are called again would fail the turn.
    let harness = harness.restart("[[reply]]\nrole = \"expert\"\nfail = \"invalid_api_key\"\n").await;
    harness.wait_until_idle().await;
    assert_eq!(harness.replies().await, ["Rent, unless you stay for long."]);
    assert_eq!(harness.call_counts().await, [3, 1, 1]);
    assert_eq!(attempt_counts(&harness, "expert").await, [1, 1, 1], "no answered call is made again");
    assert_eq!(attempt_counts(&harness, "mapper").await, [2], "the mapper was in flight and is called again");
    let sent = harness.prompt_text(harness.calls("mapper").await[0].call).await;
    assert_eq!(sent.matches("rent first.").count(), 3, "all three answers reached the mapper: {sent}");
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_in_the_middle_of_the_batch() {
    let one_hangs = "[[reply]]\nrole = \"expert\"\nmodel = \"bee\"\nhang = true\n";
    let harness = ConciergeHarness::start(one_hangs, json!({"experts": ["ant", "bee", "cat"]})).await;
    let answered = std::sync::atomic::AtomicUsize::new(0);
    harness
        .send_until("rent or buy?", |event| {
            if matches!(event, Event::CallAnswered(_)) {
                answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            answered.load(std::sync::atomic::Ordering::Relaxed) >= 2
        })
        .await;
    let harness =
        harness.restart("[[reply]]\nrole = \"expert\"\nmodel = [\"ant\", \"cat\"]\nfail = \"invalid_api_key\"\n").await;
    harness.wait_until_idle().await;
    assert_eq!(harness.replies().await, ["Rent, unless you stay for long."]);
    assert_eq!(attempt_counts(&harness, "expert").await, [1, 2, 1], "only the call in flight is made again");
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_while_the_plan_is_presented() {
    let harness =
        ConciergeHarness::start("[[reply]]\nrole = \"concierge\"\nask = \"present\"\nhang = true\n", Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN[..2]).await;
    harness
        .send_until(MESSAGES_TO_PLAN[2], |event| matches!(event, Event::CallOpened(opened) if opened.ask == *"present"))
        .await;
    let harness = harness.restart("[[reply]]\nrole = [\"expert\", \"mapper\"]\nfail = \"invalid_api_key\"\n").await;
    harness.wait_until_idle().await;
    assert_eq!(harness.replies().await[2..], ["Good. I will work it out.".to_owned(), "Here is the plan.".to_owned()]);
    assert_eq!((harness.call_counts().await, harness.phase().await.as_str()), ([6, 2, 4], "executor"));
}

#[tokio::test(start_paused = true)]
async fn the_process_dies_and_the_timeout_of_an_answer_still_applies() {
    let hangs = "[[reply]]\nrole = \"expert\"\nmodel = \"snail\"\nhang = true\n";
    let settings = json!({"experts": ["ant", "bee", {"model": "snail", "timeout_ms": 5000}]});
    let harness = ConciergeHarness::start(hangs, settings).await;
    harness.send_until("rent or buy?", |event| matches!(event, Event::CallAnswered(_))).await;
    let harness = harness.restart(hangs).await;
    harness.wait_until_idle().await;
    assert_eq!(harness.replies().await, ["Rent, unless you stay for long."], "the wait ends in the new process");
    let ended = harness.events().await.into_iter().find_map(|event| match event {
        Event::TurnEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert_eq!(ended, Some(TurnOutcome::Done));
}
