//! A process that dies in the middle of a write: the next one goes on, and nothing is written twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use segue_core::event::{Event, Outcome};
use segue_domains::Records;
use segue_engine::tools::{Tool, ToolRequest, Tools};
use segue_engine::{Engine, Message, Opening, Setup};
use segue_flows::assistant::domain::Domain;
use segue_flows::assistant::settings::Domains;
use segue_flows::assistant::tools::RECORDS;
use segue_models::{Models, Scripted};
use segue_store::memory::{MemoryDisk, MemoryStore};

use super::kitchen::events;

/// A host that does what it is told and then never says so.
struct Mute {
    inner: Records,
    /// Which write is not answered.
    writes: AtomicU32,
    done: tokio::sync::mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Tool for Mute {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let is_write = request.opened.arguments["op"] == "create";
        let result = self.inner.run(request).await;
        if is_write && self.writes.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = self.done.send(());
            std::future::pending::<()>().await;
        }
        result
    }
}

async fn start(store: Arc<MemoryStore>, tool: Arc<dyn Tool>) -> Engine {
    let model: Scripted = include_str!("four_turns.toml").parse().expect("a sound script");
    let setup = Setup::new(store, segue_flows::all(), Models::only(Arc::new(model)), "scripted");
    let tools = Tools::default().with(RECORDS, tool);
    Engine::start(Setup { tools, ..setup }).await.expect("the engine starts")
}

#[tokio::test]
async fn a_write_whose_end_was_not_heard_is_not_done_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = Records::in_file(&folder.path().join("records.db"), Domains::new(Domain::shipped()));
    let disk = MemoryDisk::new();
    let (done, mut written) = tokio::sync::mpsc::unbounded_channel();
    let mute = Mute { inner: records.clone(), writes: AtomicU32::new(0), done };
    let store = Arc::new(MemoryStore::open(&disk));
    let one = start(store.clone(), Arc::new(mute)).await;
    let session = one.open(&"assistant".into(), Opening::default()).await.expect("it opens");
    for said in ["help me plan meals", "3 days, dinners only", "no cod this week"] {
        one.ask(&session, Message::from(said)).await.expect("it is answered");
    }
    one.send(&session, Message::from("let's go with the chicken and pasta ones")).await.expect("accepted");
    written.recv().await.expect("it was written");
    let count = || {
        records.look(|connection| {
            connection.query_row("SELECT COUNT(*) FROM kitchen_meal", [], |row| row.get::<_, i64>(0))
        })
    };
    assert_eq!(count().expect("readable"), 2);
    store.kill();
    let two = start(Arc::new(MemoryStore::open(&disk)), Arc::new(records.clone())).await;
    let mut listener = two.subscribe(&session, segue_core::ids::Seq(0)).await.expect("it exists");
    let mut ended = 0;
    while ended < 4 {
        if let segue_engine::Update::Event(event) = listener.next().await.expect("it can be read")
            && let Event::TurnEnded { outcome, .. } = event.event
        {
            assert_eq!(outcome, Outcome::Done);
            ended += 1;
        }
    }
    assert_eq!(count().expect("readable"), 2, "the same two");
    let runs = events(&two, &session).await;
    let answered = runs.iter().filter(|event| matches!(event, Event::ToolAnswered { .. })).count();
    assert_eq!(answered, 3, "two reads and one write");
}
