//! Calls to models: stopped, late, failing, broken.

use std::time::Duration;

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnResult};
use segue_core::flow::RetryPolicy;
use segue_core::prompt::{CallFailure, FailureKind};
use segue_engine::{Engine, EngineConfig};
use segue_models::{LanguageModel, ModelDescription, ModelRegistry, ModelRequest, ModelSource, ReplyChunkStream};
use segue_store::memory::{MemoryDisk, MemoryStore};

use crate::lab::{ask, chat, chat_of, engine, engine_of, events, open, outcomes, pass, setup, speaker, turn};

#[tokio::test(start_paused = true)]
async fn cancelling_a_turn_drops_the_models_stream() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let call = calls.next().await;
    call.say("well");
    engine.apply_command(&session, OperatorCommand::Cancel).await.expect("it is stopped");
    call.dropped().await;
    assert_eq!(asked.await.expect("it lives").expect("it has ended").outcome, TurnResult::Cancelled);
    assert_eq!(
        engine.apply_command(&session, OperatorCommand::Cancel).await.expect_err("nothing runs").code(),
        "nothing-runs"
    );
    assert_eq!(turn(&engine, &mut calls, &session, "again", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_in_time_is_dropped_and_tried_again() {
    let mut role = speaker();
    role.timeout_ms = 3_000;
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), chat_of(role)).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let slow = calls.next().await;
    slow.say("I was going to");
    slow.dropped().await;
    assert_eq!(slow.at.elapsed(), Duration::from_secs(3));
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    let report = asked.await.expect("it lives").expect("it is answered");
    assert_eq!((report.replies, report.spent.failed_attempts), (vec!["yes".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_passing_failure_is_tried_again_after_waits_that_double() {
    let mut role = speaker();
    role.retry_policy = RetryPolicy { attempts_max: 4, backoff_ms: 1_000, backoff_ms_max: 3_000 };
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), chat_of(role)).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let mut before: Option<tokio::time::Instant> = None;
    for most_ms in [0, 1_000, 2_000, 3_000] {
        let call = calls.next().await;
        if let Some(before) = before {
            let waited = u64::try_from((call.at - before).as_millis()).expect("short");
            assert!((most_ms / 2..=most_ms).contains(&waited), "{waited} of {most_ms} ms");
        }
        before = Some(call.at);
        call.fail(FailureKind::Overload);
    }
    let report = asked.await.expect("it lives").expect("it has ended");
    assert_eq!(report.outcome, TurnResult::Failed { reason: "overloaded: as the test wants".to_owned() });
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_says_when_to_come_back_is_not_asked_before() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    let call = calls.next().await;
    let first = call.at;
    let retry_after_ms = Some(7_000);
    call.fail_with(CallFailure { retry_after_ms, ..CallFailure::new(FailureKind::RateLimit, "later") });
    let again = calls.next().await;
    assert_eq!(again.at - first, Duration::from_secs(7));
    again.answer("yes");
    asked.await.expect("it lives").expect("it is answered");
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_not_tried_again() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    let asked = ask(&engine, &session, "hello");
    calls.next().await.fail(FailureKind::InvalidApiKey);
    let report = asked.await.expect("it lives").expect("it has ended");
    assert!(matches!(report.outcome, TurnResult::Failed { .. }));
    calls.none().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_between_tries_ends_with_the_turn() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let retry_after_ms = Some(60_000);
    calls.next().await.fail_with(CallFailure { retry_after_ms, ..CallFailure::new(FailureKind::RateLimit, "later") });
    pass(100).await;
    engine.apply_command(&session, OperatorCommand::Cancel).await.expect("it is stopped");
    calls.none().await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Cancelled]);
}

#[derive(Debug)]
struct Breaks;

impl LanguageModel for Breaks {
    fn stream(&self, _request: ModelRequest) -> ReplyChunkStream {
        // No hook is told of it, so the test is quiet.
        std::panic::resume_unwind(Box::new("the adapter breaks down"))
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelSource::Vendor, label: "breaks".to_owned(), window_tokens: 100_000 }
    }
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_breaks_down_fails_its_call_and_nothing_else() {
    let disk = MemoryDisk::new();
    let (base, _calls) = setup(MemoryStore::open(&disk), chat());
    let models = std::sync::Arc::new(ModelRegistry::from_single_model(std::sync::Arc::new(Breaks)));
    let engine = Engine::start(EngineConfig { models, ..base }).await.expect("it starts");
    let session = open(&engine).await;
    for _ in 0..2 {
        let report = engine.send_and_wait(&session, "hello".into()).await.expect("it has ended");
        assert!(
            matches!(&report.outcome, TurnResult::Failed { reason } if reason.contains("broke down")),
            "{report:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_try_is_in_the_journal_before_the_next_begins() {
    let (engine, mut calls) = engine(&MemoryDisk::new()).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    calls.next().await.fail(FailureKind::Network);
    let again = calls.next().await;
    let failed = events(&engine, &session).await.into_iter().filter(|event| matches!(event, Event::CallFailed { .. }));
    assert_eq!((failed.count(), again.facts.attempt), (1, 2));
    again.answer("yes");
}
