//! A concierge session on an engine with a scripted model, and what the tests read from its journal.

use std::sync::Arc;
use std::time::Duration;

use segue_core::context::FragmentReceipt;
use segue_core::event::{CallOpened, Event};
use segue_core::ids::{CallId, Seq, SessionId, UnixMillis};
use segue_core::prompt::ChatRole;
use segue_engine::clock::PausableTokioClock;
use segue_engine::random::RandomSource;
use segue_engine::{Engine, EngineConfig, SessionOptions, TurnReport, UserMessage};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::Value;

/// The replies of all roles if nothing goes wrong. A test puts its special replies before them.
const DEFAULT_REPLIES: &str = include_str!("../../../testkit/scenarios/concierge.toml");

/// The messages of the first three turns. Afterwards a plan is in progress.
pub(crate) const MESSAGES_TO_PLAN: [&str; 3] = ["rent or buy?", "I stay five years", "give me a plan"];

pub(crate) struct ConciergeHarness {
    disk: InMemoryStoreDisk,
    pub engine: Engine,
    pub session: SessionId,
}

async fn engine(disk: &InMemoryStoreDisk, special_replies: &str) -> Engine {
    let model: ScriptedModel = format!("{special_replies}\n{DEFAULT_REPLIES}").parse().expect("a sound script");
    let store = Arc::new(InMemoryStore::open(disk));
    let base = EngineConfig::new(
        store,
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(Arc::new(model)),
        "scripted",
    );
    let clock = Arc::new(PausableTokioClock::starting_at(UnixMillis(1_000_000)));
    let config = EngineConfig { clock, random: RandomSource::from_seed(7), ..base };
    Engine::start(config).await.expect("the engine starts")
}

impl ConciergeHarness {
    /// Opens a session with special replies.
    pub(crate) async fn start(special_replies: &str, settings: Value) -> Self {
        let disk = InMemoryStoreDisk::new();
        let engine = engine(&disk, special_replies).await;
        let options = SessionOptions { session: Some("s".into()), settings, ..SessionOptions::default() };
        let session = engine.open_session(&"concierge".into(), options).await.expect("a session opens");
        Self { disk, engine, session }
    }

    /// Ends the process and resumes the session in another, with other special replies.
    pub(crate) async fn restart(self, special_replies: &str) -> Self {
        self.engine.shutdown().await;
        let engine = engine(&self.disk, special_replies).await;
        Self { engine, ..self }
    }

    /// Sends a message and waits for the end of the turn.
    pub(crate) async fn send(&self, text: &str) -> TurnReport {
        self.engine.send_and_wait(&self.session, UserMessage::from(text)).await.expect("the turn ends")
    }

    /// Sends messages one after the other.
    pub(crate) async fn send_all(&self, texts: &[&str]) {
        for text in texts {
            self.send(text).await;
        }
    }

    /// Sends a message and waits for an event.
    pub(crate) async fn send_until(&self, text: &str, is_expected: impl Fn(&Event) -> bool) {
        self.engine.send_message(&self.session, UserMessage::from(text)).await.expect("accepted");
        for _ in 0..10_000 {
            if self.events().await.iter().any(&is_expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it never happened: {:#?}", self.events().await);
    }

    /// Waits until nothing is pending.
    pub(crate) async fn wait_until_idle(&self) {
        for _ in 0..100_000 {
            if self.engine.load_session(&self.session).await.expect("it can be read").1.session.is_idle() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the session never becomes idle");
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        let events = self.engine.read_events(&self.session, Seq(0), usize::MAX).await.expect("it can be read");
        events.into_iter().map(|recorded| recorded.event).collect()
    }

    /// Returns the calls of a role, in order.
    pub(crate) async fn calls(&self, role: &str) -> Vec<CallOpened> {
        let opened = self.events().await.into_iter().filter_map(|event| match event {
            Event::CallOpened(opened) if opened.role == *role => Some((*opened).clone()),
            _ => None,
        });
        opened.collect()
    }

    /// Returns the number of calls of expert, mapper and concierge.
    pub(crate) async fn call_counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for (index, role) in ["expert", "mapper", "concierge"].into_iter().enumerate() {
            counts[index] = self.calls(role).await.len();
        }
        counts
    }

    /// Returns the prompt of a call as one text, rebuilt from the journal.
    pub(crate) async fn prompt_text(&self, call: CallId) -> String {
        let prompt = self.engine.rebuild_prompt(&self.session, call).await.expect("it can be rebuilt");
        prompt.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
    }

    /// Returns the messages of a call's prompt without the system message.
    pub(crate) async fn conversation_texts(&self, call: CallId) -> Vec<String> {
        let prompt = self.engine.rebuild_prompt(&self.session, call).await.expect("it can be rebuilt");
        let messages = prompt.messages.iter().filter(|message| message.chat_role != ChatRole::System);
        messages.map(|message| message.text()).collect()
    }

    pub(crate) async fn facts(&self, wanted: &str) -> Vec<Value> {
        let facts = self.events().await.into_iter().filter_map(|event| match event {
            Event::FlowFactRecorded { kind, value } if kind == wanted => Some(value),
            _ => None,
        });
        facts.collect()
    }

    /// Returns all replies to the user.
    pub(crate) async fn replies(&self) -> Vec<String> {
        let events = self.events().await;
        let bodies: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::ReplySent(reply) => Some(reply.text.body),
                _ => None,
            })
            .collect();
        let texts = self.engine.read_texts(&self.session, &bodies).await.expect("they are stored");
        texts.iter().map(ToString::to_string).collect()
    }

    /// Returns the current phase.
    pub(crate) async fn phase(&self) -> String {
        let (_, state) = self.engine.load_session(&self.session).await.expect("it can be read");
        state.session.phases_label()
    }

    /// Returns the kind and provenance of all handovers.
    pub(crate) async fn handovers(&self) -> Vec<String> {
        let made = self.events().await.into_iter().filter_map(|event| match event {
            Event::HandoverCreated(made) => Some(format!("{} {:?}", made.kind, made.provenance)),
            _ => None,
        });
        made.collect()
    }
}

/// Returns the names of the fragments in a call's prompt; those of the opening come before the bar.
pub(crate) fn fragment_layout(opened: &CallOpened) -> String {
    let names = |fragments: &[FragmentReceipt]| {
        let included =
            fragments.iter().filter(|fragment| fragment.text.is_some()).map(|fragment| fragment.name.to_string());
        included.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", names(&opened.receipt.opening), names(&opened.receipt.ask)).trim().to_owned()
}
