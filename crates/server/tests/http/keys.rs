//! Keys and owners: requests without a valid key are refused, and no owner sees data of another.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqwest::Method;
use segue_server::{ApiKeyStore, ApiKeyToCreate, BoundHttpServer, Error, ServerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::test_server::{DEFAULT_SCENARIO, HttpResponse, SseReader, TestServer, send};

pub(crate) async fn key(folder: &TempDir, owner: Option<&str>, flows: Option<&[&str]>) -> String {
    let flows = flows.map(|flows| flows.iter().map(|flow| (*flow).into()).collect::<BTreeSet<_>>());
    let new = ApiKeyToCreate { name: "test".into(), owner: owner.map(Into::into), flows, ..ApiKeyToCreate::default() };
    ApiKeyStore::from_folder(folder.path()).create_key(new, 1).await.expect("made").1
}

/// A client with a key.
pub(crate) struct Tenant<'l> {
    pub server: &'l TestServer,
    pub key: String,
}

impl Tenant<'_> {
    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        send(self.server.request(Method::GET, path).bearer_auth(&self.key)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        send(self.server.request(Method::POST, path).bearer_auth(&self.key).json(&body)).await
    }
}

pub(crate) async fn test_server() -> (TestServer, Arc<TempDir>) {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let server =
        TestServer::on_disk(&segue_store::memory::InMemoryStoreDisk::new(), folder.clone(), DEFAULT_SCENARIO, |_| {})
            .await;
    (server, folder)
}

#[tokio::test]
async fn remote_address_requires_a_key() {
    let (server, folder) = test_server().await;
    let mut options = ServerOptions::new(segue_server::CrossServerSharedState::from_folder(folder.path()));
    options.address = "0.0.0.0:0".parse().expect("an address");
    let refused = BoundHttpServer::bind(server.engine.clone(), options.clone()).await.expect_err("it must not listen");
    assert!(matches!(refused, Error::KeyRequired(_)));
    assert!(refused.to_string().contains("segue keys add"), "{refused}");
    let key = key(&folder, None, None).await;
    let open = TestServer::on_disk(&server.disk, folder.clone(), DEFAULT_SCENARIO, |options| {
        options.address = "0.0.0.0:0".parse().expect("an address")
    })
    .await;
    assert_eq!(open.get("/v1/sessions").await.problem_code(401), "key-missing");
    assert_eq!(open.get("/health").await.status, 200, "health checks need no key");
    assert_eq!(open.get("/metrics").await.status, 401);
    assert_eq!(open.get("/").await.status, 200, "the studio asks for the key itself");
    let tenant = |key: &str| Tenant { server: &open, key: key.to_owned() };
    assert_eq!(tenant(&key).get("/v1/sessions").await.status, 200);
    for wrong in [format!("{key}x"), "sg_000000000000_00".into(), "whatever".into()] {
        assert_eq!(tenant(&wrong).get("/v1/sessions").await.problem_code(401), "key-invalid", "{wrong}");
    }
}

#[tokio::test]
async fn loopback_ignores_foreign_keys_unless_a_key_is_required() {
    let (server, folder) = test_server().await;
    let tenant = |server, key: &str| Tenant { server, key: key.to_owned() };
    assert_eq!(tenant(&server, "sk-unused").get("/v1/models").await.status, 200);
    assert_eq!(tenant(&server, "sg_1_2").get("/v1/models").await.status, 401);
    key(&folder, None, None).await;
    let strict =
        TestServer::on_disk(&server.disk, folder.clone(), DEFAULT_SCENARIO, |options| options.require_key = true).await;
    assert_eq!(strict.get("/v1/models").await.status, 401);
}

