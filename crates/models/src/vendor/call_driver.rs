//! Drives one exchange with a vendor: sends the request, tells refusals from answers, feeds the stream to its reader, and hands on
//! what comes of it. Nothing here grows without bound, however the other side behaves.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use segue_core::prompt::{CallFailure, FailureKind, OutputFormat, StopReason, TokenUsage};

use super::sse::{SseDecoder, SseEvent};
use super::tool_names::ToolNameMap;
use super::wire_format::{OptionalFeatures, VendorRequestBuilder, VendorStreamReader, malformed_reply_failure};
use super::{JsonMode, ModelEndpoint, VendorModel, WireFormat, error_classification, schema_compat};
use crate::http::{HttpBodyStream, HttpResponse, read_body_prefix, read_whole_body};
use crate::limits::{ERROR_BODY_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::model::{ModelRequest, ReplyChunk, ReplyChunkStream};

/// One exchange.
pub(super) struct CallDriver {
    vendor: VendorModel,
    request: ModelRequest,
    state: DriverState,
    pending_items: VecDeque<Result<ReplyChunk, CallFailure>>,
    /// Whether there were words or tool calls.
    has_content: bool,
    /// Whether there was anything at all that the model made.
    has_output: bool,
    is_finished: bool,
}

enum DriverState {
    NotStarted,
    Streaming(Box<StreamingResponse>),
    Done,
}

struct StreamingResponse {
    body: HttpBodyStream,
    decoder: SseDecoder,
    reader: VendorStreamReader,
    bytes_read: usize,
}

impl CallDriver {
    pub fn start(vendor: VendorModel, request: ModelRequest) -> ReplyChunkStream {
        let (phase, ready) = (DriverState::NotStarted, VecDeque::new());
        let drive = Self {
            vendor,
            request,
            state: phase,
            pending_items: ready,
            has_content: false,
            has_output: false,
            is_finished: false,
        };
        stream::unfold(drive, |mut drive| async move {
            let item = drive.next_item().await?;
            Some((item, drive))
        })
        .boxed()
    }

    async fn next_item(&mut self) -> Option<Result<ReplyChunk, CallFailure>> {
        loop {
            if let Some(item) = self.pending_items.pop_front() {
                return Some(item);
            }
            let outcome = match &mut self.state {
                DriverState::NotStarted => self.open_stream().await,
                DriverState::Streaming(reading) => match reading.body.next().await {
                    Some(Ok(bytes)) => self.handle_bytes(&bytes),
                    Some(Err(failure)) => Err(failure),
                    None => self.handle_stream_end(),
                },
                DriverState::Done => return None,
            };
            if let Err(failure) = outcome {
                let failure = match std::mem::replace(&mut self.state, DriverState::Done) {
                    DriverState::Streaming(reading) => self.with_spent_usage(failure, reading.reader.usage()),
                    DriverState::NotStarted | DriverState::Done => failure,
                };
                self.pending_items.push_back(Err(self.vendor.endpoint.redact_failure(failure)));
            }
        }
    }

    async fn open_stream(&mut self) -> Result<(), CallFailure> {
        let connection = self.vendor.endpoint.clone();
        if let Some(failure) = connection.preflight_failure(&self.request.prompt) {
            return Err(failure);
        }
        let names = ToolNameMap::from_tools(&self.request.prompt.tools);
        let response = self.send_with_fallbacks(&names).await?;
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let mut reader = VendorStreamReader::new(&connection, names, &self.request.prompt);
        if kind.starts_with("application/json") {
            let text = read_whole_body(response.body, RESPONSE_BYTES_MAX).await?;
            let body = serde_json::from_str(&text)
                .map_err(|_| malformed_reply_failure(format!("{} answered with broken JSON", connection.provider)))?;
            let mut out = Vec::new();
            let read = reader.read_whole_reply(&body, &mut out);
            let read = read.and_then(|()| self.queue_chunks(out)).and_then(|()| self.ensure_finished());
            return read.map_err(|failure| self.with_spent_usage(failure, reader.usage()));
        }
        if kind.starts_with("text/html") {
            let message = format!("{} answered with a web page; is the `base_url` right?", connection.base_url);
            return Err(CallFailure::new(FailureKind::BadRequest, message));
        }
        let decoder =
            if connection.wire == WireFormat::Ollama { SseDecoder::line_delimited() } else { SseDecoder::default() };
        let reading = StreamingResponse { body: response.body, decoder, reader, bytes_read: 0 };
        self.state = DriverState::Streaming(Box::new(reading));
        Ok(())
    }

    /// The vendor's answer. What it does not take is left out once, and from then on.
    async fn send_with_fallbacks(&mut self, names: &ToolNameMap) -> Result<HttpResponse, CallFailure> {
        let refuses = self.vendor.unsupported.clone();
        let mut json = self.effective_json_mode();
        loop {
            let asks = refuses.enabled_features();
            let response = self.send_request(names, json, asks).await?;
            if response.is_success() {
                return Ok(response);
            }
            let failure = read_error_response(&self.vendor.endpoint, response).await;
            let has_schema = matches!(self.request.prompt.output_format, OutputFormat::Json(_));
            if asks.usage && is_bad_request_about(&failure, &["stream_options"]) {
                refuses.stream_options.store(true, Ordering::Relaxed);
            } else if asks.reasoning_summaries
                && is_bad_request_about(&failure, &["reasoning.summary", "reasoning summar"])
            {
                refuses.reasoning_summaries.store(true, Ordering::Relaxed);
            } else if asks.reasoning
                && is_bad_request_about(&failure, &["encrypted content", "encrypted_content", "reasoning.effort"])
            {
                refuses.reasoning.store(true, Ordering::Relaxed);
            } else if has_schema && json == JsonMode::Schema && is_bad_request_about(&failure, &SCHEMA_ERROR_WORDS) {
                // The model may still do it if it is told.
                refuses.json_schemas.store(true, Ordering::Relaxed);
                json = JsonMode::Prompt;
            } else {
                return Err(failure);
            }
        }
    }

    /// A failure with what the try took all the same, if it took anything.
    fn with_spent_usage(&self, failure: CallFailure, usage: Option<TokenUsage>) -> CallFailure {
        let took = failure.cost.is_none() && (self.has_output || usage.is_some());
        if took { failure.with_usage(usage) } else { failure }
    }

    /// How the model is held to its schema in this call.
    fn effective_json_mode(&self) -> JsonMode {
        let json = self.vendor.json_mode();
        let OutputFormat::Json(wanted) = &self.request.prompt.output_format else { return json };
        let cannot =
            self.vendor.endpoint.wire == WireFormat::Anthropic && schema_compat::to_anthropic_schema(wanted).is_none();
        if cannot { JsonMode::Prompt } else { json }
    }

    fn send_request(
        &self,
        names: &ToolNameMap,
        json_mode: JsonMode,
        features: OptionalFeatures,
    ) -> BoxFuture<'static, Result<HttpResponse, CallFailure>> {
        let ModelRequest { prompt, prompt_tokens, caching: growth, .. } = &self.request;
        let (connection, prompt_tokens, growth) = (&*self.vendor.endpoint, *prompt_tokens, *growth);
        let asked = VendorRequestBuilder {
            endpoint: connection,
            prompt,
            prompt_tokens,
            caching: growth,
            tool_names: names,
            json_mode,
            features,
        };
        self.vendor.transport.send(asked.build_http_request())
    }

    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), CallFailure> {
        let DriverState::Streaming(reading) = &mut self.state else { return Ok(()) };
        reading.bytes_read = reading.bytes_read.saturating_add(bytes.len());
        if reading.bytes_read > RESPONSE_BYTES_MAX {
            let message = format!("the answer took more than {RESPONSE_BYTES_MAX} bytes to send");
            return Err(CallFailure::new(FailureKind::UnusableReply, message));
        }
        let mut events = Vec::new();
        // What came whole before the stream went wrong was said.
        let decoded = reading.decoder.push(bytes, &mut events);
        self.handle_events(&events)?;
        if self.pending_items.is_empty() {
            self.pending_items.push_back(Ok(ReplyChunk::KeepAlive));
        }
        decoded
    }

    fn handle_stream_end(&mut self) -> Result<(), CallFailure> {
        let DriverState::Streaming(reading) = &mut self.state else { return Ok(()) };
        let mut events = Vec::new();
        reading.decoder.finish(&mut events)?;
        self.handle_events(&events)?;
        let DriverState::Streaming(reading) = &mut self.state else { return Ok(()) };
        let mut out = Vec::new();
        reading.reader.finish_stream(&mut out);
        self.queue_chunks(out)?;
        self.ensure_finished()
    }

    fn handle_events(&mut self, events: &[SseEvent]) -> Result<(), CallFailure> {
        for event in events {
            let DriverState::Streaming(reading) = &mut self.state else { return Ok(()) };
            let mut out = Vec::new();
            let read = reading.reader.read_event(event, &mut out);
            self.queue_chunks(out)?;
            read?;
        }
        Ok(())
    }

    fn queue_chunks(&mut self, chunks: Vec<ReplyChunk>) -> Result<(), CallFailure> {
        for chunk in chunks {
            self.has_content |= match &chunk {
                ReplyChunk::Text(text) => !text.trim().is_empty(),
                ReplyChunk::ToolCall(_) => true,
                ReplyChunk::Reasoning(_)
                | ReplyChunk::VendorState(_)
                | ReplyChunk::KeepAlive
                | ReplyChunk::Finish(_) => false,
            };
            self.has_output |=
                matches!(chunk, ReplyChunk::Text(_) | ReplyChunk::Reasoning(_) | ReplyChunk::ToolCall(_));
            if let ReplyChunk::Finish(finish) = &chunk {
                self.state = DriverState::Done;
                self.is_finished = true;
                if let Some(failure) = self.empty_reply_failure(finish.stop) {
                    return Err(failure.with_usage(finish.usage));
                }
            }
            self.pending_items.push_back(Ok(chunk));
        }
        Ok(())
    }

    /// What it means that an answer ended in this way without a word.
    fn empty_reply_failure(&self, stop: StopReason) -> Option<CallFailure> {
        let ModelEndpoint { provider, model, .. } = &*self.vendor.endpoint;
        match stop {
            _ if self.has_content => None,
            StopReason::ContentFilter => {
                Some(CallFailure::new(FailureKind::Refused, format!("{provider}'s filter let nothing through")))
            }
            StopReason::Length => {
                let message = format!(
                    "`{model}` had no room left to answer: thoughts, or a tool call that was cut off, took all of it; `effort` or `window_tokens` gives it more"
                );
                Some(CallFailure::new(FailureKind::UnusableReply, message))
            }
            StopReason::Done | StopReason::ToolCalls => Some(CallFailure::new(
                FailureKind::UnusableReply,
                format!("`{model}` was done and had answered nothing"),
            )),
        }
    }

    fn ensure_finished(&self) -> Result<(), CallFailure> {
        let provider = &self.vendor.endpoint.provider;
        let broken_off = || malformed_reply_failure(format!("{provider} broke off before the answer was whole"));
        if self.is_finished { Ok(()) } else { Err(broken_off()) }
    }
}

async fn read_error_response(endpoint: &ModelEndpoint, response: HttpResponse) -> CallFailure {
    let HttpResponse { status, headers, body } = response;
    let body = read_body_prefix(body, ERROR_BODY_BYTES_MAX).await;
    error_classification::classify_http_error(endpoint.error_context(), status, &headers, &body)
}

/// What refusals of the form that an answer was to have speak of.
const SCHEMA_ERROR_WORDS: [&str; 7] =
    ["schema", "response_format", "response format", "output_config", "output format", "response mime", "text.format"];

/// Whether a refusal speaks of something that was asked for.
fn is_bad_request_about(failure: &CallFailure, words: &[&str]) -> bool {
    let message = failure.message.to_lowercase();
    failure.kind == FailureKind::BadRequest && words.iter().any(|word| message.contains(word))
}
