//! A message is answered once, whoever asks how often.

use reqwest::Method;
use serde_json::{Value, json};

use crate::lab::{Lab, Reading};

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
async fn the_same_key_is_the_same_message() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let send = |key: &str| lab.post("/v1/sessions/fox/messages", json!({"text": "hello", "key": key}));
    let first = send("k").await.expect(200);
    assert_eq!(send("k").await.expect(200), first);
    let by_header = lab
        .ask(Method::POST, "/v1/sessions/fox/messages")
        .json(&json!({"text": "hello"}))
        .header("idempotency-key", "k");
    assert_eq!(crate::lab::answer(by_header).await.expect(200), first);
    assert_eq!(send("other").await.expect(200)["turn"], "t2");
    assert_eq!(lab.get("/v1/sessions/fox").await.expect(200)["calls"], 2);
}

#[tokio::test]
async fn words_come_as_they_are_said_and_make_up_the_reply() {
    let lab = Lab::with(SLOW, |_| {}).await;
    lab.open("fox", "chat").await;
    let ask = lab.ask(Method::POST, "/v1/sessions/fox/messages").json(&json!({"text": "hello"}));
    let events = Reading::of(ask).await.until("done").await;
    assert_eq!(events[0].kind, "accepted");
    assert_eq!(
        events[0].data,
        json!({"session": "fox", "message": "m1", "after": 2}),
        "right after the title was given"
    );
    let mut words = String::new();
    for event in events.iter().filter(|event| event.kind == "words") {
        assert_eq!(event.data["at"], words.len());
        words.push_str(event.data["text"].as_str().expect("words"));
    }
    let done = &events.last().expect("the end").data;
    assert_eq!((done["reply"].as_str(), words.as_str()), (Some("You said: hello"), "You said: hello"));
    let places: Vec<u64> = events.iter().filter_map(|event| event.id).collect();
    assert_eq!(places, (3..=done["seq"].as_u64().expect("a place")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_turn_that_fails_is_told_and_is_no_error_of_the_request() {
    let lab = Lab::with(SLOW, |_| {}).await;
    lab.open("fox", "chat").await;
    let report = lab.say("fox", "please fail").await;
    assert_eq!(report["outcome"]["type"], "failed");
    assert!(report["outcome"]["reason"].as_str().expect("words").contains("no key"), "{report}");
    assert_eq!(report["reply"], "");
    let calls = lab.get("/v1/sessions/fox/calls").await.expect(200);
    assert_eq!((&calls["calls"][0]["status"], &calls["calls"][0]["attempts"]), (&json!("failed"), &json!(1)));
}

#[tokio::test]
async fn a_turn_is_stopped_and_nothing_runs_then() {
    let lab = Lab::with(SLOW, |_| {}).await;
    lab.open("fox", "chat").await;
    lab.post("/v1/sessions/fox/messages", json!({"text": "hang on", "wait": false})).await.expect(202);
    let session = lab.get("/v1/sessions/fox").await.expect(200);
    assert_eq!(session["running"]["turn"], "t1");
    assert_eq!(session["open_calls"][0]["status"], json!({"type": "due"}));
    let rejected = lab.post("/v1/sessions/fox/messages", json!({"text": "now", "busy": "reject"})).await;
    assert_eq!(rejected.problem(409), "busy");
    let waiting = lab.post("/v1/sessions/fox/messages", json!({"text": "later", "wait": false})).await.expect(202);
    assert_eq!(waiting["message"], "m2");
    assert_eq!(lab.get("/v1/sessions/fox").await.expect(200)["queue"][0]["text"], "later");
    assert_eq!(lab.get("/v1/sessions/fox/turns").await.expect(200)["waiting"][0]["message"], "m2");
    let mut stream = Reading::of(lab.ask(Method::GET, "/v1/sessions/fox/events")).await;
    lab.post("/v1/sessions/fox/cancel", json!({})).await.expect(200);
    let is_end = |event: &Value| event["type"] == "turn_ended" && event["turn"] == "t2";
    while !is_end(&stream.next().await.expect("more").data) {}
    assert_eq!(lab.post("/v1/sessions/fox/cancel", json!({})).await.problem(409), "nothing-runs");
    let turns = lab.get("/v1/sessions/fox/turns").await.expect(200);
    assert_eq!(turns["turns"][0]["outcome"], json!({"type": "cancelled"}));
    assert_eq!(turns["turns"][0]["spent"]["unknown"], 1, "it was under way, and may be billed");
    let ledger = lab.get("/v1/sessions/fox/ledger").await.expect(200);
    assert_eq!((&ledger["total"]["unknown"], &ledger["turns"][0]["spent"]["unknown"]), (&json!(1), &json!(1)));
    assert_eq!(turns["turns"][1]["said"][0]["text"], "You said: later");
}

#[tokio::test]
async fn what_cannot_be_a_message_is_refused_and_nothing_is_recorded() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let send = |text: &str| lab.post("/v1/sessions/fox/messages", json!({"text": text}));
    assert_eq!(send("").await.problem(400), "empty-message");
    assert_eq!(send("\u{1b}[2J").await.problem(400), "control-character");
    assert_eq!(send(&"x".repeat(1_100_000)).await.problem(400), "message-too-long");
    assert_eq!(send(&"x".repeat(34_000_000)).await.problem(413), "body-too-large");
    let long_key = lab.post("/v1/sessions/fox/messages", json!({"text": "a", "key": "k".repeat(201)})).await;
    assert_eq!(long_key.problem(400), "key-too-long");
    assert_eq!(lab.get("/v1/sessions/fox").await.expect(200)["seq"], 1);
}

const GIF: &str = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

#[tokio::test]
async fn what_is_shown_with_a_message_reaches_the_model() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let send = |images: Value| lab.post("/v1/sessions/fox/messages", json!({"text": "look", "images": images}));
    send(json!([{"data": GIF}])).await.expect(200);
    let turns = lab.get("/v1/sessions/fox/turns").await.expect(200);
    let shown = &turns["turns"][0]["messages"][0]["images"];
    assert_eq!(shown[0]["media"], "image/gif", "the bytes say what it is");
    let prompt = lab.get("/v1/sessions/fox/calls/c1/prompt").await.expect(200);
    assert_eq!(prompt["messages"][1]["images"], *shown);
    let body = shown[0]["body"].as_str().expect("a text");
    assert_eq!(lab.get(&format!("/v1/sessions/fox/texts/{body}")).await.text, GIF);
    assert_eq!(send(json!([{"data": "aGVsbG8="}])).await.problem(400), "no-image");
    assert_eq!(send(json!([{"data": "###"}])).await.problem(400), "no-image");
    assert_eq!(send(Value::from(vec![json!({"data": GIF}); 9])).await.problem(400), "too-many-images");
    let large = [b"GIF89a".as_slice(), &vec![0; 6 << 20]].concat();
    let large = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, large);
    assert_eq!(send(json!([{"data": large}])).await.problem(400), "image-too-big");
    assert_eq!(lab.get("/v1/sessions/fox").await.expect(200)["turns"], 1, "nothing of that was recorded");
}

#[tokio::test]
async fn a_turn_that_failed_is_tried_again() {
    let lab = Lab::with("[[reply]]\ntimes = 1\nfail = \"invalid_api_key\"\n[default]\ntext = \"fine\"", |_| {}).await;
    lab.open("fox", "chat").await;
    assert_eq!(lab.post("/v1/sessions/fox/retry", json!({})).await.problem(409), "nothing-failed");
    assert_eq!(lab.say("fox", "hello").await["outcome"]["type"], "failed");
    let mut stream = Reading::of(lab.ask(Method::GET, "/v1/sessions/fox/events")).await;
    lab.post("/v1/sessions/fox/retry", json!({})).await.expect(200);
    let mut said = None;
    while said.is_none() {
        let event = stream.next().await.expect("it has no end").data;
        said = (event["type"] == "reply_sent").then(|| event["texts"].clone());
    }
    assert!(said.expect("an answer").to_string().contains("fine"));
}
