//! Keys and tenants: who has no key gets nothing, and no owner learns anything of another.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqwest::Method;
use segue_server::keys::{ApiKeyStore, NewApiKey};
use segue_server::{Error, HttpServer, ServerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{Answer, Lab, Reading, TOUR, answer};

fn key(folder: &TempDir, owner: Option<&str>, flows: Option<&[&str]>) -> String {
    let flows = flows.map(|flows| flows.iter().map(|flow| (*flow).into()).collect::<BTreeSet<_>>());
    let new = NewApiKey { name: "test".into(), owner: owner.map(Into::into), flows };
    ApiKeyStore::from_folder(folder.path()).create_key(new, 1).expect("made").1
}

/// Somebody with a key.
struct Tenant<'l> {
    lab: &'l Lab,
    key: String,
}

impl Tenant<'_> {
    async fn get(&self, path: &str) -> Answer {
        answer(self.lab.ask(Method::GET, path).bearer_auth(&self.key)).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.lab.ask(Method::POST, path).bearer_auth(&self.key).json(&body)).await
    }
}

async fn lab() -> (Lab, Arc<TempDir>) {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let lab = Lab::on(&segue_store::memory::MemoryDisk::new(), folder.clone(), TOUR, |_| {}).await;
    (lab, folder)
}

#[tokio::test]
async fn an_address_for_others_needs_a_key() {
    let (lab, folder) = lab().await;
    let mut options = ServerOptions::new(folder.path().to_owned());
    options.address = "0.0.0.0:0".parse().expect("an address");
    let refused = HttpServer::bind(lab.engine.clone(), options.clone()).await.expect_err("it must not listen");
    assert!(matches!(refused, Error::KeyRequired(_)));
    assert!(refused.to_string().contains("segue keys add"), "{refused}");
    let key = key(&folder, None, None);
    let open =
        Lab::on(&lab.disk, folder.clone(), TOUR, |options| options.address = "0.0.0.0:0".parse().expect("an address"))
            .await;
    assert_eq!(open.get("/v1/sessions").await.problem(401), "key-missing");
    assert_eq!(open.get("/health").await.status, 200, "whoever looks after the server needs no key");
    assert_eq!(open.get("/metrics").await.status, 401);
    assert_eq!(open.get("/").await.status, 200, "the studio asks for the key itself");
    let tenant = |key: &str| Tenant { lab: &open, key: key.to_owned() };
    assert_eq!(tenant(&key).get("/v1/sessions").await.status, 200);
    for wrong in [format!("{key}x"), "sg_000000000000_00".into(), "whatever".into()] {
        assert_eq!(tenant(&wrong).get("/v1/sessions").await.problem(401), "key-not-accepted", "{wrong}");
    }
}

#[tokio::test]
async fn on_loopback_any_foreign_key_will_do_and_a_key_can_be_asked_for() {
    let (lab, folder) = lab().await;
    let tenant = |lab, key: &str| Tenant { lab, key: key.to_owned() };
    assert_eq!(tenant(&lab, "sk-unused").get("/v1/models").await.status, 200);
    assert_eq!(tenant(&lab, "sg_1_2").get("/v1/models").await.status, 401);
    key(&folder, None, None);
    let strict = Lab::on(&lab.disk, folder.clone(), TOUR, |options| options.require_key = true).await;
    assert_eq!(strict.get("/v1/models").await.status, 401);
}

#[tokio::test]
async fn two_owners_have_sessions_of_the_same_name_and_see_only_their_own() {
    let (lab, folder) = lab().await;
    let acme = Tenant { lab: &lab, key: key(&folder, Some("acme"), None) };
    let bolt = Tenant { lab: &lab, key: key(&folder, Some("bolt"), None) };
    for (tenant, text) in [(&acme, "the secret of acme"), (&bolt, "the secret of bolt")] {
        tenant.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await.expect(201);
        tenant.post("/v1/sessions/fox/messages", json!({"text": text})).await.expect(200);
    }
    acme.post("/v1/sessions", json!({"session": "only", "flow": "chat"})).await.expect(201);
    let sessions = bolt.get("/v1/sessions").await;
    assert!(!sessions.text.contains("only") && !sessions.text.contains("secret of acme"));
    assert!(bolt.get("/v1/sessions?search=acme").await.expect(200)["sessions"].as_array().expect("rows").is_empty());
    let theirs = bolt.get("/v1/sessions/only").await;
    let nobodys = bolt.get("/v1/sessions/none").await;
    assert_eq!(theirs.text.replace("only", "none"), nobodys.text, "what is another's is not there");
    assert_eq!(theirs.headers.get("content-length").map(|_| ()), nobodys.headers.get("content-length").map(|_| ()));
    // The full name is a name in their own room, where there is no such session.
    for name in ["acme.fox", "acme.only", "bolt.fox"] {
        assert_eq!(bolt.get(&format!("/v1/sessions/{name}/turns")).await.problem(404), "no-such-session", "{name}");
    }
    let everything = lab.get("/v1/sessions").await.expect(200);
    let names: BTreeSet<&str> =
        everything["sessions"].as_array().expect("rows").iter().filter_map(|row| row["session"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["acme.fox", "acme.only", "bolt.fox"]), "the operator sees all");
}

