//! Basic behaviour of an engine with a memory store and a scripted model.

use std::sync::Arc;

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionResumePolicy, SessionUpdate, UserMessage};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

async fn engine(disk: &InMemoryStoreDisk, script: &str) -> Engine {
    engine_with(disk, script, SessionResumePolicy::Immediate).await
}

async fn engine_with(disk: &InMemoryStoreDisk, script: &str, recovery: SessionResumePolicy) -> Engine {
    let model: ScriptedModel = script.parse().expect("a valid script");
    let model = ModelRegistry::from_single_model(Arc::new(model));
    let store = Arc::new(InMemoryStore::open(disk));
    let config =
        EngineConfig { recovery, ..EngineConfig::new(store, segue_flows::built_in_flows(), model, "scripted") };
    Engine::start(config).await.expect("the engine starts")
}

async fn open(engine: &Engine) -> SessionId {
    engine.open_session(&"chat".into(), SessionOptions::default()).await.expect("a session opens")
}

const ECHO: &str = "[default]\ntext = \"you said {{last}}\"";

#[tokio::test(start_paused = true)]
async fn a_message_is_answered() {
    let engine = engine(&InMemoryStoreDisk::new(), ECHO).await;
    let session = open(&engine).await;
    let report = engine.send_and_wait(&session, UserMessage::from("hello")).await.expect("it is answered");
    assert_eq!((report.outcome, report.replies), (TurnOutcome::Done, vec!["you said hello".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_late_subscriber_receives_everything_once() {
    let engine =
        engine(&InMemoryStoreDisk::new(), "[default]\nchunks = [\"a\", \"b\", \"c\"]\nchunk_delay_ms = 10").await;
    let session = open(&engine).await;
    engine.send_message(&session, UserMessage::from("hello")).await.expect("accepted");
    tokio::time::sleep(std::time::Duration::from_millis(15)).await;
    let mut subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let (mut streamed, mut seqs) = (String::new(), Vec::new());
    loop {
        match subscription.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, .. } => streamed.push_str(&text),
            SessionUpdate::ToolProgress { .. } => {}
            SessionUpdate::Event(event) => {
                seqs.push(event.seq.0);
                if matches!(event.event, Event::TurnEnded { .. }) {
                    break;
                }
            }
        }
    }
    assert_eq!(streamed, "abc");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_recovery_records_inputs_and_starts_nothing() {
    let disk = InMemoryStoreDisk::new();
    let recorder = engine_with(&disk, ECHO, SessionResumePolicy::Never).await;
    let session = open(&recorder).await;
    recorder.send_message(&session, UserMessage::from("hello")).await.expect("accepted");
    let title = "renamed".to_owned();
    recorder.apply_command(&session, OperatorCommand::Rename { title }).await.expect("renamed");
    let (_, state) = recorder.load_session(&session).await.expect("it can be read");
    assert_eq!((state.session.queued_messages.len(), state.session.title.as_str()), (1, "renamed"));
    assert!(state.session.open_calls.is_empty(), "it starts no effect, so it opens no call");
    recorder.shutdown().await;

    let later = engine_with(&disk, ECHO, SessionResumePolicy::OnUse).await;
    let report = later.send_and_wait(&session, UserMessage::from("again")).await.expect("it is answered");
    assert_eq!((report.turn.0, report.replies), (2, vec!["you said again".to_owned()]));
    let (_, state) = later.load_session(&session).await.expect("it can be read");
    assert_eq!((state.session.ledger.total.answered_calls, state.session.ledger.total.unknown_attempts), (2, 0));
}
