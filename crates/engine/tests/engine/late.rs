//! Answers that come when their turn has ended without them: recorded whenever they come, and waited for by nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnResult};
use segue_core::flow::{DynFlow, FlowStep};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::limits::ABANDONED_CALLS_MAX;
use segue_core::prompt::{CallFailure, FailureKind};
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;
use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig, SessionUpdate, TurnReport};
use segue_store::memory::{AppendFault, MemoryDisk, MemoryStore};
use segue_testkit::ClosureFlow;

use crate::lab::{Asked, Calls, Flaky, ask, engine_of, events, open, open_as, pass, setup, speaker, state};

/// Each turn asks two at once, and the first answer ends it.
fn pair() -> Arc<dyn DynFlow> {
    let role = ClosureFlow::test_role("speaker", Scope::per_model()).visible_to_user(BlockSet::new());
    let sample = |sample| CallRequest { sample, ..CallRequest::new("speaker", "reply") };
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(sample(0)), FlowStep::Call(sample(1))],
        _ => ClosureFlow::react_as_chat(view, event),
    }))
}

async fn pairs(disk: &MemoryDisk) -> (Engine, Calls, SessionId) {
    let (engine, calls) = engine_of(disk, pair()).await;
    let session = open(&engine).await;
    (engine, calls, session)
}

/// A turn that goes on without the second of the two, and that one.
async fn turn_without(engine: &Engine, calls: &mut Calls, session: &SessionId) -> (TurnReport, Asked) {
    let asked = ask(engine, session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    first.answer("enough");
    (asked.await.expect("it lives").expect("it is answered"), second)
}

/// The calls whose answers are recorded as late, with what they say.
async fn late(engine: &Engine, session: &SessionId) -> Vec<(u32, String)> {
    let found = events(engine, session).await.into_iter().filter_map(|event| match event {
        Event::CallAnsweredLate { call, text, .. } => Some((call.0, text.body)),
        _ => None,
    });
    let (calls, bodies): (Vec<u32>, Vec<_>) = found.unzip();
    let texts = engine.read_texts(session, &bodies).await.expect("they are kept");
    calls.into_iter().zip(texts.iter().map(ToString::to_string)).collect()
}

fn said(call: u32, text: &str) -> Vec<(u32, String)> {
    vec![(call, text.to_owned())]
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_when_its_session_rests_is_recorded_and_paid_for() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (report, second) = turn_without(&engine, &mut calls, &session).await;
    assert_eq!((report.outcome, report.spent.answered_calls, report.spent.late_answers), (TurnResult::Done, 1, 0));
    assert_eq!(report.spent.unknown_attempts, 1, "it may be billed, and nobody knows yet");
    pass(10_000).await;
    assert_eq!(engine.active_session_count(), 0, "the session rests, whatever is still out");
    second.answer("sorry for the delay");
    pass(10).await;
    assert_eq!(late(&engine, &session).await, said(2, "sorry for the delay"));
    let ledger = state(&engine, &session).await.session.ledger;
    assert_eq!((ledger.total.answered_calls, ledger.total.late_answers, ledger.current_turn.late_answers), (1, 1, 1));
    assert_eq!((ledger.total.unknown_attempts, ledger.current_turn.unknown_attempts), (0, 0), "now it is known");
    assert!(ledger.total.output_tokens > report.spent.output_tokens);
    assert_eq!(engine.active_session_count(), 0, "and rests again");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_in_the_next_turn_is_recorded_and_is_none_of_it() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    let next = ask(&engine, &session, "and now?");
    let (third, fourth) = (calls.next().await, calls.next().await);
    second.answer("about the first");
    pass(10).await;
    assert_eq!(late(&engine, &session).await, said(2, "about the first"));
    fourth.answer("to the second");
    let report = next.await.expect("it lives").expect("it is answered");
    assert_eq!((report.replies, report.spent.late_answers), (vec!["to the second".to_owned()], 0));
    third.answer("me too");
    pass(10).await;
    assert_eq!(late(&engine, &session).await.len(), 2);
    let (_, again) = turn_without(&engine, &mut calls, &session).await;
    let shown: Vec<String> =
        again.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["and now?", "to the second", "well?"], "what came too late is remembered by nobody");
}

