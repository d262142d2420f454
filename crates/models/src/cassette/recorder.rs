//! A transport that writes down what passes through it. An exchange is written when it is over, also when nobody listens any more.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use segue_core::prompt::{CallFailure, FailureKind};
use serde_json::Value;

use super::{
    CASSETTE_FORMAT, CassetteError, CassetteHeader, RECORDED_HEADERS, RecordedExchange, RecordedOutcome, diff_json,
    parse_json_or_text, read_cassette, url_path_and_query,
};
use crate::http::{HttpBodyStream, HttpRequest, HttpResponse, HttpTransport, SecretString};

/// Records what another transport carries.
#[derive(Debug)]
pub struct CassetteRecorder {
    inner: Arc<dyn HttpTransport>,
    cassette: Arc<CassetteFile>,
}

#[derive(Debug)]
struct CassetteFile {
    file: Mutex<File>,
}

impl CassetteRecorder {
    /// Records to a file, behind what a cassette there holds already. `cast` is given back when it is played.
    ///
    /// # Errors
    /// The file cannot be written, or holds something else, or what another cast said.
    pub fn new(inner: Arc<dyn HttpTransport>, path: &Path, metadata: Value) -> Result<Self, CassetteError> {
        let io = |source| CassetteError::Io { path: path.display().to_string(), source };
        let is_new = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
        if !is_new {
            let (label, _) = read_cassette(path)?;
            if let Some(difference) = diff_json(&label.metadata, &metadata).descriptions.into_iter().next() {
                return Err(CassetteError::MetadataMismatch { path: path.display().to_string(), difference });
            }
        }
        // It holds whole conversations.
        let mut options = File::options();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(PathBuf::from(path)).map_err(io)?;
        if is_new {
            let label = CassetteHeader { segue_cassette: CASSETTE_FORMAT, metadata };
            write_json_line(&mut file, &label).map_err(io)?;
        }
        Ok(Self { inner, cassette: Arc::new(CassetteFile { file: Mutex::new(file) }) })
    }
}

fn write_json_line(file: &mut File, value: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl HttpTransport for CassetteRecorder {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, CallFailure>> {
        let key = request.auth.as_ref().map(|header| header.secret.clone());
        let strip = |text: &str| key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text));
        let mut notes = ExchangeRecording {
            cassette: self.cassette.clone(),
            method: request.method.as_str().to_owned(),
            path: strip(&url_path_and_query(&request.url)),
            body: parse_json_or_text(&strip(&request.body)),
            response: None,
            secret: key.clone(),
        };
        let sending = self.inner.send(request);
        async move {
            match sending.await {
                Ok(response) => {
                    let kept = response.headers.iter().filter(|(name, _)| RECORDED_HEADERS.contains(&name.as_str()));
                    notes.response = Some(RecordedResponse {
                        status: response.status,
                        headers: kept.cloned().collect(),
                        chunks: Vec::new(),
                        stream_failure: Some(CallFailure::new(FailureKind::Network, "nobody listened to the rest")),
                    });
                    Ok(HttpResponse { body: record_body(response.body, notes), ..response })
                }
                Err(failure) => {
                    let told = CallFailure { message: notes.redact(&failure.message), ..failure.clone() };
                    notes.write_exchange(RecordedOutcome::Failed(told));
                    Err(failure)
                }
            }
        }
        .boxed()
    }
}

/// Passes a body on, and notes what it holds.
fn record_body(body: HttpBodyStream, recording: ExchangeRecording) -> HttpBodyStream {
    stream::unfold((body, recording), |(mut body, mut notes)| async move {
        let item = body.next().await;
        let answered = notes.response.as_mut();
        match (&item, answered) {
            (Some(Ok(bytes)), Some(answered)) => answered.chunks.push(bytes.clone()),
            (Some(Err(failure)), Some(answered)) => answered.stream_failure = Some(failure.clone()),
            (None, Some(answered)) => answered.stream_failure = None,
            (_, None) => {}
        }
        item.map(|item| (item, (body, notes)))
    })
    .boxed()
}

/// What is known of an exchange under way. Written down when it is let go of.
struct ExchangeRecording {
    cassette: Arc<CassetteFile>,
    method: String,
    path: String,
    body: Value,
    response: Option<RecordedResponse>,
    secret: Option<SecretString>,
}

struct RecordedResponse {
    status: u16,
    headers: Vec<(String, String)>,
    chunks: Vec<Vec<u8>>,
    stream_failure: Option<CallFailure>,
}

impl ExchangeRecording {
    fn redact(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    fn write_exchange(&mut self, outcome: RecordedOutcome) {
        let (method, path) = (std::mem::take(&mut self.method), std::mem::take(&mut self.path));
        let exchange = RecordedExchange { method, path, body: std::mem::take(&mut self.body), outcome };
        let mut file = self.cassette.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk costs the recording, not the conversation.
        let _ = write_json_line(&mut file, &exchange);
    }
}

impl Drop for ExchangeRecording {
    fn drop(&mut self) {
        let Some(RecordedResponse { status, headers, chunks: bytes, stream_failure: broke }) = self.response.take()
        else {
            return;
        };
        let whole = String::from_utf8_lossy(&bytes.concat()).into_owned();
        let clean = self.redact(&whole);
        // A key may be cut in two by the pieces; only the whole can be searched for it.
        let pieces = if clean == whole { to_utf8_chunks(&bytes) } else { vec![clean] };
        self.write_exchange(RecordedOutcome::Responded { status, headers, chunks: pieces, stream_failure: broke });
    }
}

/// The pieces as texts; a letter cut in two goes to the later one.
fn to_utf8_chunks(pieces: &[Vec<u8>]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut held: Vec<u8> = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        let whole = match std::str::from_utf8(&held) {
            Ok(_) => held.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => held.len(),
        };
        let text = String::from_utf8_lossy(&held[..whole]).into_owned();
        held.drain(..whole);
        if !text.is_empty() {
            texts.push(text);
        }
    }
    if !held.is_empty() {
        texts.push(String::from_utf8_lossy(&held).into_owned());
    }
    texts
}
