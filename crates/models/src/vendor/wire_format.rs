//! The formats vendors speak, side by side: which request a prompt becomes, and who reads the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::prompt::{
    CallFailure, ChatRole, FailureKind, OutputFormat, PART_SEPARATOR, Prompt, PromptMessage, StopReason, TokenUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sse::SseEvent;
use super::tool_names::ToolNameMap;
use super::{Credentials, JsonMode, ModelEndpoint, anthropic, chat, gemini, ollama, responses};
use crate::http::{self, AuthHeader, HttpMethod};
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{PromptCaching, ReplyChunk, ReplyFinish};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    /// OpenAI's chat completions, and every server that speaks like it.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own.
    Ollama,
}

impl WireFormat {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Its name in files.
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

/// Stands before what a failed tool said.
const TOOL_ERROR_PREFIX: &str = "Error: ";

/// What a tool returned, for a format with no place of its own for whether it failed: then the text says so.
pub(super) fn tool_result_text(message: &PromptMessage) -> String {
    let said = message.text();
    let says_so = said.get(..TOOL_ERROR_PREFIX.len() - 2).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if message.failed && !says_so { format!("{TOOL_ERROR_PREFIX}{said}") } else { said }
}

/// One call as an adapter sees it.
pub(super) struct VendorRequestBuilder<'a> {
    pub endpoint: &'a ModelEndpoint,
    pub prompt: &'a Prompt,
    /// Its tokens, as far as we can count them.
    pub prompt_tokens: u32,
    pub caching: PromptCaching,
    pub tool_names: &'a ToolNameMap,
    /// How the model is held to its schema, if there is one.
    pub json_mode: JsonMode,
    pub features: OptionalFeatures,
}

/// What a vendor is asked for beside the answer, unless it has refused that once.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionalFeatures {
    /// Figures, where it wants to be asked for them.
    pub usage: bool,
    /// To think so hard, and its thoughts, sealed.
    pub reasoning: bool,
    /// What it thought, in short.
    pub reasoning_summaries: bool,
}

impl VendorRequestBuilder<'_> {
    /// Tokens the whole answer may take.
    pub fn output_token_budget(&self) -> u32 {
        self.endpoint.output_token_budget(self.prompt.reply_tokens_max, self.prompt_tokens)
    }

    /// The schema, if the answer must satisfy one.
    pub fn output_schema(&self) -> Option<&Value> {
        match &self.prompt.output_format {
            OutputFormat::Json(schema) => Some(schema),
            OutputFormat::Text => None,
        }
    }

    /// The call a message answers, as the vendor is told it.
    pub fn answered_call_id(&self, message: &PromptMessage) -> Option<String> {
        message.tool_call_id.as_deref().map(|id| self.endpoint.vendor_call_id(id))
    }

    /// What the model is told about the form of its answer, where the vendor has no field for that.
    pub fn schema_instructions(&self) -> Option<String> {
        let schema = self.output_schema()?;
        match self.json_mode {
            JsonMode::Schema => None,
            JsonMode::Object | JsonMode::Prompt => {
                Some(format!("Answer with JSON that satisfies this schema, and with nothing else:\n{schema}"))
            }
        }
    }

    /// The whole of the standing instructions.
    pub fn system_text(&self) -> Option<String> {
        let spoken = self.prompt.messages.iter().filter(|message| message.chat_role == ChatRole::System);
        let mut texts: Vec<String> = spoken.map(PromptMessage::text).collect();
        texts.extend(self.schema_instructions());
        texts.retain(|text| !text.trim().is_empty());
        (!texts.is_empty()).then(|| texts.join(PART_SEPARATOR))
    }

    /// The standing instructions as a message of OpenAI's, and what its cache is told about them.
    pub fn openai_system_message(&self, content_type: &str, body: &mut Value) -> Option<Value> {
        let system = self.system_text()?;
        if !self.endpoint.capabilities.cache_breakpoints {
            return Some(json!({ "role": "system", "content": system }));
        }
        // Left to itself, the vendor would also write what never comes again into its cache, and bill for it.
        if self.caching == PromptCaching::SystemOnly {
            body["prompt_cache_options"] = json!({ "mode": "explicit" });
        }
        let first = self.prompt.messages.iter().find(|message| message.chat_role == ChatRole::User);
        let first =
            first.filter(|_| self.caching == PromptCaching::WholePrompt).map(PromptMessage::text).unwrap_or_default();
        body["prompt_cache_key"] = json!(BodyId::hash_text(&format!("{system}\n{first}")));
        let mark = json!({ "mode": "explicit" });
        let content = json!([{ "type": content_type, "text": system, "prompt_cache_breakpoint": mark }]);
        Some(json!({ "role": "system", "content": content }))
    }

    /// The request.
    pub fn build_http_request(&self) -> http::HttpRequest {
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
        http::HttpRequest {
            method: HttpMethod::Post,
            url: format!("{base_url}{path}"),
            headers,
            auth: key,
            body: body.to_string(),
        }
    }
}

