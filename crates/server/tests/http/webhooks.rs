//! Webhooks receive every event, in order and signed, including events that failed at first or were recorded while no server ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use segue_server::{ServerOptions, WebhookSecret, sign_delivery};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::test_server::{DEFAULT_SCENARIO, TestServer};

/// A receiver that fails the first few requests.
struct Receiver {
    url: String,
    deliveries: mpsc::UnboundedReceiver<(HeaderMap, String)>,
    seen: std::collections::HashSet<axum::http::HeaderValue>,
}

#[derive(Clone)]
struct ReceiverState {
    failures: Arc<AtomicUsize>,
    deliveries: mpsc::UnboundedSender<(HeaderMap, String)>,
}

async fn receiver(failures: usize) -> Receiver {
    let (sender, deliveries) = mpsc::unbounded_channel();
    let state = ReceiverState { failures: Arc::new(AtomicUsize::new(failures)), deliveries: sender };
    let receive = |State(state): State<ReceiverState>, headers: HeaderMap, body: String| async move {
        let fails = state.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        state.deliveries.send((headers, body)).expect("the test is running");
        StatusCode::NO_CONTENT
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let router = Router::new().route("/hook", post(receive)).with_state(state);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Receiver { url, deliveries, seen: std::collections::HashSet::new() }
}

fn with_secret_and_short_delays(options: &mut ServerOptions) {
    options.webhook_secret = Some(WebhookSecret("a long text".into()));
    options.limits.webhook_retry_delays_ms = [10; 6];
}

impl Receiver {
    /// Returns the next delivery. Repeated deliveries have the same id and are skipped.
    async fn next(&mut self) -> (HeaderMap, Value, String) {
        loop {
            let (headers, body) = self.deliveries.recv().await.expect("more");
            if self.seen.insert(headers["webhook-id"].clone()) {
                return (headers, serde_json::from_str(&body).expect("JSON"), body);
            }
        }
    }
}

#[tokio::test]
async fn deliveries_are_signed_ordered_and_retried() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    let mut receiver = receiver(2).await;
    let made = server
        .post("/v1/webhooks", json!({"url": receiver.url, "events": ["turn_started", "reply_sent", "turn_ended"]}))
        .await
        .expect_json(201);
    let id = made["webhook"].as_str().expect("an id");
    server.open_session("fox", "chat").await;
    server.send_message("fox", "one").await;
    server.send_message("fox", "two").await;
    let mut deliveries = Vec::new();
    for _ in 0..6 {
        let (headers, event, body) = receiver.next().await;
        let header = |name: &str| headers[name].to_str().expect("text").to_owned();
        let secret = made["secret"].as_str().expect("a secret").strip_prefix("whsec_").expect("its form");
        let secret = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, secret).expect("base64");
        let timestamp = header("webhook-timestamp").parse().expect("seconds");
        assert_eq!(header("webhook-signature"), sign_delivery(&secret, &header("webhook-id"), timestamp, &body));
        deliveries.push(format!(
            "{} {}",
            event["type"].as_str().expect("a kind"),
            event["data"]["event"]["turn"].as_str().expect("a turn")
        ));
    }
    assert_eq!(
        deliveries,
        ["turn_started t1", "reply_sent t1", "turn_ended t1", "turn_started t2", "reply_sent t2", "turn_ended t2"]
    );
    let attempts = server.get(&format!("/v1/webhooks/{id}/deliveries")).await.expect_json(200);
    let attempts = attempts["deliveries"].as_array().expect("tries");
    assert_eq!(attempts.iter().filter(|attempt| attempt["status"] == 503).count(), 2);
    server.delete(&format!("/v1/webhooks/{id}")).await.expect_json(204);
    assert_eq!(server.delete(&format!("/v1/webhooks/{id}")).await.problem_code(404), "not-found");
}

#[tokio::test]
async fn missed_events_are_delivered_after_a_restart() {
    let mut receiver = receiver(0).await;
    let server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    server
        .post("/v1/webhooks", json!({"url": receiver.url, "events": ["reply_sent"], "flows": ["chat"]}))
        .await
        .expect_json(201);
    server.open_session("fox", "chat").await;
    server.open_session("other", "concierge").await;
    server.send_message("fox", "one").await;
    assert_eq!(
        receiver.next().await.1["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: one"))
    );
    let (disk, folder) = (server.disk.clone(), server.folder.clone());
    // A server without a secret delivers nothing.
    let without_secret = TestServer::on_disk(&disk, folder.clone(), DEFAULT_SCENARIO, |_| {}).await;
    server.stop().await;
    without_secret.send_message("fox", "two").await;
    without_secret.send_message("other", "Should we?").await;
    without_secret.stop().await;
    let server = TestServer::on_disk(&disk, folder, DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    let (_, event, _) = receiver.next().await;
    assert_eq!(
        event["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: two"))
    );
    server.send_message("fox", "three").await;
    let (_, event, _) = receiver.next().await;
    assert_eq!(
        event["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: three"))
    );
}

#[tokio::test]
async fn webhooks_are_validated_and_can_be_pinged() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    let post = |body: Value| server.post("/v1/webhooks", body);
    for bad in [
        json!({"url": "ftp://x"}),
        json!({"url": "no address"}),
        json!({"url": "http://x", "flows": ["chess"]}),
        json!({"url": "http://x", "owner": "A B"}),
        json!({"url": "http://x", "events": ["nothing"]}),
    ] {
        assert_eq!(post(bad.clone()).await.problem_code(400), "bad-request", "{bad}");
    }
    let mut receiver = receiver(0).await;
    let made = post(json!({"url": receiver.url})).await.expect_json(201);
    let ping = format!("/v1/webhooks/{}/ping", made["webhook"].as_str().expect("an id"));
    assert_eq!(server.post(&ping, json!({})).await.expect_json(200), json!({"status": 204, "problem": null}));
    assert_eq!(receiver.next().await.1["type"], "ping");
    let listed = server.get("/v1/webhooks").await;
    assert!(!listed.text.contains("whsec_"), "a secret is shown only once");
    let plain = TestServer::new().await;
    assert_eq!(plain.post("/v1/webhooks", json!({"url": "http://x"})).await.problem_code(409), "no-webhook-secret");
}
