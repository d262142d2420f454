//! Calls that were in flight when the process died.

use segue_core::decide::{OperatorCommand, UnknownCallResolution};
use segue_core::event::{Event, TurnResult};
use segue_core::flow::UnknownOutcomePolicy;
use segue_core::ids::{CallId, SessionId};
use segue_engine::Engine;
use segue_store::memory::MemoryDisk;

use crate::lab::{Calls, chat_of, engine_of, events, open, outcomes, pass, speaker, state};

/// A session whose only call was in flight when the process died, on an engine that took it up.
async fn recovered(policy: UnknownOutcomePolicy) -> (Engine, Calls, SessionId) {
    let disk = MemoryDisk::new();
    let flow = || {
        let mut role = speaker();
        role.unknown_outcome = policy;
        chat_of(role)
    };
    let (one, mut calls) = engine_of(&disk, flow()).await;
    let session = open(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    one.shutdown().await;
    let (two, calls) = engine_of(&disk, flow()).await;
    pass(10).await;
    (two, calls, session)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_made_again_is_made_again_and_the_journal_says_so() {
    let (engine, mut calls, session) = recovered(UnknownOutcomePolicy::Retry).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    pass(10).await;
    let unknown = events(&engine, &session).await.into_iter();
    let unknown = unknown.filter(|event| matches!(event, Event::CallOutcomeUnknown { attempt: 1, .. })).count();
    assert_eq!((unknown, state(&engine, &session).await.session.ledger.total.unknown_attempts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_a_persons_to_decide_waits_for_the_person() {
    for (how, outcome) in [(UnknownCallResolution::Retry, TurnResult::Done), (UnknownCallResolution::Fail, failed())] {
        let (engine, mut calls, session) = recovered(UnknownOutcomePolicy::AskOperator).await;
        calls.none().await;
        let held: Vec<CallId> =
            state(&engine, &session).await.session.calls_awaiting_operator().map(|(call, _)| *call).collect();
        assert_eq!(held, [CallId(1)]);
        engine
            .apply_command(&session, OperatorCommand::Resolve { call: CallId(1), resolution: how })
            .await
            .expect("it is decided");
        if how == UnknownCallResolution::Retry {
            calls.next().await.answer("yes");
        }
        pass(10).await;
        assert_eq!(outcomes(&engine, &session).await, [outcome]);
        let again = engine.apply_command(&session, OperatorCommand::Resolve { call: CallId(1), resolution: how }).await;
        assert_eq!(again.expect_err("it was decided").code(), "not-held");
    }
}

fn failed() -> TurnResult {
    TurnResult::Failed { reason: "its outcome is unknown".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_be_made_again_has_failed() {
    let (engine, mut calls, session) = recovered(UnknownOutcomePolicy::Fail).await;
    calls.none().await;
    assert_eq!(outcomes(&engine, &session).await, [failed()]);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_was_still_to_come_had_not_begun() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine_of(&disk, chat_of(speaker())).await;
    let session = open(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let failure = segue_core::prompt::CallFailure::new(segue_core::prompt::FailureKind::RateLimit, "later");
    calls.next().await.fail_with(segue_core::prompt::CallFailure { retry_after_ms: Some(60_000), ..failure });
    pass(1_000).await;
    one.shutdown().await;
    let (two, mut calls) = engine_of(&disk, chat_of(speaker())).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    pass(10).await;
    assert_eq!(state(&two, &session).await.session.ledger.total.unknown_attempts, 0);
}
