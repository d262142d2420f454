//! Child sessions and questions between sessions, run by the engine.

use std::sync::Arc;

use segue_core::decide::OperatorCommand;
use segue_core::event::{AskOutcome, CallRequest, ChildSessionOutcome, Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowSpec, FlowStep, NewOrStoredReplyText, SpawnChildSessionRequest};
use segue_core::ids::SessionId;
use segue_engine::{Engine, Error, SessionOptions};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;
use serde_json::{Value, json};

use crate::harness::{
    ReceivedCalls, advance_ms, engine_config, load_state, read_events, send_in_background, speaker_role, turn_outcomes,
};

/// Starts one child for each word of the message, and replies when all have ended.
fn parent_flow() -> Arc<dyn DynFlow> {
    let mut spec = FlowSpec::new("parent", "starts children").with_role(speaker_role());
    spec.child_flows.insert("worker".into());
    Arc::new(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let turn = view.session.current_turn.as_ref().expect("a turn has started");
            let text = view.read_text(turn.messages[0].text);
            text.split_whitespace().map(|word| FlowStep::Spawn(request(word))).collect()
        }
        Event::ChildEnded { .. } if view.session.open_children.is_empty() && view.session.current_turn.is_some() => {
            let text = NewOrStoredReplyText::New("all children have ended".to_owned());
            vec![FlowStep::Reply { text, role: None, call: None }, FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }))
}

fn request(key: &str) -> SpawnChildSessionRequest {
    SpawnChildSessionRequest {
        flow: "worker".into(),
        key: key.to_owned(),
        title: None,
        settings: Value::Null,
        message: format!("work on {key}"),
        wait_ms: 600_000,
        allotment: None,
    }
}

/// Calls the model once, and closes with its answer as the result. Answers questions about its progress.
fn worker_flow() -> Arc<dyn DynFlow> {
    let mut spec = FlowSpec::new("worker", "does one thing").with_role(speaker_role());
    spec.ask_topics.insert("progress".to_owned(), "how far the work is".to_owned());
    Arc::new(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
        Event::CallAnswered(answered) => vec![
            FlowStep::SetResult(json!({ "text": &*view.read_text(answered.text) })),
            FlowStep::EndTurn(TurnOutcome::Done),
            FlowStep::CloseSession { reason: "the work is done".to_owned() },
        ],
        Event::AskReceived(received) => {
            vec![FlowStep::AnswerAsk { ask: received.ask, reply: Ok(json!("half")) }]
        }
        _ => Vec::new(),
    }))
}

/// Asks the session that the message names about its progress.
fn asking_flow() -> Arc<dyn DynFlow> {
    let spec = FlowSpec::new("asking", "asks another session").with_role(speaker_role());
    Arc::new(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let turn = view.session.current_turn.as_ref().expect("a turn has started");
            let to = SessionId::from(&*view.read_text(turn.messages[0].text));
            vec![FlowStep::Ask { to, topic: "progress".into(), body: Value::Null, wait_ms: 60_000 }]
        }
        Event::AskEnded { .. } if view.session.current_turn.is_some() => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    }))
}

async fn family_engine(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls) {
    let (mut config, calls) = engine_config(InMemoryStore::open(disk), parent_flow());
    config.flows.extend([worker_flow(), asking_flow()]);
    (Engine::start(config).await.expect("the engine starts"), calls)
}

async fn open(engine: &Engine, flow: &str, name: &str) -> SessionId {
    let options = SessionOptions { session: Some(name.into()), ..SessionOptions::default() };
    engine.open_session(&flow.into(), options).await.expect("a session opens")
}

