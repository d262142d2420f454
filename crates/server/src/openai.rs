//! The door that every OpenAI client knows: chat completions and responses. The model's name picks a flow. Such clients send the whole
//! conversation each time; this module finds the session it belongs to, sends what is new, and says what is answered in their form.
//!
//! It decides nothing about the conversation itself: what a flow decides, such as temperature, is not the client's to say.

mod chat_completions;
mod conversation;
mod conversation_cache;
mod models;
mod reply_stream;
mod response_stream;
mod responses;
mod session_lookup;

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use segue_core::ids::FlowName;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

pub use conversation_cache::ConversationCache;

/// Names the session of a request or of an answer.
pub const SESSION_HEADER: HeaderName = HeaderName::from_static("segue-session");
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";
const SHOULD_RETRY_HEADER: &str = "x-should-retry";

/// Every route of the door.
pub fn openai_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(models::list_models))
        .routes(routes!(models::get_model))
        .routes(routes!(chat_completions::create_chat_completion))
        .routes(routes!(responses::create_response))
        .routes(routes!(responses::get_response))
}

/// Whether a path is the door's, where errors have another form.
#[must_use]
pub fn is_openai_path(path: &str) -> bool {
    let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    under("/v1/chat/completions") || under("/v1/models") || under("/v1/responses")
}

/// An error in the door's form.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiError)]
pub struct OpenAiError {
    /// What went wrong.
    pub error: OpenAiErrorBody,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiErrorBody)]
pub struct OpenAiErrorBody {
    /// In words.
    pub message: String,
    /// The sort of error.
    #[schema(rename = "type")]
    pub r#type: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// Our code.
    pub code: Option<String>,
}

/// A problem in the door's form.
#[must_use]
pub fn to_openai_error(problem: &HttpProblem) -> OpenAiError {
    let kind = match problem.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    let param = problem.extensions.get("field").and_then(|field| field.as_str()).map(ToOwned::to_owned);
    let error = OpenAiErrorBody {
        message: problem.detail.clone(),
        r#type: kind.to_owned(),
        param,
        code: Some(problem.code.to_owned()),
    };
    OpenAiError { error }
}

/// A problem as the door's answer.
#[must_use]
pub fn openai_error_response(problem: HttpProblem) -> Response {
    let body = to_openai_error(&problem);
    let should_retry = problem.extensions.get("retry").and_then(serde_json::Value::as_bool);
    let mut response = problem.clone().into_response();
    *response.body_mut() = Json(body).into_response().into_body();
    response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(should) = should_retry {
        let should = if should { "true" } else { "false" };
        response.headers_mut().insert(SHOULD_RETRY_HEADER, HeaderValue::from_static(should));
    }
    response
}

/// A problem of the door's own handlers.
#[derive(Debug)]
pub struct OpenAiRejection(HttpProblem);

impl From<HttpProblem> for OpenAiRejection {
    fn from(problem: HttpProblem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for OpenAiRejection {
    fn into_response(self) -> Response {
        openai_error_response(self.0)
    }
}

/// The flow that a model's name picks.
fn flow_for_model(app: &AppState, caller: &Caller, model: &str) -> Result<FlowName, HttpProblem> {
    let name = FlowName::from(model);
    let is_known = app.engine.flows().any(|rules| rules.spec().name == name);
    if is_known && caller.can_use_flow(&name) {
        return Ok(name);
    }
    let error = segue_engine::Error::NoSuchFlow { name, known: String::new() };
    let mut problem = HttpProblem::from_engine_error(&error, caller).with_extension("field", "model");
    problem.detail = format!("there is no model `{model}` here; `/v1/models` lists those there are");
    Err(problem)
}

/// What the headers of a request say about which message it is.
#[derive(Debug, Clone, Default)]
struct SessionHints {
    session_name: Option<String>,
    idempotency_key: Option<segue_core::ids::IdempotencyKey>,
    is_retry: bool,
}

impl SessionHints {
    fn from_headers(headers: &HeaderMap) -> Result<Self, HttpProblem> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let session = text(SESSION_HEADER.as_str()).filter(|name| !name.is_empty()).map(ToOwned::to_owned);
        let is_retry = text(RETRY_COUNT_HEADER).is_some_and(|count| count.parse().is_ok_and(|count: u32| count > 0));
        Ok(Self {
            session_name: session,
            idempotency_key: crate::api::messages::parse_idempotency_header(headers)?,
            is_retry,
        })
    }
}

/// The body of a request, which clients fill with many things we need not know.
struct OpenAiJson<T>(T);

impl<T: serde::de::DeserializeOwned> axum::extract::FromRequest<AppState> for OpenAiJson<T> {
    type Rejection = OpenAiRejection;

    async fn from_request(request: axum::extract::Request, app: &AppState) -> Result<Self, OpenAiRejection> {
        let crate::extract::JsonBodyWithImages(body) =
            crate::extract::JsonBodyWithImages::<T>::from_request(request, app).await?;
        Ok(Self(body))
    }
}
