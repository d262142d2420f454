//! Webhooks are told everything, in order, signed, also what failed at first and what happened while nobody delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use segue_server::options::{ServerOptions, WebhookSecret};
use segue_server::webhooks::sign_delivery;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::lab::{Lab, TOUR};

/// Somebody who is told, and who fails the first few times.
struct Receiver {
    url: String,
    told: mpsc::UnboundedReceiver<(HeaderMap, String)>,
    seen: std::collections::HashSet<axum::http::HeaderValue>,
}

#[derive(Clone)]
struct Ear {
    failures: Arc<AtomicUsize>,
    told: mpsc::UnboundedSender<(HeaderMap, String)>,
}

async fn receiver(failures: usize) -> Receiver {
    let (sender, told) = mpsc::unbounded_channel();
    let ear = Ear { failures: Arc::new(AtomicUsize::new(failures)), told: sender };
    let hear = |State(ear): State<Ear>, headers: HeaderMap, body: String| async move {
        let fails = ear.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        ear.told.send((headers, body)).expect("somebody listens");
        StatusCode::NO_CONTENT
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let router = Router::new().route("/hook", post(hear)).with_state(ear);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Receiver { url, told, seen: std::collections::HashSet::new() }
}

fn quick(options: &mut ServerOptions) {
    options.webhook_secret = Some(WebhookSecret("a long text".into()));
    options.limits.webhook_retry_delays_ms = [10; 6];
}

impl Receiver {
    /// What is told next. The same may come twice, and is known by its id then.
    async fn next(&mut self) -> (HeaderMap, Value, String) {
        loop {
            let (headers, body) = self.told.recv().await.expect("more");
            if self.seen.insert(headers["webhook-id"].clone()) {
                return (headers, serde_json::from_str(&body).expect("JSON"), body);
            }
        }
    }
}

#[tokio::test]
async fn what_is_told_is_signed_in_order_and_tried_until_it_is_heard() {
    let lab = Lab::with(TOUR, quick).await;
    let mut receiver = receiver(2).await;
    let made = lab
        .post("/v1/webhooks", json!({"url": receiver.url, "events": ["turn_started", "said", "turn_ended"]}))
        .await
        .expect(201);
    let id = made["webhook"].as_str().expect("an id");
    lab.open("fox", "chat").await;
    lab.say("fox", "one").await;
    lab.say("fox", "two").await;
    let mut told = Vec::new();
    for _ in 0..6 {
        let (headers, event, body) = receiver.next().await;
        let header = |name: &str| headers[name].to_str().expect("text").to_owned();
        let secret = made["secret"].as_str().expect("a secret").strip_prefix("whsec_").expect("its form");
        let secret = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, secret).expect("base64");
        let timestamp = header("webhook-timestamp").parse().expect("seconds");
        assert_eq!(header("webhook-signature"), sign_delivery(&secret, &header("webhook-id"), timestamp, &body));
        told.push(format!(
            "{} {}",
            event["type"].as_str().expect("a kind"),
            event["data"]["event"]["turn"].as_str().expect("a turn")
        ));
    }
    assert_eq!(told, ["turn_started t1", "said t1", "turn_ended t1", "turn_started t2", "said t2", "turn_ended t2"]);
    let tries = lab.get(&format!("/v1/webhooks/{id}/deliveries")).await.expect(200);
    let tries = tries["deliveries"].as_array().expect("tries");
    assert_eq!(tries.iter().filter(|attempt| attempt["status"] == 503).count(), 2);
    lab.delete(&format!("/v1/webhooks/{id}")).await.expect(204);
    assert_eq!(lab.delete(&format!("/v1/webhooks/{id}")).await.problem(404), "no-such-thing");
}

#[tokio::test]
async fn what_happened_while_no_server_ran_is_told_when_one_does() {
    let mut receiver = receiver(0).await;
    let lab = Lab::with(TOUR, quick).await;
    lab.post("/v1/webhooks", json!({"url": receiver.url, "events": ["said"], "flows": ["chat"]})).await.expect(201);
    lab.open("fox", "chat").await;
    lab.open("other", "concierge").await;
    lab.say("fox", "one").await;
    assert_eq!(
        receiver.next().await.1["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: one"))
    );
    let (disk, folder) = (lab.disk.clone(), lab.folder.clone());
    // A server without the secret delivers nothing.
    let silent = Lab::on(&disk, folder.clone(), TOUR, |_| {}).await;
    lab.stop().await;
    silent.say("fox", "two").await;
    silent.say("other", "Should we?").await;
    silent.stop().await;
    let lab = Lab::on(&disk, folder, TOUR, quick).await;
    let (_, event, _) = receiver.next().await;
    assert_eq!(
        event["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: two"))
    );
    lab.say("fox", "three").await;
    let (_, event, _) = receiver.next().await;
    assert_eq!(
        event["data"]["event"]["texts"].as_object().expect("texts").values().next(),
        Some(&json!("You said: three"))
    );
}

#[tokio::test]
async fn a_webhook_must_be_possible_and_can_be_tried() {
    let lab = Lab::with(TOUR, quick).await;
    let post = |body: Value| lab.post("/v1/webhooks", body);
    for bad in [
        json!({"url": "ftp://x"}),
        json!({"url": "no address"}),
        json!({"url": "http://x", "flows": ["chess"]}),
        json!({"url": "http://x", "owner": "A B"}),
        json!({"url": "http://x", "events": ["nothing"]}),
    ] {
        assert_eq!(post(bad.clone()).await.problem(400), "bad-request", "{bad}");
    }
    let mut receiver = receiver(0).await;
    let made = post(json!({"url": receiver.url})).await.expect(201);
    let ping = format!("/v1/webhooks/{}/ping", made["webhook"].as_str().expect("an id"));
    assert_eq!(lab.post(&ping, json!({})).await.expect(200), json!({"status": 204, "problem": null}));
    assert_eq!(receiver.next().await.1["type"], "ping");
    let listed = lab.get("/v1/webhooks").await;
    assert!(!listed.text.contains("whsec_"), "a secret is shown once");
    let plain = Lab::new().await;
    assert_eq!(plain.post("/v1/webhooks", json!({"url": "http://x"})).await.problem(409), "no-webhook-secret");
}
