//! What is too much, too large or too slow is told so, or cut off, and harms no session.

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Lab, Reading, TOUR, answer};

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_back() {
    let lab = Lab::with(TOUR, |options| options.limits.requests_per_minute_max = 3).await;
    for _ in 0..3 {
        assert_eq!(lab.get("/v1/flows").await.status, 200);
    }
    let refused = lab.get("/v1/flows").await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.problem(429), "too-many-requests");
    assert_eq!(lab.get("/health").await.status, 200);
}

#[tokio::test]
async fn open_streams_are_counted_and_given_back() {
    let lab = Lab::with(TOUR, |options| options.limits.streams_max = 1).await;
    lab.open("fox", "chat").await;
    let ask = || lab.ask(Method::GET, "/v1/sessions/fox/events").header("accept", "text/event-stream");
    let mut first = Reading::of(ask()).await;
    first.until("live").await;
    assert_eq!(answer(ask()).await.problem(429), "too-many-streams");
    drop(first);
    // The server notices a moment later.
    while !ask().send().await.expect("an answer").status().is_success() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_server_that_is_busy_enough_takes_no_more_turns() {
    let scenario = "[[reply]]\nhang = true\ntext = \"wait\"";
    let lab = Lab::with(scenario, |options| options.limits.turns_max = 1).await;
    lab.open("a", "chat").await;
    lab.open("b", "chat").await;
    let send = |session: &str| {
        let path = format!("/v1/sessions/{session}/messages");
        answer(lab.ask(Method::POST, &path).json(&json!({"text": "x", "wait": false})))
    };
    // Sessions that were just opened may still be at work for a moment.
    while send("a").await.status != 202 {}
    assert_eq!(send("b").await.problem(429), "too-many-turns");
    assert_eq!(send("a").await.status, 202, "a session at work takes more messages");
    assert_eq!(lab.get("/v1/sessions/b").await.expect(200)["queue"], json!([]), "nothing was recorded");
}

#[tokio::test]
async fn a_body_must_be_json_and_not_too_large() {
    let lab = Lab::with(TOUR, |options| options.limits.body_bytes_max = 100).await;
    let post = |kind: &'static str, body: String| {
        answer(lab.ask(Method::POST, "/v1/sessions").header("content-type", kind).body(body))
    };
    assert_eq!(post("text/plain", "{}".into()).await.problem(415), "not-json");
    assert_eq!(post("application/json", "{".into()).await.problem(400), "bad-request");
    assert_eq!(
        post("application/json", format!("{{\"title\": \"{}\"}}", "x".repeat(200))).await.problem(413),
        "body-too-large"
    );
    assert_eq!(post("application/json; charset=utf-8", "{}".into()).await.status, 201);
    assert_eq!(post("application/vnd.segue+json", "{}".into()).await.status, 201);
    let chunked =
        reqwest::Body::wrap_stream(futures_util::stream::iter((0..50).map(|_| Ok::<_, std::io::Error>("          "))));
    let ask = lab.ask(Method::POST, "/v1/sessions").header("content-type", "application/json").body(chunked);
    assert_eq!(answer(ask).await.problem(413), "body-too-large", "also if it does not say how long it is");
    let html = lab.ask(Method::GET, "/v1/sessions/none/events").header("accept", "text/html");
    assert_eq!(answer(html).await.problem(406), "not-acceptable");
}

#[tokio::test]
async fn who_never_finishes_asking_is_cut_off() {
    let lab = Lab::with(TOUR, |options| options.limits.headers_ms_max = 50).await;
    let mut socket = TcpStream::connect(lab.url.trim_start_matches("http://")).await.expect("connected");
    socket.write_all(b"GET /v1/flows HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.expect("sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.expect("the server ends it");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn who_does_not_listen_is_cut_off_and_the_session_goes_on() {
    let lab = Lab::with(TOUR, |options| options.limits.write_stall_ms_max = 50).await;
    lab.open("fox", "chat").await;
    // More than sockets hold back.
    for _ in 0..8 {
        lab.say("fox", &"long ".repeat(200_000)).await;
    }
    let mut socket = TcpStream::connect(lab.url.trim_start_matches("http://")).await.expect("connected");
    let ask = "GET /v1/sessions/fox/events?texts=all HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.expect("sent");
    let open = || async {
        let metrics = lab.get("/metrics").await.text;
        metrics
            .lines()
            .find_map(|line| line.strip_prefix("segue_streams_open ")?.parse::<u32>().ok())
            .expect("a figure")
    };
    while open().await != 1 {}
    while open().await != 0 {}
    assert_eq!(lab.say("fox", "still there?").await["reply"], "You said: still there?");
    let mut got = Vec::new();
    // What was sent before is all there is.
    let _ = socket.read_to_end(&mut got).await;
    assert!(got.len() < 16_000_000, "{} bytes", got.len());
}

#[tokio::test]
async fn a_running_turn_is_finished_at_the_end_or_goes_on_at_the_next_start() {
    let scenario = "[[reply]]\ncontains = \"slow\"\ndelay_ms = 300\ntext = \"done at last\"\n[[reply]]\nhang = true\ntext = \"never\"";
    let lab = Lab::with(scenario, |_| {}).await;
    lab.open("fox", "chat").await;
    let (disk, folder) = (lab.disk.clone(), lab.folder.clone());
    let asked = {
        let ask = lab.ask(Method::POST, "/v1/sessions/fox/messages").json(&json!({"text": "slow", "key": "k"}));
        tokio::spawn(answer(ask))
    };
    let mut stream = Reading::of(lab.ask(Method::GET, "/v1/sessions/fox/events")).await;
    while stream.next().await.expect("more").data["type"] != "call_opened" {}
    lab.stop().await;
    assert_eq!(asked.await.expect("an answer").expect(200)["reply"], "done at last");
    let next = Lab::on(&disk, folder, scenario, |_| {}).await;
    let again = next.post("/v1/sessions/fox/messages", json!({"text": "slow", "key": "k"})).await.expect(200);
    assert_eq!((&again["reply"], &again["spent"]["answered"]), (&json!("done at last"), &json!(1)));
}
