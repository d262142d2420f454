//! A transport that records the traffic of another. An exchange is written when it ends, even if the client stopped reading.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind};
use serde_json::Value;

use super::{
    CASSETTE_FORMAT, CassetteError, CassetteExchange, CassetteExchangeOutcome, CassetteHeader, RECORDED_HEADERS,
    diff_json, parse_json_or_text, read_cassette, url_path_and_query,
};
use crate::http::{HttpBodyStream, HttpTransport, SecretString, VendorHttpRequest, VendorHttpResponse};

/// Records the traffic of another transport.
#[derive(Debug)]
pub struct CassetteRecordingTransport {
    inner: Arc<dyn HttpTransport>,
    cassette: Arc<CassetteWriter>,
}

#[derive(Debug)]
struct CassetteWriter {
    file: Mutex<File>,
    /// The number of exchanges that have not ended.
    in_flight: AtomicU32,
}

impl CassetteRecordingTransport {
    /// Records to a file, appending to an existing cassette. `metadata` is available on replay.
    ///
    /// # Errors
    /// The file cannot be written, is not a cassette, or was recorded with other metadata.
    pub fn new(inner: Arc<dyn HttpTransport>, path: &Path, metadata: Value) -> Result<Self, CassetteError> {
        let io = |source| CassetteError::Io { path: path.display().to_string(), source };
        let is_new = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
        if !is_new {
            let (header, _) = read_cassette(path)?;
            if let Some(difference) = diff_json(&header.metadata, &metadata).descriptions.into_iter().next() {
                return Err(CassetteError::MetadataMismatch { path: path.display().to_string(), difference });
            }
        }
        // The file contains whole conversations, so only its owner may read it.
        let mut options = File::options();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(PathBuf::from(path)).map_err(io)?;
        if is_new {
            let header = CassetteHeader { segue_cassette: CASSETTE_FORMAT, metadata };
            write_json_line(&mut file, &header).map_err(io)?;
        }
        Ok(Self { inner, cassette: Arc::new(CassetteWriter { file: Mutex::new(file), in_flight: AtomicU32::new(0) }) })
    }
}

fn write_json_line(file: &mut File, value: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl HttpTransport for CassetteRecordingTransport {
    fn send(&self, request: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        let key = request.auth.as_ref().map(|header| header.secret.clone());
        let redact = |text: &str| key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text));
        self.cassette.in_flight.fetch_add(1, Ordering::Relaxed);
        let mut recording = CassetteExchangeRecorder {
            cassette: self.cassette.clone(),
            method: request.method.as_str().to_owned(),
            path: redact(&url_path_and_query(&request.url)),
            call: request.call,
            body: parse_json_or_text(&redact(&request.body)),
            response: None,
            secret: key.clone(),
            others_in_flight: None,
        };
        let sending = self.inner.send(request);
        async move {
            match sending.await {
                Ok(response) => {
                    let kept = response.headers.iter().filter(|(name, _)| RECORDED_HEADERS.contains(&name.as_str()));
                    recording.response = Some(CassetteResponse {
                        status: response.status,
                        headers: kept.cloned().collect(),
                        chunks: Vec::new(),
                        stream_failure: Some(CallFailure::new(
                            CallFailureKind::Network,
                            "the client stopped reading the response",
                        )),
                    });
                    Ok(VendorHttpResponse { body: record_body(response.body, recording), ..response })
                }
                Err(failure) => {
                    let redacted = CallFailure { message: recording.redact(&failure.message), ..failure.clone() };
                    recording.write_exchange(CassetteExchangeOutcome::Failed(redacted));
                    Err(failure)
                }
            }
        }
        .boxed()
    }
}

/// Passes a body on and records its chunks.
fn record_body(body: HttpBodyStream, recording: CassetteExchangeRecorder) -> HttpBodyStream {
    stream::unfold((body, recording), |(mut body, mut recording)| async move {
        let item = body.next().await;
        let response = recording.response.as_mut();
        match (&item, response) {
            (Some(Ok(bytes)), Some(response)) => response.chunks.push(bytes.clone()),
            (Some(Err(failure)), Some(response)) => response.stream_failure = Some(failure.clone()),
            (None, Some(response)) => response.stream_failure = None,
            (_, None) => {}
        }
        item.map(|item| (item, (body, recording)))
    })
    .boxed()
}

/// A running exchange. It is written to the cassette when dropped.
struct CassetteExchangeRecorder {
    cassette: Arc<CassetteWriter>,
    method: String,
    path: String,
    call: Option<CallId>,
    body: Value,
    response: Option<CassetteResponse>,
    secret: Option<SecretString>,
    /// The number of other exchanges in flight when this one ended; `None` until then.
    others_in_flight: Option<u32>,
}

struct CassetteResponse {
    status: u16,
    headers: Vec<(String, String)>,
    chunks: Vec<Vec<u8>>,
    stream_failure: Option<CallFailure>,
}

impl CassetteExchangeRecorder {
    fn redact(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// Returns how many other exchanges were in flight when this one ended, which is now, if it had not ended before.
    fn end(&mut self) -> u32 {
        *self.others_in_flight.get_or_insert_with(|| self.cassette.in_flight.fetch_sub(1, Ordering::Relaxed) - 1)
    }

    fn write_exchange(&mut self, outcome: CassetteExchangeOutcome) {
        let others_in_flight = self.end();
        let (method, path) = (std::mem::take(&mut self.method), std::mem::take(&mut self.path));
        let (call, body) = (self.call, std::mem::take(&mut self.body));
        let exchange = CassetteExchange { method, path, call, body, others_in_flight, outcome };
        let mut file = self.cassette.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk costs the recording, not the conversation.
        if let Err(error) = write_json_line(&mut file, &exchange) {
            tracing::warn!(%error, "an exchange with a model was not recorded");
        }
    }
}

impl Drop for CassetteExchangeRecorder {
    fn drop(&mut self) {
        self.end();
        let Some(CassetteResponse { status, headers, chunks, stream_failure }) = self.response.take() else {
            return;
        };
        let whole = String::from_utf8_lossy(&chunks.concat()).into_owned();
        let clean = self.redact(&whole);
        // A key may be split between two chunks, so the whole body is searched for it.
        let chunks = if clean == whole { to_utf8_chunks(&chunks) } else { vec![clean] };
        self.write_exchange(CassetteExchangeOutcome::Responded { status, headers, chunks, stream_failure });
    }
}

/// Converts chunks to text. A character that is split between two chunks goes to the later one.
fn to_utf8_chunks(chunks: &[Vec<u8>]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        let complete = match std::str::from_utf8(&buffer) {
            Ok(_) => buffer.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => buffer.len(),
        };
        let text = String::from_utf8_lossy(&buffer[..complete]).into_owned();
        buffer.drain(..complete);
        if !text.is_empty() {
            texts.push(text);
        }
    }
    if !buffer.is_empty() {
        texts.push(String::from_utf8_lossy(&buffer).into_owned());
    }
    texts
}
