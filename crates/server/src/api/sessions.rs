//! Sessions: begin, list, look, rename, close, forget, erase.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use segue_core::decide::Command;
use segue_core::event::Busy;
use segue_core::ids::{FlowName, Millis};
use segue_engine::{Cursor, Error, Opening, Owes, Query, Row};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::At;
use super::session_view::{SessionView, view};
use super::shapes::BusyPolicy;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Body, Held, Params};
use crate::limits::{NAME_TRIES_MAX, SESSIONS_PAGE, SESSIONS_PAGE_MAX, TITLE_CHARS_MAX};
use crate::problem::Problem;

/// How a session is to begin.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Its name; one is made if there is none.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub session: Option<String>,
    /// Its flow.
    #[serde(default)]
    pub flow: Option<String>,
    /// Its title; the beginning of the first message if there is none.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub title: Option<String>,
    /// What happens to a message while a turn runs.
    #[serde(default)]
    pub busy: Option<BusyPolicy>,
    /// The flow's settings for it.
    #[serde(default)]
    pub settings: Value,
    /// Models that play roles in it, by role, whatever is configured.
    #[serde(default)]
    pub models: BTreeMap<String, String>,
}

/// Begin a session
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, body = SessionView, headers(("location" = String, description = "Leads to it.")))))]
pub async fn create(State(app): State<App>, caller: Caller, Body(new): Body<NewSession>) -> Result<Response, Problem> {
    let flow = FlowName::from(new.flow.unwrap_or_else(|| app.options.flow.to_string()));
    if !new.settings.is_null() && !new.settings.is_object() {
        return Err(Problem::bad_request("`settings` must be an object").with("field", "settings"));
    }
    let title = new.title.map(|title| check_title(&title)).transpose()?;
    let busy = new.busy.map_or(app.options.busy, Busy::from);
    let cast = new.models.into_iter().map(|(role, model)| (role.into(), model.into())).collect();
    let opening = Opening { session: None, title, busy, settings: new.settings, cast };
    let held = begin(&app, caller, &flow, new.session.as_deref(), opening).await?;
    created(&held).await
}

/// Begins a session of that name, or of a name nobody has.
///
/// # Errors
/// It cannot be begun.
pub async fn begin(
    app: &App,
    caller: Caller,
    flow: &FlowName,
    name: Option<&str>,
    opening: Opening,
) -> Result<Held, Problem> {
    if !caller.may_use(flow) {
        return Err(Problem::of(&Error::NoSuchFlow { name: flow.clone(), known: String::new() }, &caller));
    }
    let mut tries = 0;
    loop {
        let session = match name {
            Some(name) => caller.full(name)?,
            None => caller.full(&app.engine.new_name())?,
        };
        tries += 1;
        match app.engine.open(flow, Opening { session: Some(session), ..opening.clone() }).await {
            Ok(session) => return Ok(Held { app: app.clone(), caller, session }),
            // A name that was made may be taken by chance.
            Err(Error::SessionExists(_)) if name.is_none() && tries < NAME_TRIES_MAX => {}
            Err(error) => return Err(Problem::of(&error, &caller)),
        }
    }
}

/// The answer to whoever began a session.
///
/// # Errors
/// It cannot be read.
pub async fn created(held: &Held) -> Result<Response, Problem> {
    let location = HeaderValue::from_str(&format!("/v1/sessions/{}", held.name()))
        .map_err(|_| Problem::new("internal", "a session's name does not fit into a header"))?;
    let view = view(held, None).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(view)).into_response())
}

/// Which sessions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only those whose title, or what was said in them, contains this.
    search: Option<String>,
    /// Only those of this flow.
    flow: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// Where to go on: `next` of the page before.
    cursor: Option<String>,
}

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<SessionRow>,
    /// Where to go on, if there is more.
    pub next: Option<String>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionRow {
    /// Its name.
    pub session: String,
    /// Its flow.
    pub flow: String,
    /// Its title.
    pub title: String,
    /// Where its phase graphs stand, in a few words.
    pub phase: String,
    /// Turns so far.
    pub turns: u32,
    /// Calls so far.
    pub calls: u32,
    /// What they cost, where that is known.
    pub cost_microusd: Option<u64>,
    /// When it began.
    pub created: u64,
    /// When it last changed.
    pub updated: u64,
    /// Whether something is owed at once.
    pub at_work: bool,
    /// The place of its last event.
    pub seq: u64,
    /// The words around what was searched for.
    pub excerpt: Option<String>,
}

impl SessionRow {
    /// A row as the caller sees it.
    #[must_use]
    pub fn of(row: &Row, caller: &Caller) -> Self {
        let Row { session, summary, head, excerpt } = row;
        Self {
            session: caller.public(session),
            flow: summary.flow.clone(),
            title: summary.title.clone(),
            phase: summary.phase.clone(),
            turns: summary.turns,
            calls: summary.calls,
            cost_microusd: summary.cost_microusd,
            created: summary.created.0,
            updated: summary.updated.0,
            at_work: summary.owes == Owes::Now,
            seq: head.0,
            excerpt: excerpt.clone(),
        }
    }
}

