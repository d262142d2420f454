//! Chat completions.

use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::find::find;
use super::history::History;
use super::speaking::{Heard, Speaking};
use super::{Body, Refused, SESSION_HEADER, Told, failure, flow};
use crate::api::messages::MessageReport;
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

/// A conversation to go on with.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatRequest {
    /// The flow.
    pub model: String,
    /// The whole conversation; what the user said last is new.
    #[schema(value_type = Vec<ChatMessage>, min_items = 1)]
    pub messages: Vec<Value>,
    /// Whether the answer comes word by word.
    #[serde(default)]
    pub stream: Option<bool>,
    /// How.
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// `session` names the session.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// How many answers; only one can be given.
    #[serde(default)]
    pub n: Option<u32>,
    /// Refused if there are any.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
}

/// A message of a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `developer`, `user` or `assistant`.
    pub role: String,
    /// A text, or a list of parts of the types `text` and `image_url`, the latter as data URLs.
    #[schema(value_type = Value)]
    pub content: Value,
}

/// How an answer comes word by word.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Whether a last chunk tells the tokens.
    #[serde(default)]
    pub include_usage: Option<bool>,
}

/// An answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// Names it.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The flow.
    pub model: String,
    /// One.
    pub choices: Vec<ChatChoice>,
    /// Tokens.
    pub usage: ChatUsage,
    /// Nothing.
    pub system_fingerprint: Option<String>,
    /// The session.
    pub session: String,
    /// Its turn.
    pub turn: String,
}

/// The one answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    /// 0.
    pub index: u32,
    /// What was said.
    pub message: ChatReply,
    /// Nothing.
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<Value>,
    /// `stop`, `length` or `content_filter`.
    pub finish_reason: String,
}

/// What was said.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatReply {
    /// `assistant`.
    pub role: String,
    /// The words.
    pub content: String,
    /// Nothing.
    pub refusal: Option<String>,
}

/// Tokens of the whole turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatUsage {
    /// Sent.
    pub prompt_tokens: u64,
    /// Received.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Of those sent.
    pub prompt_tokens_details: CachedTokens,
    /// Of those received.
    pub completion_tokens_details: ReasoningTokens,
}

/// Tokens that were cached.
#[derive(Debug, Serialize, ToSchema)]
pub struct CachedTokens {
    /// How many.
    pub cached_tokens: u64,
}

/// Tokens that were only thought.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReasoningTokens {
    /// How many, where that is told.
    pub reasoning_tokens: u64,
}

/// Go on with a conversation
///
/// With `"stream": true` the answer is a stream of chunks.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai",
    params(("segue-session" = Option<String>, Header, description = "The session's name.")),
    request_body = ChatRequest,
    responses((status = 200, content((ChatCompletion = "application/json"), (String = "text/event-stream"))), (status = 502, body = super::Failure, description = "The turn brought no answer.")))]
pub async fn complete(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Refused> {
    let flow = flow(&app, &caller, &request.model)?;
    check(&request)?;
    let mut told = Told::of(&headers)?;
    told.session = told.session.or_else(|| named_in(request.metadata.as_ref()));
    let history = History::read(&request.messages, None)?;
    let landing = find(&app, &caller, &flow, &history, &told).await?;
    let created = app.engine.now().0 / 1_000;
    let is_stream = request.stream == Some(true);
    let mut speaking = Speaking::begin(landing, is_stream).await?;
    let session = speaking.session();
    if is_stream {
        let usage = request.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        let permit = app.pace.stream(&caller)?;
        let chunks = Chunks { speaking, model: request.model, created, usage, stage: Stage::Begin };
        let stream = stream::unfold((chunks, permit, app.metrics.stream()), |(mut chunks, permit, open)| async move {
            let sent = chunks.next().await?;
            Some((Ok::<_, Infallible>(sent), (chunks, permit, open)))
        });
        let mut response = Sse::new(stream).keep_alive(KeepAlive::new()).into_response();
        name_session(&mut response, &session);
        return Ok(response);
    }
    while let Some(heard) = speaking.next().await? {
        let Heard::Ended(ended) = heard else { continue };
        speaking.heard(&ended.report.reply);
        let answer = completion(&ended.report, ended.finish, request.model, created);
        let mut response = Json(answer).into_response();
        name_session(&mut response, &session);
        return Ok(response);
    }
    Err(Problem::new("internal", "the turn ended without a word").into())
}

fn check(request: &ChatRequest) -> Result<(), Problem> {
    if request.n.is_some_and(|n| n != 1) {
        return Err(Problem::bad_request("only one answer can be given; leave `n` out").with("field", "n"));
    }
    if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(Problem::bad_request("a flow brings its own tools; leave `tools` out").with("field", "tools"));
    }
    Ok(())
}

