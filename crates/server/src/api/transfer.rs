//! Sessions from sessions, and sessions as files: fork, export, import. The lines of an export hold names of sessions; they are
//! told in the caller's names.

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::decide::Command;
use segue_core::ids::{FlowName, Seq, SessionId, TurnId};
use segue_engine::Error;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::session_view::{SessionView, chronicle};
use super::sessions::{check_title, created};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{self, Body, Held, Params};
use crate::limits::{IMPORT_BYTES_MAX, NAME_TRIES_MAX};
use crate::problem::Problem;

/// Where to branch off.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// Up to this event, or up to the end of this turn; all of it if absent.
    #[serde(default)]
    pub at: Option<ForkAt>,
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
pub enum ForkAt {
    /// Right after this event.
    Event(u64),
    /// At the end of this turn, such as `t3`.
    Turn(String),
}

/// Begin a new session with the first part of another
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", params(super::Named), request_body = Fork,
    responses((status = 201, body = SessionView, headers(("location" = String, description = "Leads to it.")))))]
pub async fn fork(held: Held, Body(fork): Body<Fork>) -> Result<Response, Problem> {
    let title = fork.title.map(|title| check_title(&title)).transpose()?;
    let at = match fork.at {
        None => None,
        Some(ForkAt::Event(at)) => Some(at_event(&held, at).await?),
        Some(ForkAt::Turn(turn)) => Some(end_of_turn(&held, extract::number(&turn)?).await?),
    };
    let branch = branch(&held, at, fork.session.as_deref()).await?;
    if let Some(title) = title {
        let engine = &held.app.engine;
        engine.command(&branch.session, Command::Rename { title }).await.map_err(|error| held.problem(error))?;
    }
    created(&branch).await
}

/// Branches a session off under that name, or one nobody has.
///
/// # Errors
/// It cannot be done.
pub async fn branch(held: &Held, at: Option<Seq>, name: Option<&str>) -> Result<Held, Problem> {
    let mut tries = 0;
    loop {
        let to = match name {
            Some(name) => held.caller.full(name)?,
            None => held.caller.full(&held.app.engine.new_name())?,
        };
        tries += 1;
        match held.app.engine.fork(&held.session, at, Some(to)).await {
            Ok(session) => return Ok(Held { session, ..held.clone() }),
            Err(Error::SessionExists(_)) if name.is_none() && tries < NAME_TRIES_MAX => {}
            Err(error) => return Err(held.problem(error)),
        }
    }
}

async fn at_event(held: &Held, at: u64) -> Result<Seq, Problem> {
    let last = chronicle(held, None, |chronicle| chronicle.seq).await?;
    if at == 0 || at > last.0 {
        let detail = format!("the session has the events 1 to {last}, so it cannot be forked at {at}");
        return Err(Problem::bad_request(detail).with("field", "at"));
    }
    Ok(Seq(at))
}

/// The place where a turn ended.
///
/// # Errors
/// There is no such turn, or it runs.
pub async fn end_of_turn(held: &Held, turn: TurnId) -> Result<Seq, Problem> {
    let ended = chronicle(held, None, |chronicle| chronicle.turns.get(&turn).and_then(|note| note.ended)).await?;
    let none = || Problem::no_such_thing(format!("the session has no finished turn {turn}"));
    ended.map(|place| place.seq).ok_or_else(none)
}

/// A session as JSON lines
#[utoipa::path(get, path = "/v1/sessions/{session}/export", tag = "sessions", params(super::Named),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
pub async fn export(held: Held) -> Result<Response, Problem> {
    chronicle(&held, None, |_| ()).await?;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel::<Result<String, std::io::Error>>();
    tokio::spawn(async move {
        let caller = held.caller.clone();
        let write = |line: &str| {
            // Whoever reads it may have gone away.
            sender.send(Ok(told(line, &caller))).map_err(|_| Error::Stopped(held.session.clone()))
        };
        if held.app.engine.export(&held.session, write).await.is_err() {
            // The connection breaks off, so that nobody takes a part for the whole.
            let _ = sender.send(Err(std::io::ErrorKind::Other.into()));
        }
    });
    let stream = futures_util::stream::poll_fn(move |context| lines.poll_recv(context));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(stream)).into_response())
}

/// A line of an export in the caller's names: only the heading and two kinds of event name a session.
fn told(line: &str, caller: &Caller) -> String {
    let Some(mut value) = serde_json::from_str::<Value>(line).ok().filter(|_| caller.owner.is_some()) else {
        return line.to_owned();
    };
    let is_event = value.get("event").is_some();
    let names = if is_event { value.get_mut("event") } else { value.get("segue").is_some().then_some(&mut value) };
    let Some(names) = names else { return line.to_owned() };
    if is_event && !matches!(names["is"].as_str(), Some("session_opened" | "session_forked")) {
        return line.to_owned();
    }
    for name in ["session", "from"] {
        if let Some(Value::String(session)) = names.get_mut(name) {
            *session = caller.public(&SessionId::from(session.as_str()));
        }
    }
    format!("{value}\n")
}

/// What an import is to be called.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportParams {
    /// Its name; the one in the file if absent.
    session: Option<String>,
}

/// Read a session that was exported
#[utoipa::path(post, path = "/v1/import", tag = "sessions", params(ImportParams),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses((status = 201, body = SessionView, headers(("location" = String, description = "Leads to it.")))))]
pub async fn import(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<ImportParams>,
    request: Request,
) -> Result<Response, Problem> {
    let bytes = extract::bytes(request, IMPORT_BYTES_MAX).await?;
    let mut lines = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let (name, flow) = heading(lines.clone());
    let name = match params.session.or(name) {
        Some(name) => Some(caller.full(&name)?),
        None => None,
    };
    if let Some(flow) = flow.filter(|flow| !caller.may_use(flow)) {
        return Err(Problem::of(&Error::NoSuchFlow { name: flow, known: String::new() }, &caller));
    }
    let session = app.engine.import(&mut lines, name).await.map_err(|error| Problem::of(&error, &caller))?;
    created(&Held { app, caller, session }).await
}

/// The name that an export says its session has, and its flow.
fn heading(lines: impl Iterator<Item = String>) -> (Option<String>, Option<FlowName>) {
    let mut name = None;
    for line in lines {
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        if value.get("segue").is_some() {
            name = value["session"].as_str().map(ToOwned::to_owned);
        }
        if value["event"]["is"] == "session_opened" {
            return (name, value["event"]["flow"].as_str().map(FlowName::from));
        }
    }
    (name, None)
}
