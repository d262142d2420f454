//! Workspaces: they open when they are first asked, and grant claims in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_core::decide::OperatorCommand;
use segue_core::event::{AskOutcome, Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowSpec, FlowStep, NewOrStoredReplyText};
use segue_core::ids::SessionId;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, Error, SessionOptions, UserMessage};
use segue_flows::workspace::WorkspaceFlow;
use segue_flows::workspace::requests::{LessonQuery, LessonToAdd, WorkspaceSessionRequest, workspace_session};
use segue_store::SessionQuery;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use crate::harness::{advance_ms, engine_config, load_state, send_in_background, speaker_role};

/// Asks its workspace what a message says, and replies with the outcome. A claim is kept when the turn ends.
fn client_flow() -> Arc<dyn DynFlow> {
    let spec = FlowSpec::new("client", "asks its workspace").with_role(speaker_role());
    Arc::new(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let turn = view.session.current_turn.as_ref().expect("a turn has started");
            let text = view.read_text(turn.messages[0].text);
            let own_name = view.session.id.as_ref().expect("it is open");
            let workspace = workspace_session(own_name, "shop").expect("the name is valid");
            let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
            let request = match word {
                "learn" => WorkspaceSessionRequest::LessonAdd(LessonToAdd {
                    agent: "coder".to_owned(),
                    title: rest.to_owned(),
                    text: rest.to_owned(),
                }),
                "lessons" => WorkspaceSessionRequest::Lessons(LessonQuery::default()),
                "claim" => return vec![FlowStep::Claim { workspace, name: rest.to_owned(), wait_ms: 3_600_000 }],
                _ => {
                    let released = FlowStep::ReleaseClaim { reason: "done".to_owned() };
                    return vec![released, FlowStep::EndTurn(TurnOutcome::Done)];
                }
            };
            vec![request.into_step(workspace, 60_000)]
        }
        Event::AskEnded { outcome, .. } if view.session.current_turn.is_some() => {
            let text = match outcome {
                AskOutcome::Answered { body } => body.to_string(),
                other => format!("{other:?}"),
            };
            let reply = FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None };
            vec![reply, FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }))
}

async fn workspace_engine(disk: &InMemoryStoreDisk) -> Engine {
    let (config, calls) = engine_config(InMemoryStore::open(disk), client_flow());
    drop(calls);
    let flows = [config.flows, vec![Arc::new(WorkspaceFlow::new())]].concat();
    // Processes choose different ids for what they submit.
    static PROCESSES: AtomicU64 = AtomicU64::new(100);
    let random = RandomSource::from_seed(PROCESSES.fetch_add(1, Ordering::Relaxed));
    Engine::start(EngineConfig { flows, random, ..config }).await.expect("the engine starts")
}

async fn open(engine: &Engine, name: &str) -> SessionId {
    let options = SessionOptions { session: Some(name.into()), ..SessionOptions::default() };
    engine.open_session(&"client".into(), options).await.expect("a session opens")
}

async fn ask(engine: &Engine, session: &SessionId, text: &str) -> String {
    let report = engine.send_and_wait(session, UserMessage::from(text)).await.expect("it is answered");
    assert_eq!(report.outcome, TurnOutcome::Done);
    report.replies.concat()
}

