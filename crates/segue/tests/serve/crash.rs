//! Kill −9 while many listen: every client comes back and has seen every event exactly once.

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

/// What a client tells of what it sees.
enum Told {
    /// A call was opened in its session.
    Called(usize),
    /// Its session's second turn is over: the places it saw, in order.
    Saw(Vec<u64>, usize),
}

/// Reads a session's events until its second turn is over, connecting again as often as it must.
fn listen(number: usize, port: u16, told: &mpsc::Sender<Told>) {
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
            // What has a place is an event of the journal; all else is in passing.
            let Some(seq) = event["seq"].as_u64().filter(|_| event["event"].is_object()) else { continue };
            seen.push(seq);
            if event["type"] == "call_opened" {
                told.send(Told::Called(number)).expect("somebody listens");
            }
            if event["type"] == "turn_ended" && event["turn"] == "t2" {
                return told.send(Told::Saw(seen, connections)).expect("somebody listens");
            }
        }
    }
}

#[test]
fn every_listener_comes_back_after_a_kill_and_sees_every_event_once() {
    let place = Place::new(SCENARIO);
    let server = place.serve(0, &[]);
    let port = server.port;
    for session in 0..SESSIONS {
        assert_eq!(server.post("/v1/sessions", &json!({"session": format!("s{session}"), "flow": "chat"})).0, 201);
    }
    let (sender, told) = mpsc::channel();
    for number in 0..CLIENTS {
        let sender = sender.clone();
        thread::spawn(move || listen(number, port, &sender));
    }
    for session in 0..SESSIONS {
        let path = format!("/v1/sessions/s{session}/messages");
        assert_eq!(server.post(&path, &json!({"text": "the first", "wait": false})).0, 202);
    }
    // Everybody has seen that a call was opened, and no answer has come.
    let mut called = std::collections::BTreeSet::new();
    while called.len() < CLIENTS {
        if let Told::Called(number) = told.recv().expect("more") {
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
        let Told::Saw(seen, connections) = told.recv().expect("more") else { continue };
        assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
        assert!(connections >= 2, "it was cut off and came back");
        finished += 1;
    }
    let (_, turns) = server.get("/v1/sessions/s0/turns", None);
    assert_eq!(turns["turns"][0]["replies"][0]["text"], "It takes a while.", "the turn went on where it stood");
}
