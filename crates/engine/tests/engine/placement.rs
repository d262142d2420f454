//! Sessions that only some processes may hold.

use std::sync::Arc;

use segue_core::event::SessionOpened;
use segue_engine::{Engine, EngineConfig, SessionPlacement};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use crate::harness::{
    ReceivedCalls, advance_ms, chat_engine, chat_flow, engine_config, open_named_session, run_turn, send_in_background,
};

/// Leaves sessions whose names begin with `built-` to others.
struct NoBuilder;

impl SessionPlacement for NoBuilder {
    fn describe_permitted_holders(&self, opened: &SessionOpened) -> Option<String> {
        opened.session.as_str().starts_with("built-").then(|| "a builder".to_owned())
    }
}

async fn engine_without_builder(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls) {
    let (config, calls) = engine_config(InMemoryStore::open(disk), chat_flow());
    let config = EngineConfig { placement: Some(Arc::new(NoBuilder)), ..config };
    (Engine::start(config).await.expect("the engine starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn r14_a_session_is_held_only_where_it_is_placed() {
    let disk = InMemoryStoreDisk::with_expiring_leases(10_000);
    let (front, mut front_calls) = engine_without_builder(&disk).await;
    let (builder, mut builder_calls) = chat_engine(&disk).await;
    // It can be opened and used everywhere.
    let placed = open_named_session(&front, "built-shop").await;
    let pending = send_in_background(&front, &placed, "build it");
    let call = builder_calls.next().await;
    assert_eq!(call.last_message(), "build it");
    call.answer("built");
    let report = pending.await.expect("the task lives").expect("it is answered");
    assert_eq!(report.replies, ["built"]);
    // Sessions without a place are held where they are used.
    let free = open_named_session(&front, "free").await;
    run_turn(&front, &mut front_calls, &free, "hello", "hi").await;
    front_calls.expect_none().await;
    builder.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn r14_a_placed_session_waits_for_a_process_that_may_hold_it() {
    let disk = InMemoryStoreDisk::with_expiring_leases(10_000);
    let (front, mut front_calls) = engine_without_builder(&disk).await;
    let placed = open_named_session(&front, "built-shop").await;
    // The client is told the id of its submission after a while, or waits; either way the message is kept.
    let _pending = send_in_background(&front, &placed, "build it");
    advance_ms(5_000).await;
    front_calls.expect_none().await;
    let (_builder, mut builder_calls) = chat_engine(&disk).await;
    assert_eq!(builder_calls.next().await.last_message(), "build it");
}
