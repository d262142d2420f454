//! A model server with OpenAI's streaming API. It repeats the last message, a little slowly, and counts what it was
//! asked.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

const CHUNKS: usize = 4;
/// How long the model takes for a part of its answer, so that calls are often in flight when something happens.
const CHUNK_TIME: Duration = Duration::from_millis(40);

/// What was asked for one message of a user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AskedCounts {
    pub(crate) begun: usize,
    /// Answers that were sent to their end.
    pub(crate) finished: usize,
}

pub(crate) struct ModelServer {
    pub(crate) port: u16,
    asked: Arc<Mutex<BTreeMap<String, AskedCounts>>>,
}

impl ModelServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let log = log.clone();
                // The error may be dropped: the node closed the connection, or is dead.
                std::thread::spawn(move || drop(answer(socket, &log)));
            }
        });
        Self { port, asked }
    }

    /// Returns what was asked, by the text of the message.
    pub(crate) fn asked(&self) -> BTreeMap<String, AskedCounts> {
        self.asked.lock().expect("nobody panicked").clone()
    }
}

fn answer(mut socket: TcpStream, log: &Mutex<BTreeMap<String, AskedCounts>>) -> std::io::Result<()> {
    let Some(body) = read_body(&mut socket)? else { return Ok(()) };
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().map_or(&Value::Null, |message| &message["content"]);
    let last = last.as_str().or(last[0]["text"].as_str()).unwrap_or_default().to_owned();
    log.lock().expect("nobody panicked").entry(last.clone()).or_default().begun += 1;
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    let text = format!("echo {last}");
    let part = text.len().div_ceil(CHUNKS);
    for chunk in text.as_bytes().chunks(part) {
        std::thread::sleep(if last.contains("slowly") { 10 * CHUNK_TIME } else { CHUNK_TIME });
        let chunk = String::from_utf8_lossy(chunk);
        let chunk = json!({ "choices": [{ "delta": { "content": chunk }, "finish_reason": null }] });
        socket.write_all(format!("data: {chunk}\n\n").as_bytes())?;
        socket.flush()?;
    }
    let stop = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 9, "completion_tokens": 5 } });
    socket.write_all(format!("data: {stop}\n\ndata: {usage}\n\ndata: [DONE]\n\n").as_bytes())?;
    log.lock().expect("nobody panicked").entry(last).or_default().finished += 1;
    Ok(())
}

fn read_body(socket: &mut TcpStream) -> std::io::Result<Option<Value>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok())
                .unwrap_or_default();
            if bytes.len() >= end + 4 + length {
                return Ok(serde_json::from_slice(&bytes[end + 4..]).ok());
            }
        }
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}