#[tokio::test]
async fn owners_see_only_their_own_sessions() {
    let (server, folder) = test_server().await;
    let acme = Tenant { server: &server, key: key(&folder, Some("acme"), None).await };
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), None).await };
    for (tenant, text) in [(&acme, "the secret of acme"), (&bolt, "the secret of bolt")] {
        tenant.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await.expect_json(201);
        tenant.post("/v1/sessions/fox/messages", json!({"text": text})).await.expect_json(200);
    }
    acme.post("/v1/sessions", json!({"session": "only", "flow": "chat"})).await.expect_json(201);
    let sessions = bolt.get("/v1/sessions").await;
    assert!(!sessions.text.contains("only") && !sessions.text.contains("secret of acme"));
    assert!(
        bolt.get("/v1/sessions?search=acme").await.expect_json(200)["sessions"].as_array().expect("rows").is_empty()
    );
    let theirs = bolt.get("/v1/sessions/only").await;
    let nobodys = bolt.get("/v1/sessions/none").await;
    assert_eq!(theirs.text.replace("only", "none"), nobodys.text, "another owner's session looks like a missing one");
    assert_eq!(theirs.headers.get("content-length").map(|_| ()), nobodys.headers.get("content-length").map(|_| ()));
    // A full name resolves within the caller's own namespace, where no such session exists.
    for name in ["acme.fox", "acme.only", "bolt.fox"] {
        assert_eq!(
            bolt.get(&format!("/v1/sessions/{name}/turns")).await.problem_code(404),
            "no-such-session",
            "{name}"
        );
    }
    let everything = server.get("/v1/sessions").await.expect_json(200);
    let names: BTreeSet<&str> =
        everything["sessions"].as_array().expect("rows").iter().filter_map(|row| row["session"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["acme.fox", "acme.only", "bolt.fox"]), "the operator sees all");
}

#[tokio::test]
async fn no_view_reveals_a_namespace_or_another_owner() {
    let (server, folder) = test_server().await;
    let acme = Tenant { server: &server, key: key(&folder, Some("acme"), None).await };
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), None).await };
    for tenant in [&acme, &bolt] {
        tenant.post("/v1/sessions", json!({"session": "fox", "flow": "concierge"})).await.expect_json(201);
        tenant.post("/v1/sessions/fox/messages", json!({"text": "Should we?"})).await.expect_json(200);
    }
    acme.post("/v1/sessions/fox/messages", json!({"text": "Nobody but acme says this."})).await.expect_json(200);
    acme.post("/v1/sessions/fox/fork", json!({"session": "branch"})).await.expect_json(201);
    let views = [
        "",
        "/turns",
        "/calls",
        "/calls/c1",
        "/calls/c1/prompt",
        "/calls/c1/diff?with=c2",
        "/threads",
        "/phases",
        "/handovers",
        "/facts",
        "/artifacts",
        "/ledger",
        "/state",
        "/events?texts=all&limit=1000",
        "/export",
    ];
    for session in ["fox", "branch"] {
        for view in views {
            let answer = acme.get(&format!("/v1/sessions/{session}{view}")).await;
            assert_eq!(answer.status, 200, "{session}{view}: {}", answer.text);
            assert!(!answer.text.contains("acme."), "{session}{view} reveals the namespace: {}", answer.text);
        }
    }
    let receipt = acme.get("/v1/sessions/fox/turns").await.expect_json(200);
    assert!(receipt.to_string().contains("Nobody but acme"));
    // Texts are stored once, but knowing an id does not grant access.
    let events = acme.get("/v1/sessions/fox/events?texts=all&limit=1000").await.expect_json(200);
    let texts = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .flat_map(|event| event["texts"].as_object().expect("texts").iter());
    let (body, _) = texts
        .into_iter()
        .find(|(_, text)| text.as_str().is_some_and(|text| text.contains("Nobody but acme")))
        .expect("its text");
    assert_eq!(acme.get(&format!("/v1/sessions/fox/texts/{body}")).await.status, 200);
    assert_eq!(bolt.get(&format!("/v1/sessions/fox/texts/{body}")).await.problem_code(404), "not-found");
    let changes = server.request(Method::GET, "/v1/sessions/fox/events").bearer_auth(&bolt.key);
    let events = SseReader::open(changes).await.read_until("live").await;
    assert!(events.iter().all(|event| !event.data.to_string().contains("acme")));
}

