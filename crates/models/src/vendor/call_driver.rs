//! Drives one exchange with a vendor: sends the request, classifies errors, feeds the stream to its reader and passes the
//! chunks on. Memory is bounded, whatever the server sends.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use segue_core::prompt::{CallFailure, CallFailureKind, ModelOutputFormat, StopReason, TokenUsage, ToolChoice};

use super::sse::{SseDecoder, SseEvent};
use super::tool_names::VendorToolNameMap;
use super::wire_format::{OptionalVendorFeatures, VendorRequestBuilder, VendorStreamReader, malformed_reply_failure};
use super::{JsonMode, ModelEndpoint, VendorModelClient, WireFormat, error_classification, schema_compat};
use crate::http::{HttpBodyStream, VendorHttpRequest, VendorHttpResponse, read_body_prefix, read_whole_body};
use crate::limits::{ERROR_BODY_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::model::{ModelRequest, ReplyChunk, ReplyChunkStream};

/// One exchange with a vendor.
pub(super) struct VendorCallDriver {
    vendor: VendorModelClient,
    request: ModelRequest,
    state: VendorCallDriverState,
    pending_items: VecDeque<Result<ReplyChunk, CallFailure>>,
    /// Whether the reply contains text or tool calls.
    has_content: bool,
    /// Whether the model produced any output, including reasoning.
    has_output: bool,
    is_finished: bool,
}

enum VendorCallDriverState {
    NotStarted,
    Streaming(Box<VendorResponseReader>),
    Done,
}

struct VendorResponseReader {
    body: HttpBodyStream,
    decoder: SseDecoder,
    reader: VendorStreamReader,
    bytes_read: usize,
}

impl VendorCallDriver {
    pub(super) fn start(vendor: VendorModelClient, request: ModelRequest) -> ReplyChunkStream {
        let driver = Self {
            vendor,
            request,
            state: VendorCallDriverState::NotStarted,
            pending_items: VecDeque::new(),
            has_content: false,
            has_output: false,
            is_finished: false,
        };
        stream::unfold(driver, |mut driver| async move {
            let item = driver.next_item().await?;
            Some((item, driver))
        })
        .boxed()
    }

    async fn next_item(&mut self) -> Option<Result<ReplyChunk, CallFailure>> {
        loop {
            if let Some(item) = self.pending_items.pop_front() {
                return Some(item);
            }
            let outcome = match &mut self.state {
                VendorCallDriverState::NotStarted => self.open_stream().await,
                VendorCallDriverState::Streaming(streaming) => match streaming.body.next().await {
                    Some(Ok(bytes)) => self.handle_bytes(&bytes),
                    Some(Err(failure)) => Err(failure),
                    None => self.handle_stream_end(),
                },
                VendorCallDriverState::Done => return None,
            };
            if let Err(failure) = outcome {
                let failure = match std::mem::replace(&mut self.state, VendorCallDriverState::Done) {
                    VendorCallDriverState::Streaming(streaming) => {
                        self.with_spent_usage(failure, streaming.reader.usage())
                    }
                    VendorCallDriverState::NotStarted | VendorCallDriverState::Done => failure,
                };
                // Not the message: vendors quote prompts and keys in it.
                tracing::debug!(failure = %failure.kind, retry_after_ms = failure.retry_after_ms, "exchange failed");
                self.pending_items.push_back(Err(self.vendor.endpoint.redact_failure(failure)));
            }
        }
    }

    async fn open_stream(&mut self) -> Result<(), CallFailure> {
        let endpoint = self.vendor.endpoint.clone();
        if let Some(failure) = endpoint.preflight_failure(&self.request.prompt) {
            return Err(failure);
        }
        let names = VendorToolNameMap::from_tools(&self.request.prompt.tools);
        let response = self.send_with_fallbacks(&names).await?;
        let content_type = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let mut reader = VendorStreamReader::new(&endpoint, names, &self.request.prompt);
        if content_type.starts_with("application/json") {
            let text = read_whole_body(response.body, RESPONSE_BYTES_MAX).await?;
            let body = serde_json::from_str(&text)
                .map_err(|_| malformed_reply_failure(format!("{} sent invalid JSON", endpoint.provider)))?;
            let mut out = Vec::new();
            let read = reader.read_whole_reply(&body, &mut out);
            let read = read.and_then(|()| self.queue_chunks(out)).and_then(|()| self.ensure_finished());
            return read.map_err(|failure| self.with_spent_usage(failure, reader.usage()));
        }
        if content_type.starts_with("text/html") {
            let message = format!("{} answered with a web page; is the `base_url` right?", endpoint.base_url);
            return Err(CallFailure::new(CallFailureKind::BadRequest, message));
        }
        let decoder =
            if endpoint.wire == WireFormat::Ollama { SseDecoder::line_delimited() } else { SseDecoder::default() };
        let streaming = VendorResponseReader { body: response.body, decoder, reader, bytes_read: 0 };
        self.state = VendorCallDriverState::Streaming(Box::new(streaming));
        Ok(())
    }

    /// Sends the request. A feature that the vendor rejects is left out, now and in later requests.
    async fn send_with_fallbacks(&mut self, names: &VendorToolNameMap) -> Result<VendorHttpResponse, CallFailure> {
        let unsupported = self.vendor.unsupported.clone();
        let mut json_mode = self.effective_json_mode();
        loop {
            let features = unsupported.enabled_features();
            let response = self.send_request(names, json_mode, features).await?;
            let ModelEndpoint { provider, model, .. } = &*self.vendor.endpoint;
            tracing::debug!(provider, model, status = response.status, "vendor responded");
            if response.is_success() {
                return Ok(response);
            }
            let failure = read_error_response(&self.vendor.endpoint, response).await;
            let has_schema = matches!(self.request.prompt.output_format, ModelOutputFormat::Json(_));
            if features.usage && is_bad_request_about(&failure, &["stream_options"]) {
                unsupported.stream_options.store(true, Ordering::Relaxed);
                log_unsupported_feature(&self.vendor.endpoint, "stream_options");
            } else if features.reasoning_summaries
                && is_bad_request_about(&failure, &["reasoning.summary", "reasoning summar"])
            {
                unsupported.reasoning_summaries.store(true, Ordering::Relaxed);
                log_unsupported_feature(&self.vendor.endpoint, "reasoning_summaries");
            } else if features.reasoning
                && is_bad_request_about(&failure, &["encrypted content", "encrypted_content", "reasoning.effort"])
            {
                unsupported.reasoning.store(true, Ordering::Relaxed);
                log_unsupported_feature(&self.vendor.endpoint, "reasoning");
            } else if features.forced_tools
                && matches!(self.request.prompt.tool_use.choice, ToolChoice::Required | ToolChoice::Tool(_))
                && is_bad_request_about(&failure, &["tool_choice", "tool choice", "toolconfig", "tool_config"])
            {
                unsupported.forced_tools.store(true, Ordering::Relaxed);
                log_unsupported_feature(&self.vendor.endpoint, "forced_tools");
            } else if has_schema && json_mode == JsonMode::Schema && is_bad_request_about(&failure, &SCHEMA_ERROR_WORDS)
            {
                // The model may still follow a schema in the prompt.
                unsupported.json_schemas.store(true, Ordering::Relaxed);
                log_unsupported_feature(&self.vendor.endpoint, "json_schemas");
                json_mode = JsonMode::Prompt;
            } else {
                return Err(failure);
            }
        }
    }

    /// Adds the tokens that a failed attempt used, if it used any.
    fn with_spent_usage(&self, failure: CallFailure, usage: Option<TokenUsage>) -> CallFailure {
        let has_cost = failure.cost.is_none() && (self.has_output || usage.is_some());
        if has_cost { failure.with_usage(usage) } else { failure }
    }

    /// Returns how the model is made to return JSON in this call.
    fn effective_json_mode(&self) -> JsonMode {
        let json_mode = self.vendor.json_mode();
        let ModelOutputFormat::Json(schema) = &self.request.prompt.output_format else { return json_mode };
        let is_unsupported =
            self.vendor.endpoint.wire == WireFormat::Anthropic && schema_compat::to_anthropic_schema(schema).is_none();
        if is_unsupported { JsonMode::Prompt } else { json_mode }
    }

    fn send_request(
        &self,
        names: &VendorToolNameMap,
        json_mode: JsonMode,
        features: OptionalVendorFeatures,
    ) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        let ModelRequest { prompt, prompt_tokens, caching, .. } = &self.request;
        let builder = VendorRequestBuilder {
            endpoint: &self.vendor.endpoint,
            prompt,
            prompt_tokens: *prompt_tokens,
            caching: *caching,
            tool_names: names,
            json_mode,
            features,
        };
        let call = Some(self.request.metadata.call);
        self.vendor.transport.send(VendorHttpRequest { call, ..builder.build_http_request() })
    }

    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), CallFailure> {
        let VendorCallDriverState::Streaming(streaming) = &mut self.state else { return Ok(()) };
        streaming.bytes_read = streaming.bytes_read.saturating_add(bytes.len());
        if streaming.bytes_read > RESPONSE_BYTES_MAX {
            let message = format!("the response is longer than {RESPONSE_BYTES_MAX} bytes");
            return Err(CallFailure::new(CallFailureKind::UnusableReply, message));
        }
        let mut events = Vec::new();
        // Events that were complete before an error are still passed on.
        let decoded = streaming.decoder.push(bytes, &mut events);
        self.handle_events(&events)?;
        if self.pending_items.is_empty() {
            self.pending_items.push_back(Ok(ReplyChunk::KeepAlive));
        }
        decoded
    }

    fn handle_stream_end(&mut self) -> Result<(), CallFailure> {
        let VendorCallDriverState::Streaming(streaming) = &mut self.state else { return Ok(()) };
        let mut events = Vec::new();
        streaming.decoder.finish(&mut events)?;
        self.handle_events(&events)?;
        let VendorCallDriverState::Streaming(streaming) = &mut self.state else { return Ok(()) };
        let mut out = Vec::new();
        streaming.reader.finish_stream(&mut out);
        self.queue_chunks(out)?;
        self.ensure_finished()
    }

    fn handle_events(&mut self, events: &[SseEvent]) -> Result<(), CallFailure> {
        for event in events {
            let VendorCallDriverState::Streaming(streaming) = &mut self.state else { return Ok(()) };
            let mut out = Vec::new();
            let read = streaming.reader.read_event(event, &mut out);
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
                self.state = VendorCallDriverState::Done;
                self.is_finished = true;
                if let Some(failure) = self.empty_reply_failure(finish.stop) {
                    return Err(failure.with_usage(finish.usage));
                }
            }
            self.pending_items.push_back(Ok(chunk));
        }
        Ok(())
    }

    /// Returns the failure of a reply without content that ended for this reason.
    fn empty_reply_failure(&self, stop: StopReason) -> Option<CallFailure> {
        let ModelEndpoint { provider, model, .. } = &*self.vendor.endpoint;
        match stop {
            _ if self.has_content => None,
            StopReason::ContentFilter => Some(CallFailure::new(
                CallFailureKind::Refused,
                format!("{provider}'s content filter blocked the whole reply"),
            )),
            StopReason::Length => {
                let message = format!(
                    "`{model}` used its whole output budget without a reply, on reasoning or on a tool call that was cut off; change `effort` or raise `window_tokens`"
                );
                Some(CallFailure::new(CallFailureKind::UnusableReply, message))
            }
            StopReason::Done | StopReason::ToolCalls | StopReason::Repetition => {
                Some(CallFailure::new(CallFailureKind::UnusableReply, format!("`{model}` finished without a reply")))
            }
        }
    }

    fn ensure_finished(&self) -> Result<(), CallFailure> {
        let provider = &self.vendor.endpoint.provider;
        let incomplete =
            || malformed_reply_failure(format!("{provider} ended the stream before the reply was complete"));
        if self.is_finished { Ok(()) } else { Err(incomplete()) }
    }
}

/// Logs that the vendor rejects a feature, which is left out from now on.
fn log_unsupported_feature(endpoint: &ModelEndpoint, feature: &str) {
    let ModelEndpoint { provider, model, .. } = endpoint;
    tracing::warn!(provider, model, feature, "the vendor rejects a feature; it is left out from now on");
}

async fn read_error_response(endpoint: &ModelEndpoint, response: VendorHttpResponse) -> CallFailure {
    let VendorHttpResponse { status, headers, body } = response;
    let body = read_body_prefix(body, ERROR_BODY_BYTES_MAX).await;
    error_classification::classify_http_error(endpoint.error_context(), status, &headers, &body)
}

/// Words in errors about the requested output format.
const SCHEMA_ERROR_WORDS: [&str; 7] =
    ["schema", "response_format", "response format", "output_config", "output format", "response mime", "text.format"];

/// Returns whether the failure is a bad request whose message contains one of these words.
fn is_bad_request_about(failure: &CallFailure, words: &[&str]) -> bool {
    let message = failure.message.to_lowercase();
    failure.kind == CallFailureKind::BadRequest && words.iter().any(|word| message.contains(word))
}
