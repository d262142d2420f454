//! What the log says, and what it must not say. The log of a test is captured: everything runs on the thread of the
//! test.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use segue_core::ids::Seq;
use segue_core::prompt::{CallFailure, CallFailureKind};
use segue_engine::Engine;
use segue_engine::limits::{BREAKER_FAILURES_MAX, PARKED_LEASE_MS_MAX, UPDATES_BUFFERED_MAX};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk, InjectedAppendFault};
use segue_store::{LeaseStore, LeaseTakeoverPolicy};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

use crate::harness::{
    FaultyStore, advance_ms, chat_engine, chat_flow, engine_config, open_session, run_turn, send_in_background,
};
use crate::vendors::engine_with_provider;

/// A second subscriber. With only one in the process, a log statement that another thread reaches first would be
/// disabled for all threads, because that thread has no subscriber.
static SECOND_SUBSCRIBER: OnceLock<Dispatch> = OnceLock::new();

/// The lines that this thread logs.
struct CapturedLog {
    lines: LogBuffer,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lets every log statement register when it is first reached, whichever thread reaches it.
fn enable_registration() {
    SECOND_SUBSCRIBER.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
}

/// Runs two turns, with a pause in between in which the lease is released.
async fn run_two_turns() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "hello-from-the-user", "answer-of-the-model").await;
    advance_ms(3 * PARKED_LEASE_MS_MAX).await;
    run_turn(&engine, &mut calls, &session, "hello-from-the-user", "answer-of-the-model").await;
}

impl CapturedLog {
    fn start(level: Level) -> Self {
        enable_registration();
        let lines = LogBuffer::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().expect("no writer panicked").clone()).expect("the log is UTF-8")
    }

    /// Returns the first line with all these parts.
    fn find_line(&self, parts: &[&str]) -> String {
        let text = self.text();
        let found = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("no line with {parts:?} in:\n{text}")).to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn log_of_a_turn_has_the_ids_of_session_turn_and_call() {
    // A statement that another test registers at the same moment as this one captures its log can be missed, so all
    // statements are registered first.
    enable_registration();
    run_two_turns().await;
    let log = CapturedLog::start(Level::TRACE);
    run_two_turns().await;
    log.find_line(&["DEBUG", "session opened", "session=s", "flow=puppet"]);
    log.find_line(&["DEBUG", "turn started", "session=s", "turn=t1"]);
    log.find_line(&["DEBUG", "session{session=s epoch=", "turn{turn=t1}", "call{call=c1 attempt=1 model=controlled"]);
    log.find_line(&["DEBUG", "call answered", "call=c1", "attempt=1"]);
    log.find_line(&["DEBUG", "commit written", "session=s", "epoch="]);
    log.find_line(&["DEBUG", "lease released", "session=s", "epoch="]);
    log.find_line(&["DEBUG", "lease acquired", "session=s", "epoch="]);
    let text = log.text();
    assert!(!text.contains("hello-from") && !text.contains("answer-of"), "the log contains a conversation:\n{text}");
    assert!(!text.contains(" WARN ") && !text.contains("ERROR"), "nothing is wrong:\n{text}");
}

#[tokio::test(start_paused = true)]
async fn log_at_info_has_no_line_about_an_ordinary_turn() {
    let log = CapturedLog::start(Level::INFO);
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "hello", "yes").await;
    assert_eq!(log.text(), "");
}

#[tokio::test(start_paused = true)]
async fn log_tells_how_an_unknown_commit_was_resolved() {
    let log = CapturedLog::start(Level::INFO);
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(InjectedAppendFault::AfterCommit);
    call.answer("yes");
    pending_turn.await.expect("the task lives").expect("it is answered");
    log.find_line(&["WARN", "outcome of a commit unknown", "session=s"]);
    log.find_line(&["WARN", "outcome of a commit resolved", "session=s", "outcome=Written"]);

    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    disk.inject_fault(InjectedAppendFault::DiskFull);
    call.answer("yes");
    pending_turn.await.expect("the task lives").expect("it is answered");
    log.find_line(&["WARN", "write failed; it is retried", "session=s", "the disk is full"]);
}

