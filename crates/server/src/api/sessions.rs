//! Sessions: begin, list, look, rename, close, forget, erase.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use segue_core::decide::OperatorCommand;
use segue_core::event::MidTurnPolicy;
use segue_core::ids::{FlowName, UnixMillis};
use segue_engine::{Error, PendingWork, SessionListCursor, SessionListEntry, SessionOptions, SessionQuery};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::AtEventParams;
use super::common_types::MidTurnPolicyView;
use super::session_view::{SessionView, build_session_view};
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{JsonBody, QueryParams, SessionRef};
use crate::limits::{NAME_ATTEMPTS_MAX, SESSIONS_PAGE_DEFAULT, SESSIONS_PAGE_MAX, TITLE_CHARS_MAX};
use crate::problem::HttpProblem;

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
    pub mid_turn_policy: Option<MidTurnPolicyView>,
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
pub async fn create_session(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewSession>,
) -> Result<Response, HttpProblem> {
    let flow = FlowName::from(new.flow.unwrap_or_else(|| app.options.default_flow.to_string()));
    if !new.settings.is_null() && !new.settings.is_object() {
        return Err(HttpProblem::bad_request("`settings` must be an object").with_extension("field", "settings"));
    }
    let title = new.title.map(|title| validate_title(&title)).transpose()?;
    let busy = new.mid_turn_policy.map_or(app.options.default_mid_turn_policy, MidTurnPolicy::from);
    let cast = new.models.into_iter().map(|(role, model)| (role.into(), model.into())).collect();
    let opening =
        SessionOptions { session: None, title, mid_turn_policy: busy, settings: new.settings, role_models: cast };
    let held = open_new_session(&app, caller, &flow, new.session.as_deref(), opening).await?;
    created_session_response(&held).await
}

/// Begins a session of that name, or of a name nobody has.
///
/// # Errors
/// It cannot be begun.
pub async fn open_new_session(
    app: &AppState,
    caller: Caller,
    flow: &FlowName,
    name: Option<&str>,
    opening: SessionOptions,
) -> Result<SessionRef, HttpProblem> {
    if !caller.can_use_flow(flow) {
        return Err(HttpProblem::from_engine_error(
            &Error::NoSuchFlow { name: flow.clone(), known: String::new() },
            &caller,
        ));
    }
    let mut tries = 0;
    loop {
        let session = match name {
            Some(name) => caller.full_session_id(name)?,
            None => caller.full_session_id(&app.engine.generate_session_name())?,
        };
        tries += 1;
        match app.engine.open_session(flow, SessionOptions { session: Some(session), ..opening.clone() }).await {
            Ok(session) => return Ok(SessionRef { app: app.clone(), caller, session }),
            // A name that was made may be taken by chance.
            Err(Error::SessionExists(_)) if name.is_none() && tries < NAME_ATTEMPTS_MAX => {}
            Err(error) => return Err(HttpProblem::from_engine_error(&error, &caller)),
        }
    }
}

/// The answer to whoever began a session.
///
/// # Errors
/// It cannot be read.
pub async fn created_session_response(session_ref: &SessionRef) -> Result<Response, HttpProblem> {
    let location = HeaderValue::from_str(&format!("/v1/sessions/{}", session_ref.public_name()))
        .map_err(|_| HttpProblem::new("internal", "a session's name does not fit into a header"))?;
    let view = build_session_view(session_ref, None).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(view)).into_response())
}

/// Which sessions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSessionsParams {
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
    pub sessions: Vec<SessionListItem>,
    /// Where to go on, if there is more.
    pub next: Option<String>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionListItem {
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
    pub is_active: bool,
    /// The place of its last event.
    pub seq: u64,
    /// The words around what was searched for.
    pub excerpt: Option<String>,
}

impl SessionListItem {
    /// A row as the caller sees it.
    #[must_use]
    pub fn from_list_entry(row: &SessionListEntry, caller: &Caller) -> Self {
        let SessionListEntry { session, summary, head, excerpt } = row;
        Self {
            session: caller.public_session_name(session),
            flow: summary.flow.clone(),
            title: summary.title.clone(),
            phase: summary.phase.clone(),
            turns: summary.turns,
            calls: summary.calls,
            cost_microusd: summary.cost_microusd,
            created: summary.created_at.0,
            updated: summary.updated_at.0,
            is_active: summary.pending_work == PendingWork::Now,
            seq: head.0,
            excerpt: excerpt.clone(),
        }
    }
}

/// List sessions, newest first
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(ListSessionsParams), responses((status = 200, body = SessionPage)))]
pub async fn list_sessions(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<ListSessionsParams>,
) -> Result<Json<SessionPage>, HttpProblem> {
    let limit = super::page_limit(params.limit, SESSIONS_PAGE_DEFAULT, SESSIONS_PAGE_MAX)?;
    let query = SessionQuery {
        text: params.search.filter(|text| !text.is_empty()),
        flows: params.flow.into_iter().collect(),
        after_cursor: params.cursor.map(|cursor| decode_cursor(&cursor, &caller)).transpose()?,
        ..SessionQuery::newest(limit)
    };
    let page = app
        .engine
        .list_sessions(&caller.restrict_query(query))
        .await
        .map_err(|error| HttpProblem::from_engine_error(&error, &caller))?;
    Ok(Json(SessionPage {
        sessions: page.entries.iter().map(|row| SessionListItem::from_list_entry(row, &caller)).collect(),
        next: page.next_cursor.map(|cursor| encode_cursor(&cursor, &caller)),
    }))
}

