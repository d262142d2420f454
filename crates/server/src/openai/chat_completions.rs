//! Serves chat completions.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::client_options::{RequestedToolsAndFormat, check_flow_accepts};
use super::conversation::{ClientConversation, ClientHistoryToolCall, ClientMessageContent};
use super::reply_stream::{ReplyToClient, ReplyUpdate, TurnReplyStream};
use super::session_lookup::resolve_request;
use super::transcript::{ClientExchangeTokenUsage, ReplyKey};
use super::{OpenAiJsonBody, OpenAiRejection, OpenAiSessionHeaders, SESSION_HEADER, flow_for_model, to_openai_error};
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// A request for a chat completion.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionRequest {
    /// The name of the flow.
    pub model: String,
    /// The whole conversation; the user's last messages are new.
    #[schema(value_type = Vec<ChatCompletionRequestMessage>, min_items = 1)]
    pub messages: Vec<Value>,
    /// Whether the response is a stream of chunks.
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<ChatCompletionStreamOptions>,
    /// `session` names the session.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// The number of choices; only 1 is supported.
    #[serde(default)]
    pub n: Option<u32>,
    /// Functions that the client runs; only in flows that accept them.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or a function.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<Value>,
    /// Whether the model may call several tools at once; `true` by default.
    #[serde(default)]
    pub parallel_tool_calls: Option<bool>,
    /// `text`, `json_object` or `json_schema`; only in flows that accept it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
}

/// A message of the conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionRequestMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// A text, or a list of `text` and `image_url` parts; images must be data URLs.
    #[schema(value_type = Value)]
    pub content: Value,
    /// In an assistant's message, the tools that it called.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Option<Vec<Value>>,
    /// In a tool's message, the call that it answers.
    pub tool_call_id: Option<String>,
}

/// Options of a stream.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionStreamOptions {
    /// Whether a last chunk contains the token usage.
    #[serde(default)]
    pub include_usage: Option<bool>,
}

/// A chat completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// In seconds since 1970.
    pub created: u64,
    /// The name of the flow.
    pub model: String,
    /// Always one choice.
    pub choices: Vec<ChatCompletionChoice>,
    pub usage: ChatCompletionUsage,
    /// Always `null`.
    pub system_fingerprint: Option<String>,
    /// The name of the session.
    pub session: String,
    pub turn: String,
}

/// The only choice of a completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionChoice {
    /// Always 0.
    pub index: u32,
    pub message: ChatCompletionResponseMessage,
    /// Always `null`.
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<Value>,
    /// `stop`, `length`, `content_filter` or `tool_calls`.
    pub finish_reason: String,
}

/// The reply of a completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionResponseMessage {
    /// Always `assistant`.
    pub role: String,
    /// `null` if the reply consists of tool calls.
    pub content: Option<String>,
    /// Always `null`.
    pub refusal: Option<String>,
    /// The calls of the client's tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub tool_calls: Vec<Value>,
}

/// The token usage of the reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub prompt_tokens_details: PromptTokensDetails,
    pub completion_tokens_details: ReasoningTokenCount,
}

/// Input tokens that were served from a cache.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    pub cached_tokens: u64,
}

/// Output tokens that were spent on reasoning.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReasoningTokenCount {
    /// Always 0; reasoning tokens are not reported here.
    pub reasoning_tokens: u64,
}

/// Create a chat completion
///
/// With `"stream": true` the response is a stream of chunks.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai",
    params(("segue-session" = Option<String>, Header, description = "The session's name.")),
    request_body = ChatCompletionRequest,
    responses((status = 200, content((ChatCompletion = "application/json"), (String = "text/event-stream"))), (status = 502, body = super::OpenAiCompatError, description = "The turn produced no reply.")))]
