//! Experts that answer after their turn has ended.

use std::time::Duration;

use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::CallId;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{ConciergeHarness, MESSAGES_TO_PLAN};

/// The third expert takes 200 ms longer than everything else.
const SNAIL: &str =
    "[[reply]]\nrole = \"expert\"\nmodel = \"snail\"\nturn = 1\ndelay_ms = 200\ntext = \"Buy at once.\"\n";

fn quorum_of_two() -> Value {
    json!({"experts": ["ant", "bee", "snail"], "quorum": 2})
}

/// Returns the calls with late answers, and their texts.
async fn late_answers(harness: &ConciergeHarness) -> Vec<(CallId, String)> {
    let found = harness.events().await.into_iter().filter_map(|event| match event {
        Event::CallAnsweredLate { call, text, .. } => Some((call, text.body)),
        _ => None,
    });
    let (calls, bodies): (Vec<CallId>, Vec<_>) = found.unzip();
    let texts = harness.engine.read_texts(&harness.session, &bodies).await.expect("they are stored");
    calls.into_iter().zip(texts.iter().map(ToString::to_string)).collect()
}

async fn snail_calls(harness: &ConciergeHarness) -> Vec<CallId> {
    let calls = harness.calls("expert").await.into_iter().filter(|call| call.model == *"snail");
    calls.map(|call| call.call).collect()
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_recorded_and_not_used() {
    let harness = ConciergeHarness::start(SNAIL, quorum_of_two()).await;
    let started = Instant::now();
    let report = harness.send(MESSAGES_TO_PLAN[0]).await;
    assert_eq!((report.outcome, report.spent.answered_calls, report.spent.late_answers), (TurnOutcome::Done, 4, 0));
    assert!(started.elapsed() < Duration::from_millis(200), "the turn does not wait for the third");
    assert_eq!(harness.engine.active_session_count(), 0, "the session is parked");
    let cancelled = harness.events().await.into_iter().find_map(|event| match event {
        Event::CallCancelled { call, .. } => Some(call),
        _ => None,
    });
    let snail = snail_calls(&harness).await[0];
    assert_eq!((cancelled, late_answers(&harness).await), (Some(snail), vec![]));

    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(late_answers(&harness).await, [(snail, "Buy at once.".to_owned())]);
    let (_, state) = harness.engine.load_session(&harness.session).await.expect("it can be read");
    let ledger = &state.session.ledger;
    assert_eq!((ledger.total.answered_calls, ledger.total.late_answers), (4, 1), "it is paid for");
    assert_eq!(
        (ledger.by_model["snail"].late_answers, ledger.current_turn.late_answers),
        (1, 1),
        "in the totals of its turn"
    );
    assert!(
        ledger.total.output_tokens > report.spent.output_tokens
            && ledger.total.input_tokens > report.spent.input_tokens
    );

    // The next batch does not use it, and it is in no thread.
    harness.send_all(&MESSAGES_TO_PLAN[1..]).await;
    let mappers = harness.calls("mapper").await;
    assert_eq!(mappers.len(), 2);
    for mapper in mappers {
        let sent = harness.prompt_text(mapper.call).await;
        assert!(!sent.contains("Buy at once.") && sent.contains("## Source 2"), "{sent}");
    }
    let again = *snail_calls(&harness).await.last().expect("it was asked");
    assert!(again != snail && !harness.prompt_text(again).await.contains("Buy at once."));
    assert!(harness.facts("late_answer").await.iter().all(|fact| fact["call"] != json!(snail)));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_recorded_during_the_next_turn() {
    let slow = format!("{SNAIL}[[reply]]\nrole = \"concierge\"\nturn = 2\ndelay_ms = 1000\ntext = \"Then buy.\"\n");
    let harness = ConciergeHarness::start(&slow, quorum_of_two()).await;
    harness.send(MESSAGES_TO_PLAN[0]).await;
    let report = harness.send(MESSAGES_TO_PLAN[1]).await;
    assert_eq!(
        (report.replies, report.spent.late_answers),
        (vec!["Then buy.".to_owned()], 0),
        "the turn does not count it"
    );
    let events = harness.events().await;
    let position = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).expect("it happened");
    let late = position(&|event| matches!(event, Event::CallAnsweredLate { .. }));
    assert!(position(&|event| matches!(event, Event::TurnStarted { turn, .. } if turn.0 == 2)) < late);
    assert!(late < position(&|event| matches!(event, Event::TurnEnded { turn, .. } if turn.0 == 2)));
    let (_, state) = harness.engine.load_session(&harness.session).await.expect("it can be read");
    assert_eq!((state.session.ledger.total.late_answers, state.session.ledger.current_turn.late_answers), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_its_timeout_is_recorded_too() {
    let settings = json!({"experts": ["ant", "bee", {"model": "snail", "timeout_ms": 50}]});
    let harness = ConciergeHarness::start(SNAIL, settings).await;
    assert_eq!(harness.send(MESSAGES_TO_PLAN[0]).await.outcome, TurnOutcome::Done);
    assert_eq!(harness.facts("answer_timed_out").await.len(), 1);
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(late_answers(&harness).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_late_answer() {
    let harness = ConciergeHarness::start(SNAIL, quorum_of_two()).await;
    harness.send(MESSAGES_TO_PLAN[0]).await;
    let started = Instant::now();
    let harness = harness.restart("").await;
    assert!(started.elapsed() < Duration::from_millis(100));
    assert_eq!(harness.send(MESSAGES_TO_PLAN[1]).await.phase, "explorer");
    assert_eq!(late_answers(&harness).await, []);
}
