//! What happens to a message while a turn runs.

use segue_core::event::{Event, MidTurnPolicy, TurnResult};
use segue_engine::{SessionOptions, UserMessage};
use segue_store::memory::MemoryDisk;

use crate::lab::{ask, engine, events, open, outcomes, pass, state, turn};

fn with(text: &str, busy: MidTurnPolicy) -> UserMessage {
    UserMessage { mid_turn_policy: Some(busy), ..UserMessage::from(text) }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_get_turns_of_their_own_in_their_order() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let (one, two, three) =
        (ask(&engine, &session, "one"), ask(&engine, &session, "two"), ask(&engine, &session, "three"));
    for expected in ["one", "two", "three"] {
        let asked = calls.next().await;
        assert_eq!(asked.last(), expected);
        asked.answer(&format!("to {expected}"));
    }
    for (turn, asked) in [one, two, three].into_iter().enumerate() {
        let report = asked.await.expect("it lives").expect("it is answered");
        assert_eq!((report.turn.0 as usize, report.outcome), (turn + 1, TurnResult::Done));
        assert_eq!(report.spent.answered_calls, 1, "each turn has an account of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn coalesced_messages_share_the_next_turn_and_its_report() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let opening = SessionOptions { mid_turn_policy: MidTurnPolicy::Coalesce, ..SessionOptions::default() };
    let session = engine.open_session(&"puppet".into(), opening).await.expect("it opens");
    let first = ask(&engine, &session, "one");
    let running = calls.next().await;
    let (two, three) = (ask(&engine, &session, "two"), ask(&engine, &session, "three"));
    pass(1).await;
    running.answer("to one");
    let both = calls.next().await;
    assert_eq!(both.last(), "two + three");
    both.answer("to both");
    assert_eq!(first.await.expect("it lives").expect("answered").replies, ["to one"]);
    let (two, three) = (two.await.expect("it lives"), three.await.expect("it lives"));
    let (two, three) = (two.expect("answered"), three.expect("answered"));
    assert_ne!(two.message, three.message);
    assert_eq!((two.turn, &two.replies, two.last_seq), (three.turn, &three.replies, three.last_seq));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_not_recorded_and_is_welcome_later() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let running = ask(&engine, &session, "one");
    let asked = calls.next().await;
    let refused = engine.send_message(&session, with("two", MidTurnPolicy::Reject)).await.expect_err("a turn runs");
    assert_eq!(refused.code(), "busy");
    asked.answer("to one");
    running.await.expect("it lives").expect("it is answered");
    assert_eq!(state(&engine, &session).await.session.last_ids.message.0, 1);
    let (engine_again, session_again) = (engine.clone(), session.clone());
    let welcome =
        tokio::spawn(
            async move { engine_again.send_and_wait(&session_again, with("two", MidTurnPolicy::Reject)).await },
        );
    calls.next().await.answer("to two");
    assert_eq!(welcome.await.expect("it lives").expect("it is answered").replies, ["to two"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupting_message_stops_the_turn_and_goes_before_those_that_wait() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let stopped = ask(&engine, &session, "one");
    let asked = calls.next().await;
    engine.send_message(&session, UserMessage::from("two")).await.expect("it waits");
    engine.send_message(&session, with("now", MidTurnPolicy::Interrupt)).await.expect("it is taken");
    asked.dropped().await;
    assert_eq!(stopped.await.expect("it lives").expect("it has ended").outcome, TurnResult::Interrupted);
    for expected in ["now", "two"] {
        let asked = calls.next().await;
        assert_eq!(asked.last(), expected);
        asked.answer("yes");
    }
    pass(10).await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Interrupted, TurnResult::Done, TurnResult::Done]);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_when_the_session_closes_are_told() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let running = ask(&engine, &session, "one");
    calls.next().await;
    let waits = ask(&engine, &session, "two");
    pass(1).await;
    engine.apply_command(&session, segue_core::decide::OperatorCommand::Close).await.expect("it closes");
    assert_eq!(running.await.expect("it lives").expect("it has ended").outcome, TurnResult::Cancelled);
    assert_eq!(waits.await.expect("it lives").expect_err("it gets no turn").code(), "closed");
    assert!(events(&engine, &session).await.iter().any(|event| matches!(event, Event::SessionClosed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_report_tells_of_its_own_turn_when_the_next_begins_at_once() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    turn(&engine, &mut calls, &session, "zero", "to zero").await;
    let first = ask(&engine, &session, "one");
    let asked = calls.next().await;
    let second = ask(&engine, &session, "two");
    pass(1).await;
    asked.answer("three words long");
    let report = first.await.expect("it lives").expect("it is answered");
    assert_eq!((report.turn.0, report.spent.answered_calls, report.spent.output_tokens), (2, 1, 3));
    calls.next().await.answer("short");
    assert_eq!(second.await.expect("it lives").expect("it is answered").spent.output_tokens, 1);
}
