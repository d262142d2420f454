//! Flows that are wrong.

use std::sync::Arc;

use segue_core::event::{Event, RecordedEvent, TurnResult};
use segue_core::flow::{DynFlow, FlowStep, RoleSpec};
use segue_core::scope::Scope;
use segue_engine::Engine;
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::ClosureFlow;

use crate::lab::{ask, engine_of, events, open, outcomes, pass, setup, speaker, state, turn};

/// A chat that goes wrong over an answer that says so, and over a message that does.
fn fragile(wrong: fn() -> Vec<FlowStep>) -> Arc<dyn DynFlow> {
    Arc::new(ClosureFlow::new(ClosureFlow::spec_with_role(speaker()), move |view, recorded: &RecordedEvent| {
        let words = match &recorded.event {
            Event::CallAnswered(answered) => view.read_text(answered.text).to_string(),
            Event::UserMessageReceived(message) => view.read_text(message.text).to_string(),
            // Once it goes round, it goes round.
            Event::FlowFactRecorded { kind, .. } => kind.clone(),
            _ => String::new(),
        };
        if words.contains("go wrong") { wrong() } else { ClosureFlow::react_as_chat(view, recorded) }
    }))
}

fn breaks() -> Vec<FlowStep> {
    // No hook is told of it, so the test is quiet.
    std::panic::resume_unwind(Box::new("the flow breaks down"))
}

fn loops() -> Vec<FlowStep> {
    vec![FlowStep::RecordFact { kind: "go wrong".to_owned(), value: serde_json::Value::Null }]
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_goes_wrong_over_an_answer_fails_the_turn_and_the_answer_is_kept() {
    for wrong in [breaks, loops] {
        let disk = MemoryDisk::new();
        let (engine, mut calls) = engine_of(&disk, fragile(wrong)).await;
        let session = open(&engine).await;
        let asked = ask(&engine, &session, "hello");
        let call = calls.next().await;
        let waits = ask(&engine, &session, "and then?");
        pass(1).await;
        call.answer("now go wrong");
        let report = asked.await.expect("it lives").expect("it has ended");
        assert!(matches!(report.outcome, TurnResult::Failed { .. }), "{report:?}");
        assert_eq!(report.spent.answered_calls, 1, "what was paid for is on the bill");
        assert!(disk.contains_text("now go wrong"), "and in the journal");
        calls.next().await.answer("all is well");
        assert_eq!(waits.await.expect("it lives").expect("it is answered").replies, ["all is well"]);
        assert!(state(&engine, &session).await.session.is_idle());
        calls.none().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_goes_wrong_over_a_message_refuses_it_and_nothing_is_recorded() {
    for (wrong, code) in [(breaks as fn() -> Vec<FlowStep>, "broken-flow"), (loops, "too-many-steps")] {
        let (engine, mut calls) = engine_of(&MemoryDisk::new(), fragile(wrong)).await;
        let session = open(&engine).await;
        let before = events(&engine, &session).await;
        let error = engine.send_message(&session, "please go wrong".into()).await.expect_err("it is refused");
        assert_eq!(error.code(), code);
        assert_eq!(events(&engine, &session).await, before);
        assert_eq!(turn(&engine, &mut calls, &session, "hello", "yes").await.replies, ["yes"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_goes_wrong_can_be_stopped() {
    // It goes wrong over the end of a turn, too.
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(speaker()), |view, recorded| match &recorded.event {
        Event::TurnEnded { .. } => breaks(),
        _ => ClosureFlow::react_as_chat(view, recorded),
    });
    let (engine, mut calls) = engine_of(&MemoryDisk::new(), Arc::new(flow)).await;
    let session = open(&engine).await;
    engine.send_message(&session, "hello".into()).await.expect("accepted");
    let call = calls.next().await;
    engine.apply_command(&session, segue_core::decide::OperatorCommand::Cancel).await.expect("it is stopped");
    call.dropped().await;
    assert_eq!(outcomes(&engine, &session).await, [TurnResult::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_data_is_wrong_is_refused_at_the_start() {
    let spec = ClosureFlow::spec_with_role(RoleSpec::new("speaker", Scope::per_session()).with_tool("nothing"));
    let (setup, _calls) =
        setup(MemoryStore::with_own_disk(), Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat)));
    let error = Engine::start(setup).await.expect_err("it has faults");
    assert_eq!(error.code(), "faulty-flow");
    assert!(error.to_string().contains("there is no tool `nothing`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_gone_is_named() {
    let disk = MemoryDisk::new();
    let (one, _calls) = engine_of(&disk, fragile(breaks)).await;
    let session = open(&one).await;
    one.shutdown().await;
    let (base, _calls) = setup(MemoryStore::open(&disk), Arc::new(segue_flows::chat::ChatFlow::new()));
    let two = Engine::start(base).await.expect("it starts");
    let error = two.send_message(&session, "hello".into()).await.expect_err("its flow is not there");
    assert_eq!(error.code(), "no-such-flow");
    assert!(error.to_string().contains("`puppet`"), "{error}");
}
