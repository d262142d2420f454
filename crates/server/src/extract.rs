//! Extractors for sessions, bodies and parameters, with error messages that name the fault.

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use segue_core::event::Event;
use segue_core::ids::{FlowName, Seq, SessionId};
use segue_engine::Error;
use serde::de::DeserializeOwned;

use crate::app::AppState;
use crate::caller::Caller;
use crate::limits::BODY_MS_MAX;
use crate::problem::HttpProblem;

/// The guard has put the caller into the request's extensions.
impl FromRequestParts<AppState> for Caller {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, HttpProblem> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A session named in the path. Its name and flow are visible to the caller; whether it exists is checked when it is read.
#[derive(Debug, Clone)]
pub(crate) struct CallerSessionRef {
    pub app: AppState,
    pub caller: Caller,
    /// The full name, including the namespace.
    pub session: SessionId,
}

impl FromRequestParts<AppState> for CallerSessionRef {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, HttpProblem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|_| HttpProblem::bad_request("the path is not valid UTF-8"))?;
        let name = params.iter().find(|(key, _)| *key == "session").map(|(_, name)| name.to_owned());
        Self::resolve(app, caller, &name.unwrap_or_default()).await
    }
}

impl CallerSessionRef {
    /// Resolves the name that the caller gave.
    ///
    /// # Errors
    /// The caller may not see such a session.
    pub(crate) async fn resolve(app: &AppState, caller: Caller, name: &str) -> Result<Self, HttpProblem> {
        // An invalid name is reported like a session that does not exist.
        let not_found = || HttpProblem::from_engine_error(&Error::NoSuchSession(name.into()), &Caller::default());
        let session = caller.full_session_id(name).map_err(|_| not_found())?;
        let session_ref = Self { app: app.clone(), caller, session };
        if session_ref.caller.allowed_flows.is_some() {
            let flow = session_ref.read_flow_name().await?;
            if !flow.is_some_and(|flow| session_ref.caller.can_use_flow(&flow)) {
                return Err(not_found());
            }
        }
        Ok(session_ref)
    }

    /// Converts an engine error for this caller.
    pub(crate) fn to_problem(&self, error: impl std::borrow::Borrow<Error>) -> HttpProblem {
        HttpProblem::from_engine_error(error.borrow(), &self.caller)
    }

    /// Returns the name by which the caller knows the session.
    #[must_use]
    pub(crate) fn public_name(&self) -> String {
        self.caller.public_session_name(&self.session)
    }

    async fn read_flow_name(&self) -> Result<Option<FlowName>, HttpProblem> {
        let first =
            self.app.engine.read_events(&self.session, Seq(0), 1).await.map_err(|error| self.to_problem(error))?;
        Ok(first.first().and_then(|recorded| match &recorded.event {
            Event::SessionOpened(opened) => Some(opened.flow.clone()),
            _ => None,
        }))
    }
}

/// A JSON body. An empty body is read as an empty object.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, HttpProblem> {
        read_json_body(request, app.options.limits.body_bytes_max).await.map(Self)
    }
}

/// A JSON body that may contain images, and may therefore be larger.
#[derive(Debug)]
pub(crate) struct JsonBodyWithImages<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBodyWithImages<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, HttpProblem> {
        read_json_body(request, app.options.limits.image_body_bytes_max).await.map(Self)
    }
}

async fn read_json_body<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<T, HttpProblem> {
    let is_json = has_json_content_type(request.headers());
    let bytes = read_body_bytes(request, bytes_max).await?;
    if bytes.is_empty() {
        return parse_json_body(b"{}");
    }
    if !is_json {
        return Err(HttpProblem::new("not-json", "the body must be JSON; send `Content-Type: application/json`"));
    }
    parse_json_body(&bytes)
}

fn parse_json_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpProblem> {
    serde_json::from_slice(bytes).map_err(|error| HttpProblem::bad_request(format!("invalid body: {error}")))
}

/// Reads the whole body.
///
/// # Errors
/// The body is too large, incomplete, or takes too long to arrive.
pub(crate) async fn read_body_bytes(request: Request, bytes_max: usize) -> Result<axum::body::Bytes, HttpProblem> {
    let too_large = || HttpProblem::new("body-too-large", format!("the body is larger than {bytes_max} bytes"));
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > bytes_max) {
        return Err(too_large());
    }
    let limit = std::time::Duration::from_millis(BODY_MS_MAX);
    match tokio::time::timeout(limit, axum::body::to_bytes(request.into_body(), bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit_error(&error) => Err(too_large()),
        Ok(Err(_)) => Err(HttpProblem::bad_request("the body is incomplete")),
        Err(_) => Err(HttpProblem::new("body-timeout", "the body took too long to arrive")),
    }
}

fn is_length_limit_error(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit") {
            return true;
        }
        source = error.source();
    }
    false
}

fn has_json_content_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// Query parameters.
#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for QueryParams<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, HttpProblem> {
        let Query(params) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|error| HttpProblem::bad_request(format!("invalid parameters: {}", error.body_text())))?;
        Ok(Self(params))
    }
}

/// Parses an id such as `c3`, or its bare number.
///
/// # Errors
/// The text is not such an id.
pub(crate) fn parse_numbered_id<T: std::str::FromStr<Err = String>>(given: &str) -> Result<T, HttpProblem> {
    given.parse().map_err(HttpProblem::bad_request)
}

/// The response format that the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NegotiatedResponseFormat {
    /// JSON, or the route's only format.
    Json,
    /// Server-sent events.
    EventStream,
    Text,
}

impl FromRequestParts<AppState> for NegotiatedResponseFormat {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, HttpProblem> {
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
        let kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
        for kind in kinds {
            match kind {
                "text/event-stream" => return Ok(Self::EventStream),
                "text/plain" => return Ok(Self::Text),
                "application/json" | "application/*" | "*/*" | "" => return Ok(Self::Json),
                _ => {}
            }
        }
        Err(HttpProblem::new("not-acceptable", "this route returns JSON, or a stream for `Accept: text/event-stream`"))
    }
}
