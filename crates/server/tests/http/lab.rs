//! A server to ask, and what it answered.

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use segue_engine::{Engine, EngineConfig, ModelAssignment};
use segue_models::{ModelRegistry, RehearsalModel, ScriptedModel};
use segue_server::{HttpServer, ServerOptions};
use segue_store::Store;
use segue_store::memory::{MemoryDisk, MemoryStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Answers as the pages do.
pub const TOUR: &str = r#"
[[reply]]
contains = "story"
text = "Once upon a time there was a fox."
usage = { input = 30, output = 9 }

[default]
text = "You said: {{last}}"
usage = { input = 40, output = 5 }
"#;

/// A server on a store of its own.
pub struct Lab {
    pub url: String,
    pub engine: Engine,
    pub client: Client,
    pub folder: Arc<TempDir>,
    pub disk: MemoryDisk,
    stop: Option<oneshot::Sender<()>>,
    done: Option<tokio::task::JoinHandle<()>>,
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    /// The same, if it has this status.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Its code, if it is a problem of this status.
    pub fn problem(self, status: u16) -> String {
        let problem = self.expect(status);
        assert_eq!(problem["status"], status, "{problem}");
        problem["code"].as_str().expect("a code").to_owned()
    }
}

impl Lab {
    /// A server whose chats answer as the pages do and whose concierge rehearses.
    pub async fn new() -> Self {
        Self::with(TOUR, |_| {}).await
    }

    /// The same with another scenario or other options.
    pub async fn with(scenario: &str, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Self::on(&MemoryDisk::new(), folder, scenario, change).await
    }

    /// A server on a disk that others may use too.
    pub async fn on(
        disk: &MemoryDisk,
        folder: Arc<TempDir>,
        scenario: &str,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let engine = engine(Arc::new(MemoryStore::open(disk)), scenario).await;
        Self::of(engine, disk, folder, change).await
    }

    /// A server of an engine.
    pub async fn of(
        engine: Engine,
        disk: &MemoryDisk,
        folder: Arc<TempDir>,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let mut options = ServerOptions::new(folder.path().to_owned());
        options.address.set_port(0);
        change(&mut options);
        let server = HttpServer::bind(engine.clone(), options).await.expect("it listens");
        let url = format!("http://127.0.0.1:{}", server.local_address().port());
        let (stop, stopped) = oneshot::channel::<()>();
        let done = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        // Whoever comes first sets it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { url, engine, client, folder, disk: disk.clone(), stop: Some(stop), done: Some(done) }
    }

    pub fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.ask(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        answer(self.ask(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.ask(Method::POST, path).json(&body)).await
    }

    /// A session of that name and flow.
    pub async fn open(&self, session: &str, flow: &str) {
        self.post("/v1/sessions", json!({"session": session, "flow": flow})).await.expect(201);
    }

    /// What is answered to a message.
    pub async fn say(&self, session: &str, text: &str) -> Value {
        self.post(&format!("/v1/sessions/{session}/messages"), json!({"text": text})).await.expect(200)
    }

    /// Ends the server in good order.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.done.take().expect("it runs").await.expect("it ends");
    }

    /// Tells the server to end, and does not wait.
    pub fn begin_to_stop(&mut self) {
        drop(self.stop.take());
    }
}

pub async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    Answer { status, headers, text: response.text().await.expect("a whole answer") }
}

async fn engine(store: Arc<dyn Store>, scenario: &str) -> Engine {
    let script: ScriptedModel = scenario.parse().expect("a scenario");
    let models = ModelRegistry::new()
        .with_model("scripted", Arc::new(script))
        .with_model("rehearsal", Arc::new(RehearsalModel::instant()));
    let models = Arc::new(models);
    let casting = ["expert", "mapper", "concierge", "summariser"]
        .iter()
        .fold(ModelAssignment::new(models.clone(), "scripted".into()), |casting, role| {
            casting.with_role_model(Some("concierge".into()), (*role).into(), None, "rehearsal".into())
        });
    // Those that need no host of tools.
    let flows = segue_flows::built_in_flows().into_iter().filter(|flow| flow.spec().tools.is_empty()).collect();
    let setup = EngineConfig {
        models,
        model_assignment: casting,
        ..EngineConfig::new(store, flows, ModelRegistry::new(), "scripted")
    };
    Engine::start(setup).await.expect("it starts")
}

/// A stream of events, read one by one.
pub struct Reading {
    response: reqwest::Response,
    buffer: String,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub kind: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl Reading {
    pub async fn of(request: RequestBuilder) -> Self {
        let response = request.header("accept", "text/event-stream").send().await.expect("an answer");
        let status = response.status();
        assert!(status.is_success(), "{status}: {}", response.text().await.unwrap_or_default());
        Self { response, buffer: String::new() }
    }

    /// The next event; nothing at the end.
    pub async fn next(&mut self) -> Option<Sent> {
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

    /// Events up to one of this kind.
    pub async fn until(&mut self, kind: &str) -> Vec<Sent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let is_last = event.kind == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
        panic!("no `{kind}` came: {events:?}")
    }
}

fn parse(text: &str) -> Option<Sent> {
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
    (!data.is_empty()).then(|| Sent { kind, id, data: serde_json::from_str(&data).unwrap_or(Value::String(data)) })
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
