//! Moments that come while nobody asks for anything.

use std::sync::Arc;

use segue_core::event::{Event, TurnResult};
use segue_core::flow::{DynFlow, FlowStep};
use segue_store::memory::MemoryDisk;
use segue_testkit::ClosureFlow;

use crate::lab::{cooling, engine_of, events, open, outcomes, pass, speaker, state};

#[tokio::test(start_paused = true)]
async fn a_phases_time_runs_out_though_nobody_ever_used_the_session() {
    let (engine, _calls) = engine_of(&MemoryDisk::new(), cooling(10_000)).await;
    let session = open(&engine).await;
    pass(9_000).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "hot");
    pass(2_000).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "cold");
}

#[tokio::test(start_paused = true)]
async fn a_phases_time_runs_out_after_a_restart() {
    let disk = MemoryDisk::new();
    let (engine, _calls) = engine_of(&disk, cooling(10_000)).await;
    let session = open(&engine).await;
    engine.shutdown().await;
    let (engine, _calls) = engine_of(&disk, cooling(10_000)).await;
    pass(11_000).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "cold");
    let entered = events(&engine, &session).await.into_iter();
    assert_eq!(entered.filter(|event| matches!(event, Event::PhaseEntered(_))).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_phase_whose_time_runs_out_in_a_turn_ends_with_the_turn() {
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), cooling(10_000)).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    pass(60_000).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "hot", "no turn is moved under its own feet");
    call.answer("yes");
    pass(1).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "cold");
}

/// Sets a timer in every turn and speaks only when it fires.
fn patient() -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(speaker()), |_, recorded| match &recorded.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::SetTimer { name: "tea".to_owned(), after_ms: 180_000 }, FlowStep::EndTurn(TurnResult::Done)]
        }
        Event::TimerFired { .. } => vec![FlowStep::SetTitle("tea is ready".to_owned())],
        _ => Vec::new(),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_though_the_session_rests_and_though_the_process_died() {
    let disk = MemoryDisk::new();
    let (engine, _calls) = engine_of(&disk, patient()).await;
    let sessions = [open(&engine).await, crate::lab::open_as(&engine, "other").await];
    for session in &sessions {
        engine.send_and_wait(session, "hello".into()).await.expect("it has ended");
    }
    pass(179_000).await;
    assert_eq!(state(&engine, &sessions[0]).await.session.title, "hello");
    pass(2_000).await;
    assert_eq!(state(&engine, &sessions[0]).await.session.title, "tea is ready");
    engine.send_and_wait(&sessions[1], "once more".into()).await.expect("it has ended");
    engine.shutdown().await;
    let (engine, _calls) = engine_of(&disk, patient()).await;
    pass(400_000).await;
    let fired = events(&engine, &sessions[1]).await.into_iter();
    assert_eq!(fired.filter(|event| matches!(event, Event::TimerFired { .. })).count(), 2);
    assert_eq!(outcomes(&engine, &sessions[1]).await, [TurnResult::Done, TurnResult::Done]);
}
