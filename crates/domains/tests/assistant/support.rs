//! A session of the kitchen domain in an engine.

use std::path::Path;
use std::sync::Arc;

use segue_core::event::{CallOpened, Event, ToolRunOpened};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_domains::SqliteRecordsTool;
use segue_engine::tools::ToolRegistry;
use segue_engine::{Engine, EngineConfig, SessionOptions, TurnReport, UserMessage};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::RECORDS_TOOL;
use segue_models::{LanguageModel, ModelRegistry};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::Value;

pub(crate) struct Kitchen {
    pub engine: Engine,
    pub records: SqliteRecordsTool,
    pub session: SessionId,
}

impl Kitchen {
    /// Opens a session whose records are in `file`.
    pub(crate) async fn open(model: Arc<dyn LanguageModel>, file: &Path, settings: Value) -> Self {
        let (engine, records) = engine(&InMemoryStoreDisk::new(), model, file).await;
        let opening = SessionOptions { settings, ..SessionOptions::default() };
        let session = engine.open_session(&"assistant".into(), opening).await.expect("a session opens");
        Self { engine, records, session }
    }

    pub(crate) async fn send(&self, text: &str) -> TurnReport {
        self.engine.send_and_wait(&self.session, UserMessage::from(text)).await.expect("it is answered")
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        events(&self.engine, &self.session).await
    }

    /// Returns the calls of a turn.
    pub(crate) async fn calls(&self, turn: u32) -> Vec<CallOpened> {
        let calls = self.events().await.into_iter().filter_map(|event| match event {
            Event::CallOpened(opened) if opened.turn.is_some_and(|id| id.0 == turn) => Some((*opened).clone()),
            _ => None,
        });
        calls.collect()
    }

    /// Returns the tool runs of a turn, without its snapshot.
    pub(crate) async fn runs(&self, turn: u32) -> Vec<ToolRunOpened> {
        let runs = self.events().await.into_iter().filter_map(|event| match event {
            Event::ToolRunOpened(opened) if opened.turn.is_some_and(|id| id.0 == turn) => Some(opened),
            _ => None,
        });
        runs.filter(|run| run.arguments["operation"] != "snapshot").collect()
    }

    /// Returns the exact prompt of a call, rebuilt from the journal.
    pub(crate) async fn prompt_text(&self, call: CallId) -> String {
        let prompt = self.engine.rebuild_prompt(&self.session, call).await.expect("it was made");
        prompt.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
    }

    /// Returns the stored meals: date and recipe.
    pub(crate) fn meals(&self) -> Vec<(String, String)> {
        let sql = "SELECT m.date, r.name FROM kitchen_meal m JOIN kitchen_recipe r ON r.id = m.recipe ORDER BY m.date";
        self.records
            .with_connection(|connection| {
                connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .expect("the tables can be read")
    }

    /// Returns the ids of all records.
    pub(crate) fn ids(&self) -> Vec<String> {
        let sql =
            "SELECT id FROM kitchen_recipe UNION SELECT id FROM kitchen_meal UNION SELECT id FROM kitchen_inventory";
        self.records
            .with_connection(|connection| connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect())
            .expect("the tables can be read")
    }
}

pub(crate) async fn engine(
    disk: &InMemoryStoreDisk,
    model: Arc<dyn LanguageModel>,
    file: &Path,
) -> (Engine, SqliteRecordsTool) {
    let domains = ConfiguredDomains::new(DomainSchema::built_in());
    let records = SqliteRecordsTool::in_file(file, domains);
    let store = Arc::new(InMemoryStore::open(disk));
    let setup =
        EngineConfig::new(store, segue_flows::built_in_flows(), ModelRegistry::from_single_model(model), "scripted");
    let tools = ToolRegistry::default().with_tool(RECORDS_TOOL, Arc::new(records.clone()));
    (Engine::start(EngineConfig { tools, ..setup }).await.expect("the engine starts"), records)
}

pub(crate) async fn events(engine: &Engine, session: &SessionId) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = engine.read_events(session, after, 500).await.expect("it can be read");
        let Some(last) = page.last() else { return all };
        after = last.seq;
        all.extend(page.into_iter().map(|recorded| recorded.event));
    }
}

/// Returns whether a text contains a UUID.
pub(crate) fn has_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.len() == 5 && parts.iter().zip(lengths).all(|(part, length)| part.len() == length && is_hex(part))
    })
}
