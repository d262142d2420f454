//! Deleting sessions and shutting engines down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::event::{CallRequest, Event};
use segue_core::flow::FlowStep;
use segue_core::scope::Scope;
use segue_engine::{Engine, Error};
use segue_store::memory::{InMemoryStoreDisk, InjectedAppendFault};
use segue_testkit::ClosureFlow;

use crate::harness::{
    FaultyStore, advance_ms, chat_engine, chat_flow, engine_config, engine_with_flow, open_session, read_events,
    run_turn, send_in_background,
};

#[tokio::test(start_paused = true)]
async fn deleting_a_session_aborts_its_call_and_erases_its_texts() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "a secret", "I keep it").await;
    let queued_turn = send_in_background(&engine, &session, "another");
    let call = calls.next().await;
    engine.delete_session(&session).await.expect("it is deleted");
    call.wait_until_dropped().await;
    assert!(matches!(queued_turn.await.expect("the task does not panic"), Err(Error::SessionDeleted(_))));
    assert!(!disk.contains_text("secret") && !disk.contains_text("another"), "nothing of it is left");
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("it is gone").code(), "no-such-session");
    let again = open_session(&engine).await;
    assert_eq!(run_turn(&engine, &mut calls, &again, "hello", "yes").await.turn.0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_can_be_deleted_when_the_disk_is_full() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "a secret".into()).await.expect("accepted");
    let call = calls.next().await;
    (0..1_000).for_each(|_| disk.inject_fault(InjectedAppendFault::DiskFull));
    call.answer("which is not written");
    advance_ms(100).await;
    engine.delete_session(&session).await.expect("it is deleted");
    assert!(!disk.contains_text("secret"));
}

#[tokio::test(start_paused = true)]
async fn shutdown_leaves_a_running_turn_to_recovery() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    let queued_turn = send_in_background(&one, &session, "hello");
    let call = calls.next().await;
    one.shutdown().await;
    call.wait_until_dropped().await;
    assert!(matches!(queued_turn.await.expect("the task does not panic"), Err(Error::ShuttingDown)));
    let (two, mut calls) = chat_engine(&disk).await;
    let again = calls.next().await;
    assert_eq!(again.metadata.attempt, 2);
    let unknown =
        read_events(&two, &session).await.into_iter().filter(|event| matches!(event, Event::CallOutcomeUnknown { .. }));
    assert_eq!(unknown.count(), 1, "it may have been billed, which is recorded");
    again.answer("yes");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_briefly_for_running_turns() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let queued_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    let stopping = engine.clone();
    let started = tokio::time::Instant::now();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    advance_ms(1_000).await;
    let refused = engine.send_message(&session, "one more".into()).await.expect_err("it is stopping");
    assert!(matches!(refused, Error::ShuttingDown));
    call.answer("yes");
    assert_eq!(queued_turn.await.expect("the task does not panic").expect("it is answered").replies, ["yes"]);
    shutdown.await.expect("it ends");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn an_engine_has_no_tasks_after_shutdown() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    engine.shutdown().await;
    advance_ms(1_000).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_records_an_answer_that_waits_behind_a_slow_commit() {
    let disk = InMemoryStoreDisk::new();
    let (store, faults) = FaultyStore::open(&disk);
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    let sample = |sample| CallRequest { sample, ..CallRequest::new("speaker", "reply") };
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(role), move |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(sample(0)), FlowStep::Call(sample(1))],
        _ => Vec::new(),
    });
    let (config, mut calls) = engine_config(store, Arc::new(flow));
    let engine = Engine::start(config).await.expect("the engine starts");
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let (first, second) = (calls.next().await, calls.next().await);
    // The first answer is being written when the engine's patience with running turns ends.
    faults.append_delay_ms.store(5_500, Ordering::Relaxed);
    first.answer("one");
    advance_ms(1).await;
    faults.append_delay_ms.store(0, Ordering::Relaxed);
    second.answer("two");
    engine.shutdown().await;
    let (reader, _) = engine_with_flow(&disk, chat_flow()).await;
    let answered =
        read_events(&reader, &session).await.into_iter().filter(|event| matches!(event, Event::CallAnswered(_)));
    assert_eq!(answered.count(), 2, "both answers arrived and were paid for");
}
