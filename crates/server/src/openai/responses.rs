//! Responses: the same in the form of OpenAI's newer API. A response is named after the session and the message it answers, so any can be
//! gone on from, also after a restart.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use segue_core::ids::MessageId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::chat_completions::{CachedTokens, ReasoningTokens, session_in_metadata, set_session_header};
use super::conversation::ClientConversation;
use super::reply_stream::{ReplyStream, ReplyUpdate};
use super::response_stream::ResponseEventStream;
use super::session_lookup::{ResolvedRequest, StoredContent, content_matches, resolve_request};
use super::{OpenAiJson, OpenAiRejection, SessionHints, flow_for_model};
use crate::api::messages::{MessageResult, build_message_result};
use crate::api::session_view::with_session_history;
use crate::api::transfer::branch_session;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::SessionRef;
use crate::problem::HttpProblem;

const RESPONSE_ID_PREFIX: &str = "resp_";
const MESSAGE_NUMBER_MARK: &str = "_m";

/// Something to answer.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CreateResponseRequest {
    /// The flow.
    pub model: String,
    /// A text, or the conversation as a list of messages.
    #[schema(value_type = Value)]
    pub input: Value,
    /// Standing instructions, told with the first message of a session.
    #[serde(default)]
    pub instructions: Option<String>,
    /// The response to go on from.
    #[serde(default)]
    pub previous_response_id: Option<String>,
    /// Whether the answer comes word by word.
    #[serde(default)]
    pub stream: Option<bool>,
    /// `session` names the session.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// Refused if there are any.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// Refused if it is true.
    #[serde(default)]
    pub background: Option<bool>,
}

/// A response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OpenAiResponse {
    /// Names it; go on from it with `previous_response_id`.
    pub id: String,
    /// `response`.
    pub object: String,
    /// Seconds since 1970.
    pub created_at: u64,
    /// `in_progress`, `completed` or `incomplete`.
    pub status: String,
    /// Nothing.
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// Why it is incomplete.
    #[schema(value_type = Option<Object>)]
    pub incomplete_details: Option<Value>,
    /// Nothing.
    pub instructions: Option<String>,
    /// The flow.
    pub model: String,
    /// What was said.
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
    /// Of no meaning here.
    pub parallel_tool_calls: bool,
    /// The response it goes on from.
    pub previous_response_id: Option<String>,
    /// Of no meaning here.
    pub tool_choice: String,
    /// None.
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    /// Of no meaning here.
    pub temperature: Option<f64>,
    /// Of no meaning here.
    pub top_p: Option<f64>,
    /// Plain text.
    #[schema(value_type = Object)]
    pub text: Value,
    /// Always: every turn is recorded.
    pub store: bool,
    /// Tokens of the whole turn.
    pub usage: Option<ResponseUsage>,
    /// The session, its turn and its message.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

/// Tokens of the whole turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseUsage {
    /// Sent.
    pub input_tokens: u64,
    /// Of those.
    #[schema(value_type = CachedTokens)]
    pub input_tokens_details: Value,
    /// Received.
    pub output_tokens: u64,
    /// Of those.
    #[schema(value_type = ReasoningTokens)]
    pub output_tokens_details: Value,
    /// Both.
    pub total_tokens: u64,
}

/// Answer something
///
/// With `"stream": true` the answer is a stream of events.
#[utoipa::path(post, path = "/v1/responses", tag = "openai",
    params(("segue-session" = Option<String>, Header, description = "The session's name.")),
    request_body = CreateResponseRequest,
    responses((status = 200, content((OpenAiResponse = "application/json"), (String = "text/event-stream"))), (status = 502, body = super::OpenAiError, description = "The turn brought no answer.")))]
