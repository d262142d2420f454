//! A model server for tests with the APIs of OpenAI's chat completions and Ollama. It repeats the last message and
//! records every request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The running server.
pub(crate) struct Vendor {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub line: String,
    pub head: String,
    pub body: Value,
}

impl Vendor {
    /// Starts a server that accepts this API key, or any key if it is empty.
    pub(crate) fn new(key: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let log = log.clone();
                // The error may be dropped: the client closed the connection.
                std::thread::spawn(move || drop(serve(socket, key, &log)));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panicked").clone()
    }

    /// The bodies of the requests for answers, in order.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.seen().into_iter().filter(|seen| seen.line.starts_with("POST ")).map(|seen| seen.body).collect()
    }
}

impl Vendor {
    /// The refusals of prompts that were too long, in order.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.asked().iter().filter_map(refusal).collect()
    }
}

fn serve(mut socket: TcpStream, key: &str, log: &Mutex<Vec<Seen>>) -> std::io::Result<()> {
    let Some(seen) = read(&mut socket)? else { return Ok(()) };
    log.lock().expect("nobody panicked").push(seen.clone());
    let (status, kind, body) = answer(&seen, key);
    let head = format!("HTTP/1.1 {status} Test\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    socket.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes())
}

fn answer(seen: &Seen, key: &str) -> (u16, &'static str, String) {
    let is_known = key.is_empty() || seen.head.to_lowercase().contains(&format!("authorization: bearer {key}"));
    let json = "application/json";
    match seen.line.split(' ').nth(1).unwrap_or_default() {
        "/api/tags" => {
            let bert = json!({ "name": "bge-m3:latest", "details": { "family": "bert" } });
            (200, json, json!({ "models": [bert, { "name": "echo:latest" }, { "name": "embed:1" }] }).to_string())
        }
        "/api/ps" => (200, json, json!({ "models": [{ "name": "echo:latest", "context_length": 16384 }] }).to_string()),
        "/api/chat" => (200, "application/x-ndjson", echoed_by_ollama(&seen.body)),
        _ if !is_known => {
            let sent =
                seen.head.lines().find(|line| line.to_lowercase().starts_with("authorization")).unwrap_or("no key");
            (401, json, json!({ "error": { "message": format!("what is this? {sent}") } }).to_string())
        }
        "/v1/models" => (200, json, json!({ "data": [{ "id": "echo" }, { "id": "big" }] }).to_string()),
        "/v1/chat/completions" => match refusal(&seen.body) {
            Some(refusal) => (400, json, json!({ "error": { "message": refusal } }).to_string()),
            None => (200, "text/event-stream", echoed(&seen.body)),
        },
        _ => (404, "text/plain", "not here".to_owned()),
    }
}

/// The context window of the models `narrow` and `heavy`.
const NARROW: u64 = 4_096;

/// Counts the tokens of messages: one for four bytes, or for the model `heavy` one and a half for each word.
fn tokens(model: &Value, messages: &[Value]) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let count = |text: String| if model == "heavy" { words(&text) * 3 / 2 } else { text.len() as u64 / 4 + 1 };
    messages.iter().map(|message| count(message_text(message))).sum()
}

fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Refuses a request whose prompt and answer limit together exceed the window, as some servers do.
fn refusal(body: &Value) -> Option<String> {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let prompt = match body["model"].as_str()? {
        "narrow" => body["messages"].to_string().len() as u64 / 4,
        "heavy" => tokens(&body["model"], messages),
        _ => return None,
    };
    let asked = prompt + body["max_tokens"].as_u64().unwrap_or(0);
    (asked > NARROW).then(|| {
        format!("This model's maximum context length is {NARROW} tokens. However, you requested {asked} tokens.")
    })
}

fn echoed_by_ollama(body: &Value) -> String {
    let last = body["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let text = format!("You said: {}", last["content"].as_str().unwrap_or_default());
    let end = json!({ "message": {}, "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 5 });
    format!("{}\n{end}\n", json!({ "message": { "role": "assistant", "content": text }, "done": false }))
}

/// An answer that repeats the last message. Its usage counts all other messages as cached.
fn echoed(body: &Value) -> String {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last = messages.last().map(message_text).unwrap_or_default();
    // Two models reach their limit: `dreamer` while it reasons, and `rambler` while it answers.
    let (text, reasoning, stop) = match body["model"].as_str() {
        Some("dreamer") => (String::new(), "hm".repeat(9), "length"),
        Some("rambler") => (format!("You said: {last}, and"), String::new(), "length"),
        _ => (format!("You said: {last}"), String::new(), "stop"),
    };
    let tokens = |messages| tokens(&body["model"], messages);
    let cached = if messages.len() > 2 { tokens(&messages[..messages.len() - 1]) } else { 0 };
    let usage = json!({
        "prompt_tokens": tokens(messages),
        "completion_tokens": 5,
        "prompt_tokens_details": { "cached_tokens": cached },
    });
    let chunk = json!({ "choices": [{ "delta": { "content": text, "reasoning": reasoning }, "finish_reason": stop }] });
    let end = json!({ "choices": [], "usage": usage });
    format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n")
}

fn read(socket: &mut TcpStream) -> std::io::Result<Option<Seen>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let mut more = |bytes: &mut Vec<u8>| {
        let count = socket.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..count]);
        Ok::<_, std::io::Error>(count > 0)
    };
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if !more(&mut bytes)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    while bytes.len() < end + 4 + length.unwrap_or(0) {
        if !more(&mut bytes)? {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or(Value::Null);
    Ok(Some(Seen { line: head.lines().next().unwrap_or_default().to_owned(), head, body }))
}
