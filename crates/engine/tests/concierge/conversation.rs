//! A whole conversation with the rehearsal model, its artifacts, and what is streamed.

use std::sync::Arc;

use segue_core::event::{Event, TurnOutcome};
use segue_core::flow::{FlowArtifact, TypedArtifactContent};
use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionSubscription, SessionUpdate, UserMessage};
use segue_models::{LanguageModel, ModelRegistry, RehearsalModel, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

async fn engine(model: Arc<dyn LanguageModel>, name: &str) -> Engine {
    let store = Arc::new(InMemoryStore::open(&InMemoryStoreDisk::new()));
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
    let options = SessionOptions { settings, ..SessionOptions::default() };
    engine.open_session(&"concierge".into(), options).await.expect("a session opens")
}

/// Reads a session's updates up to the end of that many turns. Returns its events and the streamed text.
async fn read_turns(mut subscription: SessionSubscription, turns: usize) -> (Vec<Event>, String) {
    let (mut events, mut streamed, mut ended) = (Vec::new(), String::new(), 0);
    while ended < turns {
        match subscription.next_update().await.expect("it can be read") {
            SessionUpdate::TextDelta { text, .. } => streamed.push_str(&text),
            SessionUpdate::ToolProgress { .. } => {}
            SessionUpdate::Event(event) => {
                ended += usize::from(matches!(event.event, Event::TurnEnded { .. }));
                events.push(event.event);
            }
        }
    }
    (events, streamed)
}

fn entered_phases(events: &[Event]) -> Vec<String> {
    let entered = events.iter().filter_map(|event| match event {
        Event::PhaseEntered(entered) => Some(entered.transition.to.to_string()),
        _ => None,
    });
    entered.collect()
}

fn count_facts(events: &[Event], wanted: &str) -> usize {
    events.iter().filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if kind == wanted)).count()
}

#[tokio::test(start_paused = true)]
async fn the_rehearsal_model_plays_a_whole_conversation() {
    play_whole_conversation("inline").await;
}

#[tokio::test(start_paused = true)]
async fn the_rehearsal_model_plays_a_whole_conversation_with_structured_signals() {
    play_whole_conversation("structured").await;
}

async fn play_whole_conversation(signals: &str) {
    let engine = engine(Arc::new(RehearsalModel::instant()), "rehearsal").await;
    let session = open(&engine, serde_json::json!({ "signals": signals })).await;
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
        assert_eq!(report.outcome, TurnOutcome::Done, "{message}");
        assert!(!report.replies.is_empty(), "{message}");
        for reply in report.replies {
            assert!(reply.contains("(rehearsal)") && !reply.contains("<<<"), "{message}: {reply}");
        }
    }
    let subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let (events, streamed) = read_turns(subscription, messages.len()).await;
    assert!(!streamed.contains("<<<") && !streamed.contains('{'), "no signal is streamed: {streamed}");
    assert_eq!(entered_phases(&events), ["explorer", "executor", "explorer"]);
    assert_eq!((count_facts(&events, "step_completed"), count_facts(&events, "plan_completed")), (3, 1));
    assert_eq!(
        (count_facts(&events, "map_parsed"), count_facts(&events, "map_unavailable")),
        (3, 0),
        "the question, the plan and the help"
    );
    for unwanted in ["internal_terms_leaked", "reply_complaints", "block_refused"] {
        let found: Vec<_> = events
            .iter()
            .filter(|event| matches!(event, Event::FlowFactRecorded { kind, .. } if kind == unwanted))
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }
    let handovers = events.iter().filter_map(|event| match event {
        Event::HandoverCreated(made) => Some(format!("{} {:?}", made.kind, made.provenance)),
        _ => None,
    });
    assert_eq!(handovers.collect::<Vec<_>>(), ["intent Emitted", "execution Emitted", "outcome Built"]);
}

#[tokio::test(start_paused = true)]
async fn the_plan_and_the_maps_are_artifacts_at_any_time() {
    let engine = engine(Arc::new(RehearsalModel::instant()), "rehearsal").await;
    let session = open(&engine, serde_json::Value::Null).await;
    let mut seqs = vec![Seq(1)];
    let messages = ["Should I open a bakery?", "I have a free year.", "I will do it, give me a plan."];
    for message in messages.into_iter().chain(["It is done.", "Let us take the third one."]) {
        engine.send_and_wait(&session, UserMessage::from(message)).await.expect("it is answered");
        seqs.push(engine.load_session(&session).await.expect("readable").1.session.last_seq);
    }
    let mut shown = Vec::new();
    for seq in seqs {
        let (flow, state) = engine.load_session_at(&session, seq).await.expect("readable");
        let artifacts = engine.artifacts(&session, &*flow, &state).await.expect("readable");
        shown.push(artifacts.iter().map(describe_artifact).collect::<Vec<_>>().join("; "));
    }
    assert_eq!(shown[0], "");
    assert!(shown[1].starts_with("map: ") && shown[1] == shown[2], "{shown:?}");
    assert!(shown[3].starts_with("workflow: [Active, Pending, Pending]; map: "), "{shown:?}");
    assert!(shown[4].starts_with("workflow: [Complete, Active, Pending]; map: "), "{shown:?}");
    assert!(shown[4].contains("plan_map: "), "{shown:?}");
    assert!(shown[5].starts_with("workflow: [Complete, Pending, Active]; map: "), "{shown:?}");
}

fn describe_artifact(artifact: &FlowArtifact) -> String {
    let name = &artifact.name;
    match &artifact.content {
        TypedArtifactContent::Checklist { items, .. } => {
            format!("{name}: {:?}", items.iter().map(|item| item.status).collect::<Vec<_>>())
        }
        TypedArtifactContent::Graph { nodes, metrics, .. } => {
            assert!(!nodes.is_empty() && metrics.iter().any(|metric| metric.name == "shape"));
            format!("{name}: {} nodes", nodes.len())
        }
        TypedArtifactContent::Table { .. } | TypedArtifactContent::Notes { .. } => panic!("unexpected artifact"),
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
async fn internal_replies_and_blocks_are_not_streamed() {
    let model: ScriptedModel = SCRIPT.parse().expect("a valid script");
    let engine = engine(Arc::new(model), "scripted").await;
    let session = open(&engine, serde_json::json!({"handover_by_turn": 1})).await;
    let subscription = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    engine.send_message(&session, UserMessage::from("rent or buy?")).await.expect("accepted");
    let (events, streamed) = read_turns(subscription, 1).await;
    assert_eq!(streamed.trim_end(), "Loud.");
    assert_eq!(entered_phases(&events), ["explorer"], "the flow received the block");
}
