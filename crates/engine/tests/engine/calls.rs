//! Model calls that are cancelled, time out, fail or panic.

use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::RetryPolicy;
use segue_core::prompt::{CallFailure, CallFailureKind, StopReason};
use segue_engine::{Engine, EngineConfig};
use segue_models::{LanguageModel, ModelBackendKind, ModelDescription, ModelRegistry, ModelRequest, ReplyChunkStream};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use crate::harness::{
    advance_ms, chat_engine, chat_flow, chat_with_role, engine_config, engine_with_flow, open_session, read_events,
    run_turn, send_in_background, speaker_role, turn_outcomes,
};

#[tokio::test(start_paused = true)]
async fn cancelling_a_turn_drops_the_reply_stream() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    call.send_text("well");
    engine.apply_command(&session, OperatorCommand::Cancel { turn: None }).await.expect("it is stopped");
    call.wait_until_dropped().await;
    assert_eq!(
        pending_turn.await.expect("the task does not panic").expect("it has ended").outcome,
        TurnOutcome::Cancelled
    );
    assert_eq!(
        engine.apply_command(&session, OperatorCommand::Cancel { turn: None }).await.expect_err("nothing runs").code(),
        "nothing-runs"
    );
    assert_eq!(run_turn(&engine, &mut calls, &session, "again", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn reply_that_repeats_itself_without_end_is_cut_off() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    call.send_text("Well.\n");
    for _ in 0..400 {
        call.send_text("I am glad to help.\n");
    }
    call.wait_until_dropped().await;
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    assert!(report.replies[0].starts_with("Well.\nI am glad") && report.replies[0].len() < 5_000);
    let stop_reasons: Vec<StopReason> = read_events(&engine, &session)
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::CallAnswered(answered) => Some(answered.stop_reason),
            _ => None,
        })
        .collect();
    assert_eq!(stop_reasons, [StopReason::Repetition]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_is_dropped_and_retried() {
    let mut role = speaker_role();
    role.timeout_ms = 3_000;
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), chat_with_role(role)).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let slow = calls.next().await;
    slow.send_text("I was going to");
    slow.wait_until_dropped().await;
    assert_eq!(slow.at.elapsed(), Duration::from_secs(3));
    let again = calls.next().await;
    assert_eq!(again.metadata.attempt, 2);
    again.answer("yes");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!((report.replies, report.spent.failed_attempts), (vec!["yes".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_retried_with_doubling_waits() {
    let mut role = speaker_role();
    role.retry_policy = RetryPolicy { attempts_max: 4, backoff_ms: 1_000, backoff_ms_max: 3_000 };
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), chat_with_role(role)).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let mut before: Option<tokio::time::Instant> = None;
    for wait_ms_max in [0, 1_000, 2_000, 3_000] {
        let call = calls.next().await;
        if let Some(before) = before {
            let waited = u64::try_from((call.at - before).as_millis()).expect("short");
            assert!((wait_ms_max / 2..=wait_ms_max).contains(&waited), "{waited} of {wait_ms_max} ms");
        }
        before = Some(call.at);
        call.fail(CallFailureKind::Overload);
    }
    let report = pending_turn.await.expect("the task does not panic").expect("it has ended");
    assert_eq!(report.outcome, TurnOutcome::Failed { reason: "overloaded: requested by the test".to_owned() });
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_vendor_is_respected() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    let call = calls.next().await;
    let first = call.at;
    let retry_after_ms = Some(7_000);
    call.fail_with(CallFailure { retry_after_ms, ..CallFailure::new(CallFailureKind::RateLimit, "later") });
    let again = calls.next().await;
    assert_eq!(again.at - first, Duration::from_secs(7));
    again.answer("yes");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_retried() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "hello");
    calls.next().await.fail(CallFailureKind::InvalidApiKey);
    let report = pending_turn.await.expect("the task does not panic").expect("it has ended");
    assert!(matches!(report.outcome, TurnOutcome::Failed { .. }));
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_between_attempts_ends_with_the_turn() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let retry_after_ms = Some(60_000);
    calls
        .next()
        .await
        .fail_with(CallFailure { retry_after_ms, ..CallFailure::new(CallFailureKind::RateLimit, "later") });
    advance_ms(100).await;
    engine.apply_command(&session, OperatorCommand::Cancel { turn: None }).await.expect("it is stopped");
    calls.expect_none().await;
    assert_eq!(turn_outcomes(&engine, &session).await, [TurnOutcome::Cancelled]);
}

#[derive(Debug)]
struct PanickingModel;

impl LanguageModel for PanickingModel {
    fn stream(&self, _request: ModelRequest) -> ReplyChunkStream {
        // Does not call the panic hook, so that the test prints nothing.
        std::panic::resume_unwind(Box::new("the adapter panics"))
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelBackendKind::Vendor, label: "panicking".to_owned(), window_tokens: 100_000 }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_adapter_fails_only_its_call() {
    let disk = InMemoryStoreDisk::new();
    let (base, _calls) = engine_config(InMemoryStore::open(&disk), chat_flow());
    let models = std::sync::Arc::new(ModelRegistry::from_single_model(std::sync::Arc::new(PanickingModel)));
    let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
    let session = open_session(&engine).await;
    for _ in 0..2 {
        let report = engine.send_and_wait(&session, "hello".into()).await.expect("it has ended");
        assert!(matches!(&report.outcome, TurnOutcome::Failed { reason } if reason.contains("panicked")), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_recorded_before_the_next_starts() {
    let (engine, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    calls.next().await.fail(CallFailureKind::Network);
    let again = calls.next().await;
    let failed =
        read_events(&engine, &session).await.into_iter().filter(|event| matches!(event, Event::CallFailed { .. }));
    assert_eq!((failed.count(), again.metadata.attempt), (1, 2));
    again.answer("yes");
}
