//! A process dies during a write: the next one continues, and nothing is written twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use segue_core::event::{Event, TurnOutcome};
use segue_core::tool::ToolResult;
use segue_domains::SqliteRecordsTool;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, SessionOptions, UserMessage};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::RECORDS_TOOL;
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use super::support::events;

/// A records tool that executes the first write and never returns its result.
struct SilentRecordsTool {
    inner: SqliteRecordsTool,
    /// The number of writes so far.
    writes: AtomicU32,
    done: tokio::sync::mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Tool for SilentRecordsTool {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        let is_write = request.opened.arguments["operation"] == "create";
        let result = self.inner.run(request, context).await;
        if is_write && self.writes.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = self.done.send(());
            std::future::pending::<()>().await;
        }
        result
    }
}

async fn start(store: Arc<InMemoryStore>, tool: Arc<dyn Tool>) -> Engine {
    let model: ScriptedModel = include_str!("four_turns.toml").parse().expect("a sound script");
    let setup = EngineConfig::new(
        store,
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(Arc::new(model)),
        "scripted",
    );
    let tools = ToolRegistry::default().with_tool(RECORDS_TOOL, tool);
    Engine::start(EngineConfig { tools, ..setup }).await.expect("the engine starts")
}

#[tokio::test]
async fn interrupted_write_is_not_executed_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let records =
        SqliteRecordsTool::in_file(&folder.path().join("records.db"), ConfiguredDomains::new(DomainSchema::built_in()));
    let disk = InMemoryStoreDisk::new();
    let (done, mut written) = tokio::sync::mpsc::unbounded_channel();
    let silent_tool = SilentRecordsTool { inner: records.clone(), writes: AtomicU32::new(0), done };
    let store = Arc::new(InMemoryStore::open(&disk));
    let one = start(store.clone(), Arc::new(silent_tool)).await;
    let session = one.open_session(&"assistant".into(), SessionOptions::default()).await.expect("it opens");
    for said in ["help me plan meals", "3 days, dinners only", "no cod this week"] {
        one.send_and_wait(&session, UserMessage::from(said)).await.expect("it is answered");
    }
    one.send_message(&session, UserMessage::from("let's go with the chicken and pasta ones")).await.expect("accepted");
    written.recv().await.expect("it was written");
    let count = || {
        records.with_connection(|connection| {
            connection.query_row("SELECT COUNT(*) FROM kitchen_meal", [], |row| row.get::<_, i64>(0))
        })
    };
    assert_eq!(count().expect("readable"), 2);
    store.kill();
    let two = start(Arc::new(InMemoryStore::open(&disk)), Arc::new(records.clone())).await;
    let mut listener = two.subscribe(&session, segue_core::ids::Seq(0)).await.expect("it exists");
    let mut ended = 0;
    while ended < 4 {
        if let segue_engine::SessionUpdate::Event(event) = listener.next_update().await.expect("it can be read")
            && let Event::TurnEnded { outcome, .. } = event.event
        {
            assert_eq!(outcome, TurnOutcome::Done);
            ended += 1;
        }
    }
    assert_eq!(count().expect("readable"), 2, "the same two");
    let runs = events(&two, &session).await;
    let answered = runs.iter().filter(|event| matches!(event, Event::ToolRunEnded { .. })).count();
    assert_eq!(answered, 7, "four snapshots, two reads and one write");
}
