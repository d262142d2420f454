//! Requests over a limit are refused, slow clients are disconnected, and no session is affected.

use std::time::Duration;

use reqwest::Method;
use segue_store::memory::InjectedAppendFault;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{DEFAULT_SCENARIO, SseReader, TestServer, send};

#[tokio::test]
async fn too_many_requests_are_refused_with_retry_after() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.requests_per_minute_max = 3).await;
    for _ in 0..3 {
        assert_eq!(server.get("/v1/flows").await.status, 200);
    }
    let refused = server.get("/v1/flows").await;
    assert_eq!(refused.headers["retry-after"], "20", "three per minute");
    assert_eq!(refused.problem_code(429), "too-many-requests");
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn streams_are_limited_and_released() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.streams_max = 1).await;
    server.open_session("fox", "chat").await;
    let ask = || server.request(Method::GET, "/v1/sessions/fox/events").header("accept", "text/event-stream");
    let mut first = SseReader::open(ask()).await;
    first.read_until("live").await;
    assert_eq!(send(ask()).await.problem_code(429), "too-many-streams");
    drop(first);
    // The server notices the disconnect a moment later.
    while !ask().send().await.expect("an answer").status().is_success() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn turns_are_limited_across_sessions() {
    let scenario = "[[reply]]\nhang = true\ntext = \"wait\"";
    let server = TestServer::with_options(scenario, |options| options.limits.turns_max = 1).await;
    server.open_session("a", "chat").await;
    server.open_session("b", "chat").await;
    let send = |session: &str| {
        let path = format!("/v1/sessions/{session}/messages");
        send(server.request(Method::POST, &path).json(&json!({"text": "x", "wait": false})))
    };
    // Sessions that were just opened may still be active for a moment.
    while send("a").await.status != 202 {}
    assert_eq!(send("b").await.problem_code(429), "too-many-turns");
    assert_eq!(send("a").await.status, 202, "an active session accepts more messages");
    assert_eq!(
        server.get("/v1/sessions/b").await.expect_json(200)["queued_messages"],
        json!([]),
        "nothing was recorded"
    );
}

#[tokio::test]
async fn body_must_be_json_and_within_the_limit() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.body_bytes_max = 100).await;
    let post = |kind: &'static str, body: String| {
        send(server.request(Method::POST, "/v1/sessions").header("content-type", kind).body(body))
    };
    assert_eq!(post("text/plain", "{}".into()).await.problem_code(415), "not-json");
    assert_eq!(post("application/json", "{".into()).await.problem_code(400), "bad-request");
    assert_eq!(
        post("application/json", format!("{{\"title\": \"{}\"}}", "x".repeat(200))).await.problem_code(413),
        "body-too-large"
    );
    assert_eq!(post("application/json; charset=utf-8", "{}".into()).await.status, 201);
    assert_eq!(post("application/vnd.segue+json", "{}".into()).await.status, 201);
    let chunked =
        reqwest::Body::wrap_stream(futures_util::stream::iter((0..50).map(|_| Ok::<_, std::io::Error>("          "))));
    let ask = server.request(Method::POST, "/v1/sessions").header("content-type", "application/json").body(chunked);
    assert_eq!(send(ask).await.problem_code(413), "body-too-large", "also without a content length");
    let html = server.request(Method::GET, "/v1/sessions/none/events").header("accept", "text/html");
    assert_eq!(send(html).await.problem_code(406), "not-acceptable");
}

#[tokio::test]
async fn unfinished_request_is_disconnected() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.headers_ms_max = 50).await;
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://")).await.expect("connected");
    socket.write_all(b"GET /v1/flows HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.expect("sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.expect("the server ends it");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// Connects, sends `bytes`, and waits until the server closes the connection. Returns what the server sent.
async fn read_until_closed(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://")).await.expect("connected");
    socket.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await;
    // A reset is also an end.
    let _ = closed.expect("the server closes the connection");
    answer
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.headers_ms_max = 50).await;
    for nothing in ["", "P", "PRI * HTTP/2.0\r\n"] {
        let answer = read_until_closed(&server, nothing.as_bytes()).await;
        assert!(answer.is_empty(), "{nothing}: {}", String::from_utf8_lossy(&answer));
    }
    let answer = read_until_closed(&server, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "an idle connection is closed after its response");
}

