//! ReceivedCalls that were in flight when the process died.

use segue_core::decide::{OperatorCommand, UnknownCallOutcomeResolution};
use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::UnknownOutcomePolicy;
use segue_core::ids::{CallId, SessionId};
use segue_engine::Engine;
use segue_store::memory::InMemoryStoreDisk;

use crate::harness::{
    ReceivedCalls, advance_ms, chat_with_role, engine_with_flow, load_state, open_session, read_events, speaker_role,
    turn_outcomes,
};

/// Returns a session whose only call was in flight when its process died, on an engine that resumed it.
async fn recovered_session(policy: UnknownOutcomePolicy) -> (Engine, ReceivedCalls, SessionId) {
    let disk = InMemoryStoreDisk::new();
    let flow = || {
        let mut role = speaker_role();
        role.unknown_outcome = policy;
        chat_with_role(role)
    };
    let (one, mut calls) = engine_with_flow(&disk, flow()).await;
    let session = open_session(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    one.shutdown().await;
    let (two, calls) = engine_with_flow(&disk, flow()).await;
    advance_ms(10).await;
    (two, calls, session)
}

#[tokio::test(start_paused = true)]
async fn a_retryable_call_is_made_again_and_recorded_as_unknown() {
    let (engine, mut calls, session) = recovered_session(UnknownOutcomePolicy::Retry).await;
    let again = calls.next().await;
    assert_eq!(again.metadata.attempt, 2);
    again.answer("yes");
    advance_ms(10).await;
    let unknown = read_events(&engine, &session).await.into_iter();
    let unknown = unknown.filter(|event| matches!(event, Event::CallOutcomeUnknown { attempt: 1, .. })).count();
    assert_eq!((unknown, load_state(&engine, &session).await.session.ledger.total.unknown_attempts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_an_operator_must_resolve_waits_for_the_operator() {
    for (resolution, outcome) in
        [(UnknownCallOutcomeResolution::Retry, TurnOutcome::Done), (UnknownCallOutcomeResolution::Fail, failed())]
    {
        let (engine, mut calls, session) = recovered_session(UnknownOutcomePolicy::AskOperator).await;
        calls.expect_none().await;
        let awaiting: Vec<CallId> =
            load_state(&engine, &session).await.session.calls_awaiting_operator().map(|(call, _)| *call).collect();
        assert_eq!(awaiting, [CallId(1)]);
        engine
            .apply_command(&session, OperatorCommand::Resolve { call: CallId(1), resolution })
            .await
            .expect("it is decided");
        if resolution == UnknownCallOutcomeResolution::Retry {
            calls.next().await.answer("yes");
        }
        advance_ms(10).await;
        assert_eq!(turn_outcomes(&engine, &session).await, [outcome]);
        let again = engine.apply_command(&session, OperatorCommand::Resolve { call: CallId(1), resolution }).await;
        assert_eq!(again.expect_err("it was decided").code(), "not-held");
    }
}

fn failed() -> TurnOutcome {
    TurnOutcome::Failed { reason: "its outcome is unknown".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_be_repeated_fails() {
    let (engine, mut calls, session) = recovered_session(UnknownOutcomePolicy::Fail).await;
    calls.expect_none().await;
    assert_eq!(turn_outcomes(&engine, &session).await, [failed()]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_had_not_started_is_not_unknown() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = engine_with_flow(&disk, chat_with_role(speaker_role())).await;
    let session = open_session(&one).await;
    one.send_message(&session, "hello".into()).await.expect("accepted");
    let failure = segue_core::prompt::CallFailure::new(segue_core::prompt::CallFailureKind::RateLimit, "later");
    calls.next().await.fail_with(segue_core::prompt::CallFailure { retry_after_ms: Some(60_000), ..failure });
    advance_ms(1_000).await;
    one.shutdown().await;
    let (two, mut calls) = engine_with_flow(&disk, chat_with_role(speaker_role())).await;
    let again = calls.next().await;
    assert_eq!(again.metadata.attempt, 2);
    again.answer("yes");
    advance_ms(10).await;
    assert_eq!(load_state(&two, &session).await.session.ledger.total.unknown_attempts, 0);
}
