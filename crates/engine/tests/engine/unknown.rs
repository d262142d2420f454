//! Calls that were in flight when the process died.

use segue_core::decide::{Command, Resolution};
use segue_core::event::{Event, Outcome};
use segue_core::flow::UnknownPolicy;
use segue_core::ids::{CallId, SessionId};
use segue_engine::Engine;
use segue_store::memory::MemoryDisk;

use crate::lab::{Calls, chat_of, engine_of, events, open, outcomes, pass, speaker, state};

/// A session whose only call was in flight when the process died, on an engine that took it up.
async fn recovered(policy: UnknownPolicy) -> (Engine, Calls, SessionId) {
    let disk = MemoryDisk::new();
    let flow = || {
        let mut role = speaker();
        role.unknown = policy;
        chat_of(role)
    };
    let (one, mut calls) = engine_of(&disk, flow()).await;
    let session = open(&one).await;
    one.send(&session, "hello".into()).await.expect("accepted");
    let _call = calls.next().await;
    one.shutdown().await;
    let (two, calls) = engine_of(&disk, flow()).await;
    pass(10).await;
    (two, calls, session)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_made_again_is_made_again_and_the_journal_says_so() {
    let (engine, mut calls, session) = recovered(UnknownPolicy::Retry).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    pass(10).await;
    let unknown = events(&engine, &session).await.into_iter();
    let unknown = unknown.filter(|event| matches!(event, Event::CallUnknown { attempt: 1, .. })).count();
    assert_eq!((unknown, state(&engine, &session).await.session.ledger.total.unknown), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_a_persons_to_decide_waits_for_the_person() {
    for (how, outcome) in [(Resolution::Retry, Outcome::Done), (Resolution::Fail, failed())] {
        let (engine, mut calls, session) = recovered(UnknownPolicy::Ask).await;
        calls.none().await;
        let held: Vec<CallId> = state(&engine, &session).await.session.held().map(|(call, _)| *call).collect();
        assert_eq!(held, [CallId(1)]);
        engine.command(&session, Command::Resolve { call: CallId(1), how }).await.expect("it is decided");
        if how == Resolution::Retry {
            calls.next().await.answer("yes");
        }
        pass(10).await;
        assert_eq!(outcomes(&engine, &session).await, [outcome]);
        let again = engine.command(&session, Command::Resolve { call: CallId(1), how }).await;
        assert_eq!(again.expect_err("it was decided").code(), "not-held");
    }
}

fn failed() -> Outcome {
    Outcome::Failed { reason: "its end is not known".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_be_made_again_has_failed() {
    let (engine, mut calls, session) = recovered(UnknownPolicy::Fail).await;
    calls.none().await;
    assert_eq!(outcomes(&engine, &session).await, [failed()]);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_was_still_to_come_had_not_begun() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine_of(&disk, chat_of(speaker())).await;
    let session = open(&one).await;
    one.send(&session, "hello".into()).await.expect("accepted");
    let failure = segue_core::prompt::Failure::new(segue_core::prompt::FailureKind::RateLimit, "later");
    calls.next().await.fail_with(segue_core::prompt::Failure { retry_after_ms: Some(60_000), ..failure });
    pass(1_000).await;
    one.shutdown().await;
    let (two, mut calls) = engine_of(&disk, chat_of(speaker())).await;
    let again = calls.next().await;
    assert_eq!(again.facts.attempt, 2);
    again.answer("yes");
    pass(10).await;
    assert_eq!(state(&two, &session).await.session.ledger.total.unknown, 0);
}
