//! Sessions at rest: what they cost, who may take them, and the way back to work.

use std::sync::Arc;

use segue_core::decide::OperatorCommand;
use segue_core::event::Event;
use segue_engine::limits::SNAPSHOT_EVENTS_MIN;
use segue_engine::{Engine, Error, UserMessage};
use segue_store::memory::{MemoryDisk, MemoryStore};

use crate::lab::{chat, engine, events, open, open_as, pass, setup, state, turn};

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn sessions_at_rest_cost_no_task() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    pass(1).await;
    let none = tasks();
    for number in 0..50 {
        let session = open_as(&engine, &format!("s{number}")).await;
        turn(&engine, &mut calls, &session, "hello", "yes").await;
    }
    pass(1).await;
    assert_eq!(tasks(), none, "only the engine's own task is left");
    let session = "s7".into();
    assert_eq!(turn(&engine, &mut calls, &session, "again", "of course").await.replies, ["of course"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_use_is_not_another_processs_to_write() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let (other, _) = engine(&disk).await;
    let session = open(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    let error = other.send_message(&session, "me too".into()).await.expect_err("it is in use");
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    call.answer("yes");
    pass(1).await;
    assert_eq!(state(&other, &session).await.session.last_ids.message.0, 1, "and nothing of it is recorded");
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_is_given_back_and_taken_up_elsewhere_and_here_again() {
    let disk = MemoryDisk::new();
    let (one, mut calls_one) = engine(&disk).await;
    let (other, mut calls_other) = engine(&disk).await;
    let session = open(&one).await;
    turn(&one, &mut calls_one, &session, "one", "to one").await;
    pass(2_000).await;
    turn(&other, &mut calls_other, &session, "two", "to two").await;
    pass(2_000).await;
    let asked = crate::lab::ask(&one, &session, "three");
    let call = calls_one.next().await;
    let shown: Vec<String> = call.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["one", "to one", "two", "to two", "three"], "what was said elsewhere is known here");
    call.answer("to three");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").turn.0, 3);
}

#[tokio::test(start_paused = true)]
async fn another_session_of_the_same_name_and_length_is_not_mistaken_for_the_old_one() {
    let disk = MemoryDisk::new();
    let (one, mut calls_one) = engine(&disk).await;
    let (other, mut calls_other) = engine(&disk).await;
    let session = open(&one).await;
    turn(&one, &mut calls_one, &session, "secret", "I keep it").await;
    pass(2_000).await;
    other.delete_session(&session).await.expect("it is deleted");
    open(&other).await;
    turn(&other, &mut calls_other, &session, "hello", "yes").await;
    pass(2_000).await;
    let _asked = crate::lab::ask(&one, &session, "what did I say?");
    let call = calls_one.next().await;
    assert!(call.prompt.messages.iter().all(|message| !message.text().contains("secret")), "{:?}", call.prompt);
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_process_left_undone_is_taken_up_by_one_that_lives() {
    let disk = MemoryDisk::new();
    let dying = Arc::new(MemoryStore::open(&disk));
    let (mut base, mut calls) = setup(MemoryStore::open(&disk), chat());
    base.store = dying.clone();
    let engine_dying = Engine::start(base).await.expect("it starts");
    let (_alive, mut calls_alive) = engine(&disk).await;
    let session = open(&engine_dying).await;
    engine_dying.send_message(&session, "hello".into()).await.expect("accepted");
    let _lost = calls.next().await;
    dying.kill();
    let taken_up = calls_alive.next().await;
    assert_eq!((taken_up.facts.session.clone(), taken_up.facts.attempt), (session, 2));
}

#[tokio::test(start_paused = true)]
async fn what_another_process_left_undone_is_taken_up_where_the_session_was_known_before() {
    let disk = MemoryDisk::new();
    let (here, mut calls_here) = engine(&disk).await;
    let (other, mut calls_other) = engine(&disk).await;
    let session = open(&here).await;
    turn(&here, &mut calls_here, &session, "one", "to one").await;
    pass(2_000).await;
    other.send_message(&session, "two".into()).await.expect("it was given back");
    let _unanswered = calls_other.next().await;
    other.shutdown().await;
    let taken_up = calls_here.next().await;
    assert_eq!((taken_up.facts.attempt, taken_up.last()), (2, "two".to_owned()));
    taken_up.answer("to two");
    pass(10).await;
    assert!(state(&here, &session).await.session.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_long_session_opens_from_its_snapshot_as_it_was() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let session = open(&one).await;
    while state(&one, &session).await.session.last_seq.0 < SNAPSHOT_EVENTS_MIN + 10 {
        for number in 0..40 {
            let title = format!("title {number}");
            one.apply_command(&session, OperatorCommand::Rename { title }).await.expect("renamed");
        }
        turn(&one, &mut calls, &session, "hello", "yes").await;
    }
    pass(10).await;
    let store = MemoryStore::open(&disk);
    let snapshot = segue_store::Store::load_snapshot(&store, &session).await.expect("it can be read");
    let snapshot = snapshot.expect("one was kept");
    let (_, folded) =
        one.load_session_at(&session, state(&one, &session).await.session.last_seq).await.expect("it can be read");
    assert!(snapshot.seq.0 >= SNAPSHOT_EVENTS_MIN);
    assert_eq!(state(&one, &session).await.session, folded.session, "snapshot and rest are the fold of all");
    one.shutdown().await;
    let (later, mut calls) = engine(&disk).await;
    assert_eq!(turn(&later, &mut calls, &session, "still there?", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn two_who_open_the_same_name_and_send_at_once_do_not_get_in_each_others_way() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let ensure = |text: &'static str| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let opening = segue_engine::SessionOptions { session: Some("s".into()), ..Default::default() };
            match engine.open_session(&"puppet".into(), opening).await {
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
    for asked in [one, two] {
        assert_eq!(asked.await.expect("it lives").expect("it is answered").replies, ["yes"]);
    }
}

/// On several threads, with time as it is: going to rest and being woken happen at the same moment again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_senders_at_once_lose_nothing() {
    const SENDERS: u32 = 8;
    const MESSAGES: u32 = 25;
    let (base, mut calls) = setup(MemoryStore::open(&MemoryDisk::new()), chat());
    let engine = Engine::start(base).await.expect("it starts");
    let session = open(&engine).await;
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
        sender.await.expect("it lives");
    }
    model.await.expect("it lives");
    let received = events(&engine, &session).await.into_iter();
    let received = received.filter(|event| matches!(event, Event::UserMessageReceived(_))).count();
    assert_eq!(received, (SENDERS * MESSAGES) as usize);
}
