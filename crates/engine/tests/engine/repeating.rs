//! The same message again.

use segue_core::decide::OperatorCommand;
use segue_core::event::TurnResult;
use segue_core::ids::SessionId;
use segue_core::prompt::FailureKind;
use segue_engine::{Engine, Error, TurnReport, UserMessage};
use segue_store::memory::MemoryDisk;

use crate::lab::{Asked, Calls, cooling, engine, engine_of, open, pass, state, turn};

fn keyed(text: &str) -> UserMessage {
    UserMessage { idempotency_key: Some("k".into()), ..UserMessage::from(text) }
}

fn ask(engine: &Engine, session: &SessionId) -> tokio::task::JoinHandle<Result<TurnReport, Error>> {
    let (engine, session) = (engine.clone(), session.clone());
    tokio::spawn(async move { engine.send_and_wait(&session, keyed("hello")).await })
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_again_is_the_same_message_and_its_answer_the_same_answer() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let first = ask(&engine, &session);
    calls.next().await.answer("yes");
    let first = first.await.expect("it lives").expect("it is answered");
    turn(&engine, &mut calls, &session, "something else", "no").await;
    let again = engine.send_and_wait(&session, keyed("hello, as I said")).await.expect("it was answered");
    assert_eq!(again, first);
    assert_eq!(engine.send_message(&session, keyed("hello")).await.expect("known").0, 1);
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_in_the_middle_of_the_turn_gets_its_report() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, keyed("hello")).await.expect("accepted");
    let call = calls.next().await;
    let (one, two) = (ask(&engine, &session), ask(&engine, &session));
    pass(10).await;
    call.answer("yes");
    let (one, two) = (one.await.expect("it lives"), two.await.expect("it lives"));
    assert_eq!(one.expect("it is answered").replies, ["yes"]);
    assert_eq!(two.expect("it is answered").replies, ["yes"]);
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_after_a_restart_gets_the_report_of_the_turn_that_goes_on() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let session = open(&one).await;
    let lost = ask(&one, &session);
    let _call = calls.next().await;
    one.shutdown().await;
    lost.await.expect("it lives").expect_err("it was not answered here");
    let (two, mut calls) = engine(&disk).await;
    let again = ask(&two, &session);
    let call = calls.next().await;
    pass(10).await;
    call.answer("yes");
    let report = again.await.expect("it lives").expect("it is answered");
    assert_eq!((report.turn.0, report.replies, report.spent.unknown_attempts), (1, vec!["yes".to_owned()], 1));
}

/// The turn of the message failed, and is tried again.
async fn tried_again(engine: &Engine, calls: &mut Calls, session: &SessionId) -> Asked {
    let first = ask(engine, session);
    calls.next().await.fail(FailureKind::InvalidApiKey);
    let first = first.await.expect("it lives").expect("it has ended");
    assert!(matches!(first.outcome, TurnResult::Failed { .. }), "{first:?}");
    engine.apply_command(session, OperatorCommand::Retry).await.expect("it is tried again");
    calls.next().await
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_when_the_turn_was_tried_again_gets_the_last_report() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    tried_again(&engine, &mut calls, &session).await.answer("yes");
    pass(10).await;
    let report = engine.send_and_wait(&session, keyed("hello")).await.expect("it was answered");
    assert_eq!((report.turn.0, report.outcome, report.replies), (2, TurnResult::Done, vec!["yes".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_while_another_process_takes_up_the_second_try_gets_its_report() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine(&disk).await;
    let session = open(&one).await;
    let _call = tried_again(&one, &mut calls, &session).await;
    one.shutdown().await;
    let (two, mut calls) = engine(&disk).await;
    let call = calls.next().await;
    let again = ask(&two, &session);
    pass(10).await;
    call.answer("yes");
    let report = again.await.expect("it lives").expect("it is answered");
    assert_eq!((report.turn.0, report.outcome, report.replies), (2, TurnResult::Done, vec!["yes".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_about_a_message_that_got_no_turn_is_told_why() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, "first".into()).await.expect("accepted");
    let _call = calls.next().await;
    engine.send_message(&session, keyed("hello")).await.expect("it waits");
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it closes");
    assert_eq!(engine.send_and_wait(&session, keyed("hello")).await.expect_err("it gets no turn").code(), "closed");
}

#[tokio::test(start_paused = true)]
async fn one_who_asks_again_at_the_moment_a_phase_runs_out_is_answered() {
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), cooling(10_100)).await;
    let session = open(&engine).await;
    let first = ask(&engine, &session);
    calls.next().await.answer("yes");
    first.await.expect("it lives").expect("it is answered");
    // After the deadline, and before anybody has looked.
    pass(10_150).await;
    assert_eq!(state(&engine, &session).await.session.phases_label(), "hot");
    let again =
        tokio::time::timeout(std::time::Duration::from_millis(100), engine.send_and_wait(&session, keyed("hello")));
    assert_eq!(again.await.expect("at once").expect("it was answered").replies, ["yes"]);
    assert_eq!(state(&engine, &session).await.session.phases_label(), "cold");
}