impl ModelEndpoint {
    /// The headers that every request needs, and the one with the key.
    pub(crate) fn request_headers(&self) -> (Vec<(String, String)>, Option<AuthHeader>) {
        let (name, scheme) = match (&self.credentials, self.wire) {
            (Credentials::Basic { .. }, _) => ("authorization", "Basic "),
            (_, WireFormat::Chat | WireFormat::Responses | WireFormat::Ollama) => ("authorization", "Bearer "),
            (_, WireFormat::Anthropic) => ("x-api-key", ""),
            (_, WireFormat::Gemini) => ("x-goog-api-key", ""),
        };
        let version = (self.wire == WireFormat::Anthropic).then_some(anthropic::ANTHROPIC_VERSION_HEADER);
        let headers = version.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        (headers, self.credentials.secret().map(|key| AuthHeader { name, scheme, secret: key.clone() }))
    }
}

/// Whoever reads an answer.
pub(super) enum VendorStreamReader {
    Chat(chat::ChatStreamReader),
    Responses(responses::ResponsesStreamReader),
    Anthropic(anthropic::AnthropicStreamReader),
    Gemini(gemini::GeminiStreamReader),
    Ollama(ollama::OllamaStreamReader),
}

impl VendorStreamReader {
    pub fn new(endpoint: &Arc<ModelEndpoint>, tool_names: ToolNameMap, prompt: &Prompt) -> Self {
        let ids = prompt.messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.clone());
        let desk = ReaderContext { endpoint: endpoint.clone(), tool_names, known_call_ids: ids.collect() };
        match endpoint.wire {
            WireFormat::Chat => Self::Chat(chat::ChatStreamReader::new(desk)),
            WireFormat::Responses => Self::Responses(responses::ResponsesStreamReader::new(desk)),
            WireFormat::Anthropic => Self::Anthropic(anthropic::AnthropicStreamReader::new(desk)),
            WireFormat::Gemini => Self::Gemini(gemini::GeminiStreamReader::new(desk)),
            WireFormat::Ollama => Self::Ollama(ollama::OllamaStreamReader::new(desk)),
        }
    }

    /// The figures so far, if there are any.
    pub fn usage(&self) -> Option<TokenUsage> {
        match self {
            Self::Chat(reader) => reader.usage,
            Self::Responses(reader) => reader.usage,
            Self::Anthropic(reader) => reader.usage(),
            Self::Gemini(reader) => reader.usage,
            Self::Ollama(reader) => reader.usage,
        }
    }

    /// Reads one event of the stream.
    pub fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        match self {
            Self::Chat(reader) => reader.read_event(event, out),
            Self::Responses(reader) => reader.read_event(event, out),
            Self::Anthropic(reader) => reader.read_event(event, out),
            Self::Gemini(reader) => reader.read_event(event, out),
            Self::Ollama(reader) => reader.read_event(event, out),
        }
    }

    /// The stream is over. It was whole if there is a [`Chunk::Finish`] now.
    pub fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        match self {
            Self::Chat(reader) => reader.finish_stream(out),
            Self::Gemini(reader) => reader.finish_stream(out),
            // These say when they are done.
            Self::Responses(_) | Self::Anthropic(_) | Self::Ollama(_) => {}
        }
    }

    /// Reads an answer that came in one piece although a stream was asked for.
    pub fn read_whole_reply(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        match self {
            Self::Chat(reader) => reader.read_whole_reply(body, out),
            Self::Responses(reader) => reader.read_whole_reply(body, out),
            Self::Anthropic(reader) => reader.context.reject_whole_body(body),
            Self::Gemini(reader) => reader.context.reject_whole_body(body),
            Self::Ollama(reader) => reader.read_whole_reply(body, out),
        }
    }
}

