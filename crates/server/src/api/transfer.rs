//! Sessions from sessions, and sessions as files: fork, export, import. The lines of an export hold names of sessions; they are
//! told in the caller's names.

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::decide::OperatorCommand;
use segue_core::ids::{FlowName, Seq, SessionId, TurnId};
use segue_engine::Error;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::session_view::{SessionView, with_session_history};
use super::sessions::{created_session_response, validate_title};
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{self, JsonBody, QueryParams, SessionRef};
use crate::limits::{IMPORT_BYTES_MAX, NAME_ATTEMPTS_MAX};
use crate::problem::HttpProblem;

/// Where to branch off.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// Up to this event, or up to the end of this turn; all of it if absent.
    #[serde(default)]
    pub at: Option<ForkPoint>,
    /// What the branch is called.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub session: Option<String>,
    /// Its title.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub title: Option<String>,
}

/// A place to branch off.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ForkPoint {
    /// Right after this event.
    Event(u64),
    /// At the end of this turn, such as `t3`.
    Turn(String),
}

/// Begin a new session with the first part of another
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", params(super::SessionPath), request_body = ForkRequest,
    responses((status = 201, body = SessionView, headers(("location" = String, description = "Leads to it.")))))]
pub async fn fork_session(
    session_ref: SessionRef,
    JsonBody(fork): JsonBody<ForkRequest>,
) -> Result<Response, HttpProblem> {
    let title = fork.title.map(|title| validate_title(&title)).transpose()?;
    let at = match fork.at {
        None => None,
        Some(ForkPoint::Event(at)) => Some(check_fork_seq(&session_ref, at).await?),
        Some(ForkPoint::Turn(turn)) => Some(turn_end_seq(&session_ref, extract::parse_numbered_id(&turn)?).await?),
    };
    let branch = branch_session(&session_ref, at, fork.session.as_deref()).await?;
    if let Some(title) = title {
        let engine = &session_ref.app.engine;
        engine
            .apply_command(&branch.session, OperatorCommand::Rename { title })
            .await
            .map_err(|error| session_ref.to_problem(error))?;
    }
    created_session_response(&branch).await
}

/// Branches a session off under that name, or one nobody has.
///
/// # Errors
/// It cannot be done.
pub async fn branch_session(
    session_ref: &SessionRef,
    at: Option<Seq>,
    name: Option<&str>,
) -> Result<SessionRef, HttpProblem> {
    let mut tries = 0;
    loop {
        let to = match name {
            Some(name) => session_ref.caller.full_session_id(name)?,
            None => session_ref.caller.full_session_id(&session_ref.app.engine.generate_session_name())?,
        };
        tries += 1;
        match session_ref.app.engine.fork_session(&session_ref.session, at, Some(to)).await {
            Ok(session) => return Ok(SessionRef { session, ..session_ref.clone() }),
            Err(Error::SessionExists(_)) if name.is_none() && tries < NAME_ATTEMPTS_MAX => {}
            Err(error) => return Err(session_ref.to_problem(error)),
        }
    }
}

async fn check_fork_seq(session_ref: &SessionRef, at: u64) -> Result<Seq, HttpProblem> {
    let last = with_session_history(session_ref, None, |chronicle| chronicle.last_seq).await?;
    if at == 0 || at > last.0 {
        let detail = format!("the session has the events 1 to {last}, so it cannot be forked at {at}");
        return Err(HttpProblem::bad_request(detail).with_extension("field", "at"));
    }
    Ok(Seq(at))
}

/// The place where a turn ended.
///
/// # Errors
/// There is no such turn, or it runs.
pub async fn turn_end_seq(session_ref: &SessionRef, turn: TurnId) -> Result<Seq, HttpProblem> {
    let ended =
        with_session_history(session_ref, None, |chronicle| chronicle.turns.get(&turn).and_then(|note| note.ended))
            .await?;
    let none = || HttpProblem::not_found(format!("the session has no finished turn {turn}"));
    ended.map(|place| place.seq).ok_or_else(none)
}

/// A session as JSON lines
#[utoipa::path(get, path = "/v1/sessions/{session}/export", tag = "sessions", params(super::SessionPath),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
pub async fn export_session(session_ref: SessionRef) -> Result<Response, HttpProblem> {
    with_session_history(&session_ref, None, |_| ()).await?;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel::<Result<String, std::io::Error>>();
    tokio::spawn(async move {
        let caller = session_ref.caller.clone();
        let write = |line: &str| {
            // Whoever reads it may have gone away.
            sender
                .send(Ok(rewrite_session_names(line, &caller)))
                .map_err(|_| Error::Stopped(session_ref.session.clone()))
        };
        if session_ref.app.engine.export_session(&session_ref.session, write).await.is_err() {
            // The connection breaks off, so that nobody takes a part for the whole.
            let _ = sender.send(Err(std::io::ErrorKind::Other.into()));
        }
    });
    let stream = futures_util::stream::poll_fn(move |context| lines.poll_recv(context));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(stream)).into_response())
}

/// A line of an export in the caller's names: only the heading and two kinds of event name a session.
fn rewrite_session_names(line: &str, caller: &Caller) -> String {
    let Some(mut value) = serde_json::from_str::<Value>(line).ok().filter(|_| caller.owner.is_some()) else {
        return line.to_owned();
    };
    let is_event = value.get("event").is_some();
    let names = if is_event { value.get_mut("event") } else { value.get("segue").is_some().then_some(&mut value) };
    let Some(names) = names else { return line.to_owned() };
    if is_event && !matches!(names["type"].as_str(), Some("session_opened" | "session_forked")) {
        return line.to_owned();
    }
    for name in ["session", "from"] {
        if let Some(Value::String(session)) = names.get_mut(name) {
            *session = caller.public_session_name(&SessionId::from(session.as_str()));
        }
    }
    format!("{value}\n")
}

/// What an import is to be called.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportSessionParams {
    /// Its name; the one in the file if absent.
    session: Option<String>,
}

/// Read a session that was exported
#[utoipa::path(post, path = "/v1/import", tag = "sessions", params(ImportSessionParams),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses((status = 201, body = SessionView, headers(("location" = String, description = "Leads to it.")))))]
pub async fn import_session(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<ImportSessionParams>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let bytes = extract::read_body_bytes(request, IMPORT_BYTES_MAX).await?;
    let mut lines = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let (name, flow) = parse_export_header(lines.clone());
    let name = match params.session.or(name) {
        Some(name) => Some(caller.full_session_id(&name)?),
        None => None,
    };
    if let Some(flow) = flow.filter(|flow| !caller.can_use_flow(flow)) {
        return Err(HttpProblem::from_engine_error(&Error::NoSuchFlow { name: flow, known: String::new() }, &caller));
    }
    let session = app
        .engine
        .import_session(&mut lines, name)
        .await
        .map_err(|error| HttpProblem::from_engine_error(&error, &caller))?;
    created_session_response(&SessionRef { app, caller, session }).await
}

/// The name that an export says its session has, and its flow.
fn parse_export_header(lines: impl Iterator<Item = String>) -> (Option<String>, Option<FlowName>) {
    let mut name = None;
    for line in lines {
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        if value.get("segue").is_some() {
            name = value["session"].as_str().map(ToOwned::to_owned);
        }
        if value["event"]["type"] == "session_opened" {
            return (name, value["event"]["flow"].as_str().map(FlowName::from));
        }
    }
    (name, None)
}
