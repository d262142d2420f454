//! A session of the flow on an engine, what everyone in it says, and what can be read of it afterwards.

use std::sync::Arc;
use std::time::Duration;

use segue_core::context::FragmentReceipt;
use segue_core::event::{CallOpened, Event};
use segue_core::ids::{CallId, Seq, SessionId, UnixMillis};
use segue_core::prompt::ChatRole;
use segue_engine::clock::TokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, SessionOptions, TurnReport, UserMessage};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{MemoryDisk, MemoryStore};
use serde_json::Value;

/// What everyone says as long as nothing goes wrong. A scenario puts what is special before it.
pub const USUAL: &str = include_str!("../../../testkit/scenarios/concierge.toml");

/// The first three turns: a plan is under way afterwards.
pub const TO_THE_PLAN: [&str; 3] = ["rent or buy?", "I stay five years", "give me a plan"];

pub struct Play {
    disk: MemoryDisk,
    pub engine: Engine,
    pub session: SessionId,
}

async fn engine(disk: &MemoryDisk, special: &str) -> Engine {
    let model: ScriptedModel = format!("{special}\n{USUAL}").parse().expect("a sound script");
    let store = Arc::new(MemoryStore::open(disk));
    let base = EngineConfig::new(
        store,
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(Arc::new(model)),
        "scripted",
    );
    let clock = Arc::new(TokioClock::starting_at(UnixMillis(1_000_000)));
    let setup = EngineConfig { clock, random: RandomSource::from_seed(7), ..base };
    Engine::start(setup).await.expect("the engine starts")
}

impl Play {
    /// A session with this that is special.
    pub async fn begin(special: &str, settings: Value) -> Self {
        let disk = MemoryDisk::new();
        let engine = engine(&disk, special).await;
        let opening = SessionOptions { session: Some("s".into()), settings, ..SessionOptions::default() };
        let session = engine.open_session(&"concierge".into(), opening).await.expect("a session opens");
        Self { disk, engine, session }
    }

    /// The process dies; another takes the session up, with this that is special now.
    pub async fn dies(self, special: &str) -> Self {
        self.engine.shutdown().await;
        let engine = engine(&self.disk, special).await;
        Self { engine, ..self }
    }

    /// Says something and waits for the end of the turn.
    pub async fn say(&self, text: &str) -> TurnReport {
        self.engine.send_and_wait(&self.session, UserMessage::from(text)).await.expect("the turn ends")
    }

    /// Says all of this, one after the other.
    pub async fn say_all(&self, texts: &[&str]) {
        for text in texts {
            self.say(text).await;
        }
    }

    /// Says something and waits until this has happened.
    pub async fn say_until(&self, text: &str, happened: impl Fn(&Event) -> bool) {
        self.engine.send_message(&self.session, UserMessage::from(text)).await.expect("accepted");
        for _ in 0..10_000 {
            if self.events().await.iter().any(&happened) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it never happened: {:#?}", self.events().await);
    }

    /// Waits until nothing is owed.
    pub async fn rests(&self) {
        for _ in 0..100_000 {
            if self.engine.load_session(&self.session).await.expect("it can be read").1.session.is_idle() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never rests");
    }

    pub async fn events(&self) -> Vec<Event> {
        let events = self.engine.read_events(&self.session, Seq(0), usize::MAX).await.expect("it can be read");
        events.into_iter().map(|recorded| recorded.event).collect()
    }

    /// The calls of a role, in order, as their receipts say.
    pub async fn calls(&self, role: &str) -> Vec<CallOpened> {
        let opened = self.events().await.into_iter().filter_map(|event| match event {
            Event::CallOpened(opened) if opened.role == *role => Some((*opened).clone()),
            _ => None,
        });
        opened.collect()
    }

    /// How often each role was called: experts, mappers, concierges.
    pub async fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for (place, role) in ["expert", "mapper", "concierge"].into_iter().enumerate() {
            counts[place] = self.calls(role).await.len();
        }
        counts
    }

    /// Everything a call was sent, rebuilt from the journal.
    pub async fn sent(&self, call: CallId) -> String {
        let prompt = self.engine.rebuild_prompt(&self.session, call).await.expect("it can be rebuilt");
        prompt.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
    }

    /// What a call was sent beside its standing instruction, message by message.
    pub async fn exchange(&self, call: CallId) -> Vec<String> {
        let prompt = self.engine.rebuild_prompt(&self.session, call).await.expect("it can be rebuilt");
        let spoken = prompt.messages.iter().filter(|message| message.chat_role != ChatRole::System);
        spoken.map(|message| message.text()).collect()
    }

    pub async fn facts(&self, wanted: &str) -> Vec<Value> {
        let facts = self.events().await.into_iter().filter_map(|event| match event {
            Event::FlowFactRecorded { kind, value } if kind == wanted => Some(value),
            _ => None,
        });
        facts.collect()
    }

    /// Everything that was said to the user.
    pub async fn heard(&self) -> Vec<String> {
        let events = self.events().await;
        let bodies: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::ReplySent(said) => Some(said.text.body),
                _ => None,
            })
            .collect();
        let texts = self.engine.read_texts(&self.session, &bodies).await.expect("they are kept");
        texts.iter().map(ToString::to_string).collect()
    }

    /// Where the concierge stands.
    pub async fn phase(&self) -> String {
        let (_, state) = self.engine.load_session(&self.session).await.expect("it can be read");
        state.session.phases_label()
    }

    /// The handovers that were made: what kind, and how each came about.
    pub async fn handovers(&self) -> Vec<String> {
        let made = self.events().await.into_iter().filter_map(|event| match event {
            Event::HandoverCreated(made) => Some(format!("{} {:?}", made.kind, made.provenance)),
            _ => None,
        });
        made.collect()
    }
}

/// The names of the fragments a call was shown, the opening before the bar.
pub fn layout(opened: &CallOpened) -> String {
    let names = |pieces: &[FragmentReceipt]| {
        let shown = pieces.iter().filter(|piece| piece.text.is_some()).map(|piece| piece.name.to_string());
        shown.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", names(&opened.receipt.opening), names(&opened.receipt.ask)).trim().to_owned()
}
