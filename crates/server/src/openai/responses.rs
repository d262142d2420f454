//! Serves the responses API. A response id contains the session and the message, so every response can be continued, even
//! after a restart.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat_completions::{PromptTokensDetails, ReasoningTokenCount, session_in_metadata, set_session_header};
use super::client_options::{RequestedToolsAndFormat, check_flow_accepts};
use super::conversation::{ClientConversation, ClientHistoryToolCall, ClientMessageContent};
use super::reply_stream::{ReplyToClient, ReplyUpdate, TurnReplyStream, read_client_reply};
use super::response_stream::ResponsesApiStream;
use super::session_lookup::{ResolvedOpenAiRequest, give_results_or_fork, resolve_request};
use super::transcript::{RecordedClientExchange, ReplyKey};
use super::transcript_match::input_matches;
use super::{OpenAiJsonBody, OpenAiRejection, OpenAiSessionHeaders, flow_for_model};
use crate::api::session_view::with_session_history;
use crate::api::transfer::create_fork;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::CallerSessionRef;
use crate::problem::HttpProblem;

const RESPONSE_ID_PREFIX: &str = "resp_";

/// A request for a response.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResponsesApiRequest {
    /// The name of the flow.
    pub model: String,
    /// A text, or a list of messages.
    #[schema(value_type = Value)]
    pub input: Value,
    /// Instructions for the session: the value of the flow's setting `instruction`; in a flow without it, the start of the
    /// first message.
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
    /// `format` is `text`, `json_object` or `json_schema`; only in flows that accept it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub text: Option<Value>,
    /// Not supported; must not be `true`.
    #[serde(default)]
    pub background: Option<bool>,
}

/// A response in OpenAI's format.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResponsesApiResponse {
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
    /// The reply as a message item, and the calls of the client's tools.
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
    /// Always `true`.
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
    pub usage: Option<ResponsesApiUsage>,
    /// The session, turn and message.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

/// The token usage of the reply.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ResponsesApiUsage {
    pub input_tokens: u64,
    #[schema(value_type = PromptTokensDetails)]
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
    request_body = ResponsesApiRequest,
    responses((status = 200, content((ResponsesApiResponse = "application/json"), (String = "text/event-stream"))), (status = 502, body = super::OpenAiCompatError, description = "The turn produced no reply.")))]
pub(crate) async fn create_response(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    OpenAiJsonBody(request): OpenAiJsonBody<ResponsesApiRequest>,
) -> Result<Response, OpenAiRejection> {
    let flow = flow_for_model(&app, &caller, &request.model)?;
    check_response_request(&request)?;
    let mut hints = OpenAiSessionHeaders::from_headers(&headers)?;
    hints.session_name = hints.session_name.or_else(|| session_in_metadata(request.metadata.as_ref()));
    let options = RequestedToolsAndFormat {
        tools: request.tools,
        tool_choice: request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        format: request.text.and_then(|text| text.get("format").cloned()),
        format_field: "text.format",
    };
    let options = options.parse()?;
    check_flow_accepts(&app, &flow, &options, "text.format")?;
    let messages = parse_input_messages(&request.input)?;
    let history = ClientConversation::parse_off_worker(messages, request.instructions).await?;
    let resolved = match &request.previous_response_id {
        Some(previous) => continue_from_response(&app, &caller, previous, &history, &hints).await?,
        None => resolve_request(&app, &caller, &flow, &history, &hints).await?,
    };
    let is_stream = request.stream == Some(true);
    let mut reply = TurnReplyStream::start(resolved, options, is_stream).await?;
    let session = reply.session_name();
    let template = ResponsesApiResponseTemplate {
        id: format_response_id(&session, reply.point),
        model: request.model,
        created_at: app.engine.now().0 / 1_000,
        previous_response_id: request.previous_response_id,
    };
    if is_stream {
        let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
        let mut response =
            ResponsesApiStream::new(reply, template).into_sse_response(permit, app.metrics.track_open_stream());
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    while let Some(update) = reply.next_update().await? {
        let ReplyUpdate::Finished(ended) = update else { continue };
        reply.mark_delivered(&ended.content);
        let mut response = Json(template.build_completed(&ended)).into_response();
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    Err(HttpProblem::new("internal", "the turn ended without a reply").into())
}

/// Get a response
#[utoipa::path(get, path = "/v1/responses/{response}", tag = "openai", params(("response" = String, Path, description = "The id of the response.")),
    responses((status = 200, body = ResponsesApiResponse)))]