fn encode_cursor(cursor: &SessionListCursor, caller: &Caller) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{}.{}", cursor.updated_at.0, caller.public_session_name(&cursor.session)))
}

fn decode_cursor(cursor: &str, caller: &Caller) -> Result<SessionListCursor, HttpProblem> {
    let bad = || HttpProblem::bad_request("`cursor` is none that this server gave").with_extension("field", "cursor");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    let (updated, session) = text.split_once('.').ok_or_else(bad)?;
    let updated = UnixMillis(updated.parse().map_err(|_| bad())?);
    Ok(SessionListCursor { updated_at: updated, session: caller.full_session_id(session).map_err(|_| bad())? })
}

/// Look at a session
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(super::SessionPath, AtEventParams), responses((status = 200, body = SessionView)))]
pub async fn get_session(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<SessionView>, HttpProblem> {
    build_session_view(&session_ref, at.to_seq()?).await.map(Json)
}

/// What is to be changed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSessionRequest {
    /// Its title.
    #[schema(max_length = 200)]
    pub title: String,
}

/// Give a session another title
#[utoipa::path(patch, path = "/v1/sessions/{session}", tag = "sessions", params(super::SessionPath), request_body = UpdateSessionRequest, responses((status = 200, body = SessionView)))]
pub async fn update_session(
    session_ref: SessionRef,
    JsonBody(change): JsonBody<UpdateSessionRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let title = validate_title(&change.title)?;
    run_session_command(&session_ref, OperatorCommand::Rename { title }).await
}

/// Close a session: it takes no more messages
#[utoipa::path(post, path = "/v1/sessions/{session}/close", tag = "sessions", params(super::SessionPath), responses((status = 200, body = SessionView)))]
pub async fn close_session(session_ref: SessionRef) -> Result<Json<SessionView>, HttpProblem> {
    run_session_command(&session_ref, OperatorCommand::Close).await
}

/// Whose memory ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetMemoryRequest {
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
#[utoipa::path(post, path = "/v1/sessions/{session}/forget", tag = "sessions", params(super::SessionPath), request_body = ForgetMemoryRequest, responses((status = 200, body = SessionView)))]
pub async fn forget_role_memory(
    session_ref: SessionRef,
    JsonBody(forget): JsonBody<ForgetMemoryRequest>,
) -> Result<Json<SessionView>, HttpProblem> {
    let ForgetMemoryRequest { role, agent, peer } = forget;
    let (agent, peer) = (agent.map(Into::into), peer.map(Into::into));
    run_session_command(&session_ref, OperatorCommand::Forget { role: role.into(), agent, peer }).await
}

/// Stop the turn that runs
#[utoipa::path(post, path = "/v1/sessions/{session}/cancel", tag = "messages", params(super::SessionPath), responses((status = 200, body = SessionView)))]
pub async fn cancel_turn(session_ref: SessionRef) -> Result<Json<SessionView>, HttpProblem> {
    run_session_command(&session_ref, OperatorCommand::Cancel).await
}

/// Try the last turn again, which failed
///
/// What was answered in it is not asked again where the flow can go on from it.
#[utoipa::path(post, path = "/v1/sessions/{session}/retry", tag = "messages", params(super::SessionPath), responses((status = 200, body = SessionView)))]
pub async fn retry_turn(session_ref: SessionRef) -> Result<Json<SessionView>, HttpProblem> {
    super::messages::check_turn_capacity(&session_ref)?;
    run_session_command(&session_ref, OperatorCommand::Retry).await
}

/// Has a session do something, and shows it afterwards.
///
/// # Errors
/// It refuses.
pub async fn run_session_command(
    session_ref: &SessionRef,
    command: OperatorCommand,
) -> Result<Json<SessionView>, HttpProblem> {
    session_ref
        .app
        .engine
        .apply_command(&session_ref.session, command)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    build_session_view(session_ref, None).await.map(Json)
}

/// Erase a session with all its texts
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(super::SessionPath), responses((status = 204)))]
pub async fn delete_session(session_ref: SessionRef) -> Result<StatusCode, HttpProblem> {
    session_ref.app.engine.delete_session(&session_ref.session).await.map_err(|error| session_ref.to_problem(error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// A title as it is kept.
///
/// # Errors
/// It is too long, or not fit to be shown.
pub fn validate_title(title: &str) -> Result<String, HttpProblem> {
    let title = title.trim();
    if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX || title.chars().any(char::is_control) {
        let detail = format!("a title has 1 to {TITLE_CHARS_MAX} characters, none of them a control character");
        return Err(HttpProblem::bad_request(detail).with_extension("field", "title"));
    }
    Ok(title.to_owned())
}
