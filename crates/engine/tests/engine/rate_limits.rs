//! Limits on the calls to a model.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use crate::harness::{
    ReceivedCalls, advance_ms, chat_flow, chat_with_role, engine_config, open_named_session, speaker_role,
};

async fn engine_with(limits: ModelCallLimits, timeout_ms: Option<u64>) -> (Engine, ReceivedCalls) {
    let flow = match timeout_ms {
        Some(timeout_ms) => {
            let mut role = speaker_role();
            role.timeout_ms = timeout_ms;
            chat_with_role(role)
        }
        None => chat_flow(),
    };
    let (base, calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), flow);
    let model_limits = BTreeMap::from([("controlled".into(), limits)]);
    (Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited_across_sessions() {
    let (engine, mut calls) =
        engine_with(ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() }, None).await;
    for name in ["a", "b", "c"] {
        let session = open_named_session(&engine, name).await;
        engine.send_message(&session, "hello".into()).await.expect("accepted");
    }
    let (one, _two) = (calls.next().await, calls.next().await);
    let third = tokio::time::timeout(Duration::from_secs(60), calls.next()).await;
    assert!(third.is_err(), "the third waits");
    one.answer("yes");
    calls.next().await.answer("yes");
}

#[tokio::test(start_paused = true)]
async fn calls_per_minute_are_spaced_across_sessions() {
    let limits =
        ModelCallLimits { concurrent_calls_max: 9, calls_per_minute_max: Some(30), ..ModelCallLimits::default() };
    let (engine, mut calls) = engine_with(limits, None).await;
    for name in ["a", "b", "c"] {
        let session = open_named_session(&engine, name).await;
        engine.send_message(&session, "hello".into()).await.expect("accepted");
    }
    let (one, two, three) = (calls.next().await, calls.next().await, calls.next().await);
    assert_eq!((two.at - one.at, three.at - two.at), (Duration::from_secs(2), Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_does_not_count_towards_the_timeout() {
    let limits = ModelCallLimits { concurrent_calls_max: 1, ..ModelCallLimits::default() };
    let (engine, mut calls) = engine_with(limits, Some(5_000)).await;
    let sessions = [open_named_session(&engine, "a").await, open_named_session(&engine, "b").await];
    for session in &sessions {
        engine.send_message(session, "hello".into()).await.expect("accepted");
    }
    let one = calls.next().await;
    advance_ms(4_000).await;
    one.answer("yes");
    let two = calls.next().await;
    advance_ms(4_000).await;
    assert_eq!(two.metadata.attempt, 1);
    two.answer("yes");
    advance_ms(10).await;
    let state = crate::harness::load_state(&engine, &sessions[1]).await;
    assert_eq!((state.session.ledger.total.answered_calls, state.session.ledger.total.failed_attempts), (1, 0));
}
