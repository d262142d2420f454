//! Serves the responses API. A response id contains the session and the message, so every response can be continued, even
//! after a restart.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use segue_core::ids::MessageId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat_completions::{CachedTokens, ReasoningTokenCount, session_in_metadata, set_session_header};
use super::conversation::ClientConversation;
use super::reply_stream::{ReplyUpdate, TurnReplyStream};
use super::response_stream::ResponsesEndpointStream;
use super::session_lookup::{ResolvedClientRequest, StoredMessageRefs, content_matches, resolve_request};
use super::{OpenAiJson, OpenAiRejection, SessionRequestHeaders, flow_for_model};
use crate::api::messages::{MessageResult, build_message_result};
use crate::api::session_view::with_session_history;
use crate::api::transfer::branch_session;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::RequestedSession;
use crate::problem::HttpProblem;

const RESPONSE_ID_PREFIX: &str = "resp_";
const MESSAGE_NUMBER_MARK: &str = "_m";

/// A request for a response.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CreateResponseRequest {
    /// The name of the flow.
    pub model: String,
    /// A text, or a list of messages.
    #[schema(value_type = Value)]
    pub input: Value,
    /// Instructions that are sent with the first message of a session.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The response to continue.
    #[serde(default)]
    pub previous_response_id: Option<String>,
    /// Whether the response is a stream of events.
    #[serde(default)]
    pub stream: Option<bool>,
    /// `session` names the session.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// Not supported; must be empty.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// Not supported; must not be `true`.
    #[serde(default)]
    pub background: Option<bool>,
}

/// A response in OpenAI's format.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OpenAiCompatResponse {
    /// Use it as `previous_response_id` to continue the conversation.
    pub id: String,
    /// Always `response`.
    pub object: String,
    /// In seconds since 1970.
    pub created_at: u64,
    /// `in_progress`, `completed` or `incomplete`.
    pub status: String,
    /// Always `null`.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub incomplete_details: Option<Value>,
    /// Always `null`.
    pub instructions: Option<String>,
    /// The name of the flow.
    pub model: String,
    /// The reply as one message item.
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
    /// Always `false`.
    pub parallel_tool_calls: bool,
    pub previous_response_id: Option<String>,
    /// Always `auto`.
    pub tool_choice: String,
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    /// Always `null`.
    pub temperature: Option<f64>,
    /// Always `null`.
    pub top_p: Option<f64>,
    /// Always plain text.
    #[schema(value_type = Object)]
    pub text: Value,
    /// Always `true`; every turn is recorded.
    pub store: bool,
    pub usage: Option<ResponseUsage>,
    /// The session, turn and message.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

/// The token usage of the whole turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResponseUsage {
    pub input_tokens: u64,
    #[schema(value_type = CachedTokens)]
    pub input_tokens_details: Value,
    pub output_tokens: u64,
    #[schema(value_type = ReasoningTokenCount)]
    pub output_tokens_details: Value,
    pub total_tokens: u64,
}

/// Create a response
///
/// With `"stream": true` the response is a stream of events.
#[utoipa::path(post, path = "/v1/responses", tag = "openai",
    params(("segue-session" = Option<String>, Header, description = "The session's name.")),
    request_body = CreateResponseRequest,
    responses((status = 200, content((OpenAiCompatResponse = "application/json"), (String = "text/event-stream"))), (status = 502, body = super::OpenAiCompatError, description = "The turn produced no reply.")))]
pub(crate) async fn create_response(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    OpenAiJson(request): OpenAiJson<CreateResponseRequest>,
) -> Result<Response, OpenAiRejection> {
    let flow = flow_for_model(&app, &caller, &request.model)?;
    check_response_request(&request)?;
    let mut hints = SessionRequestHeaders::from_headers(&headers)?;
    hints.session_name = hints.session_name.or_else(|| session_in_metadata(request.metadata.as_ref()));
    let messages = parse_input_messages(&request.input)?;
    let history = ClientConversation::parse_off_worker(messages, request.instructions).await?;
    let resolved = match &request.previous_response_id {
        Some(previous) => continue_from_response(&app, &caller, previous, &history, &hints).await?,
        None => resolve_request(&app, &caller, &flow, &history, &hints).await?,
    };
    let is_stream = request.stream == Some(true);
    let mut reply = TurnReplyStream::start(resolved, is_stream).await?;
    let session = reply.session_name();
    let template = ResponseMetadata {
        id: format_response_id(&session, reply.message),
        model: request.model,
        created_at: app.engine.now().0 / 1_000,
        previous_response_id: request.previous_response_id,
    };
    if is_stream {
        let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
        let mut response =
            ResponsesEndpointStream::new(reply, template).into_sse_response(permit, app.metrics.track_open_stream());
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    while let Some(update) = reply.next_update().await? {
        let ReplyUpdate::Finished(ended) = update else { continue };
        reply.mark_delivered(&ended.report.reply);
        let mut response = Json(template.completed(&ended.report, ended.finish_reason)).into_response();
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    Err(HttpProblem::new("internal", "the turn ended without a reply").into())
}

/// Get a response
#[utoipa::path(get, path = "/v1/responses/{response}", tag = "openai", params(("response" = String, Path, description = "The id of the response.")),
    responses((status = 200, body = OpenAiCompatResponse)))]