pub(crate) async fn get_response(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ResponsesApiResponse>, OpenAiRejection> {
    let (session_ref, point) = find_response(&app, &caller, &id).await?;
    let found = with_session_history(&session_ref, None, |history| {
        let entry = history.messages.get(&point.message)?;
        let flow = match history.first_event.as_ref().map(|first| &first.event) {
            Some(segue_core::event::Event::SessionOpened(opened)) => opened.flow.to_string(),
            _ => String::new(),
        };
        Some((entry.position.at.0 / 1_000, flow))
    });
    let (created_at, model) = found.await?.ok_or_else(|| no_such_response(&id))?;
    let template = ResponsesApiResponseTemplate {
        id: format_response_id(&session_ref.public_name(), point),
        model,
        created_at,
        previous_response_id: None,
    };
    let reply = read_client_reply(&session_ref, point).await?;
    Ok(Json(reply.map_or_else(|| template.build_in_progress(), |reply| template.build_completed(&reply))))
}

fn check_response_request(request: &ResponsesApiRequest) -> Result<(), HttpProblem> {
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
                    None | Some("message" | "reasoning" | "function_call" | "function_call_output") => {}
                    Some(kind) => {
                        return invalid(format!(
                            "input of the type `{kind}` is not supported; send messages, tool calls and results"
                        ));
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
    hints: &OpenAiSessionHeaders,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let (session_ref, point) = find_response(app, caller, previous).await?;
    let found = with_session_history(&session_ref, None, |history| {
        let exchanges = RecordedClientExchange::list_of_session(history);
        let index = exchanges.iter().position(|exchange| exchange.point == Some(point))?;
        let end = exchanges[index].end_seq?;
        Some((end, !exchanges[index].tool_calls.is_empty(), exchanges[index + 1..].to_vec()))
    });
    let none = || {
        let detail = format!("there is no finished response `{previous}`");
        HttpProblem::not_found(detail).with_extension("field", "previous_response_id")
    };
    let (end, called_tools, later) = found.await?.ok_or_else(none)?;
    let content = conversation.new_message().clone();
    if called_tools != conversation.ends_with_tool_results() {
        let detail = match called_tools {
            true => "the response called tools; send their results",
            false => "the response called no tools, so it needs no results",
        };
        return Err(HttpProblem::bad_request(detail).with_extension("field", "input"));
    }
    if called_tools {
        return give_results_or_fork(session_ref, end, &later, content, hints).await;
    }
    let key = hints.idempotency_key.clone();
    if let [only] = later.as_slice()
        && let Some(point) = only.point
        && !app.conversation_cache.was_delivered(&session_ref.session, point)
        && input_matches(&session_ref, &only.input, &content).await?
    {
        // The request is repeated, and its first response was not delivered.
        return Ok(ResolvedOpenAiRequest::with_message(session_ref, content, key, Some(point.message)));
    }
    let session_ref = if later.is_empty() { session_ref } else { create_fork(&session_ref, Some(end), None).await? };
    Ok(ResolvedOpenAiRequest::with_message(session_ref, content, key, None))
}

async fn find_response(app: &AppState, caller: &Caller, id: &str) -> Result<(CallerSessionRef, ReplyKey), HttpProblem> {
    let parts = id.strip_prefix(RESPONSE_ID_PREFIX).and_then(|rest| rest.rsplit_once('_'));
    let (session, point) = parts.ok_or_else(|| no_such_response(id))?;
    let point: ReplyKey = point.parse().map_err(|()| no_such_response(id))?;
    let session_ref =
        CallerSessionRef::resolve(app, caller.clone(), session).await.map_err(|_| no_such_response(id))?;
    let exists = with_session_history(&session_ref, None, |history| {
        history.messages.contains_key(&point.message)
            && point.first_run.is_none_or(|run| history.tool_runs.contains_key(&run))
    });
    match exists.await {
        Ok(true) => Ok((session_ref, point)),
        Ok(false) => Err(no_such_response(id)),
        Err(problem) if problem.code == "no-such-session" => Err(no_such_response(id)),
        Err(problem) => Err(problem),
    }
}

fn no_such_response(id: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no response `{id}`"))
}

fn format_response_id(session: &str, point: ReplyKey) -> String {
    format!("{RESPONSE_ID_PREFIX}{session}_{point}")
}

/// The fields of a response that are known before the reply.
#[derive(Debug, Clone)]
pub(crate) struct ResponsesApiResponseTemplate {
    pub id: String,
    /// The name of the flow.
    pub model: String,
    /// In seconds since 1970.
    pub created_at: u64,
    pub previous_response_id: Option<String>,
}

impl ResponsesApiResponseTemplate {
    /// Builds the response while the turn is running.
    #[must_use]
    pub(crate) fn build_in_progress(&self) -> ResponsesApiResponse {
        ResponsesApiResponse {
            id: self.id.clone(),
            object: "response".to_owned(),
            created_at: self.created_at,
            status: "in_progress".to_owned(),
            error: None,
            incomplete_details: None,
            instructions: None,
            model: self.model.clone(),
            output: Vec::new(),
            parallel_tool_calls: true,
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

    /// Builds the response after the reply is complete.
    #[must_use]
    pub(crate) fn build_completed(&self, reply: &ReplyToClient) -> ResponsesApiResponse {
        let ClientMessageContent { text, tool_calls, .. } = &reply.content;
        let usage = reply.usage;
        let incomplete_reason = match reply.finish_reason {
            "length" => Some("max_output_tokens"),
            "content_filter" => Some("content_filter"),
            _ => None,
        };
        let message = (tool_calls.is_empty() || !text.is_empty()).then(|| self.build_message_item(Some(text)));
        let calls = tool_calls.iter().map(|call| function_call_item(call, Some(&call.arguments)));
        ResponsesApiResponse {
            status: if incomplete_reason.is_none() { "completed" } else { "incomplete" }.to_owned(),
            incomplete_details: incomplete_reason.map(|reason| json!({ "reason": reason })),
            output: message.into_iter().chain(calls).collect(),
            usage: Some(ResponsesApiUsage {
                input_tokens: usage.input,
                input_tokens_details: json!({ "cached_tokens": usage.cached }),
                output_tokens: usage.output,
                output_tokens_details: json!({ "reasoning_tokens": 0 }),
                total_tokens: usage.input + usage.output,
            }),
            metadata: json!({
                "session": reply.session,
                "turn": reply.turn.to_string(),
                "message": reply.point.message.to_string(),
            }),
            ..self.build_in_progress()
        }
    }

    /// Builds the message item of the reply; without content while the turn is running.
    #[must_use]
    pub(crate) fn build_message_item(&self, text: Option<&str>) -> Value {
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

/// Builds the item of a tool call; without arguments before they were sent.
#[must_use]
pub(crate) fn function_call_item(call: &ClientHistoryToolCall, arguments: Option<&str>) -> Value {
    json!({
        "type": "function_call",
        "id": format!("fc_{}", call.id),
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments.unwrap_or_default(),
        "status": if arguments.is_some() { "completed" } else { "in_progress" },
    })
}

/// Builds a text part of a message item.
#[must_use]
pub(crate) fn output_text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}
