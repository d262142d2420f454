//! Sessions whose task panics, and the resumption of many sessions.

use std::sync::atomic::Ordering;

use segue_core::flow::UnknownOutcomePolicy;
use segue_engine::Engine;
use segue_engine::limits::CONCURRENT_RESUMES_MAX;
use segue_store::memory::InMemoryStoreDisk;

use crate::harness::{
    FaultyStore, advance_ms, chat_with_role, engine_config, engine_with_flow, open_named_session, open_session,
    run_turn, send_in_background, speaker_role, turn_outcomes,
};

fn repeating_chat() -> std::sync::Arc<dyn segue_core::flow::DynFlow> {
    let mut speaker = speaker_role();
    speaker.unknown_outcome = UnknownOutcomePolicy::Retry;
    chat_with_role(speaker)
}

#[tokio::test(start_paused = true)]
async fn session_whose_task_panics_is_resumed() {
    let (store, faults) = FaultyStore::open(&InMemoryStoreDisk::new());
    let (config, mut calls) = engine_config(store, repeating_chat());
    let engine = Engine::start(config).await.expect("it starts");
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    faults.panicking_appends.store(1, Ordering::Relaxed);
    call.answer("lost");
    let error = pending_turn.await.expect("the caller does not panic").expect_err("its session stopped");
    assert_eq!(error.code(), "stopped");
    assert!(!engine.is_session_active(&session), "a session without a task is not active");
    calls.next().await.answer("recorded");
    advance_ms(10).await;
    assert_eq!(turn_outcomes(&engine, &session).await.len(), 1, "the turn was resumed without another message");

    faults.panicking_appends.store(1, Ordering::Relaxed);
    let error = engine.send_message(&session, "again".into()).await.expect_err("its session stopped");
    assert_eq!(error.code(), "stopped");
    assert_eq!(run_turn(&engine, &mut calls, &session, "once more", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn pending_sessions_are_resumed_a_bounded_number_at_a_time() {
    const SESSIONS: usize = 2 * CONCURRENT_RESUMES_MAX;
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = engine_with_flow(&disk, repeating_chat()).await;
    for number in 0..SESSIONS {
        let session = open_named_session(&one, &format!("s{number}")).await;
        one.send_message(&session, "hello".into()).await.expect("accepted");
        std::mem::forget(calls.next().await);
    }
    one.shutdown().await;

    let (store, faults) = FaultyStore::open(&disk);
    faults.lease_delay_ms.store(10, Ordering::Relaxed);
    let (config, mut calls) = engine_config(store, repeating_chat());
    let two = Engine::start(config).await.expect("it starts");
    for _ in 0..SESSIONS {
        // None is answered: sessions that wait for a model do not keep others from being resumed.
        std::mem::forget(calls.next().await);
    }
    let at_once = faults.leases_in_progress_max.load(Ordering::Relaxed);
    assert_eq!(at_once, CONCURRENT_RESUMES_MAX as u64);
    assert_eq!(two.active_session_count(), SESSIONS);
}
