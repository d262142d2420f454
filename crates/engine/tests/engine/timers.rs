//! Timers and phase limits that expire while a session is idle.

use std::sync::Arc;

use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowStep};
use segue_store::memory::InMemoryStoreDisk;
use segue_testkit::ClosureFlow;

use crate::harness::{
    advance_ms, cooling_flow, engine_with_flow, load_state, open_session, read_events, speaker_role, turn_outcomes,
};

#[tokio::test(start_paused = true)]
async fn a_phase_limit_expires_in_an_unused_session() {
    let (engine, _calls) = engine_with_flow(&InMemoryStoreDisk::new(), cooling_flow(10_000)).await;
    let session = open_session(&engine).await;
    advance_ms(9_000).await;
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "hot");
    advance_ms(2_000).await;
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "cold");
}

#[tokio::test(start_paused = true)]
async fn a_phase_limit_expires_after_a_restart() {
    let disk = InMemoryStoreDisk::new();
    let (engine, _calls) = engine_with_flow(&disk, cooling_flow(10_000)).await;
    let session = open_session(&engine).await;
    engine.shutdown().await;
    let (engine, _calls) = engine_with_flow(&disk, cooling_flow(10_000)).await;
    advance_ms(11_000).await;
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "cold");
    let entered = read_events(&engine, &session).await.into_iter();
    assert_eq!(entered.filter(|event| matches!(event, Event::PhaseEntered(_))).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_phase_limit_expires_in_the_middle_of_a_turn() {
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), cooling_flow(10_000)).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    advance_ms(9_000).await;
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "hot");
    advance_ms(2_000).await;
    let state = load_state(&engine, &session).await;
    assert_eq!(state.session.phases_label(), "cold");
    assert!(state.session.current_turn.is_some(), "the call goes on");
    call.answer("yes");
    advance_ms(1).await;
    assert!(load_state(&engine, &session).await.session.is_idle());
}

/// Sets a timer in every turn, and the title when it fires.
fn timer_flow() -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(speaker_role()), |_, recorded| match &recorded.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::SetTimer { name: "tea".to_owned(), after_ms: 180_000 }, FlowStep::EndTurn(TurnOutcome::Done)]
        }
        Event::TimerFired { .. } => vec![FlowStep::SetTitle("tea is ready".to_owned())],
        _ => Vec::new(),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_in_a_parked_session_and_after_a_restart() {
    let disk = InMemoryStoreDisk::new();
    let (engine, _calls) = engine_with_flow(&disk, timer_flow()).await;
    let sessions = [open_session(&engine).await, crate::harness::open_named_session(&engine, "other").await];
    for session in &sessions {
        engine.send_and_wait(session, "hello".into()).await.expect("the turn ends");
    }
    advance_ms(179_000).await;
    assert_eq!(load_state(&engine, &sessions[0]).await.session.title, "hello");
    advance_ms(2_000).await;
    assert_eq!(load_state(&engine, &sessions[0]).await.session.title, "tea is ready");
    engine.send_and_wait(&sessions[1], "once more".into()).await.expect("the turn ends");
    engine.shutdown().await;
    let (engine, _calls) = engine_with_flow(&disk, timer_flow()).await;
    advance_ms(400_000).await;
    let fired = read_events(&engine, &sessions[1]).await.into_iter();
    assert_eq!(fired.filter(|event| matches!(event, Event::TimerFired { .. })).count(), 2);
    assert_eq!(turn_outcomes(&engine, &sessions[1]).await, [TurnOutcome::Done, TurnOutcome::Done]);
}
