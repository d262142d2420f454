//! Flows that panic, loop, are invalid or are missing.

use std::sync::Arc;

use segue_core::event::{Event, RecordedEvent, TurnOutcome};
use segue_core::flow::{DynFlow, FlowStep, RoleSpec};
use segue_core::scope::Scope;
use segue_engine::Engine;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use crate::harness::{
    advance_ms, engine_config, engine_with_flow, load_state, open_session, read_events, run_turn, send_in_background,
    speaker_role, turn_outcomes,
};

/// A chat that runs `fault` on texts that contain "go wrong".
fn faulty_chat(fault: fn() -> Vec<FlowStep>) -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(speaker_role()), move |view, recorded: &RecordedEvent| {
        let text = match &recorded.event {
            Event::CallAnswered(answered) => view.read_text(answered.text).to_string(),
            Event::UserMessageReceived(message) => view.read_text(message.text).to_string(),
            // The fact keeps the loop going.
            Event::FlowFactRecorded { kind, .. } => kind.clone(),
            _ => String::new(),
        };
        if text.contains("go wrong") { fault() } else { ClosureFlow::react_as_chat(view, recorded) }
    }))
}

fn panics() -> Vec<FlowStep> {
    // Does not call the panic hook, so that the test prints nothing.
    std::panic::resume_unwind(Box::new("the flow panics"))
}

fn loops() -> Vec<FlowStep> {
    vec![FlowStep::RecordFact { kind: "go wrong".to_owned(), value: serde_json::Value::Null }]
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_fails_on_an_answer_fails_the_turn_and_the_answer_is_kept() {
    for fault in [panics, loops] {
        let disk = InMemoryStoreDisk::new();
        let (engine, mut calls) = engine_with_flow(&disk, faulty_chat(fault)).await;
        let session = open_session(&engine).await;
        let pending_turn = send_in_background(&engine, &session, "hello");
        let call = calls.next().await;
        let queued_turn = send_in_background(&engine, &session, "and then?");
        advance_ms(1).await;
        call.answer("now go wrong");
        let report = pending_turn.await.expect("the task does not panic").expect("it has ended");
        assert!(matches!(report.outcome, TurnOutcome::Failed { .. }), "{report:?}");
        assert_eq!(report.spent.answered_calls, 1, "the answer is paid for");
        assert!(disk.contains_text("now go wrong"), "and recorded");
        calls.next().await.answer("all is well");
        assert_eq!(
            queued_turn.await.expect("the task does not panic").expect("it is answered").replies,
            ["all is well"]
        );
        assert!(load_state(&engine, &session).await.session.is_idle());
        calls.expect_none().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_on_which_the_flow_fails_is_refused_and_not_recorded() {
    for (fault, code) in [(panics as fn() -> Vec<FlowStep>, "flow-panicked"), (loops, "too-many-steps")] {
        let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), faulty_chat(fault)).await;
        let session = open_session(&engine).await;
        let before = read_events(&engine, &session).await;
        let error = engine.send_message(&session, "please go wrong".into()).await.expect_err("it is refused");
        assert_eq!(error.code(), code);
        assert_eq!(read_events(&engine, &session).await, before);
        assert_eq!(run_turn(&engine, &mut calls, &session, "hello", "yes").await.replies, ["yes"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_fails_can_be_cancelled() {
    // It fails at the end of a turn, too.
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(speaker_role()), |view, recorded| match &recorded.event {
        Event::TurnEnded { .. } => panics(),
        _ => ClosureFlow::react_as_chat(view, recorded),
    });
    let (engine, mut calls) = engine_with_flow(&InMemoryStoreDisk::new(), Arc::new(flow)).await;
    let session = open_session(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    engine
        .apply_command(&session, segue_core::decide::OperatorCommand::Cancel { turn: None })
        .await
        .expect("it is stopped");
    call.wait_until_dropped().await;
    assert_eq!(turn_outcomes(&engine, &session).await, [TurnOutcome::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_flow_is_refused_at_the_start() {
    let spec = ClosureFlow::spec_with_role(RoleSpec::new("speaker", Scope::per_session()).with_tool("nothing"));
    let (config, _calls) =
        engine_config(InMemoryStore::with_own_disk(), Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat)));
    let error = Engine::start(config).await.expect_err("it is invalid");
    assert_eq!(error.code(), "invalid-flow");
    assert!(error.to_string().contains("there is no tool `nothing`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_flow_is_named() {
    let disk = InMemoryStoreDisk::new();
    let (one, _calls) = engine_with_flow(&disk, faulty_chat(panics)).await;
    let session = open_session(&one).await;
    one.shutdown().await;
    let (base, _calls) = engine_config(InMemoryStore::open(&disk), Arc::new(segue_flows::chat::ChatFlow::new()));
    let two = Engine::start(base).await.expect("it starts");
    let error = two.send_message(&session, "hello".into()).await.expect_err("its flow is not there");
    assert_eq!(error.code(), "no-such-flow");
    assert!(error.to_string().contains("`puppet`"), "{error}");
}
