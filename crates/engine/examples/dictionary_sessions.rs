//! Writes sessions of the built-in flows, played by the rehearsal model, to a store. They are the samples from which the
//! example `dictionary` of `segue-store` trains the compression dictionary for journals.
//!
//! `cargo run -p segue-engine --example dictionary_sessions -- STORE.db`

use std::sync::Arc;

use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_models::{ModelRegistry, RehearsalModel};
use segue_store::sqlite::SqliteStore;

const SESSIONS_PER_FLOW: usize = 24;
const FLOWS: [&str; 2] = ["chat", "concierge"];
const MESSAGES: [&str; 12] = [
    "Should I open a small bakery?",
    "I have some savings and a free year.",
    "What if no customers come?",
    "I'm going to do it, give me a plan.",
    "Let us begin with the first.",
    "It is done.",
    "I am stuck: the landlord says no.",
    "What now?",
    "That worked, it is done.",
    "All finished.",
    "And what about a second shop?",
    "Thank you, that was all.",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: dictionary_sessions STORE.db")?;
    let store = Arc::new(SqliteStore::open(path)?);
    let models = ModelRegistry::from_single_model(Arc::new(RehearsalModel::instant()));
    let engine = Engine::start(EngineConfig::new(store, segue_flows::built_in_flows(), models, "rehearsal")).await?;
    for number in 0..SESSIONS_PER_FLOW {
        for flow in FLOWS {
            let session = engine.open_session(&flow.into(), SessionOptions::default()).await?;
            for (turn, message) in MESSAGES.iter().enumerate() {
                // Texts of different lengths, so that token counts differ between sessions.
                let text = format!("{message} ({number}, {turn}{})", ", please".repeat(number % 7 + turn));
                engine.send_and_wait(&session, UserMessage::from(text)).await?;
            }
        }
    }
    engine.shutdown().await;
    Ok(())
}