async fn workspaces(engine: &Engine) -> Vec<String> {
    let query = SessionQuery { flows: vec!["workspace".to_owned()], ..SessionQuery::newest(10) };
    let page = engine.list_sessions(&query).await.expect("it can be listed");
    let mut names: Vec<String> = page.entries.iter().map(|entry| entry.session.to_string()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn workspace_opens_when_it_is_first_asked_and_outlives_its_sessions() {
    let disk = InMemoryStoreDisk::new();
    let engine = workspace_engine(&disk).await;
    let first = open(&engine, "first").await;
    assert_eq!(workspaces(&engine).await, [""; 0]);
    assert_eq!(ask(&engine, &first, "learn look twice").await, r#"{"is_new":true,"lessons":1}"#);
    assert_eq!(workspaces(&engine).await, ["shop~workspace"]);
    engine.delete_session(&first).await.expect("it is deleted");
    engine.shutdown().await;
    let engine = workspace_engine(&disk).await;
    let second = open(&engine, "second").await;
    let lessons = ask(&engine, &second, "lessons").await;
    assert!(lessons.contains("look twice"), "{lessons}");
    assert_eq!(workspaces(&engine).await, ["shop~workspace"]);
}

#[tokio::test(start_paused = true)]
async fn two_processes_that_ask_at_once_open_one_workspace() {
    let disk = InMemoryStoreDisk::new();
    let (left, right) = (workspace_engine(&disk).await, workspace_engine(&disk).await);
    let (first, second) = (open(&left, "first").await, open(&right, "second").await);
    let (one, two) = tokio::join!(ask(&left, &first, "learn one"), ask(&right, &second, "learn two"));
    let mut counts = [one, two];
    counts.sort();
    assert_eq!(counts, [r#"{"is_new":true,"lessons":1}"#, r#"{"is_new":true,"lessons":2}"#]);
    assert_eq!(workspaces(&left).await, ["shop~workspace"]);
}

#[tokio::test(start_paused = true)]
async fn owners_have_workspaces_of_their_own() {
    let engine = workspace_engine(&InMemoryStoreDisk::new()).await;
    let (acme, beta) = (open(&engine, "acme.talk").await, open(&engine, "beta.talk").await);
    ask(&engine, &acme, "learn a secret of acme").await;
    let seen = ask(&engine, &beta, "lessons").await;
    assert_eq!(seen, r#"{"lessons":[],"omitted":0}"#);
    assert_eq!(workspaces(&engine).await, ["acme.shop~workspace", "beta.shop~workspace"]);
}

#[tokio::test(start_paused = true)]
async fn claim_passes_on_when_its_holder_releases_it_closes_or_is_deleted() {
    let engine = workspace_engine(&InMemoryStoreDisk::new()).await;
    let mut sessions = Vec::new();
    for name in ["one", "two", "three", "four"] {
        sessions.push(open(&engine, name).await);
    }
    let [one, two, three, four] = sessions.try_into().expect("there are four");
    assert_eq!(ask(&engine, &one, "claim execute").await, r#"{"name":"execute"}"#);
    let waiting = send_in_background(&engine, &two, "claim execute");
    advance_ms(1_000).await;
    let later = send_in_background(&engine, &three, "claim execute");
    advance_ms(1_000).await;
    let last = send_in_background(&engine, &four, "claim execute");
    advance_ms(1_000).await;
    assert!(!load_state(&engine, &two).await.session.claim.expect("it waits").is_held);
    ask(&engine, &one, "release").await;
    assert_eq!(waiting.await.expect("it lives").expect("granted").replies, [r#"{"name":"execute"}"#]);
    engine.apply_command(&two, OperatorCommand::Close).await.expect("it closes");
    assert_eq!(later.await.expect("it lives").expect("granted").replies, [r#"{"name":"execute"}"#]);
    engine.delete_session(&three).await.expect("it is deleted");
    assert_eq!(last.await.expect("it lives").expect("granted").replies, [r#"{"name":"execute"}"#]);
    let held = load_state(&engine, &four).await.session.claim.expect("it has it");
    assert!(held.is_held && held.workspace == "shop~workspace");
}

#[tokio::test(start_paused = true)]
async fn r10_session_that_waits_for_a_claim_is_at_rest_and_survives_a_restart() {
    let disk = InMemoryStoreDisk::new();
    let engine = workspace_engine(&disk).await;
    let (one, two) = (open(&engine, "one").await, open(&engine, "two").await);
    ask(&engine, &one, "claim execute").await;
    engine.send_message(&two, "claim execute".into()).await.expect("accepted");
    advance_ms(60_000).await;
    assert!(!engine.is_session_active(&two), "waiting needs no task");
    assert!(load_state(&engine, &two).await.session.current_turn.is_some());
    engine.shutdown().await;
    let engine = workspace_engine(&disk).await;
    ask(&engine, &one, "release").await;
    advance_ms(5_000).await;
    let state = load_state(&engine, &two).await;
    assert!(state.session.claim.expect("it was granted").is_held);
    assert!(state.session.current_turn.is_none());
}

#[tokio::test(start_paused = true)]
async fn names_of_workspaces_cannot_be_taken_by_users() {
    let engine = workspace_engine(&InMemoryStoreDisk::new()).await;
    let options = SessionOptions { session: Some("shop~workspace".into()), ..SessionOptions::default() };
    let refused = engine.open_session(&"client".into(), options).await.expect_err("the name is reserved");
    assert!(matches!(refused, Error::BadSessionName { .. }), "{refused}");
}
