//! Webhooks receive every event, in order and signed, including events that failed at first or were recorded while no server ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use segue_server::{ServerOptions, WebhookMasterSecret, sign_delivery};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::test_server::{DEFAULT_SCENARIO, TestServer};

/// A receiver that fails the first few requests.
pub(crate) struct Receiver {
    pub url: String,
    pub deliveries: mpsc::UnboundedReceiver<(HeaderMap, String)>,
    pub seen: std::collections::HashSet<axum::http::HeaderValue>,
}

#[derive(Clone)]
struct ReceiverState {
    failures: Arc<AtomicUsize>,
    deliveries: mpsc::UnboundedSender<(HeaderMap, String)>,
}

pub(crate) async fn receiver(failures: usize) -> Receiver {
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

pub(crate) fn with_secret_and_short_delays(options: &mut ServerOptions) {
    options.webhook_secret = Some(WebhookMasterSecret("a long text".into()));
    options.limits.webhook_retry_delays_ms = [10; 6];
}

impl Receiver {
    /// Returns the next delivery. Repeated deliveries have the same id and are skipped.
    pub(crate) async fn next(&mut self) -> (HeaderMap, Value, String) {
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
async fn delivery_that_is_answered_during_the_shutdown_is_not_repeated() {
    let (sender, mut deliveries) = mpsc::unbounded_channel();
    let answers = Arc::new(tokio::sync::Semaphore::new(0));
    let receive = {
        let answers = answers.clone();
        move |body: String| async move {
            sender.send(body).expect("the test is running");
            answers.acquire().await.expect("not closed").forget();
            StatusCode::NO_CONTENT
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(receive))).await });

    let mut server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    server.post("/v1/webhooks", json!({"url": url, "events": ["reply_sent"]})).await.expect_json(201);
    server.open_session("fox", "chat").await;
    server.send_message("fox", "one").await;
    assert!(deliveries.recv().await.expect("a delivery").contains("You said: one"));
    let (disk, folder) = (server.disk.clone(), server.folder.clone());
    server.begin_shutdown();
    // The server notices that before it gets the receiver's answer.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    answers.add_permits(9);
    server.stop().await;

    let server = TestServer::on_disk(&disk, folder, DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    server.send_message("fox", "two").await;
    let next = deliveries.recv().await.expect("a delivery");
    assert!(next.contains("You said: two"), "{next}");
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

#[tokio::test]
async fn session_with_a_reused_name_is_another_session() {
    let mut receiver = receiver(0).await;
    let server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    server.post("/v1/webhooks", json!({"url": receiver.url, "events": ["reply_sent"]})).await.expect_json(201);
    let mut ids = Vec::new();
    for text in ["first life", "second life"] {
        server.open_session("fox", "chat").await;
        server.send_message("fox", text).await;
        // The ids of repeated deliveries are skipped, so an id that is used twice would never arrive.
        let (headers, event, _) = receiver.next().await;
        assert!(event.to_string().contains(text), "{event}");
        ids.push(headers["webhook-id"].clone());
        server.delete("/v1/sessions/fox").await.expect_json(204);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn slow_receiver_delays_no_other() {
    // It accepts connections and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent_url = format!("http://{}/", silent.local_addr().expect("an address"));
    let holder = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            held.push(connection);
        }
    });
    let mut receiver = receiver(0).await;
    let server = TestServer::with_options(DEFAULT_SCENARIO, with_secret_and_short_delays).await;
    for url in [&silent_url, &receiver.url] {
        server.post("/v1/webhooks", json!({"url": url, "events": ["reply_sent"]})).await.expect_json(201);
    }
    for number in 0..20 {
        server.open_session(&format!("s{number}"), "chat").await;
        server.send_message(&format!("s{number}"), "hello").await;
    }
    // The silent receiver occupies its queue for ten seconds.
    let all = async {
        for _ in 0..20 {
            receiver.next().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(9), all).await.expect("no receiver waits for another");
    holder.abort();
}

/// A clock that a test sets.
struct SettableClock(std::sync::atomic::AtomicU64);

impl segue_engine::clock::Clock for SettableClock {
    fn now(&self) -> segue_core::ids::UnixMillis {
        segue_core::ids::UnixMillis(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[tokio::test]
async fn clock_that_is_set_back_mutes_no_webhook() {
    const DAY_MS: u64 = 86_400_000;
    let clock = Arc::new(SettableClock((20_000 * DAY_MS).into()));
    let disk = segue_store::memory::InMemoryStoreDisk::new();
    let model: segue_models::ScriptedModel = DEFAULT_SCENARIO.parse().expect("a scenario");
    let models = segue_models::ModelRegistry::from_single_model(Arc::new(model));
    let store = Arc::new(segue_store::memory::InMemoryStore::open(&disk));
    let config = segue_engine::EngineConfig {
        clock: clock.clone(),
        ..segue_engine::EngineConfig::new(store, segue_flows::built_in_flows(), models, "scripted")
    };
    let engine = segue_engine::Engine::start(config).await.expect("it starts");
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let server = TestServer::with_engine(engine, &disk, folder, with_secret_and_short_delays).await;
    // The first attempt fails, and the clock is set back before the second.
    let mut receiver = receiver(1).await;
    server.open_session("old", "chat").await;
    server.post("/v1/webhooks", json!({"url": receiver.url, "events": ["reply_sent"]})).await.expect_json(201);
    server.send_message("old", "before").await;
    clock.0.fetch_sub(DAY_MS, Ordering::SeqCst);
    server.send_message("old", "after").await;
    server.open_session("new", "chat").await;
    server.send_message("new", "anew").await;
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(receiver.next().await.1["data"]["event"]["texts"].to_string());
    }
    for wanted in ["before", "after", "anew"] {
        assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted} is missing in {texts:?}");
    }
}
