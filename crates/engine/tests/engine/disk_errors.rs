//! Full disks, failing disks, and writes with an unknown outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::TurnOutcome;
use segue_core::ids::SessionId;
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_engine::{Engine, SessionOptions};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk, InjectedAppendFault};

use crate::harness::{
    FaultyStore, InjectedFaults, ReceivedCalls, advance_ms, chat_engine, chat_flow, engine_config, load_state,
    open_session, read_events, run_turn, send_in_background, turn_outcomes,
};

#[tokio::test(start_paused = true)]
async fn a_message_is_refused_while_the_disk_is_full() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let before = read_events(&engine, &session).await;
    disk.inject_fault(InjectedAppendFault::DiskFull);
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("the disk is full").code(), "disk-full");
    disk.inject_fault(InjectedAppendFault::DiskFull);
    assert_eq!(engine.send_and_wait(&session, "hello".into()).await.expect_err("the disk is full").code(), "disk-full");
    assert_eq!(read_events(&engine, &session).await, before, "nothing of it is recorded");
    assert_eq!(run_turn(&engine, &mut calls, &session, "hello", "yes").await.replies, ["yes"]);
    assert_eq!(load_state(&engine, &session).await.session.last_ids.message.0, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_until_the_disk_has_space() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    (0..6).for_each(|_| disk.inject_fault(InjectedAppendFault::DiskFull));
    call.answer("worth its price");
    advance_ms(100).await;
    let started = tokio::time::Instant::now();
    let refused = engine.send_message(&session, "are you there?".into()).await.expect_err("the disk is full");
    assert_eq!(refused.code(), "disk-full");
    assert!(started.elapsed() < Duration::from_millis(10), "callers do not wait for disk space");
    assert_eq!(engine.pending_write_error(&session).expect("the error is reported").code(), "disk-full");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.replies, report.spent.answered_calls), (vec!["worth its price".to_owned()], 1));
    assert!(engine.pending_write_error(&session).is_none());
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_written_despite_an_error_counts() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    let session = open_session(&engine).await;
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    call.answer("yes");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.outcome, report.replies), (TurnOutcome::Done, vec!["yes".to_owned()]));
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    engine.send_message(&session, "once".into()).await.expect("accepted");
    calls.next().await.answer("yes");
    advance_ms(10).await;
    assert_eq!(load_state(&engine, &session).await.session.last_ids.message.0, 2, "nothing is recorded twice");
}

