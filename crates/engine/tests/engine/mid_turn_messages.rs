//! Messages that arrive during a turn.

use segue_core::event::{Event, MidTurnPolicy, TurnOutcome};
use segue_engine::{SessionOptions, UserMessage};
use segue_store::memory::InMemoryStoreDisk;

use crate::harness::{
    advance_ms, chat_engine, load_state, open_session, read_events, run_turn, send_in_background, turn_outcomes,
};

fn message_with_policy(text: &str, policy: MidTurnPolicy) -> UserMessage {
    UserMessage { mid_turn_policy: Some(policy), ..UserMessage::from(text) }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_get_their_own_turns_in_order() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let (one, two, three) = (
        send_in_background(&engine, &session, "one"),
        send_in_background(&engine, &session, "two"),
        send_in_background(&engine, &session, "three"),
    );
    for expected in ["one", "two", "three"] {
        let call = calls.next().await;
        assert_eq!(call.last_message(), expected);
        call.answer(&format!("to {expected}"));
    }
    for (turn, pending_turn) in [one, two, three].into_iter().enumerate() {
        let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
        assert_eq!((report.turn.0 as usize, report.outcome), (turn + 1, TurnOutcome::Done));
        assert_eq!(report.spent.answered_calls, 1, "each turn has its own totals");
    }
}

#[tokio::test(start_paused = true)]
async fn coalesced_messages_share_the_next_turn_and_its_report() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let options = SessionOptions { mid_turn_policy: MidTurnPolicy::Coalesce, ..SessionOptions::default() };
    let session = engine.open_session(&"puppet".into(), options).await.expect("it opens");
    let first = send_in_background(&engine, &session, "one");
    let running = calls.next().await;
    let (two, three) = (send_in_background(&engine, &session, "two"), send_in_background(&engine, &session, "three"));
    advance_ms(1).await;
    running.answer("to one");
    let both = calls.next().await;
    assert_eq!(both.last_message(), "two + three");
    both.answer("to both");
    assert_eq!(first.await.expect("the task does not panic").expect("answered").replies, ["to one"]);
    let (two, three) = (two.await.expect("the task does not panic"), three.await.expect("the task does not panic"));
    let (two, three) = (two.expect("answered"), three.expect("answered"));
    assert_ne!(two.message, three.message);
    assert_eq!((two.turn, &two.replies, two.last_seq), (three.turn, &three.replies, three.last_seq));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_not_recorded_and_can_be_sent_later() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let running = send_in_background(&engine, &session, "one");
    let call = calls.next().await;
    let refused = engine
        .send_message(&session, message_with_policy("two", MidTurnPolicy::Reject))
        .await
        .expect_err("a turn runs");
    assert_eq!(refused.code(), "busy");
    call.answer("to one");
    running.await.expect("the task does not panic").expect("it is answered");
    assert_eq!(load_state(&engine, &session).await.session.last_ids.message.0, 1);
    let (engine_again, session_again) = (engine.clone(), session.clone());
    let welcome = tokio::spawn(async move {
        engine_again.send_and_wait(&session_again, message_with_policy("two", MidTurnPolicy::Reject)).await
    });
    calls.next().await.answer("to two");
    assert_eq!(welcome.await.expect("the task does not panic").expect("it is answered").replies, ["to two"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupting_message_stops_the_turn_and_precedes_queued_messages() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let stopped = send_in_background(&engine, &session, "one");
    let call = calls.next().await;
    engine.send_message(&session, UserMessage::from("two")).await.expect("it waits");
    engine.send_message(&session, message_with_policy("now", MidTurnPolicy::Interrupt)).await.expect("it is accepted");
    call.wait_until_dropped().await;
    assert_eq!(
        stopped.await.expect("the task does not panic").expect("it has ended").outcome,
        TurnOutcome::Interrupted
    );
    for expected in ["now", "two"] {
        let call = calls.next().await;
        assert_eq!(call.last_message(), expected);
        call.answer("yes");
    }
    advance_ms(10).await;
    assert_eq!(
        turn_outcomes(&engine, &session).await,
        [TurnOutcome::Interrupted, TurnOutcome::Done, TurnOutcome::Done]
    );
}

#[tokio::test(start_paused = true)]
async fn queued_callers_get_an_error_when_the_session_closes() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let running = send_in_background(&engine, &session, "one");
    calls.next().await;
    let queued_turn = send_in_background(&engine, &session, "two");
    advance_ms(1).await;
    engine.apply_command(&session, segue_core::decide::OperatorCommand::Close).await.expect("it closes");
    assert_eq!(running.await.expect("the task does not panic").expect("it has ended").outcome, TurnOutcome::Cancelled);
    assert_eq!(queued_turn.await.expect("the task does not panic").expect_err("it gets no turn").code(), "closed");
    assert!(read_events(&engine, &session).await.iter().any(|event| matches!(event, Event::SessionClosed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_report_covers_only_its_own_turn() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "zero", "to zero").await;
    let first = send_in_background(&engine, &session, "one");
    let call = calls.next().await;
    let second = send_in_background(&engine, &session, "two");
    advance_ms(1).await;
    call.answer("three words long");
    let report = first.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.turn.0, report.spent.answered_calls, report.spent.output_tokens), (2, 1, 3));
    calls.next().await.answer("short");
    assert_eq!(second.await.expect("the task does not panic").expect("it is answered").spent.output_tokens, 1);
}
