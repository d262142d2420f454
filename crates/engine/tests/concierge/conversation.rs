//! A whole conversation, rehearsed, and what of it is streamed.

use std::sync::Arc;

use segue_core::event::{Event, TurnResult};
use segue_core::flow::artifact::{Artifact, ArtifactContent};
use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionUpdate, Subscription, UserMessage};
use segue_models::{LanguageModel, ModelRegistry, RehearsalModel, ScriptedModel};
use segue_store::memory::{MemoryDisk, MemoryStore};

async fn engine(model: Arc<dyn LanguageModel>, name: &str) -> Engine {
    let store = Arc::new(MemoryStore::open(&MemoryDisk::new()));
    Engine::start(EngineConfig::new(
        store,
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(model),
        name,
    ))
    .await
    .expect("the engine starts")
}

async fn open(engine: &Engine, settings: serde_json::Value) -> SessionId {
    let opening = SessionOptions { settings, ..SessionOptions::default() };
    engine.open_session(&"concierge".into(), opening).await.expect("a session opens")
}

/// Everything a session has to tell up to the end of that many turns, and the words that were streamed.
async fn told(mut listener: Subscription, turns: usize) -> (Vec<Event>, String) {
    let (mut events, mut words, mut ended) = (Vec::new(), String::new(), 0);
    while ended < turns {
        match listener.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, .. } => words.push_str(&text),
            SessionUpdate::Event(event) => {
                ended += usize::from(matches!(event.event, Event::TurnEnded { .. }));
                events.push(event.event);
            }
        }
    }
    (events, words)
}

fn phases(events: &[Event]) -> Vec<String> {
    let entered = events.iter().filter_map(|event| match event {
        Event::PhaseEntered(entered) => Some(entered.transition.to.to_string()),
        _ => None,
    });
    entered.collect()
}

fn count(events: &[Event], wanted: &str) -> usize {
    events.iter().filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if kind == wanted)).count()
}

#[tokio::test(start_paused = true)]
async fn the_rehearsal_model_plays_a_whole_conversation() {
    let engine = engine(Arc::new(RehearsalModel::instant()), "rehearsal").await;
    let session = open(&engine, serde_json::Value::Null).await;
    let messages = [
        "Should I open a small bakery?",
        "I have some savings and a free year.",
        "What if nobody comes?",
        "I'm going to do it, give me a plan.",
        "Let us begin with the first.",
        "It is done.",
        "I am stuck: the landlord says no.",
        "What now?",
        "That worked, it is done.",
        "All finished.",
        "And what about a second shop?",
    ];
    for message in messages {
        let report = engine.send_and_wait(&session, UserMessage::from(message)).await.expect("it is answered");
        assert_eq!(report.outcome, TurnResult::Done, "{message}");
        assert!(!report.replies.is_empty(), "{message}");
        for said in report.replies {
            assert!(said.contains("(rehearsal)") && !said.contains("<<<"), "{message}: {said}");
        }
    }
    let listener = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let (events, _) = told(listener, messages.len()).await;
    assert_eq!(phases(&events), ["explorer", "executor", "explorer"]);
    assert_eq!((count(&events, "step_completed"), count(&events, "plan_completed")), (3, 1));
    assert_eq!((count(&events, "map_parsed"), count(&events, "map_unavailable")), (3, 0), "the question, the plan and the help");
    for unwanted in ["internal_terms_leaked", "reply_complaints", "block_refused"] {
        let found: Vec<_> = events
            .iter()
            .filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if kind == unwanted))
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }
    let how = events.iter().filter_map(|event| match event {
        Event::HandoverCreated(made) => Some(format!("{} {:?}", made.kind, made.provenance)),
        _ => None,
    });
    assert_eq!(how.collect::<Vec<_>>(), ["intent Emitted", "execution Emitted", "outcome Built"]);
}

#[tokio::test(start_paused = true)]
async fn the_plan_and_the_maps_are_on_show_at_any_time() {
    let engine = engine(Arc::new(RehearsalModel::instant()), "rehearsal").await;
    let session = open(&engine, serde_json::Value::Null).await;
    let mut places = vec![Seq(1)];
    let messages = ["Should I open a bakery?", "I have a free year.", "I will do it, give me a plan."];
    for message in messages.into_iter().chain(["It is done.", "Let us take the third one."]) {
        engine.send_and_wait(&session, UserMessage::from(message)).await.expect("it is answered");
        places.push(engine.load_session(&session).await.expect("readable").1.session.last_seq);
    }
    let mut shown = Vec::new();
    for place in places {
        let (rules, state) = engine.load_session_at(&session, place).await.expect("readable");
        let exhibits = engine.artifacts(&session, &*rules, &state).await.expect("readable");
        shown.push(exhibits.iter().map(describe).collect::<Vec<_>>().join("; "));
    }
    assert_eq!(shown[0], "");
    assert!(shown[1].starts_with("map: ") && shown[1] == shown[2], "{shown:?}");
    assert!(shown[3].starts_with("workflow: [Active, Pending, Pending]; map: "), "{shown:?}");
    assert!(shown[4].starts_with("workflow: [Complete, Active, Pending]; map: "), "{shown:?}");
    assert!(shown[4].contains("plan_map: "), "{shown:?}");
    assert!(shown[5].starts_with("workflow: [Complete, Pending, Active]; map: "), "{shown:?}");
}

fn describe(exhibit: &Artifact) -> String {
    let name = &exhibit.name;
    match &exhibit.content {
        ArtifactContent::Checklist { items, .. } => {
            format!("{name}: {:?}", items.iter().map(|item| item.status).collect::<Vec<_>>())
        }
        ArtifactContent::Graph { nodes, metrics: measures, .. } => {
            assert!(!nodes.is_empty() && measures.iter().any(|measure| measure.name == "shape"));
            format!("{name}: {} nodes", nodes.len())
        }
        ArtifactContent::Table { .. } | ArtifactContent::Notes { .. } => panic!("nothing of the kind"),
    }
}

const SCRIPT: &str = r#"
[[reply]]
role = "expert"
text = "Rent."

[[reply]]
role = "mapper"
text = "no map"

[[reply]]
role = "concierge"
ask = "repair_intent"
chunk_delay_ms = 10
text = "<<<HANDOVER>>>\ngoal: whispered\n<<<END>>> and whispered"

[[reply]]
role = "concierge"
chunks = ["Lo", "ud.\n<<<BA", "TCH>>>\nTYPE: WORKFLOW\n<<<E", "ND>>>"]
chunk_delay_ms = 10
"#;

#[tokio::test(start_paused = true)]
async fn what_is_asked_privately_is_not_streamed_and_neither_is_a_block() {
    let model: ScriptedModel = SCRIPT.parse().expect("a sound script");
    let engine = engine(Arc::new(model), "scripted").await;
    let session = open(&engine, serde_json::json!({"handover_by_turn": 1})).await;
    let listener = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, UserMessage::from("rent or buy?")).await.expect("accepted");
    let (events, words) = told(listener, 1).await;
    assert_eq!(words.trim_end(), "Loud.");
    assert_eq!(phases(&events), ["explorer"], "and yet it was heard by the flow");
}
