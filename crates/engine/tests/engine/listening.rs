//! Listeners: late, slow, elsewhere.

use std::sync::atomic::Ordering;

use segue_core::decide::OperatorCommand;
use segue_core::event::Event;
use segue_core::ids::Seq;
use segue_core::prompt::FailureKind;
use segue_engine::limits::{READ_EVENTS_MAX, UPDATES_BUFFERED_MAX};
use segue_engine::{Engine, SessionUpdate, Subscription};
use segue_store::memory::MemoryDisk;

use crate::lab::{Flaky, chat, engine, open, pass, setup, turn};

/// Hears everything up to an event, which must come without gap or repetition; gives the words.
async fn hear_until(listener: &mut Subscription, after: Seq, last: fn(&Event) -> bool) -> String {
    let (mut words, mut seen) = (String::new(), after);
    loop {
        match listener.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, .. } => words.push_str(&text),
            SessionUpdate::Event(event) => {
                assert_eq!(event.seq, seen.next(), "events come without gap and repetition");
                seen = event.seq;
                if last(&event.event) {
                    return words;
                }
            }
        }
    }
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::TurnEnded { .. })
}

#[tokio::test(start_paused = true)]
async fn one_that_joins_in_mid_sentence_hears_the_sentence_whole() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    call.say("once upon ");
    pass(10).await;
    let mut late = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    call.answer("a time");
    assert_eq!(hear_until(&mut late, Seq(0), is_end).await, "once upon a time");
    assert!(late.last_seq() > Seq(0));
}

#[tokio::test(start_paused = true)]
async fn one_that_joins_after_the_end_hears_events_and_no_stale_words() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let mut early = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    turn(&engine, &mut calls, &session, "hello", "once upon a time").await;
    let mut late = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    assert_eq!(hear_until(&mut late, Seq(0), is_end).await, "");
    assert_eq!(hear_until(&mut early, Seq(0), is_end).await, "once upon a time");
}

#[tokio::test(start_paused = true)]
async fn one_that_reads_too_slowly_for_the_buffer_misses_nothing() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let mut slow = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    let pieces = UPDATES_BUFFERED_MAX + 500;
    for _ in 0..pieces {
        call.say("x");
    }
    // It lags far behind in the middle of the sentence.
    pass(10).await;
    let mut words = 0;
    while words < pieces {
        match slow.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, offset, .. } => {
                assert_eq!(offset, words);
                words += text.len();
            }
            SessionUpdate::Event(event) => assert_eq!(event.seq, slow.last_seq()),
        }
    }
    call.answer("!");
    let after = slow.last_seq();
    assert_eq!(hear_until(&mut slow, after, is_end).await, "!");
}

#[tokio::test(start_paused = true)]
async fn one_that_missed_many_pages_reads_each_of_them_once() {
    let disk = MemoryDisk::new();
    let (store, trouble) = Flaky::open(&disk);
    let engine = Engine::start(setup(store, chat()).0).await.expect("it starts");
    let session = open(&engine).await;
    let events = 2 * READ_EVENTS_MAX + 100;
    for number in 0..events {
        engine
            .apply_command(&session, OperatorCommand::Rename { title: format!("title {number}") })
            .await
            .expect("renamed");
    }
    let mut listener = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let before = trouble.reads.load(Ordering::Relaxed);
    let last = |event: &Event| matches!(event, Event::SessionRenamed { title } if title.ends_with(" 2147"));
    assert_eq!(events - 1, 2147);
    hear_until(&mut listener, Seq(0), last).await;
    assert!(trouble.reads.load(Ordering::Relaxed) - before <= 3, "a page is read once");
}

#[tokio::test(start_paused = true)]
async fn the_words_of_another_try_start_over() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let mut listener = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    call.say("I th");
    call.fail(FailureKind::Network);
    calls.next().await.answer("yes");
    let mut heard = Vec::new();
    loop {
        match listener.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { attempt, offset, text, .. } => heard.push((attempt, offset, text.to_string())),
            SessionUpdate::Event(event) if is_end(&event.event) => break,
            SessionUpdate::Event(_) => {}
        }
    }
    assert_eq!(heard, [(1, 0, "I th".to_owned()), (2, 0, "yes".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn one_can_follow_a_session_that_another_process_runs() {
    let disk = MemoryDisk::new();
    let (owner, mut calls) = engine(&disk).await;
    let (other, _) = engine(&disk).await;
    let session = open(&owner).await;
    let mut follower = other.subscribe(&session, Seq(0)).await.expect("it exists");
    turn(&owner, &mut calls, &session, "hello", "yes").await;
    assert_eq!(hear_until(&mut follower, Seq(0), is_end).await, "", "what is said elsewhere is heard as events");
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_waiting_loses_nothing() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let mut listener = engine.subscribe(&session, Seq(1)).await.expect("it exists");
    for _ in 0..3 {
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(700), listener.next_update()).await;
        assert!(waiting.is_err(), "nothing happens");
    }
    turn(&engine, &mut calls, &session, "hello", "yes").await;
    assert_eq!(hear_until(&mut listener, Seq(1), is_end).await, "yes");
}

#[tokio::test(start_paused = true)]
async fn there_is_nothing_to_hear_of_a_session_that_is_not_there() {
    let (engine, _calls) = engine(&MemoryDisk::new()).await;
    let error = engine.subscribe(&"nobody".into(), Seq(0)).await.expect_err("it does not exist");
    assert_eq!(error.code(), "no-such-session");
    let session = open(&engine).await;
    let mut listener = engine.subscribe(&session, Seq(1)).await.expect("it exists");
    engine.delete_session(&session).await.expect("it is deleted");
    assert_eq!(listener.next_update().await.expect_err("it is gone").code(), "no-such-session");
}
