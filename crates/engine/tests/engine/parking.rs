//! Parked sessions: what they cost, which process may resume them, and how.

use std::sync::Arc;

use segue_core::decide::OperatorCommand;
use segue_core::event::Event;
use segue_engine::limits::SNAPSHOT_EVENTS_MIN;
use segue_engine::{Engine, Error, UserMessage};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use crate::harness::{
    advance_ms, chat_engine, chat_flow, engine_config, load_state, open_named_session, open_session, read_events,
    run_turn,
};

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn parked_sessions_have_no_task() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    advance_ms(1).await;
    let none = alive_tasks();
    for number in 0..50 {
        let session = open_named_session(&engine, &format!("s{number}")).await;
        run_turn(&engine, &mut calls, &session, "hello", "yes").await;
    }
    advance_ms(1).await;
    assert_eq!(alive_tasks(), none, "only the engine's own task is left");
    let session = "s7".into();
    assert_eq!(run_turn(&engine, &mut calls, &session, "again", "of course").await.replies, ["of course"]);
}

#[tokio::test(start_paused = true)]
async fn a_parked_session_is_released_and_resumed_by_either_process() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls_one) = chat_engine(&disk).await;
    let (other, mut calls_other) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    run_turn(&one, &mut calls_one, &session, "one", "to one").await;
    advance_ms(2_000).await;
    run_turn(&other, &mut calls_other, &session, "two", "to two").await;
    advance_ms(2_000).await;
    let pending_turn = crate::harness::send_in_background(&one, &session, "three");
    let call = calls_one.next().await;
    let shown: Vec<String> = call.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["one", "to one", "two", "to two", "three"], "the other process's turn is known here");
    call.answer("to three");
    assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").turn.0, 3);
}

#[tokio::test(start_paused = true)]
async fn another_session_of_the_same_name_and_length_is_not_confused_with_the_old_one() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls_one) = chat_engine(&disk).await;
    let (other, mut calls_other) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    run_turn(&one, &mut calls_one, &session, "secret", "I keep it").await;
    advance_ms(2_000).await;
    other.delete_session(&session).await.expect("it is deleted");
    open_session(&other).await;
    run_turn(&other, &mut calls_other, &session, "hello", "yes").await;
    advance_ms(2_000).await;
    let _pending_turn = crate::harness::send_in_background(&one, &session, "what did I say?");
    let call = calls_one.next().await;
    assert!(call.prompt.messages.iter().all(|message| !message.text().contains("secret")), "{:?}", call.prompt);
}

#[tokio::test(start_paused = true)]
async fn work_of_a_dead_process_is_resumed_by_a_live_one() {
    let disk = InMemoryStoreDisk::new();
    let dying = Arc::new(InMemoryStore::open(&disk));
    let (mut base, mut calls) = engine_config(InMemoryStore::open(&disk), chat_flow());
    base.store = dying.clone();
    let engine_dying = Engine::start(base).await.expect("it starts");
    let (_alive, mut calls_alive) = chat_engine(&disk).await;
    let session = open_session(&engine_dying).await;
    engine_dying.send_message(&session, "hello".into()).await.expect("accepted");
    let _lost = calls.next().await;
    dying.kill();
    let resumed = calls_alive.next().await;
    assert_eq!((resumed.metadata.session.clone(), resumed.metadata.attempt), (session, 2));
}

#[tokio::test(start_paused = true)]
async fn work_of_another_process_is_resumed_where_the_session_is_cached() {
    let disk = InMemoryStoreDisk::new();
    let (here, mut calls_here) = chat_engine(&disk).await;
    let (other, mut calls_other) = chat_engine(&disk).await;
    let session = open_session(&here).await;
    run_turn(&here, &mut calls_here, &session, "one", "to one").await;
    advance_ms(2_000).await;
    other.send_message(&session, "two".into()).await.expect("it was released");
    let _unanswered = calls_other.next().await;
    other.shutdown().await;
    let resumed = calls_here.next().await;
    assert_eq!((resumed.metadata.attempt, resumed.last_message()), (2, "two".to_owned()));
    resumed.answer("to two");
    advance_ms(10).await;
    assert!(load_state(&here, &session).await.session.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_long_session_is_restored_from_its_snapshot() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    while load_state(&one, &session).await.session.last_seq.0 < SNAPSHOT_EVENTS_MIN + 10 {
        for number in 0..40 {
            let title = format!("title {number}");
            one.apply_command(&session, OperatorCommand::Rename { title }).await.expect("renamed");
        }
        run_turn(&one, &mut calls, &session, "hello", "yes").await;
    }
    advance_ms(10).await;
    let store = InMemoryStore::open(&disk);
    let snapshot = segue_store::JournalReader::load_snapshot(&store, &session).await.expect("it can be read");
    let snapshot = snapshot.expect("one was kept");
    let (_, folded) =
        one.load_session_at(&session, load_state(&one, &session).await.session.last_seq).await.expect("it can be read");
    assert!(snapshot.seq.0 >= SNAPSHOT_EVENTS_MIN);
    assert_eq!(
        load_state(&one, &session).await.session,
        folded.session,
        "snapshot and later events give the same state as all events"
    );
    one.shutdown().await;
    let (later, mut calls) = chat_engine(&disk).await;
    assert_eq!(run_turn(&later, &mut calls, &session, "still there?", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn two_callers_that_open_the_same_name_and_send_at_once_both_succeed() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let ensure = |text: &'static str| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let options = segue_engine::SessionOptions { session: Some("s".into()), ..Default::default() };
            match engine.open_session(&"puppet".into(), options).await {
                Ok(_) | Err(Error::SessionExists(_)) => {
                    engine.send_and_wait(&"s".into(), UserMessage::from(text)).await
                }
                Err(error) => Err(error),
            }
        })
    };
    let (one, two) = (ensure("one"), ensure("two"));
    calls.next().await.answer("yes");
    calls.next().await.answer("yes");
    for pending_turn in [one, two] {
        assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").replies, ["yes"]);
    }
}

/// Runs on several threads in real time, so that parking and waking often happen at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_senders_at_once_lose_nothing() {
    const SENDERS: u32 = 8;
    const MESSAGES: u32 = 25;
    let (base, mut calls) = engine_config(InMemoryStore::open(&InMemoryStoreDisk::new()), chat_flow());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open_session(&engine).await;
    let model = tokio::spawn(async move {
        for _ in 0..SENDERS * MESSAGES {
            calls.next().await.answer("yes");
        }
    });
    let senders = (0..SENDERS).map(|sender| {
        let (engine, session) = (engine.clone(), session.clone());
        tokio::spawn(async move {
            for number in 0..MESSAGES {
                let text = format!("{number} of {sender}");
                let report =
                    engine.send_and_wait(&session, UserMessage::from(text.as_str())).await.expect("it is answered");
                assert_eq!(report.replies, ["yes"]);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("the task does not panic");
    }
    model.await.expect("the task does not panic");
    let received = read_events(&engine, &session).await.into_iter();
    let received = received.filter(|event| matches!(event, Event::UserMessageReceived(_))).count();
    assert_eq!(received, (SENDERS * MESSAGES) as usize);
}
