//! The wire formats: builds requests and selects stream readers.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::prompt::{
    CallFailure, CallFailureKind, ChatRole, ModelOutputFormat, Prompt, PromptMessage, StopReason, TokenUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sse::SseEvent;
use super::tool_names::VendorToolNameMap;
use super::{JsonMode, ModelEndpoint, VendorCredentials, anthropic, chat, gemini, ollama, responses};
use crate::http::{self, AuthHeader, HttpMethod};
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{CacheablePromptPart, ReplyChunk, ReplyFinish};

/// An API format of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// OpenAI's chat completions and compatible servers.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's Messages API.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
    /// Ollama's own API.
    Ollama,
}

impl WireFormat {
    pub const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Returns the name used in configuration files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }
}

/// Separates texts that are joined into one message.
pub(super) const PART_SEPARATOR: &str = "\n\n";
/// Marks the result of a failed tool.
const TOOL_ERROR_PREFIX: &str = "Error: ";

/// Returns a tool's result for formats that have no field for failure, so the text must say it.
pub(super) fn tool_result_text(message: &PromptMessage) -> String {
    let text = message.text();
    let has_prefix = text.get(..TOOL_ERROR_PREFIX.len() - 2).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if message.failed && !has_prefix { format!("{TOOL_ERROR_PREFIX}{text}") } else { text }
}

/// Builds the request of one call.
pub(super) struct VendorRequestBuilder<'a> {
    pub endpoint: &'a ModelEndpoint,
    pub prompt: &'a Prompt,
    /// Estimated size of the prompt.
    pub prompt_tokens: u32,
    pub caching: CacheablePromptPart,
    pub tool_names: &'a VendorToolNameMap,
    /// How the model is made to return JSON, if a schema is given.
    pub json_mode: JsonMode,
    pub features: OptionalVendorFeatures,
}

/// Optional features to request, unless the vendor rejected them before.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionalVendorFeatures {
    /// Token usage, where it must be requested.
    pub usage: bool,
    /// A reasoning effort and encrypted reasoning.
    pub reasoning: bool,
    pub reasoning_summaries: bool,
    /// A tool that the model must call.
    pub forced_tools: bool,
}

impl VendorRequestBuilder<'_> {
    /// Returns the token limit for the whole output.
    pub(super) fn output_token_budget(&self) -> u32 {
        self.endpoint.output_token_budget(self.prompt.reply_tokens_max, self.prompt_tokens)
    }

    /// Returns the schema that the reply must match, if any.
    pub(super) fn output_schema(&self) -> Option<&Value> {
        match &self.prompt.output_format {
            ModelOutputFormat::Json(schema) => Some(schema),
            ModelOutputFormat::Text => None,
        }
    }

    /// Returns the vendor's form of the id of the call that a message answers.
    pub(super) fn answered_call_id(&self, message: &PromptMessage) -> Option<String> {
        message.tool_call_id.as_deref().map(|id| self.endpoint.vendor_call_id(id))
    }

    /// Returns the schema as instructions for the model, where the vendor does not enforce it.
    pub(super) fn schema_instructions(&self) -> Option<String> {
        let schema = self.output_schema()?;
        match self.json_mode {
            JsonMode::Schema => None,
            JsonMode::Object | JsonMode::Prompt => {
                Some(format!("Answer with JSON that satisfies this schema, and with nothing else:\n{schema}"))
            }
        }
    }

    /// Returns the complete system prompt.
    pub(super) fn system_text(&self) -> Option<String> {
        let system_messages = self.prompt.messages.iter().filter(|message| message.chat_role == ChatRole::System);
        let mut texts: Vec<String> = system_messages.map(PromptMessage::text).collect();
        texts.extend(self.schema_instructions());
        texts.retain(|text| !text.trim().is_empty());
        (!texts.is_empty()).then(|| texts.join(PART_SEPARATOR))
    }

    /// Builds OpenAI's system message and sets its cache options.
    pub(super) fn openai_system_message(&self, content_type: &str, body: &mut Value) -> Option<Value> {
        let system = self.system_text()?;
        if !self.endpoint.capabilities.cache_breakpoints {
            return Some(json!({ "role": "system", "content": system }));
        }
        // By default the vendor would also cache the rest of the prompt, and bill for it.
        if self.caching == CacheablePromptPart::SystemOnly {
            body["prompt_cache_options"] = json!({ "mode": "explicit" });
        }
        let first_user = self.prompt.messages.iter().find(|message| message.chat_role == ChatRole::User);
        let first_user_text = first_user
            .filter(|_| self.caching == CacheablePromptPart::WholePrompt)
            .map(PromptMessage::text)
            .unwrap_or_default();
        body["prompt_cache_key"] = json!(BodyId::hash_text(&format!("{system}\n{first_user_text}")));
        let breakpoint = json!({ "mode": "explicit" });
        let content = json!([{ "type": content_type, "text": system, "prompt_cache_breakpoint": breakpoint }]);
        Some(json!({ "role": "system", "content": content }))
    }

    pub(super) fn build_http_request(&self) -> http::VendorHttpRequest {
        let ModelEndpoint { wire, base_url, model, .. } = self.endpoint;
        let (path, body) = match wire {
            WireFormat::Chat => ("/chat/completions".to_owned(), chat::build_chat_body(self)),
            WireFormat::Responses => ("/responses".to_owned(), responses::build_responses_body(self)),
            WireFormat::Anthropic => ("/messages".to_owned(), anthropic::build_anthropic_body(self)),
            WireFormat::Gemini => {
                (format!("/models/{model}:streamGenerateContent?alt=sse"), gemini::build_gemini_body(self))
            }
            WireFormat::Ollama => ("/api/chat".to_owned(), ollama::build_ollama_body(self)),
        };
        let base_url = if *wire == WireFormat::Ollama { ollama::ollama_server_url(base_url) } else { base_url };
        let (mut headers, key) = self.endpoint.request_headers();
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        http::VendorHttpRequest {
            method: HttpMethod::Post,
            url: format!("{base_url}{path}"),
            headers,
            auth: key,
            body: body.to_string(),
            call: None,
        }
    }
}