pub(crate) async fn create_chat_completion(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    OpenAiJsonBody(request): OpenAiJsonBody<ChatCompletionRequest>,
) -> Result<Response, OpenAiRejection> {
    let flow = flow_for_model(&app, &caller, &request.model)?;
    check_chat_request(&request)?;
    let mut hints = OpenAiSessionHeaders::from_headers(&headers)?;
    hints.session_name = hints.session_name.or_else(|| session_in_metadata(request.metadata.as_ref()));
    let options = RequestedToolsAndFormat {
        tools: request.tools,
        tool_choice: request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        format: request.response_format,
        format_field: "response_format",
    };
    let options = options.parse()?;
    check_flow_accepts(&app, &flow, &options, "response_format")?;
    let conversation = ClientConversation::parse_off_worker(request.messages, None).await?;
    let resolved = resolve_request(&app, &caller, &flow, &conversation, &hints).await?;
    let created = app.engine.now().0 / 1_000;
    let is_stream = request.stream == Some(true);
    let mut reply = TurnReplyStream::start(resolved, options, is_stream).await?;
    let session = reply.session_name();
    if is_stream {
        let include_usage = request.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
        let (model, stage) = (request.model, ChatCompletionStreamStage::Start);
        let chunks = ChatCompletionChunkStream { reply, model, created, include_usage, queued: VecDeque::new(), stage };
        let stream = stream::unfold(
            (chunks, permit, app.metrics.track_open_stream()),
            |(mut chunks, permit, open_stream)| async move {
                let event = chunks.next_event().await?;
                Some((Ok::<_, Infallible>(event), (chunks, permit, open_stream)))
            },
        );
        let mut response = Sse::new(stream).keep_alive(KeepAlive::new()).into_response();
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    while let Some(update) = reply.next_update().await? {
        let ReplyUpdate::Finished(ended) = update else { continue };
        reply.mark_delivered(&ended.content);
        let answer = build_chat_completion(&ended, request.model, created);
        let mut response = Json(answer).into_response();
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    Err(HttpProblem::new("internal", "the turn ended without a reply").into())
}

fn check_chat_request(request: &ChatCompletionRequest) -> Result<(), HttpProblem> {
    if request.n.is_some_and(|n| n != 1) {
        return Err(HttpProblem::bad_request("only one choice is supported; omit `n`").with_extension("field", "n"));
    }
    Ok(())
}

/// Returns the session that the metadata names.
pub(crate) fn session_in_metadata(metadata: Option<&Value>) -> Option<String> {
    let name = metadata?.get("session")?.as_str()?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Sets the header that names the session.
pub(crate) fn set_session_header(response: &mut Response, session: &str) {
    if let Ok(value) = HeaderValue::from_str(session) {
        response.headers_mut().insert(SESSION_HEADER, value);
    }
}

fn chat_completion_id(session: &str, point: ReplyKey) -> String {
    format!("chatcmpl-{session}-{point}")
}

fn build_chat_completion(reply: &ReplyToClient, model: String, created: u64) -> ChatCompletion {
    let ClientMessageContent { text, tool_calls, .. } = &reply.content;
    let content = Some(text.clone()).filter(|text| tool_calls.is_empty() || !text.is_empty());
    ChatCompletion {
        id: chat_completion_id(&reply.session, reply.point),
        object: "chat.completion".to_owned(),
        created,
        model,
        choices: vec![ChatCompletionChoice {
            index: 0,
            message: ChatCompletionResponseMessage {
                role: "assistant".to_owned(),
                content,
                refusal: None,
                tool_calls: tool_calls.iter().map(tool_call_object).collect(),
            },
            logprobs: None,
            finish_reason: reply.finish_reason.to_owned(),
        }],
        usage: chat_usage(reply.usage),
        system_fingerprint: None,
        session: reply.session.clone(),
        turn: reply.turn.to_string(),
    }
}

fn tool_call_object(call: &ClientHistoryToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

fn chat_usage(usage: ClientExchangeTokenUsage) -> ChatCompletionUsage {
    ChatCompletionUsage {
        prompt_tokens: usage.input,
        completion_tokens: usage.output,
        total_tokens: usage.input + usage.output,
        prompt_tokens_details: PromptTokensDetails { cached_tokens: usage.cached },
        completion_tokens_details: ReasoningTokenCount { reasoning_tokens: 0 },
    }
}

/// The stream of chunks of a completion.
struct ChatCompletionChunkStream {
    reply: TurnReplyStream,
    model: String,
    created: u64,
    include_usage: bool,
    /// Chunks that are ready.
    queued: VecDeque<AxumSseEvent>,
    stage: ChatCompletionStreamStage,
}

enum ChatCompletionStreamStage {
    Start,
    Content,
    Usage(ClientExchangeTokenUsage),
    DoneMarker,
    Finished,
}

impl ChatCompletionChunkStream {
    async fn next_event(&mut self) -> Option<AxumSseEvent> {
        if let Some(event) = self.queued.pop_front() {
            return Some(event);
        }
        match std::mem::replace(&mut self.stage, ChatCompletionStreamStage::Finished) {
            ChatCompletionStreamStage::Start => {
                self.stage = ChatCompletionStreamStage::Content;
                Some(self.build_chunk(json!([delta_choice(json!({"role": "assistant", "content": ""}), None)]), None))
            }
            ChatCompletionStreamStage::Content => Some(self.next_content_chunk().await),
            ChatCompletionStreamStage::Usage(usage) => {
                self.stage = ChatCompletionStreamStage::DoneMarker;
                Some(self.build_chunk(json!([]), Some(chat_usage(usage))))
            }
            ChatCompletionStreamStage::DoneMarker => Some(AxumSseEvent::default().data("[DONE]")),
            ChatCompletionStreamStage::Finished => None,
        }
    }

    async fn next_content_chunk(&mut self) -> AxumSseEvent {
        match self.reply.next_update().await {
            Ok(Some(ReplyUpdate::TextDelta(text))) => {
                self.stage = ChatCompletionStreamStage::Content;
                self.build_chunk(json!([delta_choice(json!({"content": text}), None)]), None)
            }
            Ok(Some(ReplyUpdate::Finished(ended))) => {
                self.reply.mark_delivered(&ended.content);
                self.queue_tool_call_chunks(&ended.content.tool_calls);
                let last = self.build_chunk(json!([delta_choice(json!({}), Some(ended.finish_reason))]), None);
                self.queued.push_back(last);
                self.stage = if self.include_usage {
                    ChatCompletionStreamStage::Usage(ended.usage)
                } else {
                    ChatCompletionStreamStage::DoneMarker
                };
                self.queued.pop_front().unwrap_or_default()
            }
            Ok(None) => AxumSseEvent::default().data("[DONE]"),
            Err(problem) => {
                // The stream ends after the error. Our own types can always be serialized.
                AxumSseEvent::default().data(serde_json::to_string(&to_openai_error(&problem)).unwrap_or_default())
            }
        }
    }

    /// Queues two chunks for each tool call: its name, and its arguments.
    fn queue_tool_call_chunks(&mut self, calls: &[ClientHistoryToolCall]) {
        for (index, call) in calls.iter().enumerate() {
            let mut opening = tool_call_object(call);
            (opening["index"], opening["function"]["arguments"]) = (json!(index), json!(""));
            let arguments = json!({ "index": index, "function": { "arguments": call.arguments } });
            for part in [opening, arguments] {
                let chunk = self.build_chunk(json!([delta_choice(json!({ "tool_calls": [part] }), None)]), None);
                self.queued.push_back(chunk);
            }
        }
    }

    fn build_chunk(&self, choices: Value, usage: Option<ChatCompletionUsage>) -> AxumSseEvent {
        let mut chunk = json!({
            "id": chat_completion_id(&self.reply.session_name(), self.reply.point),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": null,
            "choices": choices,
        });
        if self.include_usage {
            // Our own types can always be serialized.
            chunk["usage"] = serde_json::to_value(usage).unwrap_or_default();
        }
        AxumSseEvent::default().data(chunk.to_string())
    }
}

fn delta_choice(delta: Value, finish_reason: Option<&str>) -> Value {
    json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason })
}
