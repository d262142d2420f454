//! The server is killed while many clients listen: each one reconnects and gets every event exactly once.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::place::Place;

const SESSIONS: usize = 10;
const CLIENTS: usize = 50;

const SCENARIO: &str = r#"
[[reply]]
contains = "first"
chunks = ["It ", "takes ", "a ", "while."]
chunk_delay_ms = 400

[default]
text = "You said: {{last}}"
"#;

/// What a client reports.
enum ClientReport {
    /// A call was opened in the session of this client.
    CallOpened(usize),
    /// The second turn has ended: all sequence numbers in order, and the number of connections.
    Finished(Vec<u64>, usize),
}

/// Reads the events of a session until its second turn has ended, and reconnects as often as needed.
fn listen(number: usize, port: u16, reports: &mpsc::Sender<ClientReport>) {
    let session = number % SESSIONS;
    let (mut seen, mut connections): (Vec<u64>, usize) = (Vec::new(), 0);
    loop {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else {
            thread::yield_now();
            continue;
        };
        connections += 1;
        let last = seen.last().copied().unwrap_or(0);
        let ask = format!(
            "GET /v1/sessions/s{session}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nlast-event-id: {last}\r\n\r\n"
        );
        if socket.write_all(ask.as_bytes()).is_err() {
            continue;
        }
        for line in BufReader::new(socket).lines() {
            let Ok(line) = line else { break };
            let Some(event) = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok())
            else {
                continue;
            };
            // Only events of the journal have a sequence number.
            let Some(seq) = event["seq"].as_u64().filter(|_| event["event"].is_object()) else { continue };
            seen.push(seq);
            if event["type"] == "call_opened" {
                reports.send(ClientReport::CallOpened(number)).expect("the test is running");
            }
            if event["type"] == "turn_ended" && event["turn"] == "t2" {
                return reports.send(ClientReport::Finished(seen, connections)).expect("the test is running");
            }
        }
    }
}

#[test]
fn every_client_reconnects_after_a_kill_and_gets_every_event_once() {
    let place = Place::new(SCENARIO);
    let server = place.serve(0, &[]);
    let port = server.port;
    for session in 0..SESSIONS {
        assert_eq!(server.post("/v1/sessions", &json!({"session": format!("s{session}"), "flow": "chat"})).0, 201);
    }
    let (sender, reports) = mpsc::channel();
    for number in 0..CLIENTS {
        let sender = sender.clone();
        thread::spawn(move || listen(number, port, &sender));
    }
    for session in 0..SESSIONS {
        let path = format!("/v1/sessions/s{session}/messages");
        assert_eq!(server.post(&path, &json!({"text": "the first", "wait": false})).0, 202);
    }
    // Wait until every client has seen that a call was opened. It is not answered yet.
    let mut called = std::collections::BTreeSet::new();
    while called.len() < CLIENTS {
        if let ClientReport::CallOpened(number) = reports.recv().expect("more") {
            called.insert(number);
        }
    }
    server.kill();
    let server = place.serve(port, &[]);
    for session in 0..SESSIONS {
        let path = format!("/v1/sessions/s{session}/messages");
        let (status, report) = server.post(&path, &json!({"text": "the second"}));
        assert_eq!((status, &report["turn"]), (200, &json!("t2")), "{report}");
    }
    let mut finished = 0;
    while finished < CLIENTS {
        let ClientReport::Finished(seen, connections) = reports.recv().expect("more") else { continue };
        assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
        assert!(connections >= 2, "it reconnected");
        finished += 1;
    }
    let (_, turns) = server.get("/v1/sessions/s0/turns", None);
    assert_eq!(turns["turns"][0]["replies"][0]["text"], "It takes a while.", "the turn was resumed");
}
