//! Imports: no file reaches another owner's sessions, or a flow that the caller's key does not allow.

use reqwest::Method;
use serde_json::{Value, json};

use crate::keys::{Tenant, key, test_server};
use crate::test_server::{HttpResponse, TestServer, send};

/// Exports a session of `flow` with one message, as the operator.
async fn export_lines(server: &TestServer, flow: &str) -> Vec<String> {
    server.open_session("fox", flow).await;
    server.send_message("fox", "hello").await;
    server.get("/v1/sessions/fox/export").await.text.lines().map(str::to_owned).collect()
}

async fn import(tenant: &Tenant<'_>, lines: &[String]) -> HttpResponse {
    let request = tenant.server.request(Method::POST, "/v1/import").bearer_auth(&tenant.key);
    send(request.body(lines.join("\n"))).await
}

async fn session_names(server: &TestServer) -> Vec<String> {
    let list = server.get("/v1/sessions").await.expect_json(200);
    list["sessions"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["session"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn imported_session_is_always_in_the_callers_namespace() {
    let (server, folder) = test_server().await;
    let mut lines = export_lines(&server, "chat").await;
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), None).await };
    lines[0] = lines[0].replace("\"fox\"", "\"acme.fox\"");
    let first_event = lines.iter().position(|line| line.contains("session_opened")).expect("an event");
    let mut swapped = lines.clone();
    swapped.swap(0, first_event);
    assert_eq!(import(&bolt, &swapped).await.problem_code(400), "bad-import", "the header must come first");
    let mut repeated = lines.clone();
    repeated.push(lines[0].clone());
    assert_eq!(import(&bolt, &repeated).await.problem_code(400), "bad-import", "there is only one header");
    assert_eq!(session_names(&server).await, ["fox"], "nothing was stored");
    assert_eq!(import(&bolt, &lines).await.expect_json(201)["session"], "acme.fox");
    assert!(session_names(&server).await.contains(&"bolt.acme.fox".to_owned()));
}

#[tokio::test]
async fn import_does_not_bypass_a_key_limited_to_flows() {
    let (server, folder) = test_server().await;
    let lines = export_lines(&server, "concierge").await;
    let chat = Tenant { server: &server, key: key(&folder, Some("acme"), Some(&["chat"])).await };
    let bolt = Tenant { server: &server, key: key(&folder, Some("bolt"), None).await };
    assert_eq!(import(&chat, &lines).await.problem_code(404), "no-such-flow");
    // A header that also looks like an event of an allowed flow.
    let mut header: Value = serde_json::from_str(&lines[0]).expect("a header");
    header["event"] = json!({"type": "session_opened", "flow": "chat"});
    let mut disguised = lines.clone();
    disguised[0] = header.to_string();
    assert_eq!(import(&chat, &disguised).await.problem_code(400), "bad-import");
    // A second opening, whose flow would replace the first.
    let opened = lines.iter().find(|line| line.contains("session_opened")).expect("an event");
    let mut opened: Value = serde_json::from_str(opened).expect("an event");
    let own = server.get("/v1/sessions/fox").await.expect_json(200)["seq"].as_u64().expect("a number");
    opened["seq"] = json!(own + 1);
    let mut reopened = lines.clone();
    reopened.push(opened.to_string());
    assert_eq!(import(&bolt, &reopened).await.problem_code(400), "bad-import");
    assert_eq!(session_names(&server).await, ["fox"], "nothing was stored");
}

#[tokio::test]
async fn imported_settings_must_fit_the_flow() {
    let (server, folder) = test_server().await;
    let mut lines = export_lines(&server, "chat").await;
    let acme = Tenant { server: &server, key: key(&folder, Some("acme"), None).await };
    let at = lines.iter().position(|line| line.contains("session_opened")).expect("an event");
    let mut opened: Value = serde_json::from_str(&lines[at]).expect("an event");
    opened["event"]["settings"] = json!({"no_such_setting": 1});
    lines[at] = opened.to_string();
    assert_eq!(import(&acme, &lines).await.problem_code(400), "bad-settings");
    assert_eq!(session_names(&server).await, ["fox"], "nothing was stored");
}
