//! A local HTTP server that plays prepared responses, valid or not, and records its requests.

use std::sync::{Arc, Mutex};

use segue_models::http::{CompletionOrProbeTimeouts, ReqwestTransport, SecretString};
use segue_models::vendor::{
    GenerationParams, ModelCapabilities, ModelEndpoint, ThinkingSupport, VendorCredentials, VendorModelClient,
    WireFormat,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The API key of every test.
pub(crate) const KEY: &str = "sk-test-0123456789";

/// One step of a prepared response.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends the status and headers.
    Head(u16, Vec<(&'static str, String)>),
    /// Sends a part of the body.
    Chunk(Vec<u8>),
    /// Waits for [`Server::resume`].
    Wait,
    /// Ends the body properly.
    End,
    /// Waits until the client disconnects and reports it.
    AwaitDisconnect,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedHttpRequest {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl ReceivedHttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A running test server.
pub(crate) struct Server {
    port: u16,
    received: Arc<Mutex<Vec<ReceivedHttpRequest>>>,
    resume: mpsc::Sender<()>,
    disconnected: mpsc::Receiver<()>,
}

/// A streamed response in these chunks.
pub(crate) fn stream(chunks: &[&str]) -> Vec<Step> {
    let head = Step::Head(200, vec![("content-type", "text/event-stream".to_owned())]);
    let chunks = chunks.iter().map(|chunk| Step::Chunk(chunk.as_bytes().to_vec()));
    std::iter::once(head).chain(chunks).chain([Step::End]).collect()
}

/// A streamed response of these events, in one chunk.
pub(crate) fn events(data: &[&str]) -> Vec<Step> {
    let text: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    stream(&[&text])
}

/// A streamed response of these lines, in one chunk.
pub(crate) fn lines(data: &[&str]) -> Vec<Step> {
    let head = Step::Head(200, vec![("content-type", "application/x-ndjson".to_owned())]);
    let text: String = data.iter().map(|data| format!("{data}\n")).collect();
    vec![head, Step::Chunk(text.into_bytes()), Step::End]
}

/// A response that is not streamed.
pub(crate) fn full_response(status: u16, content_type: &str, body: &str) -> Vec<Step> {
    vec![
        Step::Head(status, vec![("content-type", content_type.to_owned())]),
        Step::Chunk(body.as_bytes().to_vec()),
        Step::End,
    ]
}

impl Server {
    /// Starts a server that plays one response per request, and the last one for all further requests.
    pub(crate) async fn new(responses: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (resume, mut resume_signal) = mpsc::channel(16);
        let (notify_disconnected, disconnected) = mpsc::channel(16);
        let received_log = received.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let Some(request) = read_request(&mut socket).await else { continue };
                let index = {
                    let mut received_log = received_log.lock().expect("not poisoned");
                    received_log.push(request);
                    received_log.len() - 1
                };
                let steps = responses[index.min(responses.len() - 1)].clone();
                // The client may disconnect early.
                let _ = play_response(&mut socket, steps, &mut resume_signal, &notify_disconnected).await;
            }
        });
        Self { port, received, resume, disconnected }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Ends a [`Step::Wait`].
    pub(crate) async fn resume(&self) {
        self.resume.send(()).await.expect("the server is running");
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn wait_for_disconnect(&mut self) {
        self.disconnected.recv().await.expect("the server is running");
    }

    /// Returns all requests so far.
    pub(crate) fn received(&self) -> Vec<ReceivedHttpRequest> {
        self.received.lock().expect("not poisoned").clone()
    }

    /// Returns the only request so far.
    pub(crate) fn only_request(&self) -> ReceivedHttpRequest {
        let received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }

    /// Returns an endpoint for this server.
    pub(crate) fn endpoint(&self, wire: WireFormat) -> ModelEndpoint {
        ModelEndpoint {
            provider: "acme".to_owned(),
            wire,
            base_url: self.url(),
            model: "m-1".to_owned(),
            credentials: VendorCredentials::ApiKey {
                env: "ACME_API_KEY".to_owned(),
                key: Some(SecretString::new(KEY)),
            },
            capabilities: ModelCapabilities {
                thinking: ThinkingSupport::None,
                ..ModelCapabilities::with_unknown_support(100_000)
            },
            params: GenerationParams::default(),
        }
    }

    pub(crate) fn vendor(&self, wire: WireFormat) -> VendorModelClient {
        vendor_model(self.endpoint(wire))
    }
}

/// Creates a model that calls the endpoint over the network.
pub(crate) fn vendor_model(endpoint: ModelEndpoint) -> VendorModelClient {
    VendorModelClient::new(endpoint, Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion)))
}

async fn play_response(
    socket: &mut TcpStream,
    steps: Vec<Step>,
    resume_signal: &mut mpsc::Receiver<()>,
    notify_disconnected: &mpsc::Sender<()>,
) -> std::io::Result<()> {
    for step in steps {
        match step {
            Step::Head(status, headers) => {
                let mut head = format!("HTTP/1.1 {status} Status\r\ntransfer-encoding: chunked\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                socket.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await?;
            }
            Step::Chunk(bytes) => {
                socket.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
                socket.write_all(&bytes).await?;
                socket.write_all(b"\r\n").await?;
                socket.flush().await?;
            }
            Step::Wait => {
                resume_signal.recv().await;
            }
            Step::End => socket.write_all(b"0\r\n\r\n").await?,
            Step::AwaitDisconnect => {
                let mut rest = [0; 64];
                while socket.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
                let _ = notify_disconnected.send(()).await;
            }
        }
    }
    socket.shutdown().await
}

async fn read_request(socket: &mut TcpStream) -> Option<ReceivedHttpRequest> {
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
    Some(ReceivedHttpRequest { line, headers, body })
}