/// What every reader needs.
#[derive(Debug)]
pub(super) struct ReaderContext {
    pub endpoint: Arc<ModelEndpoint>,
    pub tool_names: ToolNameMap,
    /// The ids of the calls that the conversation holds already.
    pub known_call_ids: BTreeSet<String>,
}

impl ReaderContext {
    /// The JSON of an event.
    pub fn parse_event_json(&self, event: &SseEvent) -> Result<Value, CallFailure> {
        serde_json::from_str(&event.data).map_err(|_| {
            let start: String = self.endpoint.redact(&event.data).chars().take(QUOTED_CHARS_MAX).collect();
            malformed_reply_failure(format!("{}: an event of the stream is no JSON: {start:?}", self.endpoint.provider))
        })
    }

    /// What an error in the stream means.
    pub fn classify_error(&self, body: &Value) -> CallFailure {
        super::error_classification::classify_stream_error(self.endpoint.error_context(), body)
    }

    /// A body that came in one piece where only errors do.
    fn reject_whole_body(&self, body: &Value) -> Result<(), CallFailure> {
        let is_error = body.get("error").or_else(|| body.get(0)?.get("error")).is_some();
        Err(if is_error { self.classify_error(body) } else { self.unknown_format_failure() })
    }

    /// An answer in no format we know.
    pub fn unknown_format_failure(&self) -> CallFailure {
        malformed_reply_failure(format!("{} answered in a format that is not its own", self.endpoint.provider))
    }
}

pub(super) fn malformed_reply_failure(message: String) -> CallFailure {
    CallFailure::new(FailureKind::MalformedReply, message)
}

/// Whether an answer ended before its model was done with it. What is open in it then was not meant so, and nothing of it is mended.
pub(super) fn is_truncated(stop: StopReason) -> bool {
    match stop {
        StopReason::Length | StopReason::ContentFilter => true,
        StopReason::Done | StopReason::ToolCalls => false,
    }
}

/// What it means that an answer ended for a reason nobody knows. Good ends have known names, so this is hardly one: what came is shown and
/// what is whole in it is used, but nothing of it is mended.
pub(super) fn stop_for_unknown_reason() -> StopReason {
    StopReason::Length
}

/// The arguments of a call as they go back: vendors take objects only, and models write what they like.
pub(super) fn to_arguments_object(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "input": arguments }) }
}

/// The end of an answer.
pub(super) fn finish_chunk(stop: StopReason, usage: Option<TokenUsage>) -> ReplyChunk {
    ReplyChunk::Finish(ReplyFinish { stop, usage, rejected_usage: None })
}

/// A text at a place in a JSON value, if there is one that is not empty.
pub(super) fn nonempty_str_at<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// A number of tokens at a place in a JSON value.
pub(super) fn token_count_at(value: &Value, pointer: &str) -> Option<u32> {
    let number = value.pointer(pointer)?;
    let number =
        number.as_u64().or_else(|| number.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