#[tokio::test]
async fn no_view_tells_of_the_room_or_of_another_owner() {
    let (lab, folder) = lab().await;
    let acme = Tenant { lab: &lab, key: key(&folder, Some("acme"), None) };
    let bolt = Tenant { lab: &lab, key: key(&folder, Some("bolt"), None) };
    for tenant in [&acme, &bolt] {
        tenant.post("/v1/sessions", json!({"session": "fox", "flow": "concierge"})).await.expect(201);
        tenant.post("/v1/sessions/fox/messages", json!({"text": "Should we?"})).await.expect(200);
    }
    acme.post("/v1/sessions/fox/messages", json!({"text": "Nobody but acme says this."})).await.expect(200);
    acme.post("/v1/sessions/fox/fork", json!({"session": "branch"})).await.expect(201);
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
        "/exhibits",
        "/ledger",
        "/state",
        "/events?texts=all&limit=1000",
        "/export",
    ];
    for session in ["fox", "branch"] {
        for view in views {
            let answer = acme.get(&format!("/v1/sessions/{session}{view}")).await;
            assert_eq!(answer.status, 200, "{session}{view}: {}", answer.text);
            assert!(!answer.text.contains("acme."), "{session}{view} tells the name of the room: {}", answer.text);
        }
    }
    let receipt = acme.get("/v1/sessions/fox/turns").await.expect(200);
    assert!(receipt.to_string().contains("Nobody but acme"));
    // Texts are stored once; that one knows an id gives no right to it.
    let events = acme.get("/v1/sessions/fox/events?texts=all&limit=1000").await.expect(200);
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
    assert_eq!(bolt.get(&format!("/v1/sessions/fox/texts/{body}")).await.problem(404), "no-such-thing");
    let changes = lab.ask(Method::GET, "/v1/sessions/fox/events").bearer_auth(&bolt.key);
    let heard = Reading::of(changes).await.until("live").await;
    assert!(heard.iter().all(|event| !event.data.to_string().contains("acme")));
}

#[tokio::test]
async fn a_conversation_of_the_door_stays_with_its_owner() {
    let (lab, folder) = lab().await;
    let acme = Tenant { lab: &lab, key: key(&folder, Some("acme"), None) };
    let bolt = Tenant { lab: &lab, key: key(&folder, Some("bolt"), None) };
    let ask = json!({"model": "chat", "messages": [{"role": "user", "content": "hello"}]});
    let first = acme.post("/v1/chat/completions", ask).await.expect(200);
    let go_on = json!({"model": "chat", "messages": [
        {"role": "user", "content": "hello"}, first["choices"][0]["message"], {"role": "user", "content": "go on"}
    ]});
    let theirs = bolt.post("/v1/chat/completions", go_on.clone()).await.expect(200);
    assert_eq!(theirs["turn"], "t1", "the same words said by another are another conversation");
    assert_eq!(acme.post("/v1/chat/completions", go_on).await.expect(200)["turn"], "t2");
    let response = acme.post("/v1/responses", json!({"model": "chat", "input": "hello"})).await.expect(200);
    let path = format!("/v1/responses/{}", response["id"].as_str().expect("an id"));
    assert_eq!(acme.get(&path).await.status, 200);
    assert_eq!(bolt.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_key_for_some_flows_knows_of_no_others() {
    let (lab, folder) = lab().await;
    lab.open("open", "chat").await;
    lab.open("closed", "concierge").await;
    let some = Tenant { lab: &lab, key: key(&folder, None, Some(&["chat"])) };
    assert_eq!(some.get("/v1/sessions/open").await.status, 200);
    assert_eq!(some.get("/v1/sessions/closed").await.problem(404), "no-such-session");
    let listed = some.get("/v1/sessions").await;
    assert!(listed.text.contains("open") && !listed.text.contains("closed"));
    assert!(some.get("/v1/sessions?flow=concierge").await.expect(200)["sessions"].as_array().expect("rows").is_empty());
    for path in ["/v1/flows", "/v1/models"] {
        assert!(!some.get(path).await.text.contains("concierge"), "{path}");
    }
    assert_eq!(some.get("/v1/flows/concierge").await.problem(404), "no-such-flow");
    assert_eq!(some.post("/v1/sessions", json!({"flow": "concierge"})).await.problem(404), "no-such-flow");
    assert_eq!(some.get("/metrics").await.problem(403), "not-allowed");
    assert_eq!(some.get("/v1/webhooks").await.problem(403), "not-allowed");
    let about = some.get("/v1/server").await.expect(200);
    assert_eq!((&about["you"]["flows"], &about["you"]["operator"]), (&json!(["chat"]), &json!(false)));
}

#[tokio::test]
async fn an_owner_takes_a_session_out_and_in_under_its_own_names() {
    let (lab, folder) = lab().await;
    let acme = Tenant { lab: &lab, key: key(&folder, Some("acme"), None) };
    let bolt = Tenant { lab: &lab, key: key(&folder, Some("bolt"), Some(&["concierge"])) };
    acme.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await.expect(201);
    acme.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await.expect(200);
    let lines = acme.get("/v1/sessions/fox/export").await.text;
    let import = |tenant: &Tenant<'_>, name: &str| {
        answer(lab.ask(Method::POST, &format!("/v1/import{name}")).bearer_auth(&tenant.key).body(lines.clone()))
    };
    assert_eq!(import(&acme, "?session=copy").await.expect(201)["session"], "copy");
    assert_eq!(import(&acme, "").await.problem(409), "session-exists");
    assert_eq!(import(&bolt, "").await.problem(404), "no-such-flow");
    assert!(lab.get("/v1/sessions").await.text.contains("acme.copy"));
}