#[tokio::test(start_paused = true)]
async fn log_tells_that_a_lease_was_lost() {
    let log = CapturedLog::start(Level::INFO);
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    let other = InMemoryStore::open(&disk);
    other.acquire_lease(&session, LeaseTakeoverPolicy::Force).await.expect("taken over");
    call.answer("too late");
    advance_ms(1_000).await;
    assert!(!pending_turn.is_finished(), "the other process will answer");
    log.find_line(&["WARN", "commit rejected", "session=s", "epoch="]);
    log.find_line(&["WARN", "lease lost to another process", "session=s"]);
}

#[tokio::test(start_paused = true)]
async fn log_tells_that_work_of_a_dead_process_is_recovered() {
    let disk = InMemoryStoreDisk::new();
    let (dead, mut calls) = chat_engine(&disk).await;
    let session = open_session(&dead).await;
    dead.send_message(&session, "hello".into()).await.expect("accepted");
    let _in_flight = calls.next().await;
    dead.shutdown().await;
    let log = CapturedLog::start(Level::INFO);
    let (_engine, mut calls) = chat_engine(&disk).await;
    calls.next().await;
    log.find_line(&["INFO", "resuming sessions with pending work", "sessions=1"]);
    log.find_line(&["INFO", "recovering unfinished work", "session=s", "epoch="]);
    log.find_line(&["WARN", "outcome of the call unknown", "call=c1", "attempt=1"]);
}

#[tokio::test(start_paused = true)]
async fn log_tells_that_a_task_panicked() {
    let log = CapturedLog::start(Level::INFO);
    let (store, faults) = FaultyStore::open(&InMemoryStoreDisk::new());
    let (config, mut calls) = engine_config(store, chat_flow());
    let engine = Engine::start(config).await.expect("it starts");
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    faults.panicking_appends.store(1, Ordering::Relaxed);
    call.answer("lost");
    pending_turn.await.expect("the task lives").expect_err("its session stopped");
    log.find_line(&["ERROR", "the task of the session panicked", "session=s"]);
}

#[tokio::test(start_paused = true)]
async fn log_tells_of_failures_and_the_circuit_breaker_without_their_messages() {
    let log = CapturedLog::start(Level::TRACE);
    let (engine, mut calls) = engine_with_provider().await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    for _ in 0..BREAKER_FAILURES_MAX {
        calls.next().await.fail_with(CallFailure::new(CallFailureKind::Network, "a-message-that-quotes-the-prompt"));
    }
    calls.next().await.answer("back");
    pending_turn.await.expect("the task lives").expect("it is answered");
    log.find_line(&["WARN", "attempt failed; the call is retried", "session=s", "call=c1", "attempt=1"]);
    log.find_line(&["WARN", "circuit breaker open", "provider=\"acme\"", "failures=5", "open_ms="]);
    log.find_line(&["INFO", "circuit breaker half-open", "provider=\"acme\""]);
    log.find_line(&["INFO", "circuit breaker closed", "provider=\"acme\""]);
    log.find_line(&["turn{turn=t1}:call{call=c1 attempt=5", "role=speaker provider=\"acme\"}"]);
    assert!(!log.text().contains("quotes-the-prompt"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn log_tells_of_a_rejected_api_key_as_an_error() {
    let log = CapturedLog::start(Level::ERROR);
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    calls.next().await.fail_with(CallFailure::new(CallFailureKind::InvalidApiKey, "no such key: sk-123"));
    pending_turn.await.expect("the task lives").expect("it is answered");
    log.find_line(&["ERROR", "the configured API key is not accepted", "session=s", "call=c1"]);
    assert!(!log.text().contains("sk-123"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn log_tells_that_a_subscriber_was_too_slow() {
    let log = CapturedLog::start(Level::INFO);
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let mut subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    subscription.next_update().await.expect("the first event");
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    (0..=UPDATES_BUFFERED_MAX).for_each(|_| call.send_text("x "));
    call.answer("end");
    pending_turn.await.expect("the task lives").expect("it is answered");
    subscription.next_update().await.expect("nothing is lost");
    log.find_line(&["WARN", "slow subscriber dropped from the channel", "session=s", "missed_updates="]);
}
