//! What a model is asked to bear.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_engine::rate_limit::ModelCallLimits;
use segue_engine::{Engine, EngineConfig};
use segue_store::memory::{MemoryDisk, MemoryStore};

use crate::lab::{Calls, chat, chat_of, open_as, pass, setup, speaker};

async fn engine_with(limits: ModelCallLimits, timeout_ms: Option<u64>) -> (Engine, Calls) {
    let flow = match timeout_ms {
        Some(timeout_ms) => {
            let mut role = speaker();
            role.timeout_ms = timeout_ms;
            chat_of(role)
        }
        None => chat(),
    };
    let (base, calls) = setup(MemoryStore::open(&MemoryDisk::new()), flow);
    let model_limits = BTreeMap::from([("played".into(), limits)]);
    (Engine::start(EngineConfig { model_limits, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_a_model_bears_over_all_sessions() {
    let (engine, mut calls) =
        engine_with(ModelCallLimits { concurrent_calls_max: 2, ..ModelCallLimits::default() }, None).await;
    for name in ["a", "b", "c"] {
        let session = open_as(&engine, name).await;
        engine.send_message(&session, "hello".into()).await.expect("accepted");
    }
    let (one, _two) = (calls.next().await, calls.next().await);
    let third = tokio::time::timeout(Duration::from_secs(60), calls.next()).await;
    assert!(third.is_err(), "the third waits");
    one.answer("yes");
    calls.next().await.answer("yes");
}

#[tokio::test(start_paused = true)]
async fn calls_are_spread_over_the_minute_over_all_sessions() {
    let limits =
        ModelCallLimits { concurrent_calls_max: 9, calls_per_minute_max: Some(30), ..ModelCallLimits::default() };
    let (engine, mut calls) = engine_with(limits, None).await;
    for name in ["a", "b", "c"] {
        let session = open_as(&engine, name).await;
        engine.send_message(&session, "hello".into()).await.expect("accepted");
    }
    let (one, two, three) = (calls.next().await, calls.next().await, calls.next().await);
    assert_eq!((two.at - one.at, three.at - two.at), (Duration::from_secs(2), Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_model_to_be_free_costs_a_call_none_of_its_time() {
    let limits = ModelCallLimits { concurrent_calls_max: 1, ..ModelCallLimits::default() };
    let (engine, mut calls) = engine_with(limits, Some(5_000)).await;
    let sessions = [open_as(&engine, "a").await, open_as(&engine, "b").await];
    for session in &sessions {
        engine.send_message(session, "hello".into()).await.expect("accepted");
    }
    let one = calls.next().await;
    pass(4_000).await;
    one.answer("yes");
    let two = calls.next().await;
    pass(4_000).await;
    assert_eq!(two.facts.attempt, 1);
    two.answer("yes");
    pass(10).await;
    let state = crate::lab::state(&engine, &sessions[1]).await;
    assert_eq!((state.session.ledger.total.answered_calls, state.session.ledger.total.failed_attempts), (1, 0));
}