pub async fn create_response(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    OpenAiJson(request): OpenAiJson<CreateResponseRequest>,
) -> Result<Response, OpenAiRejection> {
    let flow = flow_for_model(&app, &caller, &request.model)?;
    check_response_request(&request)?;
    let mut told = SessionHints::from_headers(&headers)?;
    told.session_name = told.session_name.or_else(|| session_in_metadata(request.metadata.as_ref()));
    let history = ClientConversation::parse(&parse_input_messages(&request.input)?, request.instructions.as_deref())?;
    let landing = match &request.previous_response_id {
        Some(previous) => continue_from_response(&app, &caller, previous, &history, &told).await?,
        None => resolve_request(&app, &caller, &flow, &history, &told).await?,
    };
    let is_stream = request.stream == Some(true);
    let mut speaking = ReplyStream::start(landing, is_stream).await?;
    let session = speaking.session_name();
    let blank = ResponseTemplate {
        id: format_response_id(&session, speaking.message),
        model: request.model,
        created_at: app.engine.now().0 / 1_000,
        previous_response_id: request.previous_response_id,
    };
    if is_stream {
        let permit = app.rate_limiter.acquire_stream_permit(&caller)?;
        let mut response =
            ResponseEventStream::new(speaking, blank).into_sse_response(permit, app.metrics.track_open_stream());
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    while let Some(heard) = speaking.next_update().await? {
        let ReplyUpdate::Finished(ended) = heard else { continue };
        speaking.mark_delivered(&ended.report.reply);
        let mut response = Json(blank.completed(&ended.report, ended.finish_reason)).into_response();
        set_session_header(&mut response, &session);
        return Ok(response);
    }
    Err(HttpProblem::new("internal", "the turn ended without a word").into())
}

/// A response once more
#[utoipa::path(get, path = "/v1/responses/{response}", tag = "openai", params(("response" = String, Path, description = "Its id.")),
    responses((status = 200, body = OpenAiResponse)))]
pub async fn get_response(
    State(app): State<AppState>,
    caller: Caller,
    Path(given): Path<String>,
) -> Result<Json<OpenAiResponse>, OpenAiRejection> {
    let (held, message) = find_response(&app, &caller, &given).await?;
    let seen = with_session_history(&held, None, |chronicle| {
        let note = chronicle.messages.get(&message)?;
        let flow = match chronicle.first_event.as_ref().map(|first| &first.event) {
            Some(segue_core::event::Event::SessionOpened(opened)) => opened.flow.to_string(),
            _ => String::new(),
        };
        let ended = note.turn.and_then(|turn| chronicle.turns.get(&turn)).is_some_and(|turn| turn.ended.is_some());
        Some((note.position.at.0 / 1_000, flow, ended))
    });
    let (created_at, model, ended) = seen.await?.ok_or_else(|| no_such_response(&given))?;
    let blank = ResponseTemplate {
        id: format_response_id(&held.public_name(), message),
        model,
        created_at,
        previous_response_id: None,
    };
    if !ended {
        return Ok(Json(blank.in_progress()));
    }
    let report = build_message_result(&held, message, None).await?;
    Ok(Json(blank.completed(&report, "stop")))
}

fn check_response_request(request: &CreateResponseRequest) -> Result<(), HttpProblem> {
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(
            HttpProblem::bad_request("a flow brings its own tools; leave `tools` out").with_extension("field", "tools")
        );
    }
    if request.background == Some(true) {
        return Err(HttpProblem::bad_request("answers are not given in the background; leave `background` out")
            .with_extension("field", "background"));
    }
    Ok(())
}

fn parse_input_messages(input: &Value) -> Result<Vec<Value>, HttpProblem> {
    let bad = |detail: String| Err(HttpProblem::bad_request(detail).with_extension("field", "input"));
    match input {
        Value::String(text) => Ok(vec![json!({ "role": "user", "content": text })]),
        Value::Array(items) => {
            for item in items {
                match item["type"].as_str() {
                    None | Some("message" | "reasoning") => {}
                    Some(kind) => {
                        return bad(format!("input of the type `{kind}` cannot be told to a flow; send messages"));
                    }
                }
            }
            Ok(items.clone())
        }
        _ => bad("`input` must be a text or a list of messages".to_owned()),
    }
}

