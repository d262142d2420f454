//! Leases that expire: how an engine keeps them, what it does if it cannot, and how others take over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_engine::{Engine, EngineConfig, Error};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use crate::harness::{
    FaultyStore, InjectedFaults, ReceivedCall, ReceivedCalls, advance_ms, chat_flow, engine_config, open_session,
    run_turn, send_in_background,
};

const LEASE_MS: u64 = 4_000;

async fn node(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls, Arc<InjectedFaults>) {
    let (store, faults) = FaultyStore::open(disk);
    let (config, calls) = engine_config(store, chat_flow());
    (Engine::start(config).await.expect("the engine starts"), calls, faults)
}

/// A node that dies without a word: its process is paused, so its store never says that it has ended.
async fn paused_node_with_open_call(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCall) {
    let (engine, mut calls, faults) = node(disk).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    faults.failing_renewals.store(u64::MAX, Ordering::Relaxed);
    (engine, call)
}

#[tokio::test(start_paused = true)]
async fn r13_a_session_stays_with_its_node_as_long_as_leases_are_renewed() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (one, mut calls, _) = node(&disk).await;
    let (two, mut others_calls, _) = node(&disk).await;
    let session = open_session(&one).await;
    let turn = send_in_background(&one, &session, "hello");
    let call = calls.next().await;
    advance_ms(10 * LEASE_MS).await;
    others_calls.expect_none_yet();
    call.answer("yes");
    assert_eq!(turn.await.expect("the task lives").expect("answered").replies, ["yes"]);
    assert!(one.lease_counts().renewals >= 40, "{:?}", one.lease_counts());
    assert_eq!((one.lease_counts().lost, two.lease_counts().lost), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn r13_sessions_of_a_dead_node_are_resumed_within_the_lease_time() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (two, mut others_calls, _) = node(&disk).await;
    advance_ms(2 * LEASE_MS).await;
    let (_one, _call) = paused_node_with_open_call(&disk).await;
    advance_ms(LEASE_MS / 2).await;
    others_calls.expect_none_yet();
    advance_ms(LEASE_MS * 3 / 4).await;
    let again = others_calls.next().await;
    assert_eq!(again.metadata.attempt, 2, "the first attempt is unknown");
    again.answer("yes");
    advance_ms(10).await;
    assert!(!two.is_session_active(&"s".into()));
}

#[tokio::test(start_paused = true)]
async fn r13_nobody_takes_over_after_an_outage_that_everybody_had() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (one, mut calls, faults) = node(&disk).await;
    let (_two, mut others_calls, others_faults) = node(&disk).await;
    let session = open_session(&one).await;
    let turn = send_in_background(&one, &session, "hello");
    let call = calls.next().await;
    advance_ms(2 * LEASE_MS).await;
    // A failover of the database that takes three leases.
    for faults in [&faults, &others_faults] {
        faults.failing_renewals.store(u64::MAX, Ordering::Relaxed);
    }
    advance_ms(3 * LEASE_MS).await;
    // The other node reaches the database first.
    others_faults.failing_renewals.store(0, Ordering::Relaxed);
    advance_ms(LEASE_MS / 2).await;
    faults.failing_renewals.store(0, Ordering::Relaxed);
    advance_ms(2 * LEASE_MS).await;
    others_calls.expect_none_yet();
    call.answer("yes");
    assert_eq!(turn.await.expect("the task lives").expect("the call was not repeated").replies, ["yes"]);
    assert!(one.lease_counts().failed_renewals > 0);
}

#[tokio::test(start_paused = true)]
async fn r13_nothing_is_started_while_renewals_fail() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (one, mut calls, faults) = node(&disk).await;
    let session = open_session(&one).await;
    run_turn(&one, &mut calls, &session, "hello", "yes").await;
    faults.failing_renewals.store(u64::MAX, Ordering::Relaxed);
    advance_ms(LEASE_MS / 2).await;
    let turn = send_in_background(&one, &session, "again");
    advance_ms(LEASE_MS / 4).await;
    calls.expect_none_yet();
    faults.failing_renewals.store(0, Ordering::Relaxed);
    calls.next().await.answer("of course");
    assert_eq!(turn.await.expect("the task lives").expect("answered").replies, ["of course"]);
}

#[tokio::test(start_paused = true)]
async fn r17_a_caller_of_a_node_that_lost_the_session_gets_its_answer() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (two, mut others_calls, _) = node(&disk).await;
    advance_ms(2 * LEASE_MS).await;
    let (one, mut calls, faults) = node(&disk).await;
    let session = open_session(&one).await;
    let turn = send_in_background(&one, &session, "hello");
    let call = calls.next().await;
    faults.failing_renewals.store(u64::MAX, Ordering::Relaxed);
    advance_ms(2 * LEASE_MS).await;
    let again = others_calls.next().await;
    // The first node comes back and learns that it has lost the session. Its call is stopped.
    faults.failing_renewals.store(0, Ordering::Relaxed);
    advance_ms(LEASE_MS).await;
    call.wait_until_dropped().await;
    assert!(!one.is_session_active(&session));
    assert_eq!(one.lease_counts().lost, 1);
    again.answer("from the other node");
    let report = turn.await.expect("the task lives").expect("it follows the journal");
    assert_eq!(report.replies, ["from the other node"]);
    // A message at the wrong node goes to the inbox.
    let turn = send_in_background(&two, &session, "more");
    let call = others_calls.next().await;
    let at_wrong_node = send_in_background(&one, &session, "and more");
    advance_ms(1_000).await;
    call.answer("one");
    others_calls.next().await.answer("two");
    assert_eq!(turn.await.expect("the task lives").expect("answered").replies, ["one"]);
    assert_eq!(at_wrong_node.await.expect("the task lives").expect("answered").replies, ["two"]);
}

#[tokio::test(start_paused = true)]
async fn r15_a_node_that_drains_records_the_calls_in_flight() {
    let disk = InMemoryStoreDisk::with_expiring_leases(LEASE_MS);
    let (config, mut calls) = engine_config(InMemoryStore::open(&disk), chat_flow());
    let one = Engine::start(EngineConfig { drain_ms_max: 60_000, ..config }).await.expect("starts");
    let session = open_session(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    let (two, mut others_calls, _) = node(&disk).await;
    let draining = tokio::spawn({
        let one = one.clone();
        async move { one.shutdown().await }
    });
    advance_ms(30_000).await;
    assert!(!draining.is_finished(), "it waits for the call");
    let refused = one.send_message(&session, "more".into()).await.expect_err("it ends");
    assert!(matches!(refused, Error::ShuttingDown), "{refused}");
    others_calls.expect_none_yet();
    call.answer("yes");
    draining.await.expect("it ends");
    advance_ms(LEASE_MS).await;
    others_calls.expect_none_yet();
    let report = run_turn(&two, &mut others_calls, &session, "more", "of course").await;
    assert_eq!(report.replies, ["of course"], "the next node continues");
}
