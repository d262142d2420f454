//! Subscribers that join late, read slowly, or follow a session of another process.

use std::sync::atomic::Ordering;

use segue_core::decide::OperatorCommand;
use segue_core::event::Event;
use segue_core::ids::Seq;
use segue_core::prompt::CallFailureKind;
use segue_engine::limits::{READ_EVENTS_MAX, UPDATES_BUFFERED_MAX};
use segue_engine::{Engine, SessionSubscription, SessionUpdate};
use segue_store::memory::InMemoryStoreDisk;

use crate::harness::{FaultyStore, advance_ms, chat_engine, chat_flow, engine_config, open_session, run_turn};

/// Reads updates up to an event; asserts that there are no gaps or repetitions. Returns the streamed text.
async fn read_until(subscription: &mut SessionSubscription, after: Seq, last: fn(&Event) -> bool) -> String {
    let (mut streamed, mut seen) = (String::new(), after);
    loop {
        match subscription.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, .. } => streamed.push_str(&text),
            SessionUpdate::ToolProgress { .. } => {}
            SessionUpdate::Event(event) => {
                assert_eq!(event.seq, seen.next(), "events come without gap and repetition");
                seen = event.seq;
                if last(&event.event) {
                    return streamed;
                }
            }
        }
    }
}

fn is_turn_end(event: &Event) -> bool {
    matches!(event, Event::TurnEnded { .. })
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_joins_during_a_reply_gets_all_of_its_text() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    call.send_text("once upon ");
    advance_ms(10).await;
    let mut late = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    call.answer("a time");
    assert_eq!(read_until(&mut late, Seq(0), is_turn_end).await, "once upon a time");
    assert!(late.last_seq() > Seq(0));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_joins_after_a_turn_gets_events_but_no_streamed_text() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let mut early = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    run_turn(&engine, &mut calls, &session, "hello", "once upon a time").await;
    let mut late = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    assert_eq!(read_until(&mut late, Seq(0), is_turn_end).await, "");
    assert_eq!(read_until(&mut early, Seq(0), is_turn_end).await, "once upon a time");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_slower_than_the_buffer_misses_nothing() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let mut slow = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    let chunk_count = UPDATES_BUFFERED_MAX + 500;
    for _ in 0..chunk_count {
        call.send_text("x");
    }
    // It lags far behind in the middle of the reply.
    advance_ms(10).await;
    let mut streamed_bytes = 0;
    while streamed_bytes < chunk_count {
        match slow.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, offset, .. } => {
                assert_eq!(offset, streamed_bytes);
                streamed_bytes += text.len();
            }
            SessionUpdate::Event(event) => assert_eq!(event.seq, slow.last_seq()),
            SessionUpdate::ToolProgress { .. } => {}
        }
    }
    call.answer("!");
    let after = slow.last_seq();
    assert_eq!(read_until(&mut slow, after, is_turn_end).await, "!");
}

#[tokio::test(start_paused = true)]
async fn missed_pages_are_read_once() {
    let disk = InMemoryStoreDisk::new();
    let (store, faults) = FaultyStore::open(&disk);
    let engine = Engine::start(engine_config(store, chat_flow()).0).await.expect("it starts");
    let session = open_session(&engine).await;
    let events = 2 * READ_EVENTS_MAX + 100;
    for number in 0..events {
        engine
            .apply_command(&session, OperatorCommand::Rename { title: format!("title {number}") })
            .await
            .expect("renamed");
    }
    let mut subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let before = faults.reads.load(Ordering::Relaxed);
    let last = |event: &Event| matches!(event, Event::SessionRenamed { title } if title.ends_with(" 2147"));
    assert_eq!(events - 1, 2147);
    read_until(&mut subscription, Seq(0), last).await;
    assert!(faults.reads.load(Ordering::Relaxed) - before <= 3, "a page is read once");
}

#[tokio::test(start_paused = true)]
async fn the_text_of_another_attempt_starts_over() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let mut subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    call.send_text("I th");
    call.fail(CallFailureKind::Network);
    calls.next().await.answer("yes");
    let mut received = Vec::new();
    loop {
        match subscription.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { attempt, offset, text, .. } => {
                received.push((attempt, offset, text.to_string()))
            }
            SessionUpdate::Event(event) if is_turn_end(&event.event) => break,
            SessionUpdate::Event(_) | SessionUpdate::ToolProgress { .. } => {}
        }
    }
    assert_eq!(received, [(1, 0, "I th".to_owned()), (2, 0, "yes".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_process_can_be_followed() {
    let disk = InMemoryStoreDisk::new();
    let (owner, mut calls) = chat_engine(&disk).await;
    let (other, _) = chat_engine(&disk).await;
    let session = open_session(&owner).await;
    let mut follower = other.subscribe(&session, Seq(0)).await.expect("it exists");
    run_turn(&owner, &mut calls, &session, "hello", "yes").await;
    assert_eq!(
        read_until(&mut follower, Seq(0), is_turn_end).await,
        "",
        "text streamed in another process arrives as events"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_loses_nothing() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let mut subscription = engine.subscribe(&session, Seq(1)).await.expect("it exists");
    for _ in 0..3 {
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(700), subscription.next_update()).await;
        assert!(waiting.is_err(), "nothing happens");
    }
    run_turn(&engine, &mut calls, &session, "hello", "yes").await;
    assert_eq!(read_until(&mut subscription, Seq(1), is_turn_end).await, "yes");
}

#[tokio::test(start_paused = true)]
async fn subscribing_to_a_missing_session_fails() {
    let (engine, _calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let error = engine.subscribe(&"nobody".into(), Seq(0)).await.expect_err("it does not exist");
    assert_eq!(error.code(), "no-such-session");
    let session = open_session(&engine).await;
    let mut subscription = engine.subscribe(&session, Seq(1)).await.expect("it exists");
    engine.delete_session(&session).await.expect("it is deleted");
    assert_eq!(subscription.next_update().await.expect_err("it is gone").code(), "no-such-session");
}
