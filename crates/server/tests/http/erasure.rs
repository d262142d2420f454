//! Nothing of a deleted session is left: not in the database, not in the files of the server, and not in its memory.

use std::path::Path;
use std::sync::Arc;

use reqwest::Method;
use segue_engine::{Engine, EngineConfig};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_server::{ApiKeyLimitCallPolicy, WebhookMasterSecret};
use segue_store::memory::InMemoryStoreDisk;
use segue_store::sqlite::SqliteStore;
use serde_json::json;

use crate::keys::key;
use crate::test_server::{DEFAULT_SCENARIO, TestServer, send};

const NAME: &str = "okapi-session";
const TEXT: &str = "numbat words";
const IDEMPOTENCY_KEY: &str = "wombat-key";

/// Returns the files that contain one of the texts.
fn files_with(folder: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, texts));
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file");
        let contains = |text: &&&str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        found.extend(texts.iter().filter(contains).map(|text| format!("{} contains `{text}`", path.display())));
    }
    found
}

#[tokio::test]
async fn nothing_of_a_deleted_session_is_left() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model: ScriptedModel = DEFAULT_SCENARIO.parse().expect("a scenario");
    let store = Arc::new(SqliteStore::open(folder.path().join("segue.db")).expect("a store"));
    let models = ModelRegistry::from_single_model(Arc::new(model));
    let config = EngineConfig {
        call_policy: Arc::new(ApiKeyLimitCallPolicy::from_folder(
            folder.path(),
            Arc::new(segue_engine::clock::SystemClock),
        )),
        ..EngineConfig::new(store, segue_flows::built_in_flows(), models, "scripted")
    };
    let engine = Engine::start(config).await.expect("it starts");
    let server = TestServer::with_engine(engine, &InMemoryStoreDisk::new(), folder.clone(), |options| {
        options.webhook_secret = Some(WebhookMasterSecret("a long text".into()));
    })
    .await;
    let secret = key(&folder, None, None).await;
    let post = |path: String, body| send(server.request(Method::POST, &path).bearer_auth(&secret).json(&body));
    // Nobody listens there, so the deliveries fail and wait for their next attempt.
    let webhook = post("/v1/webhooks".into(), json!({"url": "http://127.0.0.1:9/"})).await.expect_json(201);
    let deliveries = format!("/v1/webhooks/{}/deliveries", webhook["webhook"].as_str().expect("an id"));
    post("/v1/sessions".into(), json!({"session": NAME, "flow": "chat", "title": TEXT})).await.expect_json(201);
    let message = json!({"text": TEXT, "key": IDEMPOTENCY_KEY});
    post(format!("/v1/sessions/{NAME}/messages"), message.clone()).await.expect_json(200);
    post(format!("/v1/sessions/{NAME}/messages"), message).await.expect_json(200);
    let body = json!({"model": "chat", "messages": [{"role": "user", "content": TEXT}], "metadata": {"session": NAME}});
    send(server.request(Method::POST, "/v1/chat/completions").header("segue-session", NAME).json(&body)).await;
    while server.get(&deliveries).await.expect_json(200)["failing_sessions"] == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!files_with(folder.path(), &[NAME, TEXT]).is_empty(), "this test looks in the right place");

    server.delete(&format!("/v1/sessions/{NAME}")).await.expect_json(204);
    // The queue of the webhook follows the store.
    while server.get(&deliveries).await.text.contains(NAME) {
        tokio::task::yield_now().await;
    }
    for path in ["/v1/sessions", "/v1/sessions?search=numbat", "/v1/webhooks", "/v1/usage"] {
        let text = server.get(path).await.text;
        assert!(!text.contains(NAME) && !text.contains(TEXT), "{path}: {text}");
    }
    let engine = server.engine.clone();
    server.stop().await;
    engine.shutdown().await;
    drop(engine);
    assert_eq!(files_with(folder.path(), &[NAME, TEXT, IDEMPOTENCY_KEY]), Vec::<String>::new());
}
