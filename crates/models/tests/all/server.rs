//! A server on this machine that answers what it is told to, however badly, and remembers what it was sent.

use std::sync::{Arc, Mutex};

use segue_models::http::{ReqwestTransport, SecretString, TimeoutProfile};
use segue_models::vendor::{
    Credentials, GenerationParams, ModelCapabilities, ModelEndpoint, ThinkingSupport, VendorModel, WireFormat,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The key every test uses.
pub const KEY: &str = "sk-test-0123456789";

/// What the server does in answer to one request.
#[derive(Debug, Clone)]
pub enum Step {
    /// The status and these headers.
    Head(u16, Vec<(&'static str, String)>),
    /// A piece of the body.
    Piece(Vec<u8>),
    /// Waits until the test lets it go on.
    Wait,
    /// Ends the body as it should be.
    End,
    /// Says that the client has gone, once it has.
    SeeGone,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The server.
pub struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    go_on: mpsc::Sender<()>,
    gone: mpsc::Receiver<()>,
}

/// An answer that is a stream of these pieces.
pub fn stream(pieces: &[&str]) -> Vec<Step> {
    let head = Step::Head(200, vec![("content-type", "text/event-stream".to_owned())]);
    let pieces = pieces.iter().map(|piece| Step::Piece(piece.as_bytes().to_vec()));
    std::iter::once(head).chain(pieces).chain([Step::End]).collect()
}

/// An answer that is a stream of these events, all in one piece.
pub fn events(data: &[&str]) -> Vec<Step> {
    let text: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    stream(&[&text])
}

/// An answer that is a stream of lines, all in one piece.
pub fn lines(data: &[&str]) -> Vec<Step> {
    let head = Step::Head(200, vec![("content-type", "application/x-ndjson".to_owned())]);
    let text: String = data.iter().map(|data| format!("{data}\n")).collect();
    vec![head, Step::Piece(text.into_bytes()), Step::End]
}

/// A whole answer.
pub fn answer(status: u16, kind: &str, body: &str) -> Vec<Step> {
    vec![Step::Head(status, vec![("content-type", kind.to_owned())]), Step::Piece(body.as_bytes().to_vec()), Step::End]
}

impl Server {
    /// A server that answers its first request with the first of these, and so on; the last again and again.
    pub async fn new(answers: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (go_on, mut may_go_on) = mpsc::channel(16);
        let (tell_gone, gone) = mpsc::channel(16);
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let Some(request) = read(&mut socket).await else { continue };
                let place = {
                    let mut log = log.lock().expect("nobody panicked");
                    log.push(request);
                    log.len() - 1
                };
                let steps = answers[place.min(answers.len() - 1)].clone();
                // Whoever hangs up early is no concern of ours.
                let _ = play(&mut socket, steps, &mut may_go_on, &tell_gone).await;
            }
        });
        Self { port, seen, go_on, gone }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Lets the server go on.
    pub async fn go_on(&self) {
        self.go_on.send(()).await.expect("it waits");
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        self.gone.recv().await.expect("it looks");
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panicked").clone()
    }

    /// The only request so far.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    /// How to reach it.
    pub fn connection(&self, wire: WireFormat) -> ModelEndpoint {
        ModelEndpoint {
            provider: "acme".to_owned(),
            wire,
            base_url: self.url(),
            model: "m-1".to_owned(),
            credentials: Credentials::ApiKey { env: "ACME_API_KEY".to_owned(), key: Some(SecretString::new(KEY)) },
            capabilities: ModelCapabilities {
                thinking: ThinkingSupport::None,
                ..ModelCapabilities::with_unknown_support(100_000)
            },
            params: GenerationParams::default(),
        }
    }

    pub fn vendor(&self, wire: WireFormat) -> VendorModel {
        of(self.connection(wire))
    }
}

pub fn of(connection: ModelEndpoint) -> VendorModel {
    VendorModel::new(connection, Arc::new(ReqwestTransport::new(TimeoutProfile::Completion)))
}

async fn play(
    socket: &mut TcpStream,
    steps: Vec<Step>,
    may_go_on: &mut mpsc::Receiver<()>,
    tell_gone: &mpsc::Sender<()>,
) -> std::io::Result<()> {
    for step in steps {
        match step {
            Step::Head(status, headers) => {
                let mut head = format!("HTTP/1.1 {status} As Told\r\ntransfer-encoding: chunked\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                socket.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await?;
            }
            Step::Piece(bytes) => {
                socket.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
                socket.write_all(&bytes).await?;
                socket.write_all(b"\r\n").await?;
                socket.flush().await?;
            }
            Step::Wait => {
                may_go_on.recv().await;
            }
            Step::End => socket.write_all(b"0\r\n\r\n").await?,
            Step::SeeGone => {
                let mut rest = [0; 64];
                while socket.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
                let _ = tell_gone.send(()).await;
            }
        }
    }
    socket.shutdown().await
}

async fn read(socket: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("a head is text");
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(split).collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().expect("a number"));
    while bytes.len() < head_end + 4 + length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head_end + 4..]).unwrap_or(Value::Null);
    Some(Seen { line, headers, body })
}
