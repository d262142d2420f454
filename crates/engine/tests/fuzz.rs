//! Fuzz targets of the engine; see `segue_testkit::run_fuzz_target`.

use std::path::Path;
use std::sync::Arc;

use segue_engine::{Engine, EngineConfig, SessionExportStream, SessionOptions, UserMessage};
use segue_models::{ModelRegistry, RehearsalModel};
use segue_store::memory::InMemoryStore;
use segue_testkit::run_fuzz_target;

async fn start_engine() -> Engine {
    let models = ModelRegistry::from_single_model(Arc::new(RehearsalModel::instant()));
    let store = Arc::new(InMemoryStore::with_own_disk());
    let config = EngineConfig::new(store, segue_flows::built_in_flows(), models, "rehearsal");
    Engine::start(config).await.expect("it starts")
}

/// Returns the export of a conversation.
async fn export(engine: &Engine, flow: &str) -> Vec<u8> {
    let session = engine.open_session(&flow.into(), SessionOptions::default()).await.expect("a session");
    for text in ["Should we move?", "Why?"] {
        engine.send_and_wait(&session, UserMessage::from(text)).await.expect("answered");
    }
    let mut export = SessionExportStream::new(engine, &session);
    let mut lines = String::new();
    while let Some(more) = export.next_lines().await.expect("exported") {
        lines.push_str(&more);
    }
    lines.into_bytes()
}

#[test]
fn fuzz_import_and_fold() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let engine = runtime.block_on(start_engine());
    let seeds = [runtime.block_on(export(&engine, "chat")), runtime.block_on(export(&engine, "concierge"))];
    let number = std::cell::Cell::new(0_u64);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/import");
    run_fuzz_target("import and fold", &corpus, &seeds, |bytes| {
        number.set(number.get() + 1);
        let lines = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
        let name = format!("import-{}", number.get()).as_str().into();
        runtime.block_on(async {
            // What is imported can be read, and deleted.
            if let Ok(session) = engine.import_session(lines.into_iter(), Some(name)).await {
                engine.load_session(&session).await.expect("an imported session can be folded");
                engine.delete_session(&session).await.expect("and deleted");
            }
        });
    });
}