/// List sessions, newest first
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(ListParams), responses((status = 200, body = SessionPage)))]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<SessionPage>, Problem> {
    let limit = super::page(params.limit, SESSIONS_PAGE, SESSIONS_PAGE_MAX)?;
    let query = Query {
        text: params.search.filter(|text| !text.is_empty()),
        flows: params.flow.into_iter().collect(),
        before: params.cursor.map(|cursor| read_cursor(&cursor, &caller)).transpose()?,
        ..Query::newest(limit)
    };
    let page = app.engine.list(&caller.narrowed(query)).await.map_err(|error| Problem::of(&error, &caller))?;
    Ok(Json(SessionPage {
        sessions: page.rows.iter().map(|row| SessionRow::of(row, &caller)).collect(),
        next: page.next.map(|cursor| write_cursor(&cursor, &caller)),
    }))
}

fn write_cursor(cursor: &Cursor, caller: &Caller) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{}.{}", cursor.updated.0, caller.public(&cursor.session)))
}

fn read_cursor(cursor: &str, caller: &Caller) -> Result<Cursor, Problem> {
    let bad = || Problem::bad_request("`cursor` is none that this server gave").with("field", "cursor");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let (updated, session) = text.split_once('.').ok_or_else(bad)?;
    let updated = Millis(updated.parse().map_err(|_| bad())?);
    Ok(Cursor { updated, session: caller.full(session).map_err(|_| bad())? })
}

/// Look at a session
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(super::Named, At), responses((status = 200, body = SessionView)))]
pub async fn get(held: Held, Params(at): Params<At>) -> Result<Json<SessionView>, Problem> {
    view(&held, at.seq()?).await.map(Json)
}

/// What is to be changed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its title.
    #[schema(max_length = 200)]
    pub title: String,
}

/// Give a session another title
#[utoipa::path(patch, path = "/v1/sessions/{session}", tag = "sessions", params(super::Named), request_body = Change, responses((status = 200, body = SessionView)))]
pub async fn patch(held: Held, Body(change): Body<Change>) -> Result<Json<SessionView>, Problem> {
    let title = check_title(&change.title)?;
    command(&held, Command::Rename { title }).await
}

/// Close a session: it takes no more messages
#[utoipa::path(post, path = "/v1/sessions/{session}/close", tag = "sessions", params(super::Named), responses((status = 200, body = SessionView)))]
pub async fn close(held: Held) -> Result<Json<SessionView>, Problem> {
    command(&held, Command::Close).await
}

/// Whose memory ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Which role's.
    pub role: String,
    /// Of which individual.
    #[serde(default)]
    pub agent: Option<String>,
    /// Of the talk with whom.
    #[serde(default)]
    pub peer: Option<String>,
}

/// Have a role begin a new thread at its next call
#[utoipa::path(post, path = "/v1/sessions/{session}/forget", tag = "sessions", params(super::Named), request_body = Forget, responses((status = 200, body = SessionView)))]
pub async fn forget(held: Held, Body(forget): Body<Forget>) -> Result<Json<SessionView>, Problem> {
    let Forget { role, agent, peer } = forget;
    let (agent, peer) = (agent.map(Into::into), peer.map(Into::into));
    command(&held, Command::Forget { role: role.into(), agent, peer }).await
}

/// Stop the turn that runs
#[utoipa::path(post, path = "/v1/sessions/{session}/cancel", tag = "messages", params(super::Named), responses((status = 200, body = SessionView)))]
pub async fn cancel(held: Held) -> Result<Json<SessionView>, Problem> {
    command(&held, Command::Cancel).await
}

/// Try the last turn again, which failed
///
/// What was answered in it is not asked again where the flow can go on from it.
#[utoipa::path(post, path = "/v1/sessions/{session}/retry", tag = "messages", params(super::Named), responses((status = 200, body = SessionView)))]
pub async fn retry(held: Held) -> Result<Json<SessionView>, Problem> {
    super::messages::room_for_turn(&held)?;
    command(&held, Command::Retry).await
}

/// Has a session do something, and shows it afterwards.
///
/// # Errors
/// It refuses.
pub async fn command(held: &Held, command: Command) -> Result<Json<SessionView>, Problem> {
    held.app.engine.command(&held.session, command).await.map_err(|error| held.problem(error))?;
    view(held, None).await.map(Json)
}

/// Erase a session with all its texts
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(super::Named), responses((status = 204)))]
pub async fn delete(held: Held) -> Result<StatusCode, Problem> {
    held.app.engine.delete(&held.session).await.map_err(|error| held.problem(error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// A title as it is kept.
///
/// # Errors
/// It is too long, or not fit to be shown.
pub fn check_title(title: &str) -> Result<String, Problem> {
    let title = title.trim();
    if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX || title.chars().any(char::is_control) {
        let detail = format!("a title has 1 to {TITLE_CHARS_MAX} characters, none of them a control character");
        return Err(Problem::bad_request(detail).with("field", "title"));
    }
    Ok(title.to_owned())
}
