//! Serves a session's ledger, its complete state, and single texts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::session::UsageTotals;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, LedgerAccountView};
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPathParamDocs};
use crate::caller::Caller;
use crate::extract::{CallerSessionRef, JsonBody, QueryParams};
use crate::limits::TEXTS_MAX;
use crate::problem::HttpProblem;

/// The usage and cost of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LedgerView {
    pub total: CallTotalsView,
    pub roles: Vec<LedgerAccountView>,
    pub models: Vec<LedgerAccountView>,
    /// Accounts are named `graph/phase`.
    pub phases: Vec<LedgerAccountView>,
    pub turns: Vec<LedgerAccountView>,
}

/// Get the usage and cost of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/ledger", tag = "ledger", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = LedgerView)))]
pub(crate) async fn get_ledger(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<LedgerView>, HttpProblem> {
    let at = at.to_seq()?;
    let (_, state) = read_session_state(&session_ref, at).await?;
    let turns = with_session_history(&session_ref, at, |history| {
        let account = |entry: &crate::history::TurnHistoryEntry| LedgerAccountView {
            name: entry.turn.to_string(),
            spent: entry.spent.into(),
        };
        history.turns.values().map(account).collect()
    });
    let ledger = &state.session.ledger;
    Ok(Json(LedgerView {
        total: ledger.total.into(),
        roles: ledger_accounts(&ledger.by_role),
        models: ledger_accounts(&ledger.by_model),
        phases: ledger_accounts(&ledger.by_phase),
        turns: turns.await?,
    }))
}

fn ledger_accounts<K: ToString>(accounts: &BTreeMap<K, UsageTotals>) -> Vec<LedgerAccountView> {
    accounts
        .iter()
        .map(|(name, totals)| LedgerAccountView { name: name.to_string(), spent: (*totals).into() })
        .collect()
}

/// The complete state of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionStateView {
    /// The sequence number of the last event applied.
    pub seq: u64,
    /// The time of that event.
    pub at: u64,
    /// The engine's part of the state.
    #[schema(value_type = Object)]
    pub session: Value,
    /// The flow's part of the state.
    pub flow_state: Value,
}

/// Get the complete state of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/state", tag = "state", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = SessionStateView)))]
pub(crate) async fn get_session_state(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<SessionStateView>, HttpProblem> {
    let (flow, state) = read_session_state(&session_ref, at.to_seq()?).await?;
    // Our own types can always be serialized.
    let mut session = serde_json::to_value(&state.session).unwrap_or_default();
    hide_namespace(&mut session, &session_ref.caller);
    let flow_state = flow.serialize_state(&state.flow).unwrap_or_default();
    Ok(Json(SessionStateView { seq: state.session.last_seq.0, at: state.session.last_event_at.0, session, flow_state }))
}

fn hide_namespace(session: &mut Value, caller: &Caller) {
    if let Some(Value::String(id)) = session.get_mut("id") {
        *id = caller.public_session_name(&id.as_str().into());
    }
}

/// Get one text
#[utoipa::path(get, path = "/v1/sessions/{session}/texts/{body}", tag = "state",
    params(SessionPathParamDocs, ("body" = String, Path, description = "The id of the text: 32 characters.")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn get_text(
    session_ref: CallerSessionRef,
    Path((_, body)): Path<(String, String)>,
) -> Result<Response, HttpProblem> {
    let id: BodyId = body.parse().map_err(HttpProblem::bad_request)?;
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &[id])
        .await
        .map_err(|error| text_problem(&session_ref, &error))?;
    let text = texts.first().map(ToString::to_string).unwrap_or_default();
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable"),
    ];
    Ok((headers, text).into_response())
}

fn text_problem(session_ref: &CallerSessionRef, error: &segue_engine::Error) -> HttpProblem {
    if error.is_missing_text() {
        return HttpProblem::not_found("the session has no such text");
    }
    session_ref.to_problem(error)
}

/// The texts to return.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionTextsRequest {
    /// Text ids.
    #[schema(max_items = 200)]
    pub bodies: Vec<String>,
}

/// Texts of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionTextsView {
    /// Texts by id.
    pub texts: BTreeMap<String, String>,
}

/// Get several texts
#[utoipa::path(post, path = "/v1/sessions/{session}/texts", tag = "state", params(SessionPathParamDocs), request_body = SessionTextsRequest, responses((status = 200, body = SessionTextsView)))]
pub(crate) async fn get_texts(
    session_ref: CallerSessionRef,
    JsonBody(request): JsonBody<SessionTextsRequest>,
) -> Result<Json<SessionTextsView>, HttpProblem> {
    if request.bodies.len() > TEXTS_MAX {
        return Err(HttpProblem::bad_request(format!("at most {TEXTS_MAX} texts may be requested at once"))
            .with_extension("field", "bodies"));
    }
    let ids = request.bodies.iter().map(|body| body.parse().map_err(HttpProblem::bad_request));
    let ids: Vec<BodyId> = ids.collect::<Result<_, _>>()?;
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| text_problem(&session_ref, &error))?;
    let texts = request.bodies.into_iter().zip(texts).map(|(body, text)| (body, text.to_string()));
    Ok(Json(SessionTextsView { texts: texts.collect() }))
}
