//! What a request holds, read with words that tell what is wrong: its session, its body, its parameters.

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

/// Whoever asks, put there by the guard.
impl FromRequestParts<AppState> for Caller {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, HttpProblem> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A session that was named in the path, and that is there for whoever asks as far as its name and flow go.
#[derive(Debug, Clone)]
pub struct SessionRef {
    /// What every request shares.
    pub app: AppState,
    /// Who asks.
    pub caller: Caller,
    /// The session's full name.
    pub session: SessionId,
}

impl FromRequestParts<AppState> for SessionRef {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, HttpProblem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let named = RawPathParams::from_request_parts(parts, app).await;
        let named = named.map_err(|_| HttpProblem::bad_request("the path is no valid UTF-8"))?;
        let name = named.iter().find(|(key, _)| *key == "session").map(|(_, name)| name.to_owned());
        Self::resolve(app, caller, &name.unwrap_or_default()).await
    }
}

impl SessionRef {
    /// A session by the name that the caller gives it.
    ///
    /// # Errors
    /// It is not there for them.
    pub async fn resolve(app: &AppState, caller: Caller, name: &str) -> Result<Self, HttpProblem> {
        // A name that no session can have is a session that is not there.
        let none = || HttpProblem::from_engine_error(&Error::NoSuchSession(name.into()), &Caller::default());
        let session = caller.full_session_id(name).map_err(|_| none())?;
        let held = Self { app: app.clone(), caller, session };
        if held.caller.allowed_flows.is_some() {
            let flow = held.read_flow_name().await?;
            if !flow.is_some_and(|flow| held.caller.can_use_flow(&flow)) {
                return Err(none());
            }
        }
        Ok(held)
    }

    /// What an error is to whoever asks.
    pub fn to_problem(&self, error: impl std::borrow::Borrow<Error>) -> HttpProblem {
        HttpProblem::from_engine_error(error.borrow(), &self.caller)
    }

    /// What they call it.
    #[must_use]
    pub fn public_name(&self) -> String {
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

/// A body of JSON; one that is empty counts as an object with nothing in it.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, HttpProblem> {
        read_json_body(request, app.options.limits.body_bytes_max).await.map(Self)
    }
}

/// The same where it can hold images.
#[derive(Debug)]
pub struct JsonBodyWithImages<T>(pub T);

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
    serde_json::from_slice(bytes).map_err(|error| HttpProblem::bad_request(format!("the body does not fit: {error}")))
}

/// The whole body, as long as it is not too large and does not take too long.
///
/// # Errors
/// It is, or it does.
pub async fn read_body_bytes(request: Request, bytes_max: usize) -> Result<axum::body::Bytes, HttpProblem> {
    let too_large =
        || HttpProblem::new("body-too-large", format!("the body has more than {bytes_max} bytes; send less"));
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > bytes_max) {
        return Err(too_large());
    }
    let limit = std::time::Duration::from_millis(BODY_MS_MAX);
    match tokio::time::timeout(limit, axum::body::to_bytes(request.into_body(), bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit_error(&error) => Err(too_large()),
        Ok(Err(_)) => Err(HttpProblem::bad_request("the body broke off")),
        Err(_) => Err(HttpProblem::new("too-slow", "the body took too long to arrive")),
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

/// Parameters after the question mark.
#[derive(Debug)]
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for QueryParams<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, HttpProblem> {
        let Query(params) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|error| HttpProblem::bad_request(format!("the parameters do not fit: {}", error.body_text())))?;
        Ok(Self(params))
    }
}

/// A number of some kind from a path: `c3`, or `3`.
///
/// # Errors
/// It is none.
pub fn parse_numbered_id<T: std::str::FromStr<Err = String>>(given: &str) -> Result<T, HttpProblem> {
    given.parse().map_err(HttpProblem::bad_request)
}

/// What the client wants to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFormat {
    /// JSON, or whatever there is.
    Json,
    /// A stream of events.
    EventStream,
    /// Plain text.
    Text,
}

impl FromRequestParts<AppState> for ResponseFormat {
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
        Err(HttpProblem::new("not-acceptable", "there is JSON here, and a stream for `Accept: text/event-stream`"))
    }
}
