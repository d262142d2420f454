//! Sessions that are deleted and engines that shut down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::event::{CallRequest, Event};
use segue_core::flow::FlowStep;
use segue_core::scope::Scope;
use segue_engine::{Engine, Error};
use segue_store::memory::{AppendFault, MemoryDisk};
use segue_testkit::ClosureFlow;

use crate::lab::{Flaky, ask, chat, engine, engine_of, events, open, pass, setup, turn};

#[tokio::test(start_paused = true)]
async fn deleting_a_session_stops_its_call_and_erases_every_word() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    turn(&engine, &mut calls, &session, "a secret", "I keep it").await;
    let waits = ask(&engine, &session, "another");
    let call = calls.next().await;
    engine.delete_session(&session).await.expect("it is deleted");
    call.dropped().await;
    assert!(matches!(waits.await.expect("it lives"), Err(Error::Stopped(_))));
    assert!(!disk.contains_text("secret") && !disk.contains_text("another"), "nothing of it is left");
    assert_eq!(engine.send_message(&session, "hello".into()).await.expect_err("it is gone").code(), "no-such-session");
    let again = open(&engine).await;
    assert_eq!(turn(&engine, &mut calls, &again, "hello", "yes").await.turn.0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_keep_a_session_from_being_deleted() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    engine.send_message(&session, "a secret".into()).await.expect("accepted");
    let call = calls.next().await;
    (0..1_000).for_each(|_| disk.inject_fault(AppendFault::DiskFull));
    call.answer("which is not written");
    pass(100).await;
    engine.delete_session(&session).await.expect("it is deleted");
    assert!(!disk.contains_text("secret"));
}

#[tokio::test(start_paused = true)]
async fn shutting_down_leaves_a_running_turn_to_recovery() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let session = open(&one).await;
    let waits = ask(&one, &session, "hello");
    let call = calls.next().await;
    one.shutdown().await;
    call.dropped().await;
    assert!(matches!(waits.await.expect("it lives"), Err(Error::ShuttingDown)));
    let (two, mut calls) = engine(&disk).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    let unknown =
        events(&two, &session).await.into_iter().filter(|event| matches!(event, Event::CallOutcomeUnknown { .. }));
    assert_eq!(unknown.count(), 1, "it may have been billed, and the journal says so");
    again.answer("yes");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_waits_a_little_for_a_turn_that_is_about_to_end() {
    let disk = MemoryDisk::new();
    let (engine, mut calls) = engine(&disk).await;
    let session = open(&engine).await;
    let waits = ask(&engine, &session, "hello");
    let call = calls.next().await;
    let stopping = engine.clone();
    let started = tokio::time::Instant::now();
    let shutdown = tokio::spawn(async move { stopping.shutdown().await });
    pass(1_000).await;
    let refused = engine.send_message(&session, "one more".into()).await.expect_err("it is stopping");
    assert!(matches!(refused, Error::ShuttingDown));
    call.answer("yes");
    assert_eq!(waits.await.expect("it lives").expect("it is answered").replies, ["yes"]);
    shutdown.await.expect("it ends");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_shut_down_has_no_task_left() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    engine.shutdown().await;
    pass(1_000).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_records_an_answer_that_waits_behind_a_slow_commit() {
    let disk = MemoryDisk::new();
    let (store, trouble) = Flaky::open(&disk);
    let role = ClosureFlow::test_role("speaker", Scope::per_model());
    let sample = |sample| CallRequest { sample, ..CallRequest::new("speaker", "reply") };
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(role), move |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(sample(0)), FlowStep::Call(sample(1))],
        _ => Vec::new(),
    });
    let (config, mut calls) = setup(store, Arc::new(flow));
    let engine = Engine::start(config).await.expect("the engine starts");
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let (first, second) = (calls.next().await, calls.next().await);
    // The first answer is being written when the engine's patience with running turns ends.
    trouble.told_after_ms.store(5_500, Ordering::Relaxed);
    first.answer("one");
    pass(1).await;
    trouble.told_after_ms.store(0, Ordering::Relaxed);
    second.answer("two");
    engine.shutdown().await;
    let (reader, _) = engine_of(&disk, chat()).await;
    let answered = events(&reader, &session).await.into_iter().filter(|event| matches!(event, Event::CallAnswered(_)));
    assert_eq!(answered.count(), 2, "both answers arrived and were paid for");
}
