//! What went wrong, as whoever asked is told: problem details (RFC 9457) with our code. Decides which error has which status, and
//! what of an error may be told to whom: nobody learns another's names.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use segue_core::decide::InputRefusal;
use segue_engine::Error;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::caller::Caller;

/// A refusal or failure, on its way to whoever asked.
#[derive(Debug, Clone)]
pub struct HttpProblem {
    /// The status of the answer.
    pub status: StatusCode,
    /// Short, stable, and the heading of its place in `docs/errors.md`.
    pub code: &'static str,
    /// What was refused, why, and what to do.
    pub detail: String,
    /// Further members of the problem.
    pub extensions: Box<Map<String, Value>>,
    /// When to come back, in seconds.
    pub retry_after_seconds: Option<u64>,
}

/// A problem as it is written down.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemDetails {
    /// Leads to the page about this error.
    #[schema(example = "/errors/no-such-session")]
    pub r#type: String,
    /// The code in words.
    #[schema(example = "no such session")]
    pub title: String,
    /// The status of the answer.
    #[schema(example = 404)]
    pub status: u16,
    /// What was refused, why, and what to do.
    pub detail: String,
    /// Short and stable.
    #[schema(example = "no-such-session")]
    pub code: String,
    /// What this kind of problem has beside.
    #[serde(flatten)]
    #[schema(ignore)]
    pub extensions: Map<String, Value>,
}

/// The media type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The codes of the server itself, with their status. Those of the engine are the engine's.
pub const SERVER_ERROR_CODES: &[(&str, StatusCode)] = &[
    ("bad-request", StatusCode::BAD_REQUEST),
    ("key-missing", StatusCode::UNAUTHORIZED),
    ("key-not-accepted", StatusCode::UNAUTHORIZED),
    ("not-allowed", StatusCode::FORBIDDEN),
    ("foreign-host", StatusCode::FORBIDDEN),
    ("foreign-origin", StatusCode::FORBIDDEN),
    ("no-such-thing", StatusCode::NOT_FOUND),
    ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED),
    ("not-acceptable", StatusCode::NOT_ACCEPTABLE),
    ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE),
    ("not-json", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ("no-image", StatusCode::BAD_REQUEST),
    ("phase-refused", StatusCode::CONFLICT),
    ("too-many-requests", StatusCode::TOO_MANY_REQUESTS),
    ("too-many-streams", StatusCode::TOO_MANY_REQUESTS),
    ("too-many-turns", StatusCode::TOO_MANY_REQUESTS),
    ("too-slow", StatusCode::REQUEST_TIMEOUT),
    ("no-webhook-secret", StatusCode::CONFLICT),
    ("turn-failed", StatusCode::BAD_GATEWAY),
    ("not-ready", StatusCode::SERVICE_UNAVAILABLE),
    ("internal", StatusCode::INTERNAL_SERVER_ERROR),
];

