//! Clients that send messages with idempotency keys through random nodes, and clients that follow streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::random::SeededRandom;

/// How long a client waits for a node before it tries another.
const PATIENCE: Duration = Duration::from_secs(8);

/// What a client was told.
#[derive(Debug, Default)]
pub(crate) struct ClientReport {
    pub(crate) session: String,
    /// The messages that were acknowledged, with the reply that the client got, in order.
    pub(crate) acknowledged: Vec<(String, String)>,
    pub(crate) retries: usize,
}

/// What a follower saw.
#[derive(Debug, Default)]
pub(crate) struct FollowedStream {
    pub(crate) session: String,
    /// The events of the journal, by sequence number, in the order of arrival.
    pub(crate) events: Vec<(u64, Value)>,
    pub(crate) connections: usize,
}

pub(crate) fn session_name(number: usize) -> String {
    format!("client-{number}")
}

/// Sends messages one after the other until the test is over. Each is repeated with its key until it is answered.
pub(crate) fn run_client(
    number: usize,
    ports: &[u16],
    mut random: SeededRandom,
    is_over: &AtomicBool,
    progress: &AtomicUsize,
) -> ClientReport {
    let mut report = ClientReport { session: session_name(number), ..ClientReport::default() };
    let session = json!({ "session": report.session, "flow": "chat" });
    let mut message = 0;
    while !is_over.load(Ordering::Acquire) {
        message += 1;
        let text = format!("message {message} of {}", report.session);
        let body = json!({ "text": text, "key": format!("key-{message}") });
        let path = format!("/v1/sessions/{}/messages", report.session);
        loop {
            let answer = request(ports[random.below(ports.len())], "POST", &path, &body);
            if let Some((200, answer)) = &answer
                && answer["outcome"]["type"] == "done"
            {
                report.acknowledged.push((text, answer["reply"].as_str().unwrap_or_default().to_owned()));
                progress.fetch_add(1, Ordering::AcqRel);
                break;
            }
            if let Some((200, answer)) = &answer {
                panic!("{text} was answered with {answer}");
            }
            if answer.is_some_and(|(status, _)| status == 404) {
                assert_eq!(message, 1, "the session of {text} is gone");
                // It may exist already, because an answer was lost.
                let _ = request(ports[random.below(ports.len())], "POST", "/v1/sessions", &session);
            }
            report.retries += 1;
            pause_before_retry();
        }
    }
    report
}

/// Follows a session through random nodes until it has every event that was recorded when the clients had ended.
pub(crate) fn run_follower(
    number: usize,
    ports: &[u16],
    mut random: SeededRandom,
    have_clients_ended: &AtomicBool,
) -> FollowedStream {
    let mut followed = FollowedStream { session: session_name(number), ..FollowedStream::default() };
    let is_complete = |followed: &FollowedStream| {
        let last = followed.events.last().filter(|(_, event)| event["type"] == "turn_ended").map(|(seq, _)| *seq);
        if last.is_none() || !have_clients_ended.load(Ordering::Acquire) {
            return false;
        }
        let path = format!("/v1/sessions/{}", followed.session);
        let views = ports.iter().filter_map(|port| request(*port, "GET", &path, &Value::Null));
        views.filter_map(|(_, view)| view["seq"].as_u64()).max() == last
    };
    while !is_complete(&followed) {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", ports[random.below(ports.len())])) else {
            pause_before_retry();
            continue;
        };
        // A node that is paused sends nothing.
        let _ = socket.set_read_timeout(Some(PATIENCE / 4));
        followed.connections += 1;
        let last = followed.events.last().map_or(0, |(seq, _)| *seq);
        let session = &followed.session;
        let ask = format!(
            "GET /v1/sessions/{session}/events?texts=conversation HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
             last-event-id: {last}\r\n\r\n"
        );
        if socket.write_all(ask.as_bytes()).is_err() {
            continue;
        }
        for line in BufReader::new(socket).lines() {
            let Ok(line) = line else { break };
            let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
            let Some(event) = data.filter(|event| event["event"].is_object()) else { continue };
            let Some(seq) = event["seq"].as_u64() else { continue };
            followed.events.push((seq, event));
            if is_complete(&followed) {
                break;
            }
        }
        pause_before_retry();
    }
    followed
}

/// Sends a request. Returns none if the node gave no answer.
pub(crate) fn request(port: u16, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    // With HTTP/1.0 a response ends with its connection.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

fn pause_before_retry() {
    std::thread::sleep(Duration::from_millis(50));
}