#[tokio::test(start_paused = true)]
async fn what_the_user_stops_is_stopped_at_once() {
    for stop in [OperatorCommand::Cancel, OperatorCommand::Close] {
        let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
        engine.send_message(&session, "well?".into()).await.expect("accepted");
        let (first, second) = (calls.next().await, calls.next().await);
        engine.apply_command(&session, stop).await.expect("it is stopped");
        first.dropped().await;
        second.dropped().await;
        assert_eq!(first.at.elapsed(), Duration::ZERO);
        assert_eq!(state(&engine, &session).await.session.ledger.total.unknown_attempts, 2, "both may be billed");
    }
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it is closed");
    second.dropped().await;
    assert_eq!(second.at.elapsed(), Duration::ZERO, "nothing is waited for in a closed session");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_does_not_wait_for_it() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    engine.shutdown().await;
    assert_eq!(second.at.elapsed(), Duration::ZERO);
    second.dropped().await;
    pass(1_000).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_while_the_engine_shuts_down_leaves_none() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let asked = ask(&engine, &session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    let stopping = engine.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    pass(100).await;
    first.answer("enough");
    asked.await.expect("it lives").expect("it is answered");
    second.dropped().await;
    shutdown.await.expect("it ends");
    assert!(second.at.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_deleted_takes_it_along() {
    let disk = MemoryDisk::new();
    let (engine, mut calls, session) = pairs(&disk).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    engine.delete_session(&session).await.expect("it is deleted");
    second.dropped().await;
    assert!(!disk.contains_text("enough"));
    let again = open(&engine).await;
    let (report, another) = turn_without(&engine, &mut calls, &again).await;
    assert_eq!(report.turn.0, 1);
    another.answer("of the new one");
    pass(10).await;
    assert_eq!(late(&engine, &again).await, said(2, "of the new one"));
}

#[tokio::test(start_paused = true)]
async fn another_session_of_the_same_name_is_not_given_what_the_old_one_asked_for() {
    let disk = MemoryDisk::new();
    let (one, mut calls, session) = pairs(&disk).await;
    let (other, mut calls_other) = engine_of(&disk, pair()).await;
    let (_, second) = turn_without(&one, &mut calls, &session).await;
    pass(2_000).await;
    other.delete_session(&session).await.expect("it is deleted");
    open(&other).await;
    turn_without(&other, &mut calls_other, &session).await;
    pass(2_000).await;
    second.answer("a secret");
    pass(10).await;
    assert_eq!(late(&other, &session).await, []);
    assert!(!disk.contains_text("a secret"));
}

#[tokio::test(start_paused = true)]
async fn what_another_process_works_on_is_left_alone_and_what_it_gave_back_is_not() {
    let disk = MemoryDisk::new();
    let (one, mut calls, session) = pairs(&disk).await;
    let (other, mut calls_other) = engine_of(&disk, pair()).await;
    let (_, second) = turn_without(&one, &mut calls, &session).await;
    let (_, fourth) = turn_without(&one, &mut calls, &session).await;
    pass(2_000).await;
    let asked = ask(&other, &session, "and you?");
    let (fifth, _sixth) = (calls_other.next().await, calls_other.next().await);
    second.answer("while it is theirs");
    pass(10).await;
    assert_eq!(late(&one, &session).await, []);
    fifth.answer("fine");
    asked.await.expect("it lives").expect("it is answered");
    pass(2_000).await;
    fourth.answer("when it is nobody's");
    pass(10).await;
    assert_eq!(late(&one, &session).await, said(4, "when it is nobody's"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_being_made_is_not_made_any_more() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let asked = ask(&engine, &session, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    second.fail(FailureKind::Overload);
    pass(1).await;
    first.answer("enough");
    asked.await.expect("it lives").expect("it is answered");
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_not_tried_again_and_counts_for_what_it_took() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    let (_, fourth) = turn_without(&engine, &mut calls, &session).await;
    let before = events(&engine, &session).await.len();
    second.fail(FailureKind::Overload);
    pass(10).await;
    assert_eq!(events(&engine, &session).await.len(), before + 1, "that it took nothing is worth knowing");
    fourth.say("I was going");
    fourth.fail_with(CallFailure::new(FailureKind::Network, "cut off").with_usage(None));
    pass(10).await;
    let events = events(&engine, &session).await;
    assert!(matches!(events.last(), Some(Event::CallFailed { call: CallId(4), .. })), "{:?}", events.last());
    let ledger = state(&engine, &session).await.session.ledger;
    assert_eq!(
        (ledger.current_turn.failed_attempts, ledger.total.failed_attempts, ledger.total.unknown_attempts),
        (1, 2, 0)
    );
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_where_its_model_stays_silent() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    second.dropped().await;
    assert_eq!(second.at.elapsed(), Duration::from_millis(speaker().timeout_ms));
}

#[tokio::test(start_paused = true)]
async fn it_gives_way_to_a_call_that_is_wanted() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), pair());
    let limits = ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    pass(500).await;
    let asked = ask(&engine, &session, "and now?");
    let third = calls.next().await;
    second.dropped().await;
    let fourth = calls.next().await;
    assert_eq!((third.at.elapsed(), fourth.at.elapsed()), (Duration::ZERO, Duration::ZERO), "nobody waits for it");
    third.answer("yes");
    asked.await.expect("it lives").expect("it is answered");
    fourth.answer("me too");
    pass(10).await;
    assert_eq!(late(&engine, &session).await, said(4, "me too"));
}

#[tokio::test(start_paused = true)]
async fn it_is_not_let_go_where_somebody_waits_for_its_model() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), pair());
    let limits = ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let (one, other) = (open(&engine).await, crate::lab::open_as(&engine, "other").await);
    let asked = ask(&engine, &one, "well?");
    let (first, second) = (calls.next().await, calls.next().await);
    let waits = ask(&engine, &other, "and I?");
    pass(10).await;
    first.answer("enough");
    asked.await.expect("it lives").expect("it is answered");
    second.dropped().await;
    let (third, _fourth) = (calls.next().await, calls.next().await);
    third.answer("you too");
    assert_eq!(waits.await.expect("it lives").expect("it is answered").replies, ["you too"]);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_of_them_than_the_session_remembers() {
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), pair());
    let limits = ModelCallLimits { concurrent_calls_max: 1_000, ..ModelCallLimits::default() };
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    let engine = Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    let mut out = Vec::new();
    for _ in 0..=ABANDONED_CALLS_MAX {
        out.push(turn_without(&engine, &mut calls, &session).await.1);
    }
    out[0].dropped().await;
    assert_eq!(out[0].at.elapsed(), Duration::ZERO);
    out.into_iter().skip(1).for_each(|call| call.answer("at last"));
    pass(10).await;
    assert_eq!(late(&engine, &session).await.len(), ABANDONED_CALLS_MAX);
}

