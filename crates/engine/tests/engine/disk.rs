//! Disks that are full, fail, or fail to say whether they did.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::TurnResult;
use segue_core::ids::SessionId;
use segue_core::prompt::{CallFailure, FailureKind};
use segue_engine::{Engine, SessionOptions};
use segue_store::memory::{AppendFault, MemoryDisk, MemoryStore};

use crate::lab::{Calls, Flaky, Trouble, ask, chat, engine, events, open, outcomes, pass, setup, state, turn};

#[tokio::test(start_paused = true)]
async fn a_message_that_finds_no_room_is_refused_and_welcome_later() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    let before = events(&engine, &session).await;
    disk.inject_fault(AppendFault::DiskFull);
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("no room").code(), "disk-full");
    disk.inject_fault(AppendFault::DiskFull);
    assert_eq!(engine.send_and_wait(&session, "hello".into()).await.expect_err("no room").code(), "disk-full");
    assert_eq!(events(&engine, &session).await, before, "nothing of it is recorded");
    assert_eq!(turn(&engine, &mut calls, &session, "hello", "yes").await.replies, ["yes"]);
    assert_eq!(state(&engine, &session).await.session.last_ids.message.0, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_no_room_is_kept_until_there_is() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let call = calls.next().await;
    (0..6).for_each(|_| disk.inject_fault(AppendFault::DiskFull));
    call.answer("worth its price");
    pass(100).await;
    let started = tokio::time::Instant::now();
    let refused = engine.send_message(&session, "are you there?".into()).await.expect_err("no room");
    assert_eq!(refused.code(), "disk-full");
    assert!(started.elapsed() < Duration::from_millis(10), "nobody is kept waiting for room");
    assert_eq!(engine.pending_write_error(&session).expect("whoever looks is told").code(), "disk-full");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.replies, report.spent.answered_calls), (vec!["worth its price".to_owned()], 1));
    assert!(engine.pending_write_error(&session).is_none());
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_written_though_the_store_failed_counts_as_written() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    disk.inject_fault(AppendFault::AfterCommit);
    let session = open(&engine).await;
    disk.inject_fault(AppendFault::AfterCommit);
    let asked = ask(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(AppendFault::AfterCommit);
    call.answer("yes");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.outcome, report.replies), (TurnResult::Done, vec!["yes".to_owned()]));
    disk.inject_fault(AppendFault::AfterCommit);
    engine.send_message(&session, "once".into()).await.expect("accepted");
    calls.next().await.answer("yes");
    pass(10).await;
    assert_eq!(state(&engine, &session).await.session.last_ids.message.0, 2, "and nothing is there twice");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_is_tried_again_if_it_was_paid_for_and_refused_if_not() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    disk.inject_fault(AppendFault::BeforeCommit);
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("it fails").code(), "store");
    let asked = ask(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(AppendFault::BeforeCommit);
    call.answer("yes");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").replies, ["yes"]);
    assert_eq!(state(&engine, &session).await.session.last_ids.message.0, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_knows_for_a_while_whether_it_was_written_and_then_they_do() {
    let disk = MemoryDisk::new();
    let (store, trouble) = Flaky::open(&disk);
    let (base, mut calls) = setup(store, chat());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open(&engine).await;
    disk.inject_fault(AppendFault::AfterCommit);
    trouble.claims_fail.store(3, Ordering::Relaxed);
    let error = engine.send_message(&session, "hello".into()).await.expect_err("it is not known");
    assert!(error.is_transient(), "{error}");
    // The message is there, and its turn begins as soon as that is known.
    calls.next().await.answer("yes");
    pass(10).await;
    let state = state(&engine, &session).await;
    assert_eq!(
        (state.session.last_ids.message.0, state.session.last_ids.turn.0, state.session.is_idle()),
        (1, 1, true)
    );
}

/// A session whose call is to be tried again in two seconds.
async fn between_tries(disk: &MemoryDisk) -> (Engine, Calls, SessionId, Arc<Trouble>) {
    let (store, trouble) = Flaky::open(disk);
    let (base, mut calls) = setup(store, chat());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let retry_after_ms = Some(2_000);
    calls.next().await.fail_with(CallFailure { retry_after_ms, ..CallFailure::new(FailureKind::RateLimit, "later") });
    pass(100).await;
    (engine, calls, session, trouble)
}

/// The same, when somebody stops the turn and nobody knows whether that was written.
async fn stopped_perhaps(fault: AppendFault) -> (Engine, Calls, SessionId) {
    let disk = MemoryDisk::new();
    let (engine, calls, session, trouble) = between_tries(&disk).await;
    disk.inject_fault(fault);
    trouble.claims_fail.store(1, Ordering::Relaxed);
    let error = engine.apply_command(&session, OperatorCommand::Cancel).await.expect_err("it is not known");
    assert!(error.is_transient(), "{error}");
    (engine, calls, session)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_perhaps_cancelled_is_not_made() {
    let (engine, mut calls, session) = stopped_perhaps(AppendFault::AfterCommit).await;
    calls.none().await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_perhaps_cancelled_is_made_once_it_is_known_that_it_was_not() {
    let (engine, mut calls, session) = stopped_perhaps(AppendFault::BeforeCommit).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    pass(10).await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_while_its_cancellation_is_being_written() {
    let (engine, mut calls, session, trouble) = between_tries(&MemoryDisk::new()).await;
    trouble.told_after_ms.store(3_000, Ordering::Relaxed);
    engine.apply_command(&session, OperatorCommand::Cancel).await.expect("it is stopped");
    calls.none().await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_finds_no_room_leaves_its_name_free() {
    let disk = MemoryDisk::new();
    let (one, _calls) = engine(&disk).await;
    let (other, _calls) = engine(&disk).await;
    let opening = || SessionOptions { session: Some("s".into()), ..SessionOptions::default() };
    disk.inject_fault(AppendFault::DiskFull);
    assert_eq!(one.open_session(&"puppet".into(), opening()).await.expect_err("no room").code(), "disk-full");
    other.open_session(&"puppet".into(), opening()).await.expect("the name is free");
}

#[tokio::test(start_paused = true)]
async fn recovery_that_cannot_read_now_is_tried_again() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let session = open(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    one.shutdown().await;
    let (store, trouble) = Flaky::open(&disk);
    trouble.claims_fail.store(2, Ordering::Relaxed);
    trouble.texts_fail.store(2, Ordering::Relaxed);
    let (base, mut calls) = setup(store, chat());
    let two = Engine::start(base).await.expect("it starts");
    let again = calls.next().await;
    assert_eq!((again.facts.attempt, again.last()), (2, "hello".to_owned()));
    again.answer("yes");
    pass(10).await;
    assert!(state(&two, &session).await.session.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_closed_ends_the_work_and_loses_nothing() {
    let disk = MemoryDisk::new();
    let store = std::sync::Arc::new(MemoryStore::open(&disk));
    let (mut base, mut calls) = setup(MemoryStore::open(&disk), chat());
    base.store = store.clone();
    let one = Engine::start(base).await.expect("it starts");
    let session = open(&one).await;
    let asked = ask(&one, &session, "hello");
    let call = calls.next().await;
    store.kill();
    call.answer("too late");
    asked.await.expect("it lives").expect_err("the store is gone");
    let (_two, mut calls) = engine(&disk).await;
    assert_eq!(calls.next().await.facts.attempt, 2);
}
