//! Inputs for a session that another process holds.

use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::TurnId;
use segue_engine::{Error, InboxSubmissionProgress, UserMessage};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_store::{InboxStore as _, NewInboxSubmission};

use crate::harness::{
    advance_ms, chat_engine, load_state, open_session, read_events, run_turn, send_in_background, turn_outcomes,
};

#[tokio::test(start_paused = true)]
async fn r2_a_message_at_the_wrong_process_is_accepted_and_answered() {
    let disk = InMemoryStoreDisk::new();
    let (holder, mut calls) = chat_engine(&disk).await;
    let (other, mut other_calls) = chat_engine(&disk).await;
    let session = open_session(&holder).await;
    holder.send_message(&session, "hello".into()).await.expect("accepted");
    let first = calls.next().await;
    let pending = send_in_background(&other, &session, "me too");
    advance_ms(2_000).await;
    assert_eq!(load_state(&holder, &session).await.session.queued_messages.len(), 1, "the holder has recorded it");
    first.answer("yes");
    let second = calls.next().await;
    assert_eq!(second.last_message(), "me too");
    second.answer("and you");
    let report = pending.await.expect("the task lives").expect("it is answered");
    assert_eq!(report.replies, ["and you"]);
    other_calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn r9_a_cancel_at_the_wrong_process_names_its_turn() {
    let disk = InMemoryStoreDisk::new();
    let (holder, mut calls) = chat_engine(&disk).await;
    let (other, _other_calls) = chat_engine(&disk).await;
    let session = open_session(&holder).await;
    holder.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    let cancel = |turn| OperatorCommand::Cancel { turn: Some(TurnId(turn)) };
    let stale = other.apply_command(&session, cancel(7)).await.expect_err("there is no such turn");
    assert!(matches!(stale, Error::Refused(InputRefusal::StaleTurn { .. })), "{stale}");
    other.apply_command(&session, cancel(1)).await.expect("it is cancelled");
    assert_eq!(turn_outcomes(&holder, &session).await, [TurnOutcome::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn r2_a_refusal_reaches_the_submitter() {
    let disk = InMemoryStoreDisk::new();
    let (holder, mut calls) = chat_engine(&disk).await;
    let (other, _other_calls) = chat_engine(&disk).await;
    let session = open_session(&holder).await;
    holder.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    let refused = other.send_message(&session, "\u{7}".into()).await.expect_err("a control character");
    assert!(matches!(refused, Error::Refused(InputRefusal::ControlCharacter { .. })), "{refused}");
    let handled: Vec<Option<String>> = read_events(&holder, &session)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::SubmissionHandled { refusal, .. } => Some(refusal),
            _ => None,
        })
        .collect();
    assert!(matches!(&handled[..], [Some(_)]), "{handled:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_message_with_a_known_key_is_received_once_by_either_way() {
    let disk = InMemoryStoreDisk::new();
    let (holder, mut calls) = chat_engine(&disk).await;
    let (other, _other_calls) = chat_engine(&disk).await;
    let session = open_session(&holder).await;
    let keyed = || UserMessage { idempotency_key: Some("once".into()), ..UserMessage::from("hello") };
    let first = holder.send_message(&session, keyed()).await.expect("accepted");
    let _call = calls.next().await;
    let repeated = other.send_message(&session, keyed()).await.expect("accepted");
    assert_eq!(first, repeated);
    assert_eq!(load_state(&holder, &session).await.session.last_ids.message, first);
}

#[tokio::test(start_paused = true)]
async fn r4_an_entry_is_pending_work_by_itself() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "one", "to one").await;
    // The session is parked and its lease released when a process that then dies submits.
    advance_ms(2_000).await;
    let store = InMemoryStore::open(&disk);
    let message = segue_core::decide::InboxSubmission::Message {
        text: "two".into(),
        idempotency_key: None,
        mid_turn_policy: None,
        images: Vec::new(),
    };
    let entry = NewInboxSubmission {
        id: segue_core::ids::SubmissionId(5),
        at: engine.now(),
        bytes: serde_json::to_vec(&message).expect("it can be written"),
        exempt_from_limit: false,
    };
    store.submit(&session, None, entry).await.expect("submitted");
    let call = calls.next().await;
    assert_eq!(call.last_message(), "two");
    let result = engine.submission_result(&session, segue_core::ids::SubmissionId(5)).await.expect("handled");
    assert!(matches!(result, InboxSubmissionProgress::Accepted(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_no_submission_is_refused_and_kept_in_the_journal() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = chat_engine(&disk).await;
    let session = open_session(&engine).await;
    let store = InMemoryStore::open(&disk);
    let id = segue_core::ids::SubmissionId(9);
    let entry = NewInboxSubmission { id, at: engine.now(), bytes: b"nonsense".to_vec(), exempt_from_limit: false };
    store.submit(&session, None, entry).await.expect("submitted");
    run_turn(&engine, &mut calls, &session, "hello", "yes").await;
    advance_ms(1_000).await;
    let refused = engine.submission_result(&session, id).await.expect_err("it is refused");
    assert!(matches!(refused, Error::Refused(InputRefusal::UnusableSubmission(_))), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_a_holder_that_died_is_handled_by_the_submitter() {
    let disk = InMemoryStoreDisk::new();
    let (holder, mut calls) = chat_engine(&disk).await;
    let session = open_session(&holder).await;
    holder.send_message(&session, "hello".into()).await.expect("accepted");
    calls.next().await.answer("yes");
    holder.send_message(&session, "again".into()).await.expect("accepted");
    let hanging = calls.next().await;
    let (other, mut other_calls) = chat_engine(&disk).await;
    let pending = send_in_background(&other, &session, "me too");
    advance_ms(100).await;
    drop(hanging);
    holder.shutdown().await;
    other_calls.next().await.answer("to again");
    other_calls.next().await.answer("to you");
    assert_eq!(pending.await.expect("the task lives").expect("it is answered").replies, ["to you"]);
}