pub(crate) async fn get_response(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<OpenAiCompatResponse>, OpenAiRejection> {
    let (session_ref, message) = find_response(&app, &caller, &id).await?;
    let found = with_session_history(&session_ref, None, |history| {
        let entry = history.messages.get(&message)?;
        let flow = match history.first_event.as_ref().map(|first| &first.event) {
            Some(segue_core::event::Event::SessionOpened(opened)) => opened.flow.to_string(),
            _ => String::new(),
        };
        let ended = entry.turn.and_then(|turn| history.turns.get(&turn)).is_some_and(|turn| turn.ended.is_some());
        Some((entry.position.at.0 / 1_000, flow, ended))
    });
    let (created_at, model, ended) = found.await?.ok_or_else(|| no_such_response(&id))?;
    let template = ResponseMetadata {
        id: format_response_id(&session_ref.public_name(), message),
        model,
        created_at,
        previous_response_id: None,
    };
    if !ended {
        return Ok(Json(template.in_progress()));
    }
    let report = build_message_result(&session_ref, message, None).await?;
    Ok(Json(template.completed(&report, "stop")))
}

fn check_response_request(request: &CreateResponseRequest) -> Result<(), HttpProblem> {
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(
            HttpProblem::bad_request("a flow uses its own tools; omit `tools`").with_extension("field", "tools")
        );
    }
    if request.background == Some(true) {
        return Err(HttpProblem::bad_request("background responses are not supported; omit `background`")
            .with_extension("field", "background"));
    }
    Ok(())
}

fn parse_input_messages(input: &Value) -> Result<Vec<Value>, HttpProblem> {
    let invalid = |detail: String| Err(HttpProblem::bad_request(detail).with_extension("field", "input"));
    match input {
        Value::String(text) => Ok(vec![json!({ "role": "user", "content": text })]),
        Value::Array(items) => {
            for item in items {
                match item["type"].as_str() {
                    None | Some("message" | "reasoning") => {}
                    Some(kind) => {
                        return invalid(format!("input of the type `{kind}` is not supported; send messages"));
                    }
                }
            }
            Ok(items.clone())
        }
        _ => invalid("`input` must be a text or a list of messages".to_owned()),
    }
}

