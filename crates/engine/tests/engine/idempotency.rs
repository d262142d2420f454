//! Messages that are sent again with the same idempotency key.

use segue_core::decide::OperatorCommand;
use segue_core::event::TurnOutcome;
use segue_core::ids::SessionId;
use segue_core::prompt::CallFailureKind;
use segue_engine::{Engine, Error, TurnReport, UserMessage};
use segue_store::memory::InMemoryStoreDisk;

use crate::harness::{
    ReceivedCall, ReceivedCalls, advance_ms, chat_engine, cooling_flow, engine_with_flow, load_state, open_session,
    run_turn,
};

fn message_with_key(text: &str) -> UserMessage {
    UserMessage { idempotency_key: Some("k".into()), ..UserMessage::from(text) }
}

fn send_keyed_in_background(
    engine: &Engine,
    session: &SessionId,
) -> tokio::task::JoinHandle<Result<TurnReport, Error>> {
    let (engine, session) = (engine.clone(), session.clone());
    tokio::spawn(async move { engine.send_and_wait(&session, message_with_key("hello")).await })
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_gets_the_same_report() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let first = send_keyed_in_background(&engine, &session);
    calls.next().await.answer("yes");
    let first = first.await.expect("the task does not panic").expect("it is answered");
    run_turn(&engine, &mut calls, &session, "something else", "no").await;
    let again = engine.send_and_wait(&session, message_with_key("hello, as I said")).await.expect("it was answered");
    assert_eq!(again, first);
    assert_eq!(engine.send_message(&session, message_with_key("hello")).await.expect("known").0, 1);
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_during_its_turn_gets_the_report() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, message_with_key("hello")).await.expect("accepted");
    let call = calls.next().await;
    let (one, two) = (send_keyed_in_background(&engine, &session), send_keyed_in_background(&engine, &session));
    advance_ms(10).await;
    call.answer("yes");
    let (one, two) = (one.await.expect("the task does not panic"), two.await.expect("the task does not panic"));
    assert_eq!(one.expect("it is answered").replies, ["yes"]);
    assert_eq!(two.expect("it is answered").replies, ["yes"]);
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_after_a_restart_gets_the_report_of_the_resumed_turn() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    let lost = send_keyed_in_background(&one, &session);
    let _call = calls.next().await;
    one.shutdown().await;
    lost.await.expect("the task does not panic").expect_err("it was not answered here");
    let (two, mut calls) = chat_engine(&disk).await;
    let again = send_keyed_in_background(&two, &session);
    let call = calls.next().await;
    advance_ms(10).await;
    call.answer("yes");
    let report = again.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.turn.0, report.replies, report.spent.unknown_attempts), (1, vec!["yes".to_owned()], 1));
}

/// Lets the turn of a message fail, and retries it. Returns the call of the retry.
async fn fail_and_retry_turn(engine: &Engine, calls: &mut ReceivedCalls, session: &SessionId) -> ReceivedCall {
    let first = send_keyed_in_background(engine, session);
    calls.next().await.fail(CallFailureKind::InvalidApiKey);
    let first = first.await.expect("the task does not panic").expect("it has ended");
    assert!(matches!(first.outcome, TurnOutcome::Failed { .. }), "{first:?}");
    engine.apply_command(session, OperatorCommand::Retry { turn: None }).await.expect("it is tried again");
    calls.next().await
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_after_a_retry_gets_the_last_report() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    fail_and_retry_turn(&engine, &mut calls, &session).await.answer("yes");
    advance_ms(10).await;
    let report = engine.send_and_wait(&session, message_with_key("hello")).await.expect("it was answered");
    assert_eq!((report.turn.0, report.outcome, report.replies), (2, TurnOutcome::Done, vec!["yes".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_while_another_process_resumes_the_retry_gets_its_report() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = chat_engine(&disk).await;
    let session = open_session(&one).await;
    let _call = fail_and_retry_turn(&one, &mut calls, &session).await;
    one.shutdown().await;
    let (two, mut calls) = chat_engine(&disk).await;
    let call = calls.next().await;
    let again = send_keyed_in_background(&two, &session);
    advance_ms(10).await;
    call.answer("yes");
    let report = again.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.turn.0, report.outcome, report.replies), (2, TurnOutcome::Done, vec!["yes".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_that_got_no_turn_gets_the_reason() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "first".into()).await.expect("accepted");
    let _call = calls.next().await;
    engine.send_message(&session, message_with_key("hello")).await.expect("it waits");
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it closes");
    assert_eq!(
        engine.send_and_wait(&session, message_with_key("hello")).await.expect_err("it gets no turn").code(),
        "closed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_when_a_phase_limit_expires_is_answered() {
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), cooling_flow(10_100)).await;
    let session = open_session(&engine).await;
    let first = send_keyed_in_background(&engine, &session);
    calls.next().await.answer("yes");
    first.await.expect("the task does not panic").expect("it is answered");
    // After the deadline, and before maintenance has noticed it.
    advance_ms(10_150).await;
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "hot");
    let again = tokio::time::timeout(
        std::time::Duration::from_millis(100),
        engine.send_and_wait(&session, message_with_key("hello")),
    );
    assert_eq!(again.await.expect("at once").expect("it was answered").replies, ["yes"]);
    assert_eq!(load_state(&engine, &session).await.session.phases_label(), "cold");
}
