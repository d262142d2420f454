//! A server for tests, and a client for it.

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use segue_engine::{Engine, EngineConfig, ModelAssignment};
use segue_models::{ModelRegistry, RehearsalModel, ScriptedModel};
use segue_server::{BoundHttpServer, CrossServerSharedState, ServerOptions};
use segue_store::Store;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// The scenario of the documentation.
pub(crate) const DEFAULT_SCENARIO: &str = r#"
[[reply]]
contains = "story"
text = "Once upon a time there was a fox."
usage = { input = 30, output = 9 }

[default]
text = "You said: {{last}}"
usage = { input = 40, output = 5 }
"#;

/// A running server with its own store.
pub(crate) struct TestServer {
    pub url: String,
    pub engine: Engine,
    pub client: Client,
    pub folder: Arc<TempDir>,
    pub disk: InMemoryStoreDisk,
    stop: Option<oneshot::Sender<()>>,
    done: Option<tokio::task::JoinHandle<()>>,
}

/// The response of a server.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    /// Checks the status and returns the JSON body.
    pub(crate) fn expect_json(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks the status and returns the code of the problem.
    pub(crate) fn problem_code(self, status: u16) -> String {
        let problem = self.expect_json(status);
        assert_eq!(problem["status"], status, "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }
}

impl TestServer {
    /// Starts a server with the default scenario; the concierge flow uses the rehearsal model.
    pub(crate) async fn new() -> Self {
        Self::with_options(DEFAULT_SCENARIO, |_| {}).await
    }

    /// Starts a server with another scenario or other options.
    pub(crate) async fn with_options(scenario: &str, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Self::on_disk(&InMemoryStoreDisk::new(), folder, scenario, change).await
    }

    /// Starts a server on a disk that other servers may share.
    pub(crate) async fn on_disk(
        disk: &InMemoryStoreDisk,
        folder: Arc<TempDir>,
        scenario: &str,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let engine = engine(Arc::new(InMemoryStore::open(disk)), scenario).await;
        Self::with_engine(engine, disk, folder, change).await
    }

    /// Starts a server around an engine.
    pub(crate) async fn with_engine(
        engine: Engine,
        disk: &InMemoryStoreDisk,
        folder: Arc<TempDir>,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let mut options = ServerOptions::new(CrossServerSharedState::from_folder(folder.path()));
        options.address.set_port(0);
        change(&mut options);
        let server = BoundHttpServer::bind(engine.clone(), options).await.expect("it listens");
        let url = format!("http://127.0.0.1:{}", server.local_address().port());
        let (stop, stopped) = oneshot::channel::<()>();
        let done = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        // Another test may have installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { url, engine, client, folder, disk: disk.clone(), stop: Some(stop), done: Some(done) }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpResponse {
        send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        send(self.request(Method::POST, path).json(&body)).await
    }

    /// Opens a session.
    pub(crate) async fn open_session(&self, session: &str, flow: &str) {
        self.post("/v1/sessions", json!({"session": session, "flow": flow})).await.expect_json(201);
    }

    /// Sends a message and returns its result.
    pub(crate) async fn send_message(&self, session: &str, text: &str) -> Value {
        self.post(&format!("/v1/sessions/{session}/messages"), json!({"text": text})).await.expect_json(200)
    }

    /// Shuts the server down.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.done.take().expect("it runs").await.expect("it ends");
    }

    /// Starts the shutdown without waiting for it.
    pub(crate) fn begin_shutdown(&mut self) {
        drop(self.stop.take());
    }
}

pub(crate) async fn send(request: RequestBuilder) -> HttpResponse {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    HttpResponse { status, headers, text: response.text().await.expect("a whole answer") }
}

async fn engine(store: Arc<dyn Store>, scenario: &str) -> Engine {
    let script: ScriptedModel = scenario.parse().expect("a scenario");
    let models = ModelRegistry::new()
        .with_model("scripted", Arc::new(script))
        .with_model("rehearsal", Arc::new(RehearsalModel::instant()));
    let models = Arc::new(models);
    let assignment = ["expert", "mapper", "concierge", "summariser"].iter().fold(
        ModelAssignment::new(models.clone(), "scripted".into()),
        |assignment, role| {
            assignment.with_role_model(Some("concierge".into()), (*role).into(), None, "rehearsal".into())
        },
    );
    // Only the flows that need no tool host.
    let flows = segue_flows::built_in_flows().into_iter().filter(|flow| flow.spec().tools.is_empty()).collect();
    let setup = EngineConfig {
        models,
        model_assignment: assignment,
        ..EngineConfig::new(store, flows, ModelRegistry::new(), "scripted")
    };
    Engine::start(setup).await.expect("it starts")
}

/// Reads server-sent events one by one.
pub(crate) struct SseReader {
    response: reqwest::Response,
    buffer: String,
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SseEvent {
    pub kind: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl SseReader {
    pub(crate) async fn open(request: RequestBuilder) -> Self {
        let response = request.header("accept", "text/event-stream").send().await.expect("an answer");
        let status = response.status();
        assert!(status.is_success(), "{status}: {}", response.text().await.unwrap_or_default());
        Self { response, buffer: String::new() }
    }

    /// Returns the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let (event, rest) = (parse(event), rest.to_owned());
                self.buffer = rest;
                if let Some(event) = event {
                    return Some(event);
                }
                continue;
            }
            let chunk = self.response.chunk().await.ok()??;
            self.buffer.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    /// Returns the events up to the first of this kind.
    pub(crate) async fn read_until(&mut self, kind: &str) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let is_last = event.kind == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
        panic!("no `{kind}` event arrived: {events:?}")
    }
}

fn parse(text: &str) -> Option<SseEvent> {
    let (mut kind, mut id, mut data) = (String::from("message"), None, Vec::new());
    for line in text.lines() {
        match line.split_once(": ").or_else(|| line.split_once(':')) {
            Some(("event", value)) => kind = value.to_owned(),
            Some(("id", value)) => id = value.parse().ok(),
            Some(("data", value)) => data.push(value.to_owned()),
            _ => {}
        }
    }
    let data = data.join("\n");
    (!data.is_empty()).then(|| SseEvent { kind, id, data: serde_json::from_str(&data).unwrap_or(Value::String(data)) })
}

/// Returns the path of a file in the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