#[tokio::test(start_paused = true)]
async fn it_is_offered_to_a_store_that_fails_until_it_is_taken() {
    let disk = MemoryDisk::new();
    let (store, trouble) = Flaky::open(&disk);
    let (base, mut calls) = setup(store, pair());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open(&engine).await;
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    pass(2_000).await;
    trouble.claims_fail.store(3, std::sync::atomic::Ordering::Relaxed);
    (0..3).for_each(|_| disk.inject_fault(AppendFault::DiskFull));
    second.answer("after all");
    pass(20_000).await;
    assert_eq!(late(&engine, &session).await, said(2, "after all"), "once, and not lost");
}

#[tokio::test(start_paused = true)]
async fn its_words_are_not_heard_any_more() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let mut listener = engine.subscribe(&session, Seq(0)).await.expect("it is there");
    let (_, second) = turn_without(&engine, &mut calls, &session).await;
    second.say("you cannot ");
    pass(10).await;
    second.answer("hear me");
    loop {
        match listener.next_update().await.expect("it goes on") {
            SessionUpdate::TextDelta { call, .. } => assert_eq!(call, CallId(1)),
            SessionUpdate::Event(event) if matches!(event.event, Event::CallAnsweredLate { .. }) => break,
            SessionUpdate::Event(_) => {}
        }
    }
    assert_eq!(late(&engine, &session).await, said(2, "you cannot hear me"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_lets_no_call_go_on_that_it_would_not_record() {
    let (engine, mut calls, session) = pairs(&MemoryDisk::new()).await;
    let other = open_as(&engine, "other").await;
    engine.send_message(&other, "well?".into()).await.expect("accepted");
    let _keeps_it_at_work = (calls.next().await, calls.next().await);
    engine.send_message(&session, "well?".into()).await.expect("accepted");
    let (first, second) = (calls.next().await, calls.next().await);
    let stopping = engine.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    pass(100).await;
    first.answer("enough");
    second.dropped().await;
    assert_eq!(second.at.elapsed(), Duration::from_millis(100), "at once");
    shutdown.await.expect("it ends");
}