impl ModelEndpoint {
    /// Returns the headers that every request needs, and the one with the credentials.
    pub(crate) fn request_headers(&self) -> (Vec<(String, String)>, Option<AuthHeader>) {
        let (name, scheme) = match (&self.credentials, self.wire) {
            (VendorCredentials::Basic { .. }, _) => ("authorization", "Basic "),
            (_, WireFormat::Chat | WireFormat::Responses | WireFormat::Ollama) => ("authorization", "Bearer "),
            (_, WireFormat::Anthropic) => ("x-api-key", ""),
            (_, WireFormat::Gemini) => ("x-goog-api-key", ""),
        };
        let version = (self.wire == WireFormat::Anthropic).then_some(anthropic::ANTHROPIC_VERSION_HEADER);
        let headers = version.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        (headers, self.credentials.secret().map(|key| AuthHeader { name, scheme, secret: key.clone() }))
    }
}

/// Reads the response stream of one format.
pub(super) enum VendorStreamReader {
    Chat(chat::ChatCompletionsStreamReader),
    Responses(responses::OpenAiResponsesStreamReader),
    Anthropic(anthropic::AnthropicStreamReader),
    Gemini(gemini::GeminiStreamReader),
    Ollama(ollama::OllamaStreamReader),
}

impl VendorStreamReader {
    pub(super) fn new(endpoint: &Arc<ModelEndpoint>, tool_names: VendorToolNameMap, prompt: &Prompt) -> Self {
        let ids = prompt.messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.clone());
        let context =
            VendorStreamReaderContext { endpoint: endpoint.clone(), tool_names, known_call_ids: ids.collect() };
        match endpoint.wire {
            WireFormat::Chat => Self::Chat(chat::ChatCompletionsStreamReader::new(context)),
            WireFormat::Responses => Self::Responses(responses::OpenAiResponsesStreamReader::new(context)),
            WireFormat::Anthropic => Self::Anthropic(anthropic::AnthropicStreamReader::new(context)),
            WireFormat::Gemini => Self::Gemini(gemini::GeminiStreamReader::new(context)),
            WireFormat::Ollama => Self::Ollama(ollama::OllamaStreamReader::new(context)),
        }
    }

    /// Returns the token usage reported so far.
    pub(super) fn usage(&self) -> Option<TokenUsage> {
        match self {
            Self::Chat(reader) => reader.usage,
            Self::Responses(reader) => reader.usage,
            Self::Anthropic(reader) => reader.usage(),
            Self::Gemini(reader) => reader.usage,
            Self::Ollama(reader) => reader.usage,
        }
    }

    /// Reads one event of the stream.
    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        match self {
            Self::Chat(reader) => reader.read_event(event, out),
            Self::Responses(reader) => reader.read_event(event, out),
            Self::Anthropic(reader) => reader.read_event(event, out),
            Self::Gemini(reader) => reader.read_event(event, out),
            Self::Ollama(reader) => reader.read_event(event, out),
        }
    }

    /// Ends the stream; the reply is complete if there is a [`ReplyChunk::Finish`] now.
    pub(super) fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        match self {
            Self::Chat(reader) => reader.finish_stream(out),
            Self::Gemini(reader) => reader.finish_stream(out),
            // These formats have a final event.
            Self::Responses(_) | Self::Anthropic(_) | Self::Ollama(_) => {}
        }
    }

    /// Reads a reply that was not streamed although a stream was requested.
    pub(super) fn read_whole_reply(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        match self {
            Self::Chat(reader) => reader.read_whole_reply(body, out),
            Self::Responses(reader) => reader.read_whole_reply(body, out),
            Self::Anthropic(reader) => reader.context.reject_unstreamed_body(body),
            Self::Gemini(reader) => reader.context.reject_unstreamed_body(body),
            Self::Ollama(reader) => reader.read_whole_reply(body, out),
        }
    }
}

