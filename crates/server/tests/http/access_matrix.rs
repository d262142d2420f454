//! Every route × every kind of caller × every kind of session. The routes come from the API description, so a new route
//! fails here until it is decided who may use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder};
use segue_engine::SessionQuery;
use segue_server::ApiKeyStore;
use segue_store::memory::InMemoryStoreDisk;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::key_limits::priced_engine;
use crate::keys::{Tenant, key};
use crate::test_server::{DEFAULT_SCENARIO, TestServer};

/// A text that occurs only in the sessions under test.
const SECRET: &str = "quokka";
/// Every session under test has this name, within the namespace of its owner.
const SESSION: &str = "fox";

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Everybody, without a key.
    Open,
    /// Every key. The response depends only on what the key may see.
    AnyKey,
    /// Keys that may see the session in the path.
    Session,
    /// Keys without an owner and without flows.
    Operator,
}

/// Decides who may use a route. A route that is not mentioned fails the test.
fn access_of(method: &str, path: &str) -> Access {
    match (method, path) {
        (_, path) if path.starts_with("/v1/sessions/{session}") => Access::Session,
        ("get", "/health" | "/ready") => Access::Open,
        ("get", "/metrics") => Access::Operator,
        (_, path) if path.starts_with("/v1/webhooks") => Access::Operator,
        (
            "get",
            "/v1/changes"
            | "/v1/flows"
            | "/v1/flows/{flow}"
            | "/v1/model-cards"
            | "/v1/models"
            | "/v1/models/{model}"
            | "/v1/responses/{response}"
            | "/v1/server"
            | "/v1/sessions"
            | "/v1/stream"
            | "/v1/usage",
        )
        | ("post", "/v1/chat/completions" | "/v1/import" | "/v1/responses" | "/v1/sessions") => Access::AnyKey,
        _ => panic!("decide in this test who may use `{method} {path}`"),
    }
}

/// Returns a value for a path parameter.
fn path_value<'v>(name: &str, session: &'v str, flow: &'v str) -> &'v str {
    match name {
        "session" => session,
        "flow" | "model" => flow,
        "call" => "c1",
        "turn" => "t1",
        "run" => "x1",
        "artifact" => "plan",
        "command" => "reset",
        "body" => "00000000000000000000000000000000",
        "submission" => "00000000000000000000000000000000",
        "response" => "resp_fox_m1",
        "webhook" => "w1",
        _ => panic!("this test has no value for the path parameter `{name}`"),
    }
}

/// Returns a body for a route; `None` if it takes none.
fn body_of(method: &str, path: &str, flow: &str) -> Option<Value> {
    Some(match (method, path.trim_start_matches("/v1/sessions/{session}")) {
        ("get" | "delete", _) | (_, "/close" | "/v1/webhooks/{webhook}/ping") => return None,
        ("patch", "") => json!({"title": "another title"}),
        (_, "/v1/sessions") => json!({"flow": flow}),
        (_, "/messages") => json!({"text": "hello"}),
        (_, "/forget") => json!({"role": "assistant"}),
        (_, "/calls/{call}/resolve" | "/tool-runs/{run}/resolve") => json!({"action": "fail"}),
        (_, "/phases/propose" | "/phases/grant") => json!({"to": "explorer"}),
        (_, "/phases/rollback") => json!({"visit": 1}),
        (_, "/texts") => json!({"bodies": ["00000000000000000000000000000000"]}),
        (_, "/v1/chat/completions") => json!({"model": flow, "messages": [{"role": "user", "content": "hello"}]}),
        (_, "/v1/responses") => json!({"model": flow, "input": "hello", "previous_response_id": "resp_fox_m1"}),
        (_, "/v1/webhooks") => json!({"url": "http://127.0.0.1:9/"}),
        (_, _) => json!({}),
    })
}

/// A kind of session, and how it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Chat,
    Concierge,
    Closed,
    Fork,
    Import,
    Child,
}

