//! Errors as problem details (RFC 9457). Decides the status of each error, and how much of it a caller may see: no caller
//! learns the names of another owner.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use segue_core::decide::InputRefusal;
use segue_engine::{Error, StoreError};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::caller::Caller;

/// An error to return to the client.
#[derive(Debug, Clone)]
pub(crate) struct HttpProblem {
    pub status: StatusCode,
    /// A short, stable code; the heading of its section in `docs/errors.md`.
    pub code: &'static str,
    /// What was refused, why, and what to do.
    pub detail: String,
    /// Additional members of the problem.
    pub extensions: Box<Map<String, Value>>,
    pub retry_after_seconds: Option<u64>,
}

/// The body of an error response.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDetails {
    /// The path of the error's page.
    #[schema(example = "/errors/no-such-session")]
    pub r#type: String,
    /// The code in words.
    #[schema(example = "no such session")]
    pub title: String,
    /// The HTTP status.
    #[schema(example = 404)]
    pub status: u16,
    /// What was refused, why, and what to do.
    pub detail: String,
    /// A short, stable code.
    #[schema(example = "no-such-session")]
    pub code: String,
    /// Additional members, depending on the code.
    #[serde(flatten)]
    #[schema(ignore)]
    pub extensions: Map<String, Value>,
}

/// The media type of problem details.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The server's own codes with their status. The engine defines further codes.
pub const SERVER_ERROR_CODES: &[(&str, StatusCode)] = &[
    ("bad-request", StatusCode::BAD_REQUEST),
    ("key-missing", StatusCode::UNAUTHORIZED),
    ("key-invalid", StatusCode::UNAUTHORIZED),
    ("forbidden", StatusCode::FORBIDDEN),
    ("model-not-allowed", StatusCode::FORBIDDEN),
    ("host-not-allowed", StatusCode::FORBIDDEN),
    ("origin-not-allowed", StatusCode::FORBIDDEN),
    ("not-found", StatusCode::NOT_FOUND),
    ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED),
    ("not-acceptable", StatusCode::NOT_ACCEPTABLE),
    ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE),
    ("not-json", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ("invalid-image", StatusCode::BAD_REQUEST),
    ("phase-refused", StatusCode::CONFLICT),
    ("idempotency-key-reused", StatusCode::CONFLICT),
    ("too-many-requests", StatusCode::TOO_MANY_REQUESTS),
    ("key-budget-spent", StatusCode::TOO_MANY_REQUESTS),
    ("too-many-streams", StatusCode::TOO_MANY_REQUESTS),
    ("too-many-turns", StatusCode::TOO_MANY_REQUESTS),
    ("too-many-imports", StatusCode::TOO_MANY_REQUESTS),
    ("body-timeout", StatusCode::REQUEST_TIMEOUT),
    ("no-webhook-secret", StatusCode::CONFLICT),
    ("turn-failed", StatusCode::BAD_GATEWAY),
    ("not-ready", StatusCode::SERVICE_UNAVAILABLE),
    ("database-unavailable", StatusCode::SERVICE_UNAVAILABLE),
    ("internal", StatusCode::INTERNAL_SERVER_ERROR),
];

/// What a client is told if the database cannot be reached. The operator finds the cause in the log.
const DATABASE_UNAVAILABLE_DETAIL: &str =
    "the database cannot be reached; try again in a moment, and repeat a message with the same idempotency key";

impl HttpProblem {
    /// Creates a problem with one of the server's own codes.
    #[must_use]
    pub(crate) fn new(code: &'static str, detail: impl Into<String>) -> Self {
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

    /// Creates a problem for a request that is malformed.
    #[must_use]
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new("bad-request", detail)
    }