/// Right after a response: in its session if nothing was said there since, in a branch of it otherwise.
async fn continue_from_response(
    app: &AppState,
    caller: &Caller,
    previous: &str,
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<ResolvedRequest, HttpProblem> {
    let (held, message) = find_response(app, caller, previous).await?;
    let seen = with_session_history(&held, None, |chronicle| {
        let turn = chronicle.messages.get(&message).and_then(|note| note.turn)?;
        let ended = chronicle.turns.get(&turn).and_then(|turn| turn.ended)?;
        let later = chronicle
            .messages
            .range(MessageId(message.0 + 1)..)
            .map(|(_, note)| (note.message, StoredContent::from_messages(&[note])));
        Some((ended.seq, later.collect::<Vec<_>>()))
    });
    let none = || {
        let detail = format!("there is no finished response `{previous}`");
        HttpProblem::not_found(detail).with_extension("field", "previous_response_id")
    };
    let (ended, later) = seen.await?.ok_or_else(none)?;
    let words = conversation.new_message();
    let landing = |held, known| ResolvedRequest {
        session_ref: held,
        content: words.clone(),
        idempotency_key: hints.idempotency_key.clone(),
        existing_message: known,
        prior_fingerprint: None,
    };
    if later.is_empty() {
        return Ok(landing(held, None));
    }
    if let [(only, asking)] = later.as_slice()
        && !app.conversation_cache.was_delivered(&held.session, *only)
        && content_matches(&held, asking, words).await?
    {
        // The same request again, whose answer nobody heard.
        return Ok(landing(held, Some(*only)));
    }
    Ok(landing(branch_session(&held, Some(ended), None).await?, None))
}

async fn find_response(app: &AppState, caller: &Caller, given: &str) -> Result<(SessionRef, MessageId), HttpProblem> {
    let parts = given.strip_prefix(RESPONSE_ID_PREFIX).and_then(|rest| rest.rsplit_once(MESSAGE_NUMBER_MARK));
    let (session, message) = parts.ok_or_else(|| no_such_response(given))?;
    let message = MessageId(message.parse().map_err(|_| no_such_response(given))?);
    let held = SessionRef::resolve(app, caller.clone(), session).await.map_err(|_| no_such_response(given))?;
    let exists = with_session_history(&held, None, |chronicle| chronicle.messages.contains_key(&message)).await;
    match exists {
        Ok(true) => Ok((held, message)),
        Ok(false) => Err(no_such_response(given)),
        Err(problem) if problem.code == "no-such-session" => Err(no_such_response(given)),
        Err(problem) => Err(problem),
    }
}

fn no_such_response(given: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no response `{given}`"))
}

fn format_response_id(session: &str, message: MessageId) -> String {
    format!("{RESPONSE_ID_PREFIX}{session}{MESSAGE_NUMBER_MARK}{}", message.0)
}

/// A response before anything was said.
#[derive(Debug, Clone)]
pub struct ResponseTemplate {
    /// Its id.
    pub id: String,
    /// The flow.
    pub model: String,
    /// Seconds since 1970.
    pub created_at: u64,
    /// The response it goes on from.
    pub previous_response_id: Option<String>,
}

impl ResponseTemplate {
    /// The response while it is answered.
    #[must_use]
    pub fn in_progress(&self) -> OpenAiResponse {
        OpenAiResponse {
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

    /// The response once it was answered.
    #[must_use]
    pub fn completed(&self, report: &MessageResult, finish: &str) -> OpenAiResponse {
        let spent = report.spent;
        let is_whole = finish == "stop";
        OpenAiResponse {
            status: if is_whole { "completed" } else { "incomplete" }.to_owned(),
            incomplete_details: (!is_whole)
                .then(|| json!({ "reason": if finish == "length" { "max_output_tokens" } else { "content_filter" } })),
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

    /// What was said, as an item; without words while it is being said.
    #[must_use]
    pub fn output_item(&self, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.map(output_text_part).into_iter().collect();
        json!({
            "type": "message",
            "id": self.item_id(),
            "status": if text.is_some() { "completed" } else { "in_progress" },
            "role": "assistant",
            "content": content,
        })
    }

    /// The id of that item.
    #[must_use]
    pub fn item_id(&self) -> String {
        self.id.replacen(RESPONSE_ID_PREFIX, "msg_", 1)
    }
}

/// Words as a part of an item.
#[must_use]
pub fn output_text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}