impl Kind {
    fn flow(self) -> &'static str {
        match self {
            Self::Concierge => "concierge",
            Self::Child => "worker",
            Self::Chat | Self::Closed | Self::Fork | Self::Import => "chat",
        }
    }

    /// Returns the name of the session within its namespace.
    fn name(self) -> &'static str {
        if self == Self::Child { "fox~1" } else { SESSION }
    }

    /// Makes the session in the namespace of `acme`, which has none yet.
    async fn make(self, acme: &Tenant<'_>) {
        let open = async |name: &str, flow: &str, text: &str| {
            acme.post("/v1/sessions", json!({"session": name, "flow": flow})).await.expect_json(201);
            acme.post(&format!("/v1/sessions/{name}/messages"), json!({"text": text})).await.expect_json(200);
        };
        match self {
            Self::Chat => open(SESSION, "chat", SECRET).await,
            Self::Concierge => open(SESSION, "concierge", SECRET).await,
            Self::Closed => {
                open(SESSION, "chat", SECRET).await;
                acme.post("/v1/sessions/fox/close", json!({})).await.expect_json(200);
            }
            Self::Fork => {
                open("base", "chat", SECRET).await;
                acme.post("/v1/sessions/base/fork", json!({"session": SESSION})).await.expect_json(201);
            }
            Self::Import => {
                open("base", "chat", SECRET).await;
                let lines = acme.get("/v1/sessions/base/export").await.text;
                let import = acme.server.request(Method::POST, "/v1/import?session=fox").bearer_auth(&acme.key);
                assert_eq!(import.body(lines).send().await.expect("an answer").status(), 201);
            }
            Self::Child => open(SESSION, "parent", SECRET).await,
        }
    }
}

/// All routes of the API description.
fn all_routes() -> Vec<(String, String)> {
    let document = serde_json::to_value(segue_server::openapi_document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").iter();
    let routes = paths.flat_map(|(path, methods)| {
        methods.as_object().expect("methods").keys().map(move |method| (method.clone(), path.clone()))
    });
    routes.collect()
}

/// Builds the request of a route.
fn request(server: &TestServer, (method, path): &(String, String), session: &str, flow: &str) -> RequestBuilder {
    let filled = path.split('/').map(|part| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(name) => path_value(name, session, flow),
        None => part,
    });
    let filled = filled.collect::<Vec<_>>().join("/");
    let request = server.request(method.to_uppercase().parse().expect("a method"), &filled);
    match body_of(method, path, flow) {
        Some(body) => request.json(&body),
        None => request,
    }
}

/// The status and the text of a response. Of a stream, only the first part is read.
async fn answer(request: RequestBuilder) -> (u16, String) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        let first = response.bytes_stream().next().await.expect("a part").expect("bytes");
        return (status, String::from_utf8_lossy(&first).into_owned());
    }
    (status, response.text().await.expect("a whole answer"))
}

fn problem_code(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let code = body["code"].as_str().or(body["error"]["code"].as_str());
    code.unwrap_or_default().to_owned()
}

/// The sessions of an owner with their last event.
async fn namespace(server: &TestServer, owner: &str) -> BTreeMap<String, u64> {
    let query = SessionQuery { name_prefix: Some(format!("{owner}.")), ..SessionQuery::newest(200) };
    let page = server.engine.list_sessions(&query).await.expect("a list");
    page.entries.iter().map(|entry| (entry.session.to_string(), entry.head.0)).collect()
}

struct Callers {
    operator: String,
    owner: String,
    /// May use the flow of the session.
    same_flow: String,
    other_owner: String,
    /// Of the same owner, but limited to another flow.
    other_flow: String,
    revoked: String,
}

impl Callers {
    async fn new(folder: &TempDir, kind: Kind) -> Self {
        let other_flow = if kind.flow() == "chat" { "concierge" } else { "chat" };
        let revoked = key(folder, Some("acme"), None).await;
        let id = revoked.split('_').nth(1).expect("an id");
        ApiKeyStore::from_folder(folder.path()).revoke_key(id).await.expect("revoked");
        Self {
            operator: key(folder, None, None).await,
            owner: key(folder, Some("acme"), None).await,
            same_flow: key(folder, Some("acme"), Some(&[kind.flow()])).await,
            other_owner: key(folder, Some("bolt"), None).await,
            other_flow: key(folder, Some("acme"), Some(&[other_flow])).await,
            revoked,
        }
    }
}

async fn matrix_server(kind: Kind) -> (TestServer, Callers) {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let callers = Callers::new(&folder, kind).await;
    let disk = InMemoryStoreDisk::new();
    let engine = priced_engine(&disk, &folder, DEFAULT_SCENARIO).await;
    (TestServer::with_engine(engine, &disk, folder, |options| options.require_key = true).await, callers)
}