/// Resolves a request that continues a response: in the same session if the response is its last one, otherwise in a fork.
async fn continue_from_response(
    app: &AppState,
    caller: &Caller,
    previous: &str,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<ResolvedClientRequest, HttpProblem> {
    let (session_ref, message) = find_response(app, caller, previous).await?;
    let found = with_session_history(&session_ref, None, |history| {
        let turn = history.messages.get(&message).and_then(|entry| entry.turn)?;
        let ended = history.turns.get(&turn).and_then(|turn| turn.ended)?;
        let later = history
            .messages
            .range(MessageId(message.0 + 1)..)
            .map(|(_, entry)| (entry.message, StoredMessageRefs::from_messages(&[entry])));
        Some((ended.seq, later.collect::<Vec<_>>()))
    });
    let none = || {
        let detail = format!("there is no finished response `{previous}`");
        HttpProblem::not_found(detail).with_extension("field", "previous_response_id")
    };
    let (ended, later) = found.await?.ok_or_else(none)?;
    let content = conversation.new_message();
    let resolved = |session_ref, existing_message| ResolvedClientRequest {
        session_ref,
        content: content.clone(),
        idempotency_key: hints.idempotency_key.clone(),
        existing_message,
        prior_fingerprint: None,
    };
    if later.is_empty() {
        return Ok(resolved(session_ref, None));
    }
    if let [(only, stored)] = later.as_slice()
        && !app.conversation_cache.was_delivered(&session_ref.session, *only)
        && content_matches(&session_ref, stored, content).await?
    {
        // The request is repeated, and its first response was not delivered.
        return Ok(resolved(session_ref, Some(*only)));
    }
    Ok(resolved(branch_session(&session_ref, Some(ended), None).await?, None))
}

async fn find_response(
    app: &AppState,
    caller: &Caller,
    id: &str,
) -> Result<(RequestedSession, MessageId), HttpProblem> {
    let parts = id.strip_prefix(RESPONSE_ID_PREFIX).and_then(|rest| rest.rsplit_once(MESSAGE_NUMBER_MARK));
    let (session, message) = parts.ok_or_else(|| no_such_response(id))?;
    let message = MessageId(message.parse().map_err(|_| no_such_response(id))?);
    let session_ref =
        RequestedSession::resolve(app, caller.clone(), session).await.map_err(|_| no_such_response(id))?;
    let exists = with_session_history(&session_ref, None, |history| history.messages.contains_key(&message)).await;
    match exists {
        Ok(true) => Ok((session_ref, message)),
        Ok(false) => Err(no_such_response(id)),
        Err(problem) if problem.code == "no-such-session" => Err(no_such_response(id)),
        Err(problem) => Err(problem),
    }
}

fn no_such_response(id: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no response `{id}`"))
}

fn format_response_id(session: &str, message: MessageId) -> String {
    format!("{RESPONSE_ID_PREFIX}{session}{MESSAGE_NUMBER_MARK}{}", message.0)
}

/// The fields of a response that are known before the reply.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMetadata {
    pub id: String,
    /// The name of the flow.
    pub model: String,
    /// In seconds since 1970.
    pub created_at: u64,
    pub previous_response_id: Option<String>,
}

impl ResponseMetadata {
    /// Builds the response while the turn is running.
    #[must_use]
    pub(crate) fn in_progress(&self) -> OpenAiCompatResponse {
        OpenAiCompatResponse {
            id: self.id.clone(),
            object: "response".to_owned(),
            created_at: self.created_at,
            status: "in_progress".to_owned(),
            error: None,
            incomplete_details: None,
            instructions: None,
            model: self.model.clone(),
            output: Vec::new(),
            parallel_tool_calls: false,
            previous_response_id: self.previous_response_id.clone(),
            tool_choice: "auto".to_owned(),
            tools: Vec::new(),
            temperature: None,
            top_p: None,
            text: json!({ "format": { "type": "text" } }),
            store: true,
            usage: None,
            metadata: json!({}),
        }
    }

    /// Builds the response after the turn has ended.
    #[must_use]
    pub(crate) fn completed(&self, report: &MessageResult, finish_reason: &str) -> OpenAiCompatResponse {
        let spent = report.spent;
        let is_whole = finish_reason == "stop";
        OpenAiCompatResponse {
            status: if is_whole { "completed" } else { "incomplete" }.to_owned(),
            incomplete_details: (!is_whole).then(
                || json!({ "reason": if finish_reason == "length" { "max_output_tokens" } else { "content_filter" } }),
            ),
            output: vec![self.output_item(Some(&report.reply))],
            usage: Some(ResponseUsage {
                input_tokens: spent.input,
                input_tokens_details: json!({ "cached_tokens": spent.cached }),
                output_tokens: spent.output,
                output_tokens_details: json!({ "reasoning_tokens": 0 }),
                total_tokens: spent.input + spent.output,
            }),
            metadata: json!({ "session": report.session, "turn": report.turn, "message": report.message }),
            ..self.in_progress()
        }
    }

    /// Builds the message item of the reply; without content while the turn is running.
    #[must_use]
    pub(crate) fn output_item(&self, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.map(output_text_part).into_iter().collect();
        json!({
            "type": "message",
            "id": self.item_id(),
            "status": if text.is_some() { "completed" } else { "in_progress" },
            "role": "assistant",
            "content": content,
        })
    }

    /// Returns the id of the message item.
    #[must_use]
    pub(crate) fn item_id(&self) -> String {
        self.id.replacen(RESPONSE_ID_PREFIX, "msg_", 1)
    }
}

/// Builds a text part of a message item.
#[must_use]
pub(crate) fn output_text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}
