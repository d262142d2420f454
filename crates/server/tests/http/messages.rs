//! Messages: idempotency, streams, cancellation, validation and images.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{SseReader, TestServer};

const SLOW: &str = r#"
[[reply]]
contains = "hang"
text = "Wait"
hang = true

[[reply]]
contains = "fail"
fail = "invalid_api_key"
message = "no key"

[default]
chunks = ["You ", "said: ", "{{last}}"]
"#;

#[tokio::test]
async fn same_idempotency_key_is_the_same_message() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let send = |key: &str| server.post("/v1/sessions/fox/messages", json!({"text": "hello", "key": key}));
    let first = send("k").await.expect_json(200);
    assert_eq!(send("k").await.expect_json(200), first);
    let by_header = server
        .request(Method::POST, "/v1/sessions/fox/messages")
        .json(&json!({"text": "hello"}))
        .header("idempotency-key", "k");
    assert_eq!(crate::test_server::send(by_header).await.expect_json(200), first);
    assert_eq!(send("other").await.expect_json(200)["turn"], "t2");
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["calls"], 2);
}

#[tokio::test]
async fn idempotency_key_of_another_message_is_refused() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let send = |body: Value| server.post("/v1/sessions/fox/messages", body);
    let first = send(json!({"text": "hello", "key": "k"})).await.expect_json(200);
    for other in [
        json!({"text": "goodbye", "key": "k"}),
        json!({"text": "goodbye", "key": "k", "wait": false}),
        json!({"text": "hello", "key": "k", "images": [{"data": "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="}]}),
    ] {
        assert_eq!(send(other.clone()).await.problem_code(409), "idempotency-key-reused", "{other}");
    }
    let stream = server
        .request(Method::POST, "/v1/sessions/fox/messages")
        .header("accept", "text/event-stream")
        .json(&json!({"text": "goodbye", "key": "k"}));
    assert_eq!(crate::test_server::send(stream).await.problem_code(409), "idempotency-key-reused");
    assert_eq!(send(json!({"text": "hello", "key": "k"})).await.expect_json(200), first);
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["turns"], 1, "nothing was recorded");
}

#[tokio::test]
async fn request_that_waits_learns_that_its_session_was_deleted() {
    let server = TestServer::with_options(SLOW, |_| {}).await;
    server.open_session("fox", "chat").await;
    let ask = server.request(Method::POST, "/v1/sessions/fox/messages").json(&json!({"text": "hang"}));
    let waiting = tokio::spawn(crate::test_server::send(ask));
    let mut stream = SseReader::open(server.request(Method::GET, "/v1/sessions/fox/events")).await;
    while stream.next().await.expect("more").data["type"] != "call_opened" {}
    server.delete("/v1/sessions/fox").await.expect_json(204);
    let gone = waiting.await.expect("an answer");
    assert!(gone.text.contains("the session `fox` was deleted"), "{}", gone.text);
    assert_eq!(gone.problem_code(410), "session-deleted");
}

#[tokio::test]
async fn deltas_add_up_to_the_reply() {
    let server = TestServer::with_options(SLOW, |_| {}).await;
    server.open_session("fox", "chat").await;
    let ask = server.request(Method::POST, "/v1/sessions/fox/messages").json(&json!({"text": "hello"}));
    let events = SseReader::open(ask).await.read_until("done").await;
    assert_eq!(events[0].kind, "accepted");
    assert_eq!(
        events[0].data,
        json!({"session": "fox", "message": "m1", "after": 2}),
        "after the event that sets the title"
    );
    let mut words = String::new();
    for event in events.iter().filter(|event| event.kind == "delta") {
        assert_eq!(event.data["offset"], words.len());
        words.push_str(event.data["text"].as_str().expect("words"));
    }
    let done = &events.last().expect("the end").data;
    assert_eq!((done["reply"].as_str(), words.as_str()), (Some("You said: hello"), "You said: hello"));
    let places: Vec<u64> = events.iter().filter_map(|event| event.id).collect();
    assert_eq!(places, (3..=done["seq"].as_u64().expect("a place")).collect::<Vec<_>>());
}

#[tokio::test]
async fn failed_turn_is_reported_with_status_200() {
    let server = TestServer::with_options(SLOW, |_| {}).await;
    server.open_session("fox", "chat").await;
    let report = server.send_message("fox", "please fail").await;
    assert_eq!(report["outcome"]["type"], "failed");
    assert!(report["outcome"]["reason"].as_str().expect("words").contains("no key"), "{report}");
    assert_eq!(report["reply"], "");
    let calls = server.get("/v1/sessions/fox/calls").await.expect_json(200);
    assert_eq!((&calls["calls"][0]["status"], &calls["calls"][0]["attempts"]), (&json!("failed"), &json!(1)));
}