/// Shared by all readers.
#[derive(Debug)]
pub(super) struct VendorStreamReaderContext {
    pub endpoint: Arc<ModelEndpoint>,
    pub tool_names: VendorToolNameMap,
    /// The ids of all tool calls in the conversation.
    pub known_call_ids: BTreeSet<String>,
}

impl VendorStreamReaderContext {
    /// Parses the JSON of an event.
    pub(super) fn parse_event_json(&self, event: &SseEvent) -> Result<Value, CallFailure> {
        serde_json::from_str(&event.data).map_err(|_| {
            let start: String = self.endpoint.redact(&event.data).chars().take(QUOTED_CHARS_MAX).collect();
            malformed_reply_failure(format!(
                "{}: an event of the stream is not JSON: {start:?}",
                self.endpoint.provider
            ))
        })
    }

    /// Classifies an error in the stream.
    pub(super) fn classify_error(&self, body: &Value) -> CallFailure {
        super::error_classification::classify_stream_error(self.endpoint.error_context(), body)
    }

    /// Handles an unstreamed body in a format where only errors come that way.
    fn reject_unstreamed_body(&self, body: &Value) -> Result<(), CallFailure> {
        let is_error = body.get("error").or_else(|| body.get(0)?.get("error")).is_some();
        Err(if is_error { self.classify_error(body) } else { self.unknown_reply_format_failure() })
    }

    /// Returns the failure of a reply in an unknown format.
    pub(super) fn unknown_reply_format_failure(&self) -> CallFailure {
        malformed_reply_failure(format!("{} answered in an unexpected format", self.endpoint.provider))
    }
}

pub(super) fn malformed_reply_failure(message: String) -> CallFailure {
    CallFailure::new(CallFailureKind::MalformedReply, message)
}

/// Returns whether a reply ended before the model was done. Incomplete parts of it are dropped rather than repaired.
pub(super) fn is_truncated(stop: StopReason) -> bool {
    match stop {
        StopReason::Length | StopReason::ContentFilter | StopReason::Repetition => true,
        StopReason::Done | StopReason::ToolCalls => false,
    }
}

/// Returns the stop reason for an unknown finish reason. Normal ends have known names, so the reply counts as truncated: it is
/// shown and its complete parts are used, but nothing is repaired.
pub(super) fn stop_for_unknown_reason() -> StopReason {
    StopReason::Length
}

/// Wraps arguments that are not an object in one, because vendors accept only objects.
pub(super) fn to_arguments_object(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "input": arguments }) }
}

pub(super) fn finish_chunk(stop: StopReason, usage: Option<TokenUsage>) -> ReplyChunk {
    ReplyChunk::Finish(ReplyFinish { stop, usage, rejected_usage: None })
}

/// Returns the non-empty string at a JSON pointer.
pub(super) fn nonempty_str_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the token count at a JSON pointer.
pub(super) fn token_count_at(value: &Value, pointer: &str) -> Option<u32> {
    let number = value.pointer(pointer)?;
    let number =
        number.as_u64().or_else(|| number.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
