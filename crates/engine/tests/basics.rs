//! An engine with a real loop, a store in memory and a scripted model.

use std::sync::Arc;

use segue_core::decide::Command;
use segue_core::event::{Event, Outcome};
use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, Message, Opening, Recovery, Setup, Update};
use segue_models::{Models, Scripted};
use segue_store::memory::{MemoryDisk, MemoryStore};

async fn engine(disk: &MemoryDisk, script: &str) -> Engine {
    engine_with(disk, script, Recovery::Now).await
}

async fn engine_with(disk: &MemoryDisk, script: &str, recovery: Recovery) -> Engine {
    let model: Scripted = script.parse().expect("a sound script");
    let model = Models::only(Arc::new(model));
    let store = Arc::new(MemoryStore::open(disk));
    let setup = Setup { recovery, ..Setup::new(store, segue_flows::all(), model, "scripted") };
    Engine::start(setup).await.expect("the engine starts")
}

async fn open(engine: &Engine) -> SessionId {
    engine.open(&"chat".into(), Opening::default()).await.expect("a session opens")
}

const ECHO: &str = "[default]\ntext = \"you said {{last}}\"";

#[tokio::test(start_paused = true)]
async fn a_message_is_answered() {
    let engine = engine(&MemoryDisk::new(), ECHO).await;
    let session = open(&engine).await;
    let report = engine.ask(&session, Message::from("hello")).await.expect("it is answered");
    assert_eq!((report.outcome, report.said), (Outcome::Done, vec!["you said hello".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_joins_late_hears_everything_once() {
    let engine = engine(&MemoryDisk::new(), "[default]\nchunks = [\"a\", \"b\", \"c\"]\nchunk_delay_ms = 10").await;
    let session = open(&engine).await;
    engine.send(&session, Message::from("hello")).await.expect("accepted");
    tokio::time::sleep(std::time::Duration::from_millis(15)).await;
    let mut listener = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let (mut words, mut seqs) = (String::new(), Vec::new());
    loop {
        match listener.next().await.expect("it can be read") {
            Update::Words { text, .. } => words.push_str(&text),
            Update::Event(event) => {
                seqs.push(event.seq.0);
                if matches!(event.event, Event::TurnEnded { .. }) {
                    break;
                }
            }
        }
    }
    assert_eq!(words, "abc");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_recovers_records_and_leaves_the_rest() {
    let disk = MemoryDisk::new();
    let hand = engine_with(&disk, ECHO, Recovery::Never).await;
    let session = open(&hand).await;
    hand.send(&session, Message::from("hello")).await.expect("accepted");
    let title = "by hand".to_owned();
    hand.command(&session, Command::Rename { title }).await.expect("renamed");
    let (_, state) = hand.state(&session).await.expect("it can be read");
    assert_eq!((state.session.queue.len(), state.session.title.as_str()), (1, "by hand"));
    assert!(state.session.calls.is_empty(), "it calls nobody, so it opens no call");
    hand.shutdown().await;

    let later = engine_with(&disk, ECHO, Recovery::OnUse).await;
    let report = later.ask(&session, Message::from("again")).await.expect("it is answered");
    assert_eq!((report.turn.0, report.said), (2, vec!["you said again".to_owned()]));
    let (_, state) = later.state(&session).await.expect("it can be read");
    assert_eq!((state.session.ledger.total.answered, state.session.ledger.total.unknown), (2, 0));
}
