//! An answer that arrives after its turn is shown in that turn.

use std::sync::Arc;

use futures_util::StreamExt;
use segue_core::event::Event;
use segue_core::ids::{Seq, SessionId, TurnId};
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionUpdate, UserMessage};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelDescription, ModelRegistry, ModelRequest, RehearsalModel, ReplyChunk,
    ReplyChunkStream, ReplyFinish,
};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::test_server::TestServer;

/// A model that answers only when notified: for the expert always, for the concierge from the second turn on.
#[derive(Debug, Default)]
struct GatedModel {
    expert: Arc<Notify>,
    concierge: Arc<Notify>,
}

impl LanguageModel for GatedModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let gate = match request.metadata.role.as_str() {
            "expert" => Some(self.expert.clone()),
            _ if request.metadata.turn > Some(TurnId(1)) => Some(self.concierge.clone()),
            _ => None,
        };
        let said = async move {
            if let Some(gate) = gate {
                gate.notified().await;
            }
            futures_util::stream::iter([
                Ok(ReplyChunk::Text("At last.".to_owned())),
                Ok(ReplyChunk::Finish(ReplyFinish::default())),
            ])
        };
        futures_util::stream::once(said).flatten().boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription { kind: ModelBackendKind::Scripted, label: "held".to_owned(), window_tokens: 100_000 }
    }
}

async fn wait_for_event(engine: &Engine, session: &SessionId, matches_event: impl Fn(&Event) -> bool) {
    let mut subscription = engine.subscribe(session, Seq(0)).await.expect("it is there");
    loop {
        match subscription.next_update().await.expect("the subscription continues") {
            SessionUpdate::Event(event) if matches_event(&event.event) => return,
            SessionUpdate::Event(_) | SessionUpdate::TextDelta { .. } | SessionUpdate::ToolProgress { .. } => {}
        }
    }
}

fn find<'v>(values: &'v Value, name: &str, wanted: impl Fn(&Value) -> bool) -> &'v Value {
    let values = values[name].as_array().expect("a list");
    values.iter().find(|value| wanted(value)).unwrap_or_else(|| panic!("it is not in {values:?}"))
}

#[tokio::test]
async fn late_answer_belongs_to_the_turn_of_its_call() {
    let (disk, model) = (InMemoryStoreDisk::new(), Arc::new(GatedModel::default()));
    let models = ModelRegistry::new()
        .with_model("held", model.clone())
        .with_model("rehearsal", Arc::new(RehearsalModel::instant()));
    let store = Arc::new(InMemoryStore::open(&disk));
    let engine = Engine::start(EngineConfig::new(store, segue_flows::built_in_flows(), models, "rehearsal"))
        .await
        .expect("it starts");
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let server = TestServer::with_engine(engine.clone(), &disk, folder, |_| {}).await;
    let experts = json!([{"model": "rehearsal", "samples": 2}, "held"]);
    let settings = json!({"experts": experts, "quorum": 2, "concierge": "held"});
    let opening = SessionOptions { session: Some("s".into()), settings, ..SessionOptions::default() };
    let session = engine.open_session(&"concierge".into(), opening).await.expect("it opens");

    let report = server.send_message("s", "rent or buy?").await;
    assert_eq!((&report["outcome"]["type"], &report["spent"]["unknown_attempts"]), (&json!("done"), &json!(1)));
    let turns = server.get("/v1/sessions/s/turns").await.expect_json(200);
    assert_eq!(turns["turns"][0]["spent"]["unknown_attempts"], 1, "it may be billed");
    let calls = server.get("/v1/sessions/s/calls").await.expect_json(200);
    let call = find(&calls, "calls", |call| call["status"] == "cancelled");
    assert_eq!((&call["attempts"], &call["unknown_attempts"]), (&json!(1), &json!(1)));
    engine.send_message(&session, UserMessage::from("I stay for long.")).await.expect("accepted");
    model.expert.notify_one();
    wait_for_event(&engine, &session, |event| matches!(event, Event::CallAnsweredLate { .. })).await;
    model.concierge.notify_one();
    wait_for_event(&engine, &session, |event| matches!(event, Event::TurnEnded { turn: TurnId(2), .. })).await;

    let events = server.get("/v1/sessions/s/events?texts=all").await.expect_json(200);
    let late = find(&events, "events", |event| event["type"] == "call_answered_late");
    assert_eq!(late["turn"], "t1");
    assert!(late["texts"].to_string().contains("At last."));
    let began = find(&events, "events", |event| event["type"] == "turn_started" && event["turn"] == "t2");
    assert!(began["seq"].as_u64() < late["seq"].as_u64(), "another turn ran then");
    let turns = server.get("/v1/sessions/s/turns").await.expect_json(200);
    let spent = |turn: &str| {
        let spent = &find(&turns, "turns", |view| view["turn"] == turn)["spent"];
        [spent["answered_late"].clone(), spent["unknown_attempts"].clone()]
    };
    assert_eq!((spent("t1"), spent("t2")), ([json!(1), json!(0)], [json!(0), json!(0)]));
    let calls = server.get("/v1/sessions/s/calls").await.expect_json(200);
    let call = find(&calls, "calls", |call| call["call"] == late["call"]);
    assert_eq!((&call["status"], &call["turn"], &call["unknown_attempts"]), (&json!("late"), &json!("t1"), &json!(0)));
    server.stop().await;
}
