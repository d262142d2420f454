//! What a session cost, by role, model, phase and turn; and its whole state and texts, for those who want to look below.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::ledger::UsageTotals;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, LedgerAccountView};
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPath};
use crate::caller::Caller;
use crate::extract::{JsonBody, QueryParams, SessionRef};
use crate::limits::TEXTS_MAX;
use crate::problem::HttpProblem;

/// What a session cost.
#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerView {
    /// In all.
    pub total: CallTotalsView,
    /// By role.
    pub roles: Vec<LedgerAccountView>,
    /// By model.
    pub models: Vec<LedgerAccountView>,
    /// By phase, as `graph/phase`.
    pub phases: Vec<LedgerAccountView>,
    /// By turn.
    pub turns: Vec<LedgerAccountView>,
}

/// What a session cost
#[utoipa::path(get, path = "/v1/sessions/{session}/ledger", tag = "ledger", params(SessionPath, AtEventParams), responses((status = 200, body = LedgerView)))]
pub async fn get_ledger(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<LedgerView>, HttpProblem> {
    let at = at.to_seq()?;
    let (_, state) = read_session_state(&session_ref, at).await?;
    let turns = with_session_history(&session_ref, at, |chronicle| {
        let account = |note: &crate::history::TurnEntry| LedgerAccountView {
            name: note.turn.to_string(),
            spent: note.spent.into(),
        };
        chronicle.turns.values().map(account).collect()
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

fn ledger_accounts<K: ToString>(tallies: &BTreeMap<K, UsageTotals>) -> Vec<LedgerAccountView> {
    tallies.iter().map(|(name, tally)| LedgerAccountView { name: name.to_string(), spent: (*tally).into() }).collect()
}

/// The whole state of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionStateView {
    /// The place of the last event folded into it.
    pub seq: u64,
    /// When that was.
    pub at: u64,
    /// What every session has.
    #[schema(value_type = Object)]
    pub session: Value,
    /// What its flow remembers.
    pub flow_state: Value,
}

/// The whole state of a session at any event
#[utoipa::path(get, path = "/v1/sessions/{session}/state", tag = "state", params(SessionPath, AtEventParams), responses((status = 200, body = SessionStateView)))]
pub async fn get_session_state(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<SessionStateView>, HttpProblem> {
    let (rules, state) = read_session_state(&session_ref, at.to_seq()?).await?;
    let mut session = serde_json::to_value(&state.session).unwrap_or_default();
    hide_namespace(&mut session, &session_ref.caller);
    let memory = rules.serialize_state(&state.flow).unwrap_or_default();
    Ok(Json(SessionStateView {
        seq: state.session.last_seq.0,
        at: state.session.last_event_at.0,
        session,
        flow_state: memory,
    }))
}

fn hide_namespace(session: &mut Value, caller: &Caller) {
    if let Some(Value::String(id)) = session.get_mut("id") {
        *id = caller.public_session_name(&id.as_str().into());
    }
}

/// One text
#[utoipa::path(get, path = "/v1/sessions/{session}/texts/{body}", tag = "state",
    params(SessionPath, ("body" = String, Path, description = "Its id: 32 characters.")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn get_text(
    session_ref: SessionRef,
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

fn text_problem(session_ref: &SessionRef, error: &segue_engine::Error) -> HttpProblem {
    if error.is_missing_text() {
        return HttpProblem::not_found("the session has no such text");
    }
    session_ref.to_problem(error)
}

/// Which texts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TextsRequest {
    /// Their ids.
    #[schema(max_items = 200)]
    pub bodies: Vec<String>,
}

/// Texts by id.
#[derive(Debug, Serialize, ToSchema)]
pub struct TextsView {
    /// By id.
    pub texts: BTreeMap<String, String>,
}

/// Several texts at once
#[utoipa::path(post, path = "/v1/sessions/{session}/texts", tag = "state", params(SessionPath), request_body = TextsRequest, responses((status = 200, body = TextsView)))]
pub async fn get_texts(
    session_ref: SessionRef,
    JsonBody(wish): JsonBody<TextsRequest>,
) -> Result<Json<TextsView>, HttpProblem> {
    if wish.bodies.len() > TEXTS_MAX {
        return Err(HttpProblem::bad_request(format!("at most {TEXTS_MAX} texts are given at once"))
            .with_extension("field", "bodies"));
    }
    let ids = wish.bodies.iter().map(|body| body.parse().map_err(HttpProblem::bad_request));
    let ids: Vec<BodyId> = ids.collect::<Result<_, _>>()?;
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| text_problem(&session_ref, &error))?;
    let texts = wish.bodies.into_iter().zip(texts).map(|(body, text)| (body, text.to_string()));
    Ok(Json(TextsView { texts: texts.collect() }))
}
