//! OpenAI-compatible endpoints: chat completions, responses and models. The name of the model selects a flow. OpenAI clients
//! send the whole conversation with every request. This module finds the session that holds the conversation, sends only the
//! new message, and returns the reply in OpenAI's format.
//!
//! The flow decides how models are called, so parameters such as `temperature` are ignored.

mod chat_completions;
mod client_options;
mod conversation;
mod conversation_cache;
mod fingerprint;
#[cfg(test)]
mod fuzz_tests;
mod models;
mod reply_stream;
mod response_stream;
mod responses;
mod session_lookup;
mod transcript;
mod transcript_match;

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

pub(crate) use conversation_cache::OpenAiConversationCache;

/// The header that names the session of a request or response.
pub(crate) const SESSION_HEADER: HeaderName = HeaderName::from_static("segue-session");
const RETRY_COUNT_HEADER: &str = "x-stainless-retry-count";
const SHOULD_RETRY_HEADER: &str = "x-should-retry";

/// Returns all OpenAI-compatible routes.
pub(crate) fn openai_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(models::list_models))
        .routes(routes!(models::get_model))
        .routes(routes!(chat_completions::create_chat_completion))
        .routes(routes!(responses::create_response))
        .routes(routes!(responses::get_response))
}

/// Returns whether a path is OpenAI-compatible; errors have another format there.
#[must_use]
pub(crate) fn is_openai_path(path: &str) -> bool {
    let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    under("/v1/chat/completions") || under("/v1/models") || under("/v1/responses")
}

/// An error in OpenAI's format.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiError)]
pub(crate) struct OpenAiCompatError {
    pub error: OpenAiErrorBody,
}

/// The body of an error in OpenAI's format.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenAiErrorBody)]
pub(crate) struct OpenAiErrorBody {
    pub message: String,
    /// The category of the error.
    #[schema(rename = "type")]
    pub r#type: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// The code of the error in this API.
    pub code: Option<String>,
}

/// Converts a problem to OpenAI's format.
#[must_use]
pub(crate) fn to_openai_error(problem: &HttpProblem) -> OpenAiCompatError {
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
    OpenAiCompatError { error }
}

/// Builds an error response in OpenAI's format.
#[must_use]
pub(crate) fn openai_error_response(problem: HttpProblem) -> Response {
    let body = to_openai_error(&problem);
    let should_retry = problem.extensions.get("should_retry").and_then(serde_json::Value::as_bool);
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

/// A problem that is reported in OpenAI's format.
#[derive(Debug)]
pub(crate) struct OpenAiRejection(HttpProblem);

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

/// Returns the flow that the model's name selects.
fn flow_for_model(app: &AppState, caller: &Caller, model: &str) -> Result<FlowName, HttpProblem> {
    let name = FlowName::from(model);
    let is_known = app.engine.flows().any(|flow| flow.spec().name == name);
    if is_known && caller.can_use_flow(&name) {
        return Ok(name);
    }
    let error = segue_engine::Error::NoSuchFlow { name, known: String::new() };
    let mut problem = HttpProblem::from_engine_error(&error, caller).with_extension("field", "model");
    problem.detail = format!("there is no model `{model}`; `/v1/models` lists all models");
    Err(problem)
}

/// What the headers say about the session and the message of a request.
#[derive(Debug, Clone, Default)]
struct OpenAiSessionHeaders {
    session_name: Option<String>,
    idempotency_key: Option<segue_core::ids::IdempotencyKey>,
    is_retry: bool,
}

impl OpenAiSessionHeaders {
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

/// A JSON body in which unknown fields are ignored.
struct OpenAiJsonBody<T>(T);

impl<T: serde::de::DeserializeOwned> axum::extract::FromRequest<AppState> for OpenAiJsonBody<T> {
    type Rejection = OpenAiRejection;

    async fn from_request(request: axum::extract::Request, app: &AppState) -> Result<Self, OpenAiRejection> {
        let crate::extract::JsonBodyWithImages(body) =
            crate::extract::JsonBodyWithImages::<T>::from_request(request, app).await?;
        Ok(Self(body))
    }
}
