//! Serves chat completions.

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

use super::conversation::ClientConversation;
use super::reply_stream::{ReplyUpdate, TurnReplyStream};
use super::session_lookup::resolve_request;
use super::{OpenAiJson, OpenAiRejection, SESSION_HEADER, SessionRequestHeaders, flow_for_model, to_openai_error};
use crate::api::messages::MessageResult;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// A request for a chat completion.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionRequest {
    /// The name of the flow.
    pub model: String,
    /// The whole conversation; the user's last messages are new.
    #[schema(value_type = Vec<ChatMessage>, min_items = 1)]
    pub messages: Vec<Value>,
    /// Whether the response is a stream of chunks.
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// `session` names the session.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// The number of choices; only 1 is supported.
    #[serde(default)]
    pub n: Option<u32>,
    /// Not supported; must be empty.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
}

/// A message of the conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user` or `assistant`.
    pub role: String,
    /// A text, or a list of `text` and `image_url` parts; images must be data URLs.
    #[schema(value_type = Value)]
    pub content: Value,
}

/// Options of a stream.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
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
    pub choices: Vec<ChatChoice>,
    pub usage: ChatUsage,
    /// Always `null`.
    pub system_fingerprint: Option<String>,
    /// The name of the session.
    pub session: String,
    pub turn: String,
}

/// The only choice of a completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    /// Always 0.
    pub index: u32,
    pub message: ChatCompletionMessage,
    /// Always `null`.
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<Value>,
    /// `stop`, `length` or `content_filter`.
    pub finish_reason: String,
}

/// The reply of a completion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionMessage {
    /// Always `assistant`.
    pub role: String,
    pub content: String,
    /// Always `null`.
    pub refusal: Option<String>,
}

/// The token usage of the whole turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub prompt_tokens_details: CachedTokens,
    pub completion_tokens_details: ReasoningTokenCount,
}

/// Input tokens that were served from a cache.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CachedTokens {
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
    OpenAiJson(request): OpenAiJson<ChatCompletionRequest>,
) -> Result<Response, OpenAiRejection> {
    let flow = flow_for_model(&app, &caller, &request.model)?;
    check_chat_request(&request)?;
    let mut hints = SessionRequestHeaders::from_headers(&headers)?;
    hints.session_name = hints.session_name.or_else(|| session_in_metadata(request.metadata.as_ref()));
    let conversation = ClientConversation::parse_off_worker(request.messages, None).await?;
    let resolved = resolve_request(&app, &caller, &flow, &conversation, &hints).await?;
    let created = app.engine.now().0 / 1_000;
    let is_stream = request.stream == Some(true);
    let mut reply = TurnReplyStream::start(resolved, is_stream).await?;
    let session = reply.session_name();
    if is_stream {
        let include_usage = request.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
        let chunks =
            ChatChunkStream { reply, model: request.model, created, include_usage, stage: ChatStreamStage::Start };
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
        reply.mark_delivered(&ended.report.reply);
        let answer = build_chat_completion(&ended.report, ended.finish_reason, request.model, created);
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
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(
            HttpProblem::bad_request("a flow uses its own tools; omit `tools`").with_extension("field", "tools")
        );
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

fn chat_completion_id(session: &str, message: &str) -> String {
    format!("chatcmpl-{session}-{message}")
}

fn build_chat_completion(report: &MessageResult, finish_reason: &str, model: String, created: u64) -> ChatCompletion {
    ChatCompletion {
        id: chat_completion_id(&report.session, &report.message),
        object: "chat.completion".to_owned(),
        created,
        model,
        choices: vec![ChatChoice {
            index: 0,
            message: ChatCompletionMessage {
                role: "assistant".to_owned(),
                content: report.reply.clone(),
                refusal: None,
            },
            logprobs: None,
            finish_reason: finish_reason.to_owned(),
        }],
        usage: chat_usage(report),
        system_fingerprint: None,
        session: report.session.clone(),
        turn: report.turn.clone(),
    }
}

fn chat_usage(report: &MessageResult) -> ChatUsage {
    let spent = report.spent;
    ChatUsage {
        prompt_tokens: spent.input,
        completion_tokens: spent.output,
        total_tokens: spent.input + spent.output,
        prompt_tokens_details: CachedTokens { cached_tokens: spent.cached },
        completion_tokens_details: ReasoningTokenCount { reasoning_tokens: 0 },
    }
}

/// The stream of chunks of a completion.
struct ChatChunkStream {
    reply: TurnReplyStream,
    model: String,
    created: u64,
    include_usage: bool,
    stage: ChatStreamStage,
}

enum ChatStreamStage {
    Start,
    Content,
    Usage(Box<MessageResult>),
    DoneMarker,
    Finished,
}

impl ChatChunkStream {
    async fn next_event(&mut self) -> Option<AxumSseEvent> {
        match std::mem::replace(&mut self.stage, ChatStreamStage::Finished) {
            ChatStreamStage::Start => {
                self.stage = ChatStreamStage::Content;
                Some(self.build_chunk(json!([delta_choice(json!({"role": "assistant", "content": ""}), None)]), None))
            }
            ChatStreamStage::Content => Some(self.next_content_chunk().await),
            ChatStreamStage::Usage(report) => {
                self.stage = ChatStreamStage::DoneMarker;
                Some(self.build_chunk(json!([]), Some(chat_usage(&report))))
            }
            ChatStreamStage::DoneMarker => Some(AxumSseEvent::default().data("[DONE]")),
            ChatStreamStage::Finished => None,
        }
    }

    async fn next_content_chunk(&mut self) -> AxumSseEvent {
        match self.reply.next_update().await {
            Ok(Some(ReplyUpdate::TextDelta(text))) => {
                self.stage = ChatStreamStage::Content;
                self.build_chunk(json!([delta_choice(json!({"content": text}), None)]), None)
            }
            Ok(Some(ReplyUpdate::Finished(ended))) => {
                self.reply.mark_delivered(&ended.report.reply);
                let chunk = self.build_chunk(json!([delta_choice(json!({}), Some(ended.finish_reason))]), None);
                self.stage = if self.include_usage {
                    ChatStreamStage::Usage(Box::new(ended.report))
                } else {
                    ChatStreamStage::DoneMarker
                };
                chunk
            }
            Ok(None) => AxumSseEvent::default().data("[DONE]"),
            Err(problem) => {
                // The stream ends after the error. Our own types can always be serialized.
                AxumSseEvent::default().data(serde_json::to_string(&to_openai_error(&problem)).unwrap_or_default())
            }
        }
    }

    fn build_chunk(&self, choices: Value, usage: Option<ChatUsage>) -> AxumSseEvent {
        let mut chunk = json!({
            "id": chat_completion_id(&self.reply.session_name(), &self.reply.message.to_string()),
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