impl HttpProblem {
    /// One of the server's own.
    #[must_use]
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        let status = SERVER_ERROR_CODES.iter().find(|(known, _)| *known == code).map(|(_, status)| *status);
        debug_assert!(status.is_some(), "`{code}` is not listed");
        Self {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            detail: detail.into(),
            extensions: Box::default(),
            retry_after_seconds: None,
        }
    }

    /// What was sent cannot be understood.
    #[must_use]
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new("bad-request", detail)
    }

    /// What was asked for is not there.
    #[must_use]
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new("no-such-thing", detail)
    }

    /// The same with a member more.
    #[must_use]
    pub fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// The same with a time to come back.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// What an error of the engine is to `caller`.
    #[must_use]
    pub fn from_engine_error(error: &Error, caller: &Caller) -> Self {
        let status = error_http_status(error);
        let detail = describe_error_for(error, caller);
        let retry_after = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some(1),
            _ => None,
        };
        Self { status, code: error.code(), detail, extensions: Box::default(), retry_after_seconds: retry_after }
    }

    /// The problem as it is written down.
    #[must_use]
    pub fn to_details(&self) -> ProblemDetails {
        ProblemDetails {
            r#type: format!("/errors/{}", self.code),
            title: self.code.replace('-', " "),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            extensions: (*self.extensions).clone(),
        }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_details())).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn error_http_status(error: &Error) -> StatusCode {
    match error {
        Error::NoSuchSession(_) | Error::NoSuchFlow { .. } | Error::NoSuchCall { .. } => StatusCode::NOT_FOUND,
        Error::SessionExists(_) | Error::InUse { .. } | Error::TakenOver(_) => StatusCode::CONFLICT,
        Error::BadSessionName { .. }
        | Error::BadImport { .. }
        | Error::BadSettings { .. }
        | Error::NoSuchModel(_)
        | Error::NothingChanges { .. } => StatusCode::BAD_REQUEST,
        Error::Refused(refusal) => refusal_http_status(refusal),
        Error::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        Error::Store(_) if error.code() == "disk-full" => StatusCode::INSUFFICIENT_STORAGE,
        // A text that is not there is not this caller's.
        Error::Store(_) if error.is_missing_text() => StatusCode::NOT_FOUND,
        Error::Store(_)
        | Error::InvalidFlow { .. }
        | Error::FlowPanicked(_)
        | Error::Unreadable { .. }
        | Error::Stopped(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn refusal_http_status(refusal: &InputRefusal) -> StatusCode {
    match refusal {
        InputRefusal::EmptyMessage
        | InputRefusal::MessageTooLong { .. }
        | InputRefusal::ControlCharacter { .. }
        | InputRefusal::IdempotencyKeyTooLong { .. }
        | InputRefusal::TooManyImages { .. }
        | InputRefusal::ImageTooBig { .. }
        | InputRefusal::InvalidImage { .. }
        | InputRefusal::NoSuchCommand { .. }
        | InputRefusal::NoSuchRole { .. } => StatusCode::BAD_REQUEST,
        InputRefusal::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        InputRefusal::TooManySteps { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        InputRefusal::AlreadyOpen
        | InputRefusal::NotOpen
        | InputRefusal::Closed { .. }
        | InputRefusal::Busy
        | InputRefusal::CallNotPending { .. }
        | InputRefusal::ToolRunNotPending { .. }
        | InputRefusal::NoResolutionNeeded { .. }
        | InputRefusal::TooManyCalls { .. }
        | InputRefusal::NoTurnRunning
        | InputRefusal::LastTurnNotFailed
        | InputRefusal::FlowCommandRefused(_)
        | InputRefusal::PhaseCommandRefused(_) => StatusCode::CONFLICT,
    }
}

/// The words of an error, in the caller's names. What belongs to the machine is for those who run it.
fn describe_error_for(error: &Error, caller: &Caller) -> String {
    let name = |session| caller.public_session_name(session);
    match error {
        Error::NoSuchSession(session) => format!("there is no session `{}`", name(session)),
        Error::SessionExists(session) => {
            format!("there is a session `{}` already; choose another name", name(session))
        }
        Error::BadSessionName { name: given, why } => {
            format!("`{}` cannot name a session: {why}", caller.public_session_name(&given.as_str().into()))
        }
        Error::NoSuchFlow { name, .. } => format!("there is no flow `{name}`; `/v1/flows` lists those there are"),
        Error::NoSuchCall { session, call } => format!("the session `{}` has no call {call}", name(session)),
        Error::InUse { session, .. } => {
            format!("the session `{}` is in use by another process; try again in a moment", name(session))
        }
        Error::TakenOver(session) => {
            format!("the session `{}` was taken over by another process; what was accepted is safe", name(session))
        }
        Error::Stopped(session) => format!(
            "work on the session `{}` ended before this was done; what was accepted is recorded, so look and try again",
            name(session)
        ),
        Error::Unreadable { session, source } if caller.is_operator() => {
            format!("the session `{}` cannot be read: {source}", name(session))
        }
        Error::Unreadable { session, .. } => format!("the session `{}` cannot be read", name(session)),
        Error::Store(_) if error.is_missing_text() => "the session has no such text".to_owned(),
        Error::Store(_) | Error::FlowPanicked(_) | Error::InvalidFlow { .. } if !caller.is_operator() => {
            "something failed that only those who run this server can mend; tell them the time and this code".to_owned()
        }
        Error::Store(_)
        | Error::FlowPanicked(_)
        | Error::InvalidFlow { .. }
        | Error::Refused(_)
        | Error::BadImport { .. }
        | Error::BadSettings { .. }
        | Error::NoSuchModel(_)
        | Error::NothingChanges { .. }
        | Error::ShuttingDown => error.to_string(),
    }
}