#[tokio::test]
async fn openai_conversations_are_separated_by_owner() {
    let (server, folder) = test_server().await;
    let acme = Tenant { server: &server, key: key(&folder, Some("acme"), None).await };
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), None).await };
    let ask = json!({"model": "chat", "messages": [{"role": "user", "content": "hello"}]});
    let first = acme.post("/v1/chat/completions", ask).await.expect_json(200);
    let go_on = json!({"model": "chat", "messages": [
        {"role": "user", "content": "hello"}, first["choices"][0]["message"], {"role": "user", "content": "go on"}
    ]});
    let theirs = bolt.post("/v1/chat/completions", go_on.clone()).await.expect_json(200);
    assert_eq!(theirs["turn"], "t1", "the same messages of another owner are another conversation");
    assert_eq!(acme.post("/v1/chat/completions", go_on).await.expect_json(200)["turn"], "t2");
    let response = acme.post("/v1/responses", json!({"model": "chat", "input": "hello"})).await.expect_json(200);
    let path = format!("/v1/responses/{}", response["id"].as_str().expect("an id"));
    assert_eq!(acme.get(&path).await.status, 200);
    assert_eq!(bolt.get(&path).await.status, 404);
}

#[tokio::test]
async fn key_limited_to_flows_sees_no_other_flow() {
    let (server, folder) = test_server().await;
    server.open_session("open", "chat").await;
    server.open_session("closed", "concierge").await;
    let some = Tenant { server: &server, key: key(&folder, None, Some(&["chat"])).await };
    assert_eq!(some.get("/v1/sessions/open").await.status, 200);
    assert_eq!(some.get("/v1/sessions/closed").await.problem_code(404), "no-such-session");
    let listed = some.get("/v1/sessions").await;
    assert!(listed.text.contains("open") && !listed.text.contains("closed"));
    assert!(
        some.get("/v1/sessions?flow=concierge").await.expect_json(200)["sessions"].as_array().expect("rows").is_empty()
    );
    for path in ["/v1/flows", "/v1/models"] {
        assert!(!some.get(path).await.text.contains("concierge"), "{path}");
    }
    assert_eq!(some.get("/v1/flows/concierge").await.problem_code(404), "no-such-flow");
    assert_eq!(some.post("/v1/sessions", json!({"flow": "concierge"})).await.problem_code(404), "no-such-flow");
    assert_eq!(some.get("/metrics").await.problem_code(403), "forbidden");
    assert_eq!(some.get("/v1/webhooks").await.problem_code(403), "forbidden");
    let about = some.get("/v1/server").await.expect_json(200);
    assert_eq!((&about["caller"]["flows"], &about["caller"]["operator"]), (&json!(["chat"]), &json!(false)));
}

#[tokio::test]
async fn export_and_import_use_the_owners_names() {
    let (server, folder) = test_server().await;
    let acme = Tenant { server: &server, key: key(&folder, Some("acme"), None).await };
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), Some(&["concierge"])).await };
    acme.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await.expect_json(201);
    acme.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await.expect_json(200);
    let lines = acme.get("/v1/sessions/fox/export").await.text;
    let import = |tenant: &Tenant<'_>, name: &str| {
        send(server.request(Method::POST, &format!("/v1/import{name}")).bearer_auth(&tenant.key).body(lines.clone()))
    };
    assert_eq!(import(&acme, "?session=copy").await.expect_json(201)["session"], "copy");
    assert_eq!(import(&acme, "").await.problem_code(409), "session-exists");
    assert_eq!(import(&bolt, "").await.problem_code(404), "no-such-flow");
    assert!(server.get("/v1/sessions").await.text.contains("acme.copy"));
}

#[tokio::test]
async fn streams_of_a_revoked_key_end() {
    let (server, folder) = test_server().await;
    let secret = key(&folder, Some("acme"), None).await;
    let acme = Tenant { server: &server, key: secret.clone() };
    acme.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await.expect_json(201);
    let open = |path: &str| SseReader::open(server.request(Method::GET, path).bearer_auth(&secret));
    let mut streams = [open("/v1/sessions/fox/events").await, open("/v1/changes").await];
    for stream in &mut streams {
        stream.read_until("live").await;
    }
    let id = secret.split('_').nth(1).expect("an id");
    ApiKeyStore::from_folder(folder.path()).revoke_key(id).await.expect("revoked");
    for stream in &mut streams {
        let refused = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_until("problem")).await;
        let refused = refused.expect("the stream ends").pop().expect("a problem").data;
        assert_eq!((&refused["code"], &refused["status"]), (&json!("key-invalid"), &json!(401)));
        assert_eq!(stream.next().await, None, "nothing follows");
    }
}