#[tokio::test]
async fn silent_connections_do_not_keep_others_out() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| {
        options.limits.connections_max = 2;
        options.limits.headers_ms_max = 600_000;
    })
    .await;
    let connect = || TcpStream::connect(server.url.trim_start_matches("http://"));
    let _silent = [connect().await.expect("connected"), connect().await.expect("connected")];
    let health = tokio::time::timeout(Duration::from_secs(20), server.get("/health")).await;
    assert_eq!(health.expect("an answer while all connections are taken").status, 200);
}

#[tokio::test]
async fn server_is_not_ready_if_the_store_cannot_be_written() {
    let server = TestServer::new().await;
    server.disk.inject_fault(InjectedAppendFault::DiskFull);
    let refused = server.get("/ready").await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.problem_code(503), "not-ready");
    assert_eq!(server.get("/health").await.status, 200, "the process itself is alive");
}

#[tokio::test]
async fn readiness_is_probed_at_most_once_per_second() {
    let server = TestServer::new().await;
    assert_eq!(server.get("/ready").await.status, 200);
    server.disk.inject_fault(InjectedAppendFault::DiskFull);
    assert_eq!(server.get("/ready").await.status, 200);
    let opened = server.post("/v1/sessions", json!({"session": "fox", "flow": "chat"})).await;
    assert_eq!(opened.problem_code(507), "disk-full", "the second check did not write");
}

#[tokio::test]
async fn imports_are_limited() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.imports_max = 1).await;
    server.open_session("fox", "chat").await;
    let lines = server.get("/v1/sessions/fox/export").await.text;
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://")).await.expect("connected");
    let head = "POST /v1/import HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut continued = [0; 12];
    socket.read_exact(&mut continued).await.expect("the server waits for the body");
    assert_eq!(&continued, b"HTTP/1.1 100");
    let import = || send(server.request(Method::POST, "/v1/import?session=copy").body(lines.clone()));
    assert_eq!(import().await.problem_code(429), "too-many-imports");
    drop(socket);
    // The server notices the disconnect a moment later.
    while import().await.status != 201 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn stalled_reader_is_disconnected_and_the_session_continues() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.write_stall_ms_max = 50).await;
    server.open_session("fox", "chat").await;
    // More than socket buffers can hold.
    for _ in 0..8 {
        server.send_message("fox", &"long ".repeat(200_000)).await;
    }
    let mut socket = TcpStream::connect(server.url.trim_start_matches("http://")).await.expect("connected");
    let ask = "GET /v1/sessions/fox/events?texts=all HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.expect("sent");
    let open = || async {
        let metrics = server.get("/metrics").await.text;
        metrics
            .lines()
            .find_map(|line| line.strip_prefix("segue_streams_open ")?.parse::<u32>().ok())
            .expect("a figure")
    };
    while open().await != 1 {}
    while open().await != 0 {}
    assert_eq!(server.send_message("fox", "still there?").await["reply"], "You said: still there?");
    let mut got = Vec::new();
    // Only what was buffered before the disconnect arrives.
    let _ = socket.read_to_end(&mut got).await;
    assert!(got.len() < 16_000_000, "{} bytes", got.len());
}

#[tokio::test]
async fn running_turn_finishes_during_shutdown() {
    let scenario = "[[reply]]\ncontains = \"slow\"\ndelay_ms = 300\ntext = \"done at last\"\n[[reply]]\nhang = true\ntext = \"never\"";
    let server = TestServer::with_options(scenario, |_| {}).await;
    server.open_session("fox", "chat").await;
    let (disk, folder) = (server.disk.clone(), server.folder.clone());
    let asked = {
        let ask = server.request(Method::POST, "/v1/sessions/fox/messages").json(&json!({"text": "slow", "key": "k"}));
        tokio::spawn(send(ask))
    };
    let mut stream = SseReader::open(server.request(Method::GET, "/v1/sessions/fox/events")).await;
    while stream.next().await.expect("more").data["type"] != "call_opened" {}
    server.stop().await;
    assert_eq!(asked.await.expect("an answer").expect_json(200)["reply"], "done at last");
    let next = TestServer::on_disk(&disk, folder, scenario, |_| {}).await;
    let again = next.post("/v1/sessions/fox/messages", json!({"text": "slow", "key": "k"})).await.expect_json(200);
    assert_eq!((&again["reply"], &again["spent"]["answered"]), (&json!("done at last"), &json!(1)));
}
