//! While the database is down, a node answers with an error that says so, and that a client may repeat the request. When the
//! database is back, the node works again.

use std::sync::Arc;

use reqwest::Method;
use segue_server::{ApiKeyLimits, ApiKeyToCreate, CrossServerSharedState};
use segue_store::memory::InMemoryStoreDisk;
use segue_store::postgres::PostgresStore;
use segue_testkit::TemporaryPostgres;
use serde_json::{Value, json};

use crate::key_limits::priced_engine_on;
use crate::keys::Tenant;
use crate::test_server::{DEFAULT_SCENARIO, HttpResponse, TestServer, send};
use crate::webhooks::with_secret_and_short_delays;

async fn start_node(url: &str) -> (TestServer, CrossServerSharedState) {
    let store = Arc::new(PostgresStore::open(url).expect("opens"));
    let shared = CrossServerSharedState::from_store(store.clone());
    let engine = priced_engine_on(store, &shared, DEFAULT_SCENARIO).await;
    let (folder, options) = (Arc::new(tempfile::tempdir().expect("a folder")), shared.clone());
    let server = TestServer::with_engine(engine, &InMemoryStoreDisk::new(), folder, |server| {
        server.shared = options;
        with_secret_and_short_delays(server);
    })
    .await;
    (server, shared)
}

fn expect_unavailable(what: &str, response: &HttpResponse) {
    assert_eq!(response.status, 503, "{what}: {}", response.text);
    assert_eq!(response.headers["retry-after"], "1", "{what}");
    let problem = response.json();
    // OpenAI's clients expect a form of their own.
    let (code, detail) = match &problem["error"] {
        Value::Null => (&problem["code"], &problem["detail"]),
        error => (&error["code"], &error["message"]),
    };
    assert_eq!(code, "database-unavailable", "{what}");
    let detail = detail.as_str().unwrap_or_else(|| panic!("{what}: {problem}"));
    assert!(detail.contains("try again") && !detail.contains("127.0.0.1"), "{what}: {detail}");
}

#[tokio::test]
async fn requests_get_503_while_the_database_is_down_and_work_again_afterwards() {
    let mut postgres = TemporaryPostgres::start();
    let url = postgres.create_database();
    let (server, shared) = start_node(&url).await;
    let limits = ApiKeyLimits { tokens_per_day: Some(1_000_000), turns_at_once: Some(5), ..ApiKeyLimits::default() };
    let new = ApiKeyToCreate { name: "limited".into(), limits, ..ApiKeyToCreate::default() };
    let (_, key) = shared.keys().create_key(new, 1).await.expect("made");
    let limited = Tenant { server: &server, key };
    limited.get("/v1/sessions").await.expect_json(200);
    server.open_session("fox", "chat").await;
    server.send_message("fox", "before").await;
    postgres.stop_server();

    let message = json!({"text": "meanwhile", "key": "k1"});
    let completion = json!({"model": "chat", "messages": [{"role": "user", "content": "hello"}]});
    let requests: [(Method, &str, Value); 8] = [
        (Method::GET, "/v1/sessions", Value::Null),
        (Method::GET, "/v1/sessions/hen", Value::Null),
        (Method::POST, "/v1/sessions", json!({"session": "hen", "flow": "chat"})),
        (Method::POST, "/v1/sessions/fox/messages", message.clone()),
        (Method::DELETE, "/v1/sessions/fox", Value::Null),
        (Method::POST, "/v1/chat/completions", completion),
        (Method::GET, "/v1/webhooks", Value::Null),
        (Method::GET, "/v1/usage", Value::Null),
    ];
    for (method, path, body) in requests {
        let what = format!("{method} {path}");
        let request = server.request(method, path);
        let response = send(if body.is_null() { request } else { request.json(&body) }).await;
        expect_unavailable(&what, &response);
    }
    // What a key may spend is in the database, too. Its owner learns no more than others.
    expect_unavailable("limited", &limited.post("/v1/sessions/fox/messages", message.clone()).await);
    assert_eq!(server.get("/ready").await.problem_code(503), "not-ready");
    assert_eq!(server.get("/health").await.status, 200);

    postgres.start_server();
    let answer = loop {
        let answer = server.post("/v1/sessions/fox/messages", message.clone()).await;
        match answer.status.as_u16() {
            200 => break answer.json(),
            status => assert_eq!(status, 503, "{}", answer.text),
        }
    };
    assert_eq!(answer["reply"], "You said: meanwhile", "{answer}");
    let turns = server.get("/v1/sessions/fox/turns").await.expect_json(200);
    assert_eq!(turns["turns"].as_array().map(Vec::len), Some(2), "the message was recorded once: {turns}");
}