    /// Creates a problem for something that does not exist.
    #[must_use]
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new("not-found", detail)
    }

    /// Creates the problem that ends the streams of a key that was revoked.
    #[must_use]
    pub(crate) fn key_revoked() -> Self {
        Self::new("key-invalid", "the key was revoked; use another key")
    }

    /// Adds a member.
    #[must_use]
    pub(crate) fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the `Retry-After` header.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Converts an engine error for `caller`.
    #[must_use]
    pub(crate) fn from_engine_error(error: &Error, caller: &Caller) -> Self {
        let status = error_http_status(error);
        log_server_fault(error, status);
        let detail = describe_error_for(error, caller);
        let retry_after_seconds = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Some(1),
            _ => None,
        };
        Self { status, code: error.code(), detail, extensions: Box::default(), retry_after_seconds }
    }

    /// Converts an error of what the servers of a store share. `detail` is what the client is told if the database can be
    /// reached; the message of the error may contain secrets, so it is only logged.
    #[must_use]
    pub(crate) fn from_shared_state_error(error: &StoreError, detail: &str) -> Self {
        tracing::error!(%error, detail, "request failed");
        match error {
            StoreError::DatabaseUnavailable { .. } => {
                Self::new("database-unavailable", DATABASE_UNAVAILABLE_DETAIL).with_retry_after(1)
            }
            _ => Self::new("internal", detail),
        }
    }

    /// Converts an error of the stored usage of keys.
    #[must_use]
    pub(crate) fn from_usage_error(error: &std::io::Error, detail: &str) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => Self::from_shared_state_error(error, detail),
            None => {
                tracing::error!(%error, detail, "request failed");
                Self::new("internal", detail)
            }
        }
    }

    /// Builds the response body.
    #[must_use]
    pub(crate) fn to_details(&self) -> ProblemDetails {
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

/// Logs an error that only the operator can fix, because the caller is not told its details.
fn log_server_fault(error: &Error, status: StatusCode) {
    let code = error.code();
    match error {
        Error::Store(cause) if status.is_server_error() => tracing::error!(code, error = %cause, "request failed"),
        Error::ShuttingDown => {}
        // The message of an unreadable event may quote the event.
        _ if status.is_server_error() => tracing::error!(code, "request failed"),
        _ => {}
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
        Error::NoSuchSession(_)
        | Error::NoSuchFlow { .. }
        | Error::NoSuchCall { .. }
        | Error::NoSuchSubmission { .. } => StatusCode::NOT_FOUND,
        Error::StillWaiting { .. } => StatusCode::ACCEPTED,
        Error::SessionDeleted(_) => StatusCode::GONE,
        Error::SessionExists(_) | Error::InUse { .. } | Error::TakenOver(_) => StatusCode::CONFLICT,
        Error::BadSessionName { .. }
        | Error::BadImport { .. }
        | Error::BadSettings { .. }
        | Error::NoSuchModel(_)
        | Error::NothingChanges { .. } => StatusCode::BAD_REQUEST,
        Error::Refused(refusal) => refusal_http_status(refusal),
        Error::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        Error::Store(_) if error.is_database_unavailable() => StatusCode::SERVICE_UNAVAILABLE,
        Error::Store(_) if error.code() == "disk-full" => StatusCode::INSUFFICIENT_STORAGE,
        // A missing text may belong to another owner.
        Error::Store(_) if error.is_missing_text() => StatusCode::NOT_FOUND,
        Error::Store(_)
        | Error::InvalidFlow { .. }
        | Error::FlowPanicked(_)
        | Error::Unreadable { .. }
        | Error::EntryGone(_)
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
        | InputRefusal::BadToolArguments { .. }
        | InputRefusal::InvalidTurnOptions { .. }
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
        | InputRefusal::ToolRunNotHeld { .. }
        | InputRefusal::TooManyCalls { .. }
        | InputRefusal::NoTurnRunning
        | InputRefusal::LastTurnNotFailed
        | InputRefusal::StaleTurn { .. }
        | InputRefusal::NotWaiting(_)
        | InputRefusal::UnknownTopic { .. }
        | InputRefusal::UnusableSubmission(_)
        | InputRefusal::FlowCommandRefused(_)
        | InputRefusal::PhaseCommandRefused(_) => StatusCode::CONFLICT,
    }
}

/// Returns the message of an error with the session names that the caller knows. Details about the machine are only for
/// operators.
fn describe_error_for(error: &Error, caller: &Caller) -> String {
    let name = |session| caller.public_session_name(session);
    match error {
        Error::NoSuchSession(session) => format!("there is no session `{}`", name(session)),
        Error::SessionExists(session) => {
            format!("a session `{}` exists already; choose another name", name(session))
        }
        Error::BadSessionName { name: given, why } => {
            format!("`{}` is not a valid session name: {why}", caller.public_session_name(&given.as_str().into()))
        }
        Error::NoSuchFlow { name, .. } => format!("there is no flow `{name}`; `/v1/flows` lists all flows"),
        Error::NoSuchCall { session, call } => format!("the session `{}` has no call {call}", name(session)),
        Error::InUse { session, .. } => {
            format!("the session `{}` is in use by another process; try again in a moment", name(session))
        }
        Error::TakenOver(session) => {
            format!("another process took over the session `{}`; everything accepted is recorded", name(session))
        }
        Error::StillWaiting { session, submission } => format!(
            "the process that holds the session `{}` has not handled the request yet, but will (submission {submission})",
            name(session)
        ),
        Error::NoSuchSubmission { session, submission } => {
            format!("the session `{}` has no submission {submission}, or it is older than a day", name(session))
        }
        Error::SessionDeleted(session) => {
            format!("the session `{}` was deleted before this was done; nothing of it is kept", name(session))
        }
        Error::Stopped(session) => format!(
            "the session `{}` stopped before this was done; everything accepted is recorded, so check it and try again",
            name(session)
        ),
        Error::Unreadable { session, source } if caller.is_operator() => {
            format!("the session `{}` cannot be read: {source}", name(session))
        }
        Error::Unreadable { session, .. } => format!("the session `{}` cannot be read", name(session)),
        Error::Store(_) if error.is_missing_text() => "the session has no such text".to_owned(),
        Error::Store(_) if error.is_database_unavailable() => DATABASE_UNAVAILABLE_DETAIL.to_owned(),
        Error::Store(_) | Error::FlowPanicked(_) | Error::InvalidFlow { .. } if !caller.is_operator() => {
            "the server has a fault that only its operator can fix; report the time and this code".to_owned()
        }
        Error::Store(_)
        | Error::FlowPanicked(_)
        | Error::InvalidFlow { .. }
        | Error::Refused(_)
        | Error::BadImport { .. }
        | Error::BadSettings { .. }
        | Error::NoSuchModel(_)
        | Error::NothingChanges { .. }
        | Error::EntryGone(_)
        | Error::ShuttingDown => error.to_string(),
    }
}