async fn child_outcomes(engine: &Engine, session: &SessionId) -> Vec<ChildSessionOutcome> {
    let events = read_events(engine, session).await.into_iter();
    events
        .filter_map(|event| match event {
            Event::ChildEnded { outcome, .. } => Some(outcome),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn children_work_in_parallel_and_their_results_reach_the_parent() {
    let (engine, mut calls) = family_engine(&InMemoryStoreDisk::new()).await;
    let parent = open(&engine, "parent", "boss").await;
    let pending = send_in_background(&engine, &parent, "left right");
    let (one, two) = (calls.next().await, calls.next().await);
    let mut sessions = [one.metadata.session.to_string(), two.metadata.session.to_string()];
    sessions.sort();
    assert_eq!(sessions, ["boss~1", "boss~2"], "both are called before one is answered");
    two.answer("done two");
    one.answer("done one");
    assert_eq!(pending.await.expect("it lives").expect("answered").replies, ["all children have ended"]);
    let outcomes = child_outcomes(&engine, &parent).await;
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.contains(&ChildSessionOutcome::Done { result: json!({"text": "done one"}) }), "{outcomes:?}");
    assert_eq!(load_state(&engine, &parent).await.session.ledger.descendants.calls, 2, "their calls are counted");
}

#[tokio::test(start_paused = true)]
async fn r16_a_crash_leaves_neither_two_children_nor_none() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = family_engine(&disk).await;
    let parent = open(&engine, "parent", "boss").await;
    engine.send_message(&parent, "left".into()).await.expect("accepted");
    // The process ends right after the parent's commit, before or while the child starts.
    drop(calls);
    engine.shutdown().await;
    let (engine, next) = family_engine(&disk).await;
    calls = next;
    let call = calls.next().await;
    assert_eq!(call.metadata.session, "boss~1");
    call.answer("done");
    advance_ms(5_000).await;
    assert_eq!(child_outcomes(&engine, &parent).await.len(), 1);
    assert_eq!(turn_outcomes(&engine, &parent).await, [TurnOutcome::Done]);
    calls.expect_none().await;
}

#[tokio::test(start_paused = true)]
async fn r10_a_parent_that_waits_for_a_child_has_no_task_and_no_lease() {
    let disk = InMemoryStoreDisk::new();
    let (engine, mut calls) = family_engine(&disk).await;
    let parent = open(&engine, "parent", "boss").await;
    engine.send_message(&parent, "left".into()).await.expect("accepted");
    let call = calls.next().await;
    advance_ms(3_000).await;
    assert!(!engine.is_session_active(&parent), "the parent has no task while its child works");
    assert!(engine.is_session_active(&"boss~1".into()));
    // Another process can take the parent meanwhile.
    let (other, _other_calls) = family_engine(&disk).await;
    other.apply_command(&parent, OperatorCommand::Rename { title: "renamed".into() }).await.expect("accepted");
    advance_ms(3_000).await;
    call.answer("done");
    advance_ms(3_000).await;
    assert_eq!(turn_outcomes(&engine, &parent).await, [TurnOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_closes_its_children_and_their_calls_end() {
    let (engine, mut calls) = family_engine(&InMemoryStoreDisk::new()).await;
    let parent = open(&engine, "parent", "boss").await;
    engine.send_message(&parent, "left".into()).await.expect("accepted");
    let call = calls.next().await;
    engine.apply_command(&parent, OperatorCommand::Cancel { turn: None }).await.expect("accepted");
    call.wait_until_dropped().await;
    advance_ms(1_000).await;
    assert!(load_state(&engine, &"boss~1".into()).await.session.closed_reason.is_some());
    assert!(load_state(&engine, &parent).await.session.open_children.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r8_deleting_a_parent_deletes_its_children() {
    let (engine, mut calls) = family_engine(&InMemoryStoreDisk::new()).await;
    let parent = open(&engine, "parent", "boss").await;
    engine.send_message(&parent, "left right".into()).await.expect("accepted");
    let (_one, _two) = (calls.next().await, calls.next().await);
    engine.delete_session(&parent).await.expect("it is deleted");
    for session in ["boss", "boss~1", "boss~2"] {
        let error = engine.load_session(&session.into()).await.err();
        assert!(matches!(error, Some(Error::NoSuchSession(_))), "{session}: {error:?}");
    }
    let again = open(&engine, "parent", "boss").await;
    assert!(load_state(&engine, &again).await.session.open_children.is_empty(), "R5: a name inherits nothing");
}

#[tokio::test(start_paused = true)]
async fn r8_a_parent_learns_that_its_child_was_deleted() {
    let (engine, mut calls) = family_engine(&InMemoryStoreDisk::new()).await;
    let parent = open(&engine, "parent", "boss").await;
    engine.send_message(&parent, "left".into()).await.expect("accepted");
    let _call = calls.next().await;
    engine.delete_session(&"boss~1".into()).await.expect("it is deleted");
    advance_ms(1_000).await;
    assert_eq!(child_outcomes(&engine, &parent).await, [ChildSessionOutcome::Deleted]);
    assert_eq!(turn_outcomes(&engine, &parent).await, [TurnOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn r11_a_question_reaches_a_session_in_the_middle_of_its_turn() {
    let (engine, mut calls) = family_engine(&InMemoryStoreDisk::new()).await;
    let worker = open(&engine, "worker", "busy").await;
    engine.send_message(&worker, "a long task".into()).await.expect("accepted");
    let _call = calls.next().await;
    let asking = open(&engine, "asking", "curious").await;
    let report = send_in_background(&engine, &asking, "busy").await.expect("it lives").expect("answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    let ended = read_events(&engine, &asking).await.into_iter().find_map(|event| match event {
        Event::AskEnded { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert_eq!(ended, Some(AskOutcome::Answered { body: json!("half") }));
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_owner_looks_like_one_that_does_not_exist() {
    let (engine, _calls) = family_engine(&InMemoryStoreDisk::new()).await;
    open(&engine, "worker", "globex.secrets").await;
    let asking = open(&engine, "asking", "acme.curious").await;
    let mut reasons = Vec::new();
    for to in ["globex.secrets", "globex.nothing", "acme.nothing"] {
        engine.send_and_wait(&asking, to.into()).await.expect("the turn ends");
        let events = read_events(&engine, &asking).await.into_iter();
        let ended = events.filter_map(|event| match event {
            Event::AskEnded { outcome: AskOutcome::Refused { reason }, .. } => Some(reason.replace(to, "…")),
            _ => None,
        });
        reasons.push(ended.last().expect("it was refused"));
    }
    assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{reasons:?}");
    assert!(load_state(&engine, &"globex.secrets".into()).await.session.received_asks.is_empty());
}