/// Nobody but those who may see a session learns of it or changes it.
async fn check_refusals(kind: Kind) {
    let (server, callers) = matrix_server(kind).await;
    kind.make(&Tenant { server: &server, key: callers.owner.clone() }).await;
    let before = namespace(&server, "acme").await;
    let full_name = format!("acme.{}", kind.name());
    for route in &all_routes() {
        let access = access_of(&route.0, &route.1);
        let shown = format!("{kind:?}: {} {}", route.0, route.1);
        let none = answer(request(&server, route, kind.name(), kind.flow())).await;
        let revoked = answer(request(&server, route, kind.name(), kind.flow()).bearer_auth(&callers.revoked)).await;
        if access == Access::Open {
            assert!(none.0 < 300 && revoked.0 < 300, "{shown}: {none:?} {revoked:?}");
            continue;
        }
        assert_eq!((none.0, problem_code(&none.1).as_str()), (401, "key-missing"), "{shown}: {}", none.1);
        assert_eq!((revoked.0, problem_code(&revoked.1).as_str()), (401, "key-invalid"), "{shown}: {}", revoked.1);
        let strangers = [(&callers.other_owner, kind.name()), (&callers.other_owner, &full_name)];
        for (key, name) in strangers.into_iter().chain([(&callers.other_flow, kind.name())]) {
            let (status, text) = answer(request(&server, route, name, kind.flow()).bearer_auth(key)).await;
            assert!(!text.contains(SECRET), "{shown}: {text}");
            match access {
                Access::Session => {
                    assert_eq!((status, problem_code(&text).as_str()), (404, "no-such-session"), "{shown}: {text}");
                }
                Access::Operator => {
                    assert_eq!((status, problem_code(&text).as_str()), (403, "forbidden"), "{shown}: {text}");
                }
                // A worker session sends no reply, which the OpenAI-compatible endpoints report.
                Access::AnyKey => {
                    let is_answered = status < 500 && status != 401 || problem_code(&text) == "turn-failed";
                    assert!(is_answered, "{shown}: {status} {text}");
                }
                Access::Open => {}
            }
        }
        let mut after = namespace(&server, "acme").await;
        // The key that is limited to another flow may open sessions of that flow.
        after.retain(|name, _| before.contains_key(name));
        assert_eq!(after, before, "{shown} changed a session of another owner");
    }
}

/// Those who may see a session can use every route of it.
async fn check_permissions(kind: Kind) {
    let mut current = None;
    for route in &all_routes() {
        let access = access_of(&route.0, &route.1);
        // Reading changes nothing, so the routes that only read share a session.
        let reused = current.take().filter(|_| route.0 == "get");
        let (server, callers) = match reused {
            Some(current) => current,
            None => {
                let (server, callers) = matrix_server(kind).await;
                kind.make(&Tenant { server: &server, key: callers.owner.clone() }).await;
                (server, callers)
            }
        };
        let full_name = format!("acme.{}", kind.name());
        let shown = format!("{kind:?}: {} {}", route.0, route.1);
        // A deletion leaves nothing for the next caller.
        let is_destructive = route.0 == "delete";
        let allowed =
            [(&callers.same_flow, kind.name()), (&callers.owner, kind.name()), (&callers.operator, &full_name)];
        for (key, name) in allowed.into_iter().take(if is_destructive { 1 } else { 3 }) {
            let is_operator = *key == callers.operator;
            let (status, text) = answer(request(&server, route, name, kind.flow()).bearer_auth(key)).await;
            let code = problem_code(&text);
            assert!(status < 500 || code == "turn-failed", "{shown}: {status} {text}");
            match access {
                Access::Operator if !is_operator => assert_eq!((status, code.as_str()), (403, "forbidden"), "{shown}"),
                _ => assert!(
                    !["no-such-session", "forbidden", "key-invalid", "key-missing"].contains(&code.as_str()),
                    "{shown}: {status} {text}"
                ),
            }
        }
        current = Some((server, callers)).filter(|_| route.0 == "get");
    }
}

macro_rules! matrix {
    ($($name:ident: $kind:expr,)*) => {$(
        #[tokio::test]
        async fn $name() {
            check_refusals($kind).await;
            check_permissions($kind).await;
        }
    )*};
}

matrix! {
    chat_session_is_reached_only_by_its_owner: Kind::Chat,
    concierge_session_is_reached_only_by_its_owner: Kind::Concierge,
    closed_session_is_reached_only_by_its_owner: Kind::Closed,
    fork_is_reached_only_by_its_owner: Kind::Fork,
    imported_session_is_reached_only_by_its_owner: Kind::Import,
    child_session_is_reached_only_by_the_owner_of_its_parent: Kind::Child,
}