#[tokio::test(start_paused = true)]
async fn an_unwritten_answer_is_retried_and_an_unwritten_message_is_refused() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    disk.inject_fault(InjectedAppendFault::BeforeCommit);
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("it fails").code(), "store");
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(InjectedAppendFault::BeforeCommit);
    call.answer("yes");
    assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").replies, ["yes"]);
    assert_eq!(load_state(&engine, &session).await.session.last_ids.message.0, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_resolved_later() {
    let disk = InMemoryStoreDisk::new();
    let (store, faults) = FaultyStore::open(&disk);
    let (base, mut calls) = engine_config(store, chat_flow());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open_session(&engine).await;
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    faults.failing_leases.store(3, Ordering::Relaxed);
    let error = engine.send_message(&session, "hello".into()).await.expect_err("the outcome is unknown");
    assert!(error.is_transient(), "{error}");
    // The message was written, and its turn starts as soon as the engine knows it.
    calls.next().await.answer("yes");
    advance_ms(10).await;
    let state = load_state(&engine, &session).await;
    assert_eq!(
        (state.session.last_ids.message.0, state.session.last_ids.turn.0, state.session.is_idle()),
        (1, 1, true)
    );
}

/// Returns a session whose call is retried in two seconds.
async fn session_between_attempts(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls, SessionId, Arc<InjectedFaults>) {
    let (store, faults) = FaultyStore::open(disk);
    let (base, mut calls) = engine_config(store, chat_flow());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let retry_after_ms = Some(2_000);
    calls
        .next()
        .await
        .fail_with(CallFailure { retry_after_ms, ..CallFailure::new(CallFailureKind::RateLimit, "later") });
    advance_ms(100).await;
    (engine, calls, session, faults)
}

/// Returns the same, after the turn was cancelled by a commit with an unknown outcome.
async fn session_with_uncertain_cancellation(fault: InjectedAppendFault) -> (Engine, ReceivedCalls, SessionId) {
    let disk = InMemoryStoreDisk::new();
    let (engine, calls, session, faults) = session_between_attempts(&disk).await;
    disk.inject_fault(fault);
    faults.failing_leases.store(1, Ordering::Relaxed);
    let error = engine
        .apply_command(&session, OperatorCommand::Cancel { turn: None })
        .await
        .expect_err("the outcome is unknown");
    assert!(error.is_transient(), "{error}");
    (engine, calls, session)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_if_its_cancellation_was_written() {
    let (engine, mut calls, session) = session_with_uncertain_cancellation(InjectedAppendFault::AfterCommit).await;
    calls.expect_none().await;
    assert_eq!(turn_outcomes(&engine, &session).await, [TurnOutcome::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_once_its_cancellation_turns_out_unwritten() {
    let (engine, mut calls, session) = session_with_uncertain_cancellation(InjectedAppendFault::BeforeCommit).await;
    let again = calls.next().await;
    assert_eq!(again.metadata.attempt, 2);
    again.answer("yes");
    advance_ms(10).await;
    assert_eq!(turn_outcomes(&engine, &session).await, [TurnOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_while_its_cancellation_is_being_written() {
    let (engine, mut calls, session, faults) = session_between_attempts(&InMemoryStoreDisk::new()).await;
    faults.append_delay_ms.store(3_000, Ordering::Relaxed);
    engine.apply_command(&session, OperatorCommand::Cancel { turn: None }).await.expect("it is stopped");
    calls.expect_none().await;
    assert_eq!(turn_outcomes(&engine, &session).await, [TurnOutcome::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_could_not_be_written_leaves_its_name_free() {
    let disk = InMemoryStoreDisk::new();
    let (one, _calls) = chat_engine(&disk).await;
    let (other, _calls) = chat_engine(&disk).await;
    let options = || SessionOptions { session: Some("s".into()), ..SessionOptions::default() };
    disk.inject_fault(InjectedAppendFault::DiskFull);
    assert_eq!(one.open_session(&"puppet".into(), options()).await.expect_err("the disk is full").code(), "disk-full");
    other.open_session(&"puppet".into(), options()).await.expect("the name is free");
}

#[tokio::test(start_paused = true)]
async fn recovery_is_retried_while_the_store_fails() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    one.shutdown().await;
    let (store, faults) = FaultyStore::open(&disk);
    faults.failing_leases.store(2, Ordering::Relaxed);
    faults.failing_text_reads.store(2, Ordering::Relaxed);
    let (base, mut calls) = engine_config(store, chat_flow());
    let two = Engine::start(base).await.expect("it starts");
    let again = calls.next().await;
    assert_eq!((again.metadata.attempt, again.last_message()), (2, "hello".to_owned()));
    again.answer("yes");
    advance_ms(10).await;
    assert!(load_state(&two, &session).await.session.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_ends_the_work_and_loses_nothing() {
    let disk = InMemoryStoreDisk::new();
    let store = std::sync::Arc::new(InMemoryStore::open(&disk));
    let (mut base, mut calls) = engine_config(InMemoryStore::open(&disk), chat_flow());
    base.store = store.clone();
    let one = Engine::start(base).await.expect("it starts");
    let session = open_session(&one).await;
    let pending_turn = send_in_background(&one, &session, "hello");
    let call = calls.next().await;
    store.kill();
    call.answer("too late");
    pending_turn.await.expect("the task does not panic").expect_err("the store is gone");
    let (_two, mut calls) = chat_engine(&disk).await;
    assert_eq!(calls.next().await.metadata.attempt, 2);
}
