//! What a request holds, read with words that tell what is wrong: its session, its body, its parameters.

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use segue_core::event::Event;
use segue_core::ids::{FlowName, Seq, SessionId};
use segue_engine::Error;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::caller::Caller;
use crate::limits::BODY_MS_MAX;
use crate::problem::Problem;

/// Whoever asks, put there by the guard.
impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A session that was named in the path, and that is there for whoever asks as far as its name and flow go.
#[derive(Debug, Clone)]
pub struct Held {
    /// What every request shares.
    pub app: App,
    /// Who asks.
    pub caller: Caller,
    /// The session's full name.
    pub session: SessionId,
}

impl FromRequestParts<App> for Held {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let named = RawPathParams::from_request_parts(parts, app).await;
        let named = named.map_err(|_| Problem::bad_request("the path is no valid UTF-8"))?;
        let name = named.iter().find(|(key, _)| *key == "session").map(|(_, name)| name.to_owned());
        Self::of(app, caller, &name.unwrap_or_default()).await
    }
}

impl Held {
    /// A session by the name that the caller gives it.
    ///
    /// # Errors
    /// It is not there for them.
    pub async fn of(app: &App, caller: Caller, name: &str) -> Result<Self, Problem> {
        // A name that no session can have is a session that is not there.
        let none = || Problem::of(&Error::NoSuchSession(name.into()), &Caller::default());
        let session = caller.full(name).map_err(|_| none())?;
        let held = Self { app: app.clone(), caller, session };
        if held.caller.flows.is_some() {
            let flow = held.flow().await?;
            if !flow.is_some_and(|flow| held.caller.may_use(&flow)) {
                return Err(none());
            }
        }
        Ok(held)
    }

    /// What an error is to whoever asks.
    pub fn problem(&self, error: impl std::borrow::Borrow<Error>) -> Problem {
        Problem::of(error.borrow(), &self.caller)
    }

    /// What they call it.
    #[must_use]
    pub fn name(&self) -> String {
        self.caller.public(&self.session)
    }

    async fn flow(&self) -> Result<Option<FlowName>, Problem> {
        let first = self.app.engine.events(&self.session, Seq(0), 1).await.map_err(|error| self.problem(error))?;
        Ok(first.first().and_then(|recorded| match &recorded.event {
            Event::SessionOpened(opened) => Some(opened.flow.clone()),
            _ => None,
        }))
    }
}

/// A body of JSON; one that is empty counts as an object with nothing in it.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        json(request, app.options.bounds.body_bytes_max).await.map(Self)
    }
}

/// The same where it can hold images.
#[derive(Debug)]
pub struct Showing<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Showing<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        json(request, app.options.bounds.showing_bytes_max).await.map(Self)
    }
}

async fn json<T: DeserializeOwned>(request: Request, most: usize) -> Result<T, Problem> {
    let is_json = is_json(request.headers());
    let bytes = bytes(request, most).await?;
    if bytes.is_empty() {
        return parse(b"{}");
    }
    if !is_json {
        return Err(Problem::new("not-json", "the body must be JSON; send `Content-Type: application/json`"));
    }
    parse(&bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| Problem::bad_request(format!("the body does not fit: {error}")))
}

/// The whole body, as long as it is not too large and does not take too long.
///
/// # Errors
/// It is, or it does.
pub async fn bytes(request: Request, most: usize) -> Result<axum::body::Bytes, Problem> {
    let too_large = || Problem::new("body-too-large", format!("the body has more than {most} bytes; send less"));
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    let limit = std::time::Duration::from_millis(BODY_MS_MAX);
    match tokio::time::timeout(limit, axum::body::to_bytes(request.into_body(), most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Problem::bad_request("the body broke off")),
        Err(_) => Err(Problem::new("too-slow", "the body took too long to arrive")),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit") {
            return true;
        }
        source = error.source();
    }
    false
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// Parameters after the question mark.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Query(params) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|error| Problem::bad_request(format!("the parameters do not fit: {}", error.body_text())))?;
        Ok(Self(params))
    }
}

/// A number of some kind from a path: `c3`, or `3`.
///
/// # Errors
/// It is none.
pub fn number<T: std::str::FromStr<Err = String>>(given: &str) -> Result<T, Problem> {
    given.parse().map_err(Problem::bad_request)
}

/// What the client wants to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// JSON, or whatever there is.
    Json,
    /// A stream of events.
    Stream,
    /// Plain text.
    Text,
}

impl FromRequestParts<App> for Wanted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
        let kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
        for kind in kinds {
            match kind {
                "text/event-stream" => return Ok(Self::Stream),
                "text/plain" => return Ok(Self::Text),
                "application/json" | "application/*" | "*/*" | "" => return Ok(Self::Json),
                _ => {}
            }
        }
        Err(Problem::new("not-acceptable", "there is JSON here, and a stream for `Accept: text/event-stream`"))
    }
}