/// The session that metadata names.
pub fn named_in(metadata: Option<&Value>) -> Option<String> {
    let name = metadata?.get("session")?.as_str()?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Names the session in an answer's headers.
pub fn name_session(response: &mut Response, session: &str) {
    if let Ok(value) = HeaderValue::from_str(session) {
        response.headers_mut().insert(SESSION_HEADER, value);
    }
}

fn id(session: &str, message: &str) -> String {
    format!("chatcmpl-{session}-{message}")
}

fn completion(report: &MessageReport, finish: &str, model: String, created: u64) -> ChatCompletion {
    ChatCompletion {
        id: id(&report.session, &report.message),
        object: "chat.completion".to_owned(),
        created,
        model,
        choices: vec![ChatChoice {
            index: 0,
            message: ChatReply { role: "assistant".to_owned(), content: report.reply.clone(), refusal: None },
            logprobs: None,
            finish_reason: finish.to_owned(),
        }],
        usage: usage(report),
        system_fingerprint: None,
        session: report.session.clone(),
        turn: report.turn.clone(),
    }
}

fn usage(report: &MessageReport) -> ChatUsage {
    let spent = report.spent;
    ChatUsage {
        prompt_tokens: spent.input,
        completion_tokens: spent.output,
        total_tokens: spent.input + spent.output,
        prompt_tokens_details: CachedTokens { cached_tokens: spent.cached },
        completion_tokens_details: ReasoningTokens { reasoning_tokens: 0 },
    }
}

/// An answer in chunks.
struct Chunks {
    speaking: Speaking,
    model: String,
    created: u64,
    usage: bool,
    stage: Stage,
}

enum Stage {
    Begin,
    Speak,
    Usage(Box<MessageReport>),
    Done,
    Over,
}

impl Chunks {
    async fn next(&mut self) -> Option<Sent> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Begin => {
                self.stage = Stage::Speak;
                Some(self.chunk(json!([choice(json!({"role": "assistant", "content": ""}), None)]), None))
            }
            Stage::Speak => Some(self.speak().await),
            Stage::Usage(report) => {
                self.stage = Stage::Done;
                Some(self.chunk(json!([]), Some(usage(&report))))
            }
            Stage::Done => Some(Sent::default().data("[DONE]")),
            Stage::Over => None,
        }
    }

    async fn speak(&mut self) -> Sent {
        match self.speaking.next().await {
            Ok(Some(Heard::Words(words))) => {
                self.stage = Stage::Speak;
                self.chunk(json!([choice(json!({"content": words}), None)]), None)
            }
            Ok(Some(Heard::Ended(ended))) => {
                self.speaking.heard(&ended.report.reply);
                let chunk = self.chunk(json!([choice(json!({}), Some(ended.finish))]), None);
                self.stage = if self.usage { Stage::Usage(Box::new(ended.report)) } else { Stage::Done };
                chunk
            }
            Ok(None) => Sent::default().data("[DONE]"),
            Err(problem) => {
                // After this a client hears no more.
                Sent::default().data(serde_json::to_string(&failure(&problem)).unwrap_or_default())
            }
        }
    }

    fn chunk(&self, choices: Value, usage: Option<ChatUsage>) -> Sent {
        let mut chunk = json!({
            "id": id(&self.speaking.session(), &self.speaking.message.to_string()),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": null,
            "choices": choices,
        });
        if self.usage {
            chunk["usage"] = serde_json::to_value(usage).unwrap_or_default();
        }
        Sent::default().data(chunk.to_string())
    }
}

fn choice(delta: Value, finish: Option<&str>) -> Value {
    json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish })
}