#[tokio::test]
async fn cancelled_turn_stops_and_the_queue_continues() {
    let server = TestServer::with_options(SLOW, |_| {}).await;
    server.open_session("fox", "chat").await;
    server.post("/v1/sessions/fox/messages", json!({"text": "hang on", "wait": false})).await.expect_json(202);
    let session = server.get("/v1/sessions/fox").await.expect_json(200);
    assert_eq!(session["running_turn"]["turn"], "t1");
    assert_eq!(session["open_calls"][0]["status"], json!({"type": "in_progress"}));
    let rejected = server.post("/v1/sessions/fox/messages", json!({"text": "now", "mid_turn_policy": "reject"})).await;
    assert_eq!(rejected.problem_code(409), "busy");
    let waiting =
        server.post("/v1/sessions/fox/messages", json!({"text": "later", "wait": false})).await.expect_json(202);
    assert_eq!(waiting["message"], "m2");
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["queued_messages"][0]["text"], "later");
    assert_eq!(server.get("/v1/sessions/fox/turns").await.expect_json(200)["queued_messages"][0]["message"], "m2");
    let mut stream = SseReader::open(server.request(Method::GET, "/v1/sessions/fox/events")).await;
    server.post("/v1/sessions/fox/cancel", json!({})).await.expect_json(200);
    let is_end = |event: &Value| event["type"] == "turn_ended" && event["turn"] == "t2";
    while !is_end(&stream.next().await.expect("more").data) {}
    assert_eq!(server.post("/v1/sessions/fox/cancel", json!({})).await.problem_code(409), "nothing-runs");
    let turns = server.get("/v1/sessions/fox/turns").await.expect_json(200);
    assert_eq!(turns["turns"][0]["outcome"], json!({"type": "cancelled"}));
    assert_eq!(turns["turns"][0]["spent"]["unknown_attempts"], 1, "it was in flight, and may be billed");
    let ledger = server.get("/v1/sessions/fox/ledger").await.expect_json(200);
    assert_eq!(
        (&ledger["total"]["unknown_attempts"], &ledger["turns"][0]["spent"]["unknown_attempts"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(turns["turns"][1]["replies"][0]["text"], "You said: later");
}

#[tokio::test]
async fn invalid_message_is_refused_and_not_recorded() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let send = |text: &str| server.post("/v1/sessions/fox/messages", json!({"text": text}));
    assert_eq!(send("").await.problem_code(400), "empty-message");
    assert_eq!(send("\u{1b}[2J").await.problem_code(400), "control-character");
    assert_eq!(send(&"x".repeat(1_100_000)).await.problem_code(400), "message-too-long");
    assert_eq!(send(&"x".repeat(34_000_000)).await.problem_code(413), "body-too-large");
    let long_key = server.post("/v1/sessions/fox/messages", json!({"text": "a", "key": "k".repeat(201)})).await;
    assert_eq!(long_key.problem_code(400), "key-too-long");
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["seq"], 1);
}

const GIF: &str = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

#[tokio::test]
async fn images_reach_the_model() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let send = |images: Value| server.post("/v1/sessions/fox/messages", json!({"text": "look", "images": images}));
    send(json!([{"data": GIF}])).await.expect_json(200);
    let turns = server.get("/v1/sessions/fox/turns").await.expect_json(200);
    let shown = &turns["turns"][0]["messages"][0]["images"];
    assert_eq!(shown[0]["media_type"], "image/gif", "the format is detected from the bytes");
    let prompt = server.get("/v1/sessions/fox/calls/c1/prompt").await.expect_json(200);
    assert_eq!(prompt["messages"][1]["images"], *shown);
    let body = shown[0]["body"].as_str().expect("a text");
    assert_eq!(server.get(&format!("/v1/sessions/fox/texts/{body}")).await.text, GIF);
    assert_eq!(send(json!([{"data": "aGVsbG8="}])).await.problem_code(400), "invalid-image");
    assert_eq!(send(json!([{"data": "###"}])).await.problem_code(400), "invalid-image");
    assert_eq!(send(Value::from(vec![json!({"data": GIF}); 9])).await.problem_code(400), "too-many-images");
    let large = [b"GIF89a".as_slice(), &vec![0; 6 << 20]].concat();
    let large = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, large);
    assert_eq!(send(json!([{"data": large}])).await.problem_code(400), "image-too-big");
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["turns"], 1, "none of these was recorded");
}

#[tokio::test]
async fn failed_turn_is_retried() {
    let server = TestServer::with_options(
        "[[reply]]\ntimes = 1\nfail = \"invalid_api_key\"\n[default]\ntext = \"fine\"",
        |_| {},
    )
    .await;
    server.open_session("fox", "chat").await;
    assert_eq!(server.post("/v1/sessions/fox/retry", json!({})).await.problem_code(409), "nothing-failed");
    assert_eq!(server.send_message("fox", "hello").await["outcome"]["type"], "failed");
    let mut stream = SseReader::open(server.request(Method::GET, "/v1/sessions/fox/events")).await;
    server.post("/v1/sessions/fox/retry", json!({})).await.expect_json(200);
    let mut said = None;
    while said.is_none() {
        let event = stream.next().await.expect("it has no end").data;
        said = (event["type"] == "reply_sent").then(|| event["texts"].clone());
    }
    assert!(said.expect("an answer").to_string().contains("fine"));
}

#[tokio::test]
async fn r9_cancel_and_retry_of_a_past_turn_are_refused() {
    let server = TestServer::with_options(SLOW, |_| {}).await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "hello").await;
    server.post("/v1/sessions/fox/messages", json!({"text": "hang on", "wait": false})).await.expect_json(202);
    let cancel = |turn: &str| server.post("/v1/sessions/fox/cancel", json!({"turn": turn}));
    assert_eq!(cancel("t1").await.problem_code(409), "stale-turn");
    assert_eq!(server.get("/v1/sessions/fox").await.expect_json(200)["running_turn"]["turn"], "t2");
    assert_eq!(cancel("second").await.problem_code(400), "bad-request");
    cancel("t2").await.expect_json(200);
    server.send_message("fox", "please fail").await;
    let retry = |turn: &str| server.post("/v1/sessions/fox/retry", json!({"turn": turn}));
    assert_eq!(retry("t2").await.problem_code(409), "stale-turn");
    retry("t3").await.expect_json(200);
}
