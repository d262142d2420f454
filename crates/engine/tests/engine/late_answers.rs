//! Answers that arrive after their turn continued without them: they are recorded, and nothing waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowStep};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, SessionUpdate, TurnReport};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk, InjectedAppendFault};
use segue_testkit::ClosureFlow;

use crate::harness::{
    FaultyStore, ReceivedCall, ReceivedCalls, advance_ms, engine_config, engine_with_flow, load_state,
    open_named_session, open_session, read_events, send_in_background, speaker_role,
};

/// A flow whose turns make two calls at once and end with the first answer.
fn two_call_flow() -> Arc<dyn DynFlow> {
    let role = ClosureFlow::test_role("speaker", Scope::per_model()).visible_to_user(BlockSet::default());
    let sample = |sample| CallRequest { sample, ..CallRequest::new("speaker", "reply") };
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(sample(0)), FlowStep::Call(sample(1))],
        _ => ClosureFlow::react_as_chat(view, event),
    }))
}

async fn open_two_call_session(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls, SessionId) {
    let (engine, calls) = engine_with_flow(disk, two_call_flow()).await;
    let session = open_session(&engine).await;
    (engine, calls, session)
}

/// Runs a turn that ends without its second call. Returns its report and that call.
async fn run_turn_without_second(
    engine: &Engine,
    calls: &mut ReceivedCalls,
    session: &SessionId,
) -> (TurnReport, ReceivedCall) {
    let pending_turn = send_in_background(engine, session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    first.answer("enough");
    (pending_turn.await.expect("the task does not panic").expect("it is answered"), second)
}

/// Returns the calls with late answers, and their texts.
async fn late_answers(engine: &Engine, session: &SessionId) -> Vec<(u32, String)> {
    let found = read_events(engine, session).await.into_iter().filter_map(|event| match event {
        Event::CallAnsweredLate { call, text, .. } => Some((call.0, text.body)),
        _ => None,
    });
    let (calls, bodies): (Vec<u32>, Vec<_>) = found.unzip();
    let texts = engine.read_texts(session, &bodies).await.expect("they are stored");
    calls.into_iter().zip(texts.iter().map(ToString::to_string)).collect()
}

fn late_answer(call: u32, text: &str) -> Vec<(u32, String)> {
    vec![(call, text.to_owned())]
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_to_a_parked_session_is_recorded_and_counted() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (report, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    assert_eq!((report.outcome, report.spent.answered_calls, report.spent.late_answers), (TurnOutcome::Done, 1, 0));
    assert_eq!(report.spent.unknown_attempts, 1, "it may be billed, which is not known yet");
    advance_ms(10_000).await;
    assert_eq!(engine.active_session_count(), 0, "the session is parked although a call is in flight");
    second.answer("sorry for the delay");
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &session).await, late_answer(2, "sorry for the delay"));
    let ledger = load_state(&engine, &session).await.session.ledger;
    assert_eq!((ledger.total.answered_calls, ledger.total.late_answers, ledger.current_turn.late_answers), (1, 1, 1));
    assert_eq!((ledger.total.unknown_attempts, ledger.current_turn.unknown_attempts), (0, 0), "now it is known");
    assert!(ledger.total.output_tokens > report.spent.output_tokens);
    assert_eq!(engine.active_session_count(), 0, "the session is parked again");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_during_the_next_turn_is_recorded_separately() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    let next = send_in_background(&engine, &session, "and now?");
    let (third, fourth) = (calls.next().await, calls.next().await);
    second.answer("about the first");
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &session).await, late_answer(2, "about the first"));
    fourth.answer("to the second");
    let report = next.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.replies, report.spent.late_answers), (vec!["to the second".to_owned()], 0));
    third.answer("me too");
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &session).await.len(), 2);
    let (_, again) = run_turn_without_second(&engine, &mut calls, &session).await;
    let shown: Vec<String> =
        again.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["and now?", "to the second", "well?"], "the late answer is in no thread");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_aborted_at_once() {
    for stop in [OperatorCommand::Cancel { turn: None }, OperatorCommand::Close] {
        let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
        engine.send_message(&session, "well?".into()).await.expect("accepted");
        let (first, second) = (calls.next().await, calls.next().await);
        engine.apply_command(&session, stop).await.expect("it is stopped");
        first.wait_until_dropped().await;
        second.wait_until_dropped().await;
        assert_eq!(first.at.elapsed(), Duration::ZERO);
        assert_eq!(load_state(&engine, &session).await.session.ledger.total.unknown_attempts, 2, "both may be billed");
    }
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it is closed");
    second.wait_until_dropped().await;
    assert_eq!(second.at.elapsed(), Duration::ZERO, "a closed session waits for no answer");
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_abandoned_calls() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    engine.shutdown().await;
    assert_eq!(second.at.elapsed(), Duration::ZERO);
    second.wait_until_dropped().await;
    advance_ms(1_000).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_during_shutdown_leaves_no_call() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let pending_turn = send_in_background(&engine, &session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    let stopping = engine.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    advance_ms(100).await;
    first.answer("enough");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    second.wait_until_dropped().await;
    shutdown.await.expect("it ends");
    assert!(second.at.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_session_aborts_its_abandoned_calls() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls, session) = open_two_call_session(&disk).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    engine.delete_session(&session).await.expect("it is deleted");
    second.wait_until_dropped().await;
    assert!(!disk.contains_text("enough"));
    let again = open_session(&engine).await;
    let (report, another) = run_turn_without_second(&engine, &mut calls, &again).await;
    assert_eq!(report.turn.0, 1);
    another.answer("of the new one");
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &again).await, late_answer(2, "of the new one"));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_delivered_to_another_session_of_the_same_name() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls, session) = open_two_call_session(&disk).await;
    let (other, mut calls_other) = engine_with_flow(&disk, two_call_flow()).await;
    let (_, second) = run_turn_without_second(&one, &mut calls, &session).await;
    advance_ms(2_000).await;
    other.delete_session(&session).await.expect("it is deleted");
    open_session(&other).await;
    run_turn_without_second(&other, &mut calls_other, &session).await;
    advance_ms(2_000).await;
    second.answer("a secret");
    advance_ms(10).await;
    assert_eq!(late_answers(&other, &session).await, []);
    assert!(!disk.contains_text("a secret"));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_recorded_only_if_no_other_process_holds_the_session() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls, session) = open_two_call_session(&disk).await;
    let (other, mut calls_other) = engine_with_flow(&disk, two_call_flow()).await;
    let (_, second) = run_turn_without_second(&one, &mut calls, &session).await;
    let (_, fourth) = run_turn_without_second(&one, &mut calls, &session).await;
    advance_ms(2_000).await;
    let pending_turn = send_in_background(&other, &session, "and you?");
    let (fifth, _sixth) = (calls_other.next().await, calls_other.next().await);
    second.answer("while another process has it");
    advance_ms(10).await;
    assert_eq!(late_answers(&one, &session).await, []);
    fifth.answer("fine");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    advance_ms(2_000).await;
    fourth.answer("after it was released");
    advance_ms(10).await;
    assert_eq!(late_answers(&one, &session).await, late_answer(4, "after it was released"));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_has_not_started_is_not_made() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let pending_turn = send_in_background(&engine, &session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    second.fail(CallFailureKind::Overload);
    advance_ms(1).await;
    first.answer("enough");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_that_fails_is_not_retried_and_its_cost_is_counted() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    let (_, fourth) = run_turn_without_second(&engine, &mut calls, &session).await;
    let before = read_events(&engine, &session).await.len();
    second.fail(CallFailureKind::Overload);
    advance_ms(10).await;
    assert_eq!(read_events(&engine, &session).await.len(), before + 1, "that it cost nothing is recorded");
    fourth.send_text("I was going");
    fourth.fail_with(CallFailure::new(CallFailureKind::Network, "cut off").with_usage(None));
    advance_ms(10).await;
    let events = read_events(&engine, &session).await;
    assert!(matches!(events.last(), Some(Event::CallFailed { call: CallId(4), .. })), "{:?}", events.last());
    let ledger = load_state(&engine, &session).await.session.ledger;
    assert_eq!(
        (ledger.current_turn.failed_attempts, ledger.total.failed_attempts, ledger.total.unknown_attempts),
        (1, 2, 0)
    );
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_times_out() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    second.wait_until_dropped().await;
    assert_eq!(second.at.elapsed(), Duration::from_millis(speaker_role().timeout_ms));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_aborted_if_another_call_needs_its_slot() {
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), two_call_flow());
    let limits = ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("controlled".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    advance_ms(500).await;
    let pending_turn = send_in_background(&engine, &session, "and now?");
    let third = calls.next().await;
    second.wait_until_dropped().await;
    let fourth = calls.next().await;
    assert_eq!((third.at.elapsed(), fourth.at.elapsed()), (Duration::ZERO, Duration::ZERO), "they do not wait");
    third.answer("yes");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    fourth.answer("me too");
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &session).await, late_answer(4, "me too"));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_abandoned_while_another_waits_for_its_model() {
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), two_call_flow());
    let limits = ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("controlled".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let (one, other) = (open_session(&engine).await, crate::harness::open_named_session(&engine, "other").await);
    let pending_turn = send_in_background(&engine, &one, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    let queued_turn = send_in_background(&engine, &other, "and I?");
    advance_ms(10).await;
    first.answer("enough");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
    second.wait_until_dropped().await;
    let (third, _fourth) = (calls.next().await, calls.next().await);
    third.answer("you too");
    assert_eq!(queued_turn.await.expect("the task does not panic").expect("it is answered").replies, ["you too"]);
}

#[tokio::test(start_paused = true)]
async fn abandoned_calls_are_limited() {
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), two_call_flow());
    let limits = ModelCallLimits { concurrent_calls_max: 1_000, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("controlled".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    let mut abandoned = Vec::new();
    for _ in 0..=SESSION_LIMITS.abandoned_calls_max {
        abandoned.push(run_turn_without_second(&engine, &mut calls, &session).await.1);
    }
    abandoned[0].wait_until_dropped().await;
    assert_eq!(abandoned[0].at.elapsed(), Duration::ZERO);
    abandoned.into_iter().skip(1).for_each(|call| call.answer("at last"));
    advance_ms(10).await;
    assert_eq!(late_answers(&engine, &session).await.len(), SESSION_LIMITS.abandoned_calls_max);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_retried_until_the_store_accepts_it() {
    let disk = InMemoryStoreDisk::new();
    let (store, faults) = FaultyStore::open(&disk);
    let (base, mut calls) = engine_config(store, two_call_flow());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open_session(&engine).await;
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    advance_ms(2_000).await;
    faults.failing_leases.store(3, std::sync::atomic::Ordering::Relaxed);
    (0..3).for_each(|_| disk.inject_fault(InjectedAppendFault::DiskFull));
    second.answer("after all");
    advance_ms(20_000).await;
    assert_eq!(late_answers(&engine, &session).await, late_answer(2, "after all"), "once, and not lost");
}

#[tokio::test(start_paused = true)]
async fn text_of_an_abandoned_call_is_not_published() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let mut subscription = engine.subscribe(&session, Seq(0)).await.expect("it is there");
    let (_, second) = run_turn_without_second(&engine, &mut calls, &session).await;
    second.send_text("you cannot ");
    advance_ms(10).await;
    second.answer("hear me");
    loop {
        match subscription.next_update().await.expect("readable") {
            SessionUpdate::TextDelta { call, .. } => assert_eq!(call, CallId(1)),
            SessionUpdate::Event(event) if matches!(event.event, Event::CallAnsweredLate { .. }) => break,
            SessionUpdate::Event(_) | SessionUpdate::ToolProgress { .. } => {}
        }
    }
    assert_eq!(late_answers(&engine, &session).await, late_answer(2, "you cannot hear me"));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_abandons_no_calls() {
    let (engine, mut calls, session) = open_two_call_session(&InMemoryStoreDisk::new()).await;
    let other = open_named_session(&engine, "other").await;
    engine.send_message(&other, "well?".into()).await.expect("accepted");
    let _keep_it_active = (calls.next().await, calls.next().await);
    engine.send_message(&session, "well?".into()).await.expect("accepted");
    let (first, second) = (calls.next().await, calls.next().await);
    let stopping = engine.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    advance_ms(100).await;
    first.answer("enough");
    second.wait_until_dropped().await;
    assert_eq!(second.at.elapsed(), Duration::from_millis(100), "at once");
    shutdown.await.expect("it ends");
}
